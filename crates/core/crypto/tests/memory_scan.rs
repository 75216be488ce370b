//! Goal: after each operation, every copy of a live key lies in locked memory; once it is dropped,
//! there is none anywhere in the process (C11).
//!
//! Method: each operation gets a key of its own, remembered only with every byte inverted, and runs
//! on a thread of its own, which then stands still so that nothing covers up what it left on its
//! stack. Meanwhile all readable memory of the process is searched for each half of the key:
//! halves, because a vector register spilled to the stack holds 16 bytes. For HMAC the key is also
//! searched for in the two masked forms the algorithm makes of it. One test, so that no other
//! test's stack is in the way.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[expect(dead_code, reason = "shared with tests that read more of it")]
mod support;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use strongroom_crypto::{
    Argon2Params, Certificate, CtrKey, GcmKey, Identity, MacKey, PrivateKey, SecretBytes,
    SecretKey, XtsKey, argon2id, fill_random, hkdf, hkdf_bytes,
};

/// A secret that is known without being in memory.
struct Needle {
    what: &'static str,
    inverted: Vec<u8>,
}

impl Needle {
    fn matches(&self, window: &[u8]) -> bool {
        window
            .iter()
            .zip(&self.inverted)
            .all(|(byte, inverted)| *byte == !*inverted)
    }
}

fn needles(what: &'static str, secret: &[u8]) -> Vec<Needle> {
    // 0: as it is; the others: HMAC's inner and outer masks (RFC 2104).
    let masks = [0_u8, 0x36, 0x5c];
    let halves = secret.chunks_exact(16);
    halves
        .flat_map(|half| {
            masks.map(|mask| Needle {
                what,
                inverted: half.iter().map(|byte| !(byte ^ mask)).collect(),
            })
        })
        .collect()
}

struct Hit {
    what: &'static str,
    locked: bool,
    place: String,
}

/// Searches every mapping that can be read and written, except the buffer it reads into. What
/// cannot be written is the program and its libraries, as they are in their files.
fn scan(needles: &[Needle]) -> Vec<Hit> {
    let memory = File::open("/proc/self/mem").unwrap();
    let mut buffer = vec![0_u8; 1 << 20];
    let own = buffer.as_ptr().addr()..buffer.as_ptr().addr() + buffer.len();
    let mut hits = Vec::new();
    for region in support::regions() {
        if !region.permissions.starts_with("rw") || region.name == "[vvar]" {
            continue;
        }
        let mut at = region.range.start;
        while at < region.range.end {
            let want = buffer.len().min(region.range.end - at);
            let Ok(len) = memory.read_at(&mut buffer[..want], u64::try_from(at).unwrap()) else {
                break;
            };
            for (offset, what) in found_in(&buffer[..len], needles) {
                let address = at + offset;
                if !own.contains(&address) {
                    let place = format!("{address:x} in {} {:x?}", region.name, region.range);
                    hits.push(Hit {
                        what,
                        locked: region.has("lo"),
                        place,
                    });
                }
            }
            // Overlap by one needle less one byte, so that none is missed between two reads.
            at += if at + len < region.range.end {
                len - 15
            } else {
                len
            };
        }
    }
    buffer.fill(0);
    hits
}

fn found_in(haystack: &[u8], needles: &[Needle]) -> Vec<(usize, &'static str)> {
    let mut by_first: Vec<Vec<&Needle>> = (0..256).map(|_| Vec::new()).collect();
    for needle in needles {
        by_first[usize::from(!needle.inverted[0])].push(needle);
    }
    let mut found = Vec::new();
    for (offset, window) in haystack.windows(16).enumerate() {
        for needle in &by_first[usize::from(window[0])] {
            if needle.matches(window) {
                found.push((offset, needle.what));
            }
        }
    }
    found
}

/// A key that is known, but only inverted.
fn fresh(what: &'static str) -> (SecretKey, Vec<Needle>) {
    let key = SecretKey::generate().unwrap();
    let known = needles(what, key.expose());
    (key, known)
}

/// Runs `operation` on a thread of its own and, while that thread stands still, searches memory for
/// `known` and for what `more` knows from the result. Every copy must lie in locked memory, and
/// there must be at least one, or the search is blind. Returns the result and all that is known.
fn leaves_nothing<T: Send>(
    operation: impl FnOnce() -> T + Send,
    mut known: Vec<Needle>,
    more: impl FnOnce(&T) -> Vec<Needle>,
) -> (T, Vec<Needle>) {
    let result = Mutex::new(None);
    let (done, seen) = (AtomicBool::new(false), AtomicBool::new(false));
    let hits = std::thread::scope(|scope| {
        scope.spawn(|| {
            let value = operation();
            *result.lock().unwrap() = Some(value);
            done.store(true, Ordering::Release);
            // Not a lock or a sleep: their frames would overwrite what is searched for.
            while !seen.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
        });
        while !done.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        known.extend(more(result.lock().unwrap().as_ref().unwrap()));
        let hits = scan(&known);
        seen.store(true, Ordering::Release);
        hits
    });
    for needle in &known {
        assert!(
            hits.iter().any(|hit| hit.what == needle.what),
            "blind for {}",
            needle.what
        );
    }
    report(
        "outside locked memory",
        hits.iter().filter(|hit| !hit.locked),
    );
    (result.into_inner().unwrap().unwrap(), known)
}

