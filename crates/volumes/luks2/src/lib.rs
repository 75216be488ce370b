//! LUKS2 in user space: reads and checks headers, opens key slots, reads and writes sectors, shows
//! a volume as a file.
//!
//!     read --> Found --> unlock --> VolumeKey --> Volume::open --> Volume --> Mounted
//!
//! Bytes: docs/spec/luks2.md. Invariants L1 to L15: docs/internals/luks.md.
//!
//! Must not: write a header; believe a header that is not understood whole.

mod attach;
mod binary;
mod check;
mod error;
mod fuse;
mod header;
mod metadata;
mod reencrypt;
mod token;
mod tree;
mod unlock;
mod volume;

pub use attach::{
    attached_at, check_mountpoint, check_not_active, detach, lock_holder, loop_device_of,
    open_locked,
};
pub use binary::{BINARY_LEN, Binary, HEADER_SIZES, Magic, Which, magic};
pub use error::LuksError;
pub use fuse::{FILE_NAME, MountOptions, Mounted, Unmounter};
pub use header::{CopyState, Found, Header, Source, fuzz, read};
pub use metadata::{
    Config, Digest, Kdf, Keyslot, KeyslotKind, Luks2Slot, Metadata, ReencryptSlot, Segment,
    SegmentKind,
};
pub use reencrypt::{keys_needed, online_version, verify as verify_reencryption};
pub use token::{StrongroomToken, Token, TpmToken};
pub use unlock::{Slots, VolumeKey, key_of_slot, unlock};
pub use volume::{Volume, device_size};
