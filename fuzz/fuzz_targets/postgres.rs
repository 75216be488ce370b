//! Headers and sizes of an instance's files, and the state of a conversion.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| strongroom_format::fuzz::postgres(bytes));
