//! What relations with confidential columns looked like when the proxy saw them first, kept in a
//! file of the data owner's: the names, the order and the types of their columns.
//!
//! Which column a value of `INSERT INTO t VALUES (...)` goes into is the server's word. Whoever
//! exchanges two columns in the catalog would get the constants of the confidential one in clear.
//! So a relation is taken as the server says when it is seen first, and has to stay so.
//!
//! Invariants:
//! - A relation that has another column in a place than it had is refused, until it is changed by a
//!   statement through the proxy or its owner forgets it. New columns behind the others change
//!   nothing of what was written before, and are taken.
//! - While a statement through the proxy changes a relation, nothing is learned or said of it:
//!   other transactions still see what it was.
//!
//! Must not: hold a value.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use strongroom_format::columns::Class;
use strongroom_keyring::durable;

use crate::locked_file::lock;
use crate::sql::catalog::{Catalog, Column, Relation};
use crate::sql::changes::Changes;

/// First lines of the file.
const HEADING: &str = "# Columns of relations with confidential columns, as the proxy saw them first. Written by\n\
     # `strongroom columns proxy`; `strongroom columns pins` shows and forgets them.\n";

/// What names a relation: the server's address, database, schema, name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RelationName {
    /// The server's address, as the proxy was told.
    pub server: String,
    /// Database.
    pub database: String,
    /// Schema.
    pub schema: String,
    /// Name.
    pub relation: String,
}

/// What is known of a relation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Schema and name of the table that it is a part of, by which its ordered columns are named.
    pub part_of: Option<(String, String)>,
    /// Its columns in order: name, and type as far as it matters.
    pub columns: Vec<(String, String)>,
}

/// The relations that are known, by their names.
pub type Shapes = BTreeMap<RelationName, Shape>;

/// The relations that are known to this proxy and those that share its file.
#[derive(Debug)]
pub struct KnownRelations {
    /// `None`: nothing is kept beyond this process.
    path: Option<PathBuf>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What is known, where there is no file.
    kept: Shapes,
    /// By connection, what its statements may be changing.
    changing: BTreeMap<u64, Changes>,
    connections: u64,
}

/// A connection, whose statements may change relations.
pub(crate) struct Changer {
    relations: Arc<KnownRelations>,
    server: String,
    number: u64,
}

impl KnownRelations {
    /// Keeps what is known in the file at `path`, which is made when something is known.
    ///
    /// # Errors
    /// The system's; `InvalidData` for a file that was not written by a proxy.
    pub fn at(path: PathBuf) -> io::Result<Self> {
        // A link would be replaced by a file of its own.
        let path = std::fs::canonicalize(&path).unwrap_or(path);
        read(&path)?;
        Ok(Self {
            path: Some(path),
            state: Mutex::default(),
        })
    }

    /// Keeps what is known in memory only.
    #[must_use]
    pub fn in_memory() -> Self {
        Self {
            path: None,
            state: Mutex::default(),
        }
    }

    /// Returns what is known.
    ///
    /// # Errors
    /// The system's; `InvalidData` for a file that was not written by a proxy.
    pub fn known(&self) -> io::Result<Shapes> {
        self.change(|known| known.clone())
    }

    /// Forgets the relations for which `which` is true; returns how many there were. The next
    /// connection takes them as the server says.
    ///
    /// # Errors
    /// As [`Self::known`], and when the file cannot be written.
    pub fn forget(&self, which: impl Fn(&RelationName) -> bool) -> io::Result<usize> {
        self.change(|known| {
            let before = known.len();
            known.retain(|name, _| !which(name));
            before.saturating_sub(known.len())
        })
    }

    /// Begins a connection to the server at this address.
    pub(crate) fn connection(self: &Arc<Self>, server: String) -> Changer {
        let mut state = self.state();
        state.connections = state.connections.saturating_add(1);
        Changer {
            relations: Arc::clone(self),
            server,
            number: state.connections,
        }
    }

    /// Calls `with` with what is known, while no other process changes it, and keeps what it has
    /// changed. Fails with the system's errors, and with `InvalidData` for a file that was not
    /// written by a proxy.
    fn change<T>(&self, with: impl FnOnce(&mut Shapes) -> T) -> io::Result<T> {
        let Some(path) = &self.path else {
            return Ok(with(&mut self.state().kept));
        };
        let lock = lock(path)?;
        let before = read(path)?;
        let mut known = before.clone();
        let done = with(&mut known);
        if known != before {
            write(path, &known)?;
        }
        drop(lock);
        Ok(done)
    }

