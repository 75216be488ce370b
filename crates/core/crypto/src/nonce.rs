//! Random 96-bit nonces from a small per-thread buffer that a forked child can never reuse.
//!
//! A system call per nonce costs about as much as sealing a 4 KiB page; a buffer brings that down
//! by a factor of ten. But a buffer copied by `fork` hands both processes the same nonces, and two
//! messages under one nonce give away GCM's authentication key. Hence:
//!
//! - C7: the buffer lives in a page that the kernel replaces by zeros in every child
//!   (`MADV_WIPEONFORK`). Position, contents and the mark that they are valid share that page, so
//!   a child finds either nothing or, without a fork, everything. If the kernel refuses, nothing
//!   is buffered and each nonce is a system call.
//! - A nonce is wiped from the buffer as it is handed out.
//! - The buffer is per thread, so there is no lock that `fork` could copy while it is held.
//!
//! - A virtual machine that is resumed twice from one snapshot has the same buffer twice, of up to
//!   85 nonces a thread, and does not know it. Each nonce is therefore combined by XOR with the
//!   time in nanoseconds at which it is handed out: it is as random as before, and two machines get
//!   the same nonce only if they ask for it in the same nanosecond of their clocks.
//!
//! Must not: be called from a signal handler.
#![expect(
    unsafe_code,
    reason = "the buffer is a raw page that the kernel wipes on fork"
)]

use std::cell::RefCell;
use std::ptr::NonNull;
use std::time::{SystemTime, UNIX_EPOCH};

use zeroize::Zeroize;

use crate::error::CryptoError;
use crate::mapping::Mapping;
use crate::random::fill_random;

const NONCE_LEN: usize = 12;
const NONCES_PER_FILL: usize = 85;
/// Any value but 0, which is what the kernel leaves behind.
const VALID: u64 = 0x5354_524f_4e47_524d;

thread_local! {
    static NONCES: RefCell<Nonces> = const { RefCell::new(Nonces::Unmapped) };
}

/// Returns a random nonce for AES-GCM.
///
/// Random 96-bit nonces are safe for 2^32 messages under one key (NIST SP 800-38D, section 8.3).
/// The owner of the key keeps count.
///
/// # Errors
/// [`CryptoError::Random`] if the kernel's generator fails.
pub fn nonce12() -> Result<[u8; NONCE_LEN], CryptoError> {
    NONCES
        .try_with(|nonces| match nonces.try_borrow_mut() {
            Ok(mut nonces) => nonces.draw(),
            Err(_) => unbuffered(),
        })
        // The thread is ending and its buffer is gone.
        .unwrap_or_else(|_| unbuffered())
}

/// Returns a random nonce by a system call of its own. Errors: [`CryptoError::Random`] when the
/// kernel gives no random bytes.
fn unbuffered() -> Result<[u8; NONCE_LEN], CryptoError> {
    let mut nonce = [0; NONCE_LEN];
    fill_random(&mut nonce)?;
    Ok(nonce)
}

/// Combines a random nonce with the time by XOR. For each time this is a permutation, so that the
/// results repeat no more often than random nonces do.
fn with_time(mut random: [u8; NONCE_LEN], time: SystemTime) -> [u8; NONCE_LEN] {
    // A clock before 1970 counts as 1970: the nonce is then the random one.
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    for (byte, of_time) in random.iter_mut().zip(since.as_nanos().to_le_bytes()) {
        *byte ^= of_time;
    }
    random
}

/// The nonces of one thread.
enum Nonces {
    /// The thread has drawn no nonce yet.
    Unmapped,
    /// The kernel does not offer wipe-on-fork; never buffer.
    Refused,
    Buffered(Buffer),
}

impl Nonces {
    /// Returns the next nonce, from the buffer where there can be one. Maps the buffer at the first
    /// call. Errors: [`CryptoError::Random`] if the kernel gives no random bytes.
    fn draw(&mut self) -> Result<[u8; NONCE_LEN], CryptoError> {
        if matches!(self, Self::Unmapped) {
            *self = Buffer::new().map_or(Self::Refused, Self::Buffered);
        }
        match self {
            Self::Buffered(buffer) => buffer.draw(),
            Self::Unmapped | Self::Refused => unbuffered(),
        }
    }
}

/// The contents of the page that the kernel wipes in a forked child.
#[repr(C)]
struct Page {
    /// [`VALID`] when the rest is filled; 0 in a forked child.
    valid: u64,
    /// Index of the next unused nonce.
    next: usize,
    nonces: [[u8; NONCE_LEN]; NONCES_PER_FILL],
}

/// `MADV_WIPEONFORK` works on whole pages; the smallest page is 4 KiB.
const _: () = assert!(size_of::<Page>() <= 4096);

struct Buffer(Mapping);

