//! Object headers: damage of every kind, wrong keys, slots, rekeying, anchors.

use strongroom_format::freshness::{Covered, FreshState};
use strongroom_format::header::{Anchor, ObjectKind, header_layout as at};
use strongroom_format::slot::{Argon2Cost, SlotKind};
use strongroom_keyring::{Purpose, inspect_checksum};

use crate::{code, new_object, open, passphrase, raw, recipient, with_checksum};

const PURPOSES: [Purpose; 14] = [
    Purpose::Page,
    Purpose::PageIv,
    Purpose::Wal,
    Purpose::Journal,
    Purpose::SuperJournal,
    Purpose::KeyringEntries,
    Purpose::KeyringBody,
    Purpose::PgRelation,
    Purpose::PgWal,
    Purpose::PgSlru,
    Purpose::PgControl,
    Purpose::PgMap,
    Purpose::PgStream,
    Purpose::PgContainer,
];

#[test]
fn every_flipped_bit_is_damage_or_not_this_format() {
    let opener = raw(1);
    let good = new_object(&opener).header_bytes();
    assert_eq!(good.len(), 3072);
    for offset in 0..good.len() {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[offset] ^= 1 << bit;
            let expected = match (offset, bit) {
                (0..16, _) => 3001,
                // Version 1 becomes 0: no version writes that, and the checksum says so.
                (16, 0) => 3003,
                (16..18, _) => 3002,
                _ => 3003,
            };
            assert_eq!(
                code(open(&bad, &opener)),
                expected,
                "byte {offset} bit {bit}"
            );
            assert!(!inspect_checksum(&bad), "byte {offset} bit {bit}");
        }
    }
    assert!(inspect_checksum(&good));
}

#[test]
fn every_change_by_someone_who_mends_the_checksum_is_found() {
    let opener = raw(1);
    let object = new_object(&opener)
        .rewrapped(&[&recipient(&opener), &recipient(&raw(2))])
        .unwrap();
    let good = object.header_bytes();
    // Two raw slots of 120 bytes each; the first one is ours.
    let (first, second) = (256..256 + 120, 256 + 120..256 + 240);
    let mut seen = std::collections::BTreeSet::new();
    for offset in 0..at::CHECKSUM.offset {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[offset] ^= 1 << bit;
            let got = code(open(&with_checksum(bad), &opener));
            let allowed: &[u16] = match offset {
                0..16 => &[3001],
                16..18 => &[3002, 3003],
                // Kind: unknown, or a keyring, which has no pages.
                18..20 => &[3003, 3007],
                20..24 => &[3003],
                24..40 => &[2002],
                40..48 => &[3004],
                48..50 => &[3003, 3004],
                50..52 => &[3003],
                52..60 => &[3003, 3004],
                // The epoch is bound into the slots; 1 becomes 0: malformed.
                60..64 => &[2002, 3003],
                64..72 => &[3003],
                72..80 => &[3004],
                // Bit 0 says that freshness is kept; the others, nothing.
                80 => &[3003, 3004],
                81..192 => &[3003],
                192..236 => &[3004],
                236..256 => &[3003],
                _ if first.contains(&offset) => &[2002, 3003],
                _ if second.contains(&offset) => &[3003, 3004],
                _ if offset < at::MAC.offset => &[3003],
                _ => &[3004],
            };
            assert!(allowed.contains(&got), "byte {offset} bit {bit}: {got}");
            seen.insert(got);
        }
    }
    assert_eq!(Vec::from_iter(seen), [2002, 3001, 3002, 3003, 3004]);
}

#[test]
fn truncation_at_every_length() {
    let opener = raw(1);
    let object = new_object(&opener);
    let whole = object.initial_bytes();
    assert_eq!(whole.len(), 4096);
    for length in 0..=whole.len() {
        let part = &whole[..length];
        let expected = match length {
            0..16 => 3001,
            16..3072 => 3006,
            _ => 0,
        };
        assert_eq!(code(open(part, &opener)), expected, "length {length}");
        let anchor = if length < 4096 { 3006 } else { 0 };
        assert_eq!(code(object.anchor(part)), anchor, "length {length}");
    }
}

