//! What a client begins with.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| strongroom_columns_proxy::proxy::fuzz::beginning(bytes));
