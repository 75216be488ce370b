//! A rollback journal of any form, read as a hot one and then begun anew.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| strongroom_sqlite_vfs::fuzz::journal(bytes));
