//! Prints the circles of modules below a folder, the largest first: `cargo run -p strongroom-tidy
//! -- DIRECTORY`.
#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let below = std::env::args_os()
        .nth(1)
        .map_or_else(|| PathBuf::from("."), PathBuf::from);
    for circle in strongroom_tidy::circles::circles(&below)? {
        println!(
            "{} in {}: {}",
            circle.modules.len(),
            circle.folder.display(),
            circle.modules.join(" ")
        );
        if std::env::args_os().count() > 2 {
            for (from, to) in &circle.uses {
                println!("    {from} -> {to}");
            }
        }
    }
    Ok(())
}
