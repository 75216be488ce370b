//! Backup sets: heads, families, segments, and the items of the stream inside. Specified in
//! docs/spec/backup.md.
//!
//! Everything parsed here is canonical, or refused. Must not: know what a segment is sealed with,
//! or what is restored.

use alloc::vec;
use alloc::vec::Vec;

use crate::FORMAT_VERSION;
use crate::layout::{array, layout, put, u16_at, u32_at, u64_at, zero_at};

layout! {
    /// Layout of the record at the head of a set.
    set_layout, 64, {
        MAGIC @ 0, 8;
        VERSION @ 8, 2;
        CIPHER @ 10, 2;
        LENGTH @ 12, 4;
        SET_ID @ 16, 16;
        SEAL @ 32, 32;
    }
}

layout! {
    /// Layout of the header of a family.
    family_layout, 80, {
        MAGIC @ 0, 8;
        VERSION @ 8, 2;
        CIPHER @ 10, 2;
        FAMILY @ 12, 2;
        FAMILIES @ 14, 2;
        SEGMENT_SIZE @ 16, 4;
        RESERVED_A @ 20, 4;
        SET_ID @ 24, 16;
        SALT @ 40, 32;
        PREFIX @ 72, 7;
        RESERVED_B @ 79, 1;
    }
}

layout! {
    /// Layout of the head of a segment.
    segment_layout, 12, {
        LENGTH @ 0, 4;
        PLAIN_LENGTH @ 4, 4;
        FLAGS @ 8, 2;
        RESERVED @ 10, 2;
    }
}

layout! {
    /// Layout of the head of an item of the stream.
    item_layout, 8, {
        KIND @ 0, 2;
        RESERVED @ 2, 2;
        LENGTH @ 4, 4;
    }
}

layout! {
    /// Layout of a member's fixed part; path and target follow it.
    member_layout, 32, {
        KIND @ 0, 2;
        RESERVED_A @ 2, 2;
        MODE @ 4, 4;
        OWNER @ 8, 4;
        GROUP @ 12, 4;
        SECONDS @ 16, 8;
        NANOSECONDS @ 24, 4;
        PATH_LENGTH @ 28, 2;
        TARGET_LENGTH @ 30, 2;
    }
}

layout! {
    /// Layout of the end of a file.
    file_end_layout, 40, {
        BYTES @ 0, 8;
        DIGEST @ 8, 32;
    }
}

layout! {
    /// Layout of the end of a stream.
    stream_end_layout, 24, {
        MEMBERS @ 0, 8;
        FILES @ 8, 8;
        BYTES @ 16, 8;
    }
}

/// Bytes of the stream in one segment; only the last piece is shorter.
pub const SEGMENT_SIZE: u32 = 1 << 20;
/// Most families of a set.
pub const FAMILIES_MAX: u16 = 64;
/// Longest path and longest target, in bytes.
pub const PATH_MAX: u16 = 4096;
/// Longest description, in bytes.
pub const DESCRIPTION_MAX: u32 = 1 << 20;
/// First bytes of the record at the head of a set.
pub const SET_MAGIC: [u8; 8] = *b"SRBKSET\x1a";
/// First bytes of a family.
pub const FAMILY_MAGIC: [u8; 8] = *b"SRBKFAM\x1a";

/// Highest permission bits of a member.
const MODE_MAX: u32 = 0o7777;
const LAST: u16 = 1;
const COMPRESSED: u16 = 2;

/// The record at the head of a set. The description, `length` bytes, follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetRecord {
    /// The number of the families' cipher, 0 in a plain set.
    pub cipher: u16,
    /// Bytes of the description.
    pub length: u32,
    /// The set's id.
    pub set_id: [u8; 16],
    /// HMAC-SHA256, or SHA-256 in a plain set, over [`SetRecord::covered`] and the description.
    pub seal: [u8; 32],
}

/// Why a record is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordError {
    /// Written by a newer version.
    Newer(u16),
    /// Not what any version writes.
    Malformed,
}

