//! The channel between the data owner's client and the zone, which the database server relays and
//! cannot read.
//!
//! The zone attests ([`Attestation`]); the client sends a [`Hello`] with its first sealed message;
//! every message after that is a [`Sealed`] one. A message opened holds a [`Request`] or its
//! answer. Specified in docs/spec/columns-channel.md.
//! Must not: seal anything.

mod request;

use alloc::vec::Vec;

use crate::layout::{array, layout, put, u16_at, u32_at, u64_at, zero_at};

pub use request::{GivenKey, Limit, Opening, Request, is_name, limit_layout, parse_opening};

/// The version that this code writes, and the only one that it reads.
pub const CHANNEL_VERSION: u16 = 3;
/// First byte of a message that begins a session: a [`Hello`] and a [`Sealed`] message follow.
pub const MESSAGE_HELLO: u8 = 1;
/// First byte of a message of a session: a [`Sealed`] message follows.
pub const MESSAGE_SEALED: u8 = 2;
/// The most bytes of evidence.
pub const EVIDENCE_MAX: usize = 65_536;
/// The most proofs in an attestation.
pub const PROOFS_MAX: usize = 1024;
/// The most column keys with which a session is opened.
pub const CHANNEL_KEYS_MAX: usize = 64;
/// The most bytes of the name that a client gives itself.
pub const CLIENT_NAME_MAX: usize = 63;
/// A limit that is none.
pub const LIMITLESS: u64 = u64::MAX;
/// Label of a column key; the input is a key of the keyring, the salt the column key's id.
pub const COLUMN_LABEL: &str = "strongroom/v1/column";
/// Label of a column key's id; the input is a key of the keyring, without a salt.
pub const COLUMN_ID_LABEL: &str = "strongroom/v1/column-id";
/// Label of the keys of the client's messages.
pub const CLIENT_LABEL: &str = "strongroom/v1/columns-client";
/// Label of the keys of the zone's messages.
pub const ZONE_LABEL: &str = "strongroom/v1/columns-zone";
/// Label of a ticket's MAC key; the input is a column key.
pub const TICKET_LABEL: &str = "strongroom/v1/columns-ticket";
/// Label of the MAC key of a proof that the zone holds a column key; the input is the column key,
/// the salt its id.
pub const PROOF_LABEL: &str = "strongroom/v1/columns-proof";
/// Prefix of what is hashed to the digest that evidence has to bind.
pub const BINDING_LABEL: &str = "strongroom/v1/columns-attestation";

layout! {
    /// Layout of an attestation's head; the proofs follow, then the evidence.
    attestation_layout, 104, {
        VERSION @ 0, 2;
        PROVIDER @ 2, 2;
        PROOFS @ 4, 4;
        STORE_ID @ 8, 16;
        INCARNATION @ 24, 16;
        PUBLIC_KEY @ 40, 32;
        NONCE @ 72, 32;
    }
}

layout! {
    /// Layout of a proof that the zone holds a column key.
    proof_layout, 48, {
        KEY_ID @ 0, 16;
        MAC @ 16, 32;
    }
}

layout! {
    /// Layout of what stands before the first sealed message of a client.
    hello_layout, 64, {
        CLIENT_KEY @ 0, 32;
        ZONE_KEY @ 32, 32;
    }
}

layout! {
    /// Layout of a sealed message's head; the sealed bytes and a tag of 16 bytes follow.
    sealed_layout, 32, {
        VERSION @ 0, 2;
        RESERVED @ 2, 6;
        SESSION @ 8, 16;
        SEQUENCE @ 24, 8;
    }
}

layout! {
    /// Layout of a ticket without the list of its keys; the list and the MACs follow.
    ticket_layout, 64, {
        VERSION @ 0, 2;
        KEYS @ 2, 2;
        RIGHTS @ 4, 4;
        TICKET_ID @ 8, 16;
        NOT_BEFORE @ 24, 8;
        NOT_AFTER @ 32, 8;
        TRUTHS @ 40, 8;
        OUTPUTS @ 48, 8;
        RESERVED @ 56, 8;
    }
}