    /// The state, also after a panic of another thread, which leaves it whole.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Changer {
    /// Notes that a statement of the connection may change these relations of the database: what
    /// was known of them is forgotten.
    ///
    /// # Errors
    /// Those of the file.
    pub(crate) fn begin_change(&self, database: &str, changes: &Changes) -> io::Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        let mut state = self.relations.state();
        state.changing.entry(self.number).or_default().join(changes);
        drop(state);
        let forgotten = self.relations.forget(|name| {
            name.server == self.server && name.database == database && changes.has(&name.relation)
        });
        forgotten.map(drop)
    }

    /// Compares the catalog of a database with what is known, and marks the relations that are not
    /// what they were. Learns those that are new. `settled`: the connection is in no transaction,
    /// so that what it has changed is what all others see.
    ///
    /// # Errors
    /// Those of the file.
    pub(crate) fn check(
        &self,
        database: &str,
        settled: bool,
        catalog: &mut Catalog,
    ) -> io::Result<()> {
        let mut state = self.relations.state();
        // What the connection has changed, its partitions included, is learned again.
        let own = settled.then(|| state.changing.remove(&self.number));
        let own = own.flatten().unwrap_or_default();
        let mut changing = Changes::default();
        for changes in state.changing.values() {
            changing.join(changes);
        }
        drop(state);
        self.relations.change(|known| {
            for (name, relation) in catalog.relations_mut() {
                let root = relation.root.as_ref().map(|(_, name)| name.as_str());
                let is_in = |changes: &Changes| {
                    changes.has(name) || root.is_some_and(|root| changes.has(root))
                };
                if is_session_s_own(&relation.schema) || is_in(&changing) {
                    continue;
                }
                let named = RelationName {
                    server: self.server.clone(),
                    database: database.to_owned(),
                    schema: relation.schema.clone(),
                    relation: name.to_owned(),
                };
                if is_in(&own) {
                    known.remove(&named);
                }
                learn_or_mark(known, named, relation);
            }
        })
    }
}

impl Drop for Changer {
    /// Whatever the connection was changing is seen by the next one.
    fn drop(&mut self) {
        self.relations.state().changing.remove(&self.number);
    }
}

/// Whether a schema is the server's own or a session's, whose relations nobody keeps.
fn is_session_s_own(schema: &str) -> bool {
    schema.starts_with("pg_") || schema == "information_schema"
}

/// Learns a relation that is new and has a confidential column, or new columns of a known one;
/// marks one that is not what it was.
fn learn_or_mark(known: &mut Shapes, name: RelationName, relation: &mut Relation) {
    let shape = Shape {
        part_of: relation.root.clone(),
        columns: relation.columns.iter().map(described).collect(),
    };
    match known.get_mut(&name) {
        None if shape.columns.iter().all(|(_, what)| what == PLAIN) => {}
        None => drop(known.insert(name, shape)),
        Some(before) if before.part_of != shape.part_of => {
            let shown = |root: Option<&(String, String)>| match root {
                Some((schema, name)) => format!("a part of {schema}.{name}"),
                None => "no part of another table".to_owned(),
            };
            relation.differs = Some(format!(
                "{}.{} was {}, and is {}",
                name.schema,
                name.relation,
                shown(before.part_of.as_ref()),
                shown(shape.part_of.as_ref()),
            ));
        }
        Some(before) if shape.columns.starts_with(&before.columns) => *before = shape,
        Some(before) => {
            let (before, shape) = (&before.columns, &shape.columns);
            let place = before
                .iter()
                .zip(shape)
                .position(|(before, now)| before != now)
                .unwrap_or_else(|| before.len().min(shape.len()));
            let shown = |column: Option<&(String, String)>| match column {
                Some((name, what)) => format!("\"{name}\" ({what})"),
                None => "none".to_owned(),
            };
            relation.differs = Some(format!(
                "column {} of {}.{} was {}, and is {}",
                place.saturating_add(1),
                name.schema,
                name.relation,
                shown(before.get(place)),
                shown(shape.get(place)),
            ));
        }
    }
}

/// What is said of a column whose type is not confidential.
const PLAIN: &str = "plain";

/// A column's name, and what of its type matters: whether it is confidential, its kind and class.
fn described(column: &Column) -> (String, String) {
    let what = match (column.kind, column.class()) {
        (Some(kind), Class::Opaque) => format!("enc_{}", kind.base()),
        (Some(kind), class) => format!("enc_{}({})", kind.base(), class.name()),
        (None, _) if column.holds_confidential => "holds confidential values".to_owned(),
        (None, _) => PLAIN.to_owned(),
    };
    (column.name.clone(), what)
}

