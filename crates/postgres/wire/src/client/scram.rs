//! The client's side of SCRAM-SHA-256 (RFC 5802, RFC 7677), with or without channel binding
//! (RFC 5929). Keys are in locked memory.
//!
//! It is our own because `postgres-protocol` refuses servers with more than 100 000 rounds, and
//! leaves copies of the password in memory. Must not: say that the exchange is done before the
//! server has proved that it knows the password.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use strongroom_crypto::{MacKey, SecretBytes, random32, sha256};
use zeroize::Zeroizing;

use super::error::AuthenticationError;

/// INT(1) of RFC 5802, section 2.2.
const FIRST_BLOCK: [u8; 4] = [0, 0, 0, 1];

const MALFORMED: AuthenticationError = AuthenticationError::Scram("a malformed challenge");

/// What the exchange is bound to.
#[derive(Clone, Debug)]
pub(crate) enum ChannelBinding {
    /// The client cannot bind.
    Unsupported,
    /// The client could have bound, and the server does not offer it. A server that did offer it
    /// learns so that its offer was removed by an attacker.
    NotOffered,
    /// `tls-server-end-point`: the hash of the server's certificate.
    EndPoint(Vec<u8>),
}

impl ChannelBinding {
    /// Returns the `gs2-header` of RFC 5802, section 7: whether and how the client binds.
    const fn header(&self) -> &'static str {
        match self {
            Self::Unsupported => "n,,",
            Self::NotOffered => "y,,",
            Self::EndPoint(_) => "p=tls-server-end-point,,",
        }
    }

    /// Returns the `cbind-input` of RFC 5802, section 7: the header, and the hash where the
    /// exchange is bound.
    fn input(&self) -> Vec<u8> {
        let mut input = self.header().as_bytes().to_vec();
        if let Self::EndPoint(hash) = self {
            input.extend_from_slice(hash);
        }
        input
    }
}

/// One exchange.
pub(crate) struct Scram {
    /// Empty: the server knows the user from the startup packet.
    user: &'static str,
    nonce: String,
    binding: ChannelBinding,
    rounds_max: u32,
    /// The signature by which the server proves that it knows the password; `None` before the
    /// client's final message.
    expected: Option<[u8; 32]>,
}

impl Scram {
    /// Begins an exchange with a random nonce. The server may ask for at most `rounds_max` rounds.
    /// Fails with `System` if there are no random numbers.
    pub(crate) fn begin(
        binding: ChannelBinding,
        rounds_max: u32,
    ) -> Result<Self, AuthenticationError> {
        let random = random32().map_err(|_| AuthenticationError::System("no random numbers"))?;
        Ok(Self {
            user: "",
            nonce: STANDARD.encode(random),
            binding,
            rounds_max,
            expected: None,
        })
    }

    /// Returns the client's first message.
    pub(crate) fn first_message(&self) -> String {
        format!("{}{}", self.binding.header(), self.first_bare())
    }

    /// Returns the `client-first-message-bare` of RFC 5802, section 7: the first message without
    /// the header.
    fn first_bare(&self) -> String {
        format!("n={},r={}", self.user, self.nonce)
    }

    /// Checks the server's challenge and returns the client's final message, which proves that it
    /// knows the password (RFC 5802, section 3). Keeps the proof that the server has to give. Fails
    /// with `Scram` if the challenge is malformed, is not for this nonce, was answered already, or
    /// asks for no round or too many; with `System` if there is no locked memory.
    pub(crate) fn final_message(
        &mut self,
        password: &[u8],
        challenge: &[u8],
    ) -> Result<String, AuthenticationError> {
        let challenge = str::from_utf8(challenge).map_err(|_| MALFORMED)?;
        let mut parts = challenge.split(',');
        let mut part = |name: &str| parts.next().and_then(|part| part.strip_prefix(name));
        let nonce = part("r=").ok_or(MALFORMED)?;
        let salt = part("s=").and_then(|salt| STANDARD.decode(salt).ok());
        let rounds = part("i=").and_then(|rounds| rounds.parse::<u32>().ok());
        let (Some(salt), Some(rounds)) = (salt, rounds) else {
            return Err(MALFORMED);
        };
        let extends = nonce.len() > self.nonce.len() && nonce.starts_with(&self.nonce);
        if !extends || self.expected.is_some() {
            return Err(AuthenticationError::Scram("the answer to another exchange"));
        }
        if !(1..=self.rounds_max).contains(&rounds) {
            return Err(AuthenticationError::Scram(
                "a number of rounds that is not accepted",
            ));
        }
        let salted = salted_password(password, &salt, rounds)?;
        let key = mac_key(&salted)?;
        let client_key = Zeroizing::new(key.mac(&[b"Client Key"]));
        let server_key = key.mac(&[b"Server Key"]);
        let binding = STANDARD.encode(self.binding.input());
        let without_proof = format!("c={binding},r={nonce}");
        let message = format!("{},{challenge},{without_proof}", self.first_bare());
        let sign = |mut key: [u8; 32]| -> Result<[u8; 32], AuthenticationError> {
            let key = SecretBytes::take(&mut key).map_err(|_| NO_MEMORY)?;
            Ok(mac_key(&key)?.mac(&[message.as_bytes()]))
        };
        let mut proof = sign(sha256(&[client_key.as_slice()]))?;
        for (to, from) in proof.iter_mut().zip(*client_key) {
            *to ^= from;
        }
        self.expected = Some(sign(server_key)?);
        Ok(format!("{without_proof},p={}", STANDARD.encode(proof)))
    }

