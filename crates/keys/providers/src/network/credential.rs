//! Credentials of a client, read from a file that nobody else may read or from an environment
//! variable.
//!
//! Must not: put what it read, or a part of it, into an error; keep it outside locked memory.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_keyring::Error;
use zeroize::Zeroize as _;

/// The longest credential, and the longest file that holds one, in bytes.
const CREDENTIAL_MAX: usize = 32 * 1024;

/// Reads a regular file of at most 32 KiB into locked memory. It must have a mode by which only its
/// owner may read or write it; the group may read a file of root's. The owner is not looked at, as
/// with key files: root opens with a service's credential what the service has sealed. A credential
/// that its owner changes gives no other root key, because every provider checks that.
///
/// # Errors
/// SR-2123 when it cannot be read, is no regular file, has another mode, or is too long; SR-5001
/// when the system reports an error.
pub(crate) fn read_file(path: &Path) -> Result<SecretBytes, Error> {
    let wrong = |what: &str| {
        let detail = format!("{}: {what}", path.display());
        Error::new(&code::PROVIDER_CREDENTIALS, detail)
    };
    let mut file = File::open(path).map_err(|error| wrong(&error.to_string()))?;
    let about = file.metadata().map_err(|error| wrong(&error.to_string()))?;
    if !about.is_file() {
        return Err(wrong("is not a file"));
    }
    // A key of root's that a group may read is how distributions hand one to services.
    let allowed = if about.uid() == 0 { 0o740 } else { 0o700 };
    if about.permissions().mode() & 0o777 & !allowed != 0 {
        return Err(wrong("others may read it; give it mode 0600"));
    }
    let mut held = SecretBytes::with_capacity(CREDENTIAL_MAX + 1)?;
    let mut length = 0;
    while let Some(space) = held
        .as_mut_slice()
        .get_mut(length..)
        .filter(|rest| !rest.is_empty())
    {
        match file
            .read(space)
            .map_err(|error| wrong(&error.to_string()))?
        {
            0 => break,
            more => length += more,
        }
    }
    if length > CREDENTIAL_MAX {
        return Err(wrong("is longer than 32 KiB"));
    }
    held.truncate(length);
    Ok(held)
}

/// Returns the one line that a file or variable contains, without blanks around it. Visible ASCII
/// only, because it goes into a header. `of` names the source in errors.
///
/// # Errors
/// SR-2123 when it is empty or has other characters, also between two words; SR-5001 when the
/// system reports an error.
pub(crate) fn single_line(held: &SecretBytes, of: &str) -> Result<SecretBytes, Error> {
    let text = held.as_slice().trim_ascii();
    if text.is_empty() || !text.iter().all(u8::is_ascii_graphic) {
        let detail = format!("{of}: is not one line of visible characters");
        return Err(Error::new(&code::PROVIDER_CREDENTIALS, detail));
    }
    copy(text)
}

/// Copies bytes into locked memory.
///
/// # Errors
/// SR-5001 when there is no memory for keys.
pub(crate) fn copy(bytes: &[u8]) -> Result<SecretBytes, Error> {
    let mut held = SecretBytes::with_capacity(bytes.len())?;
    held.as_mut_slice().copy_from_slice(bytes);
    Ok(held)
}

/// Copies the value of an environment variable into locked memory; `None` where it is not set or
/// empty. The variable stays set.
///
/// # Errors
/// SR-2123 for a value over 32 KiB; SR-5001 when there is no memory for keys.
pub(crate) fn read_variable(name: &str) -> Result<Option<SecretBytes>, Error> {
    let Some(value) = std::env::var_os(name).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let mut bytes = std::os::unix::ffi::OsStringExt::into_vec(value);
    let held = match bytes.len() > CREDENTIAL_MAX {
        true => Err(Error::new(
            &code::PROVIDER_CREDENTIALS,
            format!("{name} is longer than 32 KiB"),
        )),
        false => SecretBytes::take(&mut bytes).map_err(Error::from),
    };
    bytes.zeroize();
    held.map(Some)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn the_owner_of_a_file_is_not_looked_at_as_with_key_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        strongroom_keyring::durable::replace(&path, b"CANARY-token", 0o600).unwrap();
        // Only root may give a file away, and read it afterwards.
        if std::os::unix::fs::chown(&path, Some(65534), None).is_ok() {
            assert_eq!(read_file(&path).unwrap().as_slice(), b"CANARY-token");
            let key = strongroom_keyring::source::key_file(&path).unwrap();
            assert_eq!(key.as_slice(), b"CANARY-token");
            let permissions = std::fs::Permissions::from_mode(0o640);
            std::fs::set_permissions(&path, permissions).unwrap();
            assert_eq!(read_file(&path).err().unwrap().code().number, 2123);
        }
    }

    #[test]
    fn files_for_others_are_refused_and_nothing_of_them_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"CANARY-token\n").unwrap();
        for (mode, good) in [(0o600, true), (0o400, true), (0o644, false), (0o606, false)] {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, permissions).unwrap();
            match read_file(&path) {
                Ok(held) => {
                    assert!(good, "{mode:o}");
                    assert_eq!(single_line(&held, "x").unwrap().as_slice(), b"CANARY-token");
                }
                Err(error) => {
                    assert!(!good, "{mode:o}");
                    assert_eq!(error.code().number, 2123);
                    assert!(!error.to_string().contains("CANARY"));
                }
            }
        }
        for bytes in [
            b"".as_slice(),
            b"\n",
            b"CANARY two",
            b"CANARY\r\nX: y",
            b"CANARY\xff",
        ] {
            let error = single_line(&copy(bytes).unwrap(), "the token")
                .err()
                .unwrap();
            assert!(error.code().number == 2123 && !error.to_string().contains("CANARY"));
        }
        let missing = read_file(&directory.path().join("none")).err().unwrap();
        assert_eq!(missing.code().number, 2123);
        assert_eq!(
            read_file(directory.path()).err().unwrap().code().number,
            2123
        );
    }
}
