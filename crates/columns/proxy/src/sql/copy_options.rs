//! The options of COPY.
//!
//! Must not: pass over an option that changes how values are written.

use pg_query::NodeEnum;
use pg_query::protobuf::{DefElem, Node};

/// How COPY writes values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopyOptions {
    pub(crate) format: CopyFormat,
    pub(crate) delimiter: u8,
    pub(crate) null: Vec<u8>,
    pub(crate) quote: u8,
    pub(crate) escape: u8,
    pub(crate) header: bool,
    /// An option that the proxy does not carry out: `FORCE_QUOTE`, ENCODING, and so on.
    pub(crate) other: Option<String>,
}

/// COPY's formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyFormat {
    Text,
    Csv,
    Binary,
}

/// Reads the options of a COPY statement; one that is not given has PostgreSQL's default for the
/// format. An option that the proxy does not carry out is named in [`CopyOptions::other`].
pub(super) fn options(elements: &[Node]) -> CopyOptions {
    let mut options = CopyOptions {
        format: CopyFormat::Text,
        delimiter: b'\t',
        null: b"\\N".to_vec(),
        quote: b'"',
        escape: b'"',
        header: false,
        other: None,
    };
    let elements: Vec<&DefElem> = elements
        .iter()
        .filter_map(|node| match node.node.as_ref() {
            Some(NodeEnum::DefElem(element)) => Some(&**element),
            _ => None,
        })
        .collect();
    match elements
        .iter()
        .find(|element| element.defname == "format")
        .map(|element| argument(element))
        .as_deref()
    {
        Some("csv") => {
            options = CopyOptions {
                format: CopyFormat::Csv,
                delimiter: b',',
                null: Vec::new(),
                ..options
            };
        }
        Some("binary") => options.format = CopyFormat::Binary,
        _ => {}
    }
    let mut escape = None;
    for element in elements {
        let argument = argument(element);
        let byte = argument.bytes().next();
        match (element.defname.as_str(), byte) {
            ("format" | "freeze", _) => {}
            ("delimiter", Some(byte)) => options.delimiter = byte,
            ("null", _) => options.null = argument.into_bytes(),
            ("quote", Some(byte)) => options.quote = byte,
            ("escape", Some(byte)) => escape = Some(byte),
            ("header", _) => match header(&argument) {
                Some(header) => options.header = header,
                None => options.other = Some("header".to_owned()),
            },
            (other, _) => options.other = Some(other.to_owned()),
        }
    }
    options.escape = escape.unwrap_or(options.quote);
    options
}

/// Returns whether a HEADER option of this value asks for a header line (`defGetCopyHeaderChoice`
/// of src/backend/commands/copy.c). `None` for a value that is not known.
fn header(argument: &str) -> Option<bool> {
    match argument.to_ascii_lowercase().as_str() {
        "" | "true" | "on" | "1" | "match" => Some(true),
        "false" | "off" | "0" => Some(false),
        _ => None,
    }
}

/// Returns an option's argument as text; empty if it has none.
fn argument(element: &DefElem) -> String {
    match element.arg.as_ref().and_then(|arg| arg.node.as_ref()) {
        Some(NodeEnum::String(text)) => text.sval.clone(),
        Some(NodeEnum::Boolean(truth)) => truth.boolval.to_string(),
        Some(NodeEnum::Integer(number)) => number.ival.to_string(),
        _ => String::new(),
    }
}
