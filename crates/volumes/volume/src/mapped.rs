//! Whether a mapping of a name exists already, and of which device it is: as the kernel shows it,
//! without opening the device.
//!
//! Invariant V19: a mapping counts as the volume of an entry only when it is encrypted and of that
//! entry's device; swap counts as on only when the kernel says so.
//!
//! Must not: change anything.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::active::path_of;
use crate::probe::{KernelPaths, has_identity};

/// Prefix of the UUID that libcryptsetup gives a LUKS2 mapping in the kernel; the 32 digits of the
/// volume's UUID follow.
const LUKS2: &str = "CRYPT-LUKS2-";
/// The same for a plain mapping.
const PLAIN: &str = "CRYPT-PLAIN-";
/// How many layers of devices below a mapping are searched: dm-crypt, dm-integrity, and the layer
/// that a re-encryption adds.
const DEPTH_MAX: usize = 4;
/// How long to wait for a device to show its label.
const LABEL_WAIT: Duration = Duration::from_secs(2);

/// What uses a mapping's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameUse {
    /// No mapping has it.
    Free,
    /// The mapping that is wanted has it.
    Wanted,
    /// Another mapping has it.
    Other,
}

/// Returns what uses `name` as the name of a mapping, which the volume on `device` is to have.
/// `device` is `UUID=...`, `LABEL=...` or a path. A mapping that is not LUKS2 is always another
/// one.
#[must_use]
pub fn use_of_volume_name(places: &KernelPaths, name: &str, device: &str) -> NameUse {
    let Some(mapping) = mapping(places, name) else {
        return NameUse::Free;
    };
    let kernel_name = places.shown(&mapping, "dm/uuid").unwrap_or_default();
    let Some(uuid) = kernel_name.strip_prefix(LUKS2) else {
        return NameUse::Other;
    };
    let is_it = match device.split_once('=') {
        Some(("UUID", wanted)) => {
            let wanted = wanted.replace('-', "").to_ascii_lowercase();
            wanted.len() == 32
                && uuid
                    .strip_prefix(&wanted)
                    .is_some_and(|rest| rest.starts_with('-'))
        }
        Some(("LABEL", _)) => below(places, &mapping)
            .iter()
            .any(|leaf| has_identity(&places.dev.join(leaf), device, LABEL_WAIT)),
        _ => is_over(places, &mapping, Path::new(device)),
    };
    if is_it {
        NameUse::Wanted
    } else {
        NameUse::Other
    }
}

/// Returns what uses `name` as the name of a mapping, which encrypted swap on `device` is to have.
#[must_use]
pub fn use_of_swap_name(places: &KernelPaths, name: &str, device: &Path) -> NameUse {
    let Some(mapping) = mapping(places, name) else {
        return NameUse::Free;
    };
    let kernel_name = places.shown(&mapping, "dm/uuid").unwrap_or_default();
    if kernel_name.starts_with(PLAIN) && is_over(places, &mapping, device) {
        NameUse::Wanted
    } else {
        NameUse::Other
    }
}

/// Returns whether the kernel swaps to the mapping `name`. False when there is no such mapping.
#[must_use]
pub fn is_swap_on(places: &KernelPaths, name: &str) -> bool {
    let Some(mapping) = mapping(places, name) else {
        return false;
    };
    let paths = [places.dev.join(mapping), path_of(name)];
    let swaps = fs::read_to_string(&places.swaps).unwrap_or_default();
    let mut areas = swaps
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next());
    areas.any(|area| paths.iter().any(|path| path == Path::new(area)))
}

/// Returns the kernel's name for the mapping `name`, as `dm-3`. `None` when there is no such
/// mapping.
fn mapping(places: &KernelPaths, name: &str) -> Option<String> {
    let entries = fs::read_dir(&places.block).ok()?;
    let names = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let mut names = names.filter(|device| device.starts_with("dm-"));
    names.find(|device| places.shown(device, "dm/name").as_deref() == Some(name))
}

/// Returns the names of all devices that a mapping is made of, at most [`DEPTH_MAX`] layers deep,
/// sorted.
fn below(places: &KernelPaths, mapping: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut level = vec![mapping.to_owned()];
    for _ in 0..DEPTH_MAX {
        let next = level.iter().flat_map(|name| places.listed(name, "slaves"));
        level = next.collect();
        all.extend(level.iter().cloned());
    }
    all.sort();
    all.dedup();
    all
}