fn nothing_more<T>(_: &T) -> Vec<Needle> {
    Vec::new()
}

#[test]
fn no_copy_of_a_key_leaves_locked_memory_or_outlives_its_owner() {
    let mut all = ciphers();
    all.extend(derivations());
    all.extend(rsa());
    report("after the drop", scan(&all).iter());
}

/// Sets up and uses each kind of key; all are dropped on return.
fn ciphers() -> Vec<Needle> {
    let mut page = vec![1; 4096];

    let (key, known) = fresh("AES-GCM");
    let (gcm, known) = leaves_nothing(|| GcmKey::new(&key).unwrap(), known, nothing_more);
    let (tag, known) = leaves_nothing(
        || gcm.seal(&[2; 12], b"aad", &mut page).unwrap(),
        known,
        nothing_more,
    );
    let open = || gcm.open(&[2; 12], b"aad", &mut page, &tag).unwrap();
    let ((), known) = leaves_nothing(open, known, nothing_more);
    let tag = gcm.seal(&[3; 12], b"aad", &mut page).unwrap();
    let mut opened = vec![0; page.len()];
    let open = || {
        gcm.open_to(&[3; 12], b"aad", &page, &mut opened, &tag)
            .unwrap();
    };
    let ((), mut all) = leaves_nothing(open, known, nothing_more);

    let (key, known) = fresh("AES-CTR");
    let (ctr, known) = leaves_nothing(|| CtrKey::new(&key).unwrap(), known, nothing_more);
    let ((), known) = leaves_nothing(|| ctr.apply(&[3; 16], &mut page), known, nothing_more);
    let ((), known) = leaves_nothing(|| ctr.apply(&[4; 16], &mut page[..40]), known, nothing_more);
    all.extend(known);

    all.extend(xts());

    let (key, known) = fresh("HMAC");
    let (mac, known) = leaves_nothing(|| MacKey::new(&key).unwrap(), known, nothing_more);
    let (tag, known) = leaves_nothing(|| mac.mac(&[&page]), known, nothing_more);
    assert!(mac.verify(&[&page], &tag));
    all.extend(known);

    let (key, known) = fresh("copy");
    let (_copy, known) = leaves_nothing(|| key.try_clone().unwrap(), known, nothing_more);
    all.extend(known);
    all
}

/// XTS keys are twice as long, and derived for the purpose. libcrypto keeps their schedules.
fn xts() -> Vec<Needle> {
    let mut all = Vec::new();
    let (from, mut to) = (vec![5; 8192], vec![0; 8192]);
    for (len, name) in [(32, "AES-128-XTS"), (64, "AES-256-XTS")] {
        let (input, known) = fresh("HKDF input of a long key");
        let (bytes, input_known) = leaves_nothing(
            || hkdf_bytes(&input, b"salt", b"use", len).unwrap(),
            known,
            |okm| needles(name, okm.as_slice()),
        );
        all.extend(input_known);
        let known = needles(name, bytes.as_slice());
        let (key, known) = leaves_nothing(|| XtsKey::new(&bytes).unwrap(), known, nothing_more);
        drop(bytes);
        let encrypt = || key.encrypt(&[2; 16], &from, &mut to).unwrap();
        let ((), known) = leaves_nothing(encrypt, known, nothing_more);
        let decrypt = || {
            key.decrypt(&[2; 16], &from[..4096], &mut to[..4096])
                .unwrap();
        };
        let ((), known) = leaves_nothing(decrypt, known, nothing_more);
        let unit = || key.decrypt(&[3; 16], &from[..16], &mut to[..16]).unwrap();
        let ((), known) = leaves_nothing(unit, known, nothing_more);
        all.extend(known);
    }
    all
}

