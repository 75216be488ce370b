//! The keyring's certificates: key pairs that objects are sealed for by their public half.
//!
//! Invariants: K17, a certificate is believed only from a keyring that was opened, and used only
//! after it has been read and has the id that the keyring knows it by; K18, a private key is
//! written nowhere but sealed, and is never replaced by another; K19, a certificate counts as
//! exported only after what was written was read back and has opened what was encrypted for it.
//!
//! Must not: print a warning (see [`CertificateInfo::needs_export`]).

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use strongroom_crypto::{
    Certificate, CertificateError, Identity, PrivateKey, SecretBytes, SecretKey,
};
use strongroom_format::certificate::CertificateRecord;
use strongroom_format::code::{self, Code};
use strongroom_format::header::ObjectKind;
use strongroom_format::keyring::{Body, KeyState};
use strongroom_format::slot::{CERTIFICATE_ID_LEN, SlotKind};

use crate::durable::Pending;
use crate::error::Error;
use crate::fresh::{Fresh, System};
use crate::keyring::{Effect, Keyring, check_name, name_is_valid};
use crate::object::{Object, parse};
use crate::opener::Opener;
use crate::private_key::{check_free, read_key, seal_key};
use crate::recipient::{Private, Public};
use crate::source::{KeySource, SourceContext, from_file};
use crate::store::{self, damaged};

/// What is known of a certificate without its private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateInfo {
    /// The certificate's name in the keyring.
    pub name: String,
    /// Whether new objects may be sealed for it.
    pub state: KeyState,
    /// When it came into the keyring, in seconds since the Unix epoch.
    pub created_unix_s: u64,
    /// When a copy of the private key was last proved to open, in seconds since the Unix epoch.
    pub exported_unix_s: Option<u64>,
    /// SHA-256 of the `SubjectPublicKeyInfo`: what slots know it by.
    pub id: [u8; CERTIFICATE_ID_LEN],
    /// The certificate, in DER.
    pub der: Vec<u8>,
    /// Whether the keyring holds the private key.
    pub has_private_key: bool,
}

/// A key pair to be made.
#[derive(Clone, Debug)]
pub struct NewCertificate {
    /// The subject, written as `CN=backup,O=Example`.
    pub subject: String,
    /// Length of the modulus in bits: 3072 or 4096.
    pub bits: u32,
    /// For how many days it is valid, 1 to 36500.
    pub days: u32,
}

/// What became of a certificate that was brought into the keyring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The certificate as the keyring has it now.
    pub certificate: CertificateInfo,
    /// Whether the keyring did not know it before.
    pub is_new: bool,
    /// Whether the private key was not in the keyring before.
    pub has_new_key: bool,
}

impl CertificateInfo {
    pub(crate) fn of(record: &CertificateRecord) -> Self {
        Self {
            name: record.name.clone(),
            state: record.state,
            created_unix_s: record.created_unix_s,
            exported_unix_s: (record.exported_unix_s > 0).then_some(record.exported_unix_s),
            id: record.id,
            der: record.der.clone(),
            has_private_key: record.key.is_some(),
        }
    }

    /// Whether the private key is in this keyring and, as far as is known, nowhere else: whoever
    /// loses the keyring can never open again what is sealed for it. Worth a warning, SR-2033, each
    /// time something is.
    #[must_use]
    pub fn needs_export(&self) -> bool {
        self.has_private_key && self.exported_unix_s.is_none()
    }

    /// The warning of [`CertificateInfo::needs_export`]: its code, and what it is about. `None`
    /// when there is nothing to warn of.
    #[must_use]
    pub fn export_warning(&self) -> Option<(&'static Code, String)> {
        let detail = format!(
            "{name}; strongroom cert export {name} --out FILE",
            name = self.name
        );
        self.needs_export()
            .then_some((&code::CERT_NOT_EXPORTED, detail))
    }

