//! A message of a KMIP server.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| strongroom_keys_providers::fuzz::kmip(bytes));
