//! The metrics of the server in the text format of Prometheus.
//!
//! Must not: have a label whose values a client can choose.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::records::BreakGlass;
use crate::service::{ClientExpiry, SpaceInfo};

/// The upper bounds of the histogram of request durations, in milliseconds.
const BOUNDS_MS: [u64; 10] = [1, 2, 5, 10, 25, 50, 100, 250, 1000, 5000];

/// Counters since the start of the process.
#[derive(Default)]
pub struct Metrics {
    by_class: [AtomicU64; 6],
    buckets: [AtomicU64; 10],
    count: AtomicU64,
    sum_us: AtomicU64,
    /// Keys that were delivered.
    pub delivered: AtomicU64,
    /// Requests that were refused because of rate limits.
    pub limited: AtomicU64,
    /// Connections that are open.
    pub connections: AtomicU64,
    /// Connections that were refused because there were too many.
    pub refused: AtomicU64,
    /// Connections that were closed because a new one needed their slot.
    pub displaced: AtomicU64,
    /// Handshakes that failed.
    pub handshakes_failed: AtomicU64,
    /// When the server's certificate expires, in seconds since the Unix epoch; 0 when it was not
    /// read yet.
    pub certificate_expires: AtomicU64,
}

impl Metrics {
    /// Counts a request by the class of its response's status, and in the histogram of durations.
    pub fn count_request(&self, status: u16, took: Duration) {
        let class = usize::from(status / 100).min(5);
        self.by_class[class].fetch_add(1, Relaxed);
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        for (bound, bucket) in BOUNDS_MS.iter().zip(&self.buckets) {
            if ms < *bound {
                bucket.fetch_add(1, Relaxed);
            }
        }
        self.count.fetch_add(1, Relaxed);
        self.sum_us
            .fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Writes all counters in the format of Prometheus, after the gauge that says whether the
    /// server is sealed.
    #[must_use]
    pub fn text(&self, sealed: bool) -> String {
        let mut out = sealed_text(sealed);
        let mut counter = |name: &str, kind: &str, help: &str, value: u64| {
            let name = format!("strongroom_keyserver_{name}");
            // Writing to a String cannot fail.
            let _written = write!(
                out,
                "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n"
            );
        };
        counter(
            "delivered_total",
            "counter",
            "Keys delivered.",
            self.delivered.load(Relaxed),
        );
        counter(
            "limited_total",
            "counter",
            "Requests put off by limits.",
            self.limited.load(Relaxed),
        );
        counter(
            "connections",
            "gauge",
            "Open connections.",
            self.connections.load(Relaxed),
        );
        counter(
            "refused_total",
            "counter",
            "Connections refused, too many.",
            self.refused.load(Relaxed),
        );
        counter(
            "displaced_total",
            "counter",
            "Connections closed for others to be served.",
            self.displaced.load(Relaxed),
        );
        counter(
            "handshakes_failed_total",
            "counter",
            "TLS handshakes that failed.",
            self.handshakes_failed.load(Relaxed),
        );
        let expires = self.certificate_expires.load(Relaxed);
        if expires != 0 {
            write_gauge(
                &mut out,
                "server_certificate_expiry_seconds",
                "When the server's certificate ends, Unix time.",
                expires,
            );
        }
        self.write_requests(&mut out);
        out
    }

    /// Appends the counters of requests by status, and the histogram of their durations.
    fn write_requests(&self, out: &mut String) {
        let name = "strongroom_keyserver_requests_total";
        let _written = write!(
            out,
            "# HELP {name} Requests answered.\n# TYPE {name} counter\n"
        );
        for (class, count) in self.by_class.iter().enumerate().skip(2) {
            let _written = writeln!(
                out,
                "{name}{{status=\"{class}xx\"}} {}",
                count.load(Relaxed)
            );
        }
        let name = "strongroom_keyserver_request_seconds";
        let _written = write!(
            out,
            "# HELP {name} Time to answer.\n# TYPE {name} histogram\n"
        );
        for (bound, bucket) in BOUNDS_MS.iter().zip(&self.buckets) {
            let (whole, thousandths) = (bound / 1000, bound % 1000);
            let _written = writeln!(
                out,
                "{name}_bucket{{le=\"{whole}.{thousandths:03}\"}} {}",
                bucket.load(Relaxed)
            );
        }
        let (count, sum) = (self.count.load(Relaxed), self.sum_us.load(Relaxed));
        let _written = write!(
            out,
            "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {}.{:06}\n{name}_count {count}\n",
            sum / 1_000_000,
            sum % 1_000_000
        );
    }
}

/// Appends one gauge with its help text; its name gets the prefix of all metrics.
fn write_gauge(out: &mut String, name: &str, help: &str, value: u64) {
    let name = format!("strongroom_keyserver_{name}");
    let _written = write!(
        out,
        "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}\n"
    );
}

/// Writes the metrics about clients' certificates, and about administrators created with the root
/// key.
#[must_use]
pub fn fleet_text(expiry: &ClientExpiry, break_glass: Option<&BreakGlass>) -> String {
    let mut out = String::new();
    let mut put = |name: &str, help: &str, value| write_gauge(&mut out, name, help, value);
    put("node_certificates", "Certificates of clients.", expiry.all);
    put(
        "node_certificates_ended",
        "Certificates of clients that have ended.",
        expiry.expired,
    );
    put(
        "node_certificates_end_in_7_days",
        "Certificates of clients that end within 7 days.",
        expiry.within_7_days,
    );
    put(
        "node_certificates_end_in_30_days",
        "Certificates of clients that end within 30 days.",
        expiry.within_30_days,
    );
    put(
        "break_glass_count",
        "Administrators made with the root key.",
        break_glass.map_or(0, |alarm| alarm.count),
    );
    put(
        "break_glass_seconds",
        "When the last one was made, Unix time; 0: never.",
        break_glass.map_or(0, |alarm| alarm.at),
    );
    out
}

/// Writes the metrics about the store's space, and the number of its alarms. Sizes that are not
/// known are left out.
#[must_use]
pub fn space_text(space: &SpaceInfo) -> String {
    let mut out = String::new();
    let mut put = |name: &str, help: &str, value| write_gauge(&mut out, name, help, value);
    put(
        "audit_rows",
        "Rows of the audit log in the store.",
        space.audit_rows,
    );
    put(
        "audit_archived_rows",
        "Rows of the audit log in archives.",
        space.audit_archived_through,
    );
    put(
        "audit_syslog_lost_rows",
        "Rows that syslog did not take since the start.",
        space.syslog_lost,
    );
    put(
        "store_bytes",
        "Bytes that the store uses.",
        space.store_bytes,
    );
    let optional = [
        (
            "store_limit_bytes",
            "Bytes to which the store may grow.",
            space.store_limit_bytes,
        ),
        (
            "store_free_bytes",
            "Bytes free on the store's file system.",
            space.free_bytes,
        ),
        (
            "archive_free_bytes",
            "Bytes free where archives of the audit log are.",
            space.archive_free_bytes,
        ),
    ];
    for (name, help, value) in optional {
        if let Some(value) = value {
            put(name, help, value);
        }
    }
    put(
        "room_alarm",
        "Reasons why the store may fill up; 0: none.",
        u64::try_from(space.alarms.len()).unwrap_or(u64::MAX),
    );
    out
}

/// Writes the gauge that every client may read: 1 while the server is sealed, else 0.
#[must_use]
pub fn sealed_text(sealed: bool) -> String {
    let name = "strongroom_keyserver_sealed";
    format!(
        "# HELP {name} Whether nothing is served.\n# TYPE {name} gauge\n{name} {}\n",
        u8::from(sealed)
    )
}
