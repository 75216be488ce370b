//! The audit log as a client reads it: every row that a server has is checked, and compared with
//! archives.
//!
//! Must not: believe a hash that the server sends: each is computed anew. Only the hash of the last
//! archived row is taken from it, and that one is compared with the archives when they are given,
//! and with the row that names the archive in any case.

use serde_json::Value;
use strongroom_format::code;
use strongroom_format::text::printable;
use strongroom_keyring::Error;

use crate::archive::VerifiedRange;
use crate::audit::{Chain, Row};
use crate::service::archive_row_detail;

/// Rows that are asked for at once: an answer has a bounded length.
const PAGE: usize = 200;

/// The rows that a server has, checked.
pub struct LiveRows {
    /// Number of the last row that is in an archive.
    pub archived: u64,
    /// The hash of that row, as the server says.
    pub archived_head: String,
    /// The name of the archive that it is in.
    pub archive: String,
    /// Number of the last row.
    pub last: u64,
    /// Its hash.
    pub head: String,
}

/// Reads all rows that a server has, page by page and in order, verifies their hash chain, and
/// calls `each` with every row. `ask` fetches the server's response to a path of its API. Checks
/// also that a row names the last archive, if there is one.
///
/// # Errors
/// SR-8436 when the chain is broken, or no row names the archive; SR-8442 when rows were archived
/// meanwhile; SR-8404 for a response of another form; those of `ask` and `each`.
pub fn read_live_rows<E: From<Error>>(
    mut ask: impl FnMut(&str) -> Result<Value, E>,
    mut each: impl FnMut(&Row) -> Result<(), E>,
) -> Result<LiveRows, E> {
    let mut read = None::<(Chain, LiveRows)>;
    let mut is_named = false;
    loop {
        let after = read.as_ref().map_or(0, |(chain, _)| chain.last().0);
        let page = format!("/v1/audit?limit={PAGE}&after={after}");
        let mut answer = ask(&page)?;
        let Value::Array(rows) = answer["rows"].take() else {
            return Err(malformed("rows").into());
        };
        let (chain, live) = read.get_or_insert_with(|| begin_chain(&answer["begins"]));
        if answer["begins"]["after"].as_u64() > Some(chain.last().0) {
            let detail = "rows were archived while they were read";
            return Err(Error::new(&code::SERVER_BUSY, detail).into());
        }
        let is_last = answer["more"] != Value::Bool(true) || rows.is_empty();
        for value in rows {
            let row: Row = serde_json::from_value(value).map_err(|_| malformed("row"))?;
            // Every hash depends on those before it: there is no checking without the beginning.
            chain.verify(&row)?;
            let named = archive_row_detail(&live.archived_head, live.archived);
            is_named |= row.action == "archive" && row.detail == named;
            each(&row)?;
        }
        if is_last {
            break;
        }
    }
    let (chain, mut live) = read.unwrap_or_else(|| begin_chain(&Value::Null));
    let (last, head) = chain.last();
    (live.last, live.head) = (last, head.to_owned());
    if live.archived > 0 && !is_named {
        let detail = format!(
            "no row says that rows up to {} were archived",
            live.archived
        );
        return Err(Error::new(&code::SERVER_AUDIT, detail).into());
    }
    Ok(live)
}

/// Reads where a server's rows begin: at the first row of all, or after an archive, whose last hash
/// is taken from the response.
fn begin_chain(begins: &Value) -> (Chain, LiveRows) {
    let archived = begins["after"].as_u64().unwrap_or(0);
    let chain = match archived {
        0 => Chain::default(),
        n => Chain::after(n, begins["hash"].as_str().unwrap_or_default()),
    };
    let live = LiveRows {
        archived,
        archived_head: chain.last().1.to_owned(),
        archive: begins["archive"]
            .as_str()
            .map(printable)
            .unwrap_or_default(),
        last: 0,
        head: String::new(),
    };
    (chain, live)
}

/// Reads all rows that a server has, verifies their hash chain, and checks that they go on where
/// the archives `whole` end, or agree with them on the last archived row. `ask` fetches the
/// server's response to a path of its API.
///
/// # Errors
/// SR-8436 when the chain is broken, rows between archives and server are missing, or they
/// disagree; SR-8442 when rows were archived meanwhile; SR-8404 for a response of another form;
/// those of `ask`.
pub fn check_live_rows<E: From<Error>>(
    ask: impl FnMut(&str) -> Result<Value, E>,
    whole: &VerifiedRange,
) -> Result<LiveRows, E> {
    let differs = |what: String| E::from(Error::new(&code::SERVER_AUDIT, what));
    let mut meets = false;
    let live = read_live_rows(ask, |row| {
        if row.n != whole.last {
            return Ok(());
        }
        meets = true;
        match row.hash == whole.head {
            true => Ok(()),
            false => Err(differs(format!(
                "the server and the archives have different rows {}",
                row.n
            ))),
        }
    })?;
    if live.archived == whole.last {
        meets = live.archived_head == whole.head;
    }
    match meets {
        true => Ok(live),
        false if live.archived > whole.last => Err(differs(format!(
            "rows {} to {} are in no archive that was given",
            whole.last.saturating_add(1),
            live.archived
        ))),
        false => Err(differs(format!(
            "the archives end with another row {} than the server's log",
            whole.last
        ))),
    }
}

/// Makes the error for a response without a member of this name (SR-8404).
fn malformed(what: &str) -> Error {
    Error::new(&code::KEYSERVER_ANSWER, format!("no `{what}` in it"))
}
