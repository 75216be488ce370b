//! Goal: no bytes from outside make a parser panic or accept what it would not write. Method: the
//! fuzz targets' own functions over every truncation and single-byte change of valid records, and
//! over seeded noise.
#![expect(clippy::indexing_slicing, reason = "a test that panics has failed")]

use strongroom_format::backup::{
    FamilyHeader, FileEnd, ItemHead, ItemKind, Member, MemberKind, SegmentHead, SetRecord,
    is_relative_path,
};
use strongroom_format::certificate::{CertificateRecord, SealedPrivateKey};
use strongroom_format::fuzz;
use strongroom_format::header::{
    Anchor, Canary, Cipher, Header, HeaderError, ObjectKind, SLOTS_MAX, WrappedKey,
};
use strongroom_format::keyring::{Body, Entry, KeyState, PURPOSE_WRAP};
use strongroom_format::postgres::container::ContainerHeader;
use strongroom_format::postgres::convert::{Action, Done, State};
use strongroom_format::postgres::stream::StreamHeader;
use strongroom_format::slot::{Argon2Cost, Slot, SlotKind};
use strongroom_format::sqlite::{AuxKind, Prologue, WalGeometry};

fn slot(kind: SlotKind) -> Slot {
    Slot {
        kind,
        salt: [7; 32],
        nonce: [8; 12],
        wrapped: [9; 48],
    }
}

fn header(slots: Vec<Slot>) -> Header {
    Header {
        kind: ObjectKind::Sqlite,
        object_id: [1; 16],
        created_unix_s: 1_700_000_000,
        cipher: Cipher::Aes256Gcm,
        unit_size: 4096,
        unit_reserve: 32,
        epoch: 3,
        previous_epoch: 2,
        sequence: 9,
        freshness: false,
        sealed_zeros: false,
        bound_names: false,
        previous_key: WrappedKey {
            nonce: [2; 12],
            key: [3; 32],
            tag: [4; 16],
        },
        canary: Canary {
            nonce: [5; 12],
            value: [6; 16],
            tag: [7; 16],
        },
        slots,
        mac: [10; 32],
        checksum: [11; 32],
    }
}

fn three_slots() -> Vec<Slot> {
    vec![
        slot(SlotKind::Passphrase(Argon2Cost {
            m_kib: 65536,
            t: 3,
            p: 4,
        })),
        slot(SlotKind::Raw),
        slot(SlotKind::Keyring {
            id: "accounts".to_owned(),
            version: 2,
        }),
    ]
}

/// A slot for a certificate whose RSA modulus has this many bits.
fn certificate_slot(bits: usize) -> Slot {
    slot(SlotKind::Certificate {
        id: [0xa5; 32],
        secret: vec![0x5a; bits / 8],
    })
}

