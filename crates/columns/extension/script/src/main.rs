//! Prints the SQL script of the extension:
//! `cargo run -p strongroom-columns-script > sql/strongroom_columns--0.1.sql`.
//!
//! Must not: decide the script's contents; the library does.

use std::io::Write;

/// Prints the script to standard output. Fails if that cannot be written.
fn main() -> std::io::Result<()> {
    std::io::stdout().write_all(strongroom_columns_script::script().as_bytes())
}