    /// Whether the time is within the certificate's dates. Sealing and opening do not depend on it.
    #[must_use]
    pub fn is_valid_now(&self) -> bool {
        let validity = Certificate::from_der(&self.der)
            .ok()
            .and_then(|read| read.validity_unix_s());
        let now = i64::try_from(System.now_unix_s()).unwrap_or(i64::MAX);
        validity.is_some_and(|(from, to)| (from..=to).contains(&now))
    }

    /// Reads the certificate, and checks that it is the one the keyring means.
    ///
    /// # Errors
    /// SR-2005 when it is not; SR-2027; SR-5001.
    pub fn certificate(&self) -> Result<Certificate, Error> {
        let certificate = Certificate::from_der(&self.der).map_err(|error| match error {
            CertificateError::Malformed => damaged(&format!("certificate {}", self.name)),
            other => explained(other).about(&self.name),
        })?;
        match certificate.id() == self.id {
            true => Ok(certificate),
            false => Err(damaged(&format!("the id of certificate {}", self.name))),
        }
    }
}

impl Keyring {
    /// Makes a key pair and a certificate of it, signed by itself. Takes some seconds.
    ///
    /// # Errors
    /// SR-2013 the name; SR-2025 it is taken; SR-2027 a size that is not offered; SR-2037 subject
    /// or days; SR-2024; as for every change SR-2016, SR-2017, SR-5001.
    pub fn create_certificate(
        &mut self,
        name: &str,
        new: &NewCertificate,
    ) -> Result<CertificateInfo, Error> {
        check_name(name)?;
        if self.record(name).is_some() {
            return Err(Error::new(&code::CERT_EXISTS, name));
        }
        // Before the lock is taken: making a key pair lasts.
        let key = PrivateKey::generate(new.bits).map_err(explained)?;
        let made = Certificate::self_signed(&key, &new.subject, new.days).map_err(explained)?;
        self.change(Effect::SameKeys, |object, body| {
            push(object, body, name, &made, Some(&key))
        })
    }

    /// Takes in a certificate, with or without its private key. One that is issued anew for a
    /// public key that the keyring has, and is given the same name or none, takes the place of the
    /// older one. A private key from a file under a passphrase counts as exported: the file is a
    /// copy that was just proved to open.
    ///
    /// # Errors
    /// SR-2013; SR-2025 the name, or the public key under another name, is there already, and
    /// nothing is new; as [`Keyring::create_certificate`].
    pub fn import_certificate(
        &mut self,
        name: Option<&str>,
        identity: &Identity,
    ) -> Result<Restored, Error> {
        self.take_in(name, identity, false)
    }

    /// Brings a private key back from the file that it was exported to, with its certificate if the
    /// keyring does not know it. What comes from a file is in one: it counts as exported.
    ///
    /// # Errors
    /// SR-2029 when there is no private key; as [`Keyring::import_certificate`], but what is there
    /// already is no error.
    pub fn restore_certificate(
        &mut self,
        name: Option<&str>,
        identity: &Identity,
    ) -> Result<Restored, Error> {
        if identity.key.is_none() {
            let detail =
                "it holds no private key; `strongroom cert import` takes a certificate alone";
            return Err(Error::new(&code::CERT_FILE, detail));
        }
        self.take_in(name, identity, true)
    }

    /// Retires a certificate: its private key opens, but nothing new is sealed for it.
    ///
    /// # Errors
    /// SR-2026; as for every change SR-2016, SR-2017, SR-5001.
    pub fn retire_certificate(&mut self, name: &str) -> Result<(), Error> {
        self.change(Effect::SameKeys, |_, body| {
            let record = body.certificates.iter_mut().find(|held| held.name == name);
            record.ok_or_else(|| unknown(name))?.state = KeyState::Retired;
            Ok(())
        })
    }

