//! Messages between client and zone, tickets, attestations.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| strongroom_format::fuzz::columns::channel(bytes));
