//! A TPM's quote and the public area of an attestation key, a report of SEV-SNP, a quote of TDX.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| strongroom_format::fuzz::columns::attestation(bytes));
