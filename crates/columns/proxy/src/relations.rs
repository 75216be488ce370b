//! What relations with confidential columns looked like when the proxy saw them first, kept in a
//! file of the data owner's: the names, the order and the types of their columns. And which
//! functions have a confidential argument or result.
//!
//! Which column a value of `INSERT INTO t VALUES (...)` goes into is the server's word. Whoever
//! exchanges two columns in the catalog would get the constants of the confidential one in clear.
//! So a relation is taken as the server says when it is seen first, and has to stay so.
//!
//! Invariants:
//! - A relation that has another column in a place than it had is refused, until it is changed by a
//!   statement through the proxy or its owner forgets it. New columns behind the others change
//!   nothing of what was written before, and are taken.
//! - Where such a relation is gone and another schema has one of its name with other columns, the
//!   name without a schema is refused.
//! - A function that had a confidential argument or result counts as one that has, until it is
//!   changed by a statement through the proxy or its owner forgets it.
//! - Temporary relations are kept like that for as long as their session lasts, in memory.
//! - While a statement through the proxy changes a relation, nothing is learned or said of it:
//!   other transactions still see what it was.
//!
//! Must not: hold a value.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use self::known::{
    FunctionName, Known, RelationName, Shape, Shapes, function_to_json, relation_to_json,
};
use self::known::{gone, learn_or_mark, read, write};
use crate::locked_file::lock;
use crate::sql::catalog::{Catalog, Relation};
use crate::sql::changes::Changes;

mod known;

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
    kept: Known,
    /// By connection, what its statements may be changing.
    changing: BTreeMap<u64, Changes>,
    connections: u64,
}

/// A connection, whose statements may change relations.
pub(crate) struct Changer {
    relations: Arc<KnownRelations>,
    server: String,
    number: u64,
    /// The session's temporary relations.
    temporary: Mutex<Shapes>,
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
    pub fn known(&self) -> io::Result<Known> {
        self.change(|known| known.clone())
    }

    /// Forgets the relations for which `which` is true; returns how many there were. The next
    /// connection takes them as the server says.
    ///
    /// # Errors
    /// As [`Self::known`], and when the file cannot be written.
    pub fn forget(&self, which: impl Fn(&RelationName) -> bool) -> io::Result<usize> {
        self.change(|known| {
            let before = known.relations.len();
            known.relations.retain(|name, _| !which(name));
            before.saturating_sub(known.relations.len())
        })
    }

