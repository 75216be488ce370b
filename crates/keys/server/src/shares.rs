//! The root key in shares: any `threshold` of them give the root key, and fewer reveal nothing
//! about it (Shamir's secret sharing over GF(256), by the `blahaj` crate). The text form is
//! specified in docs/spec/keyserver.md, "Shares".
//!
//! Invariant H1: a share is accepted only if its SHA-256 is one of those that were recorded when
//! the shares were made. A wrong share is therefore refused at once and does not invalidate the
//! others. A share has 256 random bits, so that its hash reveals nothing.
//!
//! Must not: keep shares after the root key is known.

use std::convert::Infallible;

use blahaj::{Share, Sharks};
use rand_core::{TryCryptoRng, TryRng};
use strongroom_crypto::{CryptoError, SecretBytes, SecretKey, fill_random, sha256};
use strongroom_format::code;
use strongroom_format::hex::hex;
use strongroom_keyring::{Error, secret_hex};
use zeroize::{Zeroize as _, Zeroizing};

use crate::keys::ServerId;

/// The first characters of a share's text.
pub const PREFIX: &str = "strongroom-share-1-";
/// The number of the share, and as many bytes as the root key has.
const SHARE_LEN: usize = 33;
/// Bytes of the checksum that detects typing errors.
const CHECKSUM_LEN: usize = 4;
/// Server id, share, checksum.
const TEXT_LEN: usize = 16 + SHARE_LEN + CHECKSUM_LEN;
/// The most shares of a root key.
pub const SHARES_MAX: u8 = 32;

/// Splits the root key. Returns a text for each custodian, in locked memory, and the hashes of the
/// shares for the server's configuration. Stores nothing.
///
/// # Errors
/// SR-8434 unless 2 <= threshold <= shares <= 32; SR-5001 without random numbers or memory for
/// keys.
pub fn split(
    root: &SecretKey,
    id: &ServerId,
    threshold: u8,
    shares: u8,
) -> Result<(Vec<SecretBytes>, Vec<[u8; 32]>), Error> {
    if !(2..=shares).contains(&threshold) || shares > SHARES_MAX {
        let detail = format!("{threshold} of {shares} shares: 2 <= threshold <= shares <= 32");
        return Err(Error::new(&code::SERVER_CONFIG, detail));
    }
    let mut texts = Vec::new();
    let mut hashes = Vec::new();
    let mut random = KernelRandom { failed: false };
    let dealt: Vec<Share> = Sharks(threshold)
        .dealer_rng(root.expose(), &mut random)
        .take(shares.into())
        .collect();
    if random.failed {
        return Err(CryptoError::Random.into());
    }
    for share in dealt {
        let bytes = Zeroizing::new(Vec::from(&share));
        hashes.push(sha256(&[&bytes]));
        texts.push(to_text(id, &bytes)?);
    }
    Ok((texts, hashes))
}

/// The kernel's random number generator, the source of every secret (C6), as the trait that
/// `blahaj` requires. The trait has no errors, so that `failed` has to be checked before a share is
/// used.
struct KernelRandom {
    failed: bool,
}

impl TryRng for KernelRandom {
    type Error = Infallible;

    /// Returns a random number of 32 bits, and no error. After a failure, which sets `failed`, the
    /// number is useless.
    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let mut bytes = [0; 4];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Returns a random number of 64 bits, and no error. After a failure, which sets `failed`, the
    /// number is useless.
    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut bytes = [0; 8];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Fills `out`. A failure sets `failed` instead of being returned; `out` is then useless.
    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Infallible> {
        self.failed |= fill_random(out).is_err();
        Ok(())
    }
}

impl TryCryptoRng for KernelRandom {}

