//! Goal: settings mean what they mean to libpq, and what cannot be done is refused. Method: strings
//! and environments, and what comes of them.

use super::*;

fn read(text: &str, environment: &[(&str, &str)]) -> Result<Config> {
    Config::parse(text, &|name| {
        let found = environment.iter().find(|(variable, _)| *variable == name);
        found.map(|(_, value)| OsString::from(value))
    })
}

fn good(text: &str, environment: &[(&str, &str)]) -> Config {
    read(text, environment).expect("settings")
}

fn bad(text: &str, environment: &[(&str, &str)]) -> String {
    match read(text, environment) {
        Err(Error::Config(text)) => text,
        other => unreachable!("{text}: {other:?}"),
    }
}

#[test]
fn the_string_comes_before_the_environment_before_the_default() {
    let environment = [
        ("PGHOST", "there"),
        ("PGPORT", "77"),
        ("PGUSER", "her"),
        ("PGAPPNAME", "app"),
        ("PGDATABASE", ""),
    ];
    let config = good("host=here", &environment);
    assert_eq!((config.host(), config.port()), ("here", 77));
    assert_eq!(
        (config.user(), config.application_name.as_str()),
        ("her", "app")
    );
    let config = good("port='' application_name=x host=''", &environment);
    assert_eq!((config.host(), config.port()), ("there", 77));
    assert_eq!(config.application_name, "x");
    let config = good("user=u hostaddr=::1", &[]);
    assert_eq!((config.host(), config.port()), ("::1", 5432));
    assert!(!config.is_local());
    assert_eq!(config.application_name, "strongroom");
    assert!(good("user=u host=/run/x", &[]).is_local());
    assert!(good("user=u", &[]).is_local());
    assert!(!good("user=u host=/run/x hostaddr=127.0.0.1", &[]).is_local());
    assert_eq!(good("user=a user=b", &[]).user(), "b");
}

#[test]
fn without_a_user_it_is_the_account() {
    let name = std::process::Command::new("id").arg("-un").output();
    let name = String::from_utf8(name.expect("id runs").stdout).expect("a name");
    assert_eq!(good("", &[]).user(), name.trim());
}

#[test]
fn a_password_is_found_and_never_shown() {
    let config = good("password=hunter2 user=u", &[("PGPASSWORD", "other")]);
    assert!(config.password_in_text());
    assert_eq!(config.password().expect("given").bytes(), b"hunter2");
    assert!(!format!("{config:?}").contains("hunter2"));
    let config = good("user=u password=", &[("PGPASSWORD", "other")]);
    assert!(!config.password_in_text());
    assert_eq!(config.password().expect("given").bytes(), b"other");
    assert!(good("postgres://u:p@h", &[]).password_in_text());
    for text in [
        "password=hunter2 nonsense=1",
        "password=my hunter2=1",
        "user=u password=my hunter2 =1",
        "password='hunter2",
        "postgres://u:hunter2@h/%zz",
        "password=hunter2 hunter2",
    ] {
        assert!(!bad(text, &[]).contains("hunter2"), "{text}");
    }
}

#[test]
fn tls_has_libpqs_modes_and_its_conditions() {
    let mode = |text: &str| good(text, &[]).ssl_mode();
    assert_eq!(mode("user=u"), SslMode::Prefer);
    assert_eq!(mode("user=u sslmode=disable"), SslMode::Disable);
    assert_eq!(mode("user=u sslmode=require"), SslMode::Require);
    assert_eq!(mode("user=u sslrootcert=system"), SslMode::VerifyFull);
    assert_eq!(
        mode("user=u sslmode=verify-ca sslrootcert=/x"),
        SslMode::VerifyCa
    );
    assert!(bad("user=u sslmode=verify-full", &[]).contains("sslrootcert"));
    assert!(bad("user=u sslmode=require sslrootcert=system", &[]).contains("verify-full"));
    assert!(bad("user=u sslmode=allow", &[]).contains("one of"));
    assert!(bad("user=u", &[("PGSSLMODE", "requir")]).contains("sslmode"));
}

#[test]
fn personal_files_are_libpqs() {
    let home = tempfile::tempdir().expect("a directory");
    let home_text = home.path().to_str().expect("a name");
    let environment = [("HOME", home_text)];
    let below = home.path().join(".postgresql");
    std::fs::create_dir(&below).expect("a directory");
    assert!(bad("user=u sslmode=verify-full", &environment).contains("sslrootcert"));
    for name in ["root.crt", "postgresql.crt", "postgresql.key"] {
        std::fs::File::create(below.join(name)).expect("a file");
    }
    let config = good("user=u sslmode=verify-full", &environment);
    let Some(Roots::File(path)) = &config.tls.roots else {
        unreachable!("a file of roots");
    };
    assert_eq!(path, &below.join("root.crt"));
    let (certificate, key) = config.tls.identity.expect("a client certificate");
    assert_eq!(certificate, below.join("postgresql.crt"));
    assert_eq!(key, below.join("postgresql.key"));
}

#[test]
fn a_certificate_without_a_key_is_not_ignored() {
    assert!(bad("user=u sslcert=/c", &[]).contains("sslkey"));
    let identity = |text: &str, environment: &[(&str, &str)]| good(text, environment).tls.identity;
    let named = identity("user=u sslcert=/c sslkey=/k", &[]);
    assert_eq!(named, Some((PathBuf::from("/c"), PathBuf::from("/k"))));
    // The key that is missing is found missing when TLS begins.
    let home = tempfile::tempdir().expect("a directory");
    let environment = [("HOME", home.path().to_str().expect("a name"))];
    let below = home.path().join(".postgresql");
    let standard = identity("user=u sslcert=/c", &environment);
    assert_eq!(
        standard,
        Some((PathBuf::from("/c"), below.join("postgresql.key")))
    );
    assert_eq!(identity("user=u sslkey=/k", &environment), None);
    std::fs::create_dir(&below).expect("a directory");
    std::fs::File::create(below.join("postgresql.crt")).expect("a file");
    let personal = identity("user=u", &environment).expect("a certificate");
    assert_eq!(personal.1, below.join("postgresql.key"));
}

#[test]
fn what_cannot_be_done_is_refused() {
    for text in [
        "nonsense=1",
        "host=a,b",
        "port=0x10",
        "port=65536",
        "hostaddr=name",
        "service=x",
        "require_auth=scram-sha-256",
        "sslcrl=/x",
        "target_session_attrs=read-write",
        "gssencmode=require",
        "sslnegotiation=direct",
        "ssl_min_protocol_version=SSLv3",
        "channel_binding=maybe",
        "connect_timeout=soon",
    ] {
        bad(&format!("user=u {text}"), &[]);
    }
    bad("user=u", &[("PGSERVICE", "x")]);
    bad("user=u", &[("PGREQUIREAUTH", "scram-sha-256")]);
    let config = good(
        "user=u replication=true gssencmode=prefer connect_timeout=3",
        &[],
    );
    assert_eq!(config.connect_timeout, Some(Duration::from_secs(3)));
    assert_eq!(good("user=u connect_timeout=-1", &[]).connect_timeout, None);
}