#[test]
fn a_newer_version_is_told_before_damage() {
    let opener = raw(1);
    let mut newer = new_object(&opener).header_bytes();
    newer[16] = 2;
    assert_eq!(code(open(&newer, &opener)), 3002);
    newer[100] = 0xff;
    assert_eq!(code(open(&with_checksum(newer), &opener)), 3002);
}

#[test]
fn wrong_keys_of_each_kind_are_refused() {
    let sealed_raw = new_object(&raw(1)).header_bytes();
    let sealed_pass = new_object(&passphrase("right")).header_bytes();
    for (header, wrong) in [
        (&sealed_raw, raw(2)),
        (&sealed_raw, passphrase("right")),
        (&sealed_pass, passphrase("wrong")),
        (&sealed_pass, raw(1)),
    ] {
        assert_eq!(code(open(header, &wrong)), 2002);
    }
    assert_eq!(code(open(&sealed_raw, &raw(1))), 0);
    assert_eq!(code(open(&sealed_pass, &passphrase("right"))), 0);
    let other_kind = strongroom_keyring::Object::open(&sealed_raw, ObjectKind::Keyring, &raw(1));
    assert_eq!(code(other_kind), 3007);
}

#[test]
fn sub_keys_differ_by_purpose_object_and_epoch() {
    let opener = raw(1);
    let (one, two) = (new_object(&opener), new_object(&opener));
    let rekeyed = one.rekey_begun(&[]).unwrap();
    let mut keys = Vec::new();
    for purpose in PURPOSES {
        keys.push(one.subkey(1, purpose).unwrap());
        keys.push(two.subkey(1, purpose).unwrap());
        keys.push(rekeyed.subkey(2, purpose).unwrap());
        keys.push(one.derive(1, purpose, &[1; 32], b"").unwrap());
        keys.push(one.derive(1, purpose, &[2; 32], b"").unwrap());
        keys.push(one.derive(1, purpose, &[1; 32], b"x").unwrap());
        let old = rekeyed.subkey(1, purpose).unwrap();
        assert!(
            old.ct_eq(&one.subkey(1, purpose).unwrap()),
            "the old epoch still opens"
        );
    }
    for (index, key) in keys.iter().enumerate() {
        assert!(keys[index + 1..].iter().all(|other| !key.ct_eq(other)));
    }
    assert_eq!(code(one.subkey(2, Purpose::Page)), 4008);
    assert_eq!(code(one.subkey(0, Purpose::Page)), 4008);
    let finished = rekeyed.rekey_finished().unwrap();
    assert_eq!(code(finished.subkey(1, Purpose::Page)), 4008);
}

#[test]
fn key_slots_that_together_cost_too_much_are_refused_before_anything_is_derived() {
    let object = new_object(&passphrase("one"));
    let forged = |costs: &[(u32, u32)]| {
        let mut header = object.header().clone();
        let slot = header.slots[0].clone();
        header.slots = costs
            .iter()
            .map(|(m_kib, t)| {
                let mut slot = slot.clone();
                slot.kind = SlotKind::Passphrase(Argon2Cost {
                    m_kib: *m_kib,
                    t: *t,
                    p: 1,
                });
                slot
            })
            .collect();
        with_checksum(header.to_bytes().unwrap())
    };
    // A raw key tries no such slot, so that what is not refused costs nothing here.
    let gib = 1 << 20;
    assert_eq!(code(open(&forged(&[(4 * gib, 64)]), &raw(1))), 2002);
    assert_eq!(code(open(&forged(&[(gib, 64); 4]), &raw(1))), 2002);
    for too_much in [vec![(4 * gib, 64), (8, 1)], vec![(gib, 64); 5]] {
        assert_eq!(code(open(&forged(&too_much), &raw(1))), 3003);
        assert_eq!(code(open(&forged(&too_much), &passphrase("one"))), 3003);
    }
}

