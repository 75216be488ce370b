//! Which columns keep the lineage of another name when names change.

use strongroom_format::columns::{Class, Kind};

use super::*;
use crate::sql::comparable::Names;
use crate::sql::plan;
use crate::sql::tests::catalog_rows;

/// A database as its catalog shows it: for each table its OID, its name with its schema, that of
/// the table that it is a partition of, and its columns by number. All are ordered, but for those
/// whose names begin with `plain` or `opaque`.
type Tables<'t> = &'t [(u32, &'t str, Option<&'t str>, &'t [(i16, &'t str)])];

const STAFF: &[(i16, &str)] = &[(1, "plain"), (2, "grade"), (3, "pay"), (4, "opaque")];
const BEFORE: Tables<'_> = &[(1, "public.staff", None, STAFF)];

fn read(tables: Tables<'_>) -> Catalog {
    let mut rows = catalog_rows(&[]);
    let mut row = |fields: &[&str]| {
        rows.push(
            fields
                .iter()
                .map(|field| Some((*field).to_owned()))
                .collect(),
        );
    };
    let ordered = Class::Ordered.modifier().to_string();
    let int4 = (90_000 + u32::from(Kind::Int4.number())).to_string();
    for (oid, name, root, columns) in tables {
        let (schema, table) = name.split_once('.').unwrap();
        for (place, column) in *columns {
            let kind = if column.starts_with("plain") {
                "23"
            } else {
                &*int4
            };
            let is_comparable = !(column.starts_with("opaque") || column.starts_with("plain"));
            let modifier = if is_comparable { &*ordered } else { "-1" };
            let place = format!("{place:05}");
            let oid = oid.to_string();
            row(&[
                "r", schema, table, &place, column, kind, &oid, modifier, "own",
            ]);
        }
        if let Some((root_schema, root)) = root.map(|root| root.split_once('.').unwrap()) {
            row(&["h", schema, table, root_schema, root]);
        }
    }
    row(&["s", "", "public", "", ""]);
    let mut catalog = Catalog::from_rows(&rows);
    catalog.set_names(Arc::new(Names {
        database: DATABASE.to_owned(),
        ..Names::default()
    }));
    catalog
}

/// A connection through which statements go.
struct Connection {
    changer: Changer,
    catalog: Catalog,
}

impl Connection {
    fn open(known: &Arc<KnownRelations>, tables: Tables<'_>) -> Self {
        let mut connection = Self {
            changer: known.connection("server".to_owned()).unwrap(),
            catalog: Catalog::default(),
        };
        connection.sees(tables, true);
        connection
    }

    /// Reads the catalog: in no transaction if `settled`.
    fn sees(&mut self, tables: Tables<'_>, settled: bool) {
        self.catalog = read(tables);
        self.changer
            .check(DATABASE, settled, &mut self.catalog)
            .unwrap();
    }

    /// Sends a statement; the catalog is not read again.
    fn sends(&self, sql: &str) {
        for plan in plan(sql, &self.catalog, 0).unwrap() {
            self.changer
                .begin_change(DATABASE, &plan.changes, &self.catalog)
                .unwrap();
        }
    }

    /// Asserts which columns have the lineage of another name: `now = before`, each a path.
    #[track_caller]
    fn keeps(&self, expected: &[(&str, &str)]) {
        let columns = self.catalog.confidential_columns();
        let mut found: Vec<(String, String)> = columns
            .map(|(.., path)| (path.join("."), self.catalog.lineage_names(&path)))
            .map(|(now, before)| (now, before[1..].join(".")))
            .filter(|(now, before)| now != before)
            .collect();
        found.sort();
        let expected = expected
            .iter()
            .map(|(now, before)| ((*now).to_owned(), (*before).to_owned()));
        assert_eq!(found, expected.collect::<Vec<_>>());
    }
}