    /// Checks the server's final message, which must prove that it knows the password. Fails with
    /// `NotProven` if the proof is wrong or malformed, or the client's final message was not made
    /// yet.
    pub(crate) fn check_proof(&self, last: &[u8]) -> Result<(), AuthenticationError> {
        let proof = str::from_utf8(last).ok();
        let proof = proof.and_then(|last| STANDARD.decode(last.strip_prefix("v=")?).ok());
        match (proof, self.expected) {
            (Some(proof), Some(expected)) if proof == expected => Ok(()),
            _ => Err(AuthenticationError::NotProven),
        }
    }
}

const NO_MEMORY: AuthenticationError = AuthenticationError::System("no locked memory");

/// Makes an HMAC-SHA-256 key of a secret. Fails with `System` if there is no locked memory.
fn mac_key(secret: &SecretBytes) -> Result<MacKey, AuthenticationError> {
    MacKey::of_password(secret).map_err(|_| NO_MEMORY)
}

/// Computes the `SaltedPassword` of RFC 5802, section 3, in this many rounds. Fails with `System`
/// if there is no locked memory.
fn salted_password(
    password: &[u8],
    salt: &[u8],
    rounds: u32,
) -> Result<SecretBytes, AuthenticationError> {
    let mut prepared = prepare(password);
    let key = mac_key(&SecretBytes::take(&mut prepared).map_err(|_| NO_MEMORY)?)?;
    let mut salted = key.mac(&[salt, &FIRST_BLOCK]);
    let mut round = Zeroizing::new(salted);
    for _ in 1..rounds {
        *round = key.mac(&[round.as_slice()]);
        for (to, from) in salted.iter_mut().zip(*round) {
            *to ^= from;
        }
    }
    SecretBytes::take(&mut salted).map_err(|_| NO_MEMORY)
}

/// Returns the password as `SASLprep` (RFC 4013) makes it. One that is not UTF-8, or that
/// `SASLprep` does not allow, is returned as it is: the server does the same
/// (src/common/scram-common.c).
fn prepare(password: &[u8]) -> Zeroizing<Vec<u8>> {
    let prepared = str::from_utf8(password)
        .ok()
        .and_then(|text| stringprep::saslprep(text).ok());
    Zeroizing::new(match prepared {
        Some(text) => text.into_owned().into_bytes(),
        None => password.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: &str = "rOprNGfwEbeRWgbNEkqO";

    fn scram(binding: ChannelBinding) -> Scram {
        Scram {
            user: "user",
            nonce: NONCE.to_owned(),
            binding,
            rounds_max: 10_000,
            expected: None,
        }
    }

    /// RFC 7677, section 3.
    #[test]
    fn the_exchange_of_the_rfc() {
        let mut scram = scram(ChannelBinding::Unsupported);
        assert_eq!(scram.first_message(), format!("n,,n=user,r={NONCE}"));
        let nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let challenge = format!("r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096");
        assert!(scram.check_proof(b"v=AAAA").is_err());
        let answer = scram
            .final_message(b"pencil", challenge.as_bytes())
            .unwrap();
        let proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert_eq!(answer, format!("c=biws,r={nonce},p={proof}"));
        assert!(scram.check_proof(b"v=AAAA").is_err());
        let last = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
        scram.check_proof(last).unwrap();
        assert!(
            scram
                .final_message(b"pencil", challenge.as_bytes())
                .is_err()
        );
    }

    /// Whether and how the exchange is bound is part of what both sides sign.
    #[test]
    fn the_binding_is_part_of_the_exchange() {
        let challenge = format!("r={NONCE}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1");
        let end_point = ChannelBinding::EndPoint(vec![1, 2, 3]);
        let mut proofs = std::collections::BTreeSet::new();
        for (binding, header) in [
            (ChannelBinding::Unsupported, "n,,"),
            (ChannelBinding::NotOffered, "y,,"),
            (end_point, "p=tls-server-end-point,,"),
        ] {
            let mut input = header.as_bytes().to_vec();
            if let ChannelBinding::EndPoint(hash) = &binding {
                input.extend_from_slice(hash);
            }
            let mut scram = scram(binding);
            assert!(scram.first_message().starts_with(header));
            let answer = scram
                .final_message(b"pencil", challenge.as_bytes())
                .unwrap();
            let begins = format!("c={},r={NONCE}x,p=", STANDARD.encode(input));
            assert!(answer.starts_with(&begins), "{answer}");
            proofs.insert(scram.expected.unwrap());
        }
        assert_eq!(proofs.len(), 3);
    }

    #[test]
    fn another_server_s_challenge_is_refused() {
        for bad in [
            "r=other,s=W22Z,i=1",
            "r=NONCE,s=W22Z,i=1",
            "r=NONCEx,s=W22Z,i=0",
            "r=NONCEx,s=W22Z,i=10001",
            "r=NONCEx,s=W22Z",
        ] {
            let challenge = bad.replace("NONCE", NONCE);
            let answer =
                scram(ChannelBinding::Unsupported).final_message(b"pencil", challenge.as_bytes());
            assert!(answer.is_err(), "{bad}");
        }
    }

    #[test]
    fn passwords_are_prepared_as_the_server_does() {
        // The examples of RFC 4013, section 3; the last one is not allowed.
        assert_eq!(prepare("I\u{ad}X".as_bytes()).as_slice(), b"IX");
        assert_eq!(prepare("\u{aa}".as_bytes()).as_slice(), b"a");
        assert_eq!(prepare(b"\x07").as_slice(), b"\x07");
        assert_eq!(prepare(b"\xff").as_slice(), b"\xff");
    }
}