impl SetRecord {
    /// Parses the record at the start of `record`. The seal is not verified.
    ///
    /// # Errors
    /// [`RecordError::Newer`] for a later version; [`RecordError::Malformed`] when the bytes are
    /// too few, are no set's, or name a description of an impossible length.
    pub fn parse(record: &[u8]) -> Result<Self, RecordError> {
        let bad = RecordError::Malformed;
        if array(record, set_layout::MAGIC) != Some(SET_MAGIC) {
            return Err(bad);
        }
        check_version(u16_at(record, set_layout::VERSION))?;
        let length = u32_at(record, set_layout::LENGTH).ok_or(bad)?;
        if !(2..=DESCRIPTION_MAX).contains(&length) {
            return Err(bad);
        }
        Ok(Self {
            cipher: u16_at(record, set_layout::CIPHER).ok_or(bad)?,
            length,
            set_id: array(record, set_layout::SET_ID).ok_or(bad)?,
            seal: array(record, set_layout::SEAL).ok_or(bad)?,
        })
    }

    /// Returns its 64 bytes, as they are written.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; set_layout::SIZE] {
        let mut out = [0; set_layout::SIZE];
        let done = [
            put(&mut out, set_layout::MAGIC, &SET_MAGIC),
            put(&mut out, set_layout::VERSION, &FORMAT_VERSION.to_le_bytes()),
            put(&mut out, set_layout::CIPHER, &self.cipher.to_le_bytes()),
            put(&mut out, set_layout::LENGTH, &self.length.to_le_bytes()),
            put(&mut out, set_layout::SET_ID, &self.set_id),
            put(&mut out, set_layout::SEAL, &self.seal),
        ];
        assert!(done.iter().all(Option::is_some), "set layout");
        out
    }

    /// The part of the record that the seal covers: all before the seal.
    #[must_use]
    pub fn covered(record: &[u8; set_layout::SIZE]) -> &[u8] {
        record.get(..set_layout::SEAL.offset).unwrap_or_default()
    }
}

/// The header of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FamilyHeader {
    /// The number of its cipher, 0 in a plain set.
    pub cipher: u16,
    /// This family, from 0.
    pub family: u16,
    /// How many there are.
    pub families: u16,
    /// The set's id.
    pub set_id: [u8; 16],
    /// Salt of the family's key; zero in a plain set.
    pub salt: [u8; 32],
    /// First bytes of every nonce; zero in a plain set.
    pub prefix: [u8; 7],
}

impl FamilyHeader {
    /// Parses the header of a family from the first 80 bytes of `record`.
    ///
    /// # Errors
    /// [`RecordError::Newer`] for a later version; [`RecordError::Malformed`] when the bytes are
    /// too few or not a family's, or a field has a value that no writer gives it.
    pub fn parse(record: &[u8]) -> Result<Self, RecordError> {
        use family_layout as at;
        let bad = RecordError::Malformed;
        if array(record, at::MAGIC) != Some(FAMILY_MAGIC) {
            return Err(bad);
        }
        check_version(u16_at(record, at::VERSION))?;
        let canonical = zero_at(record, at::RESERVED_A)
            && zero_at(record, at::RESERVED_B)
            && u32_at(record, at::SEGMENT_SIZE) == Some(SEGMENT_SIZE);
        let header = Self {
            cipher: u16_at(record, at::CIPHER).ok_or(bad)?,
            family: u16_at(record, at::FAMILY).ok_or(bad)?,
            families: u16_at(record, at::FAMILIES).ok_or(bad)?,
            set_id: array(record, at::SET_ID).ok_or(bad)?,
            salt: array(record, at::SALT).ok_or(bad)?,
            prefix: array(record, at::PREFIX).ok_or(bad)?,
        };
        let numbers = header.family < header.families && header.families <= FAMILIES_MAX;
        let plain_is_bare =
            header.cipher != 0 || (header.salt == [0; 32] && header.prefix == [0; 7]);
        if canonical && numbers && plain_is_bare {
            Ok(header)
        } else {
            Err(bad)
        }
    }

