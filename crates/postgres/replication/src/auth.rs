//! Authentication, as a state machine that takes the server's requests.
//!
//! Invariants:
//! - Q9: a password is sent in clear or as MD5 only over TLS or a local socket.
//! - Q10: once SCRAM has begun, only the server's proof ends it; a server that sends
//!   `AuthenticationOk` before is refused. Where `channel_binding` is `require`, nothing but SCRAM
//!   bound to the connection is accepted.

use bytes::BytesMut;
use fallible_iterator::FallibleIterator as _;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{
    ChannelBinding, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramSha256,
};
use postgres_protocol::message::backend::{AuthenticationSaslBody, Message};
use postgres_protocol::message::frontend;

use crate::config::{ChannelBindingMode, Config};
use crate::error::{Error, Result};
use crate::secret::Secret;

/// What is known of the connection.
pub(crate) struct Authenticator<'a> {
    pub(crate) config: &'a Config,
    /// Nobody can listen in.
    pub(crate) private: bool,
    pub(crate) tls: bool,
    /// What SCRAM can be bound to.
    pub(crate) end_point: Option<Vec<u8>>,
    stage: Stage,
    bound: bool,
}

enum Stage {
    Beginning,
    /// A password was sent, and nothing but the verdict can follow.
    Sent,
    Scram(Box<ScramSha256>),
    /// Our proof is out; the server's has to come.
    ScramFinal(Box<ScramSha256>),
    Proven,
    Accepted,
}

fn auth_error(text: impl Into<String>) -> Error {
    Error::Authentication(text.into())
}

impl<'a> Authenticator<'a> {
    pub(crate) fn new(
        config: &'a Config,
        private: bool,
        tls: bool,
        end_point: Option<Vec<u8>>,
    ) -> Self {
        Self {
            config,
            private,
            tls,
            end_point,
            stage: Stage::Beginning,
            bound: false,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Accepted)
    }

    /// Takes one request of the server; an answer, if there is one, is put into `output`.
    pub(crate) fn step(&mut self, request: &Message, output: &mut BytesMut) -> Result<()> {
        let stage = std::mem::replace(&mut self.stage, Stage::Accepted);
        self.stage = match (request, stage) {
            (Message::AuthenticationOk, stage) => self.accept(&stage)?,
            (Message::AuthenticationCleartextPassword, Stage::Beginning) => {
                let password = self.password_to_send("its password in clear")?;
                self.send_password(password.bytes(), output)?
            }
            (Message::AuthenticationMd5Password(body), Stage::Beginning) => {
                let password = self.password_to_send("its password by MD5")?;
                let user = self.config.user().as_bytes();
                let hashed = Secret::new(md5_hash(user, password.bytes(), body.salt()).into());
                self.send_password(hashed.bytes(), output)?
            }
            (Message::AuthenticationSasl(body), Stage::Beginning) => self.begin(body, output)?,
            (Message::AuthenticationSaslContinue(body), Stage::Scram(mut scram)) => {
                scram
                    .update(body.data())
                    .map_err(|error| auth_error(format!("SCRAM: {error}")))?;
                put(frontend::sasl_response(scram.message(), output))?;
                Stage::ScramFinal(scram)
            }
            (Message::AuthenticationSaslFinal(body), Stage::ScramFinal(mut scram)) => {
                scram.finish(body.data()).map_err(|error| {
                    auth_error(format!(
                        "the server did not prove that it knows us: {error}"
                    ))
                })?;
                Stage::Proven
            }
            (request, Stage::Beginning) => {
                let name = method(request);
                return Err(auth_error(format!(
                    "the server asks for {name}, which this program cannot do"
                )));
            }
            _ => return Err(Error::protocol("authentication out of order")),
        };
        Ok(())
    }

    fn accept(&self, stage: &Stage) -> Result<Stage> {
        match stage {
            Stage::Beginning | Stage::Sent | Stage::Proven => {}
            Stage::Scram(_) | Stage::ScramFinal(_) => {
                return Err(auth_error("the server ends SCRAM without its own proof"));
            }
            Stage::Accepted => return Err(Error::protocol("authentication out of order")),
        }
        let required = self.config.channel_binding == ChannelBindingMode::Require;
        if required && !(self.bound && matches!(stage, Stage::Proven)) {
            return Err(auth_error(
                "channel_binding=require, and the server did not bind",
            ));
        }
        Ok(Stage::Accepted)
    }

    fn password(&self) -> Result<Secret> {
        self.config.password().map_err(auth_error)
    }

    fn password_to_send(&self, what: &str) -> Result<Secret> {
        if self.config.channel_binding == ChannelBindingMode::Require {
            return Err(auth_error(
                "channel_binding=require, and the server cannot bind",
            ));
        }
        if !self.private {
            let text = format!(
                "the server wants {what}, which is sent over TLS or a local socket only; \
                 use scram-sha-256 or TLS"
            );
            return Err(auth_error(text));
        }
        self.password()
    }

    fn send_password(&self, password: &[u8], output: &mut BytesMut) -> Result<Stage> {
        // The message grows by what it holds; a buffer that moves would leave a copy behind.
        output.reserve(password.len() + 16);
        put(frontend::password_message(password, output))?;
        Ok(Stage::Sent)
    }

    fn begin(&mut self, body: &AuthenticationSaslBody, output: &mut BytesMut) -> Result<Stage> {
        let (mut plain, mut plus) = (false, false);
        let mut mechanisms = body.mechanisms();
        while let Some(name) = mechanisms
            .next()
            .map_err(|error| Error::protocol(error.to_string()))?
        {
            plain |= name == SCRAM_SHA_256;
            plus |= name == SCRAM_SHA_256_PLUS;
        }
        if plus && !self.tls {
            return Err(auth_error(
                "the server offers to bind to TLS that there is not",
            ));
        }
        let mode = self.config.channel_binding;
        let able = self
            .end_point
            .take()
            .filter(|_| mode != ChannelBindingMode::Disable);
        let (binding, mechanism) = match able {
            Some(hash) if plus => {
                self.bound = true;
                (
                    ChannelBinding::tls_server_end_point(hash),
                    SCRAM_SHA_256_PLUS,
                )
            }
            _ if mode == ChannelBindingMode::Require => {
                return Err(auth_error(
                    "channel_binding=require, and the server cannot bind",
                ));
            }
            _ if !plain => return Err(auth_error("the server has no SCRAM-SHA-256")),
            // Tells the server that we could have: it notices when its offer was removed on the
            // way.
            Some(_) => (ChannelBinding::unrequested(), SCRAM_SHA_256),
            None => (ChannelBinding::unsupported(), SCRAM_SHA_256),
        };
        let password = self.password()?;
        let scram = ScramSha256::new(password.bytes(), binding);
        put(frontend::sasl_initial_response(
            mechanism,
            scram.message(),
            output,
        ))?;
        Ok(Stage::Scram(Box::new(scram)))
    }
}

fn put(written: std::io::Result<()>) -> Result<()> {
    written.map_err(|_| Error::Misuse("a password with a zero byte, or a name that is too long"))
}

fn method(request: &Message) -> &'static str {
    match request {
        Message::AuthenticationGss | Message::AuthenticationGssContinue(_) => "GSSAPI",
        Message::AuthenticationKerberosV5 => "Kerberos",
        Message::AuthenticationSspi => "SSPI",
        Message::AuthenticationScmCredential => "credentials of the socket",
        _ => "something that has no place here",
    }
}
