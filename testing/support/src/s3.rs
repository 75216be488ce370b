//! A real S3 server (moto) for tests, what lies in its bucket, and a relay that loses connections
//! where a test wants it.
//!
//! The server is `python3 s3_server.py`, with `moto[server]` installed; it ends with the test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

pub const BUCKET: &str = "canary-bucket";
/// What must be in no output and no object.
pub const KEY_ID: &str = "CANARYKEYID";
pub const SECRET: &str = "CANARY-secret-access-key";

/// A store with one bucket.
pub struct S3 {
    child: Child,
    pub port: u16,
}

/// The settings of a client, as variables of the environment.
pub fn settings(port: u16) -> Vec<(String, String)> {
    let endpoint = format!("http://127.0.0.1:{port}");
    [
        ("AWS_ACCESS_KEY_ID", KEY_ID),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ENDPOINT", &endpoint),
        ("AWS_ALLOW_HTTP", "true"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec()
}

impl S3 {
    pub fn started() -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/s3_server.py");
        let mut child = Command::new("python3")
            .arg(script)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // It says which port it listens on: one that was free a moment ago may be another test's by
        // now.
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut server = Self { child, port: 0 };
        let port = said.lines().next().expect("is moto[server] installed?");
        server.port = port.unwrap().parse().unwrap();
        let (status, _) = server.request("PUT", "");
        assert_eq!(status, 200);
        server
    }

    /// A request of our own: status and body.
    pub fn request(&self, method: &str, below: &str) -> (u16, Vec<u8>) {
        let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).unwrap();
        // moto takes any key for the owner's.
        let head = format!(
            "{method} /{BUCKET}{} HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nAuthorization: AWS4-HMAC-SHA256 \
             Credential=x/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0\r\n\r\n",
            below.replace(' ', "%20")
        );
        connection.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|at| at == b"\r\n\r\n").unwrap();
        let body = answer.split_off(end + 4);
        let head = String::from_utf8(answer).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, body)
    }

    /// Names of all objects.
    pub fn names(&self) -> Vec<String> {
        let (status, body) = self.request("GET", "?list-type=2");
        assert_eq!(status, 200);
        let body = String::from_utf8(body).unwrap();
        let keys = body.split("<Key>").skip(1);
        keys.map(|rest| rest.split_once('<').unwrap().0.to_owned())
            .collect()
    }

    /// Names of those below `sets`, of whatever medium.
    pub fn heads(&self) -> Vec<String> {
        let names = self.names().into_iter();
        names.filter(|name| name.contains("/sets/")).collect()
    }

    pub fn object(&self, name: &str) -> Vec<u8> {
        let (status, body) = self.request("GET", &format!("/{name}"));
        assert_eq!(status, 200, "{name}");
        body
    }

    /// Uploads in parts that were neither completed nor aborted.
    pub fn unfinished(&self) -> usize {
        let (status, body) = self.request("GET", "?uploads");
        assert_eq!(status, 200);
        String::from_utf8(body).unwrap().matches("<Upload>").count()
    }

    /// That `needle` is in no object.
    pub fn nothing_has(&self, needle: &str) {
        let names = self.names();
        assert!(!names.is_empty());
        for name in names {
            let bytes = self.object(&name);
            let needle = needle.as_bytes();
            let found = bytes.windows(needle.len()).any(|at| at == needle);
            assert!(!found, "{name}");
        }
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives, and its answer too.
    Passes,
    /// The connection ends after so many bytes of its body.
    Cut(u64),
    /// It arrives; its answer does not.
    Unanswered,
    /// It arrives without the conditions that it is made under.
    Unconditional,
    /// Its answer has no end, whatever its head says: bytes follow until the client has enough, or
    /// `ENDLESS` were sent.
    Endless,
}

/// Bytes behind an answer without an end, at most.
pub const ENDLESS: u64 = 400 << 20;
/// How many of them were sent.
pub static SENT: AtomicU64 = AtomicU64::new(0);

type Rule = Arc<Mutex<dyn FnMut(&str) -> Fate + Send>>;

/// Listens for clients and hands requests on to a server. One request a connection, as the server
/// has it.
pub struct Relay {
    pub port: u16,
}

impl Relay {
    /// `rule` is asked about every request, by its first line.
    pub fn started(server: u16, rule: impl FnMut(&str) -> Fate + Send + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let rule: Rule = Arc::new(Mutex::new(rule));
        // It ends with the test program.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let rule = Arc::clone(&rule);
                thread::spawn(move || drop(relayed(client, server, &rule)));
            }
        });
        Self { port }
    }
}

fn fate_of(rule: &Rule, request: &str) -> Fate {
    (rule.lock().unwrap())(request)
}

fn relayed(mut client: TcpStream, server: u16, rule: &Rule) -> std::io::Result<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if client.read(&mut byte)? == 0 {
            return Ok(());
        }
        head.extend_from_slice(&byte);
    }
    let text = String::from_utf8_lossy(&head).into_owned();
    let first = text.lines().next().unwrap_or_default().to_owned();
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.trim().parse::<u64>().ok())?
    });
    let length = length.unwrap_or(0);
    let fate = fate_of(rule, &first);
    let mut upstream = TcpStream::connect((Ipv4Addr::LOCALHOST, server))?;
    if fate == Fate::Unconditional {
        let kept = text.split_inclusive("\r\n");
        let kept = kept.filter(|line| !line.to_ascii_lowercase().starts_with("if-"));
        head = kept.collect::<String>().into_bytes();
    }
    upstream.write_all(&head)?;
    let pass = match fate {
        Fate::Cut(after) => after.min(length),
        _ => length,
    };
    std::io::copy(&mut (&client).take(pass), &mut upstream)?;
    if let Fate::Cut(_) = fate {
        upstream.shutdown(Shutdown::Both)?;
        return client.shutdown(Shutdown::Both);
    }
    let mut answer = Vec::new();
    upstream.read_to_end(&mut answer)?;
    match fate {
        Fate::Passes | Fate::Unconditional => client.write_all(&answer)?,
        Fate::Endless => endless(&mut client, &answer)?,
        Fate::Cut(_) | Fate::Unanswered => {}
    }
    client.shutdown(Shutdown::Both)
}

fn endless(client: &mut TcpStream, answer: &[u8]) -> std::io::Result<()> {
    let end = answer.windows(4).position(|at| at == b"\r\n\r\n").unwrap();
    let (head, body) = answer.split_at(end + 2);
    let head = String::from_utf8_lossy(head).into_owned();
    // `Content-Length` stays: the client wants one. How the body ends is what `Transfer-Encoding`
    // says (RFC 9112, section 6.3).
    for line in head.split_inclusive("\r\n") {
        if !line.to_ascii_lowercase().starts_with("connection") {
            client.write_all(line.as_bytes())?;
        }
    }
    client.write_all(b"Transfer-Encoding: chunked\r\n\r\n")?;
    let body = body.get(2..).unwrap_or_default();
    let more = vec![0; 1 << 20];
    for piece in std::iter::once(body).chain(std::iter::repeat(more.as_slice())) {
        if piece.is_empty() {
            continue;
        }
        // Before it goes: the client may have had enough of it by the time that the system has
        // taken it.
        if SENT.fetch_add(piece.len() as u64, Ordering::Relaxed) > ENDLESS {
            break;
        }
        client.write_all(format!("{:x}\r\n", piece.len()).as_bytes())?;
        client.write_all(piece)?;
        client.write_all(b"\r\n")?;
    }
    Ok(())
}