/// Derives a key in each way; all are dropped on return.
fn derivations() -> Vec<Needle> {
    let (key, known) = fresh("HKDF input");
    let (_okm, mut all) = leaves_nothing(
        || hkdf(&key, b"salt", b"use").unwrap(),
        known,
        |okm| needles("HKDF output", okm.expose()),
    );

    // A key that is used without being seen: another derivation tells what it is.
    let (key, mut known) = fresh("HKDF input of a cipher");
    let same = hkdf(&key, b"salt", b"use").unwrap();
    known.extend(needles("derived AES-GCM", same.expose()));
    let derive = || GcmKey::derive(&key, b"salt", b"use").unwrap();
    let (_gcm, known) = leaves_nothing(derive, known, nothing_more);
    all.extend(known);

    let mut pass = SecretBytes::with_capacity(48).unwrap();
    fill_random(pass.as_mut_slice()).unwrap();
    let known = needles("passphrase", pass.as_slice());
    let params = Argon2Params {
        m_kib: 256,
        t: 2,
        p: 2,
    };
    let (_key, known) = leaves_nothing(
        || argon2id(&pass, b"saltsalt", params).unwrap(),
        known,
        |key| needles("Argon2 output", key.expose()),
    );
    all.extend(known);
    all
}

/// Makes, writes, reads and uses a private key; all are dropped on return.
fn rsa() -> Vec<Needle> {
    let generate = || PrivateKey::generate(3072).unwrap();
    let (key, known) = leaves_nothing(generate, Vec::new(), |key| {
        numbers(key.to_pkcs8().unwrap().as_slice())
    });
    let (pkcs8, known) = leaves_nothing(|| key.to_pkcs8().unwrap(), known, nothing_more);
    drop(key);
    let read = || PrivateKey::from_der(pkcs8.as_slice()).unwrap();
    let (key, known) = leaves_nothing(read, known, nothing_more);
    drop(pkcs8);
    let certify = || Certificate::self_signed(&key, "CN=x", 1).unwrap();
    let (certificate, mut known) = leaves_nothing(certify, known, nothing_more);

    let (secret, wrapped_known) = fresh("key under RSA");
    known.extend(wrapped_known);
    let wrap = || certificate.wrap(&secret, b"label").unwrap();
    let (wrapped, known) = leaves_nothing(wrap, known, nothing_more);
    let unwrap = || key.unwrap(&wrapped, b"label").unwrap();
    let (unwrapped, mut known) = leaves_nothing(unwrap, known, nothing_more);
    assert!(unwrapped.ct_eq(&secret));

    let passphrase = letters(48);
    known.extend(needles("passphrase of a file", passphrase.as_slice()));
    let write = || Identity::to_pkcs12(&certificate, &key, "x", &passphrase).unwrap();
    let (file, known) = leaves_nothing(write, known, nothing_more);
    let read = || Identity::read(&file, Some(&passphrase)).unwrap();
    let (identity, known) = leaves_nothing(read, known, nothing_more);
    assert_eq!(identity.key.unwrap().id(), certificate.id());
    known
}

/// A passphrase that is text.
fn letters(len: usize) -> SecretBytes {
    let mut text = SecretBytes::with_capacity(len).unwrap();
    fill_random(text.as_mut_slice()).unwrap();
    for byte in text.as_mut_slice() {
        *byte = b'a' + *byte % 26;
    }
    text
}

/// The secret numbers of an RSA key in PKCS #8, in the order of their bytes in a file and in that
/// in libcrypto's memory.
fn numbers(pkcs8: &[u8]) -> Vec<Needle> {
    // PrivateKeyInfo { version, algorithm, OCTET STRING { RSAPrivateKey { version, n, e, d, p, q,
    // dp, dq, qinv } } }.
    let mut info = contents(pkcs8).0;
    for _ in 0..2 {
        info = contents(info).1;
    }
    let mut rest = contents(contents(info).0).0;
    for _ in 0..3 {
        rest = contents(rest).1;
    }
    let mut found = Vec::new();
    for _ in ["d", "p", "q", "dp", "dq", "qinv"] {
        let (number, tail) = contents(rest);
        // From the end: the first byte may be a zero for the sign. A third of them finds every
        // whole copy.
        for part in number.rchunks_exact(16).step_by(3) {
            let forms: [Vec<u8>; 2] = [
                part.iter().map(|byte| !byte).collect(),
                part.iter().rev().map(|byte| !byte).collect(),
            ];
            found.extend(forms.map(|inverted| Needle {
                what: "RSA private key",
                inverted,
            }));
        }
        rest = tail;
    }
    assert_eq!(found.len(), 2 * (8 + 5 * 4));
    found
}

/// The contents of the DER element at the start, and what follows it.
fn contents(der: &[u8]) -> (&[u8], &[u8]) {
    let (len, head) = match der[1] {
        short @ ..=0x7f => (usize::from(short), 2),
        0x81 => (usize::from(der[2]), 3),
        _ => (usize::from(der[2]) << 8 | usize::from(der[3]), 4),
    };
    der[head..].split_at(len)
}

fn report<'a>(when: &str, hits: impl Iterator<Item = &'a Hit>) {
    let lines: Vec<String> = hits
        .map(|hit| format!("{}: {}", hit.what, hit.place))
        .collect();
    assert!(lines.is_empty(), "found {when}:\n{}", lines.join("\n"));
}
