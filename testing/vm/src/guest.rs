//! What a guest is made of: its first file system (an archive that the kernel unpacks), and a
//! read-only disk of database engines and load generators, mounted as /usr.
//!
//! Must not: contain a key; keys come over the network, or are typed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use strongroom_testing_support::account::is_root;
use strongroom_testing_support::programs::newest;

use crate::archive::Archive;
use crate::kernel::Kernel;
use crate::{place, programs};

const MARIADB: &str = "/usr/sbin/mariadbd";
const INIT: &str = include_str!("../guest/init.sh");
/// What obeys, in every guest.
pub(crate) const HARNESS: &str = include_str!("../guest/harness.sh");

/// Drivers of the emulated hardware, ext4, dm-crypt with its ciphers, and what `volume attach`
/// needs.
const MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_blk",
    "virtio_net",
    "virtio-rng",
    "virtio_console",
    "crc32c-intel",
    "crc32c_generic",
    "ext4",
    "ecb",
    "xts",
    "aesni-intel",
    "dm-mod",
    "dm-crypt",
    "dm-integrity",
    "af_alg",
    "algif_skcipher",
    "authenc",
    "gcm",
    "loop",
    "fuse",
];

/// The first file system of a guest, being put together.
#[derive(Debug)]
pub struct Guest {
    archive: Archive,
    programs: Vec<PathBuf>,
    modules: Vec<String>,
}

impl Guest {
    /// Busybox, cryptsetup, tools of ext4, the `strongroom` command and the modules.
    ///
    /// # Panics
    /// When a program is not installed.
    #[must_use]
    pub fn new() -> Self {
        let mut guest = Self {
            archive: Archive::default(),
            programs: Vec::new(),
            modules: Vec::new(),
        };
        for place in [
            "proc", "sys", "dev", "run", "tmp", "mnt", "usr", "root", "etc", "var/lib",
        ] {
            guest.archive.directory(place);
        }
        guest.archive.file("init", 0o755, INIT.as_bytes());
        guest.archive.file("harness", 0o644, HARNESS.as_bytes());
        guest.busybox();
        guest.program(&programs::installed("cryptsetup", "cryptsetup-bin"));
        for name in ["mke2fs", "e2fsck"] {
            guest.program(&programs::installed(name, "e2fsprogs"));
        }
        guest.program(&programs::installed("blkid", "util-linux"));
        for (link, name) in [("mkfs.ext4", "mke2fs"), ("fsck.ext4", "e2fsck")] {
            guest.archive.link(&format!("sbin/{link}"), name);
        }
        guest
            .archive
            .copy(Path::new("/etc/mke2fs.conf"), "etc/mke2fs.conf");
        guest.text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\npostgres:x:70:70:PostgreSQL:/tmp:/bin/sh\nmysql:x:71:71:MariaDB:/tmp:/bin/sh\n");
        guest.text("etc/group", "root:x:0:\npostgres:x:70:\nmysql:x:71:\n");
        guest.text(
            "etc/nsswitch.conf",
            "passwd: files\ngroup: files\nhosts: files\n",
        );
        guest.text(
            "etc/hosts",
            "127.0.0.1 localhost guest\n10.0.2.100 keys-a\n10.0.2.101 keys-b\n",
        );
        guest
    }

    /// The product's command.
    #[must_use]
    pub fn with_strongroom(mut self) -> Self {
        let command = place::command();
        self.archive.copy(command, "bin/strongroom");
        self.programs.push(command.to_owned());
        self
    }

    /// A file of text that everybody may read.
    pub fn text(&mut self, path: &str, contents: &str) {
        self.archive.file(path, 0o644, contents.as_bytes());
    }

    /// A file of root's alone.
    pub fn private(&mut self, path: &str, contents: &[u8]) {
        self.archive.file(path, 0o600, contents);
    }

    /// Shell commands for the boot, before the harness is listened to.
    pub fn boot(&mut self, script: &str) {
        self.text("etc/boot", script);
    }

