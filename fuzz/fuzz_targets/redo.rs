//! Redo records, and the heads of frames of the store's log.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| strongroom_format::fuzz::columns::redo(bytes));
