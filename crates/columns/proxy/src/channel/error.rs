//! Errors of the channel to the zone.

use std::fmt;

use strongroom_crypto::CryptoError;

/// Why a channel was not opened, or a message not taken.
#[derive(Debug, PartialEq, Eq)]
pub enum ChannelError {
    /// The zone speaks another version of the channel.
    OtherVersion,
    /// Not an attestation.
    Malformed,
    /// It answers another nonce: an old one, replayed.
    Replayed,
    /// It comes too long after the request.
    Late,
    /// The evidence does not belong to the public key.
    Unbound,
    /// The quote is not signed by a key that is trusted.
    Untrusted,
    /// The TPM's registers hold other values than those that are allowed.
    Registers,
    /// The provider proves nothing, and the client is not configured to accept it.
    ProvesNothing,
    /// The program is not one that is allowed.
    Measurement,
    /// The zone does not hold a key that another zone has shown to hold.
    AnotherZone,
    /// The zone names a key of the client's that it does not hold.
    Unproven,
    /// The file with the keys that a zone has shown to hold cannot be read or written.
    Record,
    /// A message does not open, or is out of order.
    Message,
    /// No random numbers or no locked memory.
    System,
}

impl fmt::Display for ChannelError {
    /// Writes why the zone is not trusted, without any value or key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherVersion => {
                "the zone speaks another version of the channel than this client: use the proxy \
                 and the zone of one version of Strongroom"
            }
            Self::Malformed => "the zone's attestation is not of a form that is known",
            Self::Replayed => "the zone's attestation answers another request than this client's",
            Self::Late => "the zone's attestation came too late",
            Self::Unbound => "the zone's evidence does not belong to its key",
            Self::Untrusted => "the zone's TPM quote is not signed by a key that is trusted",
            Self::Registers => {
                "the registers of the zone's TPM hold other values than those that are allowed"
            }
            Self::ProvesNothing => {
                "the zone attests itself, which proves nothing, and that was not accepted"
            }
            Self::Measurement => "the zone runs a program that is not allowed",
            Self::AnotherZone => {
                "the zone does not hold the column key, although a zone did before: it may be another one, made to get the key \
                 (docs/reference/columns-proxy.md says when --new-zone is right)"
            }
            Self::Unproven => "the zone names a column key that it does not hold",
            Self::Record => "the file of --zones cannot be read, written or locked",
            Self::Message => "a message from the zone does not open, or is out of order",
            Self::System => "no random numbers or no locked memory",
        })
    }
}

impl std::error::Error for ChannelError {}

impl From<CryptoError> for ChannelError {
    /// Turns every error of the primitives into [`ChannelError::System`].
    fn from(_: CryptoError) -> Self {
        Self::System
    }
}
