//! The simulated disks for the files that are not SQLite's: keyrings, and the redo copies of
//! headers.
//!
//! Must not: do more than one thing to the disk in a call that the machine counts.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use strongroom_keyring::storage::{About, NewFile, Storage, mount};

use super::disk::Ino;
use super::machine::{Class, Fault, Kind, Machine, ROOT, find};

/// Puts the simulated disks below [`ROOT`] for the keyring's crate.
pub(super) fn install() {
    assert!(
        mount(PathBuf::from(ROOT), Box::new(Mounted)),
        "something is mounted already"
    );
}

struct Mounted;

struct Created {
    machine: Arc<Machine>,
    ino: Ino,
    life: u64,
    len: usize,
}

fn device() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}

fn full() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOSPC)
}

fn place(path: &Path) -> io::Result<(Arc<Machine>, String)> {
    path.to_str().and_then(find).ok_or_else(device)
}

/// Runs `work` unless the call fails.
fn call<T>(
    path: &Path,
    class: Class,
    work: impl FnOnce(&mut super::machine::State, &str) -> io::Result<T>,
) -> io::Result<T> {
    let (machine, name) = place(path)?;
    let mut state = machine.lock();
    match state.call(class, kind(&name)) {
        None => work(&mut state, &name),
        Some(_) => Err(device()),
    }
}

/// Databases and logs are looked at from here too.
fn kind(name: &str) -> Kind {
    if name.ends_with("-wal") {
        Kind::Wal
    } else {
        Kind::Other
    }
}

fn absent() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOENT)
}

impl NewFile for Created {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.machine.lock();
        if state.life != self.life {
            return Err(device());
        }
        let part = |random: &mut crate::random::Random| {
            usize::try_from(random.below(bytes.len().max(1) as u64)).unwrap_or(0)
        };
        let (done, result) = match state.call(Class::Write, Kind::Other) {
            None => (bytes.len(), Ok(())),
            Some((Fault::Short, mut random)) => (part(&mut random), Err(device())),
            Some((Fault::ShortFull, mut random)) => (part(&mut random), Err(full())),
            Some((Fault::Full, _)) => (0, Err(full())),
            Some(_) => (0, Err(device())),
        };
        state.disk.write(self.ino, self.len, &bytes[..done]);
        self.len += done;
        result
    }

    fn set_mode(&mut self, _mode: u32) -> io::Result<()> {
        Ok(())
    }

    fn set_owner(&mut self, _uid: u32, _gid: u32) -> io::Result<()> {
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.machine.lock();
        match state.call(Class::Sync, Kind::Other) {
            None if state.life == self.life => {
                state.sync(self.ino, Kind::Other);
                Ok(())
            }
            Some((Fault::Lost, mut random)) => {
                state.disk.lose(self.ino, &mut random);
                Err(device())
            }
            _ => Err(device()),
        }
    }
}

impl Storage for Mounted {
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        let (machine, _) = place(path)?;
        let (ino, life) = call(path, Class::Open, |state, name| {
            if state.disk.find(name).is_some() {
                return Err(io::Error::from_raw_os_error(libc::EEXIST));
            }
            Ok((state.disk.create(name), state.life))
        })?;
        Ok(Box::new(Created {
            machine,
            ino,
            life,
            len: 0,
        }))
    }

    fn read(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        call(path, Class::Read, |state, name| {
            let ino = state.disk.find(name).ok_or_else(absent)?;
            let bytes = state.disk.bytes(ino);
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            Ok(bytes[..bytes.len().min(limit)].to_vec())
        })
    }

    /// Two calls of the machine: nobody replaces the file between them.
    fn read_known(&self, path: &Path, limit: u64) -> io::Result<(Vec<u8>, About)> {
        Ok((self.read(path, limit)?, self.about(path)?))
    }

    fn about(&self, path: &Path) -> io::Result<About> {
        call(path, Class::Size, |state, name| {
            let ino = state.disk.find(name).ok_or_else(absent)?;
            Ok(About {
                len: state.disk.bytes(ino).len() as u64,
                mode: 0o600,
                uid: 0,
                gid: 0,
            })
        })
    }

    fn set_owner(&self, _path: &Path, _uid: u32, _gid: u32) -> io::Result<()> {
        Ok(())
    }

    fn set_mode(&self, path: &Path, _mode: u32) -> io::Result<()> {
        call(path, Class::Open, |state, name| {
            state.disk.find(name).map(|_| ()).ok_or_else(absent)
        })
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        self.about(path).map(|_| path.to_owned())
    }

    /// Not counted: it has no way to fail.
    fn is_taken(&self, path: &Path) -> bool {
        let found = place(path).map(|(machine, name)| machine.lock().disk.find(&name));
        found.is_ok_and(|found| found.is_some())
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        let directory = path.to_str().is_some_and(|path| {
            let rest = path.strip_prefix(ROOT).unwrap_or_default();
            !rest.trim_end_matches('/').contains('/')
        });
        if directory {
            let inside = path.join(".");
            return call(&inside, Class::SyncNames, |state, _| {
                state.sync_names();
                Ok(())
            });
        }
        call(path, Class::Sync, |state, name| {
            let ino = state.disk.find(name).ok_or_else(absent)?;
            state.sync(ino, Kind::Other);
            Ok(())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (_, target) = place(to)?;
        call(from, Class::Rename, |state, name| {
            if state.disk.rename(name, &target) {
                Ok(())
            } else {
                Err(absent())
            }
        })
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (_, target) = place(to)?;
        call(from, Class::Rename, |state, name| {
            if state.disk.find(&target).is_some() {
                return Err(io::Error::from_raw_os_error(libc::EEXIST));
            }
            if state.disk.rename(name, &target) {
                Ok(())
            } else {
                Err(absent())
            }
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        call(path, Class::Delete, |state, name| {
            if state.disk.unlink(name) {
                Ok(())
            } else {
                Err(absent())
            }
        })
    }
}
