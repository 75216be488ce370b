//! Checks of definitions (tables, indexes, views, ...) when they are made (X3).
//!
//! A table with a confidential column must have the access method `strongroom`. No column may hide
//! identifiers inside another value, and nothing may be defined that stores a hash or a constant of
//! a confidential value. The catalogs are read with `SnapshotSelf`, because PostgreSQL calls the
//! hook before it makes the new rows visible. Must not: forbid anything to tables without
//! confidential columns.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_int, c_void};

use pg_sys::{CopyStmt, NodeTag, Oid};
use pgrx::pg_sys;
use strongroom_format::columns::Class;

use crate::call::{call_postgres, guarded};
use crate::catalog::{options, rows, templates, types};
use crate::execution::row_sealing::Copying;
use crate::execution::statement;
use crate::fault;
use crate::planning::indexes;
use crate::ring::standby;
use crate::storage::storage_id::StorageId;
use crate::storage::{access_method, pending};

thread_local! {
    /// Nesting of commands that store expressions.
    static DEFINING: Cell<u32> = const { Cell::new(0) };
    /// Tables and columns that the command has given a default.
    static NEW_DEFAULTS: RefCell<Vec<(Oid, i16)>> = const { RefCell::new(Vec::new()) };
    static PREVIOUS_ACCESS_HOOK: Cell<pg_sys::object_access_hook_type> = const { Cell::new(None) };
    static PREVIOUS_UTILITY_HOOK: Cell<pg_sys::ProcessUtility_hook_type> =
        const { Cell::new(None) };
}

/// Installs the hooks for commands and for changes of objects; they call those installed before.
pub(crate) fn install() {
    // SAFETY: hooks are set while the library is loaded, before anything runs.
    unsafe {
        PREVIOUS_ACCESS_HOOK.set(pg_sys::object_access_hook);
        pg_sys::object_access_hook = Some(on_object_access);
        PREVIOUS_UTILITY_HOOK.set(pg_sys::ProcessUtility_hook);
        pg_sys::ProcessUtility_hook = Some(process_utility);
    }
}

/// Raises the ERROR for a definition that is not offered.
fn refuse(message: &str, hint: &str) -> ! {
    fault::Report::new("0A000", message).hint(hint).raise()
}

/// Raises an ERROR if a definition is being made. To be called for each literal: a literal is an
/// identifier of this connection, and the definition would outlive it.
pub(crate) fn refuse_literal_in_definition() {
    if DEFINING.get() > 0 {
        refuse_constant();
    }
}

/// Raises the ERROR for a confidential constant in a definition.
fn refuse_constant() -> ! {
    refuse(
        "a definition cannot contain a value of a confidential type",
        "Definitions are kept in catalogs that the server reads; compare with a column instead, \
         or check in the application.",
    )
}

// ---- commands ----

/// The hook for a command: checks it, runs it by the hook before or PostgreSQL's own function,
/// checks what it has made, and ends the statement if it is over. Raises an ERROR for a definition
/// that is not offered.
extern "C-unwind" fn process_utility(
    statement: *mut pg_sys::PlannedStmt,
    text: *const c_char,
    read_only: bool,
    context: pg_sys::ProcessUtilityContext::Type,
    params: pg_sys::ParamListInfo,
    environment: *mut pg_sys::QueryEnvironment,
    receiver: *mut pg_sys::DestReceiver,
    completion: *mut pg_sys::QueryCompletion,
) {
    guarded(|| {
        // SAFETY: PostgreSQL's own parse tree, valid as long as the call.
        let node = unsafe { (*statement).utilityStmt };
        // SAFETY: as above. Read now: a command may free its own tree (DEALLOCATE).
        let tag = unsafe { (*node).type_ };
        // SAFETY: the tag says what the node is.
        let copies = tag == NodeTag::T_CopyStmt && unsafe { !(*node.cast::<CopyStmt>()).is_from };
        // SAFETY: as above.
        let to_client = || unsafe { (*node.cast::<CopyStmt>()).filename.is_null() };
        let copying = copies.then(|| Copying::enter(to_client()));
        if copies {
            // SAFETY: as above.
            unsafe { standby::wait_for_values_of_copy(node.cast()) };
        }
        statement::run_utility(|| {
            // SAFETY: as above.
            let defining = unsafe { check_before(node) }.then(Defining::enter);
            match PREVIOUS_UTILITY_HOOK.get() {
                // SAFETY: the hook that was installed before, with its arguments.
                Some(hook) => unsafe {
                    call_postgres(|| {
                        hook(
                            statement,
                            text,
                            read_only,
                            context,
                            params,
                            environment,
                            receiver,
                            completion,
                        );
                    });
                },
                // SAFETY: as above.
                None => unsafe {
                    pg_sys::standard_ProcessUtility(
                        statement,
                        text,
                        read_only,
                        context,
                        params,
                        environment,
                        receiver,
                        completion,
                    );
                },
            }
            drop(defining);
            // SAFETY: as above, for the commands that are checked.
            unsafe { check_after(tag, node) };
            check_new_defaults();
        });
        drop(copying);
        statement::end_if_over();
    });
}