#[test]
fn a_renamed_column_keeps_its_lineage() {
    const AFTER: Tables<'_> = &[(
        1,
        "public.staff",
        None,
        &[(2, "level"), (3, "pay"), (4, "opaque_too")],
    )];
    let known = known();
    let mut one = Connection::open(&known, BEFORE);
    one.keeps(&[]);
    one.sends("ALTER TABLE staff RENAME grade TO level");
    one.sends("ALTER TABLE public.staff RENAME COLUMN opaque TO opaque_too");
    let kept = &[
        ("public.staff.level", "public.staff.grade"),
        ("public.staff.opaque_too", "public.staff.opaque"),
    ];
    // Within its transaction only the connection itself knows.
    one.sees(AFTER, false);
    one.keeps(kept);
    let other = Connection::open(&known, BEFORE);
    other.keeps(&[]);
    assert!(known.known().unwrap().renamed.is_empty());
    one.sees(AFTER, true);
    one.keeps(kept);
    Connection::open(&known, AFTER).keeps(kept);
    // Back again.
    one.sends(
        "ALTER TABLE staff RENAME level TO grade; ALTER TABLE staff RENAME opaque_too TO opaque",
    );
    one.sees(BEFORE, true);
    one.keeps(&[]);
    let known = known.known().unwrap();
    assert!(known.renamed.is_empty() && known.renaming.is_empty());
}

#[test]
fn a_rename_that_was_rolled_back_changes_nothing() {
    let known = known();
    let mut one = Connection::open(&known, BEFORE);
    one.sends("ALTER TABLE staff RENAME grade TO level");
    one.sees(&[(1, "public.staff", None, &[(2, "level")])], false);
    one.keeps(&[("public.staff.level", "public.staff.grade")]);
    one.sees(BEFORE, true);
    one.keeps(&[]);
    // What comes under that name later is another column.
    one.sees(&[(1, "public.staff", None, &[(2, "level")])], true);
    one.keeps(&[]);
}

#[test]
fn a_connection_that_ends_at_once_has_renamed() {
    const AFTER: Tables<'_> = &[(1, "public.staff", None, &[(2, "level"), (3, "pay")])];
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("pins");
    let open = || Arc::new(KnownRelations::at(file.clone()).unwrap());
    let mut one = Connection::open(&open(), BEFORE);
    one.sends("ALTER TABLE staff RENAME grade TO level");
    one.changer.leave(true);
    drop(one);
    // Another proxy with the same file sees what became of it.
    let kept = &[("public.staff.level", "public.staff.grade")];
    Connection::open(&open(), BEFORE).keeps(&[]);
    Connection::open(&open(), AFTER).keeps(kept);
    let mut two = Connection::open(&open(), AFTER);
    two.keeps(kept);
    // What the first one has left does not stand in the way of what comes.
    two.sends("ALTER TABLE staff RENAME level TO rank");
    const LATER: Tables<'_> = &[(1, "public.staff", None, &[(2, "rank"), (5, "level")])];
    two.sees(LATER, true);
    let kept = &[("public.staff.rank", "public.staff.grade")];
    two.keeps(kept);
    Connection::open(&open(), LATER).keeps(kept);
}

#[test]
fn columns_exchange_their_names() {
    let known = known();
    let mut one = Connection::open(&known, BEFORE);
    one.sends(
        "ALTER TABLE staff RENAME grade TO other; ALTER TABLE staff RENAME pay TO grade;
         ALTER TABLE staff RENAME other TO pay",
    );
    one.sees(
        &[(1, "public.staff", None, &[(2, "pay"), (3, "grade")])],
        true,
    );
    one.keeps(&[
        ("public.staff.grade", "public.staff.pay"),
        ("public.staff.pay", "public.staff.grade"),
    ]);
}

