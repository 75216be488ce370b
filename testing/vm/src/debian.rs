//! A whole Debian for a guest: systemd as its first process, udev, initramfs-tools and Debian's
//! kernel, installed into a directory by mmdebstrap and packed into an image. For what the small
//! guest of `guest.rs` cannot show: that units, hook and plugin work where they are installed.
//!
//! Must not: change the host's own installation; contain a key but what a test puts into it.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use strongroom_testing_support::account::is_root;

use crate::guest::HARNESS;
use crate::kernel::Kernel;
use crate::{place, programs};

/// What a server has, and no more: emulated hardware boots it. (`dmsetup` brings the rules by which
/// udev names mapped devices.)
const PACKAGES: &str = "systemd-sysv,udev,kmod,iproute2,e2fsprogs,dmsetup,cryptsetup-bin,initramfs-tools,zstd,linux-image-cloud-amd64,ca-certificates";
const PACKAGING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging");
const HARNESS_UNIT: &str = "[Unit]\nDescription=The tests' harness\nDefaultDependencies=no\nAfter=systemd-udevd.service remote-fs.target\n\
    Wants=dev-virtio\\x2dports-harness.device\nAfter=dev-virtio\\x2dports-harness.device\n\n[Service]\nEnvironment=PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C\nExecStart=/bin/sh /usr/local/sbin/harness\nStandardOutput=journal\n\
    KillMode=process\n\n[Install]\nWantedBy=multi-user.target\n";
/// The guest's address, in every network of QEMU's.
const NETWORK: &str = "[Match]\nType=ether\n\n[Network]\nAddress=10.0.2.15/24\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n";

/// A Debian that is being set up.
#[derive(Debug)]
pub struct Debian {
    root: PathBuf,
}

impl Debian {
    /// A copy of the installation in `room`, with the command, the plugin, units and hook of the
    /// product where packages would put them.
    ///
    /// # Panics
    /// Without root's rights (files of other owners are made), or when it cannot be installed.
    #[must_use]
    pub fn new(room: &Path) -> Self {
        assert!(is_root(), "another Debian is installed by root only");
        let root = room.join("root");
        run(Command::new("cp").arg("-a").arg(installed()).arg(&root));
        let debian = Self { root };
        debian.base();
        debian.product();
        debian
    }

    fn base(&self) {
        self.file("etc/hostname", 0o644, "guest\n");
        self.file(
            "etc/hosts",
            0o644,
            "127.0.0.1 localhost guest\n10.0.2.100 keys-a\n",
        );
        self.file("etc/systemd/network/10-guest.network", 0o644, NETWORK);
        self.file(
            "etc/initramfs-tools/conf.d/compress",
            0o644,
            "COMPRESS=zstd\nCOMPRESSLEVEL=1\n",
        );
        self.file("usr/local/sbin/harness", 0o755, HARNESS);
        self.file("etc/systemd/system/harness.service", 0o644, HARNESS_UNIT);
        self.enable("systemd-networkd.service");
        self.enable("systemd-networkd-wait-online.service");
        self.enable("harness.service");
        // Of no use to a test, and slow on emulated hardware.
        for unit in [
            "apt-daily.timer",
            "apt-daily-upgrade.timer",
            "dpkg-db-backup.timer",
            "e2scrub_all.timer",
            "fstrim.timer",
            "systemd-timesyncd.service",
        ] {
            drop(symlink(
                "/dev/null",
                self.path(&format!("etc/systemd/system/{unit}")),
            ));
        }
    }

    fn product(&self) {
        let packaging = Path::new(PACKAGING);
        self.copy(place::command(), "usr/bin/strongroom", 0o755);
        self.copy(
            &place::plugin(),
            "usr/lib/x86_64-linux-gnu/cryptsetup/libcryptsetup-token-strongroom.so",
            0o644,
        );
        for unit in ["strongroom-volumes.service", "strongroom-swap@.service"] {
            self.copy(
                &packaging.join("systemd").join(unit),
                &format!("usr/lib/systemd/system/{unit}"),
                0o644,
            );
        }
    }

