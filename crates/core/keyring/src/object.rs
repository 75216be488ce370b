//! An opened and authenticated object header, which derives the keys of one sealed object.
//!
//! Invariants: K3, nothing in a header is acted upon before its MAC has been verified, except the
//! slots, the object id and the epoch, which are needed for that and which the MAC covers too; K4,
//! the order of checks is fixed, so that each kind of damage has one code; K7, a data key is only
//! ever input to HKDF, with the object id and a label.
//!
//! Must not: do I/O (see [`crate::redo`]); expose a data key.

use strongroom_crypto::{
    GcmKey, MacKey, SecretBytes, SecretKey, hkdf, hkdf_bytes, sha256, wipe_stack,
};
use strongroom_format::aad::Role;
use strongroom_format::code::{self, Code};
use strongroom_format::freshness::FreshState;
use strongroom_format::header::{
    Anchor, CANARY_PLAINTEXT, CHECKSUM_COVERS, Canary, Cipher, FIXED_LEN, HEADER_LEN, Header,
    HeaderError, MAC_COVERS, ObjectKind, WrappedKey, anchor_layout, header_layout,
};
use strongroom_format::layout::{array, bytes};
use strongroom_format::postgres::BLOCK;
use strongroom_format::slot::SlotKind;

use crate::error::Error;
use crate::fresh::{Fresh, System};
use crate::opener::Opener;
use crate::purpose::{Label, Purpose};
use crate::recipient::Recipient;
use crate::slot::{HeldSlot, Opened, costs_are_bounded};
use crate::wrap::{key_aad, unwrap};

/// The properties of a new object.
#[derive(Clone, Copy, Debug)]
pub struct NewObject {
    /// What the object is.
    pub kind: ObjectKind,
    /// Cipher of its pages.
    pub cipher: Cipher,
    /// Page size in bytes; 0 where there is none.
    pub unit_size: u32,
    /// Bytes at the end of each page for nonce, tag and epoch; 0 where there are no pages.
    pub unit_reserve: u32,
}

impl NewObject {
    /// Returns the properties of a PostgreSQL instance whose blocks are sealed with `cipher`,
    /// AES-128-XTS or AES-256-XTS; the cipher is not checked here.
    #[must_use]
    pub const fn instance(cipher: Cipher) -> Self {
        Self {
            kind: ObjectKind::Postgres,
            cipher,
            unit_size: BLOCK,
            unit_reserve: 0,
        }
    }

    /// Returns the properties of a backup set whose families are sealed with `cipher`, AES-GCM of
    /// any key length; the cipher is not checked here.
    #[must_use]
    pub const fn backup(cipher: Cipher) -> Self {
        Self {
            kind: ObjectKind::Backup,
            cipher,
            unit_size: 0,
            unit_reserve: 0,
        }
    }

    /// Returns the properties of a privacy zone's store, sealed with AES-256-GCM.
    #[must_use]
    pub const fn zone() -> Self {
        Self {
            kind: ObjectKind::Zone,
            cipher: Cipher::Aes256Gcm,
            unit_size: 0,
            unit_reserve: 0,
        }
    }
}

/// An opened object: an authenticated header and the data keys.
pub struct Object {
    pub(crate) header: Header,
    /// The header's fixed part, `FIXED_LEN` bytes, as authenticated or as made.
    pub(crate) fixed: Vec<u8>,
    pub(crate) data_key: SecretKey,
    /// Data key of the previous epoch, while a rekey is under way.
    pub(crate) previous: Option<SecretKey>,
    pub(crate) held: HeldSlot,
    /// Anchor A of a new file under the current epoch; empty for a keyring and for an instance.
    first_anchor: Vec<u8>,
}

impl Object {
    /// Makes a new object in memory: random id, random data key, epoch 1, one slot for `recipient`.
    /// Writes nothing. For a passphrase this runs Argon2id.
    ///
    /// # Errors
    /// SR-2012 when every version of the recipient's key is retired; SR-5001 when the system
    /// reports an error.
    pub fn create(new: &NewObject, recipient: &Recipient) -> Result<Self, Error> {
        Self::create_with(&mut System, new, recipient)
    }

