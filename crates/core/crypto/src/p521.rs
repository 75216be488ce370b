//! NIST P-521 for Tang: the McCallum-Relyea exchange ("ECMR"), and verification of ECDSA with
//! SHA-512 ("ES512", RFC 7518, section 3.4), by libcrypto.
//!
//! With a server's point S = s G: a client draws c, keeps C = c G, and derives a key from K = c S.
//! Later it draws e, asks the server for Y = s (C + e G), and finds K = Y - e S. The server learns
//! nothing about C or K, and neither does an eavesdropper.
//!
//! Invariants: scalars and K are in locked memory; a point is on the curve before anything is done
//! with it; the point at infinity is refused.
//!
//! Must not: know JSON, or decide whose key it is.

use openssl::bn::{BigNum, BigNumContext};
use openssl::ec::{EcGroup, EcKey, EcPoint, EcPointRef, PointConversionForm};
use openssl::ecdsa::EcdsaSig;
use openssl::error::ErrorStack;
use openssl::hash::{MessageDigest, hash};
use openssl::nid::Nid;

use crate::error::{CryptoError, OpenError};
use crate::kdf::hkdf_into;
use crate::rsa::with_private;
use crate::secret::{SecretBytes, SecretKey};

/// Length of a coordinate or a scalar, in bytes.
const FIELD: usize = 66;

/// A point: x, then y.
pub type P521Point = [u8; 2 * FIELD];

/// Draws a random client key, and derives a key from it and the server's point, with `info`.
/// Returns that key with the client's point, from which it can be recovered with the server's help.
///
/// # Errors
/// [`CryptoError::Key`] when `server` is not a point on the curve;
/// [`CryptoError::OutOfLockedMemory`] without memory for keys; [`CryptoError::Library`] when
/// libcrypto fails, as without random numbers.
pub fn ecmr_provision(
    server: &P521Point,
    info: &[u8],
) -> Result<(SecretKey, P521Point), CryptoError> {
    with_private(|| {
        let (group, mut context) = curve()?;
        let server = parse_point(&group, server, &mut context)?;
        let client = EcKey::generate(&group).map_err(library)?;
        let mut shared = EcPoint::new(&group).map_err(library)?;
        shared
            .mul2(&group, &server, client.private_key(), &mut context)
            .map_err(library)?;
        let key = derive_key(&group, &shared, info, &mut context)?;
        Ok((key, point_bytes(&group, client.public_key(), &mut context)?))
    })?
}

/// Blinds the client's point with a random scalar for a request to the server. Returns the scalar,
/// which is kept, and the point to send.
///
/// # Errors
/// [`CryptoError::Key`] when `client` is not a point on the curve;
/// [`CryptoError::OutOfLockedMemory`] without memory for keys; [`CryptoError::Library`] when
/// libcrypto fails, as without random numbers.
pub fn ecmr_blind(client: &P521Point) -> Result<(SecretBytes, P521Point), CryptoError> {
    with_private(|| {
        let (group, mut context) = curve()?;
        let client = parse_point(&group, client, &mut context)?;
        let blind = EcKey::generate(&group).map_err(library)?;
        let mut sum = EcPoint::new(&group).map_err(library)?;
        sum.add(&group, &client, blind.public_key(), &mut context)
            .map_err(library)?;
        let length = i32::try_from(FIELD).map_err(|_| CryptoError::Length)?;
        let mut scalar = blind.private_key().to_vec_padded(length).map_err(library)?;
        let asked = point_bytes(&group, &sum, &mut context)?;
        Ok((SecretBytes::take(&mut scalar)?, asked))
    })?
}