/// A command that stores expressions runs, until this is dropped.
struct Defining;

impl Defining {
    /// Notes that a command that stores expressions runs, until the result is dropped.
    fn enter() -> Self {
        DEFINING.set(DEFINING.get() + 1);
        Self
    }
}

impl Drop for Defining {
    /// Notes that the command has ended.
    fn drop(&mut self) {
        DEFINING.set(DEFINING.get().saturating_sub(1));
    }
}

/// Checks a command before it runs; returns whether it stores expressions in a catalog, so that
/// literals of confidential types have to be refused while it runs. Raises an ERROR for a
/// materialized view with a confidential constant, for CREATE TYPE of a range of a confidential
/// type, for CREATE DATABASE from a template that has confidential tables, and for an ALTER TABLE
/// that gives a column another class.
///
/// # Safety
///
/// A parse tree of PostgreSQL's.
unsafe fn check_before(node: *mut pg_sys::Node) -> bool {
    // SAFETY: the tag says what the node is.
    unsafe {
        match (*node).type_ {
            NodeTag::T_CreateStmt
            | NodeTag::T_CreateForeignTableStmt
            | NodeTag::T_ViewStmt
            | NodeTag::T_RuleStmt
            | NodeTag::T_CreateTrigStmt
            | NodeTag::T_IndexStmt
            | NodeTag::T_CreatePolicyStmt
            | NodeTag::T_AlterPolicyStmt
            | NodeTag::T_CreateStatsStmt
            | NodeTag::T_CreateDomainStmt
            | NodeTag::T_AlterDomainStmt
            | NodeTag::T_CreatePublicationStmt
            | NodeTag::T_AlterPublicationStmt => true,
            NodeTag::T_AlterTableStmt => {
                check_new_types(node.cast());
                true
            }
            NodeTag::T_CreateFunctionStmt => !(*node.cast::<pg_sys::CreateFunctionStmt>())
                .sql_body
                .is_null(),
            NodeTag::T_CreateTableAsStmt => {
                let command = node.cast::<pg_sys::CreateTableAsStmt>();
                if (*command).objtype == pg_sys::ObjectType::OBJECT_MATVIEW {
                    refuse_constants_in((*command).query);
                }
                false
            }
            NodeTag::T_CreateRangeStmt => {
                check_range(node.cast());
                false
            }
            NodeTag::T_CreatedbStmt => {
                templates::check_template(node.cast());
                false
            }
            _ => false,
        }
    }
}

