//! What relations with confidential columns looked like when the proxy saw them first, kept in a
//! file of the data owner's: the names, the order and the types of their columns. And which
//! functions have a confidential argument or result.
//!
//! Which column a value of `INSERT INTO t VALUES (...)` goes into is the server's word. Whoever
//! exchanges two columns in the catalog would get the constants of the confidential one in clear.
//! So a relation is taken as the server says when it is seen first, and has to stay so.
//!
//! Invariants:
//! - A relation that has another column in a place than it had is refused, until its owner forgets
//!   it. New columns behind the others change nothing of what was written before, and are taken.
//! - A statement of the owner through the proxy changes what it names: a column whose type it
//!   changes, that it drops or gives another name. All others stay what they were.
//! - What a statement of the owner says of columns holds when it is done: a relation that has no
//!   such column is refused, and so is one that still has what was dropped, or another type or name
//!   in its place. Where the client was told of an error, or has rolled the transaction back, the
//!   relation has to be what it was before.
//! - Where such a relation is gone and another schema has one of its name with other columns, the
//!   name without a schema is refused.
//! - A function that had a confidential argument or result, or gets one by a statement through the
//!   proxy, counts as one that has, until such a statement drops it or gives it another name, or
//!   its owner forgets it.
//! - What a connection sees within a transaction that its client has begun is compared with what is
//!   known, and with what it has seen there before. Others learn nothing of it.
//! - Temporary relations are kept like that for as long as their session lasts, in memory.
//! - A column has the lineage of another name only if the data owner has said so; what the server
//!   says of names decides nothing.
//! - While a statement through the proxy changes a relation, nothing is learned of it, because
//!   other transactions still see what it was. It is compared all the same: with what the statement
//!   leaves of it, and with what it says of columns that are there. Another proxy with the same
//!   file does not know of the change, and may learn what the relation was: so it is forgotten
//!   again when the change is over.
//! - What two connections change at the same time is learned again when both changes are over:
//!   which of them was carried out first, and whether the other one was then, is not known.
//! - A change is over, for the connections of this proxy, when its transaction has ended as far as
//!   its client knows. Until then other connections may see what the relation was. Where the
//!   connection has ended before the answer, either may be seen.
//!
//! Must not: hold a value.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use self::definitions::{Definitions, Sender};
pub(crate) use self::fate::Fate;
pub use self::known::{
    ColumnName, FunctionName, Known, RelationName, Shapes, adopted_to_json, function_to_json,
    relation_to_json,
};
use self::known::{gone, learn_or_mark, note_or_mark, read, write};
use self::shape::shape_of;
pub use self::shape::{PartOf, Shape};
pub(crate) use self::under_way::Standing;
use self::under_way::{
    Pending, UnderWay, difference_under_way, forget_changes, is_in, may_be_gone,
};
use crate::locked_file::lock;
use crate::sql::catalog::{Catalog, Relation};
use crate::sql::changes::Changes;
use crate::sql::comparable::{ColumnPath, FormerName};

mod changed;
mod definitions;
mod fate;
mod functions;
mod known;
mod shape;
mod under_way;

/// The relations that are known to this proxy and those that share its file.
#[derive(Debug)]
pub struct KnownRelations {
    /// `None`: nothing is kept beyond this process.
    path: Option<PathBuf>,
    state: Mutex<State>,
    /// Held while a change begins and while a catalog is compared: neither sees half of the other.
    gate: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// What is known, where there is no file.
    kept: Known,
    /// By connection, what its statements may be changing.
    changing: BTreeMap<u64, UnderWay>,
    /// What statements may be changing whose connections have ended before their answers came, and
    /// since when.
    left: Vec<(Instant, UnderWay)>,
    connections: u64,
}

/// How long a server may still be working on a statement whose client has gone: for so long no
/// connection learns what the statement may be changing.
pub(crate) const LEFT_LIMIT: Duration = Duration::from_secs(60);

