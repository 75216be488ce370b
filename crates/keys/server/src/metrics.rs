//! What is counted, in Prometheus' text form. Must not: have a label whose values a client can choose.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::records::BreakGlass;
use crate::service::{Ending, RoomInfo};

/// Upper bounds of the buckets of the requests' durations, in milliseconds.
const BOUNDS_MS: [u64; 10] = [1, 2, 5, 10, 25, 50, 100, 250, 1000, 5000];

/// Counters since the start.
#[derive(Default)]
pub struct Metrics {
    by_class: [AtomicU64; 6],
    buckets: [AtomicU64; 10],
    count: AtomicU64,
    sum_us: AtomicU64,
    /// Keys that were delivered.
    pub delivered: AtomicU64,
    /// Requests that were put off because of the limits.
    pub limited: AtomicU64,
    /// Connections that are open.
    pub connections: AtomicU64,
    /// Connections that were refused because there were too many.
    pub refused: AtomicU64,
    /// Connections that were closed because another one needed their place.
    pub displaced: AtomicU64,
    /// Handshakes that failed.
    pub handshakes_failed: AtomicU64,
    /// When the server's certificate ends, in seconds since the Unix epoch; 0 when nobody has
    /// looked.
    pub certificate_ends: AtomicU64,
}

impl Metrics {
    /// A request was answered.
    pub fn answered(&self, status: u16, took: Duration) {
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

    /// All of it as text. `sealed` goes first: it is what alarms are made of.
    #[must_use]
    pub fn text(&self, sealed: bool) -> String {
        let mut out = sealed_text(sealed);
        let mut counter = |name: &str, kind: &str, help: &str, value: u64| {
            let name = format!("strongroom_keyserver_{name}");
            // Writing to a String cannot fail.
            let _fine = write!(
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
        let ends = self.certificate_ends.load(Relaxed);
        if ends != 0 {
            gauge(
                &mut out,
                "server_certificate_expiry_seconds",
                "When the server's certificate ends, Unix time.",
                ends,
            );
        }
        self.requests(&mut out);
        out
    }

    fn requests(&self, out: &mut String) {
        let name = "strongroom_keyserver_requests_total";
        let _fine = write!(
            out,
            "# HELP {name} Requests answered.\n# TYPE {name} counter\n"
        );
        for (class, count) in self.by_class.iter().enumerate().skip(2) {
            let _fine = writeln!(
                out,
                "{name}{{status=\"{class}xx\"}} {}",
                count.load(Relaxed)
            );
        }
        let name = "strongroom_keyserver_request_seconds";
        let _fine = write!(
            out,
            "# HELP {name} Time to answer.\n# TYPE {name} histogram\n"
        );
        for (bound, bucket) in BOUNDS_MS.iter().zip(&self.buckets) {
            let (whole, thousandths) = (bound / 1000, bound % 1000);
            let _fine = writeln!(
                out,
                "{name}_bucket{{le=\"{whole}.{thousandths:03}\"}} {}",
                bucket.load(Relaxed)
            );
        }
        let (count, sum) = (self.count.load(Relaxed), self.sum_us.load(Relaxed));
        let _fine = write!(
            out,
            "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {}.{:06}\n{name}_count {count}\n",
            sum / 1_000_000,
            sum % 1_000_000
        );
    }
}

fn gauge(out: &mut String, name: &str, help: &str, value: u64) {
    let name = format!("strongroom_keyserver_{name}");
    let _fine = write!(
        out,
        "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}\n"
    );
}

/// Clients' certificates, and the alarm of an administrator who was made with the root key.
#[must_use]
pub fn fleet_text(ending: &Ending, glass: Option<&BreakGlass>) -> String {
    let mut out = String::new();
    let mut put = |name: &str, help: &str, value| gauge(&mut out, name, help, value);
    put("node_certificates", "Certificates of clients.", ending.all);
    put(
        "node_certificates_ended",
        "Certificates of clients that have ended.",
        ending.ended,
    );
    put(
        "node_certificates_end_in_7_days",
        "Certificates of clients that end within 7 days.",
        ending.in_a_week,
    );
    put(
        "node_certificates_end_in_30_days",
        "Certificates of clients that end within 30 days.",
        ending.in_thirty_days,
    );
    put(
        "break_glass_count",
        "Administrators made with the root key.",
        glass.map_or(0, |glass| glass.count),
    );
    put(
        "break_glass_seconds",
        "When the last one was made, Unix time; 0: never.",
        glass.map_or(0, |glass| glass.at),
    );
    out
}

/// The room of the store, and its alarm.
#[must_use]
pub fn room_text(room: &RoomInfo) -> String {
    let mut out = String::new();
    let mut put = |name: &str, help: &str, value| gauge(&mut out, name, help, value);
    put(
        "audit_rows",
        "Rows of the audit log in the store.",
        room.audit_rows,
    );
    put(
        "audit_archived_rows",
        "Rows of the audit log in archives.",
        room.audit_archived_through,
    );
    put(
        "audit_syslog_lost_rows",
        "Rows that syslog did not take since the start.",
        room.syslog_lost,
    );
    put(
        "store_bytes",
        "Bytes that the store uses.",
        room.store_bytes,
    );
    let some = [
        (
            "store_limit_bytes",
            "Bytes to which the store may grow.",
            room.store_limit_bytes,
        ),
        (
            "store_free_bytes",
            "Bytes free on the store's file system.",
            room.free_bytes,
        ),
        (
            "archive_free_bytes",
            "Bytes free where archives of the audit log are.",
            room.archive_free_bytes,
        ),
    ];
    for (name, help, value) in some {
        if let Some(value) = value {
            put(name, help, value);
        }
    }
    put(
        "room_alarm",
        "Reasons why the store may fill up; 0: none.",
        u64::try_from(room.alarms.len()).unwrap_or(u64::MAX),
    );
    out
}

/// What may be told to everybody.
#[must_use]
pub fn sealed_text(sealed: bool) -> String {
    let name = "strongroom_keyserver_sealed";
    format!(
        "# HELP {name} Whether nothing is served.\n# TYPE {name} gauge\n{name} {}\n",
        u8::from(sealed)
    )
}