#[test]
fn tables_and_schemas_change_their_names() {
    const GRADE: &[(i16, &str)] = &[(2, "grade")];
    let other = (2, "other.staff", None, GRADE);
    for (sql, after, now) in [
        (
            "ALTER TABLE staff RENAME TO people",
            "public.people",
            "public.people.grade",
        ),
        (
            "ALTER TABLE staff SET SCHEMA archive",
            "archive.staff",
            "archive.staff.grade",
        ),
        (
            "ALTER SCHEMA public RENAME TO old",
            "old.staff",
            "old.staff.grade",
        ),
        (
            "ALTER TABLE public.staff RENAME TO people; ALTER TABLE people SET SCHEMA archive;
             ALTER SCHEMA archive RENAME TO old; ALTER TABLE old.people RENAME grade TO level",
            "old.people",
            "old.people.level",
        ),
    ] {
        let known = known();
        let mut one = Connection::open(&known, &[(1, "public.staff", None, GRADE), other]);
        one.sends(sql);
        let column = now.rsplit('.').next().unwrap();
        one.sees(&[(1, after, None, &[(2, column)]), other], true);
        one.keeps(&[(now, "public.staff.grade")]);
    }
    // A partition has its table's names, until it is one itself.
    let known = known();
    let part = (2, "public.part", Some("public.staff"), GRADE);
    let mut one = Connection::open(&known, &[(1, "public.staff", None, GRADE), part]);
    one.sends("ALTER TABLE staff RENAME TO people; ALTER TABLE part RENAME TO piece");
    let part = (2, "public.piece", Some("public.people"), GRADE);
    one.sees(&[(1, "public.people", None, GRADE), part], true);
    // Both are of this name.
    let kept = ("public.people.grade", "public.staff.grade");
    one.keeps(&[kept, kept]);
    one.sends("ALTER TABLE people DETACH PARTITION piece");
    let part = (2, "public.piece", None, GRADE);
    one.sees(&[(1, "public.people", None, GRADE), part], true);
    one.keeps(&[kept, ("public.piece.grade", "public.staff.grade")]);
}

/// An operator who could have one column taken for another could have its values sealed for that
/// one, and compare both.
#[test]
fn only_the_owner_s_statements_change_names() {
    for (sql, lie) in [
        // Nothing was said of it.
        ("SELECT 1", [(2, "level"), (3, "pay")]),
        (
            "ALTER TABLE other.staff RENAME grade TO level",
            [(2, "level"), (3, "pay")],
        ),
        (
            "ALTER TABLE staff RENAME grade TO level",
            [(2, "grade"), (3, "level")],
        ),
        (
            "ALTER TABLE staff RENAME grade TO level",
            [(2, "pay"), (3, "grade")],
        ),
        (
            "ALTER TABLE staff RENAME CONSTRAINT grade TO level",
            [(2, "level"), (3, "pay")],
        ),
        (
            "ALTER TABLE staff RENAME TO people",
            [(2, "level"), (3, "pay")],
        ),
    ] {
        let known = known();
        let mut one = Connection::open(&known, BEFORE);
        one.sends(sql);
        one.sees(&[(1, "public.staff", None, &lie)], true);
        one.keeps(&[]);
    }
}

#[test]
fn a_new_column_has_a_lineage_of_its_own() {
    const AFTER: Tables<'_> = &[(
        1,
        "public.staff",
        None,
        &[(2, "level"), (3, "pay"), (5, "grade"), (6, "opaque")],
    )];
    let known = known();
    let mut one = Connection::open(&known, BEFORE);
    one.sends(
        "ALTER TABLE staff RENAME grade TO level; ALTER TABLE staff RENAME opaque TO opaque_too",
    );
    let kept = &[
        ("public.staff.grade", "public.staff.grade~2"),
        ("public.staff.level", "public.staff.grade"),
    ];
    one.sees(AFTER, false);
    one.keeps(kept);
    one.sees(AFTER, true);
    one.keeps(kept);
    // A third one.
    one.sends("ALTER TABLE staff RENAME grade TO former");
    one.sees(
        &[(
            1,
            "public.staff",
            None,
            &[(2, "level"), (5, "former"), (7, "grade")],
        )],
        true,
    );
    one.keeps(&[
        ("public.staff.former", "public.staff.grade~2"),
        ("public.staff.grade", "public.staff.grade~3"),
        ("public.staff.level", "public.staff.grade"),
    ]);
    // A backup from before the renames is restored.
    one.sees(BEFORE, true);
    let column = ("public.staff.grade", "public.staff.grade~3");
    one.keeps(&[column]);
}

#[test]
fn a_conversion_s_column_takes_a_place_and_no_name() {
    let known = known();
    let mut one = Connection::open(
        &known,
        &[(
            1,
            "public.staff",
            None,
            &[(1, "plain"), (2, "strongroom~1")],
        )],
    );
    one.sends("ALTER TABLE staff DROP COLUMN plain");
    one.sees(&[(1, "public.staff", None, &[(2, "strongroom~1")])], false);
    one.sends("ALTER TABLE staff RENAME \"strongroom~1\" TO plane");
    one.sees(&[(1, "public.staff", None, &[(2, "plane")])], true);
    one.keeps(&[]);
}
