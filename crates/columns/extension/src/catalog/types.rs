//! Which of PostgreSQL's types are confidential, and the signatures of functions.
//!
//! A type is recognised as one of the extension's by its name and by the symbol of its input
//! function. What was found is cached until a row of `pg_type` changes. Must not: be called where
//! the catalogs cannot be read (the end of a transaction).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::CStr;

use pg_sys::{Datum, Oid};
use pgrx::pg_sys;
use strongroom_format::columns::Kind;

use crate::catalog::tuples;
use crate::fault;

/// The first OID that is not PostgreSQL's own (access/transam.h).
const FIRST_NORMAL: u32 = 16384;

thread_local! {
    static KINDS: RefCell<BTreeMap<u32, Option<Kind>>> = const { RefCell::new(BTreeMap::new()) };
}

/// Registers a callback that empties the cache when types change.
pub(crate) fn install() {
    let cache = pg_sys::SysCacheIdentifier::TYPEOID.cast_signed();
    // SAFETY: registers a function that only empties a map.
    unsafe { pg_sys::CacheRegisterSyscacheCallback(cache, Some(on_type_change), Datum::null()) };
}

/// Empties the cache: a row of `pg_type` has changed.
extern "C-unwind" fn on_type_change(_arg: Datum, _cache: i32, _hash: u32) {
    KINDS.with(|kinds| {
        if let Ok(mut kinds) = kinds.try_borrow_mut() {
            kinds.clear();
        }
    });
}

/// The kind of a type's values. `None` for a type that is not confidential. Looks into the catalog
/// at the first call for a type.
pub(crate) fn kind_of(type_oid: Oid) -> Option<Kind> {
    let number = type_oid.to_u32();
    if number < FIRST_NORMAL {
        return None;
    }
    let known = KINDS.with(|kinds| kinds.borrow().get(&number).copied());
    known.unwrap_or_else(|| {
        let kind = look_up(type_oid);
        KINDS.with(|kinds| kinds.borrow_mut().insert(number, kind));
        kind
    })
}

/// Whether values of this type are, or may hold, confidential ones: no type of PostgreSQL's own
/// does.
pub(crate) fn may_be_confidential(type_oid: Oid) -> bool {
    type_oid.to_u32() >= FIRST_NORMAL
}

/// The kind of a type, from the catalog: by its name, length and input function. `None` if it is
/// not one of this extension's.
fn look_up(type_oid: Oid) -> Option<Kind> {
    let cache = pg_sys::SysCacheIdentifier::TYPEOID.cast_signed();
    // SAFETY: a search of the catalog cache; the row is a FormData_pg_type and is copied from
    // before it is released.
    let (name, input) = unsafe {
        let tuple = pg_sys::SearchSysCache1(cache, Datum::from(type_oid));
        if tuple.is_null() {
            return None;
        }
        let form = tuples::fixed_part::<pg_sys::FormData_pg_type>(tuple);
        let name = tuples::name_of(&(*form).typname);
        let input = ((*form).typlen == 8 && (*form).typbyval).then_some((*form).typinput);
        pg_sys::ReleaseSysCache(tuple);
        (name, input)
    };
    let base = name.strip_prefix("enc_")?;
    let kind = Kind::ALL.iter().copied().find(|kind| kind.base() == base)?;
    (symbol_of(input?)? == "strongroom_in").then_some(kind)
}

/// A function as `pg_proc` has it.
pub(crate) struct Function {
    /// Its name.
    pub(crate) name: String,
    /// The types of its arguments.
    pub(crate) args: Vec<Oid>,
    /// The type of its result.
    pub(crate) result: Oid,
}

/// The function of this OID, from `pg_proc`. Raises an internal ERROR if there is none.
pub(crate) fn function(oid: Oid) -> Function {
    let cache = pg_sys::SysCacheIdentifier::PROCOID.cast_signed();
    // SAFETY: a search of the catalog cache; the row is a FormData_pg_proc whose argument types
    // follow the fixed part.
    unsafe {
        let tuple = pg_sys::SearchSysCache1(cache, Datum::from(oid));
        if tuple.is_null() {
            fault::raise_internal("a function that is being called is not in pg_proc");
        }
        let form = tuples::fixed_part::<pg_sys::FormData_pg_proc>(tuple);
        let count = usize::try_from((*form).pronargs).unwrap_or(0);
        let found = Function {
            name: tuples::name_of(&(*form).proname),
            args: (*form).proargtypes.values.as_slice(count).to_vec(),
            result: (*form).prorettype,
        };
        pg_sys::ReleaseSysCache(tuple);
        found
    }
}

/// The symbol of a C function in its library. `None` if there is no such function.
pub(crate) fn symbol_of(oid: Oid) -> Option<String> {
    let cache = pg_sys::SysCacheIdentifier::PROCOID.cast_signed();
    // SAFETY: a search of the catalog cache; `prosrc` is a text that is copied before the row is
    // released.
    unsafe {
        let tuple = pg_sys::SearchSysCache1(cache, Datum::from(oid));
        if tuple.is_null() {
            return None;
        }
        let mut is_null = false;
        let column = i16::try_from(pg_sys::Anum_pg_proc_prosrc).unwrap_or(0);
        let source = pg_sys::SysCacheGetAttr(cache, tuple, column, &raw mut is_null);
        let symbol = (!is_null).then(|| {
            let text = pg_sys::text_to_cstring(source.cast_mut_ptr());
            CStr::from_ptr(text).to_string_lossy().into_owned()
        });
        pg_sys::ReleaseSysCache(tuple);
        symbol
    }
}
