//! Provider `tpm:...`: the root key is sealed by a TPM 2.0, and comes out only while chosen
//! registers (PCRs) are as they were.
//!
//! Options: `pcrs=7,11` (7 unless said otherwise) of the SHA-256 bank;
//! `pin=ask|env:VAR|file:/PATH|command:CMD`, a PIN that the TPM checks and counts; `device=`, the
//! path of a device or socket, or a simulator's `HOST:PORT` (`/dev/tpmrm0` unless said otherwise).
//!
//! The blob: a mask of the registers (4 bytes, little-endian), the name of the TPM's storage key
//! (34 bytes), then public and private area of the sealed object, each with a length (2 bytes,
//! little-endian) before it. The storage key is the TPM's primary ECC P-256 key of the owner
//! hierarchy: it is made anew from the TPM's seed each time, so nothing is kept in the TPM, and
//! known by its name.
//!
//! Must not: send a secret in clear to the TPM or read one from it in clear; keep an object or a
//! session in it.
#![expect(clippy::big_endian_bytes, reason = "a TPM's integers are big-endian")]

mod clock;
mod link;
mod sealer;
mod session;

use strongroom_crypto::{SecretBytes, SecretKey, sha256};
use strongroom_format::code::{self, Code};
use strongroom_format::columns::tpm::{Fields, PCRS, SHA256, selected};
use strongroom_keyring::provider::{Created, Made, Registered, Wrapped, locator};
use strongroom_keyring::{Error, KeySource, Opener, RootProvider, SourceContext};

use crate::limit::Deadline;
use crate::options::{Options, secret_source};
use link::{Failed, Link, PLAIN, SESSIONS, malformed};
pub use sealer::Sealer;
use session::{
    AUDITS, Command, HIDES_ANSWER, HIDES_COMMAND, HMAC, POLICY, STAYS, Session, null, sized,
};

pub(crate) const REGISTERED: Registered = Registered {
    name: NAME,
    number: NUMBER,
    acts: true,
    make,
};

const NAME: &str = "tpm";
const NUMBER: u16 = 7;
const DEVICE: &str = "/dev/tpmrm0";
/// Whether the firmware let an unsigned system start: what most machines are sealed to.
const REGISTER: &str = "7";
/// `TPM_RH_OWNER`.
const OWNER: u32 = 0x4000_0001;
/// One password session (`TPM_RS_PW`), no nonce, no attributes, an empty password; its length
/// before it.
const EMPTY_PASSWORD: [u8; 13] = [0, 0, 0, 9, 0x40, 0, 0, 9, 0, 0, 0, 0, 0];
// TPM_CC.
const CREATE_PRIMARY: u32 = 0x131;
const CREATE: u32 = 0x153;
const LOAD: u32 = 0x157;
const UNSEAL: u32 = 0x15e;
const POLICY_AUTH_VALUE: u32 = 0x16b;
const PCR_READ: u32 = 0x17e;
const POLICY_PCR: u32 = 0x17f;
/// A storage key, as TCG's "EK Credential Profile" and "Provisioning Guidance" have it for ECC
/// P-256, up to the point: type, hash of its name, attributes (fixed to this TPM, made by it, no
/// lockout, restricted, decrypts), no policy, AES-128 in CFB, no scheme, the curve, no derivation.
const STORAGE_KEY: [u8; 22] = [
    0, 0x23, 0, 0x0b, 0, 3, 4, 0x72, 0, 0, 0, 6, 0, 0x80, 0, 0x43, 0, 0x10, 0, 3, 0, 0x10,
];
/// A sealed object: data, hash of its name, attributes (fixed to this TPM and key, opened by its
/// policy alone).
const SEALED: [u8; 8] = [0, 8, 0, 0x0b, 0, 0, 0, 0x92];
const NAME_LEN: usize = 34;

struct Tpm {
    argument: String,
    device: String,
    registers: u32,
    pin: Option<KeySource>,
    /// What is sealed comes out only while the TPM's clock, in milliseconds, is before this.
    before: Option<u64>,
    /// When its work has to be done; else each piece of it has the usual time.
    end: Option<Deadline>,
}

