//! The root key in shares: any `threshold` of them give it, fewer tell nothing (Shamir, over GF(256), by the `blahaj` crate).
//!
//! Invariant H1: a share is believed only if its SHA-256 is among those that were written down when the shares were made, so a wrong one
//! is refused at once and cannot spoil the others. A share has 256 random bits: its hash tells nothing of it.
//!
//! Must not: keep shares longer than until the root key is known. Text form: docs/spec/keyserver.md, "Shares".

use std::convert::Infallible;

use blahaj::{Share, Sharks};
use rand_core::{TryCryptoRng, TryRng};
use strongroom_crypto::{CryptoError, SecretBytes, SecretKey, fill_random, sha256};
use strongroom_format::code;
use strongroom_format::hex::hex;
use strongroom_keyring::Error;
use zeroize::{Zeroize as _, Zeroizing};

use crate::keys::{ServerId, secret_hex};

/// What a share's text begins with.
pub const PREFIX: &str = "strongroom-share-1-";
/// Number of the share, then as many bytes as the root key has.
const SHARE_LEN: usize = 33;
/// Bytes of the checksum that finds typing errors.
const SUM_LEN: usize = 4;
/// Server id, share, checksum.
const TEXT_LEN: usize = 16 + SHARE_LEN + SUM_LEN;
/// Most shares.
pub const SHARES_MAX: u8 = 32;

/// Splits the root key. The texts are for the custodians, one each; the hashes are for the server's configuration.
///
/// # Errors
/// SR-8434 unless 2 <= threshold <= shares <= 32; SR-5001.
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
    let mut kernel = Kernel { failed: false };
    let dealt: Vec<Share> = Sharks(threshold)
        .dealer_rng(root.expose(), &mut kernel)
        .take(shares.into())
        .collect();
    if kernel.failed {
        return Err(CryptoError::Random.into());
    }
    for share in dealt {
        let bytes = Zeroizing::new(Vec::from(&share));
        hashes.push(sha256(&[&bytes]));
        texts.push(text_of(id, &bytes)?);
    }
    Ok((texts, hashes))
}

/// The kernel's generator, from which every secret comes (C6), as the trait that `blahaj` asks for.
/// It cannot fail there: whoever deals shares looks at `failed` before one is used.
struct Kernel {
    failed: bool,
}

impl TryRng for Kernel {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let mut bytes = [0; 4];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut bytes = [0; 8];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Infallible> {
        self.failed |= fill_random(out).is_err();
        Ok(())
    }
}

impl TryCryptoRng for Kernel {}

fn text_of(id: &ServerId, share: &[u8]) -> Result<SecretBytes, Error> {
    let sum = sha256(&[id, share]);
    let mut bytes = Zeroizing::new(Vec::with_capacity(TEXT_LEN));
    for part in [id.as_slice(), share, sum.get(..SUM_LEN).unwrap_or_default()] {
        bytes.extend_from_slice(part);
    }
    let digits = secret_hex(&bytes)?;
    let mut text = SecretBytes::with_capacity(PREFIX.len().saturating_add(digits.len()))?;
    let (head, tail) = text.as_mut_slice().split_at_mut(PREFIX.len());
    head.copy_from_slice(PREFIX.as_bytes());
    tail.copy_from_slice(digits.as_slice());
    Ok(text)
}

/// Shares that were given so far, in locked memory. Wiped when dropped.
pub struct Given {
    id: ServerId,
    threshold: u8,
    hashes: Vec<[u8; 32]>,
    shares: Vec<SecretBytes>,
}

impl Given {
    /// None given yet, of a root key that was split with these hashes.
    #[must_use]
    pub fn none(id: ServerId, threshold: u8, hashes: Vec<[u8; 32]>) -> Self {
        Self {
            id,
            threshold,
            hashes,
            shares: Vec::new(),
        }
    }

    /// How many were given.
    #[must_use]
    pub fn count(&self) -> usize {
        self.shares.len()
    }

    /// Takes one more. The root key, when it was the last that was needed; all shares are then forgotten.
    ///
    /// # Errors
    /// SR-8432 when it is not one of this server's; SR-8441 when it was given already.
    pub fn give(&mut self, text: &str) -> Result<Option<SecretKey>, Error> {
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
        // Outside locked memory for the time of this call; wiped when dropped.
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

    /// Forgets what was given.
    pub fn forget(&mut self) {
        self.shares.clear();
    }
}

/// The share in a text, whatever its case and wherever it was broken into lines or groups.
fn parse(text: &str, id: &ServerId) -> Result<Zeroizing<Vec<u8>>, Error> {
    let refused = |detail: &str| Error::new(&code::SERVER_SHARE, detail);
    // Longer than any share can be with a blank after each digit.
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
    let (of, rest) = bytes.split_at(16);
    let (share, sum) = rest.split_at(SHARE_LEN);
    if sha256(&[of, share]).get(..SUM_LEN) != Some(sum) {
        return Err(refused("a digit is wrong"));
    }
    if of != id {
        return Err(refused(&format!("it is for the server {}", hex(of))));
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
            let mut given = Given::none(id, 3, hashes.clone());
            assert!(given.give(&texts[pick[0]]).unwrap().is_none());
            assert!(given.give(&texts[pick[1]]).unwrap().is_none());
            let again = given.give(&texts[pick[1]]).err().unwrap();
            assert_eq!((again.code().number, given.count()), (8441, 2));
            assert!(given.give(&texts[pick[2]]).unwrap().unwrap().ct_eq(&root));
            assert_eq!(given.count(), 0);
        }
    }

    #[test]
    fn a_share_that_is_not_one_is_refused_and_spoils_nothing() {
        let (id, root) = ([3; 16], SecretKey::generate().unwrap());
        let (shares, hashes) = split(&root, &id, 2, 3).unwrap();
        let (others, _) = split(&SecretKey::generate().unwrap(), &id, 2, 3).unwrap();
        let (foreign, _) = split(&root, &[4; 16], 2, 3).unwrap();
        let (mine, others, foreign) = (texts(&shares), texts(&others), texts(&foreign));
        let mut given = Given::none(id, 2, hashes);
        assert!(given.give(&mine[0]).unwrap().is_none());
        let long = "a".repeat(10_000);
        let mut wrong = vec![others[1].clone(), foreign[1].clone(), String::new(), long];
        for at in PREFIX.len()..mine[1].len() {
            let mut text = mine[1].clone().into_bytes();
            text[at] = if text[at] == b'0' { b'1' } else { b'0' };
            wrong.push(String::from_utf8(text).unwrap());
            wrong.push(mine[1][..at].to_owned());
        }
        for text in &wrong {
            assert_eq!(
                given.give(text).err().unwrap().code().number,
                8432,
                "{text}"
            );
        }
        // Broken into lines and in capitals, as people write such things down.
        let written = mine[1].to_uppercase().replace('7', "7 \n");
        assert!(given.give(&written).unwrap().unwrap().ct_eq(&root));
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
