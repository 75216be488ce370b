//! `strongroom columns convert`: the options of a column's conversion.
//!
//! Must not: print a value.

use clap::Args;
use strongroom_columns_proxy::conversion::{ConversionOptions, Direction, abandon, convert};
use strongroom_format::columns::Class;

use super::connect::{LoginOptions, Peer, checked};
use crate::failure::{Failure, note};
use crate::help::tail;

/// Make a plain column confidential, or a confidential one plain, while the table is used.
///
/// Connects to the data owner's proxy: best the one that the table's applications use, so that it
/// knows of the change at once. Run it again if it was interrupted: it goes on where it was.
/// Readers are locked out for the last step only, which does not depend on the size of the table
/// but for one look at each row; writers for as long, and while the last rows are converted.
#[derive(Args)]
#[command(after_help = tail!("  strongroom columns convert public.staff salary --to-confidential --proxy 127.0.0.1:6432 --user owner --database shop"))]
pub(super) struct ConvertArgs {
    /// The table, as SQL names it
    table: String,
    /// The column, as the catalog names it
    column: String,
    /// Make it confidential
    #[arg(long, required_unless_present_any = ["to_plain", "abandon"], conflicts_with_all = ["to_plain", "abandon"])]
    to_confidential: bool,
    /// Let the server know the order of its values, as an index on it needs: its type gets the
    /// modifier `ordered`
    #[arg(long, requires = "to_confidential")]
    ordered: bool,
    /// Let the server know which of its values are equal, as a unique index on it needs: its type
    /// gets the modifier `equality`
    #[arg(long, requires = "to_confidential", conflicts_with = "ordered")]
    equality: bool,
    /// Make it plain: the server sees every value of it
    #[arg(long, conflicts_with = "abandon")]
    to_plain: bool,
    /// Give up a conversion that was begun: the old column stays as it is
    #[arg(long)]
    abandon: bool,
    /// The data owner's proxy: HOST:PORT, or the path of its socket
    #[arg(long, value_name = "ADDRESS", value_parser = checked)]
    proxy: String,
    #[command(flatten)]
    login: LoginOptions,
    /// Rewrite a table that does not use the access method strongroom yet: locked for readers and
    /// writers while it lasts
    #[arg(long)]
    rewrite: bool,
    /// Seconds to wait for a lock before letting go and trying again
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..3600))]
    lock_timeout: u32,
}

impl ConvertArgs {
    /// Connects to the proxy and converts the column, continues a conversion that was interrupted,
    /// or with `--abandon` gives it up. Writes notes, and nothing to standard output. SR-8121 if
    /// the column cannot be converted, SR-8122 if the server refuses; SR-5001 when the system
    /// reports an error; the errors of [`LoginOptions::connect`].
    pub(super) fn run(self) -> Result<(), Failure> {
        let connection = self.login.connect(&self.proxy, Peer::Proxy)?;
        let options = ConversionOptions {
            table: self.table,
            column: self.column,
            rewrite: self.rewrite,
            class: match (self.ordered, self.equality) {
                (true, _) => Class::Ordered,
                (_, true) => Class::Equality,
                _ => Class::Opaque,
            },
            lock_timeout_s: self.lock_timeout,
        };
        if self.abandon {
            return Ok(abandon(connection, &options, &mut note)?);
        }
        let direction = match self.to_confidential {
            true => Direction::Confidential,
            false => Direction::Plain,
        };
        Ok(convert(connection, &options, direction, &mut note)?)
    }
}