/// Recovers the key from the server's answer. `blind` is the scalar of [`ecmr_blind`], `server` the
/// server's point, `info` that of [`ecmr_provision`]. Another scalar or answer gives another key,
/// and no error.
///
/// # Errors
/// [`CryptoError::Key`] when `server` or the answer is not a point on the curve;
/// [`CryptoError::OutOfLockedMemory`] without memory for keys; [`CryptoError::Library`] when
/// libcrypto fails.
pub fn ecmr_recover(
    blind: &SecretBytes,
    server: &P521Point,
    answer: &P521Point,
    info: &[u8],
) -> Result<SecretKey, CryptoError> {
    with_private(|| {
        let (group, mut context) = curve()?;
        let server = parse_point(&group, server, &mut context)?;
        let answer = parse_point(&group, answer, &mut context)?;
        let scalar = BigNum::from_slice(blind.as_slice()).map_err(library)?;
        let mut undo = EcPoint::new(&group).map_err(library)?;
        undo.mul2(&group, &server, &scalar, &mut context)
            .map_err(library)?;
        undo.invert2(&group, &mut context).map_err(library)?;
        let mut shared = EcPoint::new(&group).map_err(library)?;
        shared
            .add(&group, &answer, &undo, &mut context)
            .map_err(library)?;
        derive_key(&group, &shared, info, &mut context)
    })?
}

/// Verifies an ES512 signature (r, then s) by the owner of `key`.
///
/// # Errors
/// [`OpenError`] unless that key signed that message; also when the point is not on the curve.
pub fn verify_p521(
    key: &P521Point,
    message: &[u8],
    signature: &[u8; 2 * FIELD],
) -> Result<(), OpenError> {
    let verified = with_private(|| {
        let (group, mut context) = curve().ok()?;
        let key = parse_point(&group, key, &mut context).ok()?;
        let key = EcKey::from_public_key(&group, &key).ok()?;
        let digest = hash(MessageDigest::sha512(), message).ok()?;
        let (r, s) = signature.split_at(FIELD);
        let (r, s) = (BigNum::from_slice(r).ok()?, BigNum::from_slice(s).ok()?);
        let signature = EcdsaSig::from_private_components(r, s).ok()?;
        signature.verify(&digest, &key).ok()
    });
    match verified {
        Ok(Some(true)) => Ok(()),
        _ => Err(OpenError),
    }
}

/// Returns NIST P-521, and memory for computing on it. Errors: [`CryptoError::Library`] when the
/// library fails.
fn curve() -> Result<(EcGroup, BigNumContext), CryptoError> {
    let group = EcGroup::from_curve_name(Nid::SECP521R1).map_err(library)?;
    Ok((group, BigNumContext::new().map_err(library)?))
}

/// Parses a point: x, then y. Errors: [`CryptoError::Key`] when it is not on the curve, or
/// libcrypto fails.
fn parse_point(
    group: &EcGroup,
    bytes: &P521Point,
    context: &mut BigNumContext,
) -> Result<EcPoint, CryptoError> {
    let encoded = [&[4][..], bytes].concat();
    EcPoint::from_bytes(group, &encoded, context).map_err(|_| CryptoError::Key)
}

/// Returns the coordinates of a point: x, then y. Errors: [`CryptoError::Key`] for the point at
/// infinity; [`CryptoError::Library`] when the library fails.
fn point_bytes(
    group: &EcGroup,
    point: &EcPointRef,
    context: &mut BigNumContext,
) -> Result<P521Point, CryptoError> {
    let form = PointConversionForm::UNCOMPRESSED;
    let encoded = point.to_bytes(group, form, context).map_err(library)?;
    // One byte is the point at infinity.
    let bare = encoded.get(1..).unwrap_or_default();
    bare.try_into().map_err(|_| CryptoError::Key)
}

/// Derives a key with HKDF from the x coordinate of the shared point. Errors: [`CryptoError::Key`]
/// for the point at infinity; [`CryptoError::OutOfLockedMemory`] without memory for keys;
/// [`CryptoError::Library`] when the library fails.
fn derive_key(
    group: &EcGroup,
    shared: &EcPointRef,
    info: &[u8],
    context: &mut BigNumContext,
) -> Result<SecretKey, CryptoError> {
    let mut point = point_bytes(group, shared, context)?;
    let whole = SecretBytes::take(&mut point)?;
    let (x, _) = whole.as_slice().split_at(FIELD);
    SecretKey::filled_by(|out| hkdf_into(x, b"", info, out))
}