/// The TPM's storage key, loaded.
struct Primary {
    handle: u32,
    name: Vec<u8>,
    point: [u8; 65],
}

fn make(argument: &str) -> Made {
    let options = Options::read(locator(argument), &["device", "pcrs", "pin"])?;
    let device = options.get("device").unwrap_or(DEVICE);
    if !device.starts_with('/') && !device.contains(':') {
        return Err("device is an absolute path, or HOST:PORT of a simulator");
    }
    let registers = chosen(options.get("pcrs").unwrap_or(REGISTER))?;
    let pin = options.get("pin").map(secret_source).transpose()?;
    Ok(Box::new(Tpm {
        device: device.to_owned(),
        registers,
        pin,
        argument: argument.to_owned(),
        before: None,
        end: None,
    }))
}

/// A mask of registers from their numbers.
fn chosen(text: &str) -> Result<u32, &'static str> {
    let mut registers = 0;
    for number in text.split(',') {
        let number: Option<u8> = number.parse().ok().filter(|number| *number < PCRS);
        let number = number.ok_or("pcrs are numbers from 0 to 23 with commas between them")?;
        registers |= 1_u32 << number;
    }
    Ok(registers)
}

impl Tpm {
    /// The authorization that the PIN stands for: its SHA-256 without zeros at the end, which a TPM
    /// does not count either.
    fn auth(&self) -> Result<SecretBytes, Error> {
        let Some(source) = &self.pin else {
            return Ok(SecretBytes::with_capacity(0)?);
        };
        let context = SourceContext {
            prompt: String::from("PIN for the TPM"),
            ..SourceContext::default()
        };
        let pin = source.passphrase(&context)?;
        let mut digest = sha256(&[pin.as_slice()]);
        let len = digest
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |at| at + 1);
        let mut auth = SecretBytes::take(&mut digest)?;
        auth.truncate(len);
        Ok(auth)
    }

    /// Runs `work` with the TPM, and flushes what it left there.
    fn with<T>(&self, work: impl FnOnce(&mut Link) -> Result<T, Failed>) -> Result<T, Error> {
        let end = self.end.map_or_else(Deadline::begin, Ok)?;
        let mut link = Link::open(&self.device, end)?;
        let done = work(&mut link);
        link.flush();
        done.map_err(told)
    }

    /// Seals, and unseals again: what was sealed to values that the TPM does not have any more, or
    /// that it cannot unseal, is of no use to anybody.
    fn sealed(&self, auth: &SecretBytes, secret: &SecretKey) -> Result<Vec<u8>, Error> {
        let blob = self.with(|link| self.seal(link, auth, secret))?;
        let back = self.with(|link| self.unseal(link, auth, &blob))?;
        match back.ct_eq(secret) {
            true => Ok(blob),
            false => Err(malformed()),
        }
    }

    fn seal(
        &self,
        link: &mut Link,
        auth: &SecretBytes,
        secret: &SecretKey,
    ) -> Result<Vec<u8>, Failed> {
        let primary = Primary::make(link)?;
        let mut session = Session::start(link, HMAC, &primary)?;
        let registers = registers(link, &mut session, self.registers)?;
        let policy = policy(self.registers, &registers, self.before, self.pin.is_some());
        // TPMS_SENSITIVE_CREATE: authorization and data.
        let mut sensitive = SecretBytes::with_capacity(2 + auth.len() + 2 + 32)?;
        let mut rest = sensitive.as_mut_slice();
        for part in [auth.as_slice(), secret.expose()] {
            let len = u16::try_from(part.len()).map_err(|_| malformed())?;
            for bytes in [&len.to_be_bytes()[..], part] {
                let (to, behind) = rest.split_at_mut(bytes.len());
                to.copy_from_slice(bytes);
                rest = behind;
            }
        }
        let mut public = SEALED.to_vec();
        sized(&mut public, &policy);
        public.extend_from_slice(&null());
        sized(&mut public, &[]);
        let mut open = Vec::new();
        sized(&mut open, &public);
        // No information from outside, no registers of the creation.
        open.extend_from_slice(&[0, 0, 0, 0, 0, 0]);
        let empty = SecretBytes::with_capacity(0)?;
        let made = session.run(
            link,
            &Command {
                code: CREATE,
                handles: &[(primary.handle, &primary.name)],
                auth: &empty,
                attributes: STAYS | HIDES_COMMAND,
                hidden: Some(&sensitive),
                open: &open,
                makes: false,
            },
        )?;
        let mut fields = Fields(&made.parameters);
        let parts = fields.sized().zip(fields.sized());
        let (private, public) = parts.ok_or_else(malformed)?;
        let mut blob = self.registers.to_le_bytes().to_vec();
        blob.extend_from_slice(&primary.name);
        for part in [public, private] {
            let len = u16::try_from(part.len()).map_err(|_| malformed())?;
            blob.extend_from_slice(&len.to_le_bytes());
            blob.extend_from_slice(part);
        }
        Ok(blob)
    }

    fn unseal(
        &self,
        link: &mut Link,
        auth: &SecretBytes,
        blob: &[u8],
    ) -> Result<SecretKey, Failed> {
        let sealed = Sealed::read(blob)
            .ok_or_else(|| Error::new(&code::PROVIDER_ANSWER, "the sealed object is malformed"))?;
        let primary = Primary::make(link)?;
        if primary.name != sealed.primary {
            let detail = "it was sealed by another TPM, or by this one before it was cleared";
            return Err(Error::new(&code::PROVIDER_NO_KEY, detail).into());
        }
        let mut session = Session::start(link, HMAC, &primary)?;
        let mut open = Vec::new();
        sized(&mut open, sealed.private);
        sized(&mut open, sealed.public);
        let empty = SecretBytes::with_capacity(0)?;
        let loaded = session.run(
            link,
            &Command {
                code: LOAD,
                handles: &[(primary.handle, &primary.name)],
                auth: &empty,
                attributes: STAYS,
                hidden: None,
                open: &open,
                makes: true,
            },
        );
        let loaded = loaded.map_err(|failed| match failed {
            Failed::Code(code) if !is_passing(code) => {
                let detail =
                    format!("the TPM does not take the sealed object, response code {code:#x}");
                Error::new(&code::PROVIDER_ANSWER, detail).into()
            }
            other => other,
        })?;
        let mut policy = Session::start(link, POLICY, &primary)?;
        let mut body = policy.handle.to_be_bytes().to_vec();
        sized(&mut body, &[]);
        body.extend_from_slice(&selection(sealed.registers));
        link.command(PLAIN, POLICY_PCR, &body)?;
        if let Some(end) = self.before {
            clock::compare(link, policy.handle, end)?;
        }
        if self.pin.is_some() {
            link.command(PLAIN, POLICY_AUTH_VALUE, &policy.handle.to_be_bytes())?;
        }
        let unsealed = policy.run(
            link,
            &Command {
                code: UNSEAL,
                handles: &[(loaded.handle, &name_of(sealed.public))],
                auth,
                attributes: STAYS | HIDES_ANSWER,
                hidden: None,
                open: &[],
                makes: false,
            },
        )?;
        let data = unsealed.hidden.ok_or_else(malformed)?;
        let mut key = [0; 32];
        if data.len() != key.len() {
            return Err(malformed().into());
        }
        key.copy_from_slice(data.as_slice());
        Ok(SecretKey::take(&mut key)?)
    }
}