/// What is in the file; nothing if there is none. `InvalidData` for a file that does not begin with
/// a comment, and a line that is no relation.
fn read(path: &Path) -> io::Result<Shapes> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Shapes::new()),
        Err(error) => return Err(error),
    };
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let known: Option<Shapes> = lines.map(from_line).collect();
    known.filter(|_| text.starts_with('#')).ok_or_else(|| {
        let what = "it is not a list of relations with its heading";
        io::Error::new(io::ErrorKind::InvalidData, what)
    })
}

/// Replaces the file by one with these relations.
fn write(path: &Path, known: &Shapes) -> io::Result<()> {
    let mut text = String::from(HEADING);
    for (name, shape) in known {
        text.push_str(&to_json(name, shape).to_string());
        text.push('\n');
    }
    durable::replace(path, text.as_bytes(), 0o600)
}

/// A relation as JSON, which is a line of the file.
#[must_use]
pub fn to_json(name: &RelationName, shape: &Shape) -> Value {
    json!({
        "server": name.server,
        "database": name.database,
        "schema": name.schema,
        "relation": name.relation,
        "part_of": shape.part_of,
        "columns": shape.columns,
    })
}

/// The relation of a line. `None` for another line.
fn from_line(line: &str) -> Option<(RelationName, Shape)> {
    let value: Value = serde_json::from_str(line).ok()?;
    let text = |of: &Value| of.as_str().map(str::to_owned);
    let name = RelationName {
        server: text(&value["server"])?,
        database: text(&value["database"])?,
        schema: text(&value["schema"])?,
        relation: text(&value["relation"])?,
    };
    let pair = |of: &Value| match of.as_array()?.as_slice() {
        [first, second] => Some((text(first)?, text(second)?)),
        _ => None,
    };
    let columns = value["columns"].as_array()?.iter().map(pair);
    let shape = Shape {
        part_of: match &value["part_of"] {
            Value::Null => None,
            root => Some(pair(root)?),
        },
        columns: columns.collect::<Option<_>>()?,
    };
    Some((name, shape))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::tests::catalog;

    const DATABASE: &str = "shop";

    fn known() -> Arc<KnownRelations> {
        Arc::new(KnownRelations::in_memory())
    }

    /// What the catalog with these tables shows this connection of the relation `t`: whether it is
    /// what it was.
    #[expect(clippy::unwrap_in_result, reason = "a test that panics has failed")]
    fn sees(changer: &Changer, settled: bool, tables: &[&str]) -> Result<(), String> {
        let mut catalog = catalog(tables);
        changer.check(DATABASE, settled, &mut catalog).unwrap();
        let differs = catalog
            .relations("", "t")
            .find_map(|found| found.differs.clone());
        differs.map_or(Ok(()), Err)
    }

    fn changes(names: &[&str]) -> Changes {
        Changes {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            any: false,
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
        assert_eq!(sees(&one, true, &["s.t(a text)"]), Ok(()));
        assert_eq!(known.forget(|name| name.schema == "public").unwrap(), 2);
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
            one.check(DATABASE, true, &mut catalog).unwrap();
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
        let (one, other) = (
            known.connection("server".to_owned()),
            known.connection("server".to_owned()),
        );
        assert_eq!(sees(&one, true, FIRST), Ok(()));
        one.begin_change(DATABASE, &changes(&["t"])).unwrap();
        let after = &["t(id, city, name text)"];
        // The change is in a transaction: the one sees it, the other does not yet.
        assert_eq!(sees(&one, false, after), Ok(()));
        assert_eq!(sees(&other, true, FIRST), Ok(()));
        assert_eq!(sees(&other, true, after), Ok(()));
        assert_eq!(sees(&one, true, after), Ok(()));
        assert!(sees(&other, true, FIRST).is_err());
        // One that leaves before it has looked.
        one.begin_change(DATABASE, &changes(&["t"])).unwrap();
        drop(one);
        assert_eq!(sees(&other, true, FIRST), Ok(()));
        assert!(sees(&other, true, after).is_err());
        // Any relation may be meant.
        let every = Changes {
            any: true,
            ..Changes::default()
        };
        other.begin_change(DATABASE, &every).unwrap();
        assert_eq!(sees(&other, true, after), Ok(()));
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
        assert!(text.starts_with('#') && text.lines().count() == 3, "{text}");
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
}
