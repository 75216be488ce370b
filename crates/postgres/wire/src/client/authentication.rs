//! Authentication, as a state machine that takes the server's requests.
//!
//! Invariants:
//! - Q9: a password is sent in clear or as MD5 only over TLS or a local socket.
//! - Q10: once SCRAM has begun, only the server's proof ends it; a server that sends
//!   `AuthenticationOk` before is refused. Where `channel_binding` is `require`, nothing but SCRAM
//!   bound to the connection is accepted.

use bytes::BytesMut;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::message::frontend;

use super::config::{ChannelBindingMode, Config};
use super::error::{AuthenticationError, Error, Result};
use super::scram::{ChannelBinding, Scram};
use super::secret::Secret;
use crate::fields::Fields;

/// The mechanism without channel binding.
const SCRAM_SHA_256: &str = "SCRAM-SHA-256";
/// The mechanism that is bound to the TLS connection.
const SCRAM_SHA_256_PLUS: &str = "SCRAM-SHA-256-PLUS";

/// What a client accepts of a server that asks for a password.
#[derive(Clone, Copy, Debug)]
pub struct AuthenticationPolicy {
    /// Whether the password may be sent as its MD5 hash, which is no better than in clear: the hash
    /// in the server's catalog is all that an impostor needs.
    pub accepts_md5: bool,
    /// The most rounds of SCRAM. A hostile server could keep the client busy with more.
    pub rounds_max: u32,
}

/// Takes the requests of one connection's server.
pub(crate) struct Authenticator<'a> {
    config: &'a Config,
    policy: AuthenticationPolicy,
    /// Nobody can listen in.
    private: bool,
    tls: bool,
    /// The hash that SCRAM can be bound to.
    end_point: Option<Vec<u8>>,
    stage: Stage,
    bound: bool,
}

enum Stage {
    Beginning,
    /// A password was sent, and nothing but the verdict can follow.
    Sent,
    /// The client's first message was sent; the server's challenge has to come.
    Scram(Box<Scram>, Secret),
    /// The client's proof was sent; the server's has to come.
    ScramFinal(Box<Scram>),
    Proven,
    Accepted,
    /// A request was refused; nothing follows.
    Failed,
}