    /// A program of the host, in /sbin.
    pub fn program(&mut self, path: &Path) {
        let name = path
            .file_name()
            .expect("a program")
            .to_string_lossy()
            .into_owned();
        self.archive.copy(path, &format!("sbin/{name}"));
        self.programs.push(path.to_owned());
    }

    /// A library of the host or of the build, under a path of its own.
    pub fn library(&mut self, path: &Path, to: &str) {
        self.archive.copy(path, to);
        self.programs.push(path.to_owned());
    }

    /// Writes the archive to a file.
    ///
    /// # Panics
    /// When it cannot be written.
    #[expect(
        clippy::disallowed_methods,
        reason = "a test's file, which nothing depends on after a crash"
    )]
    pub fn write(mut self, kernel: &Kernel, to: &Path) {
        for (name, path) in kernel.in_order(MODULES) {
            self.archive.copy(&path, &format!("modules/{name}.ko"));
            self.modules.push(name);
        }
        let modules = self.modules.join("\n");
        self.text("etc/modules", &modules);
        let programs: Vec<&Path> = self.programs.iter().map(PathBuf::as_path).collect();
        for library in programs::libraries(programs) {
            self.archive.copy(&library, &inside(&library));
        }
        fs::write(to, self.archive.finish()).expect("the archive can be written");
    }

    fn busybox(&mut self) {
        let busybox = programs::installed("busybox", "busybox-static");
        self.archive.copy(&busybox, "bin/busybox");
        let list = Command::new(&busybox)
            .arg("--list")
            .output()
            .expect("busybox");
        for applet in String::from_utf8_lossy(&list.stdout)
            .lines()
            .filter(|name| *name != "busybox")
        {
            self.archive.link(&format!("bin/{applet}"), "busybox");
        }
    }
}

impl Default for Guest {
    fn default() -> Self {
        Self::new()
    }
}

/// Where a library lies in the guest: never below /usr, over which a disk may be mounted. The
/// linker looks into both.
fn inside(library: &Path) -> String {
    let path = library.to_string_lossy();
    path.strip_prefix("/usr").unwrap_or(&path).to_owned()
}

/// A read-only disk of programs of the host, made once: mounted as /usr in the guest.
///
/// # Panics
/// When something of it is not installed.
#[must_use]
pub fn engines() -> PathBuf {
    let tools = tools();
    let image = place::cache().join(format!("engines-{}.img", tools.len()));
    place::once(&image, || {
        let staging = place::cache().join("engines");
        drop(fs::remove_dir_all(&staging));
        stage(&staging, tools);
        let part = image.with_extension("part");
        drop(fs::remove_file(&part));
        let status = Command::new(programs::installed("mke2fs", "e2fsprogs"))
            .args(["-q", "-F", "-t", "ext4", "-O", "^has_journal", "-d"])
            .arg(&staging)
            .arg(&part)
            .arg("500M")
            .status();
        assert!(status.is_ok_and(|status| status.success()), "mke2fs -d");
        drop(fs::remove_dir_all(&staging));
        #[expect(clippy::disallowed_methods, reason = "a cache, which is made again")]
        fs::rename(&part, &image).expect("the image gets its name");
    });
    image
}

/// Load generators and MariaDB, where they are installed.
fn tools() -> Vec<PathBuf> {
    let tools = [
        "/usr/bin/fio",
        "/usr/bin/sysbench",
        MARIADB,
        "/usr/bin/mariadb",
    ]
    .map(PathBuf::from);
    tools.into_iter().filter(|tool| tool.exists()).collect()
}

