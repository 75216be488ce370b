//! Verification of signatures: ECDSA on NIST P-256 with SHA-256 and on NIST P-384 with SHA-384
//! (FIPS 186-4), RSASSA-PKCS1-v1_5 with SHA-256 and RSASSA-PSS with SHA-384 (RFC 8017) with a
//! modulus of 2048 to 8192 bits.
//!
//! Invariant: every refusal looks the same. Must not: sign, or decide whose key is trusted.

use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED,
    RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RsaPublicKeyComponents,
    UnparsedPublicKey, VerificationAlgorithm,
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
    verify(&ECDSA_P256_SHA256_FIXED, point, message, signature)
}

/// Verifies a signature in DER (`ECDSA-Sig-Value`, RFC 3279, section 2.2.3), as certificates have
/// it, by the owner of the public key `point`, uncompressed (SEC 1), on P-256.
///
/// # Errors
/// [`OpenError`] unless that key signed that message; also when the point is not on the curve.
pub fn verify_p256_der(point: &[u8], message: &[u8], signature: &[u8]) -> Result<(), OpenError> {
    verify(&ECDSA_P256_SHA256_ASN1, point, message, signature)
}

/// Verifies a signature with SHA-384 (r, then s) by the owner of the public key `point`,
/// uncompressed (SEC 1), on P-384.
///
/// # Errors
/// [`OpenError`] unless that key signed that message; also when the point is not on the curve.
pub fn verify_p384(point: &[u8], message: &[u8], signature: &[u8; 96]) -> Result<(), OpenError> {
    verify(&ECDSA_P384_SHA384_FIXED, point, message, signature)
}

/// Verifies an RSASSA-PSS signature with SHA-384, MGF1 with SHA-384 and a salt of 48 bytes.
/// `public_key` is an `RSAPublicKey` in DER (RFC 8017, appendix A.1.1), as certificates have it.
///
/// # Errors
/// [`OpenError`] unless that key signed that message; also when the modulus has fewer than 2048 or
/// more than 8192 bits.
pub fn verify_rsa_pss(
    public_key: &[u8],
    message: &[u8],
    signature: &[u8],
) -> Result<(), OpenError> {
    verify(&RSA_PSS_2048_8192_SHA384, public_key, message, signature)
}

