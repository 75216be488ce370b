//! What a thief does with a disk image: looks for known texts, and for anything that is not noise.
//!
//! Must not: report a disk as noise because it was not read.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Bytes that are looked at together.
const PIECE: usize = 4096;
/// What AES enciphers at once.
const BLOCK: usize = 16;

/// What an image looks like from a certain offset on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// Pieces of 4096 bytes that were looked at.
    pub pieces: u64,
    /// Those that hold zeros only: never written, or wiped.
    pub blank: u64,
    /// Those that are neither blank nor noise: the offsets of the first ones.
    pub patterned: Vec<u64>,
    /// Which of the texts were found, with the offset of the first occurrence.
    pub texts: Vec<(String, u64)>,
}

/// Looks at the image from `from` on.
///
/// Noise: the sum of squares of the 256 byte counts of 4096 random bytes has the mean 69 616
/// (chi-square with 255 degrees of freedom, expected count 16); a piece, without its cipher blocks
/// of zeros, counts as patterned from a chi-square value of 480 on, ten standard deviations off,
/// which one in 10^17 pieces of noise has.
///
/// # Errors
/// When the image cannot be read.
pub fn look(image: &Path, from: u64, texts: &[&str]) -> io::Result<Findings> {
    let mut file = File::open(image)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let start = usize::try_from(from).map_err(io::Error::other)?;
    let bytes = bytes
        .get(start..)
        .ok_or_else(|| io::Error::other("the image ends before that offset"))?;
    let mut findings = Findings::default();
    for (number, piece) in (0_u64..).zip(bytes.chunks_exact(PIECE)) {
        findings.pieces += 1;
        let written = written(piece);
        if written.is_empty() {
            findings.blank += 1;
        } else if chi_square(&written) > 480 && findings.patterned.len() < 100 {
            findings.patterned.push(from + number * PIECE as u64);
        }
    }
    for text in texts {
        if let Some(at) = memchr::memmem::find(bytes, text.as_bytes()) {
            findings.texts.push(((*text).to_owned(), from + at as u64));
        }
    }
    Ok(findings)
}

/// A piece without its cipher blocks of zeros. Where a part of a page is written that never was (a
/// swap area's header, for one), the rest is read, deciphered to whatever it may be, and written
/// back: the zeros that lay there.
fn written(piece: &[u8]) -> Vec<u8> {
    let blocks = piece.chunks_exact(BLOCK);
    let written = blocks.filter(|block| block.iter().any(|byte| *byte != 0));
    written.flatten().copied().collect()
}

fn chi_square(piece: &[u8]) -> u64 {
    let mut counts = [0_u64; 256];
    for byte in piece {
        counts[usize::from(*byte)] += 1;
    }
    let squares: u64 = counts.iter().map(|count| count * count).sum();
    let len = piece.len() as u64;
    // Never less than 0: the sum of squares is least when all counts are the same.
    256 * squares / len - len
}

#[cfg(test)]
mod tests {
    use super::{PIECE, chi_square, written};
    use crate::random::Random;

    #[test]
    fn noise_is_told_from_text_and_from_tables() {
        let mut random = Random::new(7);
        let mut noise = || -> Vec<u8> {
            (0..PIECE)
                .map(|_| u8::try_from(random.below(256)).unwrap())
                .collect()
        };
        for _ in 0..2000 {
            let value = chi_square(&noise());
            assert!(value < 480, "{value}");
        }
        let mut half = noise();
        half[..PIECE / 2].fill(0);
        assert!(chi_square(&half) > 480);
        // What was never written is no pattern; what was is looked at all the same.
        assert!(chi_square(&written(&half)) < 480);
        half[PIECE / 2..].fill(b'a');
        assert!(chi_square(&written(&half)) > 480);
        assert!(written(&[0; PIECE]).is_empty());
        let text: Vec<u8> = b"the quick brown fox "
            .iter()
            .copied()
            .cycle()
            .take(PIECE)
            .collect();
        assert!(chi_square(&text) > 480);
    }
}
