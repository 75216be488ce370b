//! DuckDB's main header, database header and first log record, and the rekey's file.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| strongroom_format::duckdb::fuzz(bytes));