/// Turns libcrypto's errors, which are dropped, into [`CryptoError::Library`] when the library
/// fails.
fn library(_: ErrorStack) -> CryptoError {
    CryptoError::Library
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server: its scalar, its point.
    fn server() -> (EcKey<openssl::pkey::Private>, P521Point) {
        let (group, mut context) = curve().unwrap();
        let key = EcKey::generate(&group).unwrap();
        let public = point_bytes(&group, key.public_key(), &mut context).unwrap();
        (key, public)
    }

    fn answer(key: &EcKey<openssl::pkey::Private>, asked: &P521Point) -> P521Point {
        let (group, mut context) = curve().unwrap();
        let asked = parse_point(&group, asked, &mut context).unwrap();
        let mut product = EcPoint::new(&group).unwrap();
        product
            .mul2(&group, &asked, key.private_key(), &mut context)
            .unwrap();
        point_bytes(&group, &product, &mut context).unwrap()
    }

    #[test]
    fn the_key_is_found_again_with_the_servers_help_and_no_other() {
        let (private, public) = server();
        let (key, client) = ecmr_provision(&public, b"info").unwrap();
        let (blind, asked) = ecmr_blind(&client).unwrap();
        assert_ne!(asked, client, "the server does not see the client's point");
        let answered = answer(&private, &asked);
        let found = ecmr_recover(&blind, &public, &answered, b"info").unwrap();
        assert!(found.ct_eq(&key));
        let other = ecmr_recover(&blind, &public, &answered, b"other").unwrap();
        assert!(!other.ct_eq(&key), "info takes part");
        let (again, asked_again) = ecmr_blind(&client).unwrap();
        assert_ne!(asked_again, asked);
        let stale = ecmr_recover(&again, &public, &answered, b"info").unwrap();
        assert!(!stale.ct_eq(&key), "an answer to another question");
        let (foreign, _) = server();
        let wrong = answer(&foreign, &asked);
        let wrong = ecmr_recover(&blind, &public, &wrong, b"info").unwrap();
        assert!(!wrong.ct_eq(&key), "another server");
    }

    #[test]
    fn points_beside_the_curve_are_refused() {
        let (_, public) = server();
        let mut beside = public;
        beside[131] ^= 1;
        for point in [&beside, &[0; 132], &[0xff; 132]] {
            assert_eq!(ecmr_provision(point, b"").err(), Some(CryptoError::Key));
            assert_eq!(ecmr_blind(point).err(), Some(CryptoError::Key));
        }
    }

    /// RFC 6979, A.2.7, SHA-512, "sample".
    #[test]
    fn es512_agrees_with_rfc_6979_and_takes_nothing_else() {
        let read = |parts: [&str; 2]| -> [u8; 132] {
            let text = parts.map(|part| format!("{part:0>132}")).concat();
            let digits = (0..text.len()).step_by(2);
            let bytes: Vec<u8> = digits
                .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
                .collect();
            bytes.try_into().unwrap()
        };
        let key = read([
            "1894550D0785932E00EAA23B694F213F8C3121F86DC97A04E5A7167DB4E5BCD371123D46E45DB6B5D5370A7F20FB633155D38FFA16D2BD761DCAC474B9A2F5023A4",
            "0493101C962CD4D2FDDF782285E64584139C2F91B47F87FF82354D6630F746A28A0DB25741B5B34A828008B22ACC23F924FAAFBD4D33F81EA66956DFEAA2BFDFCF5",
        ]);
        let signature = read([
            "0C328FAFCBD79DD77850370C46325D987CB525569FB63C5D3BC53950E6D4C5F174E25A1EE9017B5D450606ADD152B534931D7D4E8455CC91F9B15BF05EC36E377FA",
            "0617CCE7CF5064806C467F678D3B4080D6F1CC50AF26CA209417308281B68AF282623EAA63E5B5C0723D8B8C37FF0777B1A20F8CCB1DCCC43997F1EE0E44DA4A67A",
        ]);
        verify_p521(&key, b"sample", &signature).unwrap();
        assert!(verify_p521(&key, b"simple", &signature).is_err());
        for at in [5, 131] {
            let mut changed = signature;
            changed[at] ^= 1;
            assert!(verify_p521(&key, b"sample", &changed).is_err());
        }
        assert!(verify_p521(&key, b"sample", &[0; 132]).is_err());
        assert!(verify_p521(&[1; 132], b"sample", &signature).is_err());
    }
}
