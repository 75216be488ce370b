//! A source of whatever members are given, which says that it is one kind and describes another:
//! for sets that this program would never make, and for sets of clusters without a server.

use std::path::Path;

use strongroom_backup::{
    Created, Description, Kind, PostgresFacts, Result, Source, StreamWriter, TablespaceFacts,
    create,
};
use strongroom_format::backup::{Member, MemberKind};

use super::{Place, options};

/// A source of whatever members are given.
pub(crate) struct Forged {
    pub(crate) said: Kind,
    pub(crate) described: Kind,
    pub(crate) members: Vec<(Member, &'static [u8])>,
    /// Bytes that the head is said to have counted.
    pub(crate) bytes: Option<u64>,
}

impl Source for Forged {
    fn kind(&self) -> Kind {
        self.said
    }

    fn shown(&self) -> String {
        String::from("forged")
    }

    fn prepare(&mut self) -> Result<()> {
        Ok(())
    }

    fn write(&mut self, stream: &mut StreamWriter<'_>) -> Result<()> {
        for (member, content) in &self.members {
            stream.member(member)?;
            if member.kind == MemberKind::File {
                stream.data(content)?;
                stream.end_file()?;
            }
        }
        Ok(())
    }

    fn describe(&self, description: &mut Description) {
        description.kind = self.described;
        let spaces = self.members.iter().map(|(member, _)| member);
        let spaces = spaces.filter(|member| member.kind == MemberKind::Tablespace);
        description.postgres = Some(PostgresFacts {
            tablespaces: spaces.map(|_| TablespaceFacts::default()).collect(),
            ..PostgresFacts::default()
        });
        if let Some(bytes) = self.bytes {
            description.backup_size_bytes = bytes;
        }
    }
}

pub(crate) fn member(kind: MemberKind, path: &str) -> Member {
    Member {
        kind,
        mode: if kind == MemberKind::File {
            0o600
        } else {
            0o700
        },
        owner: 54_321,
        group: 54_321,
        seconds: 0,
        nanoseconds: 0,
        path: path.as_bytes().to_vec(),
        target: Vec::new(),
    }
}

pub(crate) fn directory(path: &str) -> (Member, &'static [u8]) {
    (member(MemberKind::Directory, path), b"")
}

pub(crate) fn file(path: &str, content: &'static [u8]) -> (Member, &'static [u8]) {
    (member(MemberKind::File, path), content)
}

pub(crate) fn link(path: &str, target: &Path) -> (Member, &'static [u8]) {
    let mut link = member(MemberKind::Link, path);
    link.target = target.to_str().unwrap().as_bytes().to_vec();
    (link, b"")
}

pub(crate) fn space(path: &str) -> (Member, &'static [u8]) {
    let mut space = member(MemberKind::Tablespace, path);
    space.target = b"/elsewhere".to_vec();
    (space, b"")
}

/// What every cluster has, and more.
pub(crate) fn cluster(more: Vec<(Member, &'static [u8])>) -> Forged {
    let mut members = vec![
        directory("."),
        directory("global"),
        file("global/pg_control", b"control"),
        file("PG_VERSION", b"18\n"),
    ];
    members.extend(more);
    Forged {
        said: Kind::Files,
        described: Kind::Postgres,
        members,
        bytes: None,
    }
}

pub(crate) fn forged(place: &Place, mut source: Forged) -> Result<Created> {
    create(&place.medium(), &mut source, &options(None), &mut |_| {})
}
