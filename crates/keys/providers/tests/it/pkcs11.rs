//! `SoftHSM`: one set of tokens for the whole test program, a token for each test. And modules that
//! hang and crash, in C.
//!
//! A token that one process logs in to cannot be read by another one for a moment, and
//! `softhsm2-util` gives up when it cannot read one of the tokens: tests that use tokens run one
//! after another.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use strongroom_keyring::{Keyring, Provider};

use crate::{Home, run, run_alone, told, write};

const PIN: &str = "1234";

fn place() -> &'static tempfile::TempDir {
    static PLACE: OnceLock<tempfile::TempDir> = OnceLock::new();
    PLACE.get_or_init(|| {
        let place = tempfile::tempdir().unwrap();
        let tokens = place.path().join("tokens");
        std::fs::create_dir(&tokens).unwrap();
        let text = format!(
            "directories.tokendir = {}\nlog.level = ERROR\n",
            tokens.display()
        );
        write(&place.path().join("softhsm.conf"), text.as_bytes());
        place
    })
}

/// `SoftHSM`'s configuration file.
pub(crate) fn configuration() -> PathBuf {
    place().path().join("softhsm.conf")
}

fn softhsm() -> String {
    [
        "/usr/lib/softhsm/libsofthsm2.so",
        "/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so",
        "/usr/lib/aarch64-linux-gnu/softhsm/libsofthsm2.so",
    ]
    .into_iter()
    .find(|path| std::path::Path::new(path).exists())
    .expect("libsofthsm2.so: `make deps-test` installs it")
    .to_owned()
}

fn util(arguments: &[&str]) {
    let configuration = configuration();
    let configuration = configuration.to_str().unwrap();
    run(
        "softhsm2-util",
        arguments,
        &[("SOFTHSM2_CONF", configuration)],
    );
}

fn import(home: &Home, token: &str, label: &str, id: &str) {
    let mut key = [0; 32];
    strongroom_crypto::fill_random(&mut key).unwrap();
    // softhsm2-util reads a key as a line of text: a zero or a line end in it would end it.
    for byte in &mut key {
        *byte = b'A' + *byte % 26;
    }
    let file = home.write("aes", &key);
    let file = file.to_str().unwrap();
    util(&[
        "--import", file, "--aes", "--token", token, "--label", label, "--id", id, "--pin", PIN,
    ]);
}

/// A token with one key: the URI for it. No other test uses tokens while the guard lives.
fn token(home: &Home, token: &str) -> (String, MutexGuard<'static, ()>) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    util(&[
        "--init-token",
        "--free",
        "--label",
        token,
        "--pin",
        PIN,
        "--so-pin",
        "5678",
    ]);
    import(home, token, "root", "01");
    let pin = home.write("pin", b"1234\n");
    let uri = format!(
        "pkcs11:token={token};object=root?module-path={}&pin-source=file:{}",
        softhsm(),
        pin.display()
    );
    (uri, guard)
}

#[test]
fn a_keyring_opens_by_a_key_of_the_token() {
    let home = Home::new();
    let (uri, _guard) = token(&home, "opens");
    home.init(&uri);
    let argument = home.argument();
    assert!(!argument.contains(PIN) && argument.starts_with("token=opens;object=root?"));
    // The root key is new each time, under a new id.
    let rotated = Keyring::open(&home.keyring).unwrap().rotate_root(None);
    assert!(rotated.unwrap());
    assert_ne!(home.argument(), argument);
    home.opens();
    // What was wrapped before still unwraps, and opens nothing any more.
    home.with_argument(&argument).unwrap();
    // To another provider and back.
    let file = home.write("root.key", &[9; 32]);
    let other = Provider::parse(&format!("file:{}", file.display())).unwrap();
    let mut keyring = Keyring::open(&home.keyring).unwrap();
    assert!(keyring.rotate_root(Some(other)).unwrap());
    home.opens();
    let back = Provider::parse(&uri).unwrap();
    assert!(keyring.rotate_root(Some(back)).unwrap());
    home.opens();
}

