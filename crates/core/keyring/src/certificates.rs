//! The keyring's certificates: objects are sealed for a certificate, and its private key opens
//! them.
//!
//! Invariants: K17, a certificate is trusted only from a keyring that was opened, and used only
//! after it has been parsed and has the id that the keyring has noted; K18, a private key is
//! written only sealed, and is never replaced by another; K19, a certificate counts as exported
//! only after the file was read back and has opened what was encrypted for it.
//!
//! Must not: print a warning (see [`CertificateInfo::needs_export`]).

use std::io::ErrorKind;
use std::path::Path;

use strongroom_crypto::{Certificate, Identity, PrivateKey, SecretBytes, SecretKey};
use strongroom_format::certificate::CertificateRecord;
use strongroom_format::code;
use strongroom_format::header::ObjectKind;
use strongroom_format::keyring::{Body, KeyState};
use strongroom_format::slot::SlotKind;

use crate::certificate_info::CertificateInfo;
use crate::durable::Pending;
use crate::entries::{check_name, name_is_valid};
use crate::error::Error;
use crate::fresh::{Fresh, System};
use crate::keyring::{Effect, Keyring};
use crate::object::{Object, parse};
use crate::opener::Opener;
use crate::private_key::{check_free, read_key, seal_key};
use crate::recipient::Recipient;
use crate::store;

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

/// The result of importing or restoring a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The certificate as it is in the keyring now.
    pub certificate: CertificateInfo,
    /// Whether the keyring did not know it before.
    pub is_new: bool,
    /// Whether the private key was not in the keyring before.
    pub has_new_key: bool,
}

impl Keyring {
    /// Makes a key pair and a certificate of it, signed by itself, and writes both into the
    /// keyring. Takes some seconds.
    ///
    /// # Errors
    /// SR-2013 the name is not valid; SR-2025 it is taken; SR-2027 a size that is not offered;
    /// SR-2037 subject or days; SR-2024 the keyring is full; as for every change SR-2016 when
    /// another process keeps the keyring's lock for 10 seconds, SR-2017 when it has another root
    /// key meanwhile, SR-2039 when this is an older copy of it, SR-5001 when the system reports an
    /// error.
    pub fn create_certificate(
        &mut self,
        name: &str,
        new: &NewCertificate,
    ) -> Result<CertificateInfo, Error> {
        check_name(name)?;
        if self.record(name).is_some() {
            return Err(Error::new(&code::CERT_EXISTS, name));
        }
        // Before the lock is taken, because making a key pair takes seconds.
        let key = PrivateKey::generate(new.bits).map_err(Error::from)?;
        let made = Certificate::self_signed(&key, &new.subject, new.days).map_err(Error::from)?;
        self.change(Effect::SameKeys, |object, body| {
            push(object, body, name, &made, Some(&key))
        })
    }

    /// Imports a certificate, with or without its private key, and writes the keyring. Without
    /// `name`, the name in the file counts. A certificate that was issued anew for a public key of
    /// the keyring replaces the older one, if it is given the same name or none. A private key from
    /// a file with a passphrase counts as exported, because that file is a copy that was just
    /// proved to open.
    ///
    /// # Errors
    /// SR-2013 no name, or one that is not valid; SR-2025 the name belongs to another public key,
    /// the public key to another name, or nothing is new; SR-2024 the keyring is full; as for every
    /// change SR-2016 when another process keeps the keyring's lock for 10 seconds, SR-2017 when it
    /// has another root key meanwhile, SR-2039 when this is an older copy of it, SR-5001 when the
    /// system reports an error.
    pub fn import_certificate(
        &mut self,
        name: Option<&str>,
        identity: &Identity,
    ) -> Result<Restored, Error> {
        self.add_or_update(name, identity, false)
    }

