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
    /// The credential's file; it exists and is a regular file.
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
    fn name(&self) -> &'static str {
        NAME
    }

    fn number(&self) -> u16 {
        NUMBER
    }

    fn argument(&self) -> &str {
        &self.0
    }

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