    /// Returns its 80 bytes, as they are written.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; family_layout::SIZE] {
        use family_layout as at;
        let mut out = [0; at::SIZE];
        let done = [
            put(&mut out, at::MAGIC, &FAMILY_MAGIC),
            put(&mut out, at::VERSION, &FORMAT_VERSION.to_le_bytes()),
            put(&mut out, at::CIPHER, &self.cipher.to_le_bytes()),
            put(&mut out, at::FAMILY, &self.family.to_le_bytes()),
            put(&mut out, at::FAMILIES, &self.families.to_le_bytes()),
            put(&mut out, at::SEGMENT_SIZE, &SEGMENT_SIZE.to_le_bytes()),
            put(&mut out, at::SET_ID, &self.set_id),
            put(&mut out, at::SALT, &self.salt),
            put(&mut out, at::PREFIX, &self.prefix),
        ];
        assert!(done.iter().all(Option::is_some), "family layout");
        out
    }
}

/// The head of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHead {
    /// Bytes of data as stored.
    pub length: u32,
    /// Bytes of the piece that it holds.
    pub plain_length: u32,
    /// The family's last segment.
    pub last: bool,
    /// The data is a zstd frame.
    pub compressed: bool,
}

impl SegmentHead {
    /// The head that ends a family. No data follows it.
    pub const LAST: Self = Self {
        length: 0,
        plain_length: 0,
        last: true,
        compressed: false,
    };

    /// Parses a head from the first 12 bytes. `None` when they are too few, have unknown flags, or
    /// state lengths that no writer makes; its lengths must then not be used.
    #[must_use]
    pub fn parse(record: &[u8]) -> Option<Self> {
        use segment_layout as at;
        let flags = u16_at(record, at::FLAGS)?;
        if flags & !(LAST | COMPRESSED) != 0 || !zero_at(record, at::RESERVED) {
            return None;
        }
        let head = Self {
            length: u32_at(record, at::LENGTH)?,
            plain_length: u32_at(record, at::PLAIN_LENGTH)?,
            last: flags & LAST != 0,
            compressed: flags & COMPRESSED != 0,
        };
        let sound = if head.last {
            head == Self::LAST
        } else {
            let fits = (1..=SEGMENT_SIZE).contains(&head.plain_length) && head.length > 0;
            fits && if head.compressed {
                head.length < head.plain_length
            } else {
                head.length == head.plain_length
            }
        };
        sound.then_some(head)
    }

    /// Returns its 12 bytes, as they are written.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; segment_layout::SIZE] {
        use segment_layout as at;
        let last = if self.last { LAST } else { 0 };
        let compressed = if self.compressed { COMPRESSED } else { 0 };
        let mut out = [0; at::SIZE];
        let done = [
            put(&mut out, at::LENGTH, &self.length.to_le_bytes()),
            put(&mut out, at::PLAIN_LENGTH, &self.plain_length.to_le_bytes()),
            put(&mut out, at::FLAGS, &(last | compressed).to_le_bytes()),
        ];
        assert!(done.iter().all(Option::is_some), "segment layout");
        out
    }
}

/// What an item of the stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// A member begins.
    Member,
    /// Bytes of the file that was begun.
    Data,
    /// The file ends.
    FileEnd,
    /// The stream ends.
    StreamEnd,
}

/// The head of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemHead {
    /// What it is.
    pub kind: ItemKind,
    /// Bytes that follow.
    pub length: u32,
}

impl ItemHead {
    /// Parses a head from the first 8 bytes. `None` when they are too few, the kind is not known,
    /// or the length is not one that this kind can have.
    #[must_use]
    pub fn parse(record: &[u8]) -> Option<Self> {
        if !zero_at(record, item_layout::RESERVED) {
            return None;
        }
        let length = u32_at(record, item_layout::LENGTH)?;
        let bytes = usize::try_from(length).ok()?;
        let names = usize::from(PATH_MAX).checked_mul(2)?;
        let member = member_layout::SIZE..=member_layout::SIZE.checked_add(names)?;
        let (kind, sound) = match u16_at(record, item_layout::KIND)? {
            1 => (ItemKind::Member, member.contains(&bytes)),
            2 => (ItemKind::Data, (1..=SEGMENT_SIZE).contains(&length)),
            3 => (ItemKind::FileEnd, bytes == file_end_layout::SIZE),
            4 => (ItemKind::StreamEnd, bytes == stream_end_layout::SIZE),
            _ => return None,
        };
        sound.then_some(Self { kind, length })
    }