    /// The hook for the root disk, as docs/guides/volumes-boot.md installs it.
    ///
    /// # Panics
    /// When it cannot be copied.
    pub fn hook(&self) {
        let packaging = Path::new(PACKAGING);
        for (file, mode) in [
            ("conf.d/strongroom", 0o644),
            ("hooks/strongroom", 0o755),
            ("scripts/local-top/strongroom", 0o755),
        ] {
            self.copy(
                &packaging.join("initramfs-tools").join(file),
                &format!("etc/initramfs-tools/{file}"),
                mode,
            );
        }
    }

    /// Writes a file.
    ///
    /// # Panics
    /// When it cannot be written.
    #[expect(
        clippy::disallowed_methods,
        reason = "a test's file, which nothing depends on after a crash"
    )]
    pub fn file(&self, path: &str, mode: u32, contents: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(&path, contents).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("permissions");
    }

    /// Copies a file of the host.
    ///
    /// # Panics
    /// When it cannot be copied.
    pub fn copy(&self, from: &Path, to: &str, mode: u32) {
        let to = self.path(to);
        fs::create_dir_all(to.parent().expect("a directory")).expect("a directory");
        fs::copy(from, &to).expect("a copy");
        fs::set_permissions(&to, fs::Permissions::from_mode(mode)).expect("permissions");
    }

    /// Starts a unit at boot.
    ///
    /// # Panics
    /// When there is no such unit.
    pub fn enable(&self, unit: &str) {
        run(Command::new("systemctl")
            .arg("--root")
            .arg(&self.root)
            .args(["enable", "--quiet", unit]));
    }

    /// Makes the initramfs as the installation's own tools make it, and packs the installation into
    /// an image of this size.
    ///
    /// # Panics
    /// When that fails.
    #[must_use]
    pub fn finish(self, room: &Path, size: &str) -> Finished {
        let boot = self.path("boot");
        let image = named(&boot, "vmlinuz-");
        let version = image
            .file_name()
            .and_then(|name| name.to_str()?.strip_prefix("vmlinuz-"))
            .expect("a kernel")
            .to_owned();
        run(Command::new("chroot")
            .arg(&self.root)
            .args(["/usr/sbin/mkinitramfs", "-o", "/boot/initrd.test", &version])
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"));
        let finished = Finished {
            kernel: room.join("vmlinuz"),
            initramfs: room.join("initramfs"),
            image: room.join("root.img"),
        };
        fs::copy(image, &finished.kernel).expect("the kernel");
        fs::copy(boot.join("initrd.test"), &finished.initramfs).expect("the initramfs");
        run(Command::new(programs::installed("mke2fs", "e2fsprogs"))
            .args(["-q", "-F", "-t", "ext4", "-d"])
            .arg(&self.root)
            .arg(&finished.image)
            .arg(size));
        drop(fs::remove_dir_all(&self.root));
        finished
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }
}

/// What a machine boots from.
#[derive(Debug)]
pub struct Finished {
    kernel: PathBuf,
    /// The initramfs.
    pub initramfs: PathBuf,
    /// The image of the root file system, without a partition table.
    pub image: PathBuf,
}

impl Finished {
    /// The kernel.
    #[must_use]
    pub fn kernel(&self) -> Kernel {
        Kernel::installed(self.kernel.clone())
    }
}

/// The installation, made once.
fn installed() -> PathBuf {
    let place = place::cache().join("debian");
    let root = place.join("root");
    place::once(&place.join("complete"), || {
        drop(fs::remove_dir_all(&place));
        fs::create_dir_all(&place).expect("a directory");
        let release = fs::read_to_string("/etc/os-release").expect("a release");
        let suite = release
            .lines()
            .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
            .expect("a release of Debian");
        run(
            Command::new(programs::installed("mmdebstrap", "mmdebstrap"))
                .args([
                    "--quiet",
                    "--mode=root",
                    "--variant=minbase",
                    &format!("--include={PACKAGES}"),
                    suite,
                ])
                .arg(&root),
        );
        drop(fs::File::create(place.join("complete")).expect("a mark"));
    });
    root
}

fn named(directory: &Path, start: &str) -> PathBuf {
    let files = fs::read_dir(directory).expect("a directory").flatten();
    let mut paths = files.map(|entry| entry.path());
    paths
        .find(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(start))
        })
        .expect("a file")
}

fn run(command: &mut Command) {
    let output = command
        .stdin(Stdio::null())
        .output()
        .expect("the program can be started");
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