/// Raises an ERROR if ALTER TABLE gives a column another class, of the same type: the values stay
/// as they are, and with them what may be known of them without a session.
///
/// # Safety
///
/// A parse tree of PostgreSQL's.
unsafe fn check_new_types(command: *mut pg_sys::AlterTableStmt) {
    // SAFETY: the caller's promise; the functions search the catalogs by names and OIDs.
    unsafe {
        let table = pg_sys::RangeVarGetRelidExtended(
            (*command).relation,
            pg_sys::NoLock.cast_signed(),
            pg_sys::RVROption::RVR_MISSING_OK,
            None,
            std::ptr::null_mut(),
        );
        for command in options::items::<pg_sys::AlterTableCmd>((*command).cmds) {
            let is_type = (*command).subtype == pg_sys::AlterTableType::AT_AlterColumnType;
            if table == pg_sys::InvalidOid || !is_type {
                continue;
            }
            let column = pg_sys::get_attnum(table, (*command).name);
            let definition = (*command).def.cast::<pg_sys::ColumnDef>();
            let (mut new, mut modifier) = (pg_sys::InvalidOid, -1);
            pg_sys::typenameTypeIdAndMod(
                std::ptr::null_mut(),
                (*definition).typeName,
                &raw mut new,
                &raw mut modifier,
            );
            let found = rows::columns(table)
                .into_iter()
                .find(|(number, _)| *number == column);
            let stays = rows::classes(table).contains(&(column, Class::of_modifier(modifier)));
            if found.is_some_and(|(_, old)| old == new && types::kind_of(old).is_some()) && !stays {
                refuse(
                    "the class of a column cannot be changed where it is",
                    "Add a column of the new type, and have its owner copy the values through a proxy \
                     that was started with --store-derived.",
                );
            }
        }
    }
}

/// Raises an ERROR if a query that is to be stored has a confidential constant. It was analysed
/// before the command began.
///
/// # Safety
///
/// An analysed query.
unsafe fn refuse_constants_in(query: *mut pg_sys::Node) {
    // SAFETY: PostgreSQL's own form of a tree as text.
    let text = unsafe { CStr::from_ptr(pg_sys::nodeToString(query.cast())) }.to_string_lossy();
    for constant in text.split("{CONST :consttype ").skip(1) {
        let oid = constant
            .split(' ')
            .next()
            .and_then(|oid| oid.parse::<u32>().ok());
        if oid.is_some_and(|oid| types::kind_of(Oid::from(oid)).is_some()) {
            refuse_constant();
        }
    }
}

/// Raises an ERROR for a range type over a confidential type.
///
/// # Safety
///
/// A parse tree of PostgreSQL's.
unsafe fn check_range(command: *mut pg_sys::CreateRangeStmt) {
    // SAFETY: a list of definitions.
    unsafe {
        for definition in options::named((*command).params, c"subtype") {
            let name = pg_sys::defGetTypeName(definition);
            if types::kind_of(pg_sys::typenameTypeId(std::ptr::null_mut(), name)).is_some() {
                refuse(
                    "a range cannot be of a confidential type",
                    "Keep its bounds in two columns.",
                );
            }
        }
    }
}

/// Raises an ERROR if a new table has a confidential partition key. For a cursor WITH HOLD, keeps
/// the statement's identifiers as long as the cursor.
///
/// # Safety
///
/// A parse tree of PostgreSQL's.
unsafe fn check_after(tag: NodeTag, node: *mut pg_sys::Node) {
    // SAFETY: the tag says what the node is.
    unsafe {
        match tag {
            NodeTag::T_CreateStmt => {
                let command = node.cast::<pg_sys::CreateStmt>();
                if !(*command).partspec.is_null() {
                    let oid = pg_sys::RangeVarGetRelidExtended(
                        (*command).relation,
                        pg_sys::NoLock.cast_signed(),
                        pg_sys::RVROption::RVR_MISSING_OK,
                        None,
                        std::ptr::null_mut(),
                    );
                    check_partition_key(oid);
                }
            }
            NodeTag::T_DeclareCursorStmt => {
                let command = node.cast::<pg_sys::DeclareCursorStmt>();
                if (*command).options.cast_unsigned() & pg_sys::CURSOR_OPT_HOLD != 0 {
                    statement::hold_cursor((*command).portalname);
                }
            }
            _ => {}
        }
    }
}

/// Raises an ERROR if a confidential column is in the table's partition key.
fn check_partition_key(table: Oid) {
    let keys = rows::partition_key(table);
    for (number, oid) in rows::columns(table) {
        if keys.contains(&number) && types::kind_of(oid).is_some() {
            refuse(
                "a confidential column cannot be a partition key",
                "The server would have to know which partition a value belongs to; partition by \
                 another column.",
            );
        }
    }
}

// ---- objects ----