/// Xorshift64: the same noise in every run.
fn noise(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn for_every_change(record: &[u8], check: fn(&[u8])) {
    for length in 0..=record.len() {
        check(&record[..length]);
    }
    let mut changed = record.to_vec();
    for at in 0..record.len() {
        for bit in 0..8 {
            changed[at] ^= 1 << bit;
            check(&changed);
            changed[at] ^= 1 << bit;
        }
    }
}

#[test]
fn header_survives_every_change() {
    let bytes = header(three_slots()).to_bytes().unwrap();
    assert_eq!(Header::parse(&bytes).unwrap(), header(three_slots()));
    for_every_change(&bytes, fuzz::header);
    for kind in three_slots() {
        for_every_change(&kind.to_bytes().unwrap(), fuzz::header);
    }
    let anchor = Anchor {
        sequence: 4,
        epoch: 1,
        wal_generation: [3; 16],
        freshness: [5; 168],
        seals: 6 << 16,
        mac: [4; 32],
    };
    for_every_change(&anchor.to_bytes(), fuzz::header);
}

#[test]
fn header_refuses_what_no_version_writes() {
    let valid = header(three_slots()).to_bytes().unwrap();
    let change = |at: usize, value: u8| {
        let mut bytes = valid.clone();
        bytes[at] = value;
        Header::parse(&bytes)
    };
    assert_eq!(change(0, 0), Err(HeaderError::NotSealed));
    assert_eq!(change(16, 2), Err(HeaderError::Newer(2)));
    assert_eq!(change(16, 0), Err(HeaderError::Malformed("VERSION")));
    assert_eq!(change(60, 0), Err(HeaderError::Malformed("EPOCH")));
    assert_eq!(change(64, 1), Err(HeaderError::Malformed("PREVIOUS_EPOCH")));
    let keeps_freshness = Header {
        freshness: true,
        ..header(three_slots())
    };
    assert_eq!(change(80, 1), Ok(keeps_freshness));
    for not_a_databases in [2, 3, 4, 0x80] {
        assert_eq!(
            change(80, not_a_databases),
            Err(HeaderError::Malformed("FEATURES"))
        );
    }
    let keyring = Header {
        kind: ObjectKind::Keyring,
        unit_size: 0,
        unit_reserve: 0,
        freshness: true,
        ..header(three_slots())
    };
    assert_eq!(keyring.to_bytes(), Err(HeaderError::Malformed("FEATURES")));
    assert_eq!(change(100, 1), Err(HeaderError::Malformed("RESERVED_A")));
    assert_eq!(Header::parse(&valid[..3071]), Err(HeaderError::Truncated));
    let nine = vec![slot(SlotKind::Raw); SLOTS_MAX + 1];
    assert_eq!(
        header(nine).to_bytes(),
        Err(HeaderError::Malformed("SLOT_COUNT"))
    );
}

#[test]
fn keyring_survives_every_change() {
    let entry = |name: &str, version| Entry {
        name: name.to_owned(),
        version,
        state: KeyState::Active,
        purpose: PURPOSE_WRAP,
        created_unix_s: 5,
        wrapped: WrappedKey {
            nonce: [1; 12],
            key: [2; 32],
            tag: [3; 16],
        },
    };
    let body = Body {
        generation: 7,
        exported_generation: 6,
        provider: 2,
        provider_argument: "ROOT_KEY".to_owned(),
        entries: vec![entry("a", 1), entry("a", 2)],
        certificates: Vec::new(),
    };
    let mut bytes = body.to_bytes().unwrap();
    // What a writer of keys alone leaves there: zero, as before there were certificates.
    assert!(bytes[28..40].iter().all(|&byte| byte == 0));
    bytes.extend_from_slice(&[9; 32]);
    assert_eq!(Body::parse(&bytes).unwrap().0, body);
    for_every_change(&bytes, fuzz::keyring);

    let certified = Body {
        certificates: vec![certificate("x", true), certificate("y", false)],
        ..body
    };
    let mut bytes = certified.to_bytes().unwrap();
    bytes.extend_from_slice(&[9; 32]);
    assert_eq!(Body::parse(&bytes).unwrap().0, certified);
    for_every_change(&bytes, fuzz::keyring);
}

fn certificate(name: &str, held: bool) -> CertificateRecord {
    CertificateRecord {
        name: name.to_owned(),
        state: KeyState::Retired,
        created_unix_s: 6,
        exported_unix_s: if held { 7 } else { 0 },
        id: [4; 32],
        der: vec![0x30; 101],
        key: held.then(|| SealedPrivateKey {
            nonce: [1; 12],
            tag: [2; 16],
            bytes: vec![3; 130],
        }),
    }
}

#[test]
fn a_certificates_record_is_canonical_or_refused() {
    let held = certificate("backup-2026", true);
    let bytes = held.to_bytes().unwrap();
    assert_eq!(bytes.len(), (232_usize + 101 + 130).next_multiple_of(8));
    assert_eq!(
        CertificateRecord::parse(&bytes),
        Some((held.clone(), &[][..]))
    );
    let refused = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = bytes.clone();
        change(&mut bytes);
        CertificateRecord::parse(&bytes).is_none()
    };
    assert!(refused(&|bytes| bytes[6] = 3), "a state");
    assert!(refused(&|bytes| bytes[92] = 1), "a reserved byte");
    assert!(
        refused(&|bytes| bytes[104 + 11] = b'x'),
        "a byte after the name"
    );
    assert!(refused(&|bytes| bytes[28] += 2), "a longer key");
    assert!(refused(&|bytes| *bytes.last_mut().unwrap() = 1), "padding");
    assert!(refused(&|bytes| bytes.truncate(460)), "cut short");

    // Without a private key nothing may stand where its nonce, tag and mark are.
    let bytes = certificate("public", false).to_bytes().unwrap();
    for at in [16, 64, 76] {
        let mut bytes = bytes.clone();
        bytes[at] = 1;
        assert_eq!(CertificateRecord::parse(&bytes), None, "byte {at}");
    }
    let mut empty = held;
    empty.key.as_mut().unwrap().bytes.clear();
    assert_eq!(empty.to_bytes(), None, "an empty key would read as none");
    for (der, key) in [(0, 1), (16_385, 1), (1, 8193)] {
        let mut beyond = certificate("x", true);
        beyond.der.resize(der, 0);
        beyond.key.as_mut().unwrap().bytes.resize(key, 0);
        assert_eq!(beyond.to_bytes(), None);
    }
}