/// Writes the text form of a share into locked memory: prefix, and server id, share and checksum in
/// hexadecimal digits. SR-5001 without locked memory.
fn to_text(id: &ServerId, share: &[u8]) -> Result<SecretBytes, Error> {
    let sum = sha256(&[id, share]);
    let mut bytes = Zeroizing::new(Vec::with_capacity(TEXT_LEN));
    for part in [
        id.as_slice(),
        share,
        sum.get(..CHECKSUM_LEN).unwrap_or_default(),
    ] {
        bytes.extend_from_slice(part);
    }
    let digits = secret_hex(&bytes)?;
    let mut text = SecretBytes::with_capacity(PREFIX.len().saturating_add(digits.len()))?;
    let (head, tail) = text.as_mut_slice().split_at_mut(PREFIX.len());
    head.copy_from_slice(PREFIX.as_bytes());
    tail.copy_from_slice(digits.as_slice());
    Ok(text)
}

/// The shares that custodians have given so far, in locked memory. They are wiped when this is
/// dropped.
pub struct CollectedShares {
    id: ServerId,
    threshold: u8,
    hashes: Vec<[u8; 32]>,
    shares: Vec<SecretBytes>,
}

impl CollectedShares {
    /// Begins to collect shares of a root key whose shares have these hashes. `threshold` of them
    /// are needed.
    #[must_use]
    pub fn new(id: ServerId, threshold: u8, hashes: Vec<[u8; 32]>) -> Self {
        Self {
            id,
            threshold,
            hashes,
            shares: Vec::new(),
        }
    }

    /// Returns how many shares were given since the beginning, or since the last time that all were
    /// wiped.
    #[must_use]
    pub fn count(&self) -> usize {
        self.shares.len()
    }

    /// Adds a share. Returns the root key if it was the last share that was needed, and wipes all
    /// shares; `None` while more are needed.
    ///
    /// # Errors
    /// SR-8432 when it is not a share of this server, or the shares do not combine; SR-8441 when
    /// it was given already; SR-5001 without locked memory.
    pub fn add(&mut self, text: &str) -> Result<Option<SecretKey>, Error> {
        let mut bytes = parse(text, &self.id)?;
        if !self.hashes.contains(&sha256(&[&bytes])) {
            return Err(Error::new(&code::SERVER_SHARE, ""));
        }
        let share = SecretBytes::take(&mut bytes)?;
        let number = share.as_slice().first();
        let same = |other: &SecretBytes| other.as_slice().first() == number;
        if self.shares.iter().any(same) {
            return Err(Error::new(&code::SERVER_SHARE_TWICE, ""));
        }
        self.shares.push(share);
        if self.shares.len() < usize::from(self.threshold) {
            return Ok(None);
        }
        let given = std::mem::take(&mut self.shares);
        let sharks = Sharks(self.threshold);
        // These copies are not in locked memory. They live for this call and are wiped when
        // dropped.
        let shares = given.iter().map(|share| Share::try_from(share.as_slice()));
        let shares: Result<Vec<Share>, _> = shares.collect();
        let shares = shares.map_err(|_| Error::new(&code::SERVER_SHARE, ""))?;
        let root = sharks.recover(shares.as_slice());
        let mut root = root.map_err(|_| Error::new(&code::SERVER_SHARE, "they do not combine"))?;
        let mut key = Zeroizing::new([0; 32]);
        let fits = root.len() == key.len();
        if fits {
            key.copy_from_slice(&root);
        }
        root.zeroize();
        match fits {
            true => Ok(Some(SecretKey::take(&mut key)?)),
            false => Err(Error::new(&code::SERVER_SHARE, "they do not combine")),
        }
    }

    /// Wipes and forgets all shares.
    pub fn clear(&mut self) {
        self.shares.clear();
    }
}

