//! Writes and reads the framing of families, and computes the digests that the head of a set
//! states.
//!
//! Must not: seal, open or compress; use a length before [`SegmentHead::parse`] has bounded it.

use std::io::{self, Read, Write as _};

use strongroom_crypto::Sha256;
use strongroom_format::backup::{SegmentHead, family_layout, segment_layout};
use strongroom_format::code;
use strongroom_format::hex::hex;

use crate::head::FamilyEnd;
use crate::set::{FamilyKey, Trailer};
use crate::store::Upload;
use crate::{Error, Result};

/// Bytes gathered before they are written.
const WRITE_BUFFER: usize = 256 * 1024;

/// Computes the length and the digests of a family, which the head of a set states, while the
/// family is written or read.
struct Tally {
    /// Digest of the header and of the segments' heads and trailers.
    digest: Sha256,
    /// Digest of all bytes, in a signed set.
    whole: Option<Sha256>,
    /// In bytes.
    length: u64,
}

impl Tally {
    /// Starts with the family's header; with `signed`, all bytes get a digest too.
    fn begin(header: &[u8], signed: bool) -> Self {
        let mut tally = Self {
            digest: Sha256::new(),
            whole: signed.then(Sha256::new),
            length: 0,
        };
        tally.framing(header);
        tally
    }

    /// Adds one segment; its data goes only into the digest of all bytes.
    fn segment(&mut self, head: &[u8], data: &[u8], trailer: &[u8]) {
        self.framing(head);
        self.bytes(data);
        self.framing(trailer);
    }

    /// Adds bytes of the framing, which both digests cover.
    fn framing(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
        self.bytes(bytes);
    }

    /// Adds bytes to the length and to the digest of all bytes.
    fn bytes(&mut self, bytes: &[u8]) {
        if let Some(whole) = &mut self.whole {
            whole.update(bytes);
        }
        self.length = self.length.saturating_add(bytes.len() as u64);
    }

    /// Ends the count, and returns what the head of a set states about the family.
    fn end(self, segments: u32) -> FamilyEnd {
        FamilyEnd {
            length_bytes: self.length,
            segments,
            digest: hex(&self.digest.finish()),
            bytes_digest: self.whole.map(|whole| hex(&whole.finish())),
        }
    }
}

/// A family that is being written.
pub(crate) struct FamilyWriter {
    /// Each with its name for errors.
    outs: Vec<(String, io::BufWriter<Box<dyn Upload>>)>,
    tally: Tally,
    segments: u32,
}

impl FamilyWriter {
    /// Begins a family: writes its header, the same bytes to each of `outs`, a medium and its
    /// mirrors. With `signed` the result of [`FamilyWriter::finish`] has a digest of all its bytes.
    /// The error of the first medium that fails.
    pub(crate) fn begin(
        outs: Vec<(String, Box<dyn Upload>)>,
        key: &FamilyKey,
        signed: bool,
    ) -> Result<Self> {
        let buffered = |(shown, out)| (shown, io::BufWriter::with_capacity(WRITE_BUFFER, out));
        let mut writer = Self {
            outs: outs.into_iter().map(buffered).collect(),
            tally: Tally::begin(key.header_bytes(), signed),
            segments: 0,
        };
        writer.put(key.header_bytes())?;
        Ok(writer)
    }

    /// The number that the next segment will have, from 0.
    pub(crate) fn next(&self) -> u32 {
        self.segments
    }

    /// Appends one segment, through a buffer: its head, `data` unchanged (compressed and sealed
    /// before, where the set is), its trailer. The error of the first medium or mirror that fails,
    /// which may be about earlier bytes; SR-9001 after 2^32 segments.
    pub(crate) fn segment(
        &mut self,
        head: SegmentHead,
        data: &[u8],
        trailer: &Trailer,
    ) -> Result<()> {
        let head = head.to_bytes();
        self.tally.segment(&head, data, trailer.as_slice());
        self.put(&head)?;
        self.put(data)?;
        self.put(trailer.as_slice())?;
        let next = self.segments.checked_add(1);
        self.segments = next.ok_or_else(|| Error::new(&code::BUG, "2^32 segments in a family"))?;
        Ok(())
    }

    /// Writes what is buffered, makes the family durable on each medium, and returns what the head
    /// states about it. The error of the first medium that fails.
    pub(crate) fn finish(self) -> Result<FamilyEnd> {
        for (shown, out) in self.outs {
            let out = out.into_inner().map_err(io::IntoInnerError::into_error);
            let finished = out.and_then(|out| out.finish());
            finished.map_err(|error| Error::io(shown, error))?;
        }
        Ok(self.tally.end(self.segments))
    }

