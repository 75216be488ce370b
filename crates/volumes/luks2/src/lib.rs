//! LUKS2 in user space: reads and checks headers, opens key slots, reads and writes sectors, shows
//! a volume as a file. Strongroom's one implementation of header, metadata and tokens.
//!
//! ```text
//! read --> Found --> unlock --> VolumeKey --> Volume::open --> Volume --> Mounted
//! ```
//!
//! A volume that libcryptsetup has opened shows its metadata as JSON, which
//! [`Metadata::from_library`] reads.
//!
//! Bytes: docs/spec/luks2.md. Invariants L1 to L15: docs/internals/luks.md.
//!
//! Must not: write a header to a device; believe a header that is not understood whole.

mod attach;
mod background;
mod binary;
mod check;
mod error;
mod fuse;
mod header;
mod metadata;
mod reencrypt;
mod segment;
mod serve;
mod slots;
mod token;
mod tree;
mod unlock;
mod volume;

pub use attach::{
    attached_at, check_mountpoint, check_not_active, detach, lock_holder, loop_device_of,
    open_locked,
};
pub use background::{Started, detach_from_terminal, start_again};
pub use binary::{
    BINARY_LEN, Binary, HEADER_SIZES, MAGIC_PRIMARY, MAGIC_SECONDARY, Magic, NAMES_LEN, Which,
    json_of, label_in, magic, replace_json, uuid_in, uuid_of_remains,
};
pub use error::LuksError;
pub use fuse::{FILE_NAME, MountOptions, Mounted, Unmounter};
pub use header::{CopyState, Found, Header, Source, begins_as_luks, fuzz, read};
pub use metadata::{
    Config, Digest, Kdf, Keyslot, KeyslotKind, Luks2Slot, Metadata, ReencryptSlot, Segment,
    SegmentKind,
};
pub use reencrypt::{keys_needed, online_version, verify as verify_reencryption};
pub use serve::{Request, Warning, mount};
pub use slots::{MACHINE_ITERATIONS, OpenedBy};
pub use token::{
    Contents, Provider, RECOVERY_TYPE, SEALED_LEN_MAX, STRONGROOM_TYPE, StrongroomToken, TPM_TYPE,
    Token, TokenError, TpmToken, key_name_is_valid, recovery_token,
};
pub use unlock::{ITERATIONS_MAX, Slots, VolumeKey, key_of_slot, unlock};
pub use volume::{Volume, device_size};
