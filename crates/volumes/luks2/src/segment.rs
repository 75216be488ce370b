//! The segment of data, and whether this crate can read and write it.
//!
//! Must not: look at the device.

use crate::error::LuksError;
use crate::metadata::{Metadata, Segment, SegmentKind};

/// The only cipher that this crate has.
pub(crate) const CIPHER: &str = "aes-xts-plain64";

/// Returns the number and the description of the one segment that holds data, if this crate can
/// read and write it.
///
/// # Errors
/// [`LuksError::Unsupported`] when there is not exactly one segment of data, when it is at offset 0
/// (a header apart from its data), and as [`sector_and_tweak`].
pub(crate) fn data_segment(metadata: &Metadata) -> Result<(u32, &Segment), LuksError> {
    let mut segments = metadata.regular_segments();
    let (Some((number, segment)), None) = (segments.next(), segments.next()) else {
        return Err(LuksError::Unsupported("more than one segment".to_owned()));
    };
    sector_and_tweak(segment)?;
    if segment.offset == 0 {
        let text = "data apart from the header";
        return Err(LuksError::Unsupported(text.to_owned()));
    }
    Ok((number, segment))
}

/// Returns the sector size in bytes, and the tweak of the segment's first 512 bytes (`iv_tweak`).
///
/// # Errors
/// [`LuksError::Unsupported`] when the segment is not encrypted, has another cipher than
/// `aes-xts-plain64`, or has integrity protection.
pub(crate) fn sector_and_tweak(segment: &Segment) -> Result<(u64, u64), LuksError> {
    let SegmentKind::Crypt {
        iv_tweak,
        encryption,
        sector_size,
        integrity,
    } = &segment.kind
    else {
        let text = "a segment that is not encrypted, or of an unknown type";
        return Err(LuksError::Unsupported(text.to_owned()));
    };
    if encryption != CIPHER {
        return Err(LuksError::Unsupported(format!("cipher {encryption}")));
    }
    if let Some(kind) = integrity {
        return Err(LuksError::Unsupported(format!(
            "integrity protection {kind}"
        )));
    }
    Ok((u64::from(*sector_size), *iv_tweak))
}