    /// Writes the bytes to the medium and to each mirror, through a buffer. The error of the first
    /// that fails.
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        for (shown, out) in &mut self.outs {
            out.write_all(bytes)
                .map_err(|error| Error::io(shown.as_str(), error))?;
        }
        Ok(())
    }
}

/// A family that is being read.
pub(crate) struct FamilyReader {
    input: io::BufReader<Box<dyn Read + Send>>,
    family: u16,
    tally: Tally,
    segments: u32,
    trailer_length: usize,
}

/// The header of a family, before its key is known.
pub(crate) struct FamilyPrefix {
    input: io::BufReader<Box<dyn Read + Send>>,
    pub(crate) header: [u8; family_layout::SIZE],
}

impl FamilyPrefix {
    /// Reads the header of family `family`. SR-7110 when the file is shorter.
    pub(crate) fn read(input: Box<dyn Read + Send>, family: u16) -> Result<Self> {
        let mut input = io::BufReader::with_capacity(WRITE_BUFFER, input);
        let mut header = [0; family_layout::SIZE];
        exactly(&mut input, &mut header, family)?;
        Ok(Self { input, header })
    }

    /// Goes on to the segments: returns their reader. With `signed` the family's end has a digest
    /// of all its bytes.
    pub(crate) fn with_key(self, key: &FamilyKey, signed: bool) -> FamilyReader {
        FamilyReader {
            input: self.input,
            family: key.family(),
            tally: Tally::begin(&self.header, signed),
            segments: 0,
            trailer_length: key.trailer_length(),
        }
    }
}

impl FamilyReader {
    /// Reads the next segment: returns its number, head and trailer, and puts its data, which is
    /// not opened, into `data`. SR-7109 for a malformed head; SR-7110 when the file ends within the
    /// segment.
    pub(crate) fn segment(&mut self, data: &mut Vec<u8>) -> Result<(u32, SegmentHead, Trailer)> {
        let number = self.segments;
        let mut head_bytes = [0; segment_layout::SIZE];
        exactly(&mut self.input, &mut head_bytes, self.family)?;
        let head =
            SegmentHead::parse(&head_bytes).ok_or_else(|| bad_segment(self.family, number))?;
        let length = usize::try_from(head.length).unwrap_or(usize::MAX);
        // The data of an earlier segment is overwritten; only what exceeds its length is filled
        // with zeros first.
        data.resize(length, 0);
        exactly(&mut self.input, data, self.family)?;
        let mut trailer_bytes = [0; crate::set::TRAILER_MAX];
        let trailer_bytes = trailer_bytes
            .get_mut(..self.trailer_length)
            .unwrap_or_default();
        exactly(&mut self.input, trailer_bytes, self.family)?;
        self.tally.segment(&head_bytes, data, trailer_bytes);
        let next = number.checked_add(1);
        self.segments = next.ok_or_else(|| bad_segment(self.family, number))?;
        Ok((number, head, Trailer::from_slice(trailer_bytes)))
    }

    /// Checks that nothing follows the last segment (SR-7110), and returns what the head should
    /// state about the family: its length, segments and digests, for the caller to compare.
    pub(crate) fn end(mut self) -> Result<FamilyEnd> {
        let mut beyond = [0];
        match self.input.read(&mut beyond) {
            Ok(0) => Ok(self.tally.end(self.segments)),
            Ok(_) => {
                let detail = format!("family {}: bytes after its end", self.family);
                Err(Error::new(&code::FAMILY_SHORT, detail))
            }
            Err(error) => Err(Error::io(format!("family {}", self.family), error)),
        }
    }
}

/// Makes SR-7109 (a segment is damaged, forged, or from another place) for the segment `number` of
/// the set's data file (family) of that number; both numbers are in the detail.
pub(crate) fn bad_segment(family: u16, number: u32) -> Error {
    Error::new(&code::SEGMENT, format!("family {family}, segment {number}"))
}

/// Fills `bytes` from the family's file. SR-7110 when the file ends before.
fn exactly(input: &mut impl Read, bytes: &mut [u8], family: u16) -> Result<()> {
    input.read_exact(bytes).map_err(|error| {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            Error::new(
                &code::FAMILY_SHORT,
                format!("family {family} ends too early"),
            )
        } else {
            Error::io(format!("family {family}"), error)
        }
    })
}
