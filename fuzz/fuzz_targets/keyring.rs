//! The keyring's body: whatever parses must serialise to the same bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| strongroom_format::fuzz::keyring(bytes));