    /// Writes certificate and private key to a new PKCS #12 file, mode 0600, reads it back, opens
    /// with what was read what was encrypted for the certificate, and only then gives the file its
    /// name and notes that it was done.
    ///
    /// # Errors
    /// SR-2026; SR-2031 when the private key is not here; SR-2030 when the passphrase is not one;
    /// SR-1002 when there is something at `path`; SR-2034 when it does not prove to open; as for
    /// every change SR-2016, SR-2017, SR-5001.
    pub fn export_certificate(
        &mut self,
        name: &str,
        path: &Path,
        passphrase: &SecretBytes,
    ) -> Result<CertificateInfo, Error> {
        let exists = || Error::new(&code::EXISTS, path.display().to_string());
        if path.symlink_metadata().is_ok() {
            return Err(exists());
        }
        let info = self.certificate(name)?;
        let certificate = info.certificate()?;
        let key = self.private_key(name)?;
        let bytes = Identity::to_pkcs12(&certificate, &key, name, passphrase).map_err(explained)?;
        let failed = |error: std::io::Error| match error.kind() {
            ErrorKind::AlreadyExists => exists(),
            _ => Error::io(format!("creating {}", path.display()), error),
        };
        let pending = Pending::written(path, &bytes, store::MODE).map_err(failed)?;
        prove(pending.path(), &certificate, passphrase)?;
        pending.publish().map_err(failed)?;
        self.change(Effect::SameKeys, |_, body| {
            let record = body.certificates.iter_mut().find(|held| held.id == info.id);
            let record = record.ok_or_else(|| unknown(name))?;
            record.exported_unix_s = System.now_unix_s();
            Ok(CertificateInfo::of(record))
        })
    }

    /// Every certificate, in order of creation.
    #[must_use]
    pub fn certificates(&self) -> Vec<CertificateInfo> {
        let records = self.body.certificates.iter();
        records.map(CertificateInfo::of).collect()
    }

    /// The certificate of this name.
    ///
    /// # Errors
    /// SR-2026.
    pub fn certificate(&self, name: &str) -> Result<CertificateInfo, Error> {
        let record = self.record(name).ok_or_else(|| unknown(name))?;
        Ok(CertificateInfo::of(record))
    }

    /// An opener that makes slots for the certificate of this name. Its private key need not be
    /// here.
    ///
    /// # Errors
    /// SR-2026; SR-2036 when it is retired; SR-2039 when this is an older copy of the keyring;
    /// SR-2005.
    pub fn recipient(&self, name: &str) -> Result<Opener, Error> {
        self.refuse_older()?;
        let info = self.certificate(name)?;
        if info.state == KeyState::Retired {
            return Err(Error::new(&code::CERT_RETIRED, name));
        }
        Ok(Opener::recipient(Arc::new(Public(info.certificate()?))))
    }

    /// An opener that holds every private key of the keyring, retired ones too. Without any it
    /// opens nothing, and its error says which certificates would have (SR-2032).
    ///
    /// # Errors
    /// SR-2005; SR-5001.
    pub fn private_keys(&self) -> Result<Opener, Error> {
        let held = self.body.certificates.iter().filter(|r| r.key.is_some());
        let keys = held.map(|record| read_key(&self.object, record));
        let keys = keys.collect::<Result<Vec<PrivateKey>, Error>>()?;
        Ok(Opener::recipient(Arc::new(Private(keys))))
    }

    /// Opens an object's header with whatever this keyring has: the private keys of its
    /// certificates, and the keys that the slots name.
    ///
    /// # Errors
    /// As [`Object::open`]. When nothing opens it: SR-2032 with the ids of the certificates that
    /// would have; without such, SR-2003 or SR-2002.
    pub fn open_object(&self, header: &[u8], kind: ObjectKind) -> Result<Object, Error> {
        let slots = parse(header)?.slots;
        let mut refused = None;
        let certificates = slots
            .iter()
            .any(|slot| matches!(slot.kind, SlotKind::Certificate { .. }));
        if certificates {
            match Object::open(header, kind, &self.private_keys()?) {
                Err(error) if error.code() == &code::CERT_NEEDED => refused = Some(error),
                other => return other,
            }
        }
        for slot in &slots {
            let SlotKind::Keyring { id, .. } = &slot.kind else {
                continue;
            };
            let opened = self
                .opener(id, false)
                .and_then(|opener| Object::open(header, kind, &opener));
            match opened {
                Err(error) if is_no_key(&error) => refused = refused.or(Some(error)),
                other => return other,
            }
        }
        // Also what has nothing to do with keys: another kind of object.
        match refused {
            Some(error) => Err(error),
            None => Object::open(header, kind, &self.private_keys()?),
        }
    }