/// The kind of evidence in an attestation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttestationProvider {
    /// The digest of the zone's program, as the zone itself states it. Proves nothing.
    Process,
    /// A TPM 2.0 quote.
    Tpm,
    /// An attestation report of SEV-SNP.
    SevSnp,
    /// A quote of TDX.
    Tdx,
}

impl AttestationProvider {
    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Self::Process => 1,
            Self::Tpm => 2,
            Self::SevSnp => 3,
            Self::Tdx => 4,
        }
    }

    /// The provider of this number. `None` for a number that none has.
    fn from_number(number: u16) -> Option<Self> {
        [Self::Process, Self::Tpm, Self::SevSnp, Self::Tdx]
            .into_iter()
            .find(|known| known.number() == number)
    }
}

/// The zone's attestation: who it is, a key for this agreement, and the evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attestation {
    /// Kind of the evidence.
    pub provider: AttestationProvider,
    /// Object id of the zone's store.
    pub store_id: [u8; 16],
    /// The zone's incarnation, drawn at random at each start.
    pub incarnation: [u8; 16],
    /// X25519 key of this attestation, used once.
    pub public_key: [u8; 32],
    /// The client's nonce.
    pub nonce: [u8; 32],
    /// For each column key that the zone holds, its id and a MAC under the key of what evidence has
    /// to bind.
    pub proofs: Vec<([u8; 16], [u8; 32])>,
    /// The provider's evidence.
    pub evidence: Vec<u8>,
}

impl Attestation {
    /// Reads an attestation. `None` when it is cut short, or a field has a value that no writer
    /// gives it.
    #[must_use]
    pub fn parse(record: &[u8]) -> Option<Self> {
        use attestation_layout as at;
        let count = usize::try_from(u32_at(record, at::PROOFS)?)
            .ok()
            .filter(|count| *count <= PROOFS_MAX)?;
        let (proofs, evidence) = record
            .get(at::SIZE..)?
            .split_at_checked(count.checked_mul(proof_layout::SIZE)?)?;
        let proofs = proofs.chunks_exact(proof_layout::SIZE).map(|proof| {
            let id = array(proof, proof_layout::KEY_ID)?;
            Some((id, array(proof, proof_layout::MAC)?))
        });
        let sound =
            u16_at(record, at::VERSION)? == CHANNEL_VERSION && evidence.len() <= EVIDENCE_MAX;
        let parsed = Self {
            provider: AttestationProvider::from_number(u16_at(record, at::PROVIDER)?)?,
            store_id: array(record, at::STORE_ID)?,
            incarnation: array(record, at::INCARNATION)?,
            public_key: array(record, at::PUBLIC_KEY)?,
            nonce: array(record, at::NONCE)?,
            proofs: proofs.collect::<Option<_>>()?,
            evidence: evidence.to_vec(),
        };
        sound.then_some(parsed)
    }

    /// Whether the bytes begin with another version than [`CHANNEL_VERSION`]: the zone is of
    /// another version of Strongroom than its client. Asked when [`Self::parse`] gives `None`.
    #[must_use]
    pub fn is_of_other_version(record: &[u8]) -> bool {
        let version = u16_at(record, attestation_layout::VERSION);
        version.is_some_and(|version| version != 0 && version != CHANNEL_VERSION)
    }

