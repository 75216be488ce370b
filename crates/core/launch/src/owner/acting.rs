//! One thread of root's that has another user's rights for a while, to reach what belongs to that
//! user: a server's socket, its configuration.
//!
//! A thread, and not a process: no program of that user's is started, and nothing of that user's
//! can look into this one, because only the effective user of the thread changes.
//!
//! Invariants: the user's groups, group and user are set in the thread before the work begins, and
//! the thread ends with it, so that no other thread ever has them.
//!
//! Must not: start a program, whose real user would be root.

use std::panic::resume_unwind;
use std::path::Path;

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use strongroom_format::code;
use strongroom_keyring::Error;

use super::OwnerIdentity;

/// Does `work` with the rights of `user`, who owns `path`, in a thread of its own if this is root,
/// and returns its result. Everybody else does it as who they are. The work must start no program.
///
/// # Errors
/// SR-6021 when the system does not know the user, or root's thread cannot take its rights; the
/// work is not done then.
pub fn acting_as<T: Send>(
    user: u32,
    path: &Path,
    work: impl FnOnce() -> T + Send,
) -> Result<T, Error> {
    if !rustix::process::geteuid().is_root() {
        return Ok(work());
    }
    let identity = OwnerIdentity::of(user, path)?;
    let group = Gid::from_raw(identity.user.gid.as_raw());
    let groups = identity.groups.iter();
    let groups: Vec<Gid> = groups.map(|group| Gid::from_raw(group.as_raw())).collect();
    let user = Uid::from_raw(user);
    let take_rights = move || {
        set_thread_groups(&groups)?;
        set_thread_res_gid(None, Some(group), None)?;
        set_thread_res_uid(None, Some(user), None)
    };
    let done = std::thread::scope(|scope| {
        let thread = scope.spawn(|| take_rights().map(|()| work()));
        thread.join()
    });
    done.unwrap_or_else(|panic| resume_unwind(panic))
        .map_err(|errno| {
            let detail = format!("user {}: {errno}", identity.user.name);
            Error::new(&code::OWNER_ACT, detail)
        })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn the_work_is_done_as_the_user_and_nothing_else_is() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
        let nobody = nobody.uid.as_raw();
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("secret");
        strongroom_keyring::durable::create_new(&file, b"secret", 0o600).unwrap();
        let read = acting_as(nobody, &file, || fs::read(&file).map_err(|e| e.kind()));
        assert_eq!(read.unwrap(), Err(std::io::ErrorKind::PermissionDenied));
        assert_eq!(fs::read(&file).unwrap(), b"secret", "this thread is root's");

        let own = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(own.path(), Some(nobody), None).unwrap();
        let made = own.path().join("made");
        acting_as(nobody, &made, || fs::File::create(&made).map(drop))
            .unwrap()
            .unwrap();
        assert_eq!(fs::metadata(&made).unwrap().uid(), nobody);
        assert!(acting_as(4_000_000_001, &made, || ()).is_err());
    }
}
