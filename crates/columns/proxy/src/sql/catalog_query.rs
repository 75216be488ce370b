//! The query that reads the proxy's catalog of a database from the server.
//!
//! Must not: know what becomes of its rows; that is `catalog.rs`.

/// The query that reads the catalog: a single one, for a single round trip. Columns of its rows:
/// type of the row, schema, name, and for
/// - `t`, the extension's types: OID, OID of the array type;
/// - `y`, other types that are no system's own: OID, OID of the array type, type that it is over
///   (domains, ranges), OID of the relation whose rows it is;
/// - `r`, columns of relations and of composite types: number, name, type, OID of the relation, the
///   type's modifier, and the relation's sort (`relkind`). System relations are listed by name
///   only: none of their columns is confidential;
/// - `h`, partitions: schema and name of the table at the top of their hierarchy;
/// - `s`, one row: the schema of the session's temporary relations, and as name the current schema;
/// - `f`, functions: type of an argument or of the result.
pub(crate) const CATALOG_QUERY: &str = "\
SELECT 't', n.nspname, t.typname, t.oid::pg_catalog.text, t.typarray::pg_catalog.text, NULL, NULL, NULL, NULL \
FROM pg_catalog.pg_extension x \
JOIN pg_catalog.pg_depend d ON d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass AND d.refobjid = x.oid \
AND d.classid = 'pg_catalog.pg_type'::pg_catalog.regclass AND d.deptype = 'e' \
JOIN pg_catalog.pg_type t ON t.oid = d.objid JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace \
WHERE x.extname = 'strongroom_columns' \
UNION ALL \
SELECT 'y', n.nspname, t.typname, t.oid::pg_catalog.text, t.typarray::pg_catalog.text, \
coalesce(g.rngsubtype, t.typbasetype)::pg_catalog.text, t.typrelid::pg_catalog.text, NULL, NULL \
FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace \
LEFT JOIN pg_catalog.pg_range g ON g.rngtypid = t.oid \
WHERE t.oid >= 16384 AND (t.typtype <> 'b' OR t.typcategory <> 'A') AND n.nspname !~ '^pg_toast' \
UNION ALL \
SELECT 'r', n.nspname, c.relname, pg_catalog.lpad(a.attnum::pg_catalog.text, 5, '0'), a.attname, a.atttypid::pg_catalog.text, \
c.oid::pg_catalog.text, a.atttypmod::pg_catalog.text, \
CASE WHEN NOT c.relhasrules AND (c.relkind = 'p' OR c.relkind = 'r' AND NOT c.relhassubclass) THEN 'own' \
ELSE c.relkind::pg_catalog.text END \
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped \
AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_(catalog|toast)' \
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S', 'c') AND n.nspname !~ '^pg_toast' \
UNION ALL \
SELECT 'h', n.nspname, c.relname, rn.nspname, r.relname, NULL, NULL, NULL, NULL \
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
JOIN pg_catalog.pg_class r ON r.oid = pg_catalog.pg_partition_root(c.oid) \
JOIN pg_catalog.pg_namespace rn ON rn.oid = r.relnamespace WHERE c.relispartition AND c.relkind IN ('r', 'p', 'f') \
UNION ALL \
SELECT 's', coalesce((SELECT nspname FROM pg_catalog.pg_namespace WHERE oid = pg_catalog.pg_my_temp_schema()), ''), \
pg_catalog.current_schema(), NULL, NULL, NULL, NULL, NULL, NULL \
UNION ALL \
SELECT DISTINCT 'f', n.nspname, p.proname, NULL, NULL, u.t::pg_catalog.text, NULL, NULL, NULL \
FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace \
CROSS JOIN LATERAL pg_catalog.unnest(coalesce(p.proallargtypes, p.proargtypes::pg_catalog.oid[]) || p.prorettype) u(t) \
WHERE p.oid >= 16384 \
AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_extension x ON x.oid = d.refobjid \
WHERE d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND d.objid = p.oid AND d.deptype = 'e' \
AND x.extname = 'strongroom_columns') \
ORDER BY 1, 2, 3, 4";
