//! One pass over a file: its first 4096 bytes and its first 64 KiB, how often each byte value
//! occurs, and samples for the picture.
//!
//! Must not: hold more of the file than its head and the samples.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use strongroom_format::header::HEADER_LEN;
use strongroom_keyring::Error;
use strongroom_sqlite::foreign::SAMPLE;

use crate::picture::Sampler;

const CHUNK: usize = 1 << 18;

/// What one pass found.
pub struct Scan {
    /// Bytes read.
    pub(crate) size: u64,
    /// The first 4096 bytes, or all of a shorter file.
    pub(crate) head: Vec<u8>,
    /// The first 64 KiB, or all of a shorter file.
    pub(crate) sample: Vec<u8>,
    /// Occurrences of each byte value.
    pub(crate) counts: [u64; 256],
    /// Samples for the picture, if one is wanted.
    pub sampler: Option<Sampler>,
}

/// Reads `size` bytes of `file`, or as many as there are, and returns what was counted and kept.
/// With `picture`, also takes samples for a picture. `progress` is called with the bytes that were
/// read, and `size`. `path` is for the error.
///
/// # Errors
/// SR-5001 when the system reports an error.
pub fn scan(
    path: &Path,
    file: File,
    size: u64,
    picture: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Scan, Error> {
    let mut scan = Scan {
        size: 0,
        head: Vec::new(),
        sample: Vec::new(),
        counts: [0; 256],
        sampler: picture.then(|| Sampler::new(size)),
    };
    let mut reader = file.take(size);
    let mut buffer = vec![0; CHUNK];
    loop {
        let length = reader
            .read(&mut buffer)
            .map_err(|e| Error::on_path(path, e))?;
        let Some(chunk) = buffer.get(..length).filter(|chunk| !chunk.is_empty()) else {
            return Ok(scan);
        };
        scan.take(chunk);
        progress(scan.size, size);
    }
}

impl Scan {
    /// Adds the next bytes of the file to what is kept and counted.
    fn take(&mut self, chunk: &[u8]) {
        let wanted = HEADER_LEN.saturating_sub(self.head.len());
        self.head.extend(chunk.iter().take(wanted));
        let wanted = SAMPLE.saturating_sub(self.sample.len());
        self.sample.extend(chunk.iter().take(wanted));
        for &byte in chunk {
            self.counts[usize::from(byte)] += 1;
        }
        if let Some(sampler) = &mut self.sampler {
            sampler.take(self.size, chunk);
        }
        self.size += chunk.len() as u64;
    }

    /// Returns the Shannon entropy of the whole file, in bits per byte; `None` if it is empty.
    pub(crate) fn entropy(&self) -> Option<f64> {
        entropy(&self.counts)
    }

    /// Returns whether byte values are as evenly spread as random bytes are: chi-square over 256
    /// values, 255 degrees of freedom, less than 400 (one random file in 10^7 is above). `None`
    /// below 64 KiB, which are too few to tell.
    pub(crate) fn uniform(&self) -> Option<bool> {
        if self.size < 65_536 {
            return None;
        }
        let expected = self.size as f64 / 256.0;
        let squares = self
            .counts
            .iter()
            .map(|&count| (count as f64 - expected).powi(2));
        Some(squares.sum::<f64>() / expected < 400.0)
    }

    /// Returns the Shannon entropy of what follows the first `header` bytes (at most 4096), in bits
    /// per byte; `None` if nothing follows.
    pub(crate) fn body_entropy(&self, header: usize) -> Option<f64> {
        let mut counts = self.counts;
        for &byte in self.head.iter().take(header) {
            counts[usize::from(byte)] -= 1;
        }
        entropy(&counts)
    }
}

/// Returns the Shannon entropy of bytes with these counts, in bits per byte; `None` if all counts
/// are 0. (Shannon, "A Mathematical Theory of Communication", section 6, with base 2.)
fn entropy(counts: &[u64; 256]) -> Option<f64> {
    let total: u64 = counts.iter().sum();
    if total == 0 {
        return None;
    }
    let bits = counts.iter().filter(|&&count| count > 0).map(|&count| {
        let share = count as f64 / total as f64;
        -share * share.log2()
    });
    // A file of one value gives -0.0; show it as 0.
    Some(bits.sum::<f64>().max(0.0))
}

#[cfg(test)]
mod tests {
    use super::entropy;

    #[test]
    fn entropy_of_known_distributions() {
        assert_eq!(entropy(&[0; 256]), None);
        assert_eq!(entropy(&[7; 256]), Some(8.0));
        let mut two = [0; 256];
        two[0] = 5;
        assert_eq!(entropy(&two), Some(0.0));
        two[255] = 5;
        assert_eq!(entropy(&two), Some(1.0));
    }
}
