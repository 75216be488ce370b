//! The part of freshness that needs keys: sealing the state in an anchor, and computing a root from
//! it. docs/spec/sqlite.md, "Freshness".
//!
//! Must not: return a digest in clear to anybody but the VFS.

use strongroom_crypto::{GcmKey, MacKey, nonce12};
use strongroom_format::aad::Role;
use strongroom_format::code;
use strongroom_format::freshness::{Covered, FreshState, freshness_layout};
use strongroom_format::header::{Anchor, ObjectKind};
use strongroom_format::layout::{array, put};

use crate::error::Error;
use crate::object::Object;
use crate::purpose::Label;
use crate::wrap::key_aad;

impl Object {
    /// Returns the same database object, with a header and a first anchor that keep freshness. Only
    /// for an object that was not written to a file yet.
    ///
    /// # Errors
    /// SR-9001 when it is not a database; SR-5001 without randomness or memory for keys.
    pub fn keeping_freshness(self) -> Result<Self, Error> {
        if self.header.kind != ObjectKind::Sqlite {
            return Err(Error::new(&code::BUG, "freshness is a database's"));
        }
        let mut header = self.header;
        header.freshness = true;
        Self::finished(header, self.data_key, self.previous, self.held)
    }

    /// Seals the freshness state for the field `FRESHNESS` of the anchor of this sequence, under a
    /// random nonce.
    ///
    /// # Errors
    /// SR-5001 without randomness or memory for keys.
    pub(crate) fn sealed_state(
        &self,
        sequence: u64,
        state: &FreshState,
    ) -> Result<[u8; freshness_layout::SIZE], Error> {
        let nonce = nonce12()?;
        let mut plain = state.to_bytes();
        let aad = key_aad(Role::Freshness, self.epoch(), self.object_id()).at(sequence);
        let key = GcmKey::new(&self.labelled(self.epoch(), Label::FreshnessState)?)?;
        let tag = key.seal(&nonce, &aad, &mut plain)?;
        let mut field = [0; freshness_layout::SIZE];
        let done = [
            put(&mut field, freshness_layout::NONCE, &nonce),
            put(&mut field, freshness_layout::STATE, &plain),
            put(&mut field, freshness_layout::TAG, &tag),
        ];
        assert!(done.iter().all(Option::is_some), "freshness layout");
        Ok(field)
    }

    /// Opens the freshness state of a valid anchor.
    ///
    /// # Errors
    /// SR-3010 when it does not open; SR-4008 when the header has no data key of the anchor's
    /// epoch; SR-5001 without memory for keys.
    pub fn fresh_state(&self, anchor: &Anchor) -> Result<FreshState, Error> {
        let failed = || Error::new(&code::ANCHOR, "what it keeps of freshness");
        let field = &anchor.freshness;
        let nonce = array(field, freshness_layout::NONCE).ok_or_else(failed)?;
        let tag = array(field, freshness_layout::TAG).ok_or_else(failed)?;
        let mut plain: [u8; freshness_layout::STATE.len] =
            array(field, freshness_layout::STATE).ok_or_else(failed)?;
        let aad = key_aad(Role::Freshness, anchor.epoch, self.object_id()).at(anchor.sequence);
        let key = GcmKey::new(&self.labelled(anchor.epoch, Label::FreshnessState)?)?;
        key.open(&nonce, &aad, &mut plain, &tag)
            .map_err(|_| failed())?;
        FreshState::parse(&plain).ok_or_else(failed)
    }

    /// Computes the root of these pages under the current epoch: 32 bytes that may be shown. Other
    /// pages have another root.
    ///
    /// # Errors
    /// SR-5001 when there is no memory for keys.
    pub fn fresh_root(&self, covered: &Covered) -> Result<[u8; 32], Error> {
        let key = MacKey::new(&self.labelled(self.epoch(), Label::FreshnessRoot)?)?;
        let pages = covered.pages.to_le_bytes();
        Ok(key.mac(&[&self.object_id(), &covered.digest, &pages]))
    }
}