    fn record(&self, name: &str) -> Option<&CertificateRecord> {
        self.body.certificates.iter().find(|held| held.name == name)
    }

    fn private_key(&self, name: &str) -> Result<PrivateKey, Error> {
        let record = self.record(name).ok_or_else(|| unknown(name))?;
        read_key(&self.object, record)
    }

    fn take_in(
        &mut self,
        name: Option<&str>,
        identity: &Identity,
        restoring: bool,
    ) -> Result<Restored, Error> {
        let (certificate, key) = (&identity.certificate, identity.key.as_ref());
        let exported_unix_s = match restoring || identity.was_sealed {
            true => System.now_unix_s(),
            false => 0,
        };
        let name = name.or(identity.name.as_deref());
        self.change(Effect::SameKeys, |object, body| {
            let known = body
                .certificates
                .iter_mut()
                .find(|held| held.id == certificate.id());
            if let Some(record) = known {
                return update(object, record, name, identity, restoring, exported_unix_s);
            }
            let name = name.ok_or_else(|| Error::new(&code::KEY_NAME, "give it a name"))?;
            check_name(name)?;
            let mut made = push(object, body, name, certificate, key)?;
            if let Some(record) = body.certificates.last_mut().filter(|_| key.is_some()) {
                record.exported_unix_s = exported_unix_s;
                made = CertificateInfo::of(record);
            }
            Ok(Restored {
                certificate: made,
                is_new: true,
                has_new_key: key.is_some(),
            })
        })
    }
}

/// Reads a certificate from a file, with or without its private key: PEM, DER, PKCS #12, at most 64
/// KiB. `source` is asked for the passphrase only when the file needs one.
///
/// # Errors
/// SR-1006 there is no such file; SR-2029 it holds no certificate; SR-2027, SR-2028; SR-2030 the
/// passphrase does not open it; what `source` reports; SR-5001.
pub fn read_identity(
    path: &Path,
    source: &KeySource,
    context: &SourceContext,
) -> Result<Identity, Error> {
    let file = from_file(path).map_err(|error| match path.symlink_metadata() {
        Err(missing) if missing.kind() == ErrorKind::NotFound => {
            Error::new(&code::NOT_FOUND, path.display().to_string())
        }
        _ if error.code() == &code::KEY_MALFORMED => Error::new(
            &code::CERT_FILE,
            format!("{}: longer than 64 KiB", path.display()),
        ),
        _ => error,
    })?;
    let passphrase = Identity::needs_passphrase(file.as_slice())
        .then(|| source.passphrase(context))
        .transpose()?;
    let read = Identity::read(file.as_slice(), passphrase.as_ref());
    read.map_err(|error| explained(error).about(path.display()))
}

/// What went wrong with a certificate, as an error of this crate.
pub(crate) fn explained(error: CertificateError) -> Error {
    let code = match error {
        CertificateError::Malformed => &code::CERT_FILE,
        CertificateError::Weak => &code::CERT_WEAK,
        CertificateError::Mismatch => &code::CERT_MISMATCH,
        CertificateError::Passphrase => &code::CERT_PASSPHRASE,
        CertificateError::Subject => &code::CERT_SUBJECT,
        CertificateError::Crypto(error) => return Error::from(error),
        _ => &code::BUG,
    };
    Error::new(code, "")
}

impl From<CertificateError> for Error {
    fn from(error: CertificateError) -> Self {
        explained(error)
    }
}

fn is_no_key(error: &Error) -> bool {
    let codes = [&code::WRONG_KEY, &code::UNKNOWN_KEY_ID, &code::CERT_NEEDED];
    codes.contains(&error.code())
}