#[test]
fn a_wrong_pin_an_absent_token_and_an_absent_key_are_told_apart() {
    let home = Home::new();
    let (uri, _guard) = token(&home, "faults");
    home.init(&uri);
    home.write("pin", b"4321");
    let (number, text) = home.refused();
    assert_eq!(number, 2102, "{text}");
    assert!(!text.contains("4321"));
    home.write("pin", b"1234");
    let keyring =
        |from: &str, to: &str| told(home.with_argument(&home.argument().replace(from, to)));
    assert_eq!(keyring("token=faults", "token=absent").0, 2101);
    assert_eq!(keyring("object=root", "object=none").0, 2103);
    assert_eq!(keyring("softhsm2.so", "none.so").0, 2101);
    // Two keys of that name: none is guessed.
    import(&home, "faults", "root", "02");
    assert_eq!(home.refused().0, 2103);
    std::fs::remove_file(home.path("pin")).unwrap();
    assert_eq!(home.refused().0, 2007, "the PIN's file");
}

#[test]
fn a_key_that_was_replaced_and_a_blob_that_was_changed_do_not_open() {
    let home = Home::new();
    let (uri, _guard) = token(&home, "changed");
    home.init(&uri);
    let argument = home.argument();
    let at = argument.rfind("blob=").unwrap() + "blob=".len();
    // A byte of the id, of the kind, of the IV, of the ciphertext, of the tag.
    for place in [2, 34, 36, 70, argument.len() - at - 2] {
        let mut changed = argument.clone().into_bytes();
        let digit = &mut changed[at + place];
        *digit = if *digit == b'0' { b'1' } else { b'0' };
        let changed = String::from_utf8(changed).unwrap();
        assert_eq!(told(home.with_argument(&changed)).0, 2105, "digit {place}");
    }
    let short = &argument[..argument.len() - 2];
    assert_eq!(told(home.with_argument(short)).0, 2105);
    let token = "changed";
    import(&home, token, "other", "07");
    let other = argument.replace("object=root", "object=other");
    assert_eq!(told(home.with_argument(&other)).0, 2105, "another key");
    home.opens();
}

/// Makes keys that may do less, and takes rights away from `root` when `disabling`: in a process of
/// its own, which can be told where the tokens are.
fn keys(token: &str, disabling: bool) {
    let configuration = configuration();
    let environment = [
        ("SOFTHSM2_CONF", configuration.to_str().unwrap()),
        ("STRONGROOM_TEST_TOKEN", token),
        (
            "STRONGROOM_TEST_DISABLING",
            if disabling { "1" } else { "0" },
        ),
    ];
    let said = run_alone("pkcs11::making_keys", &environment);
    assert!(said.contains("made"), "{said}");
}

/// The other half of the function above.
#[test]
#[ignore = "started by other tests"]
fn making_keys() {
    use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
    use cryptoki::mechanism::Mechanism;
    use cryptoki::object::{Attribute, ObjectClass};
    use cryptoki::session::UserType;
    use cryptoki::types::AuthPin;

    let token = std::env::var("STRONGROOM_TEST_TOKEN").unwrap();
    let library = Pkcs11::new(softhsm()).unwrap();
    let flags = CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK);
    library.initialize(flags).unwrap();
    let slots = library.get_slots_with_token().unwrap();
    let slot = slots
        .into_iter()
        .find(|slot| library.get_token_info(*slot).unwrap().label() == token);
    let session = library.open_rw_session(slot.unwrap()).unwrap();
    let pin = AuthPin::from(PIN.to_owned());
    session.login(UserType::User, Some(&pin)).unwrap();
    let rights = |may_seal: bool, may_wrap: bool| {
        vec![
            Attribute::Encrypt(may_seal),
            Attribute::Decrypt(may_seal),
            Attribute::Wrap(may_wrap),
            Attribute::Unwrap(may_wrap),
        ]
    };
    if std::env::var("STRONGROOM_TEST_DISABLING").unwrap() == "1" {
        let root = [
            Attribute::Class(ObjectClass::SECRET_KEY),
            Attribute::Label(b"root".to_vec()),
        ];
        let root = session.find_objects(&root).unwrap();
        session
            .update_attributes(root[0], &rights(false, false))
            .unwrap();
    } else {
        for (label, may_wrap) in [("wrapper", true), ("nothing", false)] {
            let mut template = rights(false, may_wrap);
            template.extend([
                Attribute::Token(true),
                Attribute::Sensitive(true),
                Attribute::Extractable(false),
                Attribute::ValueLen(32.into()),
                Attribute::Label(label.as_bytes().to_vec()),
            ]);
            session
                .generate_key(&Mechanism::AesKeyGen, &template)
                .unwrap();
        }
    }
    println!("made");
}

