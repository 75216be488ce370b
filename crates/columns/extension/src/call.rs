//! One call of a function by PostgreSQL: arguments, results, what the call site remembers.
//!
//! Invariant: every function that PostgreSQL calls is inside [`guarded`]; no panic crosses. Must not: know what the functions do.

use pg_sys::Datum;
use pgrx::pg_sys;

/// Runs what PostgreSQL called; a panic becomes an ERROR.
pub(crate) fn guarded<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: called first in each `extern "C-unwind"` function of this library, so no frame with a destructor is above it.
    unsafe { pg_sys::panic::pgrx_extern_c_guard(work) }
}

/// Calls into PostgreSQL through a pointer that pgrx has not guarded.
///
/// # Safety
///
/// `work` only calls C, and owns nothing that has a destructor.
pub(crate) unsafe fn outside<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: the caller's promise.
    unsafe { pg_sys::ffi::pg_guard_ffi_boundary(work) }
}

/// One call.
pub(crate) struct Call(pg_sys::FunctionCallInfo);

impl Call {
    /// # Safety
    ///
    /// `info` is what PostgreSQL passed to the function, and the call lasts.
    pub(crate) const unsafe fn new(info: pg_sys::FunctionCallInfo) -> Self {
        Self(info)
    }

    fn args(&self) -> &[pg_sys::NullableDatum] {
        // SAFETY: PostgreSQL passes as many arguments as it says.
        unsafe {
            let count = usize::try_from((*self.0).nargs).unwrap_or(0);
            (*self.0).args.as_slice(count)
        }
    }

    /// Number of arguments.
    pub(crate) fn count(&self) -> usize {
        self.args().len()
    }

    /// Argument `at`, `None` when it is NULL.
    pub(crate) fn arg(&self, at: usize) -> Option<Datum> {
        match self.args().get(at) {
            Some(arg) => (!arg.isnull).then_some(arg.value),
            None => crate::fault::internal("a function was called with too few arguments"),
        }
    }

    /// Argument `at` of a strict function.
    pub(crate) fn datum(&self, at: usize) -> Datum {
        self.arg(at)
            .unwrap_or_else(|| crate::fault::internal("a strict function was called with NULL"))
    }

    /// Argument `at` as an identifier's bits.
    pub(crate) fn bits(&self, at: usize) -> u64 {
        bits(self.datum(at))
    }

    /// Argument `at` as an `integer`.
    pub(crate) fn int4(&self, at: usize) -> i32 {
        int4(self.datum(at))
    }

    /// Gives NULL.
    pub(crate) fn null(&mut self) -> Datum {
        // SAFETY: the call lasts.
        unsafe { (*self.0).isnull = true };
        Datum::null()
    }

    /// What a trigger is called with; `None` when it is no trigger that was called.
    pub(crate) fn trigger(&self) -> Option<*mut pg_sys::TriggerData> {
        // SAFETY: the call lasts; a context is a node, which begins with its tag.
        let context = unsafe { (*self.0).context };
        // SAFETY: as above.
        let is_trigger =
            !context.is_null() && unsafe { (*context).type_ } == pg_sys::NodeTag::T_TriggerData;
        is_trigger.then(|| context.cast())
    }

    /// OID of the function called.
    pub(crate) fn function(&self) -> pg_sys::Oid {
        // SAFETY: PostgreSQL sets it for every call of a function of a library.
        unsafe { (*(*self.0).flinfo).fn_oid }
    }

    /// As [`Self::remembered`], of at most 16 bits, with what asking ahead was worth here.
    pub(crate) fn site(&self, find: impl FnOnce(&Self) -> usize) -> Site {
        Site(self.remembered(find))
    }

    /// Remembers a changed [`Site`].
    pub(crate) fn keep(&self, site: Site) {
        // SAFETY: PostgreSQL leaves `fn_extra` to the function.
        let extra = unsafe { &raw mut (*(*self.0).flinfo).fn_extra };
        // SAFETY: as above; nobody but this function reads it.
        unsafe { *extra = std::ptr::without_provenance_mut(site.0) };
    }

    /// What this call site remembers, or what `find` finds; 0 is not remembered.
    ///
    /// The pointer that PostgreSQL keeps for it (`fn_extra`) holds the number itself: nothing is allocated.
    pub(crate) fn remembered(&self, find: impl FnOnce(&Self) -> usize) -> usize {
        // SAFETY: PostgreSQL leaves `fn_extra` to the function.
        let extra = unsafe { &raw mut (*(*self.0).flinfo).fn_extra };
        // SAFETY: as above.
        let known = unsafe { *extra }.addr();
        if known != 0 {
            return known;
        }
        let found = find(self);
        // SAFETY: as above; nobody but this function reads it.
        unsafe { *extra = std::ptr::without_provenance_mut(found) };
        found
    }
}

/// What a place of a query remembers: 16 bits of its own, and how many answers it asked for ahead, and used.
#[derive(Clone, Copy)]
pub(crate) struct Site(usize);

impl Site {
    const COUNT: usize = (1 << 24) - 1;

    /// What was found when the place was first called.
    pub(crate) const fn own(self) -> usize {
        self.0 & 0xffff
    }

    /// Whether to ask ahead: not where conditions before this one remove nearly every row.
    pub(crate) const fn is_worth_it(self) -> bool {
        self.asked() < 512 || self.used() * 24 >= self.asked()
    }

    const fn asked(self) -> usize {
        (self.0 >> 16) & Self::COUNT
    }

    const fn used(self) -> usize {
        self.0 >> 40
    }

    /// With as many more answers asked for and used.
    pub(crate) const fn with(self, asked: usize, used: usize) -> Self {
        let (mut asked, mut used) = (self.asked() + asked, self.used() + used);
        if asked > Self::COUNT / 2 || used > Self::COUNT / 2 {
            asked /= 4;
            used /= 4;
        }
        Self(self.own() | asked << 16 | used << 40)
    }

    /// After an answer for one, where asking ahead was not worth it: some time it is tried again.
    pub(crate) const fn less(self) -> Self {
        let asked = self.asked().saturating_sub(1);
        Self(self.own() | asked << 16 | self.used() << 40)
    }
}

/// An identifier's bits in a datum.
pub(crate) fn bits(datum: Datum) -> u64 {
    datum.value() as u64
}

/// A datum of an identifier's bits.
pub(crate) fn datum(bits: u64) -> Datum {
    Datum::from(bits)
}

/// An `integer` in a datum.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "DatumGetInt32"
)]
pub(crate) fn int4(datum: Datum) -> i32 {
    datum.value() as i32
}

/// Declares a function for `CREATE FUNCTION ... LANGUAGE C`, and the record by which PostgreSQL knows its calling convention.
macro_rules! sql_functions {
    ($($(#[$meta:meta])* $symbol:ident, $info:ident => $body:path;)*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        pub(crate) extern "C-unwind" fn $symbol(info: pgrx::pg_sys::FunctionCallInfo) -> pgrx::pg_sys::Datum {
            // SAFETY: PostgreSQL's own call, for as long as it lasts.
            $crate::call::guarded(|| $body(&mut unsafe { $crate::call::Call::new(info) }))
        }

        /// The calling convention of the function before (fmgr.h, `PG_FUNCTION_INFO_V1`).
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $info() -> &'static pgrx::pg_sys::Pg_finfo_record {
            const VERSION_1: pgrx::pg_sys::Pg_finfo_record = pgrx::pg_sys::Pg_finfo_record { api_version: 1 };
            &VERSION_1
        }
    )*};
}
pub(crate) use sql_functions;
