//! The manifest of a zone's store, entry by entry.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| strongroom_format::fuzz::columns::manifest(bytes));
