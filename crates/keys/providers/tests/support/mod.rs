//! What tests of providers with a server share: certificates, a relay that goes wrong on purpose,
//! servers in Python.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

pub(crate) mod http;
pub(crate) mod relay;

use std::fs::{File, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Once;
use std::time::{Duration, Instant};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use strongroom_keyring::{Error, Keyring, Opener, Provider};

/// Longest that anything which is to fail may take; the providers' own limits are far below.
const LONG: Duration = Duration::from_secs(60);

/// An authority that issues certificates.
pub(crate) struct Authority(Issuer<'static, KeyPair>);

impl Authority {
    /// Writes its certificate to `path`.
    pub(crate) fn new(path: &Path) -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        // Two authorities of one name would be one to those who look for an issuer.
        let name = path.file_stem().unwrap().to_str().unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        put(path, params.self_signed(&key).unwrap().pem().as_bytes());
        Self(Issuer::new(params, key))
    }

    /// Writes `NAME.pem` and `NAME.key`: for 127.0.0.1, as a server and as a client.
    pub(crate) fn issue(&self, directory: &Path, name: &str) {
        let names = vec![String::from("127.0.0.1"), String::from("localhost")];
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let place = |extension: &str| directory.join(format!("{name}.{extension}"));
        put(&place("pem"), certificate.pem().as_bytes());
        put(&place("key"), key.serialize_pem().as_bytes());
    }
}

/// A private file.
pub(crate) fn put(path: &Path, bytes: &[u8]) {
    let mut file = File::create(path).unwrap();
    file.set_permissions(Permissions::from_mode(0o600)).unwrap();
    file.write_all(bytes).unwrap();
}

/// A directory with a place for a keyring.
pub(crate) struct Home {
    directory: tempfile::TempDir,
    keyring: PathBuf,
}

impl Home {
    pub(crate) fn new() -> Self {
        static ONCE: Once = Once::new();
        ONCE.call_once(strongroom_keys_providers::register);
        let directory = tempfile::tempdir().unwrap();
        let keyring = directory.path().join("keyring");
        Self { directory, keyring }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Makes a keyring of its own, with one key in it, and opens it again.
    pub(crate) fn init(&mut self, name: &str, provider: &str) {
        self.keyring = self.path(name);
        let provider = Provider::parse(provider).unwrap();
        let mut made = Keyring::init(&self.keyring, &provider).unwrap();
        made.create_key("app").unwrap();
        self.opens();
    }

    pub(crate) fn opens(&self) {
        let keyring = Keyring::open(&self.keyring).unwrap();
        keyring.key("app", None).unwrap();
    }

    /// The root key is wrapped anew, by this provider or the same.
    pub(crate) fn rotate(&self, provider: Option<&str>) {
        let provider = provider.map(|text| Provider::parse(text).unwrap());
        let mut keyring = Keyring::open(&self.keyring).unwrap();
        keyring.rotate_root(provider).unwrap();
        self.opens();
    }

    /// Opening the keyring fails, within bounds: with which code, and in what words.
    pub(crate) fn refused(&self) -> (u16, String) {
        let begin = Instant::now();
        let told = told(Keyring::open(&self.keyring));
        assert!(begin.elapsed() < LONG, "{}", told.1);
        told
    }

    /// Whether opening works; if not, with which code.
    pub(crate) fn tried(&self) -> Result<(), (u16, String)> {
        let opened = Keyring::open(&self.keyring);
        let opened = opened.and_then(|keyring| keyring.key("app", None));
        opened
            .map(drop)
            .map_err(|error| (error.code().number, error.to_string()))
    }

    /// What the keyring has as its provider's argument, changed.
    pub(crate) fn with(&self, from: &str, to: &str) -> (u16, String) {
        self.changed(|argument| argument.replacen(from, to, 1))
    }

    /// The sealed root key with another id.
    pub(crate) fn with_another_id(&self) -> (u16, String) {
        self.changed(|argument| {
            let (place, blob) = argument.rsplit_once(";blob=01").unwrap();
            let digit = if blob.starts_with('0') { '1' } else { '0' };
            format!("{place};blob=01{digit}{}", &blob[1..])
        })
    }

    /// The same with any change.
    pub(crate) fn changed(&self, change: impl FnOnce(&str) -> String) -> (u16, String) {
        let status = Keyring::status(&self.keyring).unwrap();
        let argument = change(&status.provider_argument);
        assert_ne!(argument, status.provider_argument);
        let begin = Instant::now();
        let text = format!("{}:{argument}", status.provider);
        let told = told(Provider::parse(&text).and_then(|provider| provider.fetch(false)));
        assert!(begin.elapsed() < LONG, "{}", told.1);
        told
    }
}

/// What making a keyring with this provider would say.
pub(crate) fn created(provider: &str) -> (u16, String) {
    let provider = Provider::parse(provider).unwrap();
    told(provider.create().map(|made| made.opener))
}

/// Code and words of an error.
pub(crate) fn told<T>(result: Result<T, Error>) -> (u16, String) {
    let error = result.err().unwrap();
    (error.code().number, error.to_string())
}

/// An opener is made, and that is all.
pub(crate) fn fetched(provider: &str) -> Result<Opener, Error> {
    Provider::parse(provider)?.fetch(false)
}

/// A server in Python: prints its port first.
pub(crate) struct Script {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    pub(crate) port: u16,
}

impl Script {
    /// `needs`: the module that has to be installed.
    pub(crate) fn started(name: &str, arguments: &[&str], needs: &str) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support");
        let mut child = Command::new("python3")
            .arg("-B")
            .arg(script.join(name))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut script = Self {
            child,
            stdin,
            stdout,
            port: 0,
        };
        let said = script.line();
        assert!(!said.is_empty(), "is {needs} installed?");
        script.port = said.parse().unwrap();
        script
    }

    /// A command, and its answer.
    pub(crate) fn command(&mut self, command: &str) -> String {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(format!("{command}\n").as_bytes()).unwrap();
        stdin.flush().unwrap();
        let said = self.line();
        assert!(!said.is_empty(), "{command}");
        said
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // One that takes commands ends with them, and what it started with it.
        drop(self.stdin.take());
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(2) {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
