//! A directory with one file, `volume`, whose contents are an opened volume's data.
//!
//! Invariants:
//! - L11 The size never changes; nothing is created, removed or renamed.
//! - L12 FLUSH and FSYNC are answered after the data is on the device (fdatasync), or with the
//!   error.
//! - L13 Holes are never made: a discarded sector would read as noise, and a filesystem that asks
//!   for zeros must get zeros. Whoever asks is told that this file cannot do it, and writes zeros
//!   itself.
//!
//! Must not: hold plaintext beyond a request; the kernel's page cache does, as for any disk.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, Session,
    SessionACL, SessionUnmounter, TimeOrNow, WriteFlags,
};

use crate::error::LuksError;
use crate::volume::Volume;

/// The file's name.
pub const FILE_NAME: &str = "volume";
/// Prefix of the volume's path in the source of the mount.
pub(crate) const SOURCE: &str = "strongroom:";
const FILE: INodeNo = INodeNo(2);
/// How long the kernel may cache attributes: nothing changes but through this kernel.
const FOR_EVER: Duration = Duration::from_secs(86_400);
/// Most bytes of one request.
const REQUEST_MAX: u32 = 1 << 20;

/// How a volume is mounted.
#[derive(Clone, Debug, Default)]
pub struct MountOptions {
    /// The volume's path, which the kernel shows as the source of the mount.
    pub source: String,
    /// Threads that serve requests; at least one.
    pub threads: usize,
    /// Whether users other than this one may use it.
    pub allow_other: bool,
}

/// A mounted volume that is not served yet.
pub struct Mounted(Session<OneFile>);

/// Ends the serving of a mounted volume, from another thread.
pub struct Unmounter(SessionUnmounter);

impl Mounted {
    /// Mounts the volume on the directory `at`, with `nosuid`, `nodev` and `noexec`, and read-only
    /// when the volume is. Requests wait until [`Mounted::serve`] is called.
    ///
    /// # Errors
    /// [`LuksError::Fuse`].
    pub fn mount(volume: Volume, at: &Path, options: &MountOptions) -> Result<Self, LuksError> {
        let failed = |error| LuksError::Fuse(at.display().to_string(), error);
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(format!("{SOURCE}{}", options.source)),
            MountOption::NoSuid,
            MountOption::NoDev,
            MountOption::NoExec,
            MountOption::DefaultPermissions,
            match volume.is_read_only() {
                true => MountOption::RO,
                false => MountOption::RW,
            },
        ];
        config.acl = match options.allow_other {
            true => SessionACL::All,
            false => SessionACL::Owner,
        };
        config.n_threads = Some(options.threads.max(1));
        config.clone_fd = options.threads > 1;
        let file = OneFile {
            volume,
            since: SystemTime::now(),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        };
        Session::new(file, at, &config).map(Self).map_err(failed)
    }

    /// Returns a handle that ends [`Mounted::serve`] from another thread.
    pub fn unmounter(&mut self) -> Unmounter {
        Unmounter(self.0.unmount_callable())
    }

    /// Serves requests until the volume is unmounted, and makes the data durable at the end. A
    /// failure of that last sync is not reported: see `fsync`.
    ///
    /// # Errors
    /// [`LuksError::Fuse`].
    pub fn serve(self) -> Result<(), LuksError> {
        let failed = |error| LuksError::Fuse("serving the volume".to_owned(), error);
        self.0.run().map_err(failed)
    }
}

impl Unmounter {
    /// Unmounts the volume, so that [`Mounted::serve`] returns.
    ///
    /// # Errors
    /// [`LuksError::Fuse`], for example when a program uses the mount.
    pub fn unmount(&mut self) -> Result<(), LuksError> {
        let failed = |error| LuksError::Fuse("unmounting".to_owned(), error);
        self.0.unmount().map_err(failed)
    }
}

struct OneFile {
    volume: Volume,
    since: SystemTime,
    uid: u32,
    gid: u32,
}

