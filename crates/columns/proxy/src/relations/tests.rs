//! What is learned of relations, what is refused, and what is forgotten when they change.

use super::definition_tests::{sends, tells};
use super::*;
use strongroom_keyring::durable;

use crate::sql::changes::Change;
use crate::sql::comparable::{Names, parse_adopted};
use crate::sql::tests::catalog;

pub(super) const DATABASE: &str = "shop";

pub(super) fn known() -> Arc<KnownRelations> {
    Arc::new(KnownRelations::in_memory())
}

/// How a connection stands that is in no transaction, or in one that its client has begun.
pub(super) const fn standing(settled: bool) -> Standing {
    match settled {
        true => Standing::Settled,
        false => Standing::Open,
    }
}

/// Nothing goes wrong with what a connection sends.
fn fate() -> Arc<Fate> {
    Fate::begin(&Arc::default())
}

/// What the catalog with these tables shows this connection of the relation `t`: whether it is
/// what it was.
#[expect(clippy::unwrap_in_result, reason = "a test that panics has failed")]
pub(super) fn sees(changer: &Changer, settled: bool, tables: &[&str]) -> Result<(), String> {
    let mut catalog = catalog(tables);
    changer
        .check(DATABASE, (standing(settled), Instant::now()), &mut catalog)
        .unwrap();
    let differs = catalog
        .relations("", "t")
        .find_map(|found| found.differs.clone());
    differs.map_or(Ok(()), Err)
}

fn changes(names: &[&str]) -> Changes {
    Changes {
        relations: names
            .iter()
            .map(|name| ((String::new(), (*name).to_owned()), Change::whole()))
            .collect(),
        ..Changes::default()
    }
}

const FIRST: &[&str] = &["t(id, name text, city)"];

#[test]
fn a_relation_stays_what_it_was() {
    let known = known();
    let one = known.connection("server".to_owned());
    assert_eq!(sees(&one, true, FIRST), Ok(()));
    assert_eq!(sees(&one, true, FIRST), Ok(()));
    for (other, why) in [
        (
            "t(id, city, name text)",
            "column 2 of public.t was \"name\" (enc_text), and is \"city\" (plain)",
        ),
        (
            "t(id, name, city)",
            "column 2 of public.t was \"name\" (enc_text), and is \"name\" (plain)",
        ),
        (
            "t(id, name int4, city)",
            "column 2 of public.t was \"name\" (enc_text), and is \"name\" (enc_int4)",
        ),
        (
            "t(name text, city)",
            "column 1 of public.t was \"id\" (plain), and is \"name\" (enc_text)",
        ),
        (
            "t(id, name text)",
            "column 3 of public.t was \"city\" (plain), and is none",
        ),
    ] {
        assert_eq!(sees(&one, true, &[other]), Err(why.to_owned()));
        // It is so for whoever comes later, too.
        let later = known.connection("server".to_owned());
        assert!(sees(&later, true, &[other]).is_err());
    }
    // A column behind the others changes nothing of what was written before.
    assert_eq!(
        sees(&one, true, &["t(id, name text, city, more int4)"]),
        Ok(())
    );
    assert!(sees(&one, true, FIRST).is_err(), "and stays");
    // What is plain altogether is nobody's secret; another server and schema are others.
    assert_eq!(
        sees(&one, true, &["u(a)", "t(id, name text, city, more int4)"]),
        Ok(())
    );
    assert_eq!(sees(&one, true, &["u(b)"]), Ok(()));
    assert_eq!(
        sees(&known.connection("other".to_owned()), true, &["t(a text)"]),
        Ok(())
    );
    assert_eq!(
        sees(
            &one,
            true,
            &["s.t(a text)", "t(id, name text, city, more int4)"]
        ),
        Ok(())
    );
    assert_eq!(known.forget(|_| true).unwrap(), 3);
    assert_eq!(sees(&one, true, FIRST), Ok(()), "learned again");
}

