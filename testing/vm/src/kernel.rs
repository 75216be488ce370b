//! Debian's kernel: its package is downloaded and unpacked, never installed. Modules are ordered by
//! what they say that they depend on.
//!
//! Must not: touch /boot or /lib/modules of the host, or load a module there.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::place;

/// A kernel and its modules, unpacked.
#[derive(Clone, Debug)]
pub struct Kernel {
    image: PathBuf,
    modules: BTreeMap<String, PathBuf>,
}

impl Kernel {
    /// The kernel of this Debian release; downloaded once.
    ///
    /// # Panics
    /// When the package cannot be had.
    #[must_use]
    pub fn fetch() -> Self {
        let place = place::cache().join("kernel");
        place::once(&place.join("complete"), || unpack(&place));
        let boot = fs::read_dir(place.join("boot")).expect("a package with a kernel");
        let image = boot
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.to_string_lossy().contains("/vmlinuz-"))
            .expect("a kernel image");
        let mut modules = BTreeMap::new();
        gather(&place.join("lib/modules"), &mut modules);
        Self { image, modules }
    }

    /// A kernel that some installation has, without modules of ours.
    #[must_use]
    pub const fn installed(image: PathBuf) -> Self {
        Self {
            image,
            modules: BTreeMap::new(),
        }
    }

    /// The image that QEMU boots.
    #[must_use]
    pub fn image(&self) -> &Path {
        &self.image
    }

    /// The files of these modules and of all that they need, in the order in which they can be
    /// loaded.
    ///
    /// # Panics
    /// When there is no such module.
    #[must_use]
    pub fn in_order(&self, names: &[&str]) -> Vec<(String, PathBuf)> {
        let mut ordered = Vec::new();
        for name in names {
            self.add(&name.replace('-', "_"), &mut ordered);
        }
        ordered
    }

    fn add(&self, name: &str, ordered: &mut Vec<(String, PathBuf)>) {
        if ordered.iter().any(|(known, _)| known == name) {
            return;
        }
        let path = self.modules.get(name);
        let path = path.unwrap_or_else(|| no_module(name)).clone();
        for needed in depends(&fs::read(&path).expect("a module")) {
            self.add(&needed, ordered);
        }
        // What it needs has been added meanwhile; the module itself only if it does not need
        // itself.
        ordered.push((name.to_owned(), path));
    }
}

#[expect(
    clippy::panic,
    reason = "a machine without a module that it needs does not start"
)]
fn no_module(name: &str) -> &PathBuf {
    panic!("this kernel has no module {name}")
}

fn unpack(place: &Path) {
    drop(fs::remove_dir_all(place));
    fs::create_dir_all(place).expect("a directory");
    let package = package_name();
    let download = || {
        let mut command = Command::new("apt-get");
        command
            .current_dir(place)
            .args(["download", "-q", &package])
            .status()
    };
    if !download().is_ok_and(|status| status.success()) {
        // The lists may be older than the archive.
        drop(Command::new("apt-get").args(["update", "-q"]).status());
        assert!(
            download().is_ok_and(|status| status.success()),
            "apt-get download {package}"
        );
    }
    let files = fs::read_dir(place).expect("the directory").flatten();
    let file = files
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|end| end == "deb"));
    let file = file.expect("the package that was downloaded");
    let status = Command::new("dpkg")
        .arg("-x")
        .arg(&file)
        .arg(place)
        .status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "dpkg -x {}",
        file.display()
    );
    drop(fs::remove_file(file));
    drop(fs::File::create(place.join("complete")).expect("a mark"));
}

/// What `linux-image-amd64` stands for in this release.
fn package_name() -> String {
    let output = Command::new("apt-cache")
        .args(["depends", "linux-image-amd64"])
        .output();
    let text = output.expect("apt-cache").stdout;
    let text = String::from_utf8_lossy(&text).into_owned();
    let name = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("Depends: "));
    name.expect("linux-image-amd64 depends on a kernel")
        .to_owned()
}

fn gather(directory: &Path, modules: &mut BTreeMap<String, PathBuf>) {
    for entry in fs::read_dir(directory)
        .expect("a directory of modules")
        .flatten()
    {
        let path = entry.path();
        if path.is_dir() {
            gather(&path, modules);
        } else if let Some(name) = path
            .file_name()
            .and_then(|name| name.to_str()?.strip_suffix(".ko"))
        {
            modules.insert(name.replace('-', "_"), path);
        }
    }
}

/// The names in `depends=` of a module's `.modinfo`.
fn depends(module: &[u8]) -> Vec<String> {
    let start = memchr::memmem::find(module, b"\0depends=").map(|at| at + b"\0depends=".len());
    let Some(rest) = start.and_then(|at| module.get(at..)) else {
        return Vec::new();
    };
    let end = memchr::memchr(0, rest).unwrap_or(0);
    let list = String::from_utf8_lossy(rest.get(..end).unwrap_or_default()).into_owned();
    list.split(',')
        .filter(|name| !name.is_empty())
        .map(|name| name.replace('-', "_"))
        .collect()
}
