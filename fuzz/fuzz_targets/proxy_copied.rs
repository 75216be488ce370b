//! COPY's data, in text, CSV and binary form.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| strongroom_client::proxy::fuzz::copied(bytes));
