//! Goal: nothing is left of a secret once it is dropped (C3). Method: remember the address, drop
//! the secret, read the address again. One test, so that no other thread takes over the cells, and
//! one secret stays alive, so that the arena stays mapped.
#![expect(unsafe_code, reason = "reads memory after its owner is gone")]

use strongroom_crypto::{CtrKey, GcmKey, Locked, MacKey, SecretBytes, SecretKey, XtsKey};

/// Reads `len` bytes of an arena that is known to be mapped still.
fn peek(address: *const u8, len: usize) -> Vec<u8> {
    // SAFETY: the arena is mapped while any secret in it lives, and no other thread of this
    // process uses it.
    (0..len)
        .map(|at| unsafe { address.add(at).read_volatile() })
        .collect()
}

fn all_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

#[test]
fn a_dropped_secret_leaves_zeros() {
    let keeper = SecretKey::generate().unwrap();

    let key = SecretKey::take(&mut [0xa5; 32]).unwrap();
    let at = key.expose().as_ptr();
    assert_eq!(peek(at, 32), [0xa5; 32]);
    drop(key);
    assert!(all_zero(&peek(at, 32)), "a key survived its drop");

    let bytes = SecretBytes::take(&mut [0x5a; 5000]).unwrap();
    let at = bytes.as_slice().as_ptr();
    assert_eq!(peek(at, 5000), [0x5a; 5000]);
    drop(bytes);
    assert!(all_zero(&peek(at, 5000)), "a passphrase survived its drop");

    let value = Locked::new([0xc3_u8; 777]).unwrap();
    let at = value.as_ptr();
    assert_eq!(peek(at, 777), [0xc3; 777]);
    drop(value);
    assert!(all_zero(&peek(at, 777)), "a locked value survived its drop");

    // libcrypto's own structures, which hold the schedules: three pairs of contexts fill several
    // pages of the arena.
    let mut xts_bytes: Vec<u8> = (0..64).collect();
    let xts_bytes = SecretBytes::take(&mut xts_bytes).unwrap();
    drop(XtsKey::new(&xts_bytes).unwrap());
    let start = page_of(&keeper);
    let whole_before = peek(start, 8 * 4096);
    let xts = XtsKey::new(&xts_bytes).unwrap();
    let whole_with = peek(start, 8 * 4096);
    let changed = whole_before
        .iter()
        .zip(&whole_with)
        .filter(|(before, with)| before != with)
        .count();
    assert!(changed > 2000, "the schedules lie in these pages");
    drop(xts);
    assert_eq!(
        peek(start, 8 * 4096),
        whole_before,
        "an XTS key survived its drop"
    );
    drop(xts_bytes);

    // Expanded keys give no address away; compare the arena before and after instead.
    let page = page_of(&keeper);
    let before = peek(page, 4096);
    let gcm = GcmKey::new(&keeper).unwrap();
    let ctr = CtrKey::new(&keeper).unwrap();
    let mac = MacKey::new(&keeper).unwrap();
    assert_ne!(
        peek(page, 4096),
        before,
        "the expanded keys lie in this page"
    );
    drop((gcm, ctr, mac));
    assert_eq!(
        peek(page, 4096),
        before,
        "an expanded key survived its drop"
    );
}

fn page_of(key: &SecretKey) -> *const u8 {
    key.expose().as_ptr().map_addr(|address| address & !4095)
}
