//! What a definition may not be, checked when it is made (X3).
//!
//! A table with a confidential column has the access method `strongroom`; nothing that hides identifiers inside another value is a
//! column; nothing that keeps a hash or a constant of them is made. The catalogs are read with `SnapshotSelf`, because PostgreSQL calls
//! the hook before it makes the new rows visible. Must not: forbid anything to tables without confidential columns.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};

use pg_sys::{NodeTag, Oid};
use pgrx::pg_sys;
use strongroom_format::columns::Kind;

use crate::call::{guarded, outside};
use crate::catalog::{rows, templates, types};
use crate::execution::statement;
use crate::fault;
use crate::storage::partition::Storage;
use crate::storage::transaction_end;

/// The access method.
pub(crate) const ACCESS_METHOD: &CStr = c"strongroom";

thread_local! {
    /// Depth of commands that store expressions.
    static DEFINING: Cell<u32> = const { Cell::new(0) };
    static ACCESS_HOOK: Cell<pg_sys::object_access_hook_type> = const { Cell::new(None) };
    static UTILITY_HOOK: Cell<pg_sys::ProcessUtility_hook_type> = const { Cell::new(None) };
}

/// Hangs this module into the server.
pub(crate) fn install() {
    // SAFETY: hooks are set while the library is loaded, before anything runs.
    unsafe {
        ACCESS_HOOK.set(pg_sys::object_access_hook);
        pg_sys::object_access_hook = Some(access);
        UTILITY_HOOK.set(pg_sys::ProcessUtility_hook);
        pg_sys::ProcessUtility_hook = Some(utility);
    }
}

fn refuse(message: &str, hint: &str) -> ! {
    fault::Report::new("0A000", message).hint(hint).raise()
}

/// Refuses a literal in a definition: it is an identifier of this connection, and the definition outlives it.
pub(crate) fn refuse_literal() {
    if DEFINING.get() > 0 {
        refuse_stored();
    }
}

fn refuse_stored() -> ! {
    refuse(
        "a definition cannot contain a value of a confidential type",
        "Definitions are kept in catalogs that the server reads; compare with a column instead, or check in the application.",
    )
}

// ---- commands ----

