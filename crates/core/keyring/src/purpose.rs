//! What a sub-key is for: each purpose has an HKDF label of its own, so no key is ever used for two
//! things.
//!
//! Labels are part of the format (docs/spec/header.md, "Sub-keys"): a label is never changed or
//! reused.

/// What a sub-key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Purpose {
    /// Sealing a database's pages.
    Page,
    /// Deriving the initial counter blocks of pages under AES-256-CTR.
    PageIv,
    /// Deriving the file keys of write-ahead logs.
    Wal,
    /// Deriving the file keys of rollback journals.
    Journal,
    /// Wrapping the file keys of super-journals.
    SuperJournal,
    /// Deriving the keys that wrap a keyring's entries, one per key name.
    KeyringEntries,
    /// The MAC of a keyring's body.
    KeyringBody,
    /// Deriving the keys that wrap the private keys of a keyring's certificates, one per
    /// certificate.
    KeyringCertificates,
    /// XTS key of an instance's relations.
    PgRelation,
    /// XTS key of an instance's write-ahead log.
    PgWal,
    /// XTS key of an instance's SLRU files: transaction status and its relatives.
    PgSlru,
    /// XTS key of an instance's control file.
    PgControl,
    /// XTS key of an instance's relation maps.
    PgMap,
    /// Counter-mode key of an instance's streams.
    PgStream,
    /// Sealing the chunks of an instance's containers.
    PgContainer,
    /// Deriving the keys of a zone's blocks, one per partition.
    ZoneBlocks,
    /// Sealing a zone's manifest.
    ZoneManifest,
    /// Deriving the keys of a zone's redo records, one per incarnation.
    ZoneRedo,
    /// Deriving the keys by which a zone orders the values of columns of class equality.
    ZoneEquality,
    /// Sealing a recording that an operator makes.
    ZoneRecord,
    /// The MAC of a backup set's description.
    BackupSet,
    /// Deriving the keys of a backup set's families.
    BackupFamily,
    /// Computing what a page adds to the digest of a database.
    Freshness,
}

/// Every label. Those that only this crate uses are not in [`Purpose`].
#[derive(Clone, Copy)]
pub(crate) enum Label {
    For(Purpose),
    Canary,
    HeaderMac,
    Anchor,
    PreviousKey,
    Slot,
    /// Not a label of HKDF: the beginning of OAEP's label.
    Certificate,
    /// Derives the root key of a provider whose device wraps a secret.
    ProviderRoot,
    /// Seals the freshness state in an anchor.
    FreshnessState,
    /// Computes the freshness root, which a user may keep elsewhere.
    FreshnessRoot,
}

impl Label {
    /// Returns the HKDF `info` string; for [`Label::Certificate`] the beginning of OAEP's label.
    pub(crate) const fn info(self) -> &'static [u8] {
        match self {
            Self::For(Purpose::Page) => b"strongroom/v1/page",
            Self::For(Purpose::PageIv) => b"strongroom/v1/page-iv",
            Self::For(Purpose::Wal) => b"strongroom/v1/wal",
            Self::For(Purpose::Journal) => b"strongroom/v1/journal",
            Self::For(Purpose::SuperJournal) => b"strongroom/v1/super-journal",
            Self::For(Purpose::KeyringEntries) => b"strongroom/v1/keyring-entries",
            Self::For(Purpose::KeyringBody) => b"strongroom/v1/keyring-body",
            Self::For(Purpose::KeyringCertificates) => b"strongroom/v1/keyring-certificates",
            Self::For(Purpose::PgRelation) => b"strongroom/v1/pg-relation",
            Self::For(Purpose::PgWal) => b"strongroom/v1/pg-wal",
            Self::For(Purpose::PgSlru) => b"strongroom/v1/pg-slru",
            Self::For(Purpose::PgControl) => b"strongroom/v1/pg-control",
            Self::For(Purpose::PgMap) => b"strongroom/v1/pg-map",
            Self::For(Purpose::PgStream) => b"strongroom/v1/pg-stream",
            Self::For(Purpose::PgContainer) => b"strongroom/v1/pg-container",
            Self::For(Purpose::ZoneBlocks) => b"strongroom/v1/zone-blocks",
            Self::For(Purpose::ZoneManifest) => b"strongroom/v1/zone-manifest",
            Self::For(Purpose::ZoneRedo) => b"strongroom/v1/zone-redo",
            Self::For(Purpose::ZoneEquality) => b"strongroom/v1/zone-equality",
            Self::For(Purpose::ZoneRecord) => b"strongroom/v1/zone-record",
            Self::For(Purpose::BackupSet) => b"strongroom/v1/backup-set",
            Self::For(Purpose::BackupFamily) => b"strongroom/v1/backup-family",
            Self::For(Purpose::Freshness) => b"strongroom/v1/freshness",
            Self::FreshnessState => b"strongroom/v1/freshness-state",
            Self::FreshnessRoot => b"strongroom/v1/freshness-root",
            Self::Canary => b"strongroom/v1/canary",
            Self::HeaderMac => b"strongroom/v1/header-mac",
            Self::Anchor => b"strongroom/v1/anchor",
            Self::PreviousKey => b"strongroom/v1/previous-key",
            Self::Slot => b"strongroom/v1/slot",
            Self::Certificate => b"strongroom/v1/certificate",
            Self::ProviderRoot => b"strongroom/v1/provider-root",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_labels_are_equal() {
        let all = [
            Label::For(Purpose::Page),
            Label::For(Purpose::PageIv),
            Label::For(Purpose::Wal),
            Label::For(Purpose::Journal),
            Label::For(Purpose::SuperJournal),
            Label::For(Purpose::KeyringEntries),
            Label::For(Purpose::KeyringBody),
            Label::For(Purpose::KeyringCertificates),
            Label::For(Purpose::PgRelation),
            Label::For(Purpose::PgWal),
            Label::For(Purpose::PgSlru),
            Label::For(Purpose::PgControl),
            Label::For(Purpose::PgMap),
            Label::For(Purpose::PgStream),
            Label::For(Purpose::PgContainer),
            Label::For(Purpose::ZoneBlocks),
            Label::For(Purpose::ZoneManifest),
            Label::For(Purpose::ZoneRedo),
            Label::For(Purpose::ZoneEquality),
            Label::For(Purpose::ZoneRecord),
            Label::For(Purpose::BackupSet),
            Label::For(Purpose::BackupFamily),
            Label::Canary,
            Label::HeaderMac,
            Label::Anchor,
            Label::PreviousKey,
            Label::Slot,
            Label::Certificate,
            Label::ProviderRoot,
            Label::For(Purpose::Freshness),
            Label::FreshnessState,
            Label::FreshnessRoot,
        ];
        let unique: std::collections::BTreeSet<_> = all.iter().map(|label| label.info()).collect();
        assert_eq!(unique.len(), all.len());
    }
}
