//! A time zone that the client sets, and values without an offset behind it, before the server has
//! reported the zone: since PostgreSQL 14 it does so at the end of a pipeline or text only.
//! Method: as `wire.rs`.
#![expect(clippy::tests_outside_test_module, reason = "an integration test")]

use crate::support::harness::{Wire, begin, bind, catalog, of_name, parse};

const ENC_TIMESTAMPTZ: u32 = 90_003;

/// Begins a connection to a server whose table `p` has a confidential `seen`.
fn start(name: &str) -> Wire {
    let mut rows = catalog();
    rows.push(["t", "s", "enc_timestamptz", "90003", "90103", "", ""]);
    rows.push(["r", "public", "p", "00004", "seen", "90003", "70000"]);
    let (mut wire, _listener) = begin(name, &[], None);
    wire.greet(&rows);
    wire.client.expect(b'Z');
    wire
}

/// The proxy asks which time zone there is, and is told this one.
#[track_caller]
fn asks(wire: &mut Wire, zone: &str) {
    wire.sends(b"CC");
    let text = wire.server.expect(b'P');
    assert!(text.windows(9).any(|window| window == b"SHOW Time"));
    wire.sends(b"BECCH");
    for tag in [b'3', b'3', b'1', b'2'] {
        wire.server.send(tag, b"");
    }
    wire.row(&[zone]);
    wire.server.send(b'C', b"SHOW\0");
    wire.server.send(b'3', b"");
    wire.server.send(b'3', b"");
}

#[test]
fn a_time_zone_counts_from_the_next_statement_of_the_text_on() {
    for zone in ["Asia/Tokyo", "none that exists"] {
        let mut wire = start(&format!("zone-{}", &zone[..4]));
        let sql = "SET TIME ZONE 'Asia/Tokyo'; INSERT INTO p (seen) VALUES ('2024-01-01 10:00')\0";
        wire.client.send(b'Q', sql.as_bytes());
        wire.sends(b"PDBDEPDH");
        wire.makes_statement();
        wire.server.send(b'2', b"");
        wire.server.send(b'n', b"");
        wire.server.send(b'C', b"SET\0");
        wire.server.send(b'1', b"");
        wire.describes(ENC_TIMESTAMPTZ);
        asks(&mut wire, zone);
        wire.client.expect(b'C');
        if zone == "Asia/Tokyo" {
            wire.sends(b"BDES");
        } else {
            wire.refuses_with("0A000");
        }
    }
}

#[test]
fn a_time_zone_counts_from_the_next_pipeline_on() {
    let mut wire = start("zone-pipelines");
    let insert = parse("INSERT INTO p (seen) VALUES ($1)", &[]);
    wire.client.send(b'P', &of_name("s1", insert));
    wire.client.send(b'S', b"");
    wire.prepares_with(ENC_TIMESTAMPTZ);
    // The client does not wait.
    wire.client
        .send(b'P', &parse("SET TimeZone = 'Asia/Tokyo'", &[]));
    wire.executes();
    wire.client
        .send(b'B', &of_name("s1", bind(0, &[b"2024-01-01 10:00"])));
    wire.client.send(b'S', b"");
    wire.sends(b"PDBES");
    wire.makes_statement();
    wire.server.send(b'2', b"");
    wire.server.send(b'C', b"SET\0");
    wire.server.send(b'Z', b"I");
    asks(&mut wire, "Asia/Tokyo");
    wire.sends(b"BS");
    wire.hears(b"12CZ");
    wire.server.send(b'2', b"");
    wire.server.send(b'Z', b"I");
    wire.hears(b"2Z");
    // When the server has reported it nothing is asked.
    wire.client
        .send(b'B', &of_name("s1", bind(0, &[b"2024-01-01 10:00"])));
    wire.client.send(b'S', b"");
    wire.sends(b"BS");
}