#[test]
fn a_key_that_may_only_wrap_wraps_and_one_that_may_nothing_is_refused() {
    let home = Home::new();
    let (uri, _guard) = token(&home, "rights");
    keys("rights", false);
    home.init(&uri.replace("object=root", "object=wrapper"));
    let argument = home.argument();
    // The kind of blob: after version and id.
    let blob = argument.rsplit_once("blob=").unwrap().1;
    assert_eq!(&blob[34..36], "02");
    let changed = format!(
        "{}{}",
        &argument[..argument.len() - 1],
        if argument.ends_with('0') { '1' } else { '0' }
    );
    assert_eq!(told(home.with_argument(&changed)).0, 2105);
    let nothing = Provider::parse(&uri.replace("object=root", "object=nothing")).unwrap();
    assert_eq!(told(nothing.create()).0, 2104);
}

#[test]
fn a_key_that_was_disabled_says_so() {
    let home = Home::new();
    let (uri, _guard) = token(&home, "disabled");
    home.init(&uri);
    keys("disabled", true);
    let (number, text) = home.refused();
    assert_eq!(number, 2104, "{text}");
}

fn module(home: &Home, name: &str, body: &str) -> String {
    let source = home.write(&format!("{name}.c"), body.as_bytes());
    let library = home.path(&format!("{name}.so"));
    let (source, library) = (source.to_str().unwrap(), library.to_str().unwrap());
    run("cc", &["-shared", "-fPIC", "-o", library, source], &[]);
    format!("pkcs11:object=root?module-path={library}&pin-source=none")
}

#[test]
fn a_module_that_crashes_is_an_error() {
    let home = Home::new();
    let body = "#include <stdlib.h>\nint C_GetFunctionList(void **out) { (void)out; abort(); }\n";
    let provider = Provider::parse(&module(&home, "crash", body)).unwrap();
    let (number, text) = told(Keyring::init(&home.keyring, &provider));
    assert_eq!(number, 2101, "{text}");
    assert!(text.contains("signal 6"), "{text}");
    assert!(!home.keyring.exists());
}

/// Takes as long as a provider may: some seconds, set by the environment of the whole test.
#[test]
fn a_module_that_hangs_is_ended() {
    let home = Home::new();
    let body = "#include <unistd.h>\nint C_GetFunctionList(void **out) { (void)out; for (;;) sleep(1000); }\n";
    let uri = module(&home, "hang", body);
    // The limit is read from the environment, which a test cannot change for itself.
    let environment = [
        ("STRONGROOM_PROVIDER_TIMEOUT", "2"),
        ("STRONGROOM_TEST_URI", &uri),
    ];
    let said = run_alone("pkcs11::hanging", &environment);
    assert!(said.contains("refused with 2101"), "{said}");
}

/// The other half of the test above.
#[test]
#[ignore = "started by a_module_that_hangs_is_ended"]
fn hanging() {
    let home = Home::new();
    let uri = std::env::var("STRONGROOM_TEST_URI").unwrap();
    let provider = Provider::parse(&uri).unwrap();
    let (number, text) = told(Keyring::init(&home.keyring, &provider));
    assert!(text.contains("no answer within 2 s"), "{text}");
    println!("refused with {number}");
}

#[test]
fn a_keyring_that_others_may_write_to_loads_no_module() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = Home::new();
    let (uri, _guard) = token(&home, "writable");
    home.init(&uri);
    let mode = std::fs::Permissions::from_mode(0o620);
    std::fs::set_permissions(&home.keyring, mode).unwrap();
    assert_eq!(home.refused().0, 2020);
}
