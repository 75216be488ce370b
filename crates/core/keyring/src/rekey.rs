//! Changing who may open an object, changing its data key, and following such a change that another
//! process has made.
//!
//! Every function returns a new [`Object`]; the caller makes its header durable ([`crate::redo`])
//! before it uses it.
//! Order of a rekey (K8), which the product that owns the data must keep:
//! 1. `rekey_begun`, header durable: both epochs open, new writes use the new one.
//! 2. Every unit sealed under the old epoch is rewritten, and an anchor under the new epoch is
//!    durable.
//! 3. `rekey_finished`, header durable: the old key is erased. Units that are still sealed under it
//!    are lost.
//!
//! Must not: do I/O; drop a slot that the caller did not know about.

use strongroom_crypto::SecretKey;
use strongroom_format::aad::Role;
use strongroom_format::code;
use strongroom_format::header::{Header, SLOTS_MAX, WrappedKey};
use strongroom_format::slot::{Slot, SlotKind};

use crate::error::Error;
use crate::fresh::{Fresh, System};
use crate::object::{Object, parse, sealed_canary, under};
use crate::purpose::Label;
use crate::recipient::Recipient;
use crate::slot::{HeldSlot, Opened, open_slot};
use crate::wrap::{key_aad, wrap};

impl Object {
    /// Opens a header that another process has rewritten, without an opener: with the KEK of the
    /// slot that opened this object, which is found by the slot's salt, or, in the same epoch, with
    /// this object's data key. Returns the object with the new header.
    ///
    /// # Errors
    /// SR-2017 when neither helps, or another object is in its place; SR-3004 when the MAC is wrong
    /// or an older header was put back; SR-3001 to SR-3006 for other damage, as [`Object::open`];
    /// SR-5001 when the system reports an error.
    pub fn reload(&self, header: &[u8]) -> Result<Self, Error> {
        let parsed = parse(header)?;
        if parsed.kind != self.header.kind || parsed.object_id != self.header.object_id {
            return Err(Error::new(
                &code::KEY_CHANGED,
                "another object is in its place",
            ));
        }
        if parsed.sequence < self.header.sequence {
            return Err(Error::new(
                &code::HEADER_FORGED,
                "an older header was put back",
            ));
        }
        let opened = self.retained_key(&parsed)?;
        Self::authenticated(parsed, header, opened)
    }

    /// Makes a header with the same data key and slots for exactly these recipients; former slots
    /// are gone. The first new slot becomes the one in use. Writes nothing.
    ///
    /// # Errors
    /// SR-2019 without recipients; SR-2012 for a recipient whose key is retired; SR-3009 when the
    /// slots do not fit; SR-5001 when the system reports an error.
    pub fn rewrapped(&self, recipients: &[&Recipient]) -> Result<Self, Error> {
        self.rewrapped_with(&mut System, recipients)
    }

    /// Makes a header with the same data key and slots for these recipients added to the present
    /// ones. A key of a keyring or a certificate that has a slot already keeps it, and gets no
    /// second one. Writes nothing.
    ///
    /// # Errors
    /// SR-2019 without recipients; SR-2012 for a recipient whose key is retired; SR-3009 when the
    /// slots do not fit; SR-5001 when the system reports an error.
    pub fn extended(&self, recipients: &[&Recipient]) -> Result<Self, Error> {
        let mut header = self.next_header()?;
        let (slots, _) = self.new_slots(&mut System, header.epoch, &self.data_key, recipients)?;
        for slot in slots {
            if !header
                .slots
                .iter()
                .any(|there| is_for_the_same(there, &slot))
            {
                header.slots.push(slot);
            }
        }
        if header.slots.len() > SLOTS_MAX {
            let detail = format!("at most {SLOTS_MAX}");
            return Err(Error::new(&code::SLOTS_FULL, detail));
        }
        Self::finished(
            header,
            self.data_key.try_clone()?,
            self.cloned_previous()?,
            self.held.try_clone()?,
        )
    }

