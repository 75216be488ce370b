//! Prints the SQL script of the extension: `cargo run -p strongroom-columns-script > sql/strongroom_columns--0.1.sql`.
//!
//! Must not: decide what is in it; that is the library beside it.

use std::io::Write;

fn main() -> std::io::Result<()> {
    std::io::stdout().write_all(strongroom_columns_script::script().as_bytes())
}
