//! A web server that serves one file honestly, unless it is told to lie. Plain HTTP on this host;
//! one thread a connection.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

/// What was asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    /// From 0, of all requests.
    pub(crate) number: usize,
    pub(crate) start: usize,
    /// The last byte's place.
    pub(crate) last: usize,
    pub(crate) if_match: Option<String>,
    pub(crate) if_range: Option<String>,
    pub(crate) no_cache: bool,
    pub(crate) accept_encoding: Option<String>,
}

/// What is answered.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) way: Way,
}

impl Answer {
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.remove(name);
        self.headers.push((name.to_owned(), value.to_owned()));
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.headers
            .retain(|(known, _)| !known.eq_ignore_ascii_case(name));
    }
}

/// How an answer is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Whole,
    /// So many bytes of the body, then the connection is closed.
    Cut(usize),
    /// The header, then nothing more.
    Stall,
    /// A byte every 50 ms.
    Drip,
    /// The body again and again, without a length.
    Endless,
    /// Chunked, in pieces of 1000 bytes.
    Chunked,
    /// Nothing at all: closed.
    Close,
    /// No header, ever.
    Silent,
}

/// The file that is served, and its ETag.
pub(crate) type File = (Vec<u8>, String);
type Lie = Box<dyn FnMut(&Asked, &mut Answer) + Send>;

struct State {
    file: Mutex<File>,
    lie: Mutex<Lie>,
    asked: Mutex<Vec<Asked>>,
    stop: AtomicBool,
}

pub(crate) struct Liar {
    pub(crate) url: String,
    state: Arc<State>,
    accepting: Option<JoinHandle<()>>,
    port: u16,
}

impl Liar {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State {
            file: Mutex::new((bytes, "\"one\"".to_owned())),
            lie: Mutex::new(Box::new(|_, _| {})),
            asked: Mutex::default(),
            stop: AtomicBool::new(false),
        });
        let shared = Arc::clone(&state);
        let accepting = spawn(move || {
            for socket in listener.incoming() {
                if shared.stop.load(Ordering::Relaxed) {
                    return;
                }
                let shared = Arc::clone(&shared);
                if let Ok(socket) = socket {
                    spawn(move || serve(socket, &shared));
                }
            }
        });
        Self {
            url: format!("http://127.0.0.1:{port}/x.db?token=secret"),
            state,
            accepting: Some(accepting),
            port,
        }
    }

    /// From now on, every answer goes through `lie`.
    pub(crate) fn lie(&self, lie: impl FnMut(&Asked, &mut Answer) + Send + 'static) {
        *self.state.lie.lock().unwrap() = Box::new(lie);
    }

    /// Another file in its place.
    pub(crate) fn replace(&self, bytes: Vec<u8>, etag: &str) {
        *self.state.file.lock().unwrap() = (bytes, etag.to_owned());
    }

    /// What was asked for since the last call.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.state.asked.lock().unwrap())
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        if let Some(accepting) = self.accepting.take() {
            accepting.join().unwrap();
        }
    }
}

fn serve(socket: TcpStream, state: &State) {
    socket
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let mut reader = BufReader::new(socket);
    while let Some(mut asked) = request(&mut reader) {
        let mut answer = honest(&asked, &state.file.lock().unwrap());
        {
            let mut all = state.asked.lock().unwrap();
            asked.number = all.len();
            all.push(asked.clone());
        }
        (state.lie.lock().unwrap())(&asked, &mut answer);
        if send(reader.get_mut(), &answer, state).is_none() {
            return;
        }
    }
}

fn request(reader: &mut BufReader<TcpStream>) -> Option<Asked> {
    let mut asked = Asked::default();
    let mut first = true;
    loop {
        let mut line = String::new();
        if reader.by_ref().take(8192).read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if line.is_empty() {
            return (!first).then_some(asked);
        }
        if first {
            assert!(
                line.starts_with("GET /x.db?token=secret HTTP/1.1"),
                "{line}"
            );
            first = false;
            continue;
        }
        let (name, value) = line.split_once(": ")?;
        match name.to_ascii_lowercase().as_str() {
            "range" => {
                let (start, last) = value.strip_prefix("bytes=")?.split_once('-')?;
                (asked.start, asked.last) = (start.parse().ok()?, last.parse().ok()?);
            }
            "if-match" => asked.if_match = Some(value.to_owned()),
            "if-range" => asked.if_range = Some(value.to_owned()),
            "cache-control" => asked.no_cache = value == "no-cache",
            "accept-encoding" => asked.accept_encoding = Some(value.to_owned()),
            _ => {}
        }
    }
}

fn honest(asked: &Asked, (bytes, etag): &File) -> Answer {
    let mut answer = Answer {
        status: 206,
        headers: vec![("ETag".to_owned(), etag.clone())],
        body: Vec::new(),
        way: Way::Whole,
    };
    if asked.if_match.as_ref().is_some_and(|wanted| wanted != etag) {
        answer.status = 412;
        return answer;
    }
    if asked.start >= bytes.len() {
        answer.status = 416;
        return answer;
    }
    let last = asked.last.min(bytes.len() - 1);
    let range = format!("bytes {}-{last}/{}", asked.start, bytes.len());
    answer.set("Content-Range", &range);
    answer.body = bytes[asked.start..=last].to_vec();
    answer
}

/// `None`: the connection is at its end.
fn send(socket: &mut TcpStream, answer: &Answer, state: &State) -> Option<()> {
    let rest = || {
        while !state.stop.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(20));
        }
    };
    match answer.way {
        Way::Close => return None,
        Way::Silent => {
            rest();
            return None;
        }
        _ => {}
    }
    let mut head = format!("HTTP/1.1 {} So\r\n", answer.status);
    for (name, value) in &answer.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    match answer.way {
        Way::Chunked => head.push_str("Transfer-Encoding: chunked\r\n"),
        Way::Endless => head.push_str("Connection: close\r\n"),
        _ if answer
            .headers
            .iter()
            .any(|(name, _)| name == "Content-Length") => {}
        _ => head.push_str(&format!("Content-Length: {}\r\n", answer.body.len())),
    }
    head.push_str("\r\n");
    socket.write_all(head.as_bytes()).ok()?;
    match answer.way {
        Way::Whole => socket.write_all(&answer.body).ok(),
        Way::Cut(len) => {
            socket
                .write_all(&answer.body[..len.min(answer.body.len())])
                .ok()?;
            None
        }
        Way::Stall => {
            rest();
            None
        }
        Way::Drip => {
            for byte in &answer.body {
                socket.write_all(&[*byte]).ok()?;
                sleep(Duration::from_millis(50));
            }
            Some(())
        }
        Way::Endless => loop {
            socket.write_all(&answer.body).ok()?;
        },
        Way::Chunked => {
            for piece in answer.body.chunks(1000) {
                socket
                    .write_all(format!("{:x}\r\n", piece.len()).as_bytes())
                    .ok()?;
                socket.write_all(piece).ok()?;
                socket.write_all(b"\r\n").ok()?;
            }
            socket.write_all(b"0\r\n\r\n").ok()
        }
        Way::Close | Way::Silent => None,
    }
}
