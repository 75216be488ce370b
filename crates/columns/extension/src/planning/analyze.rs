//! ANALYZE of a confidential column: the fraction of nulls, the width, the number of distinct
//! values. No value, no order.
//!
//! The zone says of the sample in one call which values are equal. Where it refuses, which it does
//! for an opaque column without a session, the number of distinct values stays what an earlier
//! ANALYZE has found. Must not: store an identifier in `pg_statistic`, or fail because the zone
//! does.

use std::ffi::c_int;

use pg_sys::Datum;
use pgrx::pg_sys;
use strongroom_columns_ring::Broken;
use strongroom_columns_ring::Descriptor;
use strongroom_columns_ring::Op;
use strongroom_columns_ring::op::flag;
use strongroom_format::columns::Kind;

use crate::call::{Call, bits, call_postgres, guarded, sql_functions};
use crate::catalog::{tuples, types};
use crate::ring::zone;

sql_functions! {
    /// `strongroom_typanalyze(internal)`
    strongroom_typanalyze, pg_finfo_strongroom_typanalyze => typanalyze;
}

/// Most values of a sample that the zone is asked about: they fill half of the data area.
const ASKED_MAX: usize = 65_536;
/// Rows of the sample for each unit of the statistics target (analyze.c, `std_typanalyze`).
const ROWS_PER_TARGET: c_int = 300;

/// Sets how many rows ANALYZE is to sample, and the function that computes the statistics; returns
/// true.
fn typanalyze(call: &mut Call) -> Datum {
    // SAFETY: PostgreSQL passes a VacAttrStats with its attribute.
    unsafe {
        let stats: *mut pg_sys::VacAttrStats = call.datum(0).cast_mut_ptr();
        let target = (*(*stats).attr).attstattarget;
        let target = if target < 0 {
            pg_sys::default_statistics_target
        } else {
            target
        };
        (*stats).compute_stats = Some(compute);
        (*stats).minrows = target
            .saturating_mul(ROWS_PER_TARGET)
            .min(c_int::try_from(ASKED_MAX).unwrap_or(c_int::MAX));
    }
    Datum::from(true)
}

/// Computes the statistics of a column from a sample (`compute_stats` of `VacAttrStats`): fraction
/// of NULLs, width, and number of distinct values: the former one if the zone refuses.
#[expect(clippy::cast_possible_truncation, reason = "estimates")]
extern "C-unwind" fn compute(
    stats: pg_sys::VacAttrStatsP,
    fetch: pg_sys::AnalyzeAttrFetchFunc,
    rows: c_int,
    total: f64,
) {
    guarded(|| {
        let mut fids = Vec::new();
        let mut nulls = 0_u32;
        for at in 0..rows {
            let mut is_null = false;
            let Some(fetch) = fetch else { break };
            // SAFETY: PostgreSQL's own function for its own sample.
            let value = unsafe { call_postgres(|| fetch(stats, at, &raw mut is_null)) };
            if is_null {
                nulls += 1;
            } else if fids.len() < ASKED_MAX {
                fids.push(bits(value));
            }
        }
        // SAFETY: PostgreSQL's structure, for as long as the call.
        let stats = unsafe { &mut *stats };
        if rows > 0 {
            stats.stats_valid = true;
            stats.stanullfrac = (f64::from(nulls) / f64::from(rows)) as f32;
            stats.stawidth = 8;
            let distinct =
                types::kind_of(stats.attrtypid).and_then(|kind| number_sample(kind, fids));
            let present = 1.0 - f64::from(stats.stanullfrac);
            // SAFETY: the attribute of a column that is being analysed.
            let (table, column) = unsafe { ((*stats.attr).attrelid, (*stats.attr).attnum) };
            stats.stadistinct = match distinct {
                Some(numbers) => estimate_distinct(numbers, total * present) as f32,
                None => former_distinct(table, column),
            };
        }
    });
}

/// The number of distinct values that the last ANALYZE has found in a column, in the form of
/// `pg_statistic.stadistinct`; 0, unknown, if there was none.
fn former_distinct(table: pg_sys::Oid, column: i16) -> f32 {
    let cache = pg_sys::SysCacheIdentifier::STATRELATTINH.cast_signed();
    let keys = [table.into(), column.into(), false.into()];
    // SAFETY: a search of the catalog cache; the row is a FormData_pg_statistic, from which a
    // number is copied before it is released.
    unsafe {
        let tuple = pg_sys::SearchSysCache3(cache, keys[0], keys[1], keys[2]);
        if tuple.is_null() {
            return 0.0;
        }
        let form = tuples::fixed_part::<pg_sys::FormData_pg_statistic>(tuple);
        let distinct = (*form).stadistinct;
        pg_sys::ReleaseSysCache(tuple);
        distinct
    }
}

/// A number for each of a sample's values, the same for equal ones, which the zone gives in one
/// call. `None` if the zone refuses; raises an ERROR if it does not answer.
fn number_sample(kind: Kind, mut fids: Vec<u64>) -> Option<Vec<u64>> {
    if fids.is_empty() {
        return Some(fids);
    }
    zone::with(|connection| {
        let numbered = connection.write_words(0, &fids).and_then(|()| {
            connection.call(Descriptor {
                flags: u16::from(kind.number()) | flag::EQUALITY,
                n: u32::try_from(fids.len()).unwrap_or(u32::MAX),
                ..Descriptor::of(Op::RankMany)
            })
        });
        match numbered {
            Ok(_) => {
                connection.read_words(0, &mut fids)?;
                Ok(Some(std::mem::take(&mut fids)))
            }
            Err(Broken::Fault(_)) => Ok(None),
            Err(broken) => Err(broken),
        }
    })
}

/// The number of distinct values of a column of `total` values, in the form of
/// `pg_statistic.stadistinct`: negative for a fraction of the rows.
///
/// PostgreSQL's estimator (analyze.c, `compute_scalar_stats`): Haas and Stokes, "Duj1".
#[expect(clippy::cast_precision_loss, reason = "estimates")]
fn estimate_distinct(mut ranks: Vec<u64>, total: f64) -> f64 {
    ranks.sort_unstable();
    let sample = ranks.len() as f64;
    let groups = ranks.chunk_by(|a, b| a == b);
    let (distinct, once) = groups.fold((0.0, 0.0), |(distinct, once), group| {
        (
            distinct + 1.0,
            if group.len() == 1 { once + 1.0 } else { once },
        )
    });
    if sample == 0.0 {
        return 0.0;
    }
    if once >= sample {
        return -1.0;
    }
    let found = if once == 0.0 {
        distinct
    } else {
        let denominator = (sample - once) + once * sample / total.max(sample);
        (sample * distinct / denominator)
            .clamp(distinct, total.max(distinct))
            .round()
    };
    if found > 0.1 * total {
        -(found / total).min(1.0)
    } else {
        found
    }
}