    /// Forgets the functions for which `which` is true; returns how many there were. The next
    /// connection takes them as the server says.
    ///
    /// # Errors
    /// As [`Self::forget`].
    pub fn forget_functions(&self, which: impl Fn(&FunctionName) -> bool) -> io::Result<usize> {
        self.change(|known| {
            let before = known.functions.len();
            known.functions.retain(|name| !which(name));
            before.saturating_sub(known.functions.len())
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
            temporary: Mutex::default(),
        }
    }

    /// Calls `with` with what is known, while no other process changes it, and keeps what it has
    /// changed. Fails with the system's errors, and with `InvalidData` for a file that was not
    /// written by a proxy.
    fn change<T>(&self, with: impl FnOnce(&mut Known) -> T) -> io::Result<T> {
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
        let mut temporary = self.temporary();
        temporary.retain(|name, _| !(changes.temporary || changes.has(&name.relation)));
        drop(temporary);
        self.relations.change(|known| {
            known.relations.retain(|name, _| {
                !(self.is_here(&name.server, &name.database, database)
                    && changes.has(&name.relation))
            });
            known.functions.retain(|name| {
                !(self.is_here(&name.server, &name.database, database)
                    && changes.has_function(&name.function))
            });
        })
    }

    /// Compares the catalog of a database with what is known, and marks the relations that are not
    /// what they were, or are gone. Learns those that are new. `settled`: the connection is in no
    /// transaction, so that what it has changed is what all others see.
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
            self.check_relations(database, catalog, &mut known.relations, (&own, &changing));
            let here = |name: &FunctionName| self.is_here(&name.server, &name.database, database);
            let functions = catalog.functions_mut();
            let found = functions.iter().filter(|name| !changing.has_function(name));
            let found: Vec<FunctionName> = found
                .map(|name| FunctionName {
                    server: self.server.clone(),
                    database: database.to_owned(),
                    function: name.clone(),
                })
                .collect();
            known
                .functions
                .retain(|name| !(here(name) && own.has_function(&name.function)));
            known.functions.extend(found);
            let kept = known.functions.iter().filter(|name| here(name));
            functions.extend(
                kept.filter(|name| !changing.has_function(&name.function))
                    .map(|name| name.function.clone()),
            );
        })
    }

    /// Compares the relations of the catalog with those that are known. `own` are the changes of
    /// this connection that are done, `changing` those that may be under way.
    fn check_relations(
        &self,
        database: &str,
        catalog: &mut Catalog,
        known: &mut Shapes,
        (own, changing): (&Changes, &Changes),
    ) {
        let is_in = |changes: &Changes, name: &str, root: Option<&(String, String)>| {
            changes.has(name) || root.is_some_and(|(_, root)| changes.has(root))
        };
        let mut temporary = self.temporary();
        let own_schema = catalog.temporary_schema.clone();
        known.retain(|name, shape| {
            let here = self.is_here(&name.server, &name.database, database);
            !(here && is_in(own, &name.relation, shape.part_of.as_ref()))
        });
        for (name, relation) in catalog.relations_mut() {
            let is_own = !own_schema.is_empty() && relation.schema == own_schema;
            if is_in(changing, name, relation.root.as_ref())
                || (is_session_s_own(&relation.schema) && !is_own)
            {
                continue;
            }
            let named = RelationName {
                server: self.server.clone(),
                database: database.to_owned(),
                schema: relation.schema.clone(),
                relation: name.to_owned(),
            };
            if is_own {
                learn_or_mark(&mut temporary, named, relation);
                continue;
            }
            if is_in(own, name, relation.root.as_ref()) {
                known.remove(&named);
            }
            learn_or_mark(known, named, relation);
        }
        let kept = known.iter().chain(temporary.iter());
        let missing: Vec<(&RelationName, Relation)> = kept
            .filter(|(name, shape)| {
                self.is_here(&name.server, &name.database, database)
                    && !is_in(changing, &name.relation, shape.part_of.as_ref())
                    && catalog.has_name(&name.relation)
                    && catalog
                        .relations(&name.schema, &name.relation)
                        .next()
                        .is_none()
            })
            .map(|(name, shape)| {
                let others = catalog.relations("", &name.relation);
                (name, gone(name, shape, others))
            })
            .collect();
        for (name, relation) in missing {
            catalog.add_gone(&name.relation, relation);
        }
    }

    /// Whether something that is known is of this connection's server and this database.
    fn is_here(&self, server: &str, of: &str, database: &str) -> bool {
        self.server == server && of == database
    }

    /// What is known of the session's temporary relations.
    fn temporary(&self) -> MutexGuard<'_, Shapes> {
        self.temporary
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
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

#[cfg(test)]
mod tests {
    use super::*;
    use strongroom_keyring::durable;

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
        one.check(DATABASE, true, &mut catalog).unwrap();
        let differs = |schema| {
            let found: Vec<_> = catalog.relations(schema, "t").collect();
            found.iter().any(|found| found.differs.is_some())
        };
        assert!(differs("public") && !differs("s"));
        // Its owner drops it.
        one.begin_change(DATABASE, &changes(&["t"])).unwrap();
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
            one.check(DATABASE, settled, &mut catalog).unwrap();
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
            one.begin_change(DATABASE, &changes).unwrap();
            assert!(sees(true, &["pg_temp_3.t(name)"]));
            one.begin_change(DATABASE, &changes).unwrap();
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
            of.check(DATABASE, settled, &mut catalog).unwrap();
            catalog.has_function("f")
        };
        assert!(!has(&one, true, false) && has(&one, true, true) && has(&one, true, false));
        assert!(has(&known.connection("server".to_owned()), true, false));
        assert!(!has(&known.connection("other".to_owned()), true, false));
        let dropped = Changes {
            functions: std::iter::once("f".to_owned()).collect(),
            ..Changes::default()
        };
        one.begin_change(DATABASE, &dropped).unwrap();
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
}