    /// Returns its 8 bytes, as they are written.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; item_layout::SIZE] {
        let kind: u16 = match self.kind {
            ItemKind::Member => 1,
            ItemKind::Data => 2,
            ItemKind::FileEnd => 3,
            ItemKind::StreamEnd => 4,
        };
        let mut out = [0; item_layout::SIZE];
        let done = [
            put(&mut out, item_layout::KIND, &kind.to_le_bytes()),
            put(&mut out, item_layout::LENGTH, &self.length.to_le_bytes()),
        ];
        assert!(done.iter().all(Option::is_some), "item layout");
        out
    }
}

/// What a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberKind {
    /// A regular file; its bytes follow.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A tablespace of a PostgreSQL server.
    Tablespace,
}

/// A member of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// What it is.
    pub kind: MemberKind,
    /// Permission bits.
    pub mode: u32,
    /// Numeric user.
    pub owner: u32,
    /// Numeric group.
    pub group: u32,
    /// Last modification, seconds since the Unix epoch.
    pub seconds: i64,
    /// Nanoseconds of it.
    pub nanoseconds: u32,
    /// Relative path; `.` for the root.
    pub path: Vec<u8>,
    /// Target of a link, place of a tablespace; else empty.
    pub target: Vec<u8>,
}

impl Member {
    /// Parses a member (a file, directory, link or tablespace of a backup) from exactly its bytes.
    /// `None` when its path is not relative or leaves the root, or a field has a value that no
    /// writer gives it.
    #[must_use]
    pub fn parse(record: &[u8]) -> Option<Self> {
        use member_layout as at;
        let kind = match u16_at(record, at::KIND)? {
            1 => MemberKind::File,
            2 => MemberKind::Directory,
            3 => MemberKind::Link,
            4 => MemberKind::Tablespace,
            _ => return None,
        };
        let path_end = at::SIZE.checked_add(usize::from(u16_at(record, at::PATH_LENGTH)?))?;
        let end = path_end.checked_add(usize::from(u16_at(record, at::TARGET_LENGTH)?))?;
        if record.len() != end || !zero_at(record, at::RESERVED_A) {
            return None;
        }
        let member = Self {
            kind,
            mode: u32_at(record, at::MODE)?,
            owner: u32_at(record, at::OWNER)?,
            group: u32_at(record, at::GROUP)?,
            seconds: array(record, at::SECONDS).map(i64::from_le_bytes)?,
            nanoseconds: u32_at(record, at::NANOSECONDS)?,
            path: record.get(at::SIZE..path_end)?.to_vec(),
            target: record.get(path_end..end)?.to_vec(),
        };
        member.is_sound().then_some(member)
    }

    /// The member's bytes. `None` when it is not one that may stand in a stream.
    #[must_use]
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        use member_layout as at;
        if !self.is_sound() {
            return None;
        }
        let kind: u16 = match self.kind {
            MemberKind::File => 1,
            MemberKind::Directory => 2,
            MemberKind::Link => 3,
            MemberKind::Tablespace => 4,
        };
        let path_length = u16::try_from(self.path.len()).ok()?;
        let target_length = u16::try_from(self.target.len()).ok()?;
        let mut out = vec![0; at::SIZE];
        put(&mut out, at::KIND, &kind.to_le_bytes())?;
        put(&mut out, at::MODE, &self.mode.to_le_bytes())?;
        put(&mut out, at::OWNER, &self.owner.to_le_bytes())?;
        put(&mut out, at::GROUP, &self.group.to_le_bytes())?;
        put(&mut out, at::SECONDS, &self.seconds.to_le_bytes())?;
        put(&mut out, at::NANOSECONDS, &self.nanoseconds.to_le_bytes())?;
        put(&mut out, at::PATH_LENGTH, &path_length.to_le_bytes())?;
        put(&mut out, at::TARGET_LENGTH, &target_length.to_le_bytes())?;
        out.extend_from_slice(&self.path);
        out.extend_from_slice(&self.target);
        Some(out)
    }

    /// Whether the path is the root's.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.path == b"."
    }

    /// Whether a writer makes such a member: path and target are within their bounds, only links
    /// and tablespaces have a target, the root is a directory, and mode and time are in range.
    fn is_sound(&self) -> bool {
        let has_target = matches!(self.kind, MemberKind::Link | MemberKind::Tablespace);
        let fits = |text: &[u8]| text.len() <= usize::from(PATH_MAX) && !text.contains(&0);
        let root_is_directory = !self.is_root() || self.kind == MemberKind::Directory;
        is_relative_path(&self.path)
            && root_is_directory
            && fits(&self.path)
            && fits(&self.target)
            && self.target.is_empty() != has_target
            && self.mode <= MODE_MAX
            && self.nanoseconds < 1_000_000_000
    }
}

