//! Debian's tangd, started for each connection as inetd does; between it and us somebody who may
//! change every answer.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use strongroom_keyring::{Keyring, Provider};
use strongroom_testing_support::port::free_port;

use crate::{Home, run, run_alone, told};

type Change = Arc<Mutex<Option<fn(&str, &mut Vec<u8>)>>>;

/// A server of the test's own, what was said to it, and what is done to its answers.
struct Tang {
    url: String,
    keys: PathBuf,
    asked: Arc<Mutex<Vec<String>>>,
    change: Change,
}

impl Tang {
    fn start(home: &Home, name: &str) -> Self {
        let keys = home.path(name);
        std::fs::create_dir(&keys).unwrap();
        run("/usr/libexec/tangd-keygen", &[keys.to_str().unwrap()], &[]);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tang = Self {
            url: format!("http://{}", listener.local_addr().unwrap()),
            keys: keys.clone(),
            asked: Arc::default(),
            change: Arc::default(),
        };
        let (asked, change) = (Arc::clone(&tang.asked), Arc::clone(&tang.change));
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                serve(connection.unwrap(), &keys, &asked, &change);
            }
        });
        tang
    }

    /// Thumbprints of the signing and the exchange key.
    fn thumbprints(&self) -> (String, String) {
        let mut found = [String::new(), String::new()];
        for entry in std::fs::read_dir(&self.keys).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            if !name.starts_with('.') {
                let text = std::fs::read_to_string(&path).unwrap();
                found[usize::from(text.contains("ECMR"))] = name;
            }
        }
        found.into()
    }

    fn provider(&self) -> String {
        format!("tang:url={};thumbprint={}", self.url, self.thumbprints().0)
    }

    fn changing(&self, change: Option<fn(&str, &mut Vec<u8>)>) {
        *self.change.lock().unwrap() = change;
    }
}

/// One request, to a tangd of its own.
fn serve(mut client: TcpStream, keys: &Path, asked: &Mutex<Vec<String>>, change: &Change) {
    let mut reader = BufReader::new(client.try_clone().unwrap());
    let (mut request, mut len) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap() == 0 {
            return;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            len = value.trim().parse().unwrap();
        }
        request.push_str(&line);
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; len];
    reader.read_exact(&mut body).unwrap();
    request.push_str(&String::from_utf8(body).unwrap());
    let path = request.split(' ').nth(1).unwrap().to_owned();
    let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let theirs = OwnedFd::from(theirs);
    let mut tangd = Command::new("/usr/libexec/tangd")
        .arg(keys)
        .stdin(Stdio::from(theirs.try_clone().unwrap()))
        .stdout(Stdio::from(theirs))
        .stderr(Stdio::null())
        .spawn()
        .expect("tang-common is installed");
    ours.write_all(request.as_bytes()).unwrap();
    ours.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    ours.read_to_end(&mut answer).unwrap();
    tangd.wait().unwrap();
    asked.lock().unwrap().push(request);
    if let Some(change) = *change.lock().unwrap() {
        change(&path, &mut answer);
    }
    // Whoever asked may have gone.
    drop(client.write_all(&answer));
}

#[test]
fn a_keyring_opens_where_the_server_answers() {
    let home = Home::new();
    let tang = Tang::start(&home, "keys");
    home.init(&tang.provider());
    let first = Keyring::open(&home.keyring).unwrap().rotate_root(None);
    assert!(first.unwrap());
    home.opens();
    // What was asked for is blinded: another question each time, and never what the keyring holds.
    let asked = tang.asked.lock().unwrap().clone();
    let recoveries: Vec<&String> = asked
        .iter()
        .filter(|it| it.starts_with("POST /rec/"))
        .collect();
    assert!(recoveries.len() >= 5);
    for (at, one) in recoveries.iter().enumerate() {
        assert!(recoveries[at + 1..].iter().all(|other| other != one));
    }

    // The server's keys are rotated: the old ones are hidden, and serve on.
    let (signing, exchange) = tang.thumbprints();
    for name in [&signing, &exchange] {
        let hidden = tang.keys.join(format!(".{name}.jwk"));
        rename(&tang.keys.join(format!("{name}.jwk")), &hidden);
    }
    run(
        "/usr/libexec/tangd-keygen",
        &[tang.keys.to_str().unwrap()],
        &[],
    );
    home.opens();
    let mut keyring = Keyring::open(&home.keyring).unwrap();
    // The old pin is not advertised any more: a new root key needs the new one.
    let old = told(keyring.rotate_root(None));
    assert_eq!(old.0, 2105, "{}", old.1);
    let new = Provider::parse(&tang.provider()).unwrap();
    assert!(keyring.rotate_root(Some(new)).unwrap());
    home.opens();

    // The key that it is sealed to now is destroyed.
    let (_, exchange) = tang.thumbprints();
    std::fs::remove_file(tang.keys.join(format!("{exchange}.jwk"))).unwrap();
    assert_eq!(home.refused().0, 2103);
}

#[expect(clippy::disallowed_methods, reason = "a file of a test need not last")]
fn rename(from: &Path, to: &Path) {
    std::fs::rename(from, to).unwrap();
}

