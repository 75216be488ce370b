//! Authentication: nothing, a password in clear over a UNIX socket, or SCRAM-SHA-256 (RFC 5802, RFC
//! 7677) without channel binding.
//!
//! MD5 is refused: with it the hash in the server's catalog is as good as the password. Must not:
//! send a password in clear over a network.

use std::io::{self, BufReader, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use strongroom_crypto::{MacKey, SecretBytes, random32, sha256};

use super::error::{Error, server_error};
use crate::proxy::Address;
use crate::proxy::stream::Stream;
use crate::proxy::wire::{self, Builder, Fields};

/// Protocol 3.0.
const VERSION: i32 = 3 << 16;
/// Codes of `Authentication*` messages.
const OK: i32 = 0;
const CLEARTEXT: i32 = 3;
const SASL: i32 = 10;
const SASL_CONTINUE: i32 = 11;
const SASL_FINAL: i32 = 12;
/// The most rounds: more than any server uses, and few enough that a hostile server cannot keep a
/// client busy.
const ROUNDS_MAX: u32 = 10_000_000;

/// INT(1) of RFC 5802, section 2.2.
const FIRST_BLOCK: [u8; 4] = [0, 0, 0, 1];

const UNEXPECTED: Error = Error::Protocol("an authentication message that does not belong there");
const NO_PASSWORD: Error = Error::Login("the server asks for a password: name a file with it");

/// The server to connect to, and the user to connect as.
pub struct Login {
    /// The server's, or the proxy's.
    pub address: Address,
    /// User of the database.
    pub user: String,
    /// Database.
    pub database: String,
    /// Password, when one is asked for.
    pub password: Option<SecretBytes>,
}

/// Sends the startup packet and authenticates, up to `AuthenticationOk`.
pub(super) fn log_in(stream: &mut BufReader<Stream>, login: &Login) -> Result<(), Error> {
    let mut out = Vec::new();
    let mut packet = Builder::untagged(&mut out);
    packet.int32(VERSION);
    let settings = [
        ("user", login.user.as_str()),
        ("database", &login.database),
        ("application_name", "strongroom"),
        ("client_encoding", "UTF8"),
    ];
    for (name, value) in settings {
        packet.string(name.as_bytes()).string(value.as_bytes());
    }
    packet.byte(0).end();
    stream.get_mut().write_all(&out)?;
    let mut exchange = None;
    loop {
        let message = wire::read(stream)?.ok_or(io::ErrorKind::UnexpectedEof);
        let message = message.map_err(io::Error::from)?;
        match message.tag {
            b'R' => {}
            b'E' => return Err(server_error(&message.body)),
            b'N' | b'v' => continue,
            _ => return Err(UNEXPECTED),
        }
        let mut fields = Fields(&message.body);
        match fields.int32().ok_or(UNEXPECTED)? {
            OK if exchange.as_ref().is_none_or(Scram::is_done) => return Ok(()),
            CLEARTEXT => {
                if matches!(login.address, Address::Tcp(_)) {
                    return Err(Error::Login(
                        "the server asks for the password in clear over a network: use scram-sha-256 in pg_hba.conf",
                    ));
                }
                let password = login.password.as_ref().ok_or(NO_PASSWORD)?;
                send(stream, |out| {
                    out.string(password.as_slice());
                })?;
            }
            SASL => {
                let offered = core::iter::from_fn(|| fields.string());
                if !offered.into_iter().any(|name| name == b"SCRAM-SHA-256") {
                    return Err(Error::Login("the server offers no SCRAM-SHA-256"));
                }
                let (scram, first) = Scram::begin()?;
                send(stream, |out| {
                    let len = i32::try_from(first.len()).unwrap_or(i32::MAX);
                    out.string(b"SCRAM-SHA-256")
                        .int32(len)
                        .bytes(first.as_bytes());
                })?;
                exchange = Some(scram);
            }
            SASL_CONTINUE => {
                let scram = exchange.as_mut().ok_or(UNEXPECTED)?;
                let password = login.password.as_ref().ok_or(NO_PASSWORD)?;
                let last = scram.answer(password, fields.0)?;
                send(stream, |out| {
                    out.bytes(last.as_bytes());
                })?;
            }
            SASL_FINAL => exchange.as_mut().ok_or(UNEXPECTED)?.check(fields.0)?,
            _ => {
                return Err(Error::Login(
                    "the server asks for a sort of authentication that this command does not have: use scram-sha-256",
                ));
            }
        }
    }
}

fn send(stream: &mut BufReader<Stream>, body: impl FnOnce(&mut Builder<'_>)) -> Result<(), Error> {
    let mut out = Vec::new();
    let mut message = Builder::new(&mut out, b'p');
    body(&mut message);
    message.end();
    let sent = stream.get_mut().write_all(&out);
    zeroize::Zeroize::zeroize(&mut out);
    Ok(sent?)
}

/// One exchange of SCRAM-SHA-256.
struct Scram {
    /// Empty: the server knows the user from the startup packet.
    user: &'static str,
    nonce: String,
    /// The signature by which the server proves that it knows the password.
    expected: Option<[u8; 32]>,
    done: bool,
}

impl Scram {
    /// The exchange, and the client's first message.
    fn begin() -> Result<(Self, String), Error> {
        let random = random32().map_err(|_| Error::Login("no random numbers"))?;
        let scram = Self {
            user: "",
            nonce: STANDARD.encode(random),
            expected: None,
            done: false,
        };
        let first = format!("n,,n={},r={}", scram.user, scram.nonce);
        Ok((scram, first))
    }

    const fn is_done(&self) -> bool {
        self.done
    }

    /// The client's final message (RFC 5802, section 3).
    fn answer(&mut self, password: &SecretBytes, challenge: &[u8]) -> Result<String, Error> {
        let challenge = core::str::from_utf8(challenge).map_err(|_| UNEXPECTED)?;
        let mut parts = challenge.split(',');
        let mut part = |name: &str| parts.next().and_then(|part| part.strip_prefix(name));
        let nonce = part("r=").ok_or(UNEXPECTED)?;
        let salt = part("s=").and_then(|salt| STANDARD.decode(salt).ok());
        let rounds = part("i=").and_then(|rounds| rounds.parse::<u32>().ok());
        let (Some(salt), Some(rounds)) = (salt, rounds) else {
            return Err(UNEXPECTED);
        };
        let extends = nonce.len() > self.nonce.len() && nonce.starts_with(&self.nonce);
        if !extends || !(1..=ROUNDS_MAX).contains(&rounds) || self.expected.is_some() {
            return Err(UNEXPECTED);
        }
        let system = |_| Error::Login("no locked memory");
        let key = MacKey::of_password(password).map_err(system)?;
        let mut salted = key.mac(&[&salt, &FIRST_BLOCK]);
        let mut round = salted;
        for _ in 1..rounds {
            round = key.mac(&[&round]);
            for (to, from) in salted.iter_mut().zip(round) {
                *to ^= from;
            }
        }
        let salted = SecretBytes::take(&mut salted).map_err(system)?;
        let key = MacKey::of_password(&salted).map_err(system)?;
        let client_key = key.mac(&[b"Client Key"]);
        let server_key = key.mac(&[b"Server Key"]);
        let without_proof = format!("c=biws,r={nonce}");
        let message = format!(
            "n={},r={},{challenge},{without_proof}",
            self.user, self.nonce
        );
        let signed = |mut key: [u8; 32]| -> Result<[u8; 32], Error> {
            let key = SecretBytes::take(&mut key).map_err(system)?;
            let key = MacKey::of_password(&key).map_err(system)?;
            Ok(key.mac(&[message.as_bytes()]))
        };
        let mut proof = signed(sha256(&[&client_key]))?;
        for (to, from) in proof.iter_mut().zip(client_key) {
            *to ^= from;
        }
        self.expected = Some(signed(server_key)?);
        Ok(format!("{without_proof},p={}", STANDARD.encode(proof)))
    }

    /// Checks the server's proof that it knows the password.
    fn check(&mut self, last: &[u8]) -> Result<(), Error> {
        let proof = core::str::from_utf8(last).ok();
        let proof = proof.and_then(|last| STANDARD.decode(last.strip_prefix("v=")?).ok());
        match (proof, self.expected) {
            (Some(proof), Some(expected)) if proof == expected => {
                self.done = true;
                Ok(())
            }
            _ => Err(Error::Login(
                "the server has not proved that it knows the password",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: &str = "rOprNGfwEbeRWgbNEkqO";

    fn scram() -> Scram {
        Scram {
            user: "user",
            nonce: NONCE.to_owned(),
            expected: None,
            done: false,
        }
    }

    /// RFC 7677, section 3.
    #[test]
    fn the_exchange_of_the_rfc() {
        let (mut scram, mut password) = (scram(), *b"pencil");
        let password = SecretBytes::take(&mut password).unwrap();
        let nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let challenge = format!("r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096");
        let answer = scram.answer(&password, challenge.as_bytes()).unwrap();
        let proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert_eq!(answer, format!("c=biws,r={nonce},p={proof}"));
        assert!(scram.check(b"v=AAAA").is_err() && !scram.is_done());
        let last = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
        scram.check(last).unwrap();
        assert!(scram.is_done());
    }

    #[test]
    fn another_server_s_challenge_is_refused() {
        let mut password = *b"pencil";
        let password = SecretBytes::take(&mut password).unwrap();
        for bad in [
            "r=other,s=W22Z,i=1",
            "r=NONCE,s=W22Z,i=1",
            "r=NONCEx,s=W22Z,i=0",
            "r=NONCEx,s=W22Z",
        ] {
            let challenge = bad.replace("NONCE", NONCE);
            let answer = scram().answer(&password, challenge.as_bytes());
            assert!(answer.is_err(), "{bad}");
        }
    }
}
