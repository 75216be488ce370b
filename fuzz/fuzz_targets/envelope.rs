//! Envelopes of confidential values, and their padding.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| strongroom_format::fuzz::columns::envelope(bytes));