#[test]
fn slots_for_certificates_fit_as_specified() {
    let backup = |slots| Header {
        kind: ObjectKind::Backup,
        unit_size: 0,
        unit_reserve: 0,
        ..header(slots)
    };
    for (bits, length, fit) in [(2048, 408, 6), (3072, 536, 5), (4096, 664, 4)] {
        let one = certificate_slot(bits);
        let bytes = one.to_bytes().unwrap();
        assert_eq!(bytes.len(), length);
        for_every_change(&bytes, fuzz::header);
        let made = backup(vec![one.clone(); fit]);
        let bytes = made.to_bytes().unwrap();
        assert_eq!(Header::parse(&bytes), Ok(made));
        let refused = backup(vec![one; fit + 1]).to_bytes();
        assert_eq!(refused, Err(HeaderError::Malformed("SLOTS")));
    }
    // Eight openers: three certificates, and five names of 104 bytes.
    let named = || {
        slot(SlotKind::Keyring {
            id: "n".repeat(104),
            version: 1,
        })
    };
    let mut eight = vec![certificate_slot(3072); 3];
    eight.resize_with(8, named);
    let made = backup(eight);
    assert_eq!(Header::parse(&made.to_bytes().unwrap()), Ok(made));
}

#[test]
fn a_slots_secret_and_its_kind_belong_together() {
    for bits in [0, 1024, 2040, 2056, 4104, 8192] {
        assert_eq!(certificate_slot(bits).to_bytes(), None, "{bits}");
    }
    let change = |slot: &Slot, at: usize, value: u8| {
        let mut bytes = slot.to_bytes().unwrap();
        bytes[at] = value;
        Slot::parse(&bytes).is_none()
    };
    let certified = certificate_slot(3072);
    assert!(change(&certified, 4, 2), "the derivation of another kind");
    assert!(change(&certified, 20, 1), "a key version");
    assert!(change(&certified, 8, 1), "a cost");
    for kind in [1, 2, 3, 5] {
        assert!(change(&certified, 0, kind), "kind {kind}");
    }
    // A plain slot must not become one for a certificate, nor carry a secret that nobody looks at.
    for plain in three_slots() {
        assert!(change(&plain, 0, 4));
        assert!(change(&plain, 58, 8));
    }
}

#[test]
fn what_backups_are_made_of_survives_every_change() {
    let record = SetRecord {
        cipher: 1,
        length: 300,
        set_id: [7; 16],
        seal: [8; 32],
    };
    assert_eq!(SetRecord::parse(&record.to_bytes()), Ok(record));
    for_every_change(&record.to_bytes(), fuzz::backup);
    let family = FamilyHeader {
        cipher: 5,
        family: 1,
        families: 2,
        set_id: [7; 16],
        salt: [8; 32],
        prefix: [9; 7],
    };
    assert_eq!(FamilyHeader::parse(&family.to_bytes()), Ok(family));
    for_every_change(&family.to_bytes(), fuzz::backup);
    for (length, plain_length, compressed) in [(1, 1, false), (5, 1 << 20, true)] {
        let head = SegmentHead {
            length,
            plain_length,
            last: false,
            compressed,
        };
        assert_eq!(SegmentHead::parse(&head.to_bytes()), Some(head));
        for_every_change(&head.to_bytes(), fuzz::backup);
    }
    for_every_change(&SegmentHead::LAST.to_bytes(), fuzz::backup);
    let member = Member {
        kind: MemberKind::Link,
        mode: 0o777,
        owner: 1,
        group: 2,
        seconds: -3,
        nanoseconds: 4,
        path: b"a/b".to_vec(),
        target: b"../c".to_vec(),
    };
    let bytes = member.to_bytes().unwrap();
    assert_eq!(Member::parse(&bytes), Some(member));
    for_every_change(&bytes, fuzz::backup);
    let head = ItemHead {
        kind: ItemKind::Member,
        length: u32::try_from(bytes.len()).unwrap(),
    };
    assert_eq!(ItemHead::parse(&head.to_bytes()), Some(head));
    for_every_change(&head.to_bytes(), fuzz::backup);
    let end = FileEnd {
        size: 9,
        digest: [1; 32],
    };
    assert_eq!(FileEnd::parse(&end.to_bytes()), Some(end));
    for_every_change(&end.to_bytes(), fuzz::backup);
}