/// The hook for a new, altered or dropped object: calls the hook before, and raises an ERROR for a
/// relation, default, domain or statistics object that is not offered. For a dropped table, notes
/// its partition.
extern "C-unwind" fn on_object_access(
    access: pg_sys::ObjectAccessType::Type,
    class: Oid,
    object: Oid,
    sub: c_int,
    arg: *mut c_void,
) {
    use pg_sys::ObjectAccessType::{OAT_DROP, OAT_POST_ALTER, OAT_POST_CREATE};
    guarded(|| {
        if let Some(hook) = PREVIOUS_ACCESS_HOOK.get() {
            // SAFETY: the hook that was installed before, with its arguments.
            unsafe { call_postgres(|| hook(access, class, object, sub, arg)) };
        }
        match (access, class) {
            (OAT_POST_CREATE | OAT_POST_ALTER, pg_sys::RelationRelationId) => {
                check_relation(object);
            }
            (OAT_POST_CREATE, class) if class.to_u32() == rows::DEFAULTS => {
                if let Ok(column) = i16::try_from(sub) {
                    NEW_DEFAULTS.with_borrow_mut(|defaults| defaults.push((object, column)));
                }
            }
            (OAT_POST_CREATE, pg_sys::TypeRelationId) => check_domain(object),
            (OAT_POST_CREATE, pg_sys::StatisticExtRelationId) => check_statistics(object),
            (OAT_DROP, pg_sys::RelationRelationId) if sub == 0 => note_drop(object),
            (OAT_DROP, pg_sys::DatabaseRelationId) => pending::add_dropped_database(object),
            _ => {}
        }
    });
}

/// Checks a new or altered relation of any kind. Raises an ERROR if a column of it may not be
/// confidential: inside another type, in a template, in a foreign table or an index,
/// or in a table of another access method.
fn check_relation(oid: Oid) {
    let Some(class) = rows::class(oid) else {
        return;
    };
    let table = match class.kind {
        b'r' | b'm' => true,
        b'p' => false,
        b'i' | b'I' => return check_index(oid, class.access_method),
        b'f' => return check_foreign_table(oid),
        _ => return,
    };
    let mut confidential = false;
    for (_, column) in rows::columns(oid) {
        match types::kind_of(column) {
            Some(_) => confidential = true,
            None if rows::contains_confidential(column, 0) => refuse(
                "a confidential type cannot be inside an array, a composite, a domain or a range \
                 of a column",
                "Keep each value in a column of its own.",
            ),
            None => {}
        }
    }
    if confidential {
        templates::refuse_in_template();
    }
    if confidential && table && class.access_method != access_method::oid() {
        fault::Report::new(
            "0A000",
            "a table with a confidential column must use the access method strongroom",
        )
        .hint(
            "Write CREATE TABLE ... USING strongroom, or set default_table_access_method = \
             'strongroom'.",
        )
        .raise();
    }
}

/// Raises an ERROR if the foreign table `oid` has a confidential column, because another server
/// would keep its rows.
fn check_foreign_table(oid: Oid) {
    if rows::columns(oid)
        .iter()
        .any(|(_, column)| types::kind_of(*column).is_some())
    {
        refuse(
            "a foreign table cannot have a confidential column",
            "Its rows are not kept by this server.",
        );
    }
}

/// Raises an ERROR for an index on a confidential column that is not a B-tree, shows more than the
/// column's class says, or is of an exclusion constraint; and for one on an expression with a
/// confidential column.
fn check_index(oid: Oid, access_method: Oid) {
    let Some(found) = rows::index(oid) else {
        return;
    };
    // An expression can have a column's identifiers as they are, in another order than its class
    // allows or inside other values, and can be one of several columns.
    if types_in(&found.expressions).any(is_or_contains_confidential) {
        refuse(
            "an index on an expression with a confidential column is not offered",
            "Make an index on the column itself.",
        );
    }
    // Of the table, because an index has the types that it stores: a hash index stores integers.
    let classes = rows::classes(found.table);
    let class_of = |column: i16| {
        let known = classes.iter().find(|(number, _)| *number == column);
        known.map(|(_, class)| *class)
    };
    if found.keys.iter().all(|key| class_of(*key).is_none()) {
        return;
    }
    if access_method == pg_sys::HASH_AM_OID {
        refuse(
            "a hash index on a confidential column is not offered",
            "A stored hash would show which values are equal, for ever; use a B-tree index.",
        );
    }
    if access_method != pg_sys::BTREE_AM_OID {
        refuse(
            "only B-tree indexes are offered on confidential columns",
            "Use a B-tree index.",
        );
    }
    let keys = found.keys.iter().take(found.key_count);
    for (key, operator_class) in keys.zip(&found.operator_classes) {
        check_index_key(class_of(*key), *operator_class);
    }
    if found.exclusion {
        refuse(
            "an exclusion constraint on a confidential column is not offered",
            "Use a unique constraint.",
        );
    }
}

