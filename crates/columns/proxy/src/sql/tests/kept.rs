//! Constants of definitions: what the text has in their place, and what no definition can keep.

use super::lineages::{names, of};
use super::{Kind, plan, refused, shop, stays};

/// The text of a definition, with `{kind value}` in place of each constant.
#[track_caller]
fn keeps(sql: &str, expected: &str) {
    let plans = plan(sql, &shop(), 0).unwrap_or_else(|refusal| panic!("{sql}: {refusal}"));
    let plan = plans.last().unwrap();
    assert!(plan.constants.is_empty() && plan.changed, "{sql}");
    let mut text = plan.sql.replace("strongroom_columns.", "");
    for constant in &plan.kept {
        assert!(!sql.contains(&constant.placeholder), "{sql}");
        let call = format!(
            "enc_{}_constant('{}')",
            constant.kind.base(),
            constant.placeholder
        );
        let short = format!("{{{} {}}}", constant.kind.base(), *constant.literal.text);
        assert!(text.contains(&call), "{text}");
        text = text.replace(&call, &short);
    }
    assert_eq!(text, expected, "{sql}");
}

#[test]
fn defaults_and_checks_keep_envelopes() {
    keeps(
        "CREATE TABLE t2 (id int DEFAULT 5, c strongroom_columns.enc_text DEFAULT 'secret')",
        "CREATE TABLE t2 (id int DEFAULT 5, c enc_text DEFAULT {text secret})",
    );
    keeps(
        "CREATE TABLE t2 (c enc_numeric(10, 2) DEFAULT 5 CHECK (c > 1 AND c < 9.5), d text DEFAULT 'x', CHECK (c <> 7))",
        "CREATE TABLE t2 (c enc_numeric(10, 2) DEFAULT {numeric 5} CHECK (c > {numeric 1} AND c < {numeric 9.5}), d text DEFAULT 'x', CHECK (c <> {numeric 7}))",
    );
    keeps(
        "ALTER TABLE p ADD CHECK (name <> 'secret'), ALTER age SET DEFAULT 2 + 3",
        "ALTER TABLE p ADD CHECK (name <> {text secret}), ALTER COLUMN age SET DEFAULT {int4 5}",
    );
    keeps(
        "ALTER TABLE plain ADD COLUMN c enc_bool DEFAULT true NOT NULL, ADD d enc_date DEFAULT '2000-01-01'",
        "ALTER TABLE plain ADD COLUMN c enc_bool DEFAULT {bool t} NOT NULL, ADD COLUMN d enc_date DEFAULT {date 2000-01-01}",
    );
    keeps(
        "ALTER TABLE p ADD COLUMN c text DEFAULT 'strongroom constant 0.', ADD CHECK (name <> 'a')",
        "ALTER TABLE p ADD COLUMN c text DEFAULT 'strongroom constant 0.', ADD CHECK (name <> {text a})",
    );
}

/// Constants that are stored in a comparable column are sealed for it.
#[test]
fn defaults_of_comparable_columns_name_them() {
    let catalog = names();
    for (sql, expected) in [
        (
            "CREATE TABLE t2 (id int DEFAULT 5, c enc_text(ordered) DEFAULT 'secret')",
            &["public.t2.c"][..],
        ),
        (
            "CREATE TABLE other.t2 (c enc_int4(ordered) DEFAULT 2 + 3 CHECK (c > 1), d enc_int4 DEFAULT 7)",
            &["other.t2.c", "", ""],
        ),
        (
            "CREATE TEMP TABLE t2 (c enc_numeric(8, 2, ordered) DEFAULT 1.005)",
            &["pg_temp.t2.c"],
        ),
        (
            "ALTER TABLE other.single ADD COLUMN c enc_bool DEFAULT true, ADD d enc_date(ordered) DEFAULT '2000-01-01' NOT NULL",
            &["", "other.single.d"],
        ),
        (
            "ALTER TABLE public.staff ALTER pay SET DEFAULT 5, ALTER note SET DEFAULT 'n'",
            &["public.staff.pay", ""],
        ),
        (
            "ALTER TABLE part_1 ALTER pay SET DEFAULT 5",
            &["public.parted.pay"],
        ),
        (
            "CREATE TABLE t2 PARTITION OF other.single (pay DEFAULT 5) FOR VALUES IN (1)",
            &["other.single.pay"],
        ),
        (
            "CREATE TABLE t2 (c enc_text(ordered) GENERATED ALWAYS AS (coalesce(d, 'none')) STORED, d enc_text(ordered))",
            &["public.t2.c"],
        ),
    ] {
        let plans = plan(sql, &catalog, 0).unwrap_or_else(|refusal| panic!("{sql}: {refusal}"));
        let kept = &plans.last().unwrap().kept;
        let found = kept.iter().map(|constant| constant.column);
        let found: Vec<_> = found
            .map(|column| column.map(|column| column.lineage))
            .collect();
        let expected = expected
            .iter()
            .map(|path| Some(*path).filter(|path| !path.is_empty()).map(of));
        assert_eq!(found, expected.collect::<Vec<_>>(), "{sql}");
    }
}

