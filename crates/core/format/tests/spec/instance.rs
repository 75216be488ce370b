//! The constants of sealed PostgreSQL instances that docs/spec/postgres.md must state.

use std::collections::BTreeMap;

use strongroom_format::postgres;
use strongroom_format::postgres::{container, convert, stream};

/// Those of sealed PostgreSQL instances.
pub(crate) fn constants() -> BTreeMap<&'static str, String> {
    let number = |value: usize| value.to_string();
    BTreeMap::from([
        ("BLOCK", postgres::BLOCK.to_string()),
        ("CONFIG_FILE", postgres::CONFIG_FILE.to_owned()),
        ("CONTAINER_BOUND", container::CONTAINER_BOUND.to_string()),
        ("CONTAINER_CHUNK", number(container::CONTAINER_CHUNK)),
        ("CONTAINER_HEADER", number(container::CONTAINER_HEADER)),
        (
            "CONTAINER_MAGIC",
            super::spaced_hex(&container::CONTAINER_MAGIC),
        ),
        ("CONTAINER_NAME", number(container::CONTAINER_NAME)),
        ("CONTAINER_OVERHEAD", number(container::CONTAINER_OVERHEAD)),
        ("CONTAINER_SEALED", number(container::CONTAINER_SEALED)),
        (
            "CONTAINER_UNBOUND",
            container::CONTAINER_UNBOUND.to_string(),
        ),
        ("CONTROL_NAME", super::spaced_hex(&postgres::CONTROL_NAME)),
        ("CONVERT_FILE", postgres::CONVERT_FILE.to_owned()),
        ("CONVERT_TITLE", convert::CONVERT_TITLE.to_owned()),
        ("HEADER_FILE", postgres::HEADER_FILE.to_owned()),
        ("SECTOR", number(postgres::SECTOR)),
        ("SEGMENT_BLOCKS", postgres::SEGMENT_BLOCKS.to_string()),
        ("STREAM_HEADER", stream::STREAM_HEADER.to_string()),
        ("STREAM_MAGIC", super::spaced_hex(&stream::STREAM_MAGIC)),
        ("STREAM_PREFIX", number(stream::STREAM_PREFIX)),
        ("XTS_UNIT", number(postgres::XTS_UNIT)),
    ])
}