/// Verifies a signature with this algorithm. Fails with [`OpenError`] unless that key signed that
/// message.
fn verify(
    algorithm: &'static dyn VerificationAlgorithm,
    public_key: &[u8],
    message: &[u8],
    signature: &[u8],
) -> Result<(), OpenError> {
    UnparsedPublicKey::new(algorithm, public_key)
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

    /// RFC 6979, A.2.5, SHA-256, "sample", with the signature in DER.
    #[test]
    fn p256_signatures_of_certificates_are_taken_and_nothing_else() {
        let point = hex(&[
            "04",
            "60fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb6",
            "7903fe1008b8bc99a41ae9e95628bc64f2f1b20c2d7e9f5177a3c294d4462299",
        ]);
        let signature = hex(&[
            "3046",
            "022100efd48b2aacb6a8fd1140dd9cd45e81d69d2c877b56aaf991c34d0ea84eaf3716",
            "022100f7cb1c942d657c41d436c7a1b6e29f65f3e900dbb9aff4064dc4ab2f843acda8",
        ]);
        assert_eq!(verify_p256_der(&point, b"sample", &signature), Ok(()));
        assert!(verify_p256_der(&point, b"simple", &signature).is_err());
        assert!(verify_p256_der(&point[1..], b"sample", &signature).is_err());
        for at in 0..signature.len() {
            let mut bad = signature.clone();
            bad[at] ^= 1;
            assert!(verify_p256_der(&point, b"sample", &bad).is_err(), "{at}");
            assert!(verify_p256_der(&point, b"sample", &signature[..at]).is_err());
        }
    }

    /// RFC 6979, A.2.6, SHA-384, "sample".
    #[test]
    fn p384_agrees_with_rfc_6979_and_takes_nothing_else() {
        let point = hex(&[
            "04",
            "ec3a4e415b4e19a4568618029f427fa5da9a8bc4ae92e02e06aae5286b300c64",
            "def8f0ea9055866064a254515480bc13",
            "8015d9b72d7d57244ea8ef9ac0c621896708a59367f9dfb9f54ca84b3f1c9db1",
            "288b231c3ae0d4fe7344fd2533264720",
        ]);
        let signature: [u8; 96] = hex(&[
            "94edbb92a5ecb8aad4736e56c691916b3f88140666ce9fa73d64c4ea95ad133c",
            "81a648152e44acf96e36dd1e80fabe46",
            "99ef4aeb15f178cea1fe40db2603138f130e740a19624526203b6351d0a3a94f",
            "a329c145786e679e7b82c71a38628ac8",
        ])
        .try_into()
        .unwrap();
        assert_eq!(verify_p384(&point, b"sample", &signature), Ok(()));
        assert!(verify_p384(&point, b"simple", &signature).is_err());
        assert!(verify_p384(&point, b"sample", &[0; 96]).is_err());
        assert!(verify_p384(&point[1..], b"sample", &signature).is_err());
        for at in 0..96 {
            let mut bad = signature;
            bad[at] ^= 1;
            assert!(verify_p384(&point, b"sample", &bad).is_err(), "{at}");
        }
        let mut off = point;
        off[96] ^= 1;
        assert!(verify_p384(&off, b"sample", &signature).is_err());
    }

    /// Key and signatures made with OpenSSL 3.0 (`openssl dgst -sha384 -sign`, padding `pss`, salts
    /// of 48 and 32 bytes).
    #[test]
    fn pss_agrees_with_openssl_and_takes_nothing_else() {
        let (key, signature) = (hex(&PSS_KEY), hex(&PSS_SIGNATURE));
        assert_eq!(verify_rsa_pss(&key, b"strongroom", &signature), Ok(()));
        let refused = [
            verify_rsa_pss(&key, b"strongrooms", &signature),
            verify_rsa_pss(&key[1..], b"strongroom", &signature),
            verify_rsa_pss(&key, b"strongroom", &signature[1..]),
            verify_rsa_pss(&key, b"strongroom", &[]),
            verify_rsa_pss(&key, b"strongroom", &hex(&PSS_SHORT_SALT)),
        ];
        assert_eq!(refused, [Err(OpenError); 5]);
        for at in 0..signature.len() {
            let mut bad = signature.clone();
            bad[at] ^= 1;
            let answer = verify_rsa_pss(&key, b"strongroom", &bad);
            assert_eq!(answer, Err(OpenError), "byte {at}");
        }
    }

    const PSS_KEY: [&str; 6] = [
        "3082010a0282010100d25b21dfd814a661620e97623b0bb9971a072639c03a2da377a1d91f3f7623cbea1a57b0959a9e",
        "feae8a7f3b648962f36c7e585d5a9ece3b23c750c25e300f420a669ea09f770091a048d96eedfd17ad833443bc020bc8",
        "63a92613cda0478c8f86ec3a16a0e66699d7ce13ae8f3b6ba96acb138a797dbd639b981e53f8e4fb3abc16dcdbf74304",
        "02f04996fdd6422c793a8be924bf775c214c7b76427453cd971b42a77e9397671776abb501a3fa759436b0aaa16d0156",
        "fe95fe10f322bea4798e00c187e60bef6177d7a78ff82bf1b16e40e95dcdb9f7bf7644ea93a41c257fc47948a0ba22b4",
        "9996eb414df596323dba70337a3dd7fac02d5c77e0eab450a10203010001",
    ];
    const PSS_SIGNATURE: [&str; 6] = [
        "7c8adcbf726bafae970db0eadc6e4715a3edc8631bf5ea82db7d1b414eff539623584a9c229dcdbebfc15bd6277aa95d",
        "24d6cfdc3c932b5d6c7b655003bd8ad35e5991c44b0b7ef1ecb2b3e09a1b19797399f7ff27bcbbfec1c1babfd88eccba",
        "dacccee3bf8a62de1f5aeb1ae86979c5e69db74208cd28916c08d5c259125cf0d4dfefe939e4e44ad6ba2465e95aa503",
        "df524eed6d97622dab70123dd819ff02af119166d36d1013923d1b9d403b1a99e06d3f576f7af5a26b4015d3ef4218b3",
        "85e22861aa196c3580affd27ccd24ae6f9664b2c6aec8a6be93301aff188eaff3e47023241344cd82636fbc20b3bf36b",
        "c180b56f1f21f94cdc1d14ee89172b79",
    ];
    const PSS_SHORT_SALT: [&str; 6] = [
        "4fd56686a41993e2ea2bce77aa5ebc88752fe99ebf6da7c0762e182d69d265ca8692fa49bb8f8a05dab1a8895fa9dac2",
        "4c43eddd4d9997e6691568b3f0bf9ffa576901b92a09edcbbf08406c682c7bc82fda25a453312bdea30636df66377aab",
        "45137f053798b01177fd346891ddef6d0cb36185791f231d83e1ddfaf2e024a2bd56d5e5c95a507a7effdd393023d1ca",
        "c11a738f60bcfa6597a5b4eafae9d06498d14006abf27810c83ab25a0e914f45ae11c47a824d4f7097c8bf7bbc07c487",
        "314340db2e905fb4f8868d620578d8dd914feb2168f79173ac51eaa139147e57b23e200e0e4419c0b9041977cc82c673",
        "e45dec01781ca2647f7178b7d2b49da5",
    ];
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