    /// The whole attestation, as [`Self::parse`] reads it: the head, the proofs, the evidence.
    /// There may be at most [`PROOFS_MAX`] proofs and [`EVIDENCE_MAX`] bytes of evidence, which is
    /// not checked here.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = self.head().to_vec();
        for (id, mac) in &self.proofs {
            out.extend_from_slice(id);
            out.extend_from_slice(mac);
        }
        out.extend_from_slice(&self.evidence);
        out
    }

    /// The head alone: what evidence has to bind, after [`BINDING_LABEL`]. It has the number of the
    /// proofs and nothing else of them.
    #[must_use]
    pub fn head(&self) -> [u8; attestation_layout::SIZE] {
        use attestation_layout as at;
        let mut out = [0; at::SIZE];
        let proofs = u32::try_from(self.proofs.len()).unwrap_or(u32::MAX);
        let fields = [
            put(&mut out, at::VERSION, &CHANNEL_VERSION.to_le_bytes()),
            put(
                &mut out,
                at::PROVIDER,
                &self.provider.number().to_le_bytes(),
            ),
            put(&mut out, at::PROOFS, &proofs.to_le_bytes()),
            put(&mut out, at::STORE_ID, &self.store_id),
            put(&mut out, at::INCARNATION, &self.incarnation),
            put(&mut out, at::PUBLIC_KEY, &self.public_key),
            put(&mut out, at::NONCE, &self.nonce),
        ];
        // Lengths are constants of the table above; a mismatch is a programming error found by any
        // test.
        assert!(fields.iter().all(Option::is_some), "attestation layout");
        out
    }
}

/// The two public keys before a client's first sealed message, which name the key agreement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The client's X25519 key, used once.
    pub client_key: [u8; 32],
    /// The zone's, from its attestation.
    pub zone_key: [u8; 32],
}

impl Hello {
    /// Parses a hello; returns it and the bytes that follow. `None` when it is cut short.
    #[must_use]
    pub fn parse(message: &[u8]) -> Option<(Self, &[u8])> {
        let hello = Self {
            client_key: array(message, hello_layout::CLIENT_KEY)?,
            zone_key: array(message, hello_layout::ZONE_KEY)?,
        };
        Some((hello, message.get(hello_layout::SIZE..)?))
    }

    /// Returns its bytes, as they are written.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; hello_layout::SIZE] {
        let mut out = [0; hello_layout::SIZE];
        let fields = [
            put(&mut out, hello_layout::CLIENT_KEY, &self.client_key),
            put(&mut out, hello_layout::ZONE_KEY, &self.zone_key),
        ];
        assert!(fields.iter().all(Option::is_some), "hello layout");
        out
    }
}

/// The head of a sealed message. It is the associated data; the nonce is four zero bytes and the
/// sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// The session; zeros in a client's first message.
    pub session: [u8; 16],
    /// Number of the message in its direction, from 0. Never used twice.
    pub sequence: u64,
}

impl Sealed {
    /// Parses the head of a sealed message; returns it and the bytes after it, which are the
    /// ciphertext and its tag of 16 bytes. `None` when it is cut short, or is not of this version.
    #[must_use]
    pub fn parse(message: &[u8]) -> Option<(Self, &[u8])> {
        let sound = u16_at(message, sealed_layout::VERSION)? == CHANNEL_VERSION
            && zero_at(message, sealed_layout::RESERVED);
        let head = Self {
            session: array(message, sealed_layout::SESSION)?,
            sequence: u64_at(message, sealed_layout::SEQUENCE)?,
        };
        let rest = message.get(sealed_layout::SIZE..)?;
        (sound && rest.len() >= 16).then_some((head, rest))
    }

    /// Returns its bytes, as they are written.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; sealed_layout::SIZE] {
        let mut out = [0; sealed_layout::SIZE];
        let fields = [
            put(
                &mut out,
                sealed_layout::VERSION,
                &CHANNEL_VERSION.to_le_bytes(),
            ),
            put(&mut out, sealed_layout::SESSION, &self.session),
            put(
                &mut out,
                sealed_layout::SEQUENCE,
                &self.sequence.to_le_bytes(),
            ),
        ];
        assert!(fields.iter().all(Option::is_some), "sealed layout");
        out
    }

    /// The nonce of AES-256-GCM: four zero bytes and the sequence, little-endian.
    #[must_use]
    pub fn nonce(&self) -> [u8; 12] {
        let mut nonce = [0; 12];
        for (to, from) in nonce.iter_mut().skip(4).zip(self.sequence.to_le_bytes()) {
            *to = from;
        }
        nonce
    }
}