#[test]
fn a_second_open_of_a_passphrase_costs_no_argon2() {
    let secret = strongroom_crypto::SecretBytes::take(&mut b"p".to_vec()).unwrap();
    let cost = strongroom_keyring::Argon2Params {
        m_kib: 64 * 1024,
        t: 3,
        p: 1,
    };
    let slow = strongroom_keyring::Opener::passphrase(secret);
    let recipient = slow.recipient().unwrap().with_argon2(cost).unwrap();
    let start = std::time::Instant::now();
    let object = strongroom_keyring::Object::create(&crate::SQLITE, &recipient).unwrap();
    let header = object.header_bytes();
    let first = start.elapsed();
    let start = std::time::Instant::now();
    for _ in 0..10 {
        assert_eq!(code(open(&header, &slow)), 0);
    }
    assert!(
        start.elapsed() < first / 2,
        "{:?} for ten, {first:?} for one",
        start.elapsed()
    );
}

#[test]
fn rewrapping_replaces_the_slots_and_nothing_else() {
    let (one, two, three) = (raw(1), passphrase("two"), raw(3));
    let object = new_object(&one);
    let both = object
        .rewrapped(&[&recipient(&two), &recipient(&three)])
        .unwrap();
    let header = both.header_bytes();
    assert_eq!(both.header().sequence, object.header().sequence + 1);
    assert_eq!(both.epoch(), 1);
    assert_eq!(code(open(&header, &one)), 2002, "the old opener is out");
    for opener in [&two, &three] {
        let opened = open(&header, opener).unwrap();
        let (ours, before) = (
            opened.subkey(1, Purpose::Page).unwrap(),
            object.subkey(1, Purpose::Page).unwrap(),
        );
        assert!(ours.ct_eq(&before));
    }
    assert!(matches!(
        open(&header, &two).unwrap().opened_by(),
        SlotKind::Passphrase(_)
    ));
    assert_eq!(*open(&header, &three).unwrap().opened_by(), SlotKind::Raw);
    assert_eq!(code(object.rewrapped(&[])), 2019);
    assert_eq!(code(object.rewrapped(&[&recipient(&one); 8])), 0);
    assert_eq!(code(object.rewrapped(&[&recipient(&one); 9])), 3009);
}

#[test]
fn extending_leaves_the_slots_that_are_there() {
    let (one, two, three) = (raw(1), passphrase("two"), raw(3));
    let object = new_object(&one).extended(&[&recipient(&two)]).unwrap();
    let more = object.extended(&[&recipient(&three)]).unwrap();
    let header = more.header_bytes();
    assert_eq!(more.header().sequence, object.header().sequence + 1);
    assert_eq!(more.header().slots[..2], object.header().slots[..]);
    for opener in [&one, &two, &three] {
        assert_eq!(code(open(&header, opener)), 0);
    }
    assert_eq!(code(more.extended(&[])), 2019);
    assert_eq!(code(more.extended(&[&recipient(&one); 5])), 0);
    assert_eq!(code(more.extended(&[&recipient(&one); 6])), 3009);
}

#[test]
fn a_rekey_opens_both_epochs_until_it_is_finished() {
    let (old, new) = (raw(1), raw(2));
    let object = new_object(&old);
    let begun = object.rekey_begun(&[&recipient(&new)]).unwrap();
    assert_eq!((begun.epoch(), begun.previous_epoch()), (2, Some(1)));
    assert_eq!(code(begun.rekey_begun(&[&recipient(&new)])), 6011);
    let during = open(&begun.header_bytes(), &new).unwrap();
    assert_eq!(code(open(&begun.header_bytes(), &old)), 2002);
    let page = |object: &strongroom_keyring::Object, epoch| object.subkey(epoch, Purpose::Page);
    assert!(page(&during, 1).unwrap().ct_eq(&page(&object, 1).unwrap()));
    assert!(!page(&during, 2).unwrap().ct_eq(&page(&object, 1).unwrap()));
    let rewrapped = during.rewrapped(&[&recipient(&old)]).unwrap();
    assert!(
        page(&rewrapped, 1)
            .unwrap()
            .ct_eq(&page(&object, 1).unwrap()),
        "slots may change"
    );
    let finished = during.rekey_finished().unwrap();
    let after = open(&finished.header_bytes(), &new).unwrap();
    assert_eq!((after.epoch(), after.previous_epoch()), (2, None));
    assert_eq!(code(page(&after, 1)), 4008);
    assert_eq!(code(finished.rekey_finished()), 9001);
    let sequences = [&object, &begun, &finished].map(|object| object.header().sequence);
    assert_eq!(sequences, [1, 2, 3]);
}