/// One character of a value of JSON, from the end of the answer.
fn in_value(answer: &mut [u8], name: &str) {
    let text = String::from_utf8_lossy(answer).into_owned();
    let at = text.rfind(&format!("\"{name}\"")).unwrap() + name.len() + 12;
    answer[at] = if answer[at] == b'A' { b'B' } else { b'A' };
}

#[test]
fn what_somebody_on_the_way_changes_is_found() {
    let home = Home::new();
    let tang = Tang::start(&home, "keys");
    let provider = Provider::parse(&tang.provider()).unwrap();
    let changes: [fn(&str, &mut Vec<u8>); 3] = [
        |path, answer| {
            if path == "/adv" {
                in_value(answer, "signature");
            }
        },
        |path, answer| {
            if path == "/adv" {
                in_value(answer, "payload");
            }
        },
        |path, answer| {
            if path == "/adv" {
                in_value(answer, "protected");
            }
        },
    ];
    for change in changes {
        tang.changing(Some(change));
        assert_eq!(told(provider.create()).0, 2105);
    }
    tang.changing(None);
    home.init(&tang.provider());
    // A point beside the curve; no JSON; a point of the curve, but not the product.
    tang.changing(Some(|_, answer| in_value(answer, "x")));
    assert_eq!(home.refused().0, 2105);
    tang.changing(Some(|_, answer| {
        let len = answer.len();
        answer[len - 1] = b'?';
    }));
    assert_eq!(home.refused().0, 2105);
    // Another server's answer to the same question, with the path rewritten to its key.
    let argument = home.argument();
    tang.changing(None);
    let other = Tang::start(&home, "others");
    let elsewhere = argument.replace(&tang.url, &other.url);
    assert_eq!(
        told(home.with_argument(&elsewhere)).0,
        2103,
        "no such key there"
    );
    let wrong = Provider::parse(&format!(
        "tang:url={};thumbprint={}",
        other.url,
        tang.thumbprints().0
    ));
    assert_eq!(
        told(wrong.unwrap().create()).0,
        2105,
        "not the pinned server"
    );
    home.opens();
}

#[test]
fn a_blob_that_was_changed_does_not_open() {
    let home = Home::new();
    let tang = Tang::start(&home, "keys");
    home.init(&tang.provider());
    let argument = home.argument();
    // The id, the thumbprint, the server's point, the client's, what is sealed.
    let at = argument.rfind("blob=").unwrap() + "blob=".len();
    for (place, expected) in [
        (3, 2105),
        (40, 2103),
        (300, 2105),
        (500, 2105),
        (argument.len() - at - 1, 2105),
    ] {
        let mut bytes = argument.clone().into_bytes();
        let digit = &mut bytes[at + place];
        *digit = if *digit == b'0' { b'1' } else { b'0' };
        let changed = String::from_utf8(bytes).unwrap();
        assert_eq!(
            told(home.with_argument(&changed)).0,
            expected,
            "digit {place}"
        );
    }
    home.opens();
}

#[test]
fn no_server_and_a_silent_one_are_not_waited_for_for_ever() {
    let home = Home::new();
    let tang = Tang::start(&home, "keys");
    home.init(&tang.provider());
    let argument = home.argument();
    let port = free_port();
    let silent = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let moved = argument.replace(&tang.url, &format!("http://127.0.0.1:{port}"));
    let environment = [
        ("STRONGROOM_PROVIDER_TIMEOUT", "1"),
        ("STRONGROOM_TEST_ARGUMENT", &moved),
    ];
    let said = run_alone("tang::silent", &environment);
    assert!(said.contains("refused with 2101"), "{said}");
    drop(silent);
    assert_eq!(told(home.with_argument(&moved)).0, 2101);
}

/// The other half of the test above.
#[test]
#[ignore = "started by no_server_and_a_silent_one_are_not_waited_for_for_ever"]
fn silent() {
    drop(Home::new());
    let argument = std::env::var("STRONGROOM_TEST_ARGUMENT").unwrap();
    let provider = Provider::from_stored(10, &argument).unwrap();
    println!("refused with {}", told(provider.fetch(false)).0);
}

#[test]
fn both_requests_of_a_new_root_key_have_one_time_limit() {
    let home = Home::new();
    let tang = Tang::start(&home, "keys");
    let refused = |seconds: &str| {
        let environment = [
            ("STRONGROOM_PROVIDER_TIMEOUT", seconds),
            ("STRONGROOM_TEST_ARGUMENT", &tang.provider()),
        ];
        run_alone("tang::created", &environment).contains("refused with 2101")
    };
    // Each of them is within the limit, and both together are not.
    tang.changing(Some(|_, _| {
        std::thread::sleep(std::time::Duration::from_millis(600));
    }));
    assert!(refused("1"));
    assert!(!refused("600"));
}

/// The other half of the test above.
#[test]
#[ignore = "started by both_requests_of_a_new_root_key_have_one_time_limit"]
fn created() {
    drop(Home::new());
    let argument = std::env::var("STRONGROOM_TEST_ARGUMENT").unwrap();
    match Provider::parse(&argument).unwrap().create() {
        Ok(_) => println!("created"),
        Err(error) => println!("refused with {}", error.code().number),
    }
}