/// A request of the server: the body of a message of type `R`.
#[derive(Clone, Copy)]
enum Request<'b> {
    Ok,
    Cleartext,
    Md5([u8; 4]),
    /// Names of mechanisms, each with a zero byte, and one more zero byte.
    Sasl(&'b [u8]),
    SaslContinue(&'b [u8]),
    SaslFinal(&'b [u8]),
    /// A method that is not supported.
    Other(&'static str),
}

impl<'b> Request<'b> {
    /// Parses the body of an authentication request. Fails with [`Error::Protocol`] if it is
    /// malformed or its code is not known; methods that are known and not supported become `Other`.
    fn parse(body: &'b [u8]) -> Result<Self> {
        let mut fields = Fields(body);
        let malformed = || Error::protocol("a malformed request of authentication");
        let code = fields.int32().ok_or_else(malformed)?;
        let request = match code {
            10 => return Ok(Self::Sasl(fields.0)),
            11 => return Ok(Self::SaslContinue(fields.0)),
            12 => return Ok(Self::SaslFinal(fields.0)),
            8 => return Ok(Self::Other("GSSAPI")),
            5 => {
                let salt = fields.bytes(4).and_then(<[u8]>::first_chunk::<4>);
                Self::Md5(*salt.ok_or_else(malformed)?)
            }
            0 => Self::Ok,
            2 => Self::Other("Kerberos"),
            3 => Self::Cleartext,
            6 => Self::Other("credentials of the socket"),
            7 => Self::Other("GSSAPI"),
            9 => Self::Other("SSPI"),
            code => {
                let text = format!("unknown request of authentication {code}");
                return Err(Error::protocol(text));
            }
        };
        match fields.0 {
            [] => Ok(request),
            _ => Err(malformed()),
        }
    }
}

impl<'a> Authenticator<'a> {
    /// Prepares the exchange with one server. `private`: the connection uses TLS or a local socket.
    /// `end_point`: the hash of the server's certificate for channel binding, if there is one.
    pub(crate) fn new(
        config: &'a Config,
        policy: AuthenticationPolicy,
        private: bool,
        tls: bool,
        end_point: Option<Vec<u8>>,
    ) -> Self {
        Self {
            config,
            policy,
            private,
            tls,
            end_point,
            stage: Stage::Beginning,
            bound: false,
        }
    }

    /// Returns whether the server has accepted the login; false after [`Self::step`] has failed.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Accepted)
    }

    /// Handles one request of the server, given as its body, and appends the answer, if there is
    /// one, to `output`. Fails with [`Error::Authentication`] if the request is not acceptable, the
    /// server gives no valid proof or there is no password, and with [`Error::Protocol`] if it is
    /// malformed or out of order. After an error the exchange cannot be continued.
    pub(crate) fn step(&mut self, body: &[u8], output: &mut BytesMut) -> Result<()> {
        // The next stage is known when the request was carried out.
        let stage = std::mem::replace(&mut self.stage, Stage::Failed);
        self.stage = match (Request::parse(body)?, stage) {
            (Request::Ok, stage) => self.accept(&stage)?,
            (Request::Cleartext, Stage::Beginning) => {
                let password = self.password_to_send("its password in clear")?;
                send_password(password.bytes(), output)?
            }
            (Request::Md5(salt), Stage::Beginning) if self.policy.accepts_md5 => {
                let password = self.password_to_send("its password by MD5")?;
                let user = self.config.user().as_bytes();
                let hashed = Secret::new(md5_hash(user, password.bytes(), salt).into());
                send_password(hashed.bytes(), output)?
            }
            (Request::Md5(_), Stage::Beginning) => {
                return Err(AuthenticationError::Unsupported("its password by MD5").into());
            }
            (Request::Sasl(mechanisms), Stage::Beginning) => self.begin(mechanisms, output)?,
            (Request::SaslContinue(challenge), Stage::Scram(mut scram, password)) => {
                let answer = scram.final_message(password.bytes(), challenge)?;
                put(frontend::sasl_response(answer.as_bytes(), output))?;
                Stage::ScramFinal(scram)
            }
            (Request::SaslFinal(last), Stage::ScramFinal(scram)) => {
                scram.check_proof(last)?;
                Stage::Proven
            }
            (Request::Other(method), Stage::Beginning) => {
                return Err(AuthenticationError::Unsupported(method).into());
            }
            (Request::SaslContinue(_) | Request::SaslFinal(_), Stage::Beginning) => {
                let method = "something that has no place here";
                return Err(AuthenticationError::Unsupported(method).into());
            }
            _ => return Err(Error::protocol("authentication out of order")),
        };
        Ok(())
    }

    /// Handles the server's `AuthenticationOk`. Fails with `EndedWithoutProof` if SCRAM had begun
    /// and the server has not proved that it knows the password, and with `NotBound` if channel
    /// binding is required and did not take place.
    fn accept(&self, stage: &Stage) -> Result<Stage> {
        match stage {
            Stage::Beginning | Stage::Sent | Stage::Proven => {}
            Stage::Scram(..) | Stage::ScramFinal(_) => {
                return Err(AuthenticationError::EndedWithoutProof.into());
            }
            Stage::Accepted | Stage::Failed => {
                return Err(Error::protocol("authentication out of order"));
            }
        }
        let required = self.config.channel_binding == ChannelBindingMode::Require;
        if required && !(self.bound && matches!(stage, Stage::Proven)) {
            return Err(AuthenticationError::NotBound("did not bind").into());
        }
        Ok(Stage::Accepted)
    }

    /// Returns the password, if it may be sent over this connection without SCRAM. Fails with
    /// `NotBound` if channel binding is required, with `NotPrivate` (which quotes `what`) on a
    /// connection that others can read, and with `NoPassword`.
    fn password_to_send(&self, what: &'static str) -> Result<Secret> {
        if self.config.channel_binding == ChannelBindingMode::Require {
            return Err(AuthenticationError::NotBound("cannot bind").into());
        }
        if !self.private {
            return Err(AuthenticationError::NotPrivate(what).into());
        }
        Ok(self.config.password()?)
    }

    /// Begins SCRAM: chooses the strongest mechanism that both sides have, and appends the client's
    /// first message. Fails with `BindingWithoutTls`, `NotBound`, `NoScram`, `NoPassword`, and with
    /// [`Error::Protocol`] for a malformed list of mechanisms.
    fn begin(&mut self, mechanisms: &[u8], output: &mut BytesMut) -> Result<Stage> {
        let (mut plain, mut plus) = (false, false);
        let mut fields = Fields(mechanisms);
        loop {
            let name = fields
                .string()
                .ok_or_else(|| Error::protocol("a list of mechanisms without an end"))?;
            if name.is_empty() {
                break;
            }
            plain |= name == SCRAM_SHA_256.as_bytes();
            plus |= name == SCRAM_SHA_256_PLUS.as_bytes();
        }
        if plus && !self.tls {
            return Err(AuthenticationError::BindingWithoutTls.into());
        }
        let mode = self.config.channel_binding;
        let able = self
            .end_point
            .take()
            .filter(|_| mode != ChannelBindingMode::Disable);
        let (binding, mechanism) = match able {
            Some(hash) if plus => {
                self.bound = true;
                (ChannelBinding::EndPoint(hash), SCRAM_SHA_256_PLUS)
            }
            _ if mode == ChannelBindingMode::Require => {
                return Err(AuthenticationError::NotBound("cannot bind").into());
            }
            _ if !plain => return Err(AuthenticationError::NoScram.into()),
            Some(_) => (ChannelBinding::NotOffered, SCRAM_SHA_256),
            None => (ChannelBinding::Unsupported, SCRAM_SHA_256),
        };
        let password = self.config.password()?;
        let scram = Scram::begin(binding, self.policy.rounds_max)?;
        put(frontend::sasl_initial_response(
            mechanism,
            scram.first_message().as_bytes(),
            output,
        ))?;
        Ok(Stage::Scram(Box::new(scram), password))
    }
}

/// Appends the message with the password, or its hash, to `output`. Nothing is sent yet. Fails with
/// [`Error::Misuse`] if the password has a zero byte.
fn send_password(password: &[u8], output: &mut BytesMut) -> Result<Stage> {
    // The message grows by the password and its frame; a buffer that has to move would leave a
    // copy behind.
    output.reserve(password.len() + 16);
    put(frontend::password_message(password, output))?;
    Ok(Stage::Sent)
}

/// Turns the failure to append a message into [`Error::Misuse`].
fn put(written: std::io::Result<()>) -> Result<()> {
    written.map_err(|_| Error::Misuse("a password with a zero byte, or a name that is too long"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: AuthenticationPolicy = AuthenticationPolicy {
        accepts_md5: true,
        rounds_max: 4096,
    };

    #[test]
    fn a_login_is_not_accepted_by_a_request_that_failed() {
        let config = Config::without_tls("u", "", None);
        let mut output = BytesMut::new();
        let ok = [0; 4];
        // Malformed, of an unknown code, not supported, out of order; and one that needs the
        // password that is not there.
        let code = |number: u8| [0, 0, 0, number];
        for bad in [&[0][..], &code(99), &code(7), &code(11), &code(3)] {
            let mut authenticator = Authenticator::new(&config, POLICY, true, false, None);
            assert!(authenticator.step(bad, &mut output).is_err(), "{bad:?}");
            assert!(!authenticator.is_done(), "{bad:?}");
            // Nor does the exchange go on.
            assert!(authenticator.step(&ok, &mut output).is_err(), "{bad:?}");
            assert!(!authenticator.is_done(), "{bad:?}");
        }
        let mut authenticator = Authenticator::new(&config, POLICY, true, false, None);
        authenticator.step(&ok, &mut output).unwrap();
        assert!(authenticator.is_done() && output.is_empty());
        assert!(authenticator.step(&ok, &mut output).is_err());
        assert!(!authenticator.is_done());
    }
}
