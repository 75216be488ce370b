//! Provider `certificate:file=PATH;...`: the root key is encrypted for a certificate, and opened
//! with its private key.
//!
//! `file` holds the private key with its certificate, as PKCS #12 or PEM. `passphrase` says where
//! the file's passphrase comes from (`ask` by default). `public` is a certificate alone: with it a
//! keyring can be made on a host without the private key. The blob is the
//! 32-byte id of the public key (SHA-256 of its `SubjectPublicKeyInfo`), then the secret under
//! RSAES-OAEP with SHA-256 and the context as label.
//!
//! Must not: check a certificate's dates or issuer: it only carries a public key.

use std::path::{Path, PathBuf};

use strongroom_crypto::Identity;
use strongroom_format::code;
use strongroom_keyring::provider::{Created, Made, Registered, Wrapped, locator};
use strongroom_keyring::{Error, KeySource, Opener, RootProvider, SourceContext, read_identity};

use crate::options::{Options, secret_source};

pub(crate) const REGISTERED: Registered = Registered {
    name: NAME,
    number: NUMBER,
    // The source of the passphrase may be a command.
    acts: true,
    make,
};

const NAME: &str = "certificate";
const NUMBER: u16 = 9;
const ID_LEN: usize = 32;

struct ForCertificate {
    argument: String,
    file: PathBuf,
    public: Option<PathBuf>,
    passphrase: KeySource,
}

/// Makes a provider of the argument. The error says what is missing or not valid. Reads no file.
fn make(argument: &str) -> Made {
    let options = Options::read(locator(argument), &["file", "public", "passphrase"])?;
    let path = |name: &str| match options.get(name) {
        Some(path) if path.starts_with('/') => Ok(Some(PathBuf::from(path))),
        Some(_) => Err("file and public are absolute paths"),
        None => Ok(None),
    };
    let passphrase = options.get("passphrase").unwrap_or("ask");
    Ok(Box::new(ForCertificate {
        file: path("file")?.ok_or("file=PATH is missing: where the private key is")?,
        public: path("public")?,
        passphrase: secret_source(passphrase)?,
        argument: argument.to_owned(),
    }))
}

impl ForCertificate {
    /// Reads a file with a certificate and perhaps its private key. Asks for the file's passphrase
    /// where one is needed. Errors: for the file SR-1006 (absent), SR-2007 (unreadable), SR-2027
    /// (weak key), SR-2028 (not a pair), SR-2029 (no certificate) or SR-2030 (wrong passphrase);
    /// what the passphrase's source reports.
    fn identity(&self, path: &Path) -> Result<Identity, Error> {
        let context = SourceContext {
            prompt: String::from("Passphrase of the private key"),
            ..SourceContext::default()
        };
        read_identity(path, &self.passphrase, &context)
    }
}

impl RootProvider for ForCertificate {
    /// Returns `certificate`.
    fn name(&self) -> &'static str {
        NAME
    }

    /// Returns 9.
    fn number(&self) -> u16 {
        NUMBER
    }

    /// Returns the argument as the keyring stores it, with the wrapped root key if there is one.
    fn argument(&self) -> &str {
        &self.argument
    }

    /// Reads the private key from its file, decrypts the wrapped secret with it, and derives the
    /// root key. May ask for the file's passphrase. Errors: SR-2020 no wrapped root key; SR-2103
    /// when the file has no private key, or another one; SR-2105 when the secret does not decrypt;
    /// for the file SR-1006 (absent), SR-2007 (unreadable), SR-2027 (weak key), SR-2028 (not a
    /// pair), SR-2029 (no certificate) or SR-2030 (wrong passphrase); what the passphrase's source
    /// reports.
    fn fetch(&self, _creating: bool) -> Result<Opener, Error> {
        let wrapped = Wrapped::of(NUMBER, &self.argument)?;
        let parts = wrapped.blob().split_first_chunk::<ID_LEN>();
        let malformed = || Error::new(&code::PROVIDER_ANSWER, "the wrapped key is malformed");
        let (id, sealed) = parts.ok_or_else(malformed)?;
        let about = |what: &str| format!("{}: {what}", self.file.display());
        let key = self
            .identity(&self.file)?
            .key
            .ok_or_else(|| Error::new(&code::PROVIDER_NO_KEY, about("it has no private key")))?;
        if key.id() != *id {
            let detail = about("the keyring was sealed for another public key");
            return Err(Error::new(&code::PROVIDER_NO_KEY, detail));
        }
        let secret = key.unwrap(sealed, &wrapped.context());
        wrapped.root(&secret.map_err(|_| {
            Error::new(
                &code::PROVIDER_ANSWER,
                about("the wrapped root key does not open"),
            )
        })?)
    }

    /// Makes a new root key, wrapped for the certificate in `public`, or else in `file`. The
    /// private key need not be there with `public`, and nothing is decrypted. Errors: SR-2103 when
    /// `file` has no private key; SR-2020 when the argument becomes too long; for the file SR-1006
    /// (absent), SR-2007 (unreadable), SR-2027 (weak key), SR-2028 (not a pair), SR-2029 (no
    /// certificate) or SR-2030 (wrong passphrase).
    fn create(&self) -> Result<Created, Error> {
        let from = self.public.as_ref().unwrap_or(&self.file);
        let identity = self.identity(from)?;
        let certificate = &identity.certificate;
        if self.public.is_none() && identity.key.is_none() {
            let detail = format!(
                "{}: it has no private key; a certificate alone is public=PATH",
                from.display()
            );
            return Err(Error::new(&code::PROVIDER_NO_KEY, detail));
        }
        Wrapped::create(NUMBER, locator(&self.argument), |secret, context| {
            let sealed = certificate.wrap(secret, context)?;
            Ok([&certificate.id()[..], &sealed].concat())
        })
    }
}