fn stage(staging: &Path, tools: Vec<PathBuf>) {
    let bin = newest().expect("apt-get install postgresql");
    let server = bin.parent().expect("the version's directory");
    let major = server
        .file_name()
        .expect("a version")
        .to_string_lossy()
        .into_owned();
    let mut programs = BTreeSet::new();
    let names = [
        "postgres",
        "initdb",
        "pg_ctl",
        "psql",
        "pgbench",
        "pg_checksums",
        "pg_controldata",
    ];
    programs.extend(names.map(|name| server.join("bin").join(name)));
    programs.extend(["plpgsql.so", "dict_snowball.so"].map(|name| server.join("lib").join(name)));
    let mariadb = tools.iter().any(|tool| tool == Path::new(MARIADB));
    programs.extend(tools);
    let all: Vec<&Path> = programs.iter().map(PathBuf::as_path).collect();
    let libraries = programs::libraries(all);
    for file in programs.iter().chain(&libraries) {
        let path = file.to_string_lossy();
        let to = staging.join(path.trim_start_matches("/usr").trim_start_matches('/'));
        place_copy(file, &to);
    }
    let mut trees = vec![
        format!("/usr/share/postgresql/{major}"),
        "/usr/share/zoneinfo".to_owned(),
    ];
    if mariadb {
        trees.extend(["english", "charsets"].map(|tree| format!("/usr/share/mysql/{tree}")));
        trees.push("/usr/share/sysbench".to_owned());
        databases(&staging.join("share/mariadb.tar"));
    }
    for tree in trees {
        let to = staging.join(tree.trim_start_matches("/usr/"));
        fs::create_dir_all(to.parent().expect("a parent")).expect("a directory");
        let status = Command::new("cp").arg("-a").arg(&tree).arg(&to).status();
        assert!(status.is_ok_and(|status| status.success()), "cp -a {tree}");
    }
    cluster(server, &staging.join("share/cluster.tar"));
    // A path without the version, for scripts.
    let link = staging.join("lib/postgresql/bin");
    std::os::unix::fs::symlink(format!("{major}/bin"), link).expect("a link");
}

/// MariaDB's directory of databases, made here for the same reason as the cluster.
fn databases(to: &Path) {
    let room = tempfile::tempdir().expect("a directory");
    let data = room.path().join("data");
    let made = Command::new(programs::installed(
        "mariadb-install-db",
        "mariadb-server-core",
    ))
    .arg("--no-defaults")
    .arg(format!("--datadir={}", data.display()))
    .args([
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        "--user=root",
        "--innodb-log-file-size=8M",
    ])
    .stdout(std::process::Stdio::null())
    .status();
    assert!(made.is_ok_and(|made| made.success()), "mariadb-install-db");
    packed(&data, to);
}

/// A small cluster, made here because making one takes minutes on emulated hardware.
fn cluster(server: &Path, to: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;
    let room = tempfile::tempdir().expect("a directory");
    let data = room.path().join("data");
    let mut initdb = Command::new(server.join("bin/initdb"));
    initdb.args([
        "-U",
        "postgres",
        "-A",
        "trust",
        "-N",
        "-k",
        "--wal-segsize=1",
        "--no-instructions",
        "--locale=C",
        "-E",
        "UTF8",
        "-D",
    ]);
    initdb
        .arg(&data)
        .current_dir(room.path())
        .stdout(std::process::Stdio::null());
    if is_root() {
        // PostgreSQL refuses root.
        fs::set_permissions(room.path(), fs::Permissions::from_mode(0o1777)).expect("permissions");
        initdb.uid(65534).gid(65534);
    }
    assert!(
        initdb.status().is_ok_and(|status| status.success()),
        "initdb"
    );
    let settings = "listen_addresses = ''\nunix_socket_directories = '/tmp'\nshared_buffers = 16MB\nmax_wal_size = 32MB\n\
        min_wal_size = 4MB\nautovacuum = off\nmax_connections = 20\n";
    let mut file = fs::OpenOptions::new()
        .append(true)
        .open(data.join("postgresql.conf"))
        .expect("the settings");
    std::io::Write::write_all(&mut file, settings.as_bytes()).expect("the settings");
    packed(&data, to);
}

fn packed(directory: &Path, to: &Path) {
    fs::create_dir_all(to.parent().expect("a parent")).expect("a directory");
    let status = Command::new("tar")
        .arg("-C")
        .arg(directory)
        .arg("-cf")
        .arg(to)
        .arg(".")
        .status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "tar of {}",
        directory.display()
    );
}

fn place_copy(file: &Path, to: &Path) {
    fs::create_dir_all(to.parent().expect("a parent")).expect("a directory");
    if let Err(why) = fs::copy(file, to) {
        assert!(file.is_dir(), "{}: {why}", file.display());
    }
}