impl OneFile {
    /// Returns the attributes of the directory or of its one file. `None` for any other inode.
    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let (kind, size, perm, nlink) = match inode {
            INodeNo::ROOT => (FileType::Directory, 0, 0o700, 2),
            FILE if self.volume.is_read_only() => {
                (FileType::RegularFile, self.volume.size(), 0o400, 1)
            }
            FILE => (FileType::RegularFile, self.volume.size(), 0o600, 1),
            _ => return None,
        };
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: self.since,
            mtime: self.since,
            ctime: self.since,
            crtime: self.since,
            kind,
            perm,
            nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    /// Answers with the attributes of an inode, or with `ENOENT` when there is no such inode.
    fn answer_attributes(&self, inode: INodeNo, reply: ReplyAttr) {
        match self.attributes(inode) {
            Some(attributes) => reply.attr(&FOR_EVER, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    /// Makes all writes durable and answers with success, or with the error of the sync. Answers
    /// with success at once for anything but the file.
    fn answer_synced(&self, inode: INodeNo, reply: ReplyEmpty) {
        if inode != FILE {
            return reply.ok();
        }
        match self.volume.sync() {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(&error)),
        }
    }
}

/// Returns the error number for an error of [`Volume`]: the system's own, `ENOSPC`, `EROFS`, or
/// else `EIO`.
fn errno(error: &io::Error) -> Errno {
    match (error.kind(), error.raw_os_error()) {
        (_, Some(number)) => Errno::from_i32(number),
        (io::ErrorKind::StorageFull, None) => Errno::ENOSPC,
        (io::ErrorKind::ReadOnlyFilesystem, None) => Errno::EROFS,
        _ => Errno::EIO,
    }
}

impl Filesystem for OneFile {
    /// Asks the kernel for large requests. What the kernel does not offer is not an error.
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Without FUSE_WRITEBACK_CACHE: the kernel would take writes beyond the end, and lose what
        // it has taken when this process dies. What a kernel does not offer is done without.
        let _nearest = config.set_max_write(REQUEST_MAX);
        let _nearest = config.set_max_readahead(REQUEST_MAX);
        let _nearest = config.set_max_background(64);
        Ok(())
    }

    /// Makes all writes durable at the end. An error is dropped.
    fn destroy(&mut self) {
        // There is no request to answer with an error any more; a program that needs to know has
        // called fsync.
        drop(self.volume.sync());
    }

    /// Answers with the attributes of the file `volume` in the root directory, and with `ENOENT`
    /// for any other name.
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = (parent == INodeNo::ROOT && name == FILE_NAME).then(|| self.attributes(FILE));
        match found.flatten() {
            Some(attributes) => reply.entry(&FOR_EVER, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    /// Answers with the attributes of the directory or of the file; `ENOENT` for another inode.
    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.answer_attributes(inode, reply);
    }

    /// Refuses with `EPERM` to change mode, owner, or size to another one than it is. Accepts a
    /// change of times without storing it, and answers with the attributes.
    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let resized = size.is_some_and(|size| inode != FILE || size != self.volume.size());
        if resized || mode.is_some() || uid.is_some() || gid.is_some() {
            return reply.error(Errno::EPERM);
        }
        // Times are not stored.
        self.answer_attributes(inode, reply);
    }

    /// Opens the file. `EROFS` for writing when the volume is read-only, `EISDIR` for another
    /// inode.
    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let writes = flags.acc_mode() != fuser::OpenAccMode::O_RDONLY;
        match inode {
            FILE if writes && self.volume.is_read_only() => reply.error(Errno::EROFS),
            FILE => reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE),
            _ => reply.error(Errno::EISDIR),
        }
    }

    /// Answers with decrypted bytes from `offset` on, fewer at the end. `EISDIR` for another inode
    /// than the file's.
    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if inode != FILE {
            return reply.error(Errno::EISDIR);
        }
        let mut buffer = vec![0; usize::try_from(size).unwrap_or_default()];
        match self.volume.read(&mut buffer, offset) {
            Ok(len) => reply.data(buffer.get(..len).unwrap_or_default()),
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// Encrypts and writes all of `data`, without a sync. `EISDIR` for another inode, `ENOSPC`
    /// beyond the end, `EROFS` on a read-only volume.
    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if inode != FILE {
            return reply.error(Errno::EISDIR);
        }
        match (self.volume.write(data, offset), u32::try_from(data.len())) {
            (Ok(()), Ok(len)) => reply.written(len),
            (Ok(()), Err(_)) => reply.error(Errno::EINVAL),
            (Err(error), _) => reply.error(errno(&error)),
        }
    }

    /// Makes all writes of the file durable, and only then answers, with success or the error of
    /// the sync. Answers with success at once for the directory.
    fn flush(&self, _: &Request, inode: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        self.answer_synced(inode, reply);
    }

    /// Makes all writes of the file durable, and only then answers, with success or the error of
    /// the sync. Answers with success at once for the directory.
    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.answer_synced(inode, reply);
    }

    /// Does nothing, and answers with success: the directory never changes.
    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    /// Refuses with `EOPNOTSUPP`: no holes are made.
    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: i32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EOPNOTSUPP);
    }

    /// Lists `.`, `..` and the file, from `offset` on. `ENOTDIR` for another inode than the root.
    fn readdir(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if inode != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let entries = [
            (INodeNo::ROOT, FileType::Directory, "."),
            (INodeNo::ROOT, FileType::Directory, ".."),
            (FILE, FileType::RegularFile, FILE_NAME),
        ];
        for ((inode, kind, name), next) in entries.into_iter().zip(1_u64..) {
            if next > offset && reply.add(inode, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    /// Answers with the volume's size in blocks of 4096 bytes, and no free blocks.
    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let blocks = self.volume.size() / 4096;
        reply.statfs(blocks, 0, 0, 1, 0, 4096, 255, 4096);
    }
}
