//! The object header and its slots and anchors: whatever parses must serialise to the same bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| strongroom_format::fuzz::header(bytes));
