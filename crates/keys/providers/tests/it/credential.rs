//! systemd credentials: a directory like the one that systemd makes, named by the variable, in a
//! process of its own.

use strongroom_keyring::{Keyring, Provider};

use crate::{Home, run_alone, told};

#[test]
fn a_keyring_opens_by_a_credential() {
    let home = Home::new();
    home.write("root", &[0xa5; 32]);
    std::fs::create_dir(home.path("directory")).unwrap();
    let directory = home.directory.path().to_str().unwrap();
    let said = run_alone(
        "credential::with_credentials",
        &[("CREDENTIALS_DIRECTORY", directory)],
    );
    assert!(said.contains("everything was tried"), "{said}");
}

/// The other half of the test above.
#[test]
#[ignore = "started by a_keyring_opens_by_a_credential"]
fn with_credentials() {
    let home = Home::new();
    home.init("credential:root");
    assert_eq!(home.argument(), "root");
    let directory = std::env::var_os("CREDENTIALS_DIRECTORY").unwrap();
    let credential = std::path::Path::new(&directory).join("root");
    let other = [0x5a; 32];
    crate::write(&credential, &other);
    assert_eq!(home.refused().0, 2006, "another root key");
    std::fs::remove_file(&credential).unwrap();
    assert_eq!(home.refused().0, 2103);
    std::os::unix::fs::symlink("/etc/hostname", &credential).unwrap();
    assert_eq!(home.refused().0, 2007, "a link out of the directory");
    let absent = Provider::parse("credential:directory").unwrap();
    assert_eq!(told(absent.fetch(false)).0, 2007);
    println!("everything was tried");
}

#[test]
fn without_credentials_the_service_says_so() {
    let home = Home::new();
    let provider = Provider::parse("credential:root").unwrap();
    let (number, text) = told(Keyring::init(&home.keyring, &provider));
    assert_eq!(number, 2101);
    assert!(text.contains("CREDENTIALS_DIRECTORY"), "{text}");
}
