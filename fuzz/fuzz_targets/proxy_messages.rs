//! Messages of a client and of a server, in any order.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| strongroom_columns_proxy::proxy::fuzz::messages(bytes));
