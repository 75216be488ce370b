//! Constants of definitions: what the text has in their place, and what no definition can keep.

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
        "CREATE TABLE t2 (c enc_text(ordered) DEFAULT 'secret')",
        "ALTER TABLE plain ADD COLUMN c enc_text(ordered) DEFAULT 'secret'",
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