/// Raises an ERROR if an index with this operator class would show more of a key's column than its
/// class says. `None` for a plain column, and for an expression without confidential columns.
fn check_index_key(class: Option<Class>, operator_class: Oid) {
    match class {
        Some(Class::Opaque) => refuse(
            "an index on an opaque column is not offered",
            "It would show the order of the column's values, or which are equal. If the server may \
             know that, define the column as ordered, such as enc_text(ordered), or of class \
             equality, such as enc_text(equality).",
        ),
        Some(Class::Equality) if !indexes::is_keyed(operator_class) => refuse(
            "an index on a column of class equality needs the operator class for that",
            "Write CREATE UNIQUE INDEX ON a_table (a_column enc_text_equality_ops), with the \
             column's own type. UNIQUE and PRIMARY KEY cannot name an operator class.",
        ),
        _ => {}
    }
}

/// Raises an ERROR if PostgreSQL has computed the default of a confidential column once, for all
/// rows that there were when the column was added, and has put it into the catalog: an identifier
/// of a value that is this statement's, or another table's, which nobody keeps for these rows. It
/// does so unless the default is volatile, as that of a constant is. To be called when a command is
/// done: some minor versions write that value only after the hook for the default.
fn check_new_defaults() {
    let defaults = NEW_DEFAULTS.take();
    let mut kept = defaults.iter();
    if kept.any(|(table, column)| rows::has_kept_default(*table, *column)) {
        refuse(
            "a confidential column cannot be added with a default that is computed once for all \
             rows",
            "Add the column without a default, fill it with UPDATE, and set the default \
             afterwards.",
        );
    }
}

/// Raises an ERROR for a domain over a confidential type. Does nothing for any other type.
fn check_domain(oid: Oid) {
    if let Some(base) = rows::domain_base(oid)
        && is_or_contains_confidential(base)
    {
        refuse(
            "a domain over a confidential type is not offered",
            "Use the type itself.",
        );
    }
}

/// Raises an ERROR for extended statistics on a confidential column or expression.
fn check_statistics(oid: Oid) {
    let Some(found) = rows::statistics(oid) else {
        return;
    };
    let mut columns = rows::columns(found.table).into_iter();
    let confidential = |oid: Oid| types::kind_of(oid).is_some();
    if columns.any(|(number, column)| found.keys.contains(&number) && confidential(column))
        || types_in(&found.expressions).any(is_or_contains_confidential)
    {
        refuse(
            "extended statistics on a confidential column are not offered",
            "They would keep values in a catalog.",
        );
    }
}

/// Whether a type is confidential, or has confidential values in it, as the row type of a table
/// has.
fn is_or_contains_confidential(oid: Oid) -> bool {
    types::kind_of(oid).is_some() || rows::contains_confidential(oid, 0)
}

/// The OIDs of the types that a tree, as text, names in variables, constants, function results and
/// every other node: they are in fields whose names end with `type` (src/backend/nodes/outfuncs.c).
fn types_in(tree: &str) -> impl Iterator<Item = Oid> + '_ {
    let mut words = tree.split([' ', '}', ')']);
    std::iter::from_fn(move || {
        loop {
            if words.next()?.ends_with("type")
                && let Some(oid) = words.next().and_then(|oid| oid.parse::<u32>().ok())
            {
                return Some(Oid::from(oid));
            }
        }
    })
}

/// Notes that a table with the access method is dropped: its partition in the zone is dropped when
/// the transaction commits. Does nothing for other relations.
fn note_drop(oid: Oid) {
    if let Some(class) = rows::class(oid)
        && matches!(class.kind, b'r' | b'm')
        && class.access_method == access_method::oid()
    {
        pending::add_dropped(StorageId::new(class.storage, class.backend));
    }
}