/// What a ticket allows; bits of `RIGHTS`.
pub mod right {
    /// Comparison of values and constants.
    pub const COMPARE: u32 = 1;
    /// Functions whose results are values.
    pub const COMPUTE: u32 = 2;
    /// Aggregates.
    pub const AGGREGATE: u32 = 4;
    /// Equality tokens, for hash joins and grouping.
    pub const TOKEN: u32 = 8;
    /// Ranks, for sorting.
    pub const RANK: u32 = 16;
    /// Constants from envelopes.
    pub const CONSTANT: u32 = 32;
    /// Sealing of computed values.
    pub const OUTPUT: u32 = 64;
    /// Values in clear to and from plain columns.
    pub const DECLASSIFY: u32 = 128;
    /// Computed values, and those of other columns, into columns whose order is no secret.
    pub const DERIVE: u32 = 256;
    /// What a client needs for ordinary SQL.
    pub const ORDINARY: u32 = COMPARE | COMPUTE | AGGREGATE | TOKEN | RANK | CONSTANT | OUTPUT;
    /// Every bit that has a meaning.
    pub const ALL: u32 = 511;
}

/// A ticket, the bytes that its MACs cover, and its MACs, one for each key.
pub type ParsedTicket<'a> = (Ticket, &'a [u8], &'a [[u8; 32]]);

/// A ticket: what a session may do with the columns of its keys, until when and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Bits of [`right`].
    pub rights: u32,
    /// The ticket's id in the ledger.
    pub ticket_id: [u8; 16],
    /// Seconds since 1970 from which it is valid.
    pub not_before: u64,
    /// Seconds since 1970 until which it is valid.
    pub not_after: u64,
    /// Truths (comparisons, tests, tokens, ranks) that it allows; `u64::MAX` for any number.
    pub truths: u64,
    /// Values that may be sealed under it; `u64::MAX` for any number.
    pub outputs: u64,
    /// The column keys. Each one's owner authenticates the ticket.
    pub keys: Vec<[u8; 16]>,
}

impl Ticket {
    /// Parses a ticket. `None` when it is cut short, or a field has a value that no writer gives
    /// it. The MACs are not verified.
    #[must_use]
    pub fn parse(record: &[u8]) -> Option<ParsedTicket<'_>> {
        use ticket_layout as at;
        let count = usize::from(u16_at(record, at::KEYS)?);
        let [r0, r1, r2, r3] = array(record, at::RIGHTS)?;
        let rights = u32::from_le_bytes([r0, r1, r2, r3]);
        let covered = at::SIZE.checked_add(count.checked_mul(16)?)?;
        let list = record.get(at::SIZE..covered)?;
        let (macs, rest) = record.get(covered..)?.as_chunks::<32>();
        let (keys, _) = list.as_chunks::<16>();
        let sound = u16_at(record, at::VERSION)? == CHANNEL_VERSION
            && zero_at(record, at::RESERVED)
            && (1..=CHANNEL_KEYS_MAX).contains(&count)
            && macs.len() == count
            && rest.is_empty()
            && rights & !right::ALL == 0;
        let ticket = Self {
            rights,
            ticket_id: array(record, at::TICKET_ID)?,
            not_before: u64_at(record, at::NOT_BEFORE)?,
            not_after: u64_at(record, at::NOT_AFTER)?,
            truths: u64_at(record, at::TRUTHS)?,
            outputs: u64_at(record, at::OUTPUTS)?,
            keys: keys.to_vec(),
        };
        sound.then_some((ticket, record.get(..covered)?, macs))
    }

    /// The bytes that the MACs cover, without the MACs. `None` for more keys than a ticket may
    /// name, or for none.
    #[must_use]
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        use ticket_layout as at;
        if !(1..=CHANNEL_KEYS_MAX).contains(&self.keys.len()) {
            return None;
        }
        let count = u16::try_from(self.keys.len()).ok()?;
        let mut out = [0; at::SIZE];
        put(&mut out, at::VERSION, &CHANNEL_VERSION.to_le_bytes())?;
        put(&mut out, at::KEYS, &count.to_le_bytes())?;
        put(&mut out, at::RIGHTS, &self.rights.to_le_bytes())?;
        put(&mut out, at::TICKET_ID, &self.ticket_id)?;
        put(&mut out, at::NOT_BEFORE, &self.not_before.to_le_bytes())?;
        put(&mut out, at::NOT_AFTER, &self.not_after.to_le_bytes())?;
        put(&mut out, at::TRUTHS, &self.truths.to_le_bytes())?;
        put(&mut out, at::OUTPUTS, &self.outputs.to_le_bytes())?;
        let mut out = out.to_vec();
        for key in &self.keys {
            out.extend_from_slice(key);
        }
        Some(out)
    }
}