/// Ordered columns of a partition are named by the table at the top: an operator who could say
/// of a table that it is a partition of another could have values sealed for that one.
#[test]
fn a_partition_is_one_of_the_same_table() {
    let known = known();
    let one = known.connection("server".to_owned());
    let check = |root: Option<&str>| {
        let mut catalog = catalog(FIRST);
        for (_, relation) in catalog.relations_mut() {
            relation.root = root.map(|root| ("public".to_owned(), root.to_owned()));
        }
        one.check(DATABASE, (Standing::Settled, Instant::now()), &mut catalog)
            .unwrap();
        let differs = catalog
            .relations("", "t")
            .find_map(|found| found.differs.clone());
        differs.unwrap_or_default()
    };
    assert_eq!(check(None), "");
    let other = "public.t was no part of another table, and is a part of public.pay";
    assert_eq!(check(Some("pay")), other);
    assert_eq!(check(None), "");
    known.forget(|_| true).unwrap();
    assert_eq!(check(Some("pay")), "");
    assert_eq!(check(Some("pay")), "");
    assert!(check(Some("items")).contains("and is a part of public.items"));
}

#[test]
fn what_is_being_changed_is_learned_when_it_is_done() {
    let known = known();
    let (mut one, other) = (
        known.connection("server".to_owned()),
        known.connection("server".to_owned()),
    );
    assert_eq!(sees(&one, true, FIRST), Ok(()));
    one.begin_change(DATABASE, &changes(&["t"]), &fate())
        .unwrap();
    let after = &["t(id, city, name text)"];
    // The change is in a transaction: the one sees it, the other does not yet.
    assert_eq!(sees(&one, false, after), Ok(()));
    assert_eq!(sees(&other, true, FIRST), Ok(()));
    assert_eq!(sees(&one, true, after), Ok(()));
    assert_eq!(sees(&other, true, after), Ok(()));
    assert!(sees(&other, true, FIRST).is_err());
    // One that leaves before it has looked.
    one.begin_change(DATABASE, &changes(&["t"]), &fate())
        .unwrap();
    one.leave(true, false);
    drop(one);
    assert_eq!(sees(&other, true, FIRST), Ok(()));
    assert!(sees(&other, true, after).is_err());
    // Any relation may be meant.
    let every = Changes {
        any: true,
        ..Changes::default()
    };
    other.begin_change(DATABASE, &every, &fate()).unwrap();
    assert_eq!(sees(&other, true, after), Ok(()));
}

/// A relation of the name in another schema is found instead of one that is gone.
#[test]
fn another_relation_does_not_take_the_name_of_one_that_is_gone() {
    let known = known();
    let one = known.connection("server".to_owned());
    let gone = Err("public.t is gone, and another relation has its name".to_owned());
    assert_eq!(sees(&one, true, FIRST), Ok(()));
    for others in [&["s.t(id, name, city)"], &["pg_temp_7.t(id, name, city)"]] {
        assert_eq!(sees(&one, true, others), gone, "{others:?}");
    }
    // One with the same columns gets the same constants.
    let alike = &["other.t(id, name text, city, more)"];
    assert_eq!(sees(&one, true, alike), Ok(()));
    known.forget(|name| name.schema == "other").unwrap();
    // Without the name nothing is known of it, which counts as confidential.
    assert_eq!(sees(&one, true, &["held(id, name text, city)"]), Ok(()));
    // Of another schema's nothing is said by its full name.
    let mut catalog = catalog(&["s.t(id, name, city)"]);
    one.check(DATABASE, (Standing::Settled, Instant::now()), &mut catalog)
        .unwrap();
    let differs = |schema| {
        let found: Vec<_> = catalog.relations(schema, "t").collect();
        found.iter().any(|found| found.differs.is_some())
    };
    assert!(differs("public") && !differs("s"));
    // Its owner drops it.
    one.begin_change(DATABASE, &changes(&["t"]), &fate())
        .unwrap();
    assert_eq!(sees(&one, false, &["s.t(id, name, city)"]), Ok(()));
    assert_eq!(sees(&one, true, &["s.t(id, name, city)"]), Ok(()));
}