/// Parses the text of a share and returns its number and bytes. Case, blanks and line breaks do not
/// matter. SR-8432 if it is malformed, has a wrong digit, or is for another server.
fn parse(text: &str, id: &ServerId) -> Result<Zeroizing<Vec<u8>>, Error> {
    let refused = |detail: &str| Error::new(&code::SERVER_SHARE, detail);
    // A share with a blank after each digit is shorter.
    if text.len() > 512 {
        return Err(refused("too long"));
    }
    let text: Zeroizing<String> = Zeroizing::new(
        text.chars()
            .filter(|c| !c.is_whitespace())
            .map(|c| c.to_ascii_lowercase())
            .collect(),
    );
    let digits = text
        .strip_prefix(PREFIX)
        .ok_or_else(|| refused("it begins otherwise"))?;
    let bytes = strongroom_format::hex::from_hex(digits).map(Zeroizing::new);
    let bytes = bytes.filter(|bytes| bytes.len() == TEXT_LEN);
    let bytes = bytes.ok_or_else(|| refused("it is cut short, or a digit is wrong"))?;
    let (server_id, rest) = bytes.split_at(16);
    let (share, sum) = rest.split_at(SHARE_LEN);
    if sha256(&[server_id, share]).get(..CHECKSUM_LEN) != Some(sum) {
        return Err(refused("a digit is wrong"));
    }
    if server_id != id {
        return Err(refused(&format!("it is for the server {}", hex(server_id))));
    }
    Ok(Zeroizing::new(share.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(shares: &[SecretBytes]) -> Vec<String> {
        shares
            .iter()
            .map(|s| String::from_utf8(s.as_slice().to_vec()).unwrap())
            .collect()
    }

    #[test]
    fn any_threshold_of_shares_and_no_fewer_give_the_root_key() {
        let (id, root) = ([3; 16], SecretKey::generate().unwrap());
        let (shares, hashes) = split(&root, &id, 3, 5).unwrap();
        let texts = texts(&shares);
        for pick in [[0, 1, 2], [4, 2, 0], [1, 3, 4]] {
            let mut given = CollectedShares::new(id, 3, hashes.clone());
            assert!(given.add(&texts[pick[0]]).unwrap().is_none());
            assert!(given.add(&texts[pick[1]]).unwrap().is_none());
            let again = given.add(&texts[pick[1]]).err().unwrap();
            assert_eq!((again.code().number, given.count()), (8441, 2));
            assert!(given.add(&texts[pick[2]]).unwrap().unwrap().ct_eq(&root));
            assert_eq!(given.count(), 0);
        }
    }

    #[test]
    fn a_wrong_share_is_refused_and_invalidates_no_other() {
        let (id, root) = ([3; 16], SecretKey::generate().unwrap());
        let (shares, hashes) = split(&root, &id, 2, 3).unwrap();
        let (others, _) = split(&SecretKey::generate().unwrap(), &id, 2, 3).unwrap();
        let (foreign, _) = split(&root, &[4; 16], 2, 3).unwrap();
        let (mine, others, foreign) = (texts(&shares), texts(&others), texts(&foreign));
        let mut given = CollectedShares::new(id, 2, hashes);
        assert!(given.add(&mine[0]).unwrap().is_none());
        let long = "a".repeat(10_000);
        let mut wrong = vec![others[1].clone(), foreign[1].clone(), String::new(), long];
        for at in PREFIX.len()..mine[1].len() {
            let mut text = mine[1].clone().into_bytes();
            text[at] = if text[at] == b'0' { b'1' } else { b'0' };
            wrong.push(String::from_utf8(text).unwrap());
            wrong.push(mine[1][..at].to_owned());
        }
        for text in &wrong {
            assert_eq!(given.add(text).err().unwrap().code().number, 8432, "{text}");
        }
        // With line breaks and in capitals, as a person may have copied it.
        let written = mine[1].to_uppercase().replace('7', "7 \n");
        assert!(given.add(&written).unwrap().unwrap().ct_eq(&root));
    }

    #[test]
    fn thresholds_are_bounded() {
        let root = SecretKey::generate().unwrap();
        for (threshold, shares) in [(0, 0), (1, 1), (1, 3), (4, 3), (2, 33)] {
            let error = split(&root, &[0; 16], threshold, shares).err().unwrap();
            assert_eq!(error.code().number, 8434);
        }
    }
}
