//! LUKS2 headers: both copies, and the JSON area alone.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| strongroom_luks2::fuzz(bytes));
