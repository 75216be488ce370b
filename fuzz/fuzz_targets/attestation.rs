//! A TPM's quote and the public area of an attestation key.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| strongroom_format::fuzz::columns::attestation(bytes));