    /// Begins a rekey: makes a header with a new data key at the next epoch, and the present one
    /// wrapped under it, with slots for exactly these recipients. Without recipients, the slot in
    /// use is kept with its salt and KEK, so that other processes can follow by [`Object::reload`].
    /// Writes nothing.
    ///
    /// # Errors
    /// SR-6011 when a rekey is under way; SR-2019 when no recipient is given and other slots would
    /// be lost; SR-2017 when no recipient is given and the slot in use is gone; SR-2012 for a
    /// recipient whose key is retired; SR-3009 when the slots do not fit; SR-5001 when the system
    /// reports an error.
    pub fn rekey_begun(&self, recipients: &[&Recipient]) -> Result<Self, Error> {
        self.rekey_begun_with(&mut System, recipients)
    }

    /// Ends a rekey: makes a header without the previous epoch's key. What is still sealed under
    /// that key is lost. Writes nothing.
    ///
    /// # Errors
    /// SR-9001 when no rekey is under way; SR-5001 when the system reports an error.
    pub fn rekey_finished(&self) -> Result<Self, Error> {
        if self.previous_epoch().is_none() {
            return Err(Error::new(&code::BUG, "no rekey is under way"));
        }
        let mut header = self.next_header()?;
        header.previous_epoch = 0;
        header.previous_key = WrappedKey::NONE;
        Self::finished(
            header,
            self.data_key.try_clone()?,
            None,
            self.held.try_clone()?,
        )
    }

    /// As [`Object::rewrapped`], with the random values of `fresh`: the same data key, with slots
    /// for exactly these recipients. Writes nothing. Errors: SR-2019 without recipients; SR-2012
    /// for a recipient whose key is retired; SR-3009 when the slots do not fit; SR-5001 when the
    /// system reports an error.
    pub(crate) fn rewrapped_with(
        &self,
        fresh: &mut dyn Fresh,
        recipients: &[&Recipient],
    ) -> Result<Self, Error> {
        let mut header = self.next_header()?;
        let (slots, held) = self.new_slots(fresh, header.epoch, &self.data_key, recipients)?;
        header.slots = slots;
        Self::finished(
            header,
            self.data_key.try_clone()?,
            self.cloned_previous()?,
            held,
        )
    }

    /// As [`Object::rekey_begun`], with the random values of `fresh`: a new data key at the next
    /// epoch, with the present one wrapped under it. Errors: SR-6011 when a rekey is under way;
    /// without recipients SR-2019 when other slots would be lost and SR-2017 when the slot in use
    /// is gone; SR-2012 for a recipient whose key is retired; SR-3009 when the slots do not fit;
    /// SR-5001 when the system reports an error.
    pub(crate) fn rekey_begun_with(
        &self,
        fresh: &mut dyn Fresh,
        recipients: &[&Recipient],
    ) -> Result<Self, Error> {
        if self.previous_epoch().is_some() {
            return Err(Error::new(&code::REKEY_NEEDED, ""));
        }
        let mut header = self.next_header()?;
        let (object_id, old_epoch) = (header.object_id, header.epoch);
        let epoch = old_epoch.checked_add(1);
        header.epoch = epoch.ok_or_else(|| Error::new(&code::BUG, "key epochs are used up"))?;
        header.previous_epoch = old_epoch;
        let data_key = fresh.key()?;
        let (slots, held) = match recipients {
            [] => self.kept_slot(fresh, header.epoch, &data_key)?,
            _ => self.new_slots(fresh, header.epoch, &data_key, recipients)?,
        };
        header.slots = slots;
        let aad = key_aad(Role::PreviousKey, header.epoch, object_id)
            .at(u64::from(header.previous_epoch));
        let wrapping = under(&data_key, object_id, Label::PreviousKey)?;
        header.previous_key = wrap(&wrapping, fresh.nonce()?, &aad, &self.data_key)?;
        header.canary = sealed_canary(fresh, &data_key, object_id, header.epoch)?;
        Self::finished(header, data_key, Some(self.data_key.try_clone()?), held)
    }

