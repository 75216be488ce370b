//! Key material while it is read, in locked memory.
//!
//! Invariant K1: what is read never leaves locked memory.

use std::io::{ErrorKind, Read};

use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use zeroize::Zeroize;

use crate::error::Error;
use crate::material::MATERIAL_MAX;

/// Makes the error SR-2011 that says that key material is longer than 64 KiB.
pub(crate) fn too_long() -> Error {
    Error::new(&code::KEY_MALFORMED, "longer than 64 KiB")
}

/// Key material while it is read, up to [`MATERIAL_MAX`] bytes in locked memory. A byte that is
/// read beyond that only sets [`Self::is_too_long`].
pub(crate) struct MaterialBuffer {
    bytes: SecretBytes,
    filled: usize,
    beyond: bool,
}

impl MaterialBuffer {
    /// Makes an empty buffer. Errors: SR-5001 when there is no memory for keys.
    pub(crate) fn new() -> Result<Self, Error> {
        Ok(Self {
            bytes: SecretBytes::with_capacity(MATERIAL_MAX)?,
            filled: 0,
            beyond: false,
        })
    }

    /// Appends the result of one read of `input`. True also after a read that a signal interrupted,
    /// which adds nothing; false at the end of the input. Errors: the system's.
    pub(crate) fn read_from(&mut self, mut input: impl Read) -> std::io::Result<bool> {
        let mut probe = [0_u8; 1];
        let free = self
            .bytes
            .as_mut_slice()
            .get_mut(self.filled..)
            .unwrap_or_default();
        let full = free.is_empty();
        let outcome = input.read(if full { &mut probe } else { free });
        probe.zeroize();
        match outcome {
            Ok(0) => Ok(false),
            Ok(_) if full => {
                self.beyond = true;
                Ok(true)
            }
            Ok(count) => {
                self.filled = self.filled.saturating_add(count);
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Whether nothing was read so far.
    pub(crate) fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Whether more than [`MATERIAL_MAX`] bytes were read.
    pub(crate) fn is_too_long(&self) -> bool {
        self.beyond
    }

    /// Moves what was read, at most [`MATERIAL_MAX`] bytes, to locked memory of its own size, and
    /// wipes the buffer. Errors: SR-5001 when there is no memory for keys.
    pub(crate) fn finish(mut self) -> Result<SecretBytes, Error> {
        self.bytes.truncate(self.filled);
        let mut exact = SecretBytes::with_capacity(self.filled)?;
        exact.as_mut_slice().copy_from_slice(self.bytes.as_slice());
        Ok(exact)
    }
}