/// The associated data of a sealed message: its head; for a client's first message its hello, then
/// its head. `None` when `message` is shorter than a head.
#[must_use]
pub fn associated_data<'a>(hello: Option<&'a [u8]>, message: &'a [u8]) -> Option<Vec<u8>> {
    let head = message.get(..sealed_layout::SIZE)?;
    let mut out = hello.unwrap_or_default().to_vec();
    out.extend_from_slice(head);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn ticket() -> Ticket {
        Ticket {
            rights: right::COMPARE | right::OUTPUT,
            ticket_id: [1; 16],
            not_before: 5,
            not_after: 6,
            truths: 7,
            outputs: 8,
            keys: vec![[2; 16], [3; 16]],
        }
    }

    #[test]
    fn a_ticket_is_canonical_or_refused() {
        let mut record = ticket().to_bytes().unwrap();
        let covered = record.len();
        record.extend_from_slice(&[9; 64]);
        assert_eq!(
            Ticket::parse(&record),
            Some((ticket(), &record[..covered], &[[9; 32]; 2][..]))
        );
        for cut in 0..record.len() {
            assert_eq!(Ticket::parse(&record[..cut]), None, "{cut} bytes");
        }
        for (at, value) in [(0, 1), (2, 1), (2, 0), (5, 2), (6, 1), (56, 1)] {
            let mut bad = record.clone();
            bad[at] = value;
            assert_eq!(Ticket::parse(&bad), None, "byte {at}");
        }
        record.push(0);
        assert_eq!(Ticket::parse(&record), None, "a byte too much");
        let many = Ticket {
            keys: vec![[0; 16]; 65],
            ..ticket()
        };
        assert_eq!(many.to_bytes(), None);
    }

    #[test]
    fn an_attestation_comes_back_and_its_head_is_what_is_bound() {
        let attestation = Attestation {
            provider: AttestationProvider::Tpm,
            store_id: [1; 16],
            incarnation: [2; 16],
            public_key: [3; 32],
            nonce: [4; 32],
            proofs: vec![([6; 16], [7; 32]), ([8; 16], [9; 32])],
            evidence: vec![5; 100],
        };
        let record = attestation.to_bytes();
        assert_eq!(record[..104], attestation.head());
        assert_eq!(record.len(), 104 + 2 * 48 + 100);
        assert_eq!(Attestation::parse(&record), Some(attestation));
        // More proofs than bytes, and more than there may be.
        for (at, value) in [(0, 9), (2, 9), (4, 5), (5, 4), (6, 1), (7, 0x80)] {
            let mut bad = record.clone();
            bad[at] = value;
            assert_eq!(Attestation::parse(&bad), None, "byte {at}");
            let other = Attestation::is_of_other_version(&bad);
            assert_eq!(other, at == 0, "byte {at}");
        }
        for cut in 0..200 {
            assert_eq!(Attestation::parse(&record[..cut]), None, "{cut} bytes");
        }
    }

    #[test]
    fn sequence_numbers_make_distinct_nonces() {
        let head = |sequence| Sealed {
            session: [0; 16],
            sequence,
        };
        assert_ne!(head(1).nonce(), head(256).nonce());
        let mut message = head(3).to_bytes().to_vec();
        message.extend_from_slice(&[0; 15]);
        assert_eq!(Sealed::parse(&message), None, "no room for a tag");
        message.push(0);
        assert_eq!(
            Sealed::parse(&message).map(|(head, rest)| (head.sequence, rest.len())),
            Some((3, 16))
        );
    }
}