/// A connection, whose statements may change relations.
pub(crate) struct Changer {
    relations: Arc<KnownRelations>,
    server: String,
    number: u64,
    /// Whether the server has answered all of its statements, and no further one comes.
    is_over: bool,
    /// The session's temporary relations.
    temporary: Mutex<Shapes>,
    /// The schema of these, once the server has named one: a session keeps it.
    temporary_schema: OnceLock<String>,
    /// What is new since the client has begun its transaction. Nobody else learns it: it may be
    /// undone, or be what an older snapshot shows.
    within: Mutex<Shapes>,
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
            gate: Mutex::default(),
        })
    }

    /// Keeps what is known in memory only.
    #[must_use]
    pub fn in_memory() -> Self {
        Self {
            path: None,
            state: Mutex::default(),
            gate: Mutex::default(),
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

    /// Notes that the values of a column have the lineage of another name, in each database of
    /// `which` that has the column's relation; `before` is what the column was called when they
    /// were stored. With its own name: that they have not. Returns how many databases there were.
    ///
    /// # Errors
    /// As [`Self::known`], and when the file cannot be written.
    pub fn adopt(
        &self,
        which: impl Fn(&RelationName) -> bool,
        column: &ColumnPath,
        before: &FormerName,
    ) -> io::Result<usize> {
        let [schema, relation, _] = column;
        self.change(|known| {
            let all = known.relations.keys();
            let of = all
                .filter(|name| which(name) && name.schema == *schema && name.relation == *relation);
            let names: Vec<ColumnName> = of
                .map(|name| ColumnName {
                    server: name.server.clone(),
                    database: name.database.clone(),
                    path: column.clone(),
                })
                .collect();
            for name in &names {
                let lineage_of = before.in_database(&name.database);
                if before.path == *column && lineage_of.first() == Some(&name.database) {
                    known.adopted.remove(name);
                } else {
                    known.adopted.insert(name.clone(), lineage_of);
                }
            }
            names.len()
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
            is_over: false,
            temporary: Mutex::default(),
            temporary_schema: OnceLock::new(),
            within: Mutex::default(),
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

    /// The gate, also after a panic of another thread.
    fn gate(&self) -> MutexGuard<'_, ()> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
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
    pub(crate) fn begin_change(
        &self,
        database: &str,
        changes: &Changes,
        fate: &Arc<Fate>,
    ) -> io::Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        let under_way = |changes: Changes| UnderWay {
            server: self.server.clone(),
            database: database.to_owned(),
            changes,
            definitions: Definitions::default(),
        };
        let gate = self.relations.gate();
        // From now on no other connection learns what is changed.
        let mut state = self.relations.state();
        let own = state.changing.entry(self.number);
        let own = own.or_insert_with(|| under_way(Changes::default()));
        let done = own.definitions.was_decided(Instant::now());
        let done = done.then(|| std::mem::replace(own, under_way(Changes::default())));
        own.changes.join(changes);
        let pending = own.definitions.about(changes);
        let mut changes = changes.clone();
        let State { changing, left, .. } = &mut *state;
        let others = changing.iter_mut();
        let others = others.filter_map(|(of, other)| (*of != self.number).then_some(other));
        for other in others.chain(left.iter_mut().map(|(_, other)| other)) {
            if self.is_here(&other.server, &other.database, database) {
                other.definitions.meet(&mut changes);
            }
        }
        drop(state);
        let changes = &changes;
        let mut temporary = self.temporary();
        let definitions = self.relations.change(|known| {
            if let Some(done) = done {
                done.end(known, &mut temporary);
            }
            let here = known.relations.iter();
            let here =
                here.filter(|(name, _)| self.is_here(&name.server, &name.database, database));
            let functions = known.functions.iter();
            let functions = functions
                .filter(|name| self.is_here(&name.server, &name.database, database))
                .map(|name| name.function.as_str());
            let of = (&pending, fate);
            let definitions = Definitions::of(changes, here, temporary.iter(), functions, of);
            under_way(changes.clone()).forget(known);
            definitions
        })?;
        if changes.temporary {
            temporary.clear();
        }
        forget_changes(&mut temporary, |_| true, changes);
        drop(temporary);
        if let Some(under_way) = self.relations.state().changing.get_mut(&self.number) {
            under_way.definitions.join(changes, definitions);
        }
        drop(gate);
        Ok(())
    }

    /// Adds to the catalog what its owner says of the names that lineages are made from.
    fn adopt_columns(&self, database: &str, catalog: &mut Catalog, known: &Known) {
        let columns_of = |of: &str| {
            let columns = known.adopted.iter();
            let columns =
                columns.filter(|(name, _)| self.is_here(&name.server, &name.database, of));
            columns
                .map(|(name, lineage_of)| (name.path.clone(), lineage_of.clone()))
                .collect()
        };
        catalog.adopt(columns_of(database));
        if let Some(former) = catalog.former_database().map(str::to_owned) {
            catalog.adopt(columns_of(&former));
        }
    }

    /// Notes in the catalog that the database has confidential columns or functions by what is
    /// known, and by what statements under way (`pending`) say, leave, or may not have done yet.
    fn note_confidential(
        &self,
        database: &str,
        catalog: &mut Catalog,
        known: &Known,
        (changing, pending): (&Changes, &[Pending]),
    ) {
        let mut relations = known.relations.keys();
        let mut functions = known.functions.iter();
        let is_kept = relations.any(|name| self.is_here(&name.server, &name.database, database))
            || functions.any(|name| {
                self.is_here(&name.server, &name.database, database)
                    && !changing.has_function(&name.function)
            });
        let mut pending = pending.iter();
        if is_kept
            || pending.any(|pending| pending.definitions.is_confidential(pending.of))
            || !self.temporary().is_empty()
        {
            catalog.note_confidential();
        }
    }

    /// Notes that the client has left, and whether the server has answered all of its statements.
    /// `is_open`: the client has not ended its transaction.
    pub(crate) fn leave(&mut self, is_over: bool, is_open: bool) {
        self.is_over = is_over;
        let state = self.relations.state();
        if let Some(under_way) = state.changing.get(&self.number).filter(|_| is_open) {
            under_way.definitions.give_up();
        }
    }

    /// Compares the catalog of a database with what is known, and marks the relations that are not
    /// what they were, or are gone. Learns those that are new. `since`: when the server was asked
    /// for the catalog.
    ///
    /// # Errors
    /// Those of the file.
    pub(crate) fn check(
        &self,
        database: &str,
        (standing, since): (Standing, Instant),
        catalog: &mut Catalog,
    ) -> io::Result<()> {
        if standing != Standing::Open {
            self.end_transaction();
        }
        let settled = standing == Standing::Settled;
        let gate = self.relations.gate();
        let mut state = self.relations.state();
        let is_here = |of: &UnderWay| self.is_here(&of.server, &of.database, database);
        // What the connection has changed, its partitions included, is learned again.
        let is_done = |(number, of): &(u64, UnderWay)| {
            settled && *number == self.number || is_here(of) && of.definitions.was_decided(since)
        };
        let all = std::mem::take(&mut state.changing).into_iter();
        let (done, going_on): (Vec<_>, Vec<_>) = all.partition(is_done);
        state.changing = going_on.into_iter().collect();
        // What a transaction sees may be older than what it is compared with.
        let is_over = |(ended, of): &mut (Instant, UnderWay)| {
            standing != Standing::Open
                && is_here(of)
                && (ended.elapsed() >= LEFT_LIMIT || of.definitions.was_decided(since))
        };
        let over: Vec<_> = state.left.extract_if(.., is_over).collect();
        let mut changing = Changes::default();
        let mut pending = Vec::new();
        let left = state.left.iter();
        let left = left.map(|(_, under_way)| (Sender::Gone, under_way));
        let of_connections = state.changing.iter().map(|(number, under_way)| {
            let is_own = *number == self.number;
            (if is_own { Sender::Own } else { Sender::Other }, under_way)
        });
        for (of, under_way) in of_connections.chain(left).filter(|(_, of)| is_here(of)) {
            changing.join(&under_way.changes);
            pending.push(Pending {
                definitions: under_way.definitions.clone(),
                of,
            });
        }
        drop(state);
        let checked = self.relations.change(|known| {
            for (_, under_way) in over {
                under_way.forget(known);
                under_way.restore_functions(known);
                let definitions = under_way.definitions;
                definitions.keep_either(&under_way.changes, &mut known.relations, catalog);
            }
            self.adopt_columns(database, catalog, known);
            for (number, under_way) in done {
                match number == self.number {
                    true => under_way.end(known, &mut self.temporary()),
                    false => under_way.end(known, &mut Shapes::new()),
                }
            }
            let under_way = (&changing, pending.as_slice());
            self.note_confidential(database, catalog, known, under_way);
            let looks = (under_way, (standing, since));
            self.check_relations(database, catalog, &mut known.relations, looks);
            self.check_functions(database, catalog, &mut known.functions, under_way);
        });
        drop(gate);
        checked
    }

    /// Learns the functions of the catalog that have a confidential argument or result, but for
    /// those that may be `changing`, and adds those that are known to have one, by what is kept and
    /// what statements under way say (`pending`).
    fn check_functions(
        &self,
        database: &str,
        catalog: &mut Catalog,
        known: &mut BTreeSet<FunctionName>,
        (changing, pending): (&Changes, &[Pending]),
    ) {
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
        known.extend(found);
        let kept = known.iter().filter(|name| here(name));
        functions.extend(
            kept.filter(|name| !changing.has_function(&name.function))
                .map(|name| name.function.clone()),
        );
        let pending = pending.iter();
        let under_way = pending.flat_map(|one| one.definitions.functions(one.of));
        functions.extend(under_way.cloned());
    }

    /// Compares the relations of the catalog with those that are known. `changing` are the changes
    /// that may be under way: of what they may concern nothing is learned, because other
    /// transactions still see what it was. `pending` is what their statements say.
    fn check_relations(
        &self,
        database: &str,
        catalog: &mut Catalog,
        known: &mut Shapes,
        ((changing, pending), (standing, since)): ((&Changes, &[Pending]), (Standing, Instant)),
    ) {
        let mut temporary = self.temporary();
        if !catalog.temporary_schema.is_empty() {
            let named = catalog.temporary_schema.clone();
            self.temporary_schema.get_or_init(|| named);
        }
        if let Some(own) = self.temporary_schema.get() {
            catalog.temporary_schema.clone_from(own);
        }
        let own_schema = catalog.temporary_schema.clone();
        for (name, relation) in catalog.relations_mut() {
            let is_own = !own_schema.is_empty() && relation.schema == own_schema;
            let root = relation.root.as_ref();
            let root = root.map(|(schema, name)| (schema.as_str(), name.as_str()));
            if is_session_s_own(&relation.schema) && !is_own {
                continue;
            }
            let is_changing = is_in(changing, (&relation.schema, name), root);
            let named = RelationName {
                server: self.server.clone(),
                database: database.to_owned(),
                schema: relation.schema.clone(),
                relation: name.to_owned(),
            };
            let of = if is_own { &mut *temporary } else { &mut *known };
            let differs = difference_under_way((pending, since), (&named, is_own), relation);
            if is_changing || differs.is_some() {
                relation.differs = differs.or_else(|| {
                    let mut pending = pending.iter();
                    let is_known = pending.any(|pending| pending.definitions.has(&named, is_own));
                    let kept = of.get(&named).filter(|_| !is_known);
                    kept?.against(&named, &shape_of(relation))
                });
            } else if standing == Standing::Open {
                note_or_mark((of, &mut self.within()), named, relation);
            } else {
                learn_or_mark(of, named, relation);
            }
        }
        let is_here = |name: &RelationName| {
            self.is_here(&name.server, &name.database, database)
                && !is_in(changing, name.path(), None)
        };
        definitions::check(known, is_here, catalog);
        definitions::check(&mut temporary, |_| true, catalog);
        let kept = known.iter().chain(temporary.iter());
        let missing: Vec<(&RelationName, Relation)> = kept
            .filter(|(name, shape)| {
                self.is_here(&name.server, &name.database, database)
                    && !may_be_gone(changing, name.path(), shape.part_of.table())
                    && catalog
                        .relations(&name.schema, &name.relation)
                        .next()
                        .is_none()
            })
            .map(|(name, shape)| {
                (
                    name,
                    gone(name, shape, catalog.relations("", &name.relation)),
                )
            })
            .collect();
        for (name, relation) in missing {
            catalog.note_missing(&name.relation);
            catalog.add_gone(&name.relation, relation);
        }
    }

    /// Whether something that is known is of this connection's server and this database.
    fn is_here(&self, server: &str, of: &str, database: &str) -> bool {
        self.server == server && of == database
    }

    /// Notes that the client's transaction has ended, or that a part of it was undone.
    pub(crate) fn end_transaction(&self) {
        self.within().clear();
    }

    /// What is new since the client has begun its transaction.
    fn within(&self) -> MutexGuard<'_, Shapes> {
        self.within.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of the session's temporary relations.
    fn temporary(&self) -> MutexGuard<'_, Shapes> {
        self.temporary
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Changer {
    /// Whatever the connection was changing is seen by the next one, unless the server may still be
    /// changing it.
    fn drop(&mut self) {
        // Nobody looks while it is neither under way nor kept.
        let _gate = self.relations.gate();
        let mut state = self.relations.state();
        let Some(under_way) = state.changing.remove(&self.number) else {
            return;
        };
        if self.is_over {
            drop(state);
            // Where the file cannot be written, what another proxy has learned meanwhile stays, and
            // the relation is refused until its owner forgets it.
            let ended = |known: &mut Known| under_way.end(known, &mut Shapes::new());
            drop(self.relations.change(ended));
        } else {
            state.left.push((Instant::now(), under_way));
        }
    }
}

/// Whether a schema is the server's own or a session's, whose relations nobody keeps.
fn is_session_s_own(schema: &str) -> bool {
    schema.starts_with("pg_") || schema == "information_schema"
}

#[cfg(test)]
mod definition_tests;
#[cfg(test)]
mod honest_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod under_way_tests;
