//! SQL, planned for a catalog with confidential columns.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| strongroom_columns_proxy::proxy::fuzz::statement(bytes));
