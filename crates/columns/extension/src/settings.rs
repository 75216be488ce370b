//! The settings `strongroom.*`: the zone's socket, sweeps, checkpoints, estimates, and the group
//! that parallel workers join.
//!
//! Must not: hold a secret that the server must not have. The group's secret is the server's own.

use std::cell::Cell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use pgrx::pg_sys;

/// The variable of a string setting, which PostgreSQL writes.
struct TextSetting(Cell<*mut c_char>);

// SAFETY: a backend has one thread.
unsafe impl Sync for TextSetting {}

/// Path of the zone's socket.
static ZONE: TextSetting = TextSetting(Cell::new(std::ptr::null_mut()));
/// Milliseconds after each MiB that a sweep has read.
static SWEEP_DELAY: NumberSetting = NumberSetting(Cell::new(2));
/// Seconds between two rounds of the sweep workers.
static SWEEP_INTERVAL: NumberSetting = NumberSetting(Cell::new(3600));
/// Milliseconds between two checkpoints of the zone's store.
static CHECKPOINT_INTERVAL: NumberSetting = NumberSetting(Cell::new(60_000));
/// MiB of log after which a checkpoint of the zone's store is due before its time; 0 for no such.
static CHECKPOINT_DISTANCE: NumberSetting = NumberSetting(Cell::new(64));
/// Whether the planner has the zone compare a few rows.
static ESTIMATES: FlagSetting = FlagSetting(Cell::new(true));
/// Whether plans have nodes that ask the zone about many rows at once.
static BATCHES: FlagSetting = FlagSetting(Cell::new(true));
/// Name of the record that the zone is to make.
static RECORD: TextSetting = TextSetting(Cell::new(std::ptr::null_mut()));
/// The parallel group: the leader's arena in decimal and the group's secret in hexadecimal, with a
/// colon between.
static GROUP: TextSetting = TextSetting(Cell::new(std::ptr::null_mut()));

/// The variable of an integer setting.
struct NumberSetting(Cell<c_int>);

// SAFETY: a backend has one thread.
unsafe impl Sync for NumberSetting {}

/// The variable of a boolean setting.
struct FlagSetting(Cell<bool>);

// SAFETY: a backend has one thread.
unsafe impl Sync for FlagSetting {}

impl TextSetting {
    /// The setting's value. `None` before PostgreSQL has set it.
    fn value<'a>(&self) -> Option<&'a CStr> {
        let pointer = self.0.get();
        // SAFETY: PostgreSQL keeps a string there, or null, and does not change it while this runs.
        (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) })
    }
}

/// Defines all settings of the extension with PostgreSQL.
pub(crate) fn define() {
    define_text(
        c"strongroom.zone",
        c"Path of the socket of the zone that holds the values of confidential columns.",
        &ZONE,
        pg_sys::GUC_SUPERUSER_ONLY,
        None,
    );
    define_number(
        c"strongroom.sweep_delay",
        c"Milliseconds that a sweep of confidential values pauses after each MiB it has read.",
        &SWEEP_DELAY,
        (1000, pg_sys::GUC_UNIT_MS, pg_sys::GucContext::PGC_USERSET),
    );
    define_number(
        c"strongroom.sweep_interval",
        c"Time between two rounds of the worker that sweeps confidential values; 0 turns it off.",
        &SWEEP_INTERVAL,
        (
            86_400 * 7,
            pg_sys::GUC_UNIT_S,
            pg_sys::GucContext::PGC_SIGHUP,
        ),
    );
    define_number(
        c"strongroom.checkpoint_interval",
        c"Time after which the zone makes a checkpoint of its store if the log has grown.",
        &CHECKPOINT_INTERVAL,
        (
            86_400_000,
            pg_sys::GUC_UNIT_MS,
            pg_sys::GucContext::PGC_SIGHUP,
        ),
    );
    define_number(
        c"strongroom.checkpoint_distance",
        c"Log after which the zone makes a checkpoint of its store before its time; 0 turns it off.",
        &CHECKPOINT_DISTANCE,
        (1 << 20, pg_sys::GUC_UNIT_MB, pg_sys::GucContext::PGC_SIGHUP),
    );
    define_flag(
        c"strongroom.estimates",
        c"Has the zone compare some rows with the constants of a query that is planned.",
        &ESTIMATES,
    );
    define_flag(
        c"strongroom.batches",
        c"Has the planner use nodes that ask the zone about many rows at once.",
        &BATCHES,
    );
    define_text(
        c"strongroom.record",
        c"Name of a record that the zone is to make of what this session asks it; empty for none.",
        &RECORD,
        pg_sys::GUC_SUPERUSER_ONLY,
        // A record has single operations only, and plans may have nodes.
        Some(discard_plans),
    );
    // PostgreSQL passes all settings to parallel workers, and nothing else that belongs to a
    // library.
    define_text(
        c"strongroom.group",
        c"Set by strongroom_columns itself: the parallel group of this session.",
        &GROUP,
        pg_sys::GUC_SUPERUSER_ONLY
            | pg_sys::GUC_NO_SHOW_ALL
            | pg_sys::GUC_NOT_IN_SAMPLE
            | pg_sys::GUC_DISALLOW_IN_FILE,
        None,
    );
}