    /// Opens and authenticates a header: at least its fixed part, as read from the start of the
    /// object. For a passphrase this runs Argon2id.
    ///
    /// # Errors
    /// In this order: SR-3001 not sealed, SR-3006 truncated, SR-3002 newer version, SR-3003
    /// checksum, structure or Argon2 costs, SR-3007 another kind than `kind`, SR-2002, SR-2003 or
    /// SR-2032 no slot opens, SR-3004 MAC, SR-3005 canary or previous key. SR-5001 when there is no
    /// memory.
    pub fn open(header: &[u8], kind: ObjectKind, opener: &Opener) -> Result<Self, Error> {
        let parsed = parse(header)?;
        if parsed.kind != kind {
            let detail = format!("{} instead of {}", parsed.kind.name(), kind.name());
            return Err(Error::new(&code::WRONG_KIND, detail));
        }
        let opened = opener.open(&parsed.slots, parsed.epoch, parsed.object_id)?;
        Self::authenticated(parsed, header, opened)
    }

    /// Returns the header that was authenticated or made, without its anchors.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the header's fixed part as on disk, `FIXED_LEN` (3072) bytes: all but the anchors.
    #[must_use]
    pub fn header_bytes(&self) -> Vec<u8> {
        self.fixed.clone()
    }

    /// Returns the whole header, `HEADER_LEN` (4096) bytes, for a file that does not exist yet. For
    /// a database it contains the first anchor (sequence 1, no log); for any other object zeros are
    /// there. Never to be written over an existing header, whose anchors would be lost.
    #[must_use]
    pub fn initial_bytes(&self) -> Vec<u8> {
        let mut out = self.fixed.clone();
        out.extend_from_slice(&self.first_anchor);
        out.resize(HEADER_LEN, 0);
        out
    }

    /// Returns the object's random id.
    #[must_use]
    pub fn object_id(&self) -> [u8; 16] {
        self.header.object_id
    }