impl Primary {
    fn make(link: &mut Link) -> Result<Self, Failed> {
        let template = &STORAGE_KEY[..];
        let mut public = template.to_vec();
        // An empty point.
        public.extend_from_slice(&[0; 4]);
        let mut body = OWNER.to_be_bytes().to_vec();
        body.extend_from_slice(&EMPTY_PASSWORD);
        // No authorization and no data of its own.
        body.extend_from_slice(&[0, 4, 0, 0, 0, 0]);
        sized(&mut body, &public);
        body.extend_from_slice(&[0, 0, 0, 0, 0, 0]);
        let answer = link.command(SESSIONS, CREATE_PRIMARY, &body)?;
        let mut fields = Fields(&answer);
        let handle = fields.uint32().ok_or_else(malformed)?;
        link.holds(handle);
        fields.uint32();
        let made = fields.sized().ok_or_else(malformed)?;
        let mut parts = Fields(made);
        if parts.bytes(template.len()) != Some(template) {
            return Err(malformed().into());
        }
        let (x, y) = parts.sized().zip(parts.sized()).ok_or_else(malformed)?;
        let mut point = [0; 65];
        point[0] = 4;
        for (coordinate, end) in [(x, 33_usize), (y, 65)] {
            let begin = end
                .checked_sub(coordinate.len())
                .filter(|at| *at >= end - 32);
            let place = begin.and_then(|begin| point.get_mut(begin..end));
            place.ok_or_else(malformed)?.copy_from_slice(coordinate);
        }
        Ok(Self {
            handle,
            name: name_of(made),
            point,
        })
    }
}

