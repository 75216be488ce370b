//! One call of a function by PostgreSQL: its arguments, its result, and what is cached for its call
//! site.
//!
//! Invariant: every function that PostgreSQL calls runs inside [`guarded`], so that no panic leaves
//! this library. (Callbacks of scans are the exception, in `storage/access_method.rs`.) Must not:
//! know what the functions do.

use pg_sys::Datum;
use pgrx::pg_sys;

/// Runs the body of a function that PostgreSQL called, and returns its result; a panic becomes an
/// ERROR.
pub(crate) fn guarded<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: called first in each `extern "C-unwind"` function of this library, so no frame with a
    // destructor lies between it and PostgreSQL.
    unsafe { pg_sys::panic::pgrx_extern_c_guard(work) }
}

/// Runs `work`, which calls into PostgreSQL through a function pointer, for which pgrx has no
/// guard; an ERROR becomes an unwinding.
///
/// # Safety
///
/// `work` only calls C, and owns nothing that has a destructor.
pub(crate) unsafe fn call_postgres<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: the caller's promise.
    unsafe { pg_sys::ffi::pg_guard_ffi_boundary(work) }
}

/// One call of a function.
pub(crate) struct Call(pg_sys::FunctionCallInfo);

impl Call {
    /// The call that PostgreSQL describes with `info`.
    ///
    /// # Safety
    ///
    /// `info` is PostgreSQL's argument to the function, and the call outlives this.
    pub(crate) const unsafe fn new(info: pg_sys::FunctionCallInfo) -> Self {
        Self(info)
    }

    /// The arguments, each with whether it is NULL.
    fn args(&self) -> &[pg_sys::NullableDatum] {
        // SAFETY: PostgreSQL passes `nargs` arguments.
        unsafe {
            let count = usize::try_from((*self.0).nargs).unwrap_or(0);
            (*self.0).args.as_slice(count)
        }
    }

    /// The number of arguments.
    pub(crate) fn count(&self) -> usize {
        self.args().len()
    }

    /// Argument `at`, from 0. `None` if it is NULL; raises an internal ERROR if there are fewer
    /// arguments.
    pub(crate) fn arg(&self, at: usize) -> Option<Datum> {
        match self.args().get(at) {
            Some(arg) => (!arg.isnull).then_some(arg.value),
            None => crate::fault::raise_internal("a function was called with too few arguments"),
        }
    }

    /// Argument `at`, from 0, of a strict function. Raises an internal ERROR if it is NULL.
    pub(crate) fn datum(&self, at: usize) -> Datum {
        self.arg(at).unwrap_or_else(|| {
            crate::fault::raise_internal("a strict function was called with NULL")
        })
    }

    /// Argument `at`, from 0, as an identifier's bits. Raises an internal ERROR if it is NULL.
    pub(crate) fn bits(&self, at: usize) -> u64 {
        bits(self.datum(at))
    }

    /// Argument `at`, from 0, as an `integer`. Raises an internal ERROR if it is NULL.
    pub(crate) fn int4(&self, at: usize) -> i32 {
        int4(self.datum(at))
    }

    /// Marks the call's result as NULL, and returns what the function then has to return.
    pub(crate) fn return_null(&mut self) -> Datum {
        // SAFETY: the call is not over.
        unsafe { (*self.0).isnull = true };
        Datum::null()
    }

    /// The data of the trigger. `None` if the function was not called as a trigger.
    pub(crate) fn trigger(&self) -> Option<*mut pg_sys::TriggerData> {
        // SAFETY: the call is not over; a context is a node, which begins with its tag.
        let context = unsafe { (*self.0).context };
        // SAFETY: as above.
        let is_trigger =
            !context.is_null() && unsafe { (*context).type_ } == pg_sys::NodeTag::T_TriggerData;
        is_trigger.then(|| context.cast())
    }

    /// The OID of the called function.
    pub(crate) fn function(&self) -> pg_sys::Oid {
        // SAFETY: PostgreSQL sets it for every call of a function of a library.
        unsafe { (*(*self.0).flinfo).fn_oid }
    }

    /// What is cached for this call site: a number, and how many answers were asked for in batches
    /// and used here. While nothing is cached, `find` returns the number, of at most 16 bits, and
    /// both counts are 0. It is cached unless it is 0: the next call then asks `find` again.
    pub(crate) fn site(&self, find: impl FnOnce(&Self) -> usize) -> Site {
        Site(self.cached(find))
    }

