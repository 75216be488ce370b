//! Goal: a stream that no writer makes is refused, whoever sealed it, and nothing is ever written
//! outside the root. Method: streams put together by hand.

#![expect(
    clippy::unwrap_in_result,
    reason = "what a test cannot set up, it cannot test"
)]

use std::fs;

use strongroom_crypto::sha256;
use strongroom_format::backup::{FileEnd, ItemHead, ItemKind, Member, MemberKind, StreamEnd};
use strongroom_format::code;

use super::reader::{Event, Input, StreamReader};
use crate::files::Files;
use crate::{Error, Result};

struct Bytes(Vec<Vec<u8>>);

impl Input for Bytes {
    fn next_bytes(&mut self) -> Result<Option<&mut Vec<u8>>> {
        // The first one was handed out before; empty at the start.
        self.0.remove(0);
        Ok(self.0.first_mut())
    }
}

#[derive(Clone, Default)]
struct Stream {
    bytes: Vec<u8>,
    end: StreamEnd,
}

impl Stream {
    fn item(mut self, kind: ItemKind, body: &[u8]) -> Self {
        let length = u32::try_from(body.len()).unwrap();
        self.bytes
            .extend_from_slice(&ItemHead { kind, length }.to_bytes());
        self.bytes.extend_from_slice(body);
        self
    }

    fn member(mut self, kind: MemberKind, path: &str) -> Self {
        let has_target = matches!(kind, MemberKind::Link | MemberKind::Tablespace);
        let member = Member {
            kind,
            mode: 0o700,
            owner: 0,
            group: 0,
            seconds: 1,
            nanoseconds: 2,
            path: path.as_bytes().to_vec(),
            target: if has_target {
                b"/tmp".to_vec()
            } else {
                Vec::new()
            },
        };
        self.end.members += 1;
        self.item(ItemKind::Member, &member.to_bytes().unwrap())
    }

    fn file(mut self, path: &str, content: &[u8]) -> Self {
        self.end.files += 1;
        self.end.size += content.len() as u64;
        let end = FileEnd {
            size: content.len() as u64,
            digest: sha256(&[content]),
        };
        self.member(MemberKind::File, path)
            .item(ItemKind::Data, content)
            .item(ItemKind::FileEnd, &end.to_bytes())
    }

    fn ended(self) -> Self {
        let end = self.end.to_bytes();
        self.item(ItemKind::StreamEnd, &end)
    }

    /// Reads it, cut into pieces of `cut` bytes, into a directory.
    fn restored(&self, cut: usize) -> Result<StreamEnd> {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        fs::create_dir(&root).unwrap();
        let mut pieces: Vec<Vec<u8>> = self.bytes.chunks(cut).map(<[u8]>::to_vec).collect();
        pieces.insert(0, Vec::new());
        let mut input = Bytes(pieces);
        let mut stream = StreamReader::new(&mut input);
        let mut files = Files::new(
            &root,
            &place.path().join("spaces"),
            false,
            crate::Kept::default(),
        )?;
        let end = loop {
            match stream.next()? {
                Event::Member { member, again } => files.member(member, again)?,
                Event::Data(data) => files.data(data)?,
                Event::FileEnd => files.end_file()?,
                Event::End(end) => break end,
            }
        };
        assert_eq!(
            fs::read_dir(place.path()).unwrap().count(),
            1,
            "only the root"
        );
        Ok(end)
    }
}

fn start() -> Stream {
    Stream::default().member(MemberKind::Directory, ".")
}

#[track_caller]
fn refused(stream: &Stream) {
    for cut in [1, 13, 100_000] {
        let error: Error = stream.restored(cut).unwrap_err();
        assert_eq!(error.code(), &code::STREAM, "{error}");
    }
}

#[test]
fn a_sound_stream_is_read_however_it_is_cut() {
    let stream = start()
        .member(MemberKind::Directory, "d")
        .file("d/f", b"content")
        .member(MemberKind::Link, "d/l")
        .member(MemberKind::Directory, "d")
        .ended();
    for cut in 1..stream.bytes.len() {
        assert_eq!(stream.restored(cut).unwrap().files, 1);
    }
    for length in 0..stream.bytes.len() {
        let mut short = stream.clone();
        short.bytes.truncate(length);
        refused(&short);
    }
}

#[test]
fn nothing_is_written_through_a_link_or_over_anything() {
    refused(
        &start()
            .member(MemberKind::Link, "l")
            .file("l/f", b"x")
            .ended(),
    );
    refused(
        &start()
            .member(MemberKind::Link, "l")
            .file("l", b"x")
            .ended(),
    );
    refused(
        &start()
            .member(MemberKind::Link, "l")
            .member(MemberKind::Directory, "l")
            .ended(),
    );
    refused(&start().file("f", b"x").file("f", b"y").ended());
    refused(
        &start()
            .file("f", b"x")
            .member(MemberKind::Directory, "f")
            .ended(),
    );
    refused(&start().file("f", b"x").file("f/g", b"y").ended());
    refused(
        &start()
            .member(MemberKind::Directory, "d")
            .file("d", b"x")
            .ended(),
    );
    refused(
        &start()
            .member(MemberKind::Directory, "d")
            .member(MemberKind::Link, "d")
            .ended(),
    );
    refused(&start().file("d/f", b"parent was not named").ended());
    refused(&start().member(MemberKind::Tablespace, "pg_tblspc").ended());
}

#[test]
fn items_come_in_their_order_and_counts_agree() {
    let end = FileEnd {
        size: 0,
        digest: sha256(&[]),
    };
    refused(&start().item(ItemKind::Data, b"x").ended());
    refused(&start().item(ItemKind::FileEnd, &end.to_bytes()).ended());
    refused(&start().member(MemberKind::File, "f").ended());
    refused(
        &start()
            .member(MemberKind::File, "f")
            .member(MemberKind::Link, "l")
            .ended(),
    );
    let mut more = start().file("f", b"x");
    more.end.files += 1;
    refused(&more.ended());
    // In the same piece; what comes in a later one is for the pipeline to refuse.
    let beyond = start().ended().item(ItemKind::Data, b"x");
    assert_eq!(beyond.restored(4096).unwrap_err().code(), &code::STREAM);
    let wrong = start()
        .member(MemberKind::File, "f")
        .item(ItemKind::Data, b"x");
    let mut wrong = wrong.item(ItemKind::FileEnd, &end.to_bytes());
    wrong.end.files = 1;
    let error = wrong.ended().restored(64).unwrap_err();
    assert_eq!(error.code(), &code::FILE_DIGEST);
}
