//! Clusters of Debian's postgresql-common: where the configuration of a data directory is kept.
//!
//! On Debian the configuration of a cluster is in `/etc/postgresql/VERSION/NAME`, and its data
//! directory has no `postgresql.conf`. The cluster of a data directory is found as
//! `pg_lsclusters`(1) finds it: by `data_directory` in each `postgresql.conf`.
//!
//! Must not: write; be called by root for a directory that another user owns, except for
//! `strongroom pg service`, which root runs.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use crate::settings::{CONFIGURATION, Settings};

/// Settings, and the files in the data directory that PostgreSQL uses when they are not set.
const BESIDE: [(&str, &str); 2] = [("hba_file", "pg_hba.conf"), ("ident_file", "pg_ident.conf")];

/// A cluster of postgresql-common.
pub struct Cluster {
    /// The major version of PostgreSQL.
    pub version: String,
    /// The cluster's name.
    pub name: String,
    /// The directory of its configuration.
    pub configuration: PathBuf,
}

/// Returns the clusters configured below `root` whose `data_directory` is `data`, a canonical path,
/// in the order of version and name. There is more than one when a configuration was copied.
/// Directories that cannot be read are passed over.
#[must_use]
pub fn clusters_of(data: &Path, root: &Path) -> Vec<Cluster> {
    let subdirectories = |path: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        paths
    };
    let name = |path: &Path| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    };
    let mut found = Vec::new();
    for version in subdirectories(root) {
        for configuration in subdirectories(&version) {
            let settings = Settings::of_file(&configuration.join(CONFIGURATION));
            let named = settings.last("data_directory");
            let named = named.and_then(|setting| setting.path().canonicalize().ok());
            if named.as_deref() == Some(data) {
                found.push(Cluster {
                    version: name(&version),
                    name: name(&configuration),
                    configuration,
                });
            }
        }
    }
    found
}

/// Returns options of the server for a configuration outside its data directory (`directory`), for
/// `pg_ctl -o`, quoted for the shell: `config_file`; and, as `pg_ctlcluster` does, `hba_file` and
/// `ident_file` beside it, unless the configuration names them, the data directory has them, or
/// they do not exist.
#[must_use]
pub fn configuration_options(directory: &Path, configuration: &Path) -> OsString {
    let mut text = b"-c config_file=".to_vec();
    text.extend(shell_word(configuration));
    let settings = Settings::of_file(configuration);
    for (setting, name) in BESIDE {
        let beside = configuration.with_file_name(name);
        if settings.last(setting).is_none() && !directory.join(name).exists() && beside.exists() {
            text.extend(format!(" -c {setting}=").into_bytes());
            text.extend(shell_word(&beside));
        }
    }
    OsString::from_vec(text)
}

/// Quotes a path as one word of the shell's language.
fn shell_word(path: &Path) -> Vec<u8> {
    let mut word = vec![b'\''];
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'\'' => word.extend(br"'\''"),
            byte => word.push(byte),
        }
    }
    word.push(b'\'');
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_beside_the_configuration_are_named_unless_a_setting_names_them() {
        let room = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = room.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            strongroom_keyring::durable::replace(&path, text.as_bytes(), 0o600).unwrap();
        };
        let (data, etc) = (room.path().join("data"), room.path().join("it's"));
        let options = || {
            configuration_options(&data, &etc.join(CONFIGURATION))
                .into_string()
                .unwrap()
        };
        write("data/PG_VERSION", "15\n");
        write("it's/postgresql.conf", "port = 1\n");
        let quoted = etc.to_str().unwrap().replace('\'', r"'\''");
        assert_eq!(
            options(),
            format!("-c config_file='{quoted}/postgresql.conf'")
        );
        write("it's/pg_hba.conf", "");
        write("it's/pg_ident.conf", "");
        let both = format!(
            "-c config_file='{quoted}/postgresql.conf' -c hba_file='{quoted}/pg_hba.conf' \
             -c ident_file='{quoted}/pg_ident.conf'"
        );
        assert_eq!(options(), both);
        write("data/pg_hba.conf", "");
        write("it's/postgresql.conf", "ident_file = '/elsewhere'\n");
        assert_eq!(
            options(),
            format!("-c config_file='{quoted}/postgresql.conf'")
        );
    }
}
