//! Goal: the SQL objects are sound, and are PostgreSQL's for the base types wherever PostgreSQL has
//! them.
//! Method: queries over the catalogs of a server, in the manner of PostgreSQL's `opr_sanity`; each
//! finds what is wrong.

use std::path::Path;

use strongroom_columns_ring::function::{
    AGGREGATE_NAMES, Aggregate, Arg, FUNCTIONS, Function, Gives,
};
use strongroom_columns_testing::Server;
use strongroom_format::columns::Kind;

/// Types of the extension, and the base type of each.
const TYPES: &str = "CREATE VIEW enc AS SELECT t.oid AS enc, b.oid AS base, t.typname FROM pg_type t JOIN pg_type b
    ON t.typname = 'enc_' || b.typname AND b.typnamespace = 'pg_catalog'::regnamespace;
    CREATE VIEW member AS SELECT p.* FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
        AND d.deptype = 'e' JOIN pg_extension e ON e.oid = d.refobjid WHERE e.extname = 'strongroom_columns';";

/// Queries that must find nothing.
const WRONG: &[(&str, &str)] = &[
    ("an operator class that its access method does not find valid, other than one that has to be without the order's operators",
     "SELECT opcname FROM pg_opclass JOIN enc ON opcintype = enc WHERE NOT amvalidate(pg_opclass.oid) AND opcname !~ '_equality_ops$'"),
    ("an operator of an order in a family that has none, or another equality operator than the type's",
     "SELECT opfname, amopopr::regoperator FROM pg_amop JOIN pg_opfamily f ON f.oid = amopfamily
      WHERE opfname ~ '^enc_.*(equality|unsorted)_ops$' AND (amopstrategy <> 3
      OR (amopopr::regoperator::text ~ '=='::text) <> (opfname = 'enc_unsorted_ops'))"),
    ("a keyed family that was made before the default one of its type, by which the planner then sorts",
     "SELECT k.opfname FROM pg_opfamily k JOIN pg_opfamily d ON d.opfname = replace(k.opfname, '_equality_ops', '_ops') AND d.opfmethod = k.opfmethod
      WHERE k.opfname ~ '^enc_.*_equality_ops$' AND k.oid < d.oid"),
    ("a type that can have the class equality without its operator class, or another one with it",
     "SELECT typname FROM enc WHERE EXISTS (SELECT FROM pg_opclass WHERE opcintype = enc AND opcname = typname || '_equality_ops')
      <> (typname NOT IN ('enc_bool', 'enc_interval', 'enc_jsonb'))"),
    ("a type without its two default operator classes",
     "SELECT typname FROM enc WHERE (SELECT count(*) FROM pg_opclass WHERE opcintype = enc AND opcdefault) <> 2"),
    ("a cast between a confidential and a plain type that is not explicit, or of another type than its own",
     "SELECT castsource::regtype, casttarget::regtype FROM pg_cast
      WHERE (castsource IN (SELECT enc FROM enc)) <> (casttarget IN (SELECT enc FROM enc))
      AND (castcontext <> 'e' OR NOT EXISTS (SELECT FROM enc
           WHERE (enc, base) IN ((castsource, casttarget), (casttarget, castsource))))"),
    ("a cast in another context than PostgreSQL's for the base types",
     "SELECT s.typname, t.typname, c.castcontext, p.castcontext FROM pg_cast c JOIN enc s ON s.enc = c.castsource
      JOIN enc t ON t.enc = c.casttarget JOIN pg_cast p ON p.castsource = s.base AND p.casttarget = t.base
      WHERE c.castcontext <> p.castcontext"),
    ("a cast that PostgreSQL does through text in another context",
     "SELECT s.typname, t.typname, c.castcontext FROM pg_cast c JOIN enc s ON s.enc = c.castsource
      JOIN enc t ON t.enc = c.casttarget LEFT JOIN pg_cast p ON p.castsource = s.base AND p.casttarget = t.base
      WHERE p.oid IS NULL AND c.castcontext <> CASE WHEN t.typname = 'enc_text' THEN 'a' ELSE 'e' END"),
    ("an immutable function that gives a confidential value",
     "SELECT oid::regprocedure FROM member WHERE prokind = 'f' AND provolatile = 'i' AND prorettype IN (SELECT enc FROM enc)"),
    ("a comparison that is not immutable, which an index needs",
     "SELECT oid::regprocedure FROM member WHERE provolatile <> 'i' AND proname ~ '^enc_.*_(lt|le|eq|ge|gt|ne|cmp|keyed_cmp)$'"),
    ("a hash that is immutable, which an index would need",
     "SELECT oid::regprocedure FROM member WHERE provolatile = 'i' AND proname ~ '_hash'"),
    ("a function that is not strict and no transition",
     "SELECT oid::regprocedure FROM member WHERE NOT proisstrict AND prokind = 'f' AND proname !~ '_step$'
      AND prorettype <> 'trigger'::regtype"),
    ("a function of confidential values that a parallel worker may run",
     "SELECT oid::regprocedure FROM member WHERE proparallel = 's' AND proargtypes::oid[] && ARRAY(SELECT enc FROM enc)"),
    ("an operator without its commutator's or its negator's answer",
     "SELECT o.oid::regoperator FROM pg_operator o JOIN enc ON o.oprleft = enc
      LEFT JOIN pg_operator c ON c.oid = o.oprcom LEFT JOIN pg_operator n ON n.oid = o.oprnegate
      WHERE (o.oprcom <> 0 AND c.oprcom IS DISTINCT FROM o.oid) OR (o.oprnegate <> 0 AND n.oprnegate IS DISTINCT FROM o.oid)"),
    ("an operator whose estimators are not PostgreSQL's for the base types",
     "SELECT o.oid::regoperator FROM pg_operator o JOIN enc ON o.oprleft = enc JOIN enc r ON o.oprright = r.enc
      JOIN pg_operator p ON p.oprname = o.oprname AND p.oprleft = enc.base AND p.oprright = r.base
      WHERE (CASE WHEN o.oprname IN ('<', '<=', '>', '>=') THEN 'strongroom_range_selectivity'::regproc ELSE p.oprrest END, p.oprjoin) <> (o.oprrest, o.oprjoin)"),
    ("a type that is not eight bytes by value, aligned and plain",
     "SELECT t.typname FROM pg_type t JOIN enc ON t.oid = enc
      WHERE (typlen, typbyval, typalign, typstorage) <> (8, true, 'd', 'p')"),
    ("a type that is preferred where its base type is not",
     "SELECT t.typname FROM pg_type t JOIN enc ON t.oid = enc JOIN pg_type b ON b.oid = base
      WHERE t.typispreferred <> b.typispreferred"),
    ("aggregates that would share a state that is not the same",
     "SELECT aggtransfn FROM pg_aggregate WHERE aggfnoid IN (SELECT oid FROM member) GROUP BY 1 HAVING count(*) > 1"),
];

fn base(arg: Arg) -> &'static str {
    match arg {
        Arg::Of(kind) => kind.base(),
        Arg::Plain => "int4",
        Arg::Name => "text",
    }
}

/// Casts that PostgreSQL does through text: it has no function of that name and these types.
fn is_through_text(function: &Function) -> bool {
    function.code >= 300
        && (function.name == "text" || function.args.contains(&Arg::Of(Kind::Text)))
}

#[test]
fn objects_are_sound_and_postgresqls() {
    let server = Server::start(Path::new("/nonexistent/zone.sock"), "");
    let _none = server.rows(&format!("CREATE EXTENSION strongroom_columns; {TYPES}"));
    assert_eq!(
        server.rows("SELECT count(*) FROM enc"),
        Kind::ALL.len().to_string()
    );
    for (what, query) in WRONG {
        assert_eq!(server.rows(query), "", "{what}");
    }
    for function in FUNCTIONS {
        check_function(&server, function);
    }
    for (name, aggregate) in AGGREGATE_NAMES {
        for kind in Kind::ALL {
            check_aggregate(&server, name, *aggregate, *kind);
        }
    }
    let dropped = server.rows("DROP VIEW enc, member; DROP EXTENSION strongroom_columns; SELECT count(*) FROM pg_type WHERE typname LIKE 'enc\\_%'");
    assert_eq!(dropped, "0");
}

/// The function is there for confidential values, and PostgreSQL has the same for the base types.
fn check_function(server: &Server, function: &Function) {
    let gives = match function.gives {
        Gives::Value(kind) => kind.base(),
        Gives::Truth => "bool",
    };
    let bases: Vec<&str> = function.args.iter().map(|arg| base(*arg)).collect();
    let own = function.args.iter().map(|arg| match arg {
        Arg::Of(kind) => format!("enc_{}", kind.base()),
        other => base(*other).to_owned(),
    });
    let own: Vec<String> = own.collect();
    let name = function.name;
    let result = |types: &str| {
        server.rows(&format!(
            "SELECT t.typname FROM pg_proc p JOIN pg_type t ON t.oid = p.prorettype WHERE proname = '{name}'
             AND ARRAY(SELECT unnest(proargtypes::oid[]))::regtype[] = ARRAY[{types}]::regtype[]"
        ))
    };
    let quoted = |types: &[String]| {
        let quoted: Vec<String> = types.iter().map(|one| format!("'{one}'")).collect();
        quoted.join(",")
    };
    let plain: Vec<String> = bases.iter().map(|one| (*one).to_owned()).collect();
    let expected = match function.gives {
        Gives::Value(_) => format!("enc_{gives}"),
        Gives::Truth => gives.to_owned(),
    };
    assert_eq!(result(&quoted(&own)), expected, "{name} {own:?}");
    if !is_through_text(function) {
        assert_eq!(
            result(&quoted(&plain)),
            gives,
            "PostgreSQL's {name} {plain:?}"
        );
    }
}

/// An aggregate that is offered is PostgreSQL's; what is not offered is not there.
fn check_aggregate(server: &Server, name: &str, aggregate: Aggregate, kind: Kind) {
    let result = |of: &str| {
        let args = if aggregate == Aggregate::StringAgg {
            format!("'{of}','{of}'")
        } else {
            format!("'{of}'")
        };
        server.rows(&format!(
            "SELECT t.typname FROM pg_proc p JOIN pg_type t ON t.oid = p.prorettype WHERE proname = '{name}' AND prokind = 'a'
             AND ARRAY(SELECT unnest(proargtypes::oid[]))::regtype[] = ARRAY[{args}]::regtype[]"
        ))
    };
    let own = result(&format!("enc_{}", kind.base()));
    match aggregate.gives(kind) {
        Some(gives) => {
            assert_eq!(
                own,
                format!("enc_{}", gives.base()),
                "{name}({})",
                kind.base()
            );
            assert_eq!(
                result(kind.base()),
                gives.base(),
                "PostgreSQL's {name}({})",
                kind.base()
            );
        }
        None => assert_eq!(own, "", "{name}({})", kind.base()),
    }
}