impl Buffer {
    /// Maps an empty buffer. `None` when the kernel does not wipe pages on fork, or refuses the
    /// mapping.
    fn new() -> Option<Self> {
        let mapping = Mapping::new(size_of::<Page>())?;
        mapping.wipe_on_fork().then_some(Self(mapping))
    }

    /// Returns the next nonce, combined with the time, and wipes it from the buffer. Fills the
    /// buffer when it is used up, or was wiped by a fork. Errors: [`CryptoError::Random`] when the
    /// kernel gives no random bytes.
    fn draw(&mut self) -> Result<[u8; NONCE_LEN], CryptoError> {
        let page = self.page();
        if page.valid != VALID || page.next >= page.nonces.len() {
            page.fill()?;
        }
        let slot = page.nonces.get_mut(page.next).ok_or(CryptoError::Random)?;
        page.next += 1;
        let nonce = with_time(*slot, SystemTime::now());
        slot.zeroize();
        Ok(nonce)
    }

    /// Returns the contents of the buffer's page.
    fn page(&mut self) -> &mut Page {
        let mut page: NonNull<Page> = self.0.base().cast();
        // SAFETY: the mapping is page-aligned, at least as long as `Page`, initialised (zeros are a
        // valid `Page`), and borrowed exclusively. The kernel changes it only inside `fork`, which
        // cannot run during this borrow: the thread that forks is the one that owns the buffer.
        unsafe { page.as_mut() }
    }
}

impl Page {
    /// Fills the page with random nonces. Errors: [`CryptoError::Random`] when the kernel gives no
    /// random bytes; the page is then invalid.
    fn fill(&mut self) -> Result<(), CryptoError> {
        self.valid = 0;
        fill_random(self.nonces.as_flattened_mut())?;
        self.next = 0;
        self.valid = VALID;
        Ok(())
    }
}

impl Drop for Buffer {
    /// Wipes the nonces that are left.
    fn drop(&mut self) {
        self.page().nonces.as_flattened_mut().zeroize();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn nonces_never_repeat_across_refills_and_threads() {
        let per_thread = 10 * NONCES_PER_FILL + 7;
        let threads: Vec<_> = (0..4)
            .map(|_| {
                std::thread::spawn(move || {
                    (0..per_thread)
                        .map(|_| nonce12().unwrap())
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        let drawn: BTreeSet<[u8; 12]> = threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect();
        assert_eq!(drawn.len(), 4 * per_thread);
    }

    #[test]
    fn a_nonce_is_wiped_as_it_is_handed_out() {
        let mut buffer = Buffer::new().expect("this kernel offers MADV_WIPEONFORK");
        let first = buffer.draw().unwrap();
        assert_ne!(first, [0; NONCE_LEN]);
        assert_eq!(buffer.page().nonces[0], [0; NONCE_LEN]);
        assert_ne!(buffer.page().nonces[1], [0; NONCE_LEN]);
    }

    /// Two machines that were resumed from one snapshot: one page of nonces in two buffers.
    #[test]
    fn the_same_buffer_at_another_time_gives_other_nonces() {
        let mut one = Buffer::new().expect("this kernel offers MADV_WIPEONFORK");
        one.draw().unwrap();
        let mut other = Buffer::new().expect("this kernel offers MADV_WIPEONFORK");
        *other.page() = Page {
            valid: VALID,
            next: one.page().next,
            nonces: one.page().nonces,
        };
        let first: Vec<_> = (0..20).map(|_| one.draw().unwrap()).collect();
        std::thread::sleep(std::time::Duration::from_millis(2));
        for nonce in first {
            assert_ne!(other.draw().unwrap(), nonce);
        }
        let at = |nanos| UNIX_EPOCH + std::time::Duration::from_nanos(nanos);
        assert_eq!(with_time([7; 12], at(0)), [7; 12]);
        assert_eq!(with_time([0; 12], at(0x0102))[..3], [2, 1, 0]);
        assert_ne!(with_time([7; 12], at(5)), with_time([8; 12], at(5)));
    }

    /// What a child sees: the whole page is zeros. It must fill the buffer, not hand out zeros.
    #[test]
    fn a_wiped_page_is_filled_again() {
        let mut buffer = Buffer::new().expect("this kernel offers MADV_WIPEONFORK");
        buffer.draw().unwrap();
        *buffer.page() = Page {
            valid: 0,
            next: 0,
            nonces: [[0; NONCE_LEN]; NONCES_PER_FILL],
        };
        assert_ne!(buffer.draw().unwrap(), [0; NONCE_LEN]);
        assert_eq!(buffer.page().valid, VALID);
    }

    #[test]
    fn without_wipe_on_fork_nothing_is_buffered() {
        let mut nonces = Nonces::Refused;
        assert_ne!(nonces.draw().unwrap(), nonces.draw().unwrap());
        assert!(matches!(nonces, Nonces::Refused));
    }
}