#[test]
fn without_openers_a_rekey_keeps_the_slot_and_others_can_follow() {
    let opener = passphrase("same");
    let object = new_object(&opener);
    let follower = open(&object.header_bytes(), &opener).unwrap();
    let begun = object.rekey_begun(&[]).unwrap();
    assert_eq!(begun.header().slots[0].salt, object.header().slots[0].salt);
    assert_ne!(
        begun.header().slots[0].wrapped,
        object.header().slots[0].wrapped
    );
    let followed = follower.reload(&begun.header_bytes()).unwrap();
    assert!(
        followed
            .subkey(2, Purpose::Page)
            .unwrap()
            .ct_eq(&begun.subkey(2, Purpose::Page).unwrap())
    );
    let finished = begun.rekey_finished().unwrap();
    let followed = followed.reload(&finished.header_bytes()).unwrap();
    assert_eq!((followed.epoch(), followed.previous_epoch()), (2, None));
    // Two rewrites at once, as seen by a process that slept through the first.
    assert_eq!(
        follower.reload(&finished.header_bytes()).unwrap().epoch(),
        2
    );
    assert_eq!(code(open(&finished.header_bytes(), &opener)), 0);
}

#[test]
fn a_rekey_without_openers_drops_nobody_silently() {
    let (one, two) = (raw(1), raw(2));
    let shared = new_object(&one)
        .rewrapped(&[&recipient(&one), &recipient(&two)])
        .unwrap();
    assert_eq!(code(shared.rekey_begun(&[])), 2019);
    assert_eq!(
        code(shared.rekey_begun(&[&recipient(&one), &recipient(&two)])),
        0
    );
}

#[test]
fn reload_follows_new_slots_and_refuses_what_it_cannot_follow() {
    let (one, two) = (raw(1), raw(2));
    let object = new_object(&one);
    let follower = open(&object.header_bytes(), &one).unwrap();
    let rewrapped = object.rewrapped(&[&recipient(&two)]).unwrap();
    let followed = follower.reload(&rewrapped.header_bytes()).unwrap();
    assert_eq!(followed.header().sequence, 2);
    assert_eq!(
        code(followed.rekey_begun(&[])),
        2017,
        "its own slot is gone"
    );
    let rekeyed = rewrapped.rekey_begun(&[&recipient(&two)]).unwrap();
    assert_eq!(code(follower.reload(&rekeyed.header_bytes())), 2017);
    assert_eq!(
        code(follower.reload(&new_object(&one).header_bytes())),
        2017,
        "another object"
    );
    assert_eq!(
        code(followed.reload(&object.header_bytes())),
        3004,
        "an older header"
    );
    assert_eq!(
        code(follower.reload(&object.header_bytes())),
        0,
        "nothing changed"
    );
    let mut damaged = rewrapped.header_bytes();
    damaged[45] ^= 1;
    assert_eq!(code(follower.reload(&damaged)), 3003);
    assert_eq!(code(follower.reload(&with_checksum(damaged))), 3004);
}