fn unknown(name: &str) -> Error {
    // An invalid name is not repeated: it may be a secret in the wrong place (K2).
    let shown = match name_is_valid(name) {
        true => name,
        false => "not a certificate's name",
    };
    Error::new(&code::CERT_UNKNOWN, shown)
}

fn push(
    object: &Object,
    body: &mut Body,
    name: &str,
    certificate: &Certificate,
    key: Option<&PrivateKey>,
) -> Result<CertificateInfo, Error> {
    check_free(body, name)?;
    let id = certificate.id();
    if let Some(held) = body.certificates.iter().find(|held| held.id == id) {
        return Err(Error::new(&code::CERT_EXISTS, held.name.as_str()));
    }
    let key = key
        .map(|key| seal_key(object, &id, &key.to_pkcs8()?))
        .transpose()?;
    let record = CertificateRecord {
        name: name.to_owned(),
        state: KeyState::Active,
        created_unix_s: System.now_unix_s(),
        exported_unix_s: 0,
        id,
        der: certificate.der().to_vec(),
        key,
    };
    let info = CertificateInfo::of(&record);
    body.certificates.push(record);
    Ok(info)
}

/// A certificate of a public key that the keyring has: what is new is taken over. Nothing new is an
/// error unless it was brought back from an export.
fn update(
    object: &Object,
    record: &mut CertificateRecord,
    name: Option<&str>,
    identity: &Identity,
    restoring: bool,
    exported_unix_s: u64,
) -> Result<Restored, Error> {
    // What a file calls it does not matter when it is brought back.
    if !restoring && name.is_some_and(|name| name != record.name) {
        return Err(taken(record, "is its name here"));
    }
    let renewed = !restoring && record.der != identity.certificate.der();
    let key = identity.key.as_ref().filter(|_| record.key.is_none());
    if !renewed && key.is_none() && !restoring {
        let has = match (record.key.is_some(), identity.key.is_some()) {
            (true, true) => "is here, with its private key: nothing is missing",
            (true, false) => "is here, with its private key",
            (false, _) => "is here, and the file holds no private key to add",
        };
        return Err(taken(record, has));
    }
    if renewed {
        record.der = identity.certificate.der().to_vec();
    }
    if let Some(key) = key {
        record.key = Some(seal_key(object, &record.id, &key.to_pkcs8()?)?);
    }
    if exported_unix_s > 0 && identity.key.is_some() {
        record.exported_unix_s = exported_unix_s;
    }
    Ok(Restored {
        certificate: CertificateInfo::of(record),
        is_new: false,
        has_new_key: key.is_some(),
    })
}

/// SR-2025 for a certificate whose public key the keyring has, and what to do with an exported
/// file.
fn taken(held: &CertificateRecord, why: &str) -> Error {
    let name = &held.name;
    let detail = format!(
        "{name} {why}; the file of an export is brought back with `strongroom cert restore`"
    );
    Error::new(&code::CERT_EXISTS, detail)
}

/// Reads an exported file back and opens with it what is encrypted for the certificate (K19).
/// Errors: SR-2034.
fn prove(path: &Path, certificate: &Certificate, passphrase: &SecretBytes) -> Result<(), Error> {
    const LABEL: &[u8] = b"proof of an export";
    let failed = |why: &str| Error::new(&code::EXPORT_UNPROVED, why);
    let bytes = std::fs::read(path).map_err(|error| {
        Error::caused(&code::EXPORT_UNPROVED, path.display().to_string(), error)
    })?;
    let read =
        Identity::read(&bytes, Some(passphrase)).map_err(|error| failed(&error.to_string()))?;
    let key = read.key.ok_or_else(|| failed("no private key"))?;
    let sent = SecretKey::generate()?;
    let wrapped = certificate.wrap(&sent, LABEL)?;
    match key.unwrap(&wrapped, LABEL) {
        Ok(received) if received.ct_eq(&sent) => Ok(()),
        _ => Err(failed("the private key is another one")),
    }
}
