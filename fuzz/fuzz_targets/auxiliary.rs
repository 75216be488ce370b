//! Prologues of logs and journals, and the arithmetic of their sizes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| strongroom_format::fuzz::auxiliary(bytes));