#[test]
fn other_defaults_of_comparable_columns_are_refused() {
    let mut catalog = names();
    catalog.note_missing("hidden");
    for sql in [
        "CREATE TABLE t2 (c enc_text(ordered) DEFAULT lower('SECRET'))",
        "CREATE TABLE t2 (c enc_int4(ordered) DEFAULT 5 + length('secret'))",
        "CREATE TABLE t2 (c enc_int4(ordered) DEFAULT (CASE WHEN 'a' = 'b'::enc_text THEN 5 ELSE 6 END))",
        "CREATE TABLE t2 (c enc_bool DEFAULT 'a' = 'b'::enc_text, d enc_int4(ordered) DEFAULT length('abc'::enc_text))",
        "CREATE TABLE t2 (c enc_int4(ordered) DEFAULT extract(year from '2000-01-01'::enc_date))",
        "CREATE TABLE t2 (c enc_text(ordered) DEFAULT 'a' || 'b')",
        "CREATE TABLE t2 (c enc_text(ordered) DEFAULT f('a'))",
    ] {
        let refused = plan(sql, &catalog, 0).unwrap_err();
        assert!(refused.to_string().contains("computed"), "{sql}: {refused}");
    }
    // Which table is meant has to be known, and no other column may have the lineage.
    for sql in [
        "ALTER TABLE staff ALTER pay SET DEFAULT 5",
        "SET search_path = other; CREATE TABLE t2 (c enc_int4(ordered) DEFAULT 5)",
        // The server says which schema comes first, and which tables there are.
        "CREATE TABLE single (pay enc_int4(ordered) DEFAULT 5)",
        "CREATE TABLE IF NOT EXISTS other.single (pay enc_int4(ordered) DEFAULT 5)",
        "ALTER TABLE single ADD COLUMN pay enc_int4(ordered) DEFAULT 5",
        "CREATE TABLE hidden (pay enc_int4(ordered) DEFAULT 5)",
        "ALTER TABLE other.single RENAME pay TO p; ALTER TABLE other.single ADD pay enc_int4(ordered) DEFAULT 5",
    ] {
        let refused = plan(sql, &catalog, 0).unwrap_err();
        assert!(refused.to_string().contains("another one's"), "{refused}");
    }
    let path = |path: &str| -> [String; 3] {
        let parts: Vec<String> = path.split('.').map(str::to_owned).collect();
        parts.try_into().unwrap()
    };
    let before = ["shop", "public", "t2", "c"].map(str::to_owned);
    catalog.adopt([(path("public.t2.former"), before)].into());
    let sql = "CREATE TABLE t2 (c enc_int4(ordered) DEFAULT 5)";
    assert!(plan(sql, &catalog, 0).is_err());
}

#[test]
fn what_is_sealed_already_stays() {
    let envelope = crate::envelope::to_text(&sealed());
    let call = format!("strongroom_columns.enc_int4_constant('{envelope}'::text)");
    stays(&format!(
        "CREATE TABLE t2 (c enc_int4 DEFAULT {call} CHECK (c >= {call}))"
    ));
    keeps(
        "ALTER TABLE p ALTER age SET DEFAULT strongroom_columns.enc_int4_constant('5')",
        "ALTER TABLE p ALTER COLUMN age SET DEFAULT enc_int4_constant({int4 5})",
    );
}

/// An envelope of a number.
fn sealed() -> Vec<u8> {
    let key = strongroom_crypto::SecretKey::generate().unwrap();
    let keys = crate::keys::ColumnKeys::from_keys(&[key]).unwrap();
    let lineage = strongroom_format::columns::Lineage::CLIENT;
    crate::envelope::seal(&keys, Kind::Int4, lineage, &[0, 0, 0, 5]).unwrap()
}

#[test]
fn what_no_definition_can_keep_is_refused() {
    for sql in [
        "CREATE TABLE t2 (c enc_timestamptz DEFAULT now())",
        "SET search_path = other; CREATE TABLE t2 (c enc_text(ordered) DEFAULT 'secret')",
        "ALTER TABLE plain ADD COLUMN c enc_timestamptz(ordered) DEFAULT now()",
        "CREATE TABLE t2 (c enc_text, CHECK (c = ANY ('{secret}'::text[])))",
        "CREATE TABLE t2 (c enc_text, CHECK (c = $1))",
        // A plain column is converted, not cast.
        "ALTER TABLE plain ALTER name TYPE enc_text",
        "ALTER TABLE plain ALTER COLUMN name TYPE enc_text USING name::enc_text",
    ] {
        refused(sql);
    }
    stays("ALTER TABLE plain ALTER name TYPE enc_text USING strongroom_columns.classify(name)");
    stays("ALTER TABLE p ALTER salary TYPE enc_numeric(10, 2)");
}