#[test]
fn a_session_s_temporary_relations_stay_what_they_were() {
    let known = known();
    let one = known.connection("server".to_owned());
    let sees = |settled: bool, tables: &[&str]| {
        let mut catalog = catalog(tables);
        "pg_temp_3".clone_into(&mut catalog.temporary_schema);
        one.check(DATABASE, (standing(settled), Instant::now()), &mut catalog)
            .unwrap();
        let differs = catalog
            .relations("", "t")
            .find_map(|found| found.differs.clone());
        differs.is_none()
    };
    let temporary = &["pg_temp_3.t(name text)"];
    assert!(sees(true, temporary) && sees(true, temporary));
    assert!(!sees(true, &["pg_temp_3.t(name)"]));
    assert!(!sees(true, &["public.t(name)"]));
    assert!(sees(true, &["pg_temp_3.t(name text)", "pg_temp_4.t(name)"]));
    // It is made again, dropped with all of them, and dropped by its owner.
    for changes in [
        changes(&["t"]),
        Changes {
            temporary: true,
            ..Changes::default()
        },
    ] {
        one.begin_change(DATABASE, &changes, &fate()).unwrap();
        assert!(sees(true, &["pg_temp_3.t(name)"]));
        one.begin_change(DATABASE, &changes, &fate()).unwrap();
        assert!(sees(true, temporary));
    }
    // They are nobody else's, and not kept.
    assert_eq!(known.known().unwrap().relations, Shapes::new());
}

#[test]
fn a_function_keeps_its_confidential_values() {
    let known = known();
    let one = known.connection("server".to_owned());
    let has = |of: &Changer, settled: bool, there: bool| {
        let mut catalog = catalog(FIRST);
        catalog.functions_mut().clear();
        catalog
            .functions_mut()
            .extend(there.then(|| "f".to_owned()));
        of.check(DATABASE, (standing(settled), Instant::now()), &mut catalog)
            .unwrap();
        catalog.has_function("f")
    };
    assert!(!has(&one, true, false) && has(&one, true, true) && has(&one, true, false));
    assert!(has(&known.connection("server".to_owned()), true, false));
    assert!(!has(&known.connection("other".to_owned()), true, false));
    let dropped = Changes {
        functions: std::iter::once("f".to_owned()).collect(),
        ..Changes::default()
    };
    one.begin_change(DATABASE, &dropped, &fate()).unwrap();
    assert!(!has(&one, false, false) && !has(&one, true, false));
    assert!(has(&one, true, true));
    assert_eq!(
        known.forget_functions(|name| name.function == "f").unwrap(),
        1
    );
    assert!(!has(&one, true, false));
}

#[test]
fn the_file_is_shared_and_understood_by_hand() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("pins");
    let open = || Arc::new(KnownRelations::at(path.clone()).unwrap());
    let (one, two) = (open(), open());
    let names = &["t(id, \"na\tme text)"];
    assert_eq!(sees(&one.connection("s".to_owned()), true, names), Ok(()));
    assert!(sees(&two.connection("s".to_owned()), true, FIRST).is_err());
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.starts_with('#') && text.lines().count() == 4, "{text}");
    assert_eq!(one.known().unwrap(), two.known().unwrap());
    assert_eq!(two.known().unwrap().functions.len(), 1);
    two.forget(|_| true).unwrap();
    assert_eq!(sees(&one.connection("s".to_owned()), true, FIRST), Ok(()));
    for bad in [
        "",
        "not a heading\n",
        "# a heading\n{}\n",
        "# a heading\nnothing\n",
    ] {
        durable::replace(&path, bad.as_bytes(), 0o600).unwrap();
        let refused = KnownRelations::at(path.clone()).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{bad:?}");
    }
}

/// One proxy changes a relation, another one learns meanwhile what it was, and the connection of
/// the change ends without another statement.
#[test]
fn what_another_proxy_has_learned_during_a_change_is_forgotten() {
    const AFTER: &[&str] = &["t(id, city, name text)"];
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("pins");
    let open = || Arc::new(KnownRelations::at(path.clone()).unwrap());
    let (one, two) = (open(), open());
    let mut changer = one.connection("s".to_owned());
    assert_eq!(sees(&changer, true, FIRST), Ok(()));
    changer
        .begin_change(DATABASE, &changes(&["t"]), &fate())
        .unwrap();
    let other = two.connection("s".to_owned());
    assert_eq!(sees(&other, true, FIRST), Ok(()));
    assert!(sees(&other, true, AFTER).is_err());
    changer.leave(true, false);
    drop(changer);
    assert_eq!(sees(&other, true, AFTER), Ok(()));
    assert!(sees(&other, true, FIRST).is_err());
}

