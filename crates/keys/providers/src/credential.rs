//! Provider `credential:NAME`: the root key is a credential that systemd handed to the service.
//!
//! systemd puts credentials (`LoadCredential=`, `LoadCredentialEncrypted=`, `SetCredential=`) as
//! files into a directory that only the service's user may read, named by `CREDENTIALS_DIRECTORY`;
//! see systemd.exec(5).
//!
//! Must not: read anything outside that directory.

use std::path::PathBuf;

use strongroom_format::code;
use strongroom_keyring::provider::{Made, Registered};
use strongroom_keyring::{Error, KeySource, Opener, RootProvider, SourceContext};

pub(crate) const REGISTERED: Registered = Registered {
    name: NAME,
    number: NUMBER,
    acts: false,
    make,
};

const NAME: &str = "credential";
const NUMBER: u16 = 8;
const DIRECTORY: &str = "CREDENTIALS_DIRECTORY";
/// Longest name of a file.
const NAME_MAX: usize = 255;

struct Credential(String);

/// Makes a provider of the argument, the name of a credential. The error says that it is no file
/// name. The file need not exist.
fn make(argument: &str) -> Made {
    let fine = (1..=NAME_MAX).contains(&argument.len())
        && !argument.contains('/')
        && !matches!(argument, "." | "..");
    match fine {
        true => Ok(Box::new(Credential(argument.to_owned()))),
        false => Err("the name of a credential is wanted: no path"),
    }
}

impl Credential {
    /// Returns the path of the credential's file in `$CREDENTIALS_DIRECTORY`, after checking that
    /// it is a regular file and no link. Errors: SR-2101 when the variable is not set to an
    /// absolute path; SR-2103 when there is no such file; SR-2007 when it is something else or
    /// cannot be examined.
    fn path(&self) -> Result<PathBuf, Error> {
        let directory = std::env::var_os(DIRECTORY).map(PathBuf::from);
        let directory = directory.filter(|path| path.is_absolute()).ok_or_else(|| {
            let detail =
                format!("{DIRECTORY} is not set: the service was started without credentials");
            Error::new(&code::PROVIDER_UNREACHABLE, detail)
        })?;
        let path = directory.join(&self.0);
        match path.symlink_metadata() {
            Ok(about) if about.is_file() => Ok(path),
            Ok(_) => Err(Error::new(
                &code::KEY_FILE,
                "the credential is not a regular file",
            )),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let detail = format!("the service has no credential {}", self.0.escape_default());
                Err(Error::new(&code::PROVIDER_NO_KEY, detail))
            }
            Err(error) => Err(Error::caused(&code::KEY_FILE, "the credential", error)),
        }
    }
}

impl RootProvider for Credential {
    /// Returns `credential`.
    fn name(&self) -> &'static str {
        NAME
    }

    /// Returns 8.
    fn number(&self) -> u16 {
        NUMBER
    }

    /// Returns the name of the credential.
    fn argument(&self) -> &str {
        &self.0
    }

    /// Reads the credential's file, and makes the root key of its contents as of any key file.
    /// Errors: SR-2101 when the service was started without credentials; SR-2103 when there is none
    /// of this name; SR-2007 when it cannot be read; SR-2011 when the contents are malformed;
    /// SR-5001 when the system reports an error.
    fn fetch(&self, creating: bool) -> Result<Opener, Error> {
        let context = SourceContext {
            creating,
            ..SourceContext::default()
        };
        KeySource::File(self.path()?).opener(&context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_a_name_and_no_path() {
        for text in [
            "",
            ".",
            "..",
            "a/b",
            "/etc/shadow",
            "../root",
            &"a".repeat(256),
        ] {
            assert!(make(text).is_err(), "{text}");
        }
        assert_eq!(make("root.key").unwrap().argument(), "root.key");
    }
}