extern "C-unwind" fn utility(
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
        // SAFETY: PostgreSQL's own parse tree, good as long as the call.
        let node = unsafe { (*statement).utilityStmt };
        // SAFETY: as above. Read now: a command may free its own tree (DEALLOCATE).
        let tag = unsafe { (*node).type_ };
        statement::as_utility(|| {
            // SAFETY: as above.
            let defining = unsafe { before(node) }.then(Defining::enter);
            match UTILITY_HOOK.get() {
                // SAFETY: the hook that stood here before, with its arguments.
                Some(hook) => unsafe {
                    outside(|| {
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
            // SAFETY: as above, for the commands that are looked at.
            unsafe { after(tag, node) };
        });
        statement::end_if_over();
    });
}

/// A command that stores expressions, left however it ends.
struct Defining;

impl Defining {
    fn enter() -> Self {
        DEFINING.set(DEFINING.get() + 1);
        Self
    }
}

impl Drop for Defining {
    fn drop(&mut self) {
        DEFINING.set(DEFINING.get().saturating_sub(1));
    }
}

/// Checks a command that has not run yet; whether it stores expressions.
///
/// # Safety
///
/// A parse tree of PostgreSQL's.
unsafe fn before(node: *mut pg_sys::Node) -> bool {
    // SAFETY: the tag says what the node is.
    unsafe {
        match (*node).type_ {
            NodeTag::T_CreateStmt
            | NodeTag::T_CreateForeignTableStmt
            | NodeTag::T_ViewStmt
            | NodeTag::T_RuleStmt
            | NodeTag::T_CreateTrigStmt
            | NodeTag::T_AlterTableStmt
            | NodeTag::T_IndexStmt
            | NodeTag::T_CreatePolicyStmt
            | NodeTag::T_AlterPolicyStmt
            | NodeTag::T_CreateStatsStmt
            | NodeTag::T_CreateDomainStmt
            | NodeTag::T_AlterDomainStmt
            | NodeTag::T_CreatePublicationStmt
            | NodeTag::T_AlterPublicationStmt => true,
            NodeTag::T_CreateFunctionStmt => !(*node.cast::<pg_sys::CreateFunctionStmt>())
                .sql_body
                .is_null(),
            NodeTag::T_CreateTableAsStmt => {
                let command = node.cast::<pg_sys::CreateTableAsStmt>();
                if (*command).objtype == pg_sys::ObjectType::OBJECT_MATVIEW {
                    refuse_constants((*command).query);
                }
                false
            }
            NodeTag::T_CreateRangeStmt => {
                range(node.cast());
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

/// Refuses a query to be stored that has a confidential constant: it was analysed before the command began.
///
/// # Safety
///
/// An analysed query.
unsafe fn refuse_constants(query: *mut pg_sys::Node) {
    // SAFETY: PostgreSQL's own form of a tree as text.
    let text = unsafe { CStr::from_ptr(pg_sys::nodeToString(query.cast())) }.to_string_lossy();
    for constant in text.split("{CONST :consttype ").skip(1) {
        let oid = constant
            .split(' ')
            .next()
            .and_then(|oid| oid.parse::<u32>().ok());
        if oid.is_some_and(|oid| types::kind_of(Oid::from(oid)).is_some()) {
            refuse_stored();
        }
    }
}

/// The definitions of this name in a command.
///
/// # Safety
///
/// A list of definitions, or none, that lives as long as the iterator.
pub(crate) unsafe fn definitions(
    list: *mut pg_sys::List,
    name: &CStr,
) -> impl Iterator<Item = *mut pg_sys::DefElem> {
    let count = if list.is_null() {
        0
    } else {
        // SAFETY: the caller's promise, here and below.
        unsafe { (*list).length }
    };
    (0..usize::try_from(count).unwrap_or(0))
        // SAFETY: as above.
        .map(move |at| unsafe { (*(*list).elements.add(at)).ptr_value.cast::<pg_sys::DefElem>() })
        // SAFETY: as above; a definition has a name.
        .filter(move |definition| unsafe { CStr::from_ptr((**definition).defname) == name })
}

/// # Safety
///
/// A parse tree of PostgreSQL's.
unsafe fn range(command: *mut pg_sys::CreateRangeStmt) {
    // SAFETY: a list of definitions.
    unsafe {
        for definition in definitions((*command).params, c"subtype") {
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

/// What is checked or remembered when a command has run.
///
/// # Safety
///
/// A parse tree of PostgreSQL's.
unsafe fn after(tag: NodeTag, node: *mut pg_sys::Node) {
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
                    partition_key(oid);
                }
            }
            NodeTag::T_DeclareCursorStmt => {
                let command = node.cast::<pg_sys::DeclareCursorStmt>();
                if (*command).options.cast_unsigned() & pg_sys::CURSOR_OPT_HOLD != 0 {
                    statement::keep_portal((*command).portalname);
                }
            }
            _ => {}
        }
    }
}

fn partition_key(table: Oid) {
    let keys = rows::partition_key(table);
    for (number, oid) in rows::columns(table) {
        if keys.contains(&number) && types::kind_of(oid).is_some() {
            refuse(
                "a confidential column cannot be a partition key",
                "The server would have to know which partition a value belongs to; partition by another column.",
            );
        }
    }
}

// ---- objects ----

extern "C-unwind" fn access(
    access: pg_sys::ObjectAccessType::Type,
    class: Oid,
    object: Oid,
    sub: c_int,
    arg: *mut c_void,
) {
    use pg_sys::ObjectAccessType::{OAT_DROP, OAT_POST_ALTER, OAT_POST_CREATE};
    guarded(|| {
        if let Some(hook) = ACCESS_HOOK.get() {
            // SAFETY: the hook that stood here before, with its arguments.
            unsafe { outside(|| hook(access, class, object, sub, arg)) };
        }
        match (access, class) {
            (OAT_POST_CREATE | OAT_POST_ALTER, pg_sys::RelationRelationId) => relation(object),
            (OAT_POST_CREATE, pg_sys::TypeRelationId) => domain(object),
            (OAT_POST_CREATE, pg_sys::StatisticExtRelationId) => statistics(object),
            (OAT_DROP, pg_sys::RelationRelationId) if sub == 0 => dropped(object),
            _ => {}
        }
    });
}

fn relation(oid: Oid) {
    let Some(class) = rows::class(oid) else {
        return;
    };
    let table = match class.kind {
        b'r' | b'm' => true,
        b'p' => false,
        b'i' | b'I' => return index(oid, class.access_method),
        b'f' => return foreign(oid),
        _ => return,
    };
    let mut confidential = false;
    for (_, column) in rows::columns(oid) {
        match types::kind_of(column) {
            Some(Kind::Interval) => refuse(
                "enc_interval is the type of an operand, not of a column",
                "Keep two timestamps, or a number of days.",
            ),
            Some(_) => confidential = true,
            None if rows::hides(column, 0) => refuse(
                "a confidential type cannot be inside an array, a composite, a domain or a range of a column",
                "Keep each value in a column of its own.",
            ),
            None => {}
        }
    }
    if confidential {
        templates::refuse_in_template();
    }
    if confidential && table && class.access_method != access_method() {
        fault::Report::new("0A000", "a table with a confidential column must use the access method strongroom")
            .hint("Write CREATE TABLE ... USING strongroom, or set default_table_access_method = 'strongroom'.")
            .raise();
    }
}

fn foreign(oid: Oid) {
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

fn index(oid: Oid, access_method: Oid) {
    let Some(found) = rows::index(oid) else {
        return;
    };
    // The index's own columns are what it keeps: a hash index keeps integers. An expression has no column of the table.
    let of_table = rows::columns(found.table)
        .into_iter()
        .filter(|(number, _)| found.keys.contains(number));
    let mut columns = of_table.chain(rows::columns(oid));
    if !columns.any(|(_, column)| types::kind_of(column).is_some()) {
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
    if found.exclusion {
        refuse(
            "an exclusion constraint on a confidential column is not offered",
            "Use a unique constraint.",
        );
    }
}

fn domain(oid: Oid) {
    if let Some(base) = rows::domain_base(oid)
        && (types::kind_of(base).is_some() || rows::hides(base, 0))
    {
        refuse(
            "a domain over a confidential type is not offered",
            "Use the type itself.",
        );
    }
}

fn statistics(oid: Oid) {
    let Some(found) = rows::statistics(oid) else {
        return;
    };
    let mut columns = rows::columns(found.table).into_iter();
    let confidential = |oid: Oid| types::kind_of(oid).is_some();
    if columns.any(|(number, column)| found.keys.contains(&number) && confidential(column))
        || types_in(&found.expressions).any(confidential)
    {
        refuse(
            "extended statistics on a confidential column are not offered",
            "They would keep values in a catalog.",
        );
    }
}

/// The types that a tree names: of variables, constants, results of functions and of every other node, in fields whose names end with `type`
/// (src/backend/nodes/outfuncs.c).
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

fn dropped(oid: Oid) {
    if let Some(class) = rows::class(oid)
        && matches!(class.kind, b'r' | b'm')
        && class.access_method == access_method()
    {
        transaction_end::dropped(Storage::new(class.storage, class.backend));
    }
}

/// OID of the access method; invalid when the extension is not in this database.
fn access_method() -> Oid {
    // SAFETY: a search of the catalog cache.
    unsafe { pg_sys::get_table_am_oid(ACCESS_METHOD.as_ptr(), true) }
}