#[test]
fn the_newest_valid_anchor_is_in_force() {
    let opener = raw(1);
    let object = new_object(&opener);
    let mut header = object.initial_bytes();
    assert_eq!(object.anchor(&header).unwrap().sequence, 1);
    let put = |header: &mut Vec<u8>, anchor: &Anchor| {
        let start = Anchor::offset(anchor.sequence);
        header[start..start + 512].copy_from_slice(&anchor.to_bytes());
    };
    for sequence in 2..6 {
        put(
            &mut header,
            &object
                .seal_anchor(sequence, [7; 16], None, sequence << 16)
                .unwrap(),
        );
        let found = object.anchor(&header).unwrap();
        assert_eq!((found.sequence, found.wal_generation), (sequence, [7; 16]));
        assert_eq!(found.seals, sequence << 16);
    }
    // Damage to the newest leaves the one before; damage to both leaves none.
    for byte in 0..512 {
        let mut damaged = header.clone();
        damaged[at::ANCHOR_A.offset + byte] ^= 1;
        assert_eq!(object.anchor(&damaged).unwrap().sequence, 4, "byte {byte}");
        damaged[at::ANCHOR_B.offset + 511 - byte] ^= 0x80;
        assert_eq!(code(object.anchor(&damaged)), 3010, "byte {byte}");
    }
    // A sector copied into the other one is no anchor, nor is another object's.
    let mut copied = header;
    copied.copy_within(
        at::ANCHOR_A.offset..at::ANCHOR_B.offset,
        at::ANCHOR_B.offset,
    );
    copied[at::ANCHOR_A.offset..at::ANCHOR_B.offset].fill(0);
    assert_eq!(code(object.anchor(&copied)), 3010);
    assert_eq!(
        code(object.anchor(&new_object(&opener).initial_bytes())),
        3010
    );
}

#[test]
fn anchors_of_both_epochs_hold_during_a_rekey() {
    let object = new_object(&raw(1));
    let header = object.initial_bytes();
    let begun = object.rekey_begun(&[]).unwrap();
    assert_eq!(begun.anchor(&header).unwrap().epoch, 1);
    let finished = begun.rekey_finished().unwrap();
    assert_eq!(
        code(finished.anchor(&header)),
        3010,
        "hence an anchor before finishing"
    );
    let anchor = begun.seal_anchor(2, [0; 16], None, 0).unwrap();
    let mut header = header;
    header[at::ANCHOR_B.offset..].copy_from_slice(&anchor.to_bytes());
    assert_eq!(finished.anchor(&header).unwrap().sequence, 2);
}

#[test]
fn errors_name_their_code() {
    let error = open(&[], &raw(1)).err().unwrap();
    assert_eq!(
        error.to_string(),
        "SR-3001: the file is not a sealed object"
    );
    let error = open(&new_object(&raw(1)).header_bytes(), &raw(2))
        .err()
        .unwrap();
    let expected = "SR-2002: no key slot opens with the key that was given (raw key)";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn an_anchor_keeps_freshness_exactly_when_the_header_says_so() {
    let opener = raw(1);
    let without = new_object(&opener);
    let bare = without.seal_anchor(3, [7; 16], None, 0).unwrap();
    let header = without.initial_bytes();
    let object = new_object(&opener).keeping_freshness().unwrap();
    let state = FreshState {
        journal: [5; 16],
        loose: true,
        ..FreshState::default()
    };
    let anchor = object.seal_anchor(3, [7; 16], Some(&state), 5).unwrap();
    assert_eq!(object.fresh_state(&anchor).unwrap(), state);
    assert_eq!(code(object.seal_anchor(3, [7; 16], None, 0)), 9001);
    assert_eq!(code(without.seal_anchor(3, [7; 16], Some(&state), 0)), 9001);
    // The flag is the header's: an anchor of the other sort is none.
    let mut own = object.initial_bytes();
    let first = object.anchor(&own).unwrap();
    assert_eq!(object.fresh_state(&first).unwrap(), FreshState::default());
    own[3072..3584].copy_from_slice(&bare.to_bytes());
    assert_eq!(code(object.anchor(&own)), 3010);
    let mut other = header;
    other[3072..3584].copy_from_slice(&anchor.to_bytes());
    assert_eq!(code(without.anchor(&other)), 3010);
    // What is sealed for one sequence does not open for another, nor does a changed byte.
    let mut moved = anchor;
    moved.sequence = 5;
    assert_eq!(code(object.fresh_state(&moved)), 3010);
    let mut changed = anchor;
    changed.freshness[20] ^= 1;
    assert_eq!(code(object.fresh_state(&changed)), 3010);
    // Another digest, another count of pages, another root.
    let roots = [([0; 32], 0), ([1; 32], 0), ([0; 32], 1)]
        .map(|(digest, pages)| object.fresh_root(&Covered { digest, pages }).unwrap());
    assert!(roots[0] != roots[1] && roots[0] != roots[2] && roots[1] != roots[2]);
}