    /// Finds the data key of a rewritten header: by the KEK that is held or, in the same epoch, the
    /// present data key, which is not checked here. Errors: SR-2017 when neither helps; SR-5001
    /// when the system reports an error.
    fn retained_key(&self, parsed: &Header) -> Result<Opened, Error> {
        let ours = |slot: &&Slot| slot.salt == self.held.salt && slot.kind == self.held.kind;
        for slot in parsed.slots.iter().filter(ours) {
            let opened = open_slot(slot, &self.held.kek, parsed.epoch, parsed.object_id)?;
            if let Some(data_key) = opened {
                return Ok(Opened {
                    data_key,
                    held: self.held.try_clone()?,
                });
            }
        }
        // Only the slots changed: the data key still belongs to the epoch, and the MAC will tell.
        if parsed.epoch == self.header.epoch {
            let data_key = self.data_key.try_clone()?;
            return Ok(Opened {
                data_key,
                held: self.held.try_clone()?,
            });
        }
        Err(Error::new(&code::KEY_CHANGED, ""))
    }

    /// Returns a copy of the header with the next sequence. Errors: SR-9001 when none is left.
    fn next_header(&self) -> Result<Header, Error> {
        let mut header = self.header.clone();
        let sequence = header.sequence.checked_add(1);
        header.sequence = sequence.ok_or_else(|| Error::new(&code::BUG, "sequence overflow"))?;
        Ok(header)
    }

    /// Copies the previous epoch's data key; `None` when no rekey is under way. Errors: SR-5001
    /// without memory for keys.
    fn cloned_previous(&self) -> Result<Option<SecretKey>, Error> {
        Ok(self
            .previous
            .as_ref()
            .map(SecretKey::try_clone)
            .transpose()?)
    }

    /// Seals a slot for each recipient, and returns them with the first one's KEK. Errors: SR-2019
    /// without recipients; SR-3009 for too many; SR-2012 for a recipient whose key is retired;
    /// SR-5001 when the system reports an error.
    fn new_slots(
        &self,
        fresh: &mut dyn Fresh,
        epoch: u32,
        data_key: &SecretKey,
        recipients: &[&Recipient],
    ) -> Result<(Vec<Slot>, HeldSlot), Error> {
        if recipients.len() > SLOTS_MAX {
            return Err(Error::new(
                &code::SLOTS_FULL,
                format!("at most {SLOTS_MAX}"),
            ));
        }
        let mut slots = Vec::new();
        let mut first = None;
        for recipient in recipients {
            let (slot, held) = recipient.seal(fresh, epoch, self.header.object_id, data_key)?;
            slots.push(slot);
            first.get_or_insert(held);
        }
        match first {
            Some(held) => Ok((slots, held)),
            None => Err(Error::new(
                &code::KEY_OPTION,
                "an object needs at least one key slot",
            )),
        }
    }

    /// Seals the slot in use again around a new data key, with the same salt and KEK. Errors:
    /// SR-2019 when there are other slots, which would be lost; SR-2017 when the slot in use is
    /// gone; SR-5001 when the system reports an error.
    fn kept_slot(
        &self,
        fresh: &mut dyn Fresh,
        epoch: u32,
        data_key: &SecretKey,
    ) -> Result<(Vec<Slot>, HeldSlot), Error> {
        let slots = &self.header.slots;
        if slots.len() > 1 {
            let detail = format!(
                "the object has {} key slots: name a key for each",
                slots.len()
            );
            return Err(Error::new(&code::KEY_OPTION, detail));
        }
        if !slots
            .iter()
            .any(|slot| slot.salt == self.held.salt && slot.kind == self.held.kind)
        {
            return Err(Error::new(
                &code::KEY_CHANGED,
                "the key slot in use is gone",
            ));
        }
        let slot = self
            .held
            .seal(fresh, epoch, self.header.object_id, data_key)?;
        Ok((vec![slot], self.held.try_clone()?))
    }
}

/// Whether both slots are for the same version of a key of a keyring, or for the same certificate.
/// Always false for passphrases and raw keys, which a slot does not name.
fn is_for_the_same(a: &Slot, b: &Slot) -> bool {
    match (&a.kind, &b.kind) {
        (SlotKind::Certificate { id, .. }, SlotKind::Certificate { id: other, .. }) => id == other,
        (keyring @ SlotKind::Keyring { .. }, other) => keyring == other,
        _ => false,
    }
}