#[test]
fn a_member_never_leaves_its_root() {
    let paths: [&[u8]; 14] = [
        b"", b"/", b"/etc", b"a/", b"a//b", b"..", b"../a", b"a/..", b"a/../b", b"./a", b"a/.",
        b"a/./b", b"a\0b", b"\0",
    ];
    for path in paths {
        assert!(!is_relative_path(path), "{path:?}");
    }
    let paths: [&[u8]; 6] = [b".", b"a", b"a/b", b"...", b"a/..b", b"\xff/ \n"];
    for path in paths {
        assert!(is_relative_path(path), "{path:?}");
    }
}

#[test]
fn prologues_and_sizes_survive_every_change() {
    let prologue = Prologue {
        kind: AuxKind::Wal,
        unit: 4096,
        epoch: 1,
        object_id: [1; 16],
        salt: [2; 32],
        page1_before: [0; 32],
        page1_nonce: [0; 12],
    };
    for_every_change(&prologue.to_bytes(), fuzz::auxiliary);
    for page_size in [512, 4096, 65536] {
        let geometry = WalGeometry { page_size };
        for frames in [0, 1, 2, 1000] {
            let logical = 32 + frames * geometry.frame_logical();
            assert_eq!(
                geometry.logical_size(geometry.physical_size(logical)),
                logical
            );
        }
    }
}

#[test]
fn an_instances_files_survive_every_change() {
    let file_id = [7; 16];
    for bound in [false, true] {
        let header = ContainerHeader { file_id, bound };
        for_every_change(&header.to_bytes(), fuzz::postgres);
    }
    let mut stream = vec![0; 4096];
    stream[..64].copy_from_slice(&StreamHeader { nonce: [3; 16] }.prefix());
    for_every_change(&stream, fuzz::postgres);
    let state = State {
        action: Action::Encrypt,
        object_id: [9; 16],
        done: vec![Done {
            inode: 12,
            path: b"base/5/2619".to_vec(),
        }],
    };
    for_every_change(state.to_text().as_bytes(), fuzz::postgres);
}

/// XTS is for instances, and instances have nothing else.
#[test]
fn a_cipher_serves_its_kinds_only() {
    let of = |kind, cipher, unit_size, unit_reserve| Header {
        kind,
        cipher,
        unit_size,
        unit_reserve,
        ..header(three_slots())
    };
    use Cipher::{Aes128Xts, Aes256Ctr, Aes256Gcm, Aes256Xts};
    for cipher in [Aes128Xts, Aes256Xts] {
        let made = of(ObjectKind::Postgres, cipher, 8192, 0);
        let bytes = made.to_bytes().unwrap();
        assert_eq!(Header::parse(&bytes), Ok(made));
        for_every_change(&bytes, fuzz::header);
        for (size, reserve) in [(0, 0), (4096, 0), (8192, 32), (16_384, 0)] {
            let refused = of(ObjectKind::Postgres, cipher, size, reserve).to_bytes();
            assert_eq!(refused, Err(HeaderError::Malformed("UNIT_SIZE")));
        }
        for (kind, size, reserve) in [(ObjectKind::Sqlite, 4096, 32), (ObjectKind::Keyring, 0, 0)] {
            let refused = of(kind, cipher, size, reserve).to_bytes();
            assert_eq!(refused, Err(HeaderError::Malformed("CIPHER")));
        }
    }
    for cipher in [Aes256Gcm, Aes256Ctr] {
        let refused = of(ObjectKind::Postgres, cipher, 8192, 0).to_bytes();
        assert_eq!(refused, Err(HeaderError::Malformed("CIPHER")));
    }
}

#[test]
fn noise_is_refused_or_canonical() {
    let mut state = 0x5eed_1234_5678_9abc;
    for _ in 0..20_000 {
        let length = usize::try_from(noise(&mut state) % 4200).unwrap();
        let mut bytes: Vec<u8> = (0..length)
            .map(|_| noise(&mut state).to_le_bytes()[0])
            .collect();
        for check in [
            fuzz::header,
            fuzz::keyring,
            fuzz::auxiliary,
            fuzz::postgres,
            fuzz::backup,
        ] {
            check(&bytes);
        }
        // Noise behind a valid magic reaches further into the parsers.
        let magic = strongroom_format::header::MAGIC;
        if bytes.len() >= 64 {
            bytes[..16].copy_from_slice(&magic);
            bytes[16..24].copy_from_slice(&[1, 0, 1, 0, 0, 16, 0, 0]);
            fuzz::header(&bytes);
        }
    }
}
