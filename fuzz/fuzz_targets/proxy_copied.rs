//! COPY's data, in text, CSV and binary form.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| strongroom_columns_proxy::proxy::fuzz::copied(bytes));