    /// Restores a private key from the file that it was exported to, with its certificate if the
    /// keyring does not have it, and writes the keyring. It counts as exported. What the keyring
    /// has already, the private key, another name or a newer certificate, is kept and no error.
    ///
    /// # Errors
    /// SR-2029 when there is no private key; for a certificate that is new to the keyring SR-2013
    /// no name, or one that is not valid, SR-2025 the name is taken, SR-2024 the keyring is full;
    /// as for every change SR-2016 when another process keeps the keyring's lock for 10 seconds,
    /// SR-2017 when it has another root key meanwhile, SR-2039 when this is an older copy of it,
    /// SR-5001 when the system reports an error.
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
        self.add_or_update(name, identity, true)
    }

    /// Retires a certificate: its private key still opens, but nothing new is sealed for it. Writes
    /// the keyring unless it was retired already.
    ///
    /// # Errors
    /// SR-2026 when there is no such certificate; as for every change SR-2016 when another process
    /// keeps the keyring's lock for 10 seconds, SR-2017 when it has another root key meanwhile,
    /// SR-2039 when this is an older copy of it, SR-5001 when the system reports an error.
    pub fn retire_certificate(&mut self, name: &str) -> Result<(), Error> {
        self.change(Effect::SameKeys, |_, body| {
            let record = body.certificates.iter_mut().find(|held| held.name == name);
            record.ok_or_else(|| unknown(name))?.state = KeyState::Retired;
            Ok(())
        })
    }

    /// Exports certificate and private key to a new PKCS #12 file with mode 0600. The file is read
    /// back, and the key from it opens what was encrypted for the certificate, before the file gets
    /// its name. Then the time of the export is written into the keyring; when that fails, the file
    /// remains.
    ///
    /// # Errors
    /// SR-2026 no such certificate; SR-2031 when the private key is not in the keyring; SR-2030 for
    /// a passphrase that cannot be used; SR-1002 when there is something at `path`; SR-2034 when it
    /// does not prove to open; as for every change SR-2016 when another process keeps the keyring's
    /// lock for 10 seconds, SR-2017 when it has another root key meanwhile, SR-2039 when this is an
    /// older copy of it, SR-5001 when the system reports an error.
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
        let bytes =
            Identity::to_pkcs12(&certificate, &key, name, passphrase).map_err(Error::from)?;
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

    /// Lists every certificate, retired ones too, in order of creation.
    #[must_use]
    pub fn certificates(&self) -> Vec<CertificateInfo> {
        let records = self.body.certificates.iter();
        records.map(CertificateInfo::of).collect()
    }

    /// Returns the certificate of this name, retired or not, without its private key.
    ///
    /// # Errors
    /// SR-2026 when there is none.
    pub fn certificate(&self, name: &str) -> Result<CertificateInfo, Error> {
        let record = self.record(name).ok_or_else(|| unknown(name))?;
        Ok(CertificateInfo::of(record))
    }

    /// Returns the recipient whose slots the private key of this certificate opens. The private key
    /// need not be in the keyring.
    ///
    /// # Errors
    /// SR-2039 when this is an older copy of the keyring; SR-2026 no such certificate; SR-2036 when
    /// it is retired; SR-2005 when it cannot be parsed, or has another id; SR-2027 when its key is
    /// weak.
    pub fn recipient(&self, name: &str) -> Result<Recipient, Error> {
        self.refuse_older()?;
        let info = self.certificate(name)?;
        if info.state == KeyState::Retired {
            return Err(Error::new(&code::CERT_RETIRED, name));
        }
        Ok(Recipient::certificate(info.certificate()?))
    }

    /// Makes an opener of every private key of the keyring, those of retired certificates too.
    /// Without any private key it opens nothing, and its error names the certificates that would
    /// (SR-2032).
    ///
    /// # Errors
    /// SR-2005 when one does not authenticate, or is another certificate's; SR-5001 when the system
    /// reports an error.
    pub fn private_keys(&self) -> Result<Opener, Error> {
        let held = self.body.certificates.iter().filter(|r| r.key.is_some());
        let keys = held.map(|record| read_key(&self.object, record));
        let keys = keys.collect::<Result<Vec<PrivateKey>, Error>>()?;
        Ok(Opener::private_keys(keys))
    }

    /// Opens an object's header with this keyring: with the private keys of its certificates, then
    /// with the keys that the slots name.
    ///
    /// # Errors
    /// SR-3001 to SR-3007 for a header that is not sealed, damaged, or of another kind, as
    /// [`Object::open`]. When nothing opens it: SR-2032 with the ids of the certificates that would
    /// have; without such, SR-2003 when it names a key that is not here, else SR-2002. SR-2005 when
    /// a key of the keyring does not unwrap; SR-5001 when the system reports an error.
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
        // Reports errors that do not concern keys too, such as another kind of object.
        match refused {
            Some(error) => Err(error),
            None => Object::open(header, kind, &self.private_keys()?),
        }
    }

    /// Returns the record of the certificate with this name; `None` when there is none.
    fn record(&self, name: &str) -> Option<&CertificateRecord> {
        self.body.certificates.iter().find(|held| held.name == name)
    }

    /// Opens the private key of the certificate with this name. Errors: SR-2026 no such
    /// certificate; SR-2031 its private key is not here; SR-2005 it does not authenticate.
    fn private_key(&self, name: &str) -> Result<PrivateKey, Error> {
        let record = self.record(name).ok_or_else(|| unknown(name))?;
        read_key(&self.object, record)
    }

    /// Adds a certificate, or updates the one of the same public key, and writes the keyring.
    /// `restoring`: as [`Self::restore_certificate`], else as [`Self::import_certificate`]. Errors:
    /// SR-2013 for the name of a new one; SR-2025 when name or key is taken, or nothing is new;
    /// SR-2024 when the keyring is full; as for every change SR-2016, SR-2017, SR-2039, SR-5001
    /// ([`Keyring::change`]).
    fn add_or_update(
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

/// Whether opening failed because no key fitted: SR-2002, SR-2003 or SR-2032.
fn is_no_key(error: &Error) -> bool {
    let codes = [&code::WRONG_KEY, &code::UNKNOWN_KEY_ID, &code::CERT_NEEDED];
    codes.contains(&error.code())
}

/// Makes the error SR-2026: there is no certificate with this name.
fn unknown(name: &str) -> Error {
    // An invalid name is not repeated: it may be a secret in the wrong place (K2).
    let shown = match name_is_valid(name) {
        true => name,
        false => "not a certificate's name",
    };
    Error::new(&code::CERT_UNKNOWN, shown)
}

/// Adds a certificate to `body`, with its private key sealed if there is one. Errors: SR-2025 when
/// the name or the public key is in the keyring already; SR-2024 when the keyring is full; SR-5001
/// when the system reports an error.
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

/// Updates the record of a public key that the keyring has: a renewed certificate replaces the
/// older one unless `restoring`, a private key is added if there is none, and its time of export is
/// noted. Errors, unless `restoring`: SR-2025 when `name` is another than the record's, or when
/// there is nothing new.
fn update(
    object: &Object,
    record: &mut CertificateRecord,
    name: Option<&str>,
    identity: &Identity,
    restoring: bool,
    exported_unix_s: u64,
) -> Result<Restored, Error> {
    // When a key is restored, the name in the file does not matter.
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

/// Makes the error SR-2025 for a certificate whose public key the keyring has. The detail also says
/// how an exported file is restored.
fn taken(held: &CertificateRecord, why: &str) -> Error {
    let name = &held.name;
    let detail = format!(
        "{name} {why}; the file of an export is brought back with `strongroom cert restore`"
    );
    Error::new(&code::CERT_EXISTS, detail)
}

/// Reads an exported file back and checks that its private key opens what is encrypted for the
/// certificate (K19). Errors: SR-2034 when it does not, or cannot be read; SR-5001 when the system
/// reports an error.
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
