//! The sandbox of the zone: before it serves it gives up privileges, other files, other system
//! calls, core dumps and swapping.
//!
//! Invariants: after [`close`] the calling thread and those it starts cannot gain privileges
//! (`PR_SET_NO_NEW_PRIVS`), reach files but below the directories named (Landlock, Linux 5.13), or
//! call what is not on the list (seccomp): no `execve`, no `ptrace`, no new sockets. The process
//! leaves no core, and its memory is not swapped. [`Closed`] says what the kernel could not do.
//! Must not: be undone.
#![expect(unsafe_code, reason = "mlockall and prctl have no safe interface here")]

use std::io;
use std::path::PathBuf;

use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus,
};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

/// What the process may still use.
#[derive(Clone, Debug)]
pub struct Sandbox {
    /// Directories below which files may be read and written: the store's, the anchor's, the
    /// socket's.
    pub directories: Vec<PathBuf>,
    /// Memory that cannot be locked is an error.
    pub insist_on_locks: bool,
    /// Other threads of the process are refused the same system calls. Files they can reach as
    /// before (Landlock is a thread's own), so none should have been started.
    pub all_threads: bool,
}

/// What the sandbox could close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Whether other files are out of reach; an old kernel has no Landlock.
    pub files: bool,
    /// Whether all memory is locked.
    pub locked: bool,
}

/// Closes the sandbox for good: forbids core dumps, locks the process's memory if it may, forbids
/// new privileges, and restricts files and system calls. Returns what the kernel could do of it.
///
/// # Errors
/// Of the kernel; memory that cannot be locked only if `insist_on_locks` is set. After an error the
/// sandbox may be closed in part, and the process must not serve.
pub fn close(sandbox: &Sandbox) -> io::Result<Closed> {
    strongroom_crypto::forbid_core_dumps();
    // Under a limit all later memory would be refused when it is reached, the allocator's too: then
    // values and keys are locked by themselves, and the rest is not.
    let unlimited = may_lock_all();
    let future = if unlimited { libc::MCL_FUTURE } else { 0 };
    let flags = libc::MCL_CURRENT | future | libc::MCL_ONFAULT;
    // SAFETY: changes no memory's contents.
    let locked = unsafe { libc::mlockall(flags) } == 0 && unlimited;
    if sandbox.insist_on_locks && !locked {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: changes an attribute of the thread only.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let files = restrict_files(sandbox).map_err(io::Error::other)?;
    restrict_calls(sandbox.all_threads)?;
    Ok(Closed { files, locked })
}

/// Whether the process may lock all memory that it gets: it runs as root, or has no memlock limit.
fn may_lock_all() -> bool {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: fills the structure.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) } == 0;
    // SAFETY: asks for a number.
    let root = unsafe { libc::geteuid() } == 0;
    root || (known && limit.rlim_cur == libc::RLIM_INFINITY)
}

/// Restricts this thread, and those that it starts later, to files below the given directories, and
/// forbids to run any (Landlock). A directory that cannot be opened is left out. False if the
/// kernel enforces nothing. Fails if the kernel refuses the rules.
fn restrict_files(sandbox: &Sandbox) -> Result<bool, landlock::RulesetError> {
    let abi = ABI::V3;
    let all = AccessFs::from_all(abi);
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .create()?;
    for directory in &sandbox.directories {
        let Ok(directory) = PathFd::new(directory) else {
            continue;
        };
        let access = all & !AccessFs::Execute;
        ruleset = ruleset.add_rule(PathBeneath::new(directory, access))?;
    }
    let status = ruleset.restrict_self()?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

/// The system calls of the engine, the store, the watching thread and the allocator. Anything else
/// is refused with `EPERM`.
const CALLS: &[libc::c_long] = &[
    // memory
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_memfd_create,
    // files of the store
    libc::SYS_openat,
    libc::SYS_close,
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_renameat2,
    libc::SYS_renameat,
    libc::SYS_unlinkat,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_fchmod,
    libc::SYS_getdents64,
    // the rings
    libc::SYS_accept4,
    libc::SYS_sendmsg,
    libc::SYS_getsockopt,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_epoll_ctl,
    libc::SYS_pidfd_open,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_shutdown,
    // threads, time, signals, the end
    libc::SYS_clone3,
    libc::SYS_clone,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_prctl,
    libc::SYS_sched_getaffinity,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigaction,
    // a signal's way to the thread that waits for it
    libc::SYS_pipe2,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_getrandom,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_tgkill,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_exit,
    libc::SYS_exit_group,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
];

/// Forbids all system calls but those in [`CALLS`], for this thread and those that it starts later,
/// or for all threads of the process. A forbidden call fails with EPERM.
fn restrict_calls(all_threads: bool) -> io::Result<()> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let refuse = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let rules = CALLS.iter().map(|call| (*call, Vec::new())).collect();
    let filter = SeccompFilter::new(rules, refuse, SeccompAction::Allow, arch);
    let program: BpfProgram = filter
        .and_then(TryInto::try_into)
        .map_err(io::Error::other)?;
    if all_threads {
        seccompiler::apply_filter_all_threads(&program).map_err(io::Error::other)
    } else {
        seccompiler::apply_filter(&program).map_err(io::Error::other)
    }
}