/// Whether `path`, appended to a directory, stays within that directory: it consists of names, none
/// of them empty, `.` or `..`, or it is `.` alone.
#[must_use]
pub fn is_relative_path(path: &[u8]) -> bool {
    let is_name = |name: &[u8]| !name.is_empty() && name != b"." && name != b"..";
    path == b"." || (!path.contains(&0) && path.split(|&byte| byte == b'/').all(is_name))
}

/// The end of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileEnd {
    /// Bytes of the file.
    pub size: u64,
    /// SHA-256 of them.
    pub digest: [u8; 32],
}

impl FileEnd {
    /// Parses the end of a file from exactly its 40 bytes. `None` when the length is another.
    #[must_use]
    pub fn parse(record: &[u8]) -> Option<Self> {
        if record.len() != file_end_layout::SIZE {
            return None;
        }
        Some(Self {
            size: u64_at(record, file_end_layout::BYTES)?,
            digest: array(record, file_end_layout::DIGEST)?,
        })
    }
}

impl FileEnd {
    /// Returns its 40 bytes, as they are written.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; file_end_layout::SIZE] {
        let mut out = [0; file_end_layout::SIZE];
        let done = [
            put(&mut out, file_end_layout::BYTES, &self.size.to_le_bytes()),
            put(&mut out, file_end_layout::DIGEST, &self.digest),
        ];
        assert!(done.iter().all(Option::is_some), "file end layout");
        out
    }
}

/// The end of a stream: what it held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamEnd {
    /// How many members the stream names; one that is named twice counts twice.
    pub members: u64,
    /// Regular files.
    pub files: u64,
    /// Bytes of all regular files.
    pub size: u64,
}

impl StreamEnd {
    /// Parses the end of a stream from exactly its 24 bytes. `None` when the length is another.
    #[must_use]
    pub fn parse(record: &[u8]) -> Option<Self> {
        use stream_end_layout as at;
        if record.len() != at::SIZE {
            return None;
        }
        Some(Self {
            members: u64_at(record, at::MEMBERS)?,
            files: u64_at(record, at::FILES)?,
            size: u64_at(record, at::BYTES)?,
        })
    }

    /// Returns its 24 bytes, as they are written.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; stream_end_layout::SIZE] {
        use stream_end_layout as at;
        let mut out = [0; at::SIZE];
        let done = [
            put(&mut out, at::MEMBERS, &self.members.to_le_bytes()),
            put(&mut out, at::FILES, &self.files.to_le_bytes()),
            put(&mut out, at::BYTES, &self.size.to_le_bytes()),
        ];
        assert!(done.iter().all(Option::is_some), "stream end layout");
        out
    }
}

/// Checks a record's version. Errors: [`RecordError::Newer`] for a version after
/// [`FORMAT_VERSION`], [`RecordError::Malformed`] for none and for any other.
pub(crate) fn check_version(found: Option<u16>) -> Result<(), RecordError> {
    match found {
        Some(version) if version > FORMAT_VERSION => Err(RecordError::Newer(version)),
        Some(FORMAT_VERSION) => Ok(()),
        _ => Err(RecordError::Malformed),
    }
}