/// Called when a setting is changed: has every plan made again.
extern "C-unwind" fn discard_plans(_value: *const c_char, _extra: *mut c_void) {
    // SAFETY: marks plans, and neither reads a catalog nor allocates.
    unsafe { pg_sys::ResetPlanCache() };
}

/// Defines a boolean setting with PostgreSQL that everybody may change, whose variable is `at`.
fn define_flag(name: &CStr, purpose: &CStr, at: &'static FlagSetting) {
    // SAFETY: the strings are copied or live for ever; the variable is static.
    unsafe {
        pg_sys::DefineCustomBoolVariable(
            name.as_ptr(),
            purpose.as_ptr(),
            std::ptr::null(),
            at.0.as_ptr(),
            at.0.get(),
            pg_sys::GucContext::PGC_USERSET,
            0,
            None,
            None,
            None,
        );
    }
}

/// Defines an integer setting with PostgreSQL, from 0 to `most`, whose variable is `at`.
fn define_number(
    name: &CStr,
    purpose: &CStr,
    at: &'static NumberSetting,
    (most, unit, context): (c_int, u32, pg_sys::GucContext::Type),
) {
    let flags = i32::try_from(unit).unwrap_or_default();
    // SAFETY: the strings are copied or live for ever; the variable is static.
    unsafe {
        pg_sys::DefineCustomIntVariable(
            name.as_ptr(),
            purpose.as_ptr(),
            std::ptr::null(),
            at.0.as_ptr(),
            at.0.get(),
            0,
            most,
            context,
            flags,
            None,
            None,
            None,
        );
    }
}

/// Defines a string setting with PostgreSQL that only superusers change, whose variable is `at`;
/// empty at first. `on_change` is called when it is changed.
fn define_text(
    name: &CStr,
    purpose: &CStr,
    at: &'static TextSetting,
    flags: u32,
    on_change: pg_sys::GucStringAssignHook,
) {
    let flags = i32::try_from(flags).unwrap_or_default();
    // SAFETY: the strings are copied or live for ever; the variable is static.
    unsafe {
        pg_sys::DefineCustomStringVariable(
            name.as_ptr(),
            purpose.as_ptr(),
            std::ptr::null(),
            at.0.as_ptr(),
            c"".as_ptr(),
            pg_sys::GucContext::PGC_SUSET,
            flags,
            None,
            on_change,
            None,
        );
    }
}

/// The path of the zone's socket. `None` if it is not set.
pub(crate) fn zone_socket() -> Option<PathBuf> {
    let path = ZONE.value()?.to_bytes();
    (!path.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(path)))
}

/// Milliseconds that a sweep pauses after each MiB.
pub(crate) fn sweep_delay() -> c_int {
    SWEEP_DELAY.0.get()
}

/// Whether the planner has the zone compare a few rows.
pub(crate) fn are_estimates_on() -> bool {
    ESTIMATES.0.get()
}

/// Whether plans have nodes that ask the zone about many rows at once.
pub(crate) fn are_batches_on() -> bool {
    BATCHES.0.get()
}

/// Seconds between two rounds of sweeps; 0 for none.
pub(crate) fn sweep_interval() -> c_int {
    SWEEP_INTERVAL.0.get()
}

/// The time after which a checkpoint of the zone's store is due.
pub(crate) fn checkpoint_interval() -> Duration {
    Duration::from_millis(u64::try_from(CHECKPOINT_INTERVAL.0.get()).unwrap_or(0))
}

/// The bytes of log after which a checkpoint is due before its time. `None` for no such.
pub(crate) fn checkpoint_distance() -> Option<u64> {
    let distance = u64::try_from(CHECKPOINT_DISTANCE.0.get()).unwrap_or(0);
    (distance != 0).then_some(distance << 20)
}

/// Name of the record that the zone is to make; empty for none.
pub(crate) fn record_name() -> &'static [u8] {
    // PostgreSQL changes it between statements and during a `SET` of this session, when nothing
    // here refers to it.
    let name = RECORD.value();
    // It is nearly always empty, and this is called for every operation.
    let name = name.filter(|name| name.to_bytes_with_nul().first() != Some(&0));
    name.map_or(&[], CStr::to_bytes)
}

/// The ring number (arena) of the leader of this process's parallel group, and the group's secret.
/// `None` if there is none.
pub(crate) fn parallel_group() -> Option<(u16, u64)> {
    let text = GROUP.value()?.to_str().ok()?;
    let (arena, secret) = text.split_once(':')?;
    Some((arena.parse().ok()?, u64::from_str_radix(secret, 16).ok()?))
}

/// Sets, or for `None` clears, the group that this session leads, for parallel workers that are
/// started later. Must not be called while parallel workers run.
pub(crate) fn set_parallel_group(group: Option<(u16, u64)>) {
    let text = group.map_or_else(String::new, |(arena, secret)| format!("{arena}:{secret:x}"));
    let value = CString::new(text).unwrap_or_default();
    // SAFETY: both strings are copied.
    unsafe {
        pg_sys::SetConfigOption(
            c"strongroom.group".as_ptr(),
            value.as_ptr(),
            pg_sys::GucContext::PGC_SUSET,
            pg_sys::GucSource::PGC_S_SESSION,
        );
    }
}
