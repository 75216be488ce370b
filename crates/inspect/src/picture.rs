//! The byte map: one pixel per byte, or per block of a larger file, coloured by value.
//!
//! Plain structure (text, zeroed space, page headers) shows as bands and areas; sealed bytes are
//! noise. A block is shown by one of its bytes, not by their mean: the mean of sealed bytes would
//! be an even grey that looks like structure. Which byte changes from block to block, so that the
//! choice does not keep step with pages.
//! Must not: draw more than 1024 x 1024 pixels.

use strongroom_format::code;
use strongroom_keyring::Error;

/// Most pixels in a row, and most rows.
const SIDE_MAX: u64 = 1024;
const PIXELS_MAX: u64 = SIDE_MAX * SIDE_MAX;

/// The perceptually uniform map "viridis" (Smith and van der Walt, matplotlib) at nine even steps,
/// dark to light.
const VIRIDIS: [[u8; 3]; 9] = [
    [68, 1, 84],
    [71, 44, 122],
    [59, 81, 139],
    [44, 113, 142],
    [33, 144, 141],
    [39, 173, 129],
    [92, 200, 99],
    [170, 220, 50],
    [253, 231, 37],
];
/// Pixels after the last byte.
const BEYOND_END: [u8; 3] = [255, 255, 255];

/// Picks the bytes that are drawn while the file streams by.
pub struct Sampler {
    size: u64,
    block: u64,
    values: Vec<u8>,
}

impl Sampler {
    /// Returns a sampler for a file of `size` bytes that takes at most 1024 x 1024 samples.
    pub(crate) fn new(size: u64) -> Self {
        Self {
            size,
            block: size.div_ceil(PIXELS_MAX).max(1),
            values: Vec::new(),
        }
    }

    /// Returns the number of bytes of the file for each pixel.
    #[must_use]
    pub fn block(&self) -> u64 {
        self.block
    }

    /// Returns whether there is no sample, as for an empty file.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Takes the samples that lie in `chunk`, which begins at `offset` of the file. Chunks have to
    /// come in order and without gaps.
    pub(crate) fn take(&mut self, offset: u64, chunk: &[u8]) {
        while let Some(&value) = self
            .next_position()
            .and_then(|position| position.checked_sub(offset))
            .and_then(|within| usize::try_from(within).ok())
            .and_then(|within| chunk.get(within))
        {
            self.values.push(value);
        }
    }

    /// Returns the offset of the next byte to be sampled; `None` after the last one.
    fn next_position(&self) -> Option<u64> {
        let pixel = self.values.len() as u64;
        let start = pixel * self.block;
        let length = self.block.min(self.size.checked_sub(start)?);
        Some(start + mix_bits(pixel).checked_rem(length)?)
    }
}

/// Returns a fixed permutation of 64-bit numbers that spreads them evenly: the finaliser of
/// `SplitMix64` (Steele, Lea, Flood 2014). Not for secrets.
fn mix_bits(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A finished picture.
pub struct Picture {
    /// Its width in pixels.
    pub width: u32,
    /// Its height in pixels.
    pub height: u32,
    /// The PNG file.
    pub bytes: Vec<u8>,
}

/// Draws the samples, row by row from the top, and returns the picture as a PNG file. Pixels after
/// the last sample are white.
///
/// # Errors
/// SR-9001 when the encoder refuses.
pub fn encode(sampler: &Sampler) -> Result<Picture, Error> {
    let failed =
        |error: png::EncodingError| Error::new(&code::BUG, format!("PNG encoder: {error}"));
    let (width, height) = dimensions(sampler.values.len());
    let palette: Vec<[u8; 3]> = (0..=255).map(colour).collect();
    let mut pixels = Vec::new();
    for &value in &sampler.values {
        let rgb = palette.get(usize::from(value)).unwrap_or(&BEYOND_END);
        pixels.extend_from_slice(rgb);
    }
    let all = u64::from(width) * u64::from(height);
    for _ in sampler.values.len() as u64..all {
        pixels.extend_from_slice(&BEYOND_END);
    }
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(&pixels).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(Picture {
        width,
        height,
        bytes,
    })
}

/// Returns width and height of a picture for this many pixels: about square, with a width that is a
/// power of two from 16 to 1024, so that pages begin at the same column.
fn dimensions(pixels: usize) -> (u32, u32) {
    let pixels = u32::try_from(pixels).unwrap_or(u32::MAX);
    let mut width: u32 = 16;
    while width < 1024 && width * width < pixels {
        width *= 2;
    }
    (width, pixels.div_ceil(width).max(1))
}

/// Returns the colour (red, green, blue) of a byte value: from dark violet for 0 to yellow for 255,
/// interpolated between the steps of the colour map.
fn colour(value: u8) -> [u8; 3] {
    let (step, within) = (usize::from(value) / 32, u32::from(value) % 32);
    let low = VIRIDIS.get(step).copied().unwrap_or(BEYOND_END);
    let high = VIRIDIS.get(step + 1).copied().unwrap_or(low);
    let mut mixed = [0; 3];
    for ((to, a), b) in mixed.iter_mut().zip(low).zip(high) {
        let sum = u32::from(a) * (32 - within) + u32::from(b) * within;
        *to = u8::try_from(sum / 32).unwrap_or(u8::MAX);
    }
    mixed
}

#[cfg(test)]
mod tests {
    use super::{Sampler, dimensions};

    #[test]
    fn never_larger_than_the_limit() {
        for size in [
            1,
            16,
            17,
            4096,
            1 << 20,
            (1 << 20) + 1,
            5 << 30,
            u64::MAX / 2,
        ] {
            let sampler = Sampler::new(size);
            let pixels = size.div_ceil(sampler.block());
            assert!(pixels <= 1 << 20, "{size}");
            let (width, height) = dimensions(usize::try_from(pixels).unwrap());
            assert!(
                width <= 1024 && height <= 1024,
                "{size}: {width} x {height}"
            );
            assert!(u64::from(width) * u64::from(height) >= pixels);
        }
    }

    #[test]
    fn samples_do_not_depend_on_how_the_file_is_read() {
        let size = (1_u64 << 20) * 3 + 5;
        let data: Vec<u8> = (0..size).map(|i| u8::try_from(i % 251).unwrap()).collect();
        let mut whole = Sampler::new(size);
        whole.take(0, &data);
        let mut pieces = Sampler::new(size);
        let mut offset = 0;
        for chunk in data.chunks(1009) {
            pieces.take(offset, chunk);
            offset += chunk.len() as u64;
        }
        assert_eq!(whole.block(), 4);
        assert_eq!(whole.values.len() as u64, size.div_ceil(4));
        assert!(whole.values == pieces.values);
    }

    #[test]
    fn small_files_are_shown_byte_by_byte() {
        let mut sampler = Sampler::new(300);
        let data: Vec<u8> = (0..=255).chain(0..44).collect();
        sampler.take(0, &data);
        assert!(sampler.values == data);
    }
}
