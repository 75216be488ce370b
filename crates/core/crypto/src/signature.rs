//! Verification of signatures over SHA-256: ECDSA on NIST P-256 (FIPS 186-4, fixed-length form),
//! RSASSA-PKCS1-v1_5 (RFC 8017) with a modulus of 2048 to 8192 bits.
//!
//! Invariant: every refusal looks the same. Must not: sign, or decide whose key is trusted.

use ring::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};

use crate::error::OpenError;

/// Verifies a signature (r, then s) by the owner of the public key `point`, uncompressed (SEC 1).
///
/// # Errors
/// [`OpenError`] unless that key signed that message; also when the point is not on the curve.
pub fn verify_p256(
    point: &[u8; 65],
    message: &[u8],
    signature: &[u8; 64],
) -> Result<(), OpenError> {
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
        .verify(message, signature)
        .map_err(|_| OpenError)
}

/// Verifies a signature by the owner of the public key `modulus` and `exponent`, both big-endian;
/// leading zeros of the exponent are ignored.
///
/// # Errors
/// [`OpenError`] unless that key signed that message; also when the modulus has fewer than 2048 or
/// more than 8192 bits.
pub fn verify_rsa(
    modulus: &[u8],
    exponent: &[u8],
    message: &[u8],
    signature: &[u8],
) -> Result<(), OpenError> {
    let zeros = exponent.iter().take_while(|byte| **byte == 0).count();
    let key = RsaPublicKeyComponents {
        n: modulus,
        e: exponent.get(zeros..).unwrap_or_default(),
    };
    key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
        .map_err(|_| OpenError)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(parts: &[&str]) -> Vec<u8> {
        let text = parts.concat();
        (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
            .collect()
    }

    /// RFC 6979, A.2.5, SHA-256, "sample".
    #[test]
    fn p256_agrees_with_rfc_6979_and_takes_nothing_else() {
        let point: [u8; 65] = hex(&[
            "04",
            "60fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb6",
            "7903fe1008b8bc99a41ae9e95628bc64f2f1b20c2d7e9f5177a3c294d4462299",
        ])
        .try_into()
        .unwrap();
        let signature: [u8; 64] = hex(&[
            "efd48b2aacb6a8fd1140dd9cd45e81d69d2c877b56aaf991c34d0ea84eaf3716",
            "f7cb1c942d657c41d436c7a1b6e29f65f3e900dbb9aff4064dc4ab2f843acda8",
        ])
        .try_into()
        .unwrap();
        assert_eq!(verify_p256(&point, b"sample", &signature), Ok(()));
        assert_eq!(verify_p256(&point, b"simple", &signature), Err(OpenError));
        for bit in 0..512 {
            let mut bad = signature;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                verify_p256(&point, b"sample", &bad),
                Err(OpenError),
                "{bit}"
            );
        }
        assert_eq!(verify_p256(&point, b"sample", &[0; 64]), Err(OpenError));
        let mut off = point;
        off[64] ^= 1;
        assert_eq!(verify_p256(&off, b"sample", &signature), Err(OpenError));
    }

    /// Key and signature made with OpenSSL 3.0 (`openssl dgst -sha256 -sign`).
    #[test]
    fn rsa_agrees_with_openssl_and_takes_nothing_else() {
        let modulus = hex(&MODULUS);
        let signature = hex(&SIGNATURE);
        let verify = |exponent: &[u8], message: &[u8], signature: &[u8]| {
            verify_rsa(&modulus, exponent, message, signature)
        };
        assert_eq!(verify(&[0, 1, 0, 1], b"strongroom", &signature), Ok(()));
        let refused = [
            verify(&[1, 0, 1], b"strongrooms", &signature),
            verify(&[3], b"strongroom", &signature),
            verify(&[], b"strongroom", &signature),
            verify(&[1, 0, 1], b"strongroom", &signature[1..]),
            verify(&[1, 0, 1], b"strongroom", &[]),
        ];
        assert_eq!(refused, [Err(OpenError); 5]);
        for at in 0..signature.len() {
            let mut bad = signature.clone();
            bad[at] ^= 1;
            let answer = verify(&[1, 0, 1], b"strongroom", &bad);
            assert_eq!(answer, Err(OpenError), "byte {at}");
        }
        // Right, but of 1024 bits.
        let short = verify_rsa(
            &hex(&SHORT_MODULUS),
            &[1, 0, 1],
            b"strongroom",
            &hex(&SHORT_SIGNATURE),
        );
        assert_eq!(short, Err(OpenError));
    }

    const MODULUS: [&str; 6] = [
        "cd2aec430bd96048eabc8f671e84ba5a9b30d9f02632f6216fd5da8a4dc5a72ddffdaa7def04e3c13071fdfae92ed9d7",
        "1627b02bf75eeb1fc24fe3ac53752cfb33e34486917c879978364aef4594d91afa59dc4b8f5ed3733579d97390d6909c",
        "74576b2d1cf64f6d889b65487039fecf497ac587518d102fa0a95e5979dead9b084d98937661ef357804c7c0c0e4940b",
        "86969425a261e7f4567c1e5503c298c808301aa495b2454190ecda4b5cc27ec45df0bb3f7e830cf5e1f972a3a804d302",
        "27a7c501f1d83bf5891c80d256550e49bcf90ae2d5dc1bceba77bf4f26030a67409e7fdd75981d495edfaf61dfe475b3",
        "2c4c3f8f2a61d7e839fc5185098a16bb",
    ];
    const SIGNATURE: [&str; 6] = [
        "9a33dfa0790728c0e9dd61f3095d4deb1276c3ab78cac98cba25d022f67b20e93a06a7271c6366d5510acc495f3c1ff5",
        "495c569bd57f23721d4f9205448836bd01404d957ba99606477c144933ce69dcc6a7d5f8a86ca26010f63dc363a8048a",
        "6dc8aaec7fd60d7e325e8d0b1069ac7348f414a7e7ea31fe2ae830fb548d0e3603592dc5bf54a83581f1658fa9d046ff",
        "2091a55dfc8ef429af6e7ac15452d9c4a7208d74f0df7b75ea1b3d690deeb162035df3ccc3056f6057b4325ef7e05edb",
        "f47932a37e35dfdb362424fa27d767e820746b014095c166d1bd2beeeb00098417a81fbdf8ee4dffc06efd44686c3cfd",
        "7f6c9fef2bf412442ca972ebc2438435",
    ];
    const SHORT_MODULUS: [&str; 3] = [
        "c87b0f6897d5a8ee3e6fd6c80920b702cabd8f4279b2be9624e12ab7a14272618989edb594f2ffee734e5fae45ec8e79",
        "ca0a312097541529ba53a0859068ba58b73855c0afe58785765fca2f9cca87a18fbffcd4c2a505480c2b2a78d0ce5c2d",
        "1e819721424e7f80ad56d66359ce9c69a19de6b3325cbbe61662e536c9e3bd6b",
    ];
    const SHORT_SIGNATURE: [&str; 3] = [
        "b89aa871518ede18540e62bb7a7e8c61400eaa984f3e06dfa11c0b1b2668a6944c0657d546cae867c54ccfb702d16d53",
        "120d5ec802b52190b45a7191a5738017cda7b32b16597d00fac22b537249f6c48aa03d38cd69f30f60b71f70a2f1f75f",
        "95a688c6ec941f25b32bdd7a4a4081df064f2498314e0b53b383189d92c67744",
    ];
}