/// The other proxy learns something else in the place of what is being dropped.
#[test]
fn what_another_proxy_has_learned_in_a_dropped_place_is_not_kept() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("pins");
    let open = || Arc::new(KnownRelations::at(path.clone()).unwrap());
    let (one, two) = (open(), open());
    let changer = one.connection("s".to_owned());
    assert_eq!(sees(&changer, true, FIRST), Ok(()));
    let fate = fate();
    tells(&changer, (FIRST, &fate), "ALTER TABLE t DROP COLUMN id");
    let other = two.connection("s".to_owned());
    let evil = &["t(evil, name text, city)"];
    assert_eq!(sees(&other, true, evil), Ok(()));
    fate.decide();
    assert!(sees(&changer, true, evil).is_err());
    assert!(sees(&other, true, evil).is_err());
    assert_eq!(sees(&other, true, &["t(name text, city)"]), Ok(()));
}

/// A connection ends, and nobody looks before what its statements leave is kept.
#[test]
fn what_a_connection_has_changed_is_under_way_until_it_is_kept() {
    let known = known();
    let changer = known.connection("server".to_owned());
    assert_eq!(sees(&changer, true, FIRST), Ok(()));
    sends(&changer, FIRST, "ALTER TABLE t RENAME name TO title");
    let gate = known.gate();
    let ends = std::thread::spawn(move || {
        let mut changer = changer;
        changer.leave(true, false);
    });
    std::thread::sleep(Duration::from_millis(200));
    assert!(!known.state().changing.is_empty());
    drop(gate);
    ends.join().unwrap();
    let later = known.connection("server".to_owned());
    assert!(sees(&later, true, &["t(id, title, city)"]).is_err());
}

#[test]
fn what_a_client_has_left_unanswered_is_not_learned() {
    const AFTER: &[&str] = &["t(id, name, city text)"];
    for (is_over, left) in [(true, Err(())), (false, Ok(()))] {
        let known = known();
        let one = known.connection("server".to_owned());
        assert_eq!(sees(&one, true, FIRST), Ok(()));
        let mut other = known.connection("server".to_owned());
        other
            .begin_change(DATABASE, &changes(&["t"]), &fate())
            .unwrap();
        other.leave(is_over, false);
        drop(other);
        // The statement is not done yet, and then it is.
        assert_eq!(sees(&one, true, FIRST), Ok(()));
        assert_eq!(sees(&one, true, AFTER).map_err(drop), left);
    }
}

/// What the data owner says that a column was called, in the databases that have its relation.
#[test]
fn a_column_has_the_lineage_that_its_owner_says() {
    let column = |text: &str| parse_adopted(text).unwrap();
    let known = known();
    let one = known.connection("server".to_owned());
    let lineage_of = |column: &str| {
        let mut catalog = catalog(FIRST);
        let names = Names::new(DATABASE.to_owned(), &BTreeMap::new(), &BTreeMap::new());
        catalog.set_names(Arc::new(names));
        one.check(DATABASE, (Standing::Settled, Instant::now()), &mut catalog)
            .unwrap();
        let path = ["public", "t", column].map(str::to_owned);
        catalog.lineage_names(&path).join(".")
    };
    assert_eq!(lineage_of("name"), "shop.public.t.name");
    let adopt = |text: &str, database: &str| {
        let (now, before) = column(text);
        let of = |name: &RelationName| name.database == database;
        known.adopt(of, &now, &before).unwrap()
    };
    assert_eq!(adopt("public.t.name=public.t.title", DATABASE), 1);
    assert_eq!(lineage_of("name"), "shop.public.t.title");
    assert_eq!(lineage_of("city"), "shop.public.t.city");
    // Nothing is known of it.
    assert_eq!(adopt("public.u.name=public.t.title", DATABASE), 0);
    assert_eq!(adopt("public.t.name=public.t.other", "elsewhere"), 0);
    // It is kept when the relation changes or is forgotten, until it is taken back.
    one.begin_change(DATABASE, &changes(&["t"]), &fate())
        .unwrap();
    known.forget(|_| true).unwrap();
    assert_eq!(lineage_of("name"), "shop.public.t.title");
    assert_eq!(adopt("public.t.name=archive.old.t.title", DATABASE), 1);
    assert_eq!(lineage_of("name"), "archive.old.t.title");
    assert_eq!(adopt("public.t.name=public.t.name", DATABASE), 1);
    assert_eq!(lineage_of("name"), "shop.public.t.name");
    assert!(known.known().unwrap().adopted.is_empty());
}