struct Sealed<'a> {
    registers: u32,
    primary: &'a [u8],
    public: &'a [u8],
    private: &'a [u8],
}

impl<'a> Sealed<'a> {
    fn read(blob: &'a [u8]) -> Option<Self> {
        let (registers, rest) = blob.split_first_chunk::<4>()?;
        let registers = u32::from_le_bytes(*registers);
        let (primary, rest) = rest.split_at_checked(NAME_LEN)?;
        let (public, rest) = part(rest)?;
        let (private, rest) = part(rest)?;
        let whole = rest.is_empty() && registers != 0 && registers >> PCRS == 0;
        whole.then_some(Self {
            registers,
            primary,
            public,
            private,
        })
    }
}

fn part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))
}

/// An object's name: the hash of its public area, with the algorithm before it.
fn name_of(public: &[u8]) -> Vec<u8> {
    [&SHA256.to_be_bytes()[..], &sha256(&[public])].concat()
}

/// `TPML_PCR_SELECTION` of the SHA-256 bank.
fn selection(registers: u32) -> Vec<u8> {
    let mut bytes = 1_u32.to_be_bytes().to_vec();
    bytes.extend_from_slice(&SHA256.to_be_bytes());
    bytes.push(3);
    bytes.extend_from_slice(&selected(registers));
    bytes
}

/// The values of the registers, one after the other, as the TPM vouches for them in the session.
fn registers(link: &mut Link, session: &mut Session, mask: u32) -> Result<Vec<u8>, Failed> {
    let empty = SecretBytes::with_capacity(0)?;
    let mut values = Vec::new();
    for number in (0..PCRS).filter(|number| mask & 1 << number != 0) {
        let wanted = selection(1 << number);
        let command = Command {
            code: PCR_READ,
            handles: &[],
            auth: &empty,
            attributes: STAYS | AUDITS,
            hidden: None,
            open: &wanted,
            makes: false,
        };
        let answer = session.run(link, &command)?.parameters;
        let mut fields = Fields(&answer);
        fields.uint32();
        let same = fields.bytes(wanted.len()) == Some(&wanted);
        let one = fields.uint32() == Some(1);
        let value = fields
            .sized()
            .filter(|value| same && one && value.len() == 32);
        let missing = || {
            Error::new(
                &code::PROVIDER_STATE,
                "the TPM has no SHA-256 bank of registers",
            )
        };
        values.extend_from_slice(value.ok_or_else(missing)?);
    }
    Ok(values)
}

/// The digest of "these registers have these values, the clock is before that, and the
/// authorization was given" (part 3, `TPM2_PolicyPCR`, `TPM2_PolicyCounterTimer`,
/// `TPM2_PolicyAuthValue`).
fn policy(mask: u32, values: &[u8], before: Option<u64>, with_pin: bool) -> [u8; 32] {
    let parts = [
        &[0; 32],
        &POLICY_PCR.to_be_bytes()[..],
        &selection(mask),
        &sha256(&[values]),
    ];
    let mut digest = sha256(&parts);
    if let Some(end) = before {
        digest = clock::policy(digest, end);
    }
    match with_pin {
        true => sha256(&[&digest, &POLICY_AUTH_VALUE.to_be_bytes()]),
        false => digest,
    }
}

