//! A program with the owner's rights on root's terminal cannot type there.
//!
//! A process can push characters into its controlling terminal (`TIOCSTI`), which root's shell then
//! reads as if root had typed them. Kernels since 6.2 can refuse that; a seccomp filter refuses it
//! here on all.
//!
//! Must not: refuse anything else. Questions, signals and job control stay as they are.

use std::collections::BTreeMap;
use std::io;

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// `ioctl` among the system calls of x86-64's third way of calling, where a kernel has it
/// (`asm/unistd_x32.h`).
const X32_IOCTL: i64 = 0x4000_0000 | 514;

/// Keeps this process, and what it becomes and starts, from pushing characters into its terminal,
/// by a seccomp filter that cannot be removed. Does nothing without a controlling terminal, because
/// no other takes such characters. Errors: when the kernel does not take the filter.
pub(super) fn forbid_terminal_input() -> io::Result<()> {
    if std::fs::File::open("/dev/tty").is_err() {
        return Ok(());
    }
    let program = filter().map_err(io::Error::other)?;
    seccompiler::apply_filter(&program).map_err(io::Error::other)
}

/// Builds the seccomp filter that answers `EPERM` to the two `ioctl`s that push characters into a
/// terminal, and allows everything else.
fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let refused = |request: libc::c_ulong| {
        // The kernel looks at the lower half of the number only.
        let is = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, request)?;
        SeccompRule::new(vec![is])
    };
    // The second pastes the selection of a virtual console, among other things.
    let rules = || Ok(vec![refused(libc::TIOCSTI)?, refused(libc::TIOCLINUX)?]);
    let calls = BTreeMap::from([(libc::SYS_ioctl, rules()?), (X32_IOCTL, rules()?)]);
    let denied = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(calls, SeccompAction::Allow, denied, arch)?.try_into()
}
