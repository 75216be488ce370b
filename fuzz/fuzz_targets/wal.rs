//! A write-ahead log of any form, read and then written on.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| strongroom_sqlite_vfs::fuzz::wal(bytes));