/// Whether a response code is of the time rather than of what was sent: not a format-one code,
/// which names a parameter.
fn is_passing(code: u32) -> bool {
    code & 0x80 == 0
}

fn told(failed: Failed) -> Error {
    let number = match failed {
        Failed::Link(error) => return error,
        Failed::Code(number) => number,
    };
    // A format-one code's number (part 2, section 6.6) without the parameter, handle or session
    // that it is about.
    let plain = match number & 0x80 {
        0 => number,
        _ => number & 0xbf,
    };
    let (code, what): (&'static Code, &str) = match plain {
        // TPM_RC_AUTH_FAIL, TPM_RC_BAD_AUTH.
        0x8e | 0xa2 => (
            &code::PROVIDER_DENIED,
            "wrong PIN, or the owner hierarchy has an authorization",
        ),
        // TPM_RC_LOCKOUT.
        0x921 => (
            &code::PROVIDER_DENIED,
            "locked after wrong PINs; it unlocks itself after a while",
        ),
        // TPM_RC_POLICY_FAIL, TPM_RC_PCR_CHANGED.
        0x9d | 0x128 => (
            &code::PROVIDER_STATE,
            "registers are not what they were, or a PIN is wanted",
        ),
        // TPM_RC_POLICY: of a comparison that did not hold.
        0x126 => (
            &code::PROVIDER_STATE,
            "the time that it was sealed for is over",
        ),
        // TPM_RC_HIERARCHY, TPM_RC_DISABLED.
        0x85 | 0x120 => (
            &code::PROVIDER_DISABLED,
            "its owner hierarchy is switched off",
        ),
        _ => (&code::PROVIDER_UNREACHABLE, "it refuses"),
    };
    Error::new(code, format!("TPM: {what}; response code {number:#x}"))
}

impl RootProvider for Tpm {
    fn name(&self) -> &'static str {
        NAME
    }

    fn number(&self) -> u16 {
        NUMBER
    }

    fn argument(&self) -> &str {
        &self.argument
    }

    fn fetch(&self, _creating: bool) -> Result<Opener, Error> {
        let wrapped = Wrapped::of(NUMBER, &self.argument)?;
        let auth = self.auth()?;
        let secret = self.with(|link| self.unseal(link, &auth, wrapped.blob()))?;
        wrapped.root(&secret)
    }

    fn create(&self) -> Result<Created, Error> {
        let auth = self.auth()?;
        Wrapped::create(NUMBER, locator(&self.argument), |secret, _| {
            self.sealed(&auth, secret)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_choose_registers_and_place() {
        for text in [
            "",
            "pcrs=0,23",
            "device=/dev/tpm0;pcrs=7,11;pin=ask",
            "device=localhost:2321",
        ] {
            assert!(make(text).is_ok(), "{text}");
        }
        for text in [
            "pcrs=24",
            "pcrs=",
            "pcrs=7,",
            "pin=1234",
            "device=tpm0",
            "bank=sha1",
        ] {
            let refused = make(text).err();
            assert!(refused.is_some_and(|why| !why.contains("1234")), "{text}");
        }
    }

    #[test]
    fn a_blob_is_whole_or_refused() {
        let mut blob = 0x80_u32.to_le_bytes().to_vec();
        blob.extend_from_slice(&[9; NAME_LEN]);
        blob.extend_from_slice(&[2, 0, 1, 2, 1, 0, 3]);
        let read = Sealed::read(&blob).unwrap();
        assert_eq!((read.public, read.private), (&[1, 2][..], &[3][..]));
        for cut in 0..blob.len() {
            assert!(Sealed::read(&blob[..cut]).is_none(), "{cut}");
        }
        blob.push(0);
        assert!(Sealed::read(&blob).is_none());
    }
}
