//! Root key providers against the real thing: each opens a keyring through what it is for, and is
//! then given everything that goes wrong there.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod certificate;
mod credential;
#[cfg(feature = "pkcs11")]
mod pkcs11;
mod tang;
mod tpm;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;

use strongroom_keyring::{Error, Keyring, Provider};
use strongroom_keys_providers::child::{Launcher, set_launcher};
use strongroom_keys_providers::serve_child;
use strongroom_testing_support::process::checked;

/// The variable by which the test program knows that it was started for a module's sake.
const CHILD: &str = "STRONGROOM_TEST_PROVIDER_CHILD";

/// The process for modules: this program once more, told to run only this.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_some() {
        assert!(serve_child());
    }
}

/// A directory with a place for a keyring.
struct Home {
    directory: tempfile::TempDir,
    keyring: PathBuf,
}

impl Home {
    fn new() -> Self {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            strongroom_keys_providers::register();
            let mut environment = vec![(CHILD.into(), "1".into())];
            #[cfg(feature = "pkcs11")]
            environment.push(("SOFTHSM2_CONF".into(), pkcs11::configuration().into()));
            set_launcher(Launcher {
                program: std::env::current_exe().unwrap(),
                arguments: ["child", "--exact", "--nocapture"].map(Into::into).to_vec(),
                environment: std::mem::take(&mut environment),
            });
        });
        let directory = tempfile::tempdir().unwrap();
        let keyring = directory.path().join("keyring");
        Self { directory, keyring }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        write(&path, bytes);
        path
    }

    /// Makes a keyring with one key in it, and opens it again.
    fn init(&self, provider: &str) {
        let provider = Provider::parse(provider).unwrap();
        Keyring::init(&self.keyring, &provider)
            .unwrap()
            .create_key("app")
            .unwrap();
        self.opens();
    }

    fn opens(&self) {
        let keyring = Keyring::open(&self.keyring).unwrap();
        keyring.key("app", None).unwrap();
    }

    fn refused(&self) -> (u16, String) {
        told(Keyring::open(&self.keyring))
    }

    fn argument(&self) -> String {
        Keyring::status(&self.keyring).unwrap().provider_argument
    }

    /// A keyring whose provider has another argument: what somebody who may write to the file can
    /// make of it.
    fn with_argument(&self, argument: &str) -> Result<strongroom_keyring::Opener, Error> {
        let number = match Keyring::status(&self.keyring)?.provider {
            "pkcs11" => 6,
            "tpm" => 7,
            "certificate" => 9,
            _ => 10,
        };
        Provider::from_stored(number, argument)?.fetch(false)
    }
}

fn told<T>(result: Result<T, Error>) -> (u16, String) {
    let error = result.err().unwrap();
    (error.code().number, error.to_string())
}

#[expect(clippy::disallowed_methods, reason = "a file of a test need not last")]
fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
}

/// Runs an ignored test of this program in a process of its own, with these variables, and returns
/// what it wrote.
fn run_alone(test: &str, environment: &[(&str, &str)]) -> String {
    checked(
        Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--ignored", "--nocapture"])
            .envs(environment.iter().copied()),
    )
}

fn run(program: &str, arguments: &[&str], environment: &[(&str, &str)]) {
    let environment = environment.iter().copied();
    checked(Command::new(program).args(arguments).envs(environment));
}