    /// Returns the epoch whose data key seals new writes, from 1.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.header.epoch
    }

    /// Returns the epoch that a rekey under way replaces; `None` when none is under way.
    #[must_use]
    pub fn previous_epoch(&self) -> Option<u32> {
        (self.header.previous_epoch != 0).then_some(self.header.previous_epoch)
    }

    /// Returns the kind of the slot that opened the object; of a new object, of its first slot.
    #[must_use]
    pub fn opened_by(&self) -> &SlotKind {
        &self.held.kind
    }

    /// Derives the sub-key for `purpose` from the data key of `epoch`: HKDF-SHA256, salt = object
    /// id, info = the purpose's label.
    ///
    /// # Errors
    /// SR-4008 when the header has no data key of this epoch; SR-5001 when there is no memory for
    /// keys.
    pub fn subkey(&self, epoch: u32, purpose: Purpose) -> Result<SecretKey, Error> {
        self.labelled(epoch, Label::For(purpose))
    }

    /// Derives the sub-key for `purpose` as an XTS key, both halves, of the length that the
    /// header's cipher takes: HKDF-SHA256, salt = object id, info = the purpose's label.
    ///
    /// # Errors
    /// SR-4008 when the header has no data key of this epoch; SR-9001 when the object's cipher is
    /// not XTS; SR-5001 when the system reports an error.
    pub fn xts_subkey(&self, epoch: u32, purpose: Purpose) -> Result<SecretBytes, Error> {
        let Some(len) = self.header.cipher.xts_key_len() else {
            return Err(Error::new(&code::BUG, "an XTS key of an object without"));
        };
        let data_key = self.data_key_of(epoch)?;
        let label = Label::For(purpose).info();
        Ok(hkdf_bytes(data_key, &self.header.object_id, label, len)?)
    }

    /// Derives a key below a sub-key, for one file or one name: HKDF-SHA256 of the sub-key with
    /// `salt` and `info`.
    ///
    /// # Errors
    /// SR-4008 when the header has no data key of this epoch; SR-5001 when there is no memory for
    /// keys.
    pub fn derive(
        &self,
        epoch: u32,
        purpose: Purpose,
        salt: &[u8; 32],
        info: &[u8],
    ) -> Result<SecretKey, Error> {
        Ok(hkdf(&self.subkey(epoch, purpose)?, salt, info)?)
    }

    /// Returns the anchor in force: of the two in `header` (4096 bytes), the valid one with the
    /// higher sequence. Valid is one whose MAC is right, that is in the sector of its sequence, and
    /// that has a freshness state exactly if the header says so.
    ///
    /// # Errors
    /// SR-3006 when the header is cut short; SR-3010 when neither anchor is valid; SR-5001 when the
    /// system reports an error.
    pub fn anchor(&self, header: &[u8]) -> Result<Anchor, Error> {
        if header.len() < HEADER_LEN {
            return Err(truncated(header));
        }
        let mut newest: Option<Anchor> = None;
        for field in [header_layout::ANCHOR_A, header_layout::ANCHOR_B] {
            let sector = bytes(header, field).unwrap_or_default();
            let Some(anchor) = Anchor::parse(sector) else {
                continue;
            };
            let has_digest = anchor.freshness != [0; anchor_layout::FRESHNESS.len];
            if has_digest != self.header.freshness {
                // An attacker could otherwise leave the digest out.
                continue;
            }
            let newer = newest.is_none_or(|best| anchor.sequence > best.sequence);
            // An anchor belongs into the sector of its sequence: a copy in the other sector does
            // not count.
            let at_home = Anchor::offset(anchor.sequence) == field.offset;
            if newer && at_home && self.anchor_is_authentic(&anchor, sector)? {
                newest = Some(anchor);
            }
        }
        newest.ok_or_else(|| Error::new(&code::ANCHOR, ""))
    }

    /// Makes an anchor under the current epoch. The caller raises the sequence by one at each
    /// write, and writes the anchor to [`Anchor::offset`]. `state` is the freshness state of a
    /// database that keeps one, and `None` for any other. `seals` is the estimate of the pages that
    /// were sealed under the data key of this epoch.
    ///
    /// # Errors
    /// SR-5001 when no memory for keys can be had; SR-9001 when there is a `state` and the header
    /// says that there is none, or the other way round.
    pub fn seal_anchor(
        &self,
        sequence: u64,
        wal_generation: [u8; 16],
        state: Option<&FreshState>,
        seals: u64,
    ) -> Result<Anchor, Error> {
        let freshness = match (state, self.header.freshness) {
            (Some(state), true) => self.sealed_state(sequence, state)?,
            (None, false) => [0; anchor_layout::FRESHNESS.len],
            (None, true) => return Err(Error::new(&code::BUG, "an anchor without its digest")),
            (Some(_), false) => {
                let detail = "a digest in the anchor of a database that keeps none";
                return Err(Error::new(&code::BUG, detail));
            }
        };
        let mut anchor = Anchor {
            sequence,
            epoch: self.epoch(),
            wal_generation,
            freshness,
            seals,
            mac: [0; 32],
        };
        let key = MacKey::new(&self.labelled(anchor.epoch, Label::Anchor)?)?;
        anchor.mac = key.mac(&[anchor_covered(&anchor.to_bytes())]);
        Ok(anchor)
    }

    /// As [`Object::create`], with the random values and the time of `fresh`: makes a new object in
    /// memory with one slot. Errors: SR-2012 when every version of the recipient's key is retired;
    /// SR-5001 when the system reports an error.
    pub(crate) fn create_with(
        fresh: &mut dyn Fresh,
        new: &NewObject,
        recipient: &Recipient,
    ) -> Result<Self, Error> {
        let object_id = fresh.id()?;
        let data_key = fresh.key()?;
        let (slot, held) = recipient.seal(fresh, 1, object_id, &data_key)?;
        let header = Header {
            kind: new.kind,
            object_id,
            created_unix_s: fresh.now_unix_s(),
            cipher: new.cipher,
            unit_size: new.unit_size,
            unit_reserve: new.unit_reserve,
            epoch: 1,
            previous_epoch: 0,
            sequence: 1,
            freshness: false,
            sealed_zeros: new.kind == ObjectKind::Postgres,
            bound_names: new.kind == ObjectKind::Postgres,
            previous_key: WrappedKey::NONE,
            canary: sealed_canary(fresh, &data_key, object_id, 1)?,
            slots: vec![slot],
            mac: [0; 32],
            checksum: [0; 32],
        };
        Self::finished(header, data_key, None, held)
    }

    /// Computes MAC and checksum of a header that was made or changed here, and puts the object
    /// together. Errors: SR-3009 when the slots do not fit, or cost more Argon2id than a reader
    /// accepts; SR-9001 when the header cannot be written for another reason; SR-5001 when the
    /// system reports an error.
    pub(crate) fn finished(
        mut header: Header,
        data_key: SecretKey,
        previous: Option<SecretKey>,
        held: HeldSlot,
    ) -> Result<Self, Error> {
        if !costs_are_bounded(&header.slots) {
            let detail = "together they would cost more Argon2id than a reader accepts";
            return Err(Error::new(&code::SLOTS_FULL, detail));
        }
        let bug = |error| match error {
            HeaderError::Malformed("SLOTS") => Error::new(&code::SLOTS_FULL, "their bytes"),
            _ => Error::new(&code::BUG, "a header that cannot be written"),
        };
        header.mac = header_mac(&data_key, &header, &header.to_bytes().map_err(bug)?)?;
        let with_mac = header.to_bytes().map_err(bug)?;
        header.checksum = sha256(&[with_mac.get(..CHECKSUM_COVERS).unwrap_or_default()]);
        let fixed = header.to_bytes().map_err(bug)?;
        Self::assembled(header, fixed, data_key, previous, held)
    }

    /// Accepts a parsed header after its MAC, canary and previous key have been verified, in this
    /// order. Errors: SR-3006 when `bytes` are shorter than the fixed part; SR-3004 MAC; SR-3005
    /// canary or previous key; SR-5001 when the system reports an error.
    pub(crate) fn authenticated(
        header: Header,
        bytes: &[u8],
        opened: Opened,
    ) -> Result<Self, Error> {
        let Opened { data_key, held } = opened;
        let fixed = bytes
            .get(..FIXED_LEN)
            .ok_or_else(|| truncated(bytes))?
            .to_vec();
        let expected = MacKey::new(&under(&data_key, header.object_id, Label::HeaderMac)?)?;
        if !expected.verify(&[mac_covered(&fixed)], &header.mac) {
            return Err(Error::new(&code::HEADER_FORGED, ""));
        }
        if !canary_opens(&header, &data_key)? {
            return Err(Error::new(&code::CANARY, ""));
        }
        let previous = opened_previous(&header, &data_key)?;
        Self::assembled(header, fixed, data_key, previous, held)
    }

    /// Puts an object together from parts that are known to be right. A database gets its first
    /// anchor. Wipes the stack, where derived keys may be left. Errors: SR-5001 without randomness
    /// or memory for keys.
    fn assembled(
        header: Header,
        fixed: Vec<u8>,
        data_key: SecretKey,
        previous: Option<SecretKey>,
        held: HeldSlot,
    ) -> Result<Self, Error> {
        let first_anchor = Vec::new();
        let mut object = Self {
            header,
            fixed,
            data_key,
            previous,
            held,
            first_anchor,
        };
        // Only a database has state that changes beside its header.
        if object.header.kind == ObjectKind::Sqlite {
            let state = FreshState::default();
            let state = object.header.freshness.then_some(&state);
            let anchor = object.seal_anchor(1, [0; 16], state, 0)?;
            object.first_anchor = anchor.to_bytes().to_vec();
        }
        wipe_stack();
        Ok(object)
    }

    /// Derives the sub-key with this label from the data key of `epoch`. Errors: SR-4008 when the
    /// header has no data key of this epoch; SR-5001 without memory for keys.
    pub(crate) fn labelled(&self, epoch: u32, label: Label) -> Result<SecretKey, Error> {
        under(self.data_key_of(epoch)?, self.header.object_id, label)
    }

    /// Returns the data key of the current epoch, or of the previous one during a rekey. Errors:
    /// SR-4008 for any other epoch.
    fn data_key_of(&self, epoch: u32) -> Result<&SecretKey, Error> {
        match (&self.previous, self.previous_epoch()) {
            _ if epoch == self.epoch() => Ok(&self.data_key),
            (Some(previous), Some(known)) if epoch == known => Ok(previous),
            _ => Err(Error::new(&code::UNKNOWN_EPOCH, format!("epoch {epoch}"))),
        }
    }

    /// Whether the MAC of an anchor, whose bytes are `sector`, is right. False for an epoch of
    /// which there is no data key. Errors: SR-5001 when there is no memory for keys.
    fn anchor_is_authentic(&self, anchor: &Anchor, sector: &[u8]) -> Result<bool, Error> {
        match self.labelled(anchor.epoch, Label::Anchor) {
            Ok(key) => Ok(MacKey::new(&key)?.verify(&[anchor_covered(sector)], &anchor.mac)),
            Err(error) if error.code() == &code::UNKNOWN_EPOCH => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Whether the header's checksum is right; false also for a header that is too short. It needs no
/// key, and so proves nothing against somebody who changes bytes on purpose; it distinguishes
/// damage from a wrong key.
#[must_use]
pub fn inspect_checksum(header: &[u8]) -> bool {
    match (
        header.get(..CHECKSUM_COVERS),
        array(header, header_layout::CHECKSUM),
    ) {
        (Some(covered), Some(checksum)) => sha256(&[covered]) == checksum,
        _ => false,
    }
}

/// Parses a header and checks everything that needs no key: magic, length, version, checksum,
/// structure, Argon2 costs. Errors: SR-3001 not sealed; SR-3006 truncated; SR-3002 newer version;
/// SR-3003 any of the rest.
pub(crate) fn parse(header: &[u8]) -> Result<Header, Error> {
    let parsed = Header::parse(header);
    let damaged = |detail: String| Error::new(&code::HEADER_DAMAGED, detail);
    match parsed {
        Err(HeaderError::NotSealed) => Err(Error::new(&code::NOT_SEALED, "")),
        Err(HeaderError::Truncated) => Err(truncated(header)),
        Err(HeaderError::Newer(version)) => Err(Error::new(
            &code::NEWER_FORMAT,
            format!("format version {version}"),
        )),
        // The checksum is checked before the structure, so that damage is reported as damage.
        _ if !inspect_checksum(header) => Err(damaged(String::from("checksum"))),
        Ok(header) if !costs_are_bounded(&header.slots) => {
            Err(damaged(String::from("Argon2 costs out of bounds")))
        }
        Ok(header) => Ok(header),
        Err(HeaderError::Malformed(field)) => Err(damaged(format!("field {field}"))),
        Err(_) => Err(damaged(String::from("structure"))),
    }
}

/// Seals the canary under a new data key, with a fresh nonce. Errors: SR-5001 without randomness or
/// memory for keys.
pub(crate) fn sealed_canary(
    fresh: &mut dyn Fresh,
    data_key: &SecretKey,
    object_id: [u8; 16],
    epoch: u32,
) -> Result<Canary, Error> {
    let nonce = fresh.nonce()?;
    let mut value = CANARY_PLAINTEXT;
    let aad = key_aad(Role::Canary, epoch, object_id).at(0);
    let key = GcmKey::new(&under(data_key, object_id, Label::Canary)?)?;
    let tag = key.seal(&nonce, &aad, &mut value)?;
    Ok(Canary { nonce, value, tag })
}

/// Derives a sub-key of a data key: HKDF-SHA256, salt = object id, info = label (RFC 5869). Errors:
/// SR-5001 when there is no memory for keys.
pub(crate) fn under(
    data_key: &SecretKey,
    object_id: [u8; 16],
    label: Label,
) -> Result<SecretKey, Error> {
    Ok(hkdf(data_key, &object_id, label.info())?)
}

/// Makes the error SR-3006 with the number of bytes that there are.
fn truncated(header: &[u8]) -> Error {
    let code: &'static Code = &code::HEADER_TRUNCATED;
    Error::new(code, format!("{} of {HEADER_LEN} bytes", header.len()))
}

/// Whether the canary opens under this data key, and has the known value. Errors: SR-5001 without
/// memory for keys.
fn canary_opens(header: &Header, data_key: &SecretKey) -> Result<bool, Error> {
    let Canary {
        nonce,
        mut value,
        tag,
    } = header.canary;
    let aad = key_aad(Role::Canary, header.epoch, header.object_id).at(0);
    let key = GcmKey::new(&under(data_key, header.object_id, Label::Canary)?)?;
    let opened = key.open(&nonce, &aad, &mut value, &tag);
    Ok(opened.is_ok() && value == CANARY_PLAINTEXT)
}

/// Unwraps the previous epoch's data key. `None` when no rekey is under way. Errors: SR-3005 when
/// it does not unwrap; SR-5001 when the system reports an error.
fn opened_previous(header: &Header, data_key: &SecretKey) -> Result<Option<SecretKey>, Error> {
    if header.previous_epoch == 0 {
        return Ok(None);
    }
    let key = under(data_key, header.object_id, Label::PreviousKey)?;
    let aad = key_aad(Role::PreviousKey, header.epoch, header.object_id)
        .at(u64::from(header.previous_epoch));
    match unwrap(&key, &aad, &header.previous_key)? {
        Some(previous) => Ok(Some(previous)),
        None => Err(Error::new(
            &code::CANARY,
            "the previous epoch's key does not open",
        )),
    }
}

/// Computes the MAC over the part of a header that it covers. Errors: SR-5001 without memory for
/// keys.
fn header_mac(data_key: &SecretKey, header: &Header, fixed: &[u8]) -> Result<[u8; 32], Error> {
    let key = MacKey::new(&under(data_key, header.object_id, Label::HeaderMac)?)?;
    Ok(key.mac(&[mac_covered(fixed)]))
}

/// Returns the part of a header that its MAC covers; empty when the header is cut short.
fn mac_covered(fixed: &[u8]) -> &[u8] {
    fixed.get(..MAC_COVERS).unwrap_or_default()
}

/// Returns the part of an anchor's sector that its MAC covers; empty when the sector is cut short.
fn anchor_covered(sector: &[u8]) -> &[u8] {
    sector.get(..anchor_layout::MAC.offset).unwrap_or_default()
}
