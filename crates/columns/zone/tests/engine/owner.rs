//! The data owner's end of the channel, for these tests: opens a session over a ring, seals and
//! opens envelopes.

use std::collections::BTreeMap;

use strongroom_columns_ring::{Broken, Descriptor, Host, Op};
use strongroom_crypto::{
    GcmKey, KeyAgreement, MacKey, SecretKey, hkdf, nonce12, random16, random32, sha256,
};
use strongroom_format::columns::channel::{
    Attestation, CLIENT_LABEL, Hello, MESSAGE_HELLO, Request, Sealed, TICKET_LABEL, Ticket,
    ZONE_LABEL, associated_data,
};
use strongroom_format::columns::envelope::{self, EnvelopeHeader};
use strongroom_format::columns::{Kind, Lineage, Sealer};

use super::{call_bytes, go_on};

/// Column keys by id.
pub(crate) struct Owner(BTreeMap<[u8; 16], SecretKey>);

impl Owner {
    /// Keys by their ids, each of one byte 32 times.
    pub(crate) fn new(ids: &[([u8; 16], u8)]) -> Self {
        let key = |byte: u8| SecretKey::take(&mut [byte; 32]).unwrap();
        Self(ids.iter().map(|(id, byte)| (*id, key(*byte))).collect())
    }

    /// Opens a session on the ring with the keys that the ticket names.
    pub(crate) fn open(&self, host: &mut Host, ticket: &Ticket) -> Result<[u8; 16], Broken> {
        let attestation = self.ask(host)?;
        self.answer(host, attestation, ticket)
    }

    /// Has the zone attest itself.
    pub(crate) fn ask(&self, host: &mut Host) -> Result<Vec<u8>, Broken> {
        let nonce = random32().unwrap();
        let attestation = call_bytes(host, Op::Attest, &nonce)?;
        assert_eq!(Attestation::parse(&attestation).unwrap().nonce, nonce);
        Ok(attestation)
    }

    /// Opens a session with the zone that attested itself so.
    pub(crate) fn answer(
        &self,
        host: &mut Host,
        attestation: Vec<u8>,
        ticket: &Ticket,
    ) -> Result<[u8; 16], Broken> {
        let parsed = Attestation::parse(&attestation).unwrap();
        let (private, client_key) = KeyAgreement::generate().unwrap();
        let hello = Hello {
            client_key,
            zone_key: parsed.public_key,
        }
        .to_bytes();
        let salt = sha256(&[&attestation, &hello]);
        let labels = (CLIENT_LABEL.as_bytes(), ZONE_LABEL.as_bytes());
        let (send, _) = private
            .agree(&parsed.public_key, &salt, labels.0, labels.1)
            .unwrap();
        let mut request = self.opening(ticket);
        let head = Sealed {
            session: [0; 16],
            sequence: 0,
        };
        let associated = associated_data(Some(&hello), &head.to_bytes()).unwrap();
        let send = GcmKey::new(&send).unwrap();
        let tag = send.seal(&head.nonce(), &associated, &mut request).unwrap();
        let message = [
            &[MESSAGE_HELLO],
            &hello[..],
            &head.to_bytes(),
            &request,
            &tag,
        ]
        .concat();
        let reply = call_bytes(host, Op::Message, &message)?;
        Ok(Sealed::parse(&reply).unwrap().0.session)
    }

    fn opening(&self, ticket: &Ticket) -> Vec<u8> {
        let covered = ticket.to_bytes().unwrap();
        let mut request = vec![Request::Open.number(), 4];
        request.extend_from_slice(b"test");
        request.extend_from_slice(&u16::try_from(ticket.keys.len()).unwrap().to_le_bytes());
        for id in &ticket.keys {
            request.extend_from_slice(id);
            request.extend_from_slice(self.0[id].expose());
        }
        request.extend_from_slice(&covered);
        for id in &ticket.keys {
            let key = hkdf(&self.0[id], id, TICKET_LABEL.as_bytes()).unwrap();
            request.extend_from_slice(&MacKey::new(&key).unwrap().mac(&[&covered]));
        }
        request
    }

    fn envelope_key(&self, header: &EnvelopeHeader) -> GcmKey {
        let label = envelope::ENVELOPE_LABEL.as_bytes();
        let key = hkdf(&self.0[&header.key_id], &header.salt, label).unwrap();
        GcmKey::new(&key).unwrap()
    }

    /// The envelope of a constant, in PostgreSQL's binary form, that is for no column.
    pub(crate) fn seal(&self, id: [u8; 16], kind: Kind, value: &[u8]) -> Vec<u8> {
        self.seal_for(Lineage::CLIENT, id, kind, value)
    }

    /// The envelope of a constant for the column of this lineage.
    pub(crate) fn seal_for(
        &self,
        lineage: Lineage,
        id: [u8; 16],
        kind: Kind,
        value: &[u8],
    ) -> Vec<u8> {
        let header = EnvelopeHeader {
            kind,
            sealer: Sealer::Client,
            key_id: id,
            salt: random16().unwrap(),
            nonce: nonce12().unwrap(),
            lineage,
            serial: 0,
        };
        let mut padded = value.to_vec();
        envelope::pad(kind, &mut padded);
        let key = self.envelope_key(&header);
        let tag = key
            .seal(
                &header.nonce,
                &header.associated_data(&[0; 16]),
                &mut padded,
            )
            .unwrap();
        [&header.to_bytes()[..], &padded, &tag].concat()
    }

    /// Key and value of an envelope that is no result of a session.
    pub(crate) fn open_envelope(&self, sealed: &[u8]) -> ([u8; 16], Vec<u8>) {
        let (header, value) = self.open_result(&[0; 16], sealed);
        assert_eq!(header.serial, 0);
        (header.key_id, value)
    }

    /// Header and value of an envelope, which opens for this session if it is a result.
    pub(crate) fn open_result(
        &self,
        session: &[u8; 16],
        sealed: &[u8],
    ) -> (EnvelopeHeader, Vec<u8>) {
        let header = EnvelopeHeader::parse(sealed).unwrap();
        let head = header.head_len();
        let (body, tag) = sealed[head..].split_last_chunk::<16>().unwrap();
        let mut body = body.to_vec();
        let key = self.envelope_key(&header);
        key.open(
            &header.nonce,
            &header.associated_data(session),
            &mut body,
            tag,
        )
        .unwrap();
        let len = envelope::unpadded(header.kind, &body).unwrap();
        body.truncate(len);
        (header, body)
    }
}

/// Has an envelope opened into an ephemeral, or into a literal with `flags`.
pub(crate) fn intake(
    host: &mut Host,
    kind: Kind,
    sealed: &[u8],
    flags: u16,
) -> Result<u64, Broken> {
    let r = if flags == 0 {
        host.fresh()?
    } else {
        host.fresh_literal()?
    };
    host.area(go_on)?.write(0, sealed).unwrap();
    let descriptor = Descriptor {
        flags: flags | u16::from(kind.number()),
        n: u32::try_from(sealed.len()).unwrap(),
        r: r.bits(),
        ..Descriptor::of(Op::OpenEnvelope)
    };
    Ok(host.call(descriptor, go_on)?.value)
}
