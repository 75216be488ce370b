//! What the keyring stores of a secret that was sealed with KMIP: docs/spec/keyring.md, "Blobs of
//! servers".
//!
//! Must not: hold the secret.

use super::message::{Minor, V1_2, V1_4};

/// How the secret is sealed; the first byte of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// By the server, with AES-GCM.
    Gcm = 1,
    /// By the server, with AES-CBC.
    Cbc = 2,
    /// Here, with a key derived from one that the server hands out.
    Fetched = 3,
}

impl Method {
    /// Returns how many bytes the initialisation vector has, and the tag; the tag of AES-CBC has
    /// none.
    pub(super) fn lengths(self) -> (usize, usize) {
        match self {
            Self::Gcm | Self::Fetched => (12, 16),
            Self::Cbc => (16, 0),
        }
    }
}

/// A sealed secret, with what is needed to open it.
pub(super) struct Blob {
    pub(super) method: Method,
    pub(super) version: Minor,
    /// The key's unique identifier at the server.
    pub(super) id: String,
    pub(super) iv: Vec<u8>,
    pub(super) tag: Vec<u8>,
    pub(super) ciphertext: Vec<u8>,
}

impl Blob {
    /// Returns the blob as the keyring stores it. An identifier has at most 255 bytes; callers
    /// check that.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let length = u8::try_from(self.id.len()).unwrap_or(u8::MAX);
        let head = [self.method as u8, self.version.0, length];
        let id = self.id.as_bytes();
        [&head, id, &self.iv, &self.tag, &self.ciphertext].concat()
    }

    /// Reads a blob, the opposite of [`Self::bytes`], and opens nothing; what follows the tag is
    /// the ciphertext. `None` for bytes that are not one: unknown method or version, no identifier
    /// or one that is not UTF-8, no ciphertext, cut short.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (&[method, version, length], rest) = bytes.split_first_chunk()?;
        let method = match method {
            1 => Method::Gcm,
            2 => Method::Cbc,
            3 => Method::Fetched,
            _ => return None,
        };
        let (id, rest) = rest.split_at_checked(usize::from(length))?;
        let (iv_length, tag_length) = method.lengths();
        let (iv, rest) = rest.split_at_checked(iv_length)?;
        let (tag, ciphertext) = rest.split_at_checked(tag_length)?;
        let version = Minor(version);
        let is_known = (V1_2..=V1_4).contains(&version) && !id.is_empty();
        (is_known && !ciphertext.is_empty()).then_some(Self {
            method,
            version,
            id: String::from_utf8(id.to_vec()).ok()?,
            iv: iv.to_vec(),
            tag: tag.to_vec(),
            ciphertext: ciphertext.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_again_and_nothing_else() {
        for method in [Method::Gcm, Method::Cbc, Method::Fetched] {
            let (iv, tag) = method.lengths();
            let blob = Blob {
                method,
                version: V1_4,
                id: String::from("key-7"),
                iv: vec![1; iv],
                tag: vec![2; tag],
                ciphertext: vec![3; 32],
            };
            let bytes = blob.bytes();
            assert_eq!(Blob::parse(&bytes).unwrap().bytes(), bytes);
            for end in 0..=bytes.len() - 32 {
                assert!(Blob::parse(&bytes[..end]).is_none());
            }
            for (at, value) in [(0, 0), (0, 4), (1, 1), (1, 5), (2, 0), (3, 0xff)] {
                let mut changed = bytes.clone();
                changed[at] = value;
                assert!(Blob::parse(&changed).is_none(), "{at}");
            }
        }
    }
}