    /// Stores a changed [`Site`] for the next call from this call site.
    pub(crate) fn store_site(&self, site: Site) {
        // SAFETY: PostgreSQL leaves `fn_extra` to the function.
        let extra = unsafe { &raw mut (*(*self.0).flinfo).fn_extra };
        // SAFETY: as above; only this function reads it.
        unsafe { *extra = std::ptr::without_provenance_mut(site.0) };
    }

    /// The number that is cached for this call site, or else the result of `find`, which is then
    /// cached unless it is 0.
    ///
    /// The pointer that PostgreSQL keeps for the call site (`fn_extra`) holds the number itself:
    /// nothing is allocated.
    pub(crate) fn cached(&self, find: impl FnOnce(&Self) -> usize) -> usize {
        // SAFETY: PostgreSQL leaves `fn_extra` to the function.
        let extra = unsafe { &raw mut (*(*self.0).flinfo).fn_extra };
        // SAFETY: as above.
        let known = unsafe { *extra }.addr();
        if known != 0 {
            return known;
        }
        let found = find(self);
        // SAFETY: as above; only this function reads it.
        unsafe { *extra = std::ptr::without_provenance_mut(found) };
        found
    }
}

/// What is cached for a call site of a query: 16 bits of the function, and how many answers its
/// batches asked for and used.
#[derive(Clone, Copy)]
pub(crate) struct Site(usize);

impl Site {
    /// The largest count, of 24 bits.
    const COUNT_MASK: usize = (1 << 24) - 1;

    /// The 16 bits that `find` returned at the first call.
    pub(crate) const fn number(self) -> usize {
        self.0 & 0xffff
    }

    /// Whether to ask the zone in batches here: less than 512 answers were asked for, or one in 24
    /// was used. It is not useful where an earlier condition removes nearly every row.
    pub(crate) const fn should_batch(self) -> bool {
        self.asked() < 512 || self.used() * 24 >= self.asked()
    }

    /// The number of answers that were asked for.
    const fn asked(self) -> usize {
        (self.0 >> 16) & Self::COUNT_MASK
    }

    /// The number of answers that were used.
    const fn used(self) -> usize {
        self.0 >> 40
    }

    /// The site with so many more answers counted as asked for and used. Large counts are both
    /// divided by 4.
    pub(crate) const fn with_answers(self, asked: usize, used: usize) -> Self {
        let (mut asked, mut used) = (self.asked() + asked, self.used() + used);
        if asked > Self::COUNT_MASK / 2 || used > Self::COUNT_MASK / 2 {
            asked /= 4;
            used /= 4;
        }
        Self(self.number() | asked << 16 | used << 40)
    }

    /// The site after a single answer, where batches were not useful: counts one answer less as
    /// asked for, so that after many of these, batches are tried again.
    pub(crate) const fn with_single_answer(self) -> Self {
        let asked = self.asked().saturating_sub(1);
        Self(self.number() | asked << 16 | self.used() << 40)
    }
}

/// The bits of the identifier in a datum.
pub(crate) fn bits(datum: Datum) -> u64 {
    datum.value() as u64
}

/// The datum that holds an identifier's bits.
pub(crate) fn datum(bits: u64) -> Datum {
    Datum::from(bits)
}

/// The `integer` in a datum.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "DatumGetInt32"
)]
pub(crate) fn int4(datum: Datum) -> i32 {
    datum.value() as i32
}

/// Declares functions for `CREATE FUNCTION ... LANGUAGE C`, each with the record that tells
/// PostgreSQL its calling convention.
macro_rules! sql_functions {
    ($($(#[$meta:meta])* $symbol:ident, $info:ident => $body:path;)*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        pub(crate) extern "C-unwind" fn $symbol(
            info: pgrx::pg_sys::FunctionCallInfo,
        ) -> pgrx::pg_sys::Datum {
            // SAFETY: PostgreSQL's own call, for as long as it lasts.
            $crate::call::guarded(|| $body(&mut unsafe { $crate::call::Call::new(info) }))
        }

        /// The calling convention of the function above (fmgr.h, `PG_FUNCTION_INFO_V1`).
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $info() -> &'static pgrx::pg_sys::Pg_finfo_record {
            const VERSION_1: pgrx::pg_sys::Pg_finfo_record =
                pgrx::pg_sys::Pg_finfo_record { api_version: 1 };
            &VERSION_1
        }
    )*};
}
pub(crate) use sql_functions;
