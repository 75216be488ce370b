//! A virtual machine of emulated hardware for what no container can show: device-mapper, a boot, a
//! power cut.
//!
//! QEMU runs Debian's own kernel, which is downloaded as a package and unpacked below the target
//! directory, never installed; the rest of the guest is copied from the programs of this host.
//! docs/internals/testing-volumes.md describes the machine, its disks and what the tests show.
//!
//! Invariants: M1 a guest reaches nothing but the ports that a test forwards to it. M2 a machine,
//! its disks' server and its files end with the value that stands for them, whether the test passed
//! or not. M3 nothing waits without bound; bounds are for machines that hang, not for slow ones. M4
//! a disk's power cut keeps every write that was flushed, and any subset, sector by sector, of the
//! others.
//!
//! Must not: be used by a product crate; load a kernel or a module on the host.

pub mod archive;
pub mod debian;
pub mod disk;
pub mod guest;
pub mod header;
pub mod kernel;
pub mod keyring;
pub mod keyserver;
pub mod machine;
pub mod mariadb;
pub mod nbd;
pub mod place;
pub mod postgres;
pub mod programs;
pub mod scan;

pub use strongroom_testing_support::random;