/// Returns whether a mapping is made of the device at `path`, or of a loop device on the file
/// there. False when nothing is at `path`.
fn is_over(places: &KernelPaths, mapping: &str, path: &Path) -> bool {
    let Ok(wanted) = fs::canonicalize(path) else {
        return false;
    };
    let number = fs::metadata(&wanted).map_or(0, |about| about.rdev());
    below(places, mapping).iter().any(|name| {
        let device = places.dev.join(name);
        let same = |device: &PathBuf| {
            let there = fs::canonicalize(device).ok();
            let with_number = fs::metadata(device).map_or(0, |about| about.rdev());
            there.as_ref() == Some(&wanted) || (number != 0 && with_number == number)
        };
        let backing = places.shown(name, "loop/backing_file");
        same(&device) || backing.is_some_and(|file| Path::new(&file) == wanted)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::tests::MadeUp;

    const UUID: &str = "9d1a0c1e-0000-4000-8000-000000000000";

    /// `data` is mapped from sdb, which is a volume; `swap` from sdc.
    fn made() -> MadeUp {
        let made = MadeUp::new();
        made.device("sda", "other", "00000000-0000-4000-8000-000000000001");
        made.device("sdb", "data", UUID);
        made.device("sdc", "", "");
        made.show("dm-0", "dm/name", "data");
        made.show(
            "dm-0",
            "dm/uuid",
            "CRYPT-LUKS2-9d1a0c1e000040008000000000000000-data",
        );
        made.stack("dm-0", "sdb");
        made.show("dm-1", "dm/name", "swap");
        made.show("dm-1", "dm/uuid", "CRYPT-PLAIN-swap");
        made.stack("dm-1", "sdc");
        made
    }

    fn path(made: &MadeUp, device: &str) -> String {
        made.places.dev.join(device).display().to_string()
    }

    #[test]
    fn a_mapping_is_the_volume_only_when_it_is_of_its_device() {
        let made = made();
        let asked = |name: &str, device: &str| use_of_volume_name(&made.places, name, device);
        for device in [
            format!("UUID={UUID}"),
            format!("UUID={}", UUID.to_uppercase()),
            "LABEL=data".to_owned(),
            path(&made, "sdb"),
        ] {
            assert_eq!(asked("data", &device), NameUse::Wanted, "{device}");
            assert_eq!(asked("absent", &device), NameUse::Free);
            // A plain mapping is no volume, whatever it is made of.
            assert_eq!(asked("swap", &device), NameUse::Other);
        }
        for device in [
            "UUID=00000000-0000-4000-8000-000000000001".to_owned(),
            "UUID=9d1a0c1e".to_owned(),
            "UUID=".to_owned(),
            "LABEL=other".to_owned(),
            path(&made, "sda"),
            path(&made, "absent"),
        ] {
            assert_eq!(asked("data", &device), NameUse::Other, "{device}");
        }
        // Somebody's linear mapping under the name.
        made.show("dm-0", "dm/uuid", "LVM-9d1a0c1e000040008000000000000000");
        assert_eq!(asked("data", &path(&made, "sdb")), NameUse::Other);
    }

    #[test]
    fn devices_are_found_below_an_authenticated_mapping_and_behind_links() {
        let made = made();
        made.show("dm-2", "dm/name", "sealed");
        made.show(
            "dm-2",
            "dm/uuid",
            "CRYPT-LUKS2-00000000000040008000000000000001-sealed",
        );
        made.stack("dm-2", "dm-3");
        made.stack("dm-3", "sda");
        let link = made.room.path().join("link");
        std::os::unix::fs::symlink(made.places.dev.join("sda"), &link).unwrap();
        for device in [link.display().to_string(), "LABEL=other".to_owned()] {
            assert_eq!(
                use_of_volume_name(&made.places, "sealed", &device),
                NameUse::Wanted
            );
        }
        // An image in a file, behind a loop device.
        let image = fs::canonicalize(made.places.dev.join("sda")).unwrap();
        made.show("loop0", "loop/backing_file", &image.display().to_string());
        made.stack("dm-2", "loop0");
        fs::remove_file(made.places.block.join("dm-3/slaves/sda")).unwrap();
        assert_eq!(
            use_of_volume_name(&made.places, "sealed", &image.display().to_string()),
            NameUse::Wanted
        );
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "files of a test")]
    fn swap_counts_when_it_is_encrypted_of_that_device_and_on() {
        let made = made();
        let sdc = made.places.dev.join("sdc");
        assert_eq!(
            use_of_swap_name(&made.places, "swap", &sdc),
            NameUse::Wanted
        );
        assert_eq!(
            use_of_swap_name(&made.places, "swap", &made.places.dev.join("sda")),
            NameUse::Other
        );
        assert_eq!(
            use_of_swap_name(&made.places, "data", &made.places.dev.join("sdb")),
            NameUse::Other
        );
        assert_eq!(
            use_of_swap_name(&made.places, "absent", &sdc),
            NameUse::Free
        );
        // As after a stop between mapping and swapon: mapped, not swapped to.
        assert!(!is_swap_on(&made.places, "swap"));
        let header = "Filename\tType\tSize\tUsed\tPriority\n";
        let on = |device: &Path| format!("{header}{} partition 1048572 0 -2\n", device.display());
        fs::write(&made.places.swaps, on(&made.places.dev.join("dm-10"))).unwrap();
        assert!(!is_swap_on(&made.places, "swap"));
        for device in [made.places.dev.join("dm-1"), path_of("swap")] {
            fs::write(&made.places.swaps, on(&device)).unwrap();
            assert!(is_swap_on(&made.places, "swap"));
            assert!(!is_swap_on(&made.places, "data"));
        }
    }
}
