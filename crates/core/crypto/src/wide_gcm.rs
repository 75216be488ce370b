//! AES-256-GCM by AWS-LC, for processors with vector AES of 512 bits: there it opens a page in two
//! thirds of the time that ring takes. Elsewhere ring is faster, and is used (docs/decisions/0032).
//!
//! Invariants:
//! - C11: AWS-LC copies the GHASH table to its stack in every call and leaves round keys in
//!   registers: each call is followed by a wipe of both.
//! - C14: a context is written when it is made and never afterwards, so threads share one; it is a
//!   plain value in locked memory, and owns nothing elsewhere.
//!
//! Must not: be used on a processor that [`WideGcm::is_for_this_processor`] does not name.
#![expect(unsafe_code, reason = "calls a C library")]

use std::ptr::{null, null_mut};

use aws_lc_sys::{
    EVP_AEAD_CTX, EVP_AEAD_CTX_cleanup, EVP_AEAD_CTX_init, EVP_AEAD_CTX_open_gather,
    EVP_AEAD_CTX_seal_scatter, EVP_aead_aes_256_gcm,
};

use crate::error::{CryptoError, OpenError};
use crate::harden::wipe_after_wide;
use crate::secret::Locked;

const TAG_LEN: usize = 16;

/// An expanded key.
pub(crate) struct WideGcm(Locked<Context>);

/// AWS-LC's structure, which holds key schedule and GHASH table themselves. All zeros: not
/// initialised.
struct Context(EVP_AEAD_CTX);

// SAFETY: C14; AWS-LC says of EVP_AEAD_CTX_seal and _open that they may be called from several
// threads (openssl/aead.h).
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Drop for Context {
    /// Releases what AWS-LC holds for the context, which is nothing outside it.
    fn drop(&mut self) {
        // SAFETY: initialised, or zeros, which is what this function takes for a context that never
        // was.
        unsafe { EVP_AEAD_CTX_cleanup(&raw mut self.0) };
    }
}

impl WideGcm {
    /// Whether this processor has what makes AWS-LC the faster one (its
    /// `crypto_gcm_avx512_enabled`).
    pub(crate) fn is_for_this_processor() -> bool {
        std::arch::is_x86_feature_detected!("vaes")
            && std::arch::is_x86_feature_detected!("vpclmulqdq")
            && std::arch::is_x86_feature_detected!("avx512f")
            && std::arch::is_x86_feature_detected!("avx512bw")
            && std::arch::is_x86_feature_detected!("avx512dq")
            && std::arch::is_x86_feature_detected!("avx512vl")
    }

    /// Expands 32 bytes in locked memory. Whoever calls this wipes the stack. Errors:
    /// [`CryptoError::OutOfLockedMemory`] without memory for keys; [`CryptoError::Library`] when
    /// the library fails.
    #[inline(never)]
    pub(crate) fn new(key: &[u8]) -> Result<Self, CryptoError> {
        // SAFETY: a C structure of integers and a pointer, for which zeros are a value.
        let mut cell = Locked::new(Context(unsafe { std::mem::zeroed() }))?;
        // SAFETY: a static table of AWS-LC's.
        let cipher = unsafe { EVP_aead_aes_256_gcm() };
        let context = &raw mut cell.value_mut().0;
        // SAFETY: the context is writable and zeros; the key has the length that is given.
        let done = unsafe {
            EVP_AEAD_CTX_init(
                context,
                cipher,
                key.as_ptr(),
                key.len(),
                TAG_LEN,
                null_mut(),
            )
        };
        match done {
            1 => Ok(Self(cell)),
            _ => Err(CryptoError::Library),
        }
    }

    /// Encrypts in place, returns the tag, and wipes the stack. The caller has checked the length.
    /// Errors: [`CryptoError::Library`] if AWS-LC fails.
    pub(crate) fn seal(
        &self,
        nonce: &[u8; 12],
        aad: &[u8],
        in_out: &mut [u8],
    ) -> Result<[u8; 16], CryptoError> {
        let sealed = self.seal_only(nonce, aad, in_out);
        wipe_after_wide();
        sealed
    }

    /// Encrypts in place and returns the tag, without the wipe. Not inlined, so that the wipe
    /// reaches its frames. Errors: [`CryptoError::Library`] if AWS-LC fails.
    #[inline(never)]
    fn seal_only(
        &self,
        nonce: &[u8; 12],
        aad: &[u8],
        in_out: &mut [u8],
    ) -> Result<[u8; 16], CryptoError> {
        let (mut tag, mut tag_len) = ([0; TAG_LEN], 0);
        let (buffer, len) = (in_out.as_mut_ptr(), in_out.len());
        // SAFETY: all lengths are those of the slices; input and output are the same buffer, which
        // openssl/aead.h permits.
        let done = unsafe {
            EVP_AEAD_CTX_seal_scatter(
                &raw const self.0.0,
                buffer,
                tag.as_mut_ptr(),
                &raw mut tag_len,
                TAG_LEN,
                nonce.as_ptr(),
                nonce.len(),
                buffer,
                len,
                null(),
                0,
                aad.as_ptr(),
                aad.len(),
            )
        };
        match (done, tag_len) {
            (1, TAG_LEN) => Ok(tag),
            _ => Err(CryptoError::Library),
        }
    }

    /// Verifies and decrypts in place, and wipes the stack. After a failure the buffer may contain
    /// anything; the caller wipes it (C8).
    pub(crate) fn open(
        &self,
        nonce: &[u8; 12],
        aad: &[u8],
        in_out: &mut [u8],
        tag: &[u8; 16],
    ) -> Result<(), OpenError> {
        let (buffer, len) = (in_out.as_mut_ptr(), in_out.len());
        // SAFETY: one buffer, readable and writable for `len` bytes.
        let opened = unsafe { self.open_only(nonce, aad, buffer, buffer, len, tag) };
        wipe_after_wide();
        opened
    }

    /// Verifies and decrypts from one buffer into another, and wipes the stack. After a failure
    /// `to` may contain anything; the caller wipes it (C8). Buffers of different lengths are a
    /// failure too.
    pub(crate) fn open_to(
        &self,
        nonce: &[u8; 12],
        aad: &[u8],
        from: &[u8],
        to: &mut [u8],
        tag: &[u8; 16],
    ) -> Result<(), OpenError> {
        if from.len() != to.len() {
            return Err(OpenError);
        }
        let len = from.len();
        // SAFETY: two buffers of `len` bytes, the second writable, which do not overlap.
        let opened =
            unsafe { self.open_only(nonce, aad, from.as_ptr(), to.as_mut_ptr(), len, tag) };
        wipe_after_wide();
        opened
    }

    /// Verifies and decrypts from `from` to `to`, without the wipe. Not inlined, so that the wipe
    /// reaches its frames. Fails if the tag is not authentic; `to` may contain anything then, and
    /// the caller wipes it.
    ///
    /// # Safety
    /// `from` is readable and `to` writable for `len` bytes; they are the same or do not overlap.
    #[inline(never)]
    unsafe fn open_only(
        &self,
        nonce: &[u8; 12],
        aad: &[u8],
        from: *const u8,
        to: *mut u8,
        len: usize,
        tag: &[u8; 16],
    ) -> Result<(), OpenError> {
        // SAFETY: the caller's word for the buffers; all other lengths are those of the slices.
        let done = unsafe {
            EVP_AEAD_CTX_open_gather(
                &raw const self.0.0,
                to,
                nonce.as_ptr(),
                nonce.len(),
                from,
                len,
                tag.as_ptr(),
                tag.len(),
                aad.as_ptr(),
                aad.len(),
            )
        };
        if done == 1 { Ok(()) } else { Err(OpenError) }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::hint::black_box;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::fill_random;
    use crate::harden::WIPED_AFTER_WIDE;

    const PAINT: u8 = 0xa5;
    const PAINTED: usize = 24 * 1024;
    /// What the wipe reaches, less a frame of its caller's.
    const REACHED: usize = WIPED_AFTER_WIDE - 256;

    /// Fills the dead stack, so that what a call leaves there can be told from what was there.
    #[inline(never)]
    fn paint() {
        let mut dead = [0_u8; PAINTED];
        dead.fill(PAINT);
        black_box(&mut dead);
    }

    /// The stack below this function's caller, read through the kernel: most of it is dead.
    #[inline(never)]
    fn below(top: usize) -> Vec<u8> {
        let mut found = vec![0; PAINTED];
        let memory = File::open("/proc/self/mem").unwrap();
        let from = u64::try_from(top - PAINTED).unwrap();
        memory.read_exact_at(&mut found, from).unwrap();
        found
    }

    /// The GHASH table as the context holds it, in pieces of 16 bytes with every byte inverted,
    /// without those that are not its own.
    fn table(key: &WideGcm) -> Vec<Vec<u8>> {
        let context: *const Context = &raw const *key.0;
        let bytes =
            // SAFETY: a structure without padding that matters: it was zeros before it was filled.
            unsafe { std::slice::from_raw_parts(context.cast::<u8>(), size_of::<Context>()) };
        let pieces = bytes.chunks_exact(8).map(<[u8]>::to_vec);
        let telling = pieces.filter(|piece| piece.iter().filter(|byte| **byte != 0).count() > 5);
        telling
            .map(|piece| piece.iter().map(|byte| !byte).collect())
            .collect()
    }

    fn count(stack: &[u8], table: &[Vec<u8>]) -> usize {
        let is_one = |window: &[u8]| {
            table
                .iter()
                .any(|piece| window.iter().zip(piece).all(|(byte, not)| *byte == !*not))
        };
        stack.windows(8).filter(|window| is_one(window)).count()
    }

    /// The registers that only AVX-512 has, as they are now.
    #[inline(always)]
    fn wide_registers() -> [u8; 1024] {
        let mut out = [0; 1024];
        // SAFETY: only reached where the processor has AVX-512; writes to `out` alone.
        unsafe {
            std::arch::asm!(
                "vmovdqu64 [rax], zmm16",
                "vmovdqu64 [rax + 64], zmm17",
                "vmovdqu64 [rax + 128], zmm18",
                "vmovdqu64 [rax + 192], zmm19",
                "vmovdqu64 [rax + 256], zmm20",
                "vmovdqu64 [rax + 320], zmm21",
                "vmovdqu64 [rax + 384], zmm22",
                "vmovdqu64 [rax + 448], zmm23",
                "vmovdqu64 [rax + 512], zmm24",
                "vmovdqu64 [rax + 576], zmm25",
                "vmovdqu64 [rax + 640], zmm26",
                "vmovdqu64 [rax + 704], zmm27",
                "vmovdqu64 [rax + 768], zmm28",
                "vmovdqu64 [rax + 832], zmm29",
                "vmovdqu64 [rax + 896], zmm30",
                "vmovdqu64 [rax + 960], zmm31",
                in("rax") out.as_mut_ptr(),
                options(nostack)
            );
        }
        out
    }

    /// C11: making a key leaves a power of the hash's key in a register; the wipe that follows
    /// takes all of them.
    #[test]
    fn no_part_of_a_new_key_stays_in_registers() {
        if !WideGcm::is_for_this_processor() {
            return;
        }
        let key = crate::SecretKey::generate().unwrap();
        // SAFETY: the processor has the register, and the change is declared.
        unsafe {
            std::arch::asm!(
                "vpternlogd zmm31, zmm31, zmm31, 255",
                out("xmm31") _,
                options(nostack, nomem)
            );
        }
        let marked = wide_registers();
        let made = crate::GcmKey::new(&key).unwrap();
        let wiped = wide_registers();
        assert!(marked[960..].iter().all(|byte| *byte == 255), "blind");
        assert!(wiped.iter().all(|byte| *byte == 0));
        drop(made);
    }

    /// C11: AWS-LC leaves its table on the stack, no deeper than what is wiped, and after the wipe
    /// it is gone.
    #[test]
    fn no_part_of_the_key_stays_on_the_stack() {
        if !WideGcm::is_for_this_processor() {
            return;
        }
        let mut bytes = [0; 32];
        fill_random(&mut bytes).unwrap();
        let key = WideGcm::new(&bytes).unwrap();
        let table = table(&key);
        assert!(table.len() > 32, "the table and the round keys");
        let mut page = vec![7; 4096];
        let top = 0_u8;
        let top = (&raw const top).addr();
        let tag = key.seal(&[1; 12], b"place", &mut page).unwrap();
        let (buffer, len) = (page.as_mut_ptr(), page.len());

        paint();
        // SAFETY: one buffer of `len` bytes.
        unsafe { key.open_only(&[1; 12], b"place", buffer, buffer, len, &tag) }.unwrap();
        let left = below(top);
        assert!(count(&left, &table) > 0, "blind");
        let untouched = left.iter().take_while(|byte| **byte == PAINT).count();
        let depth = PAINTED - untouched;

        assert!(depth < REACHED, "{depth} bytes deep");

        paint();
        let tag = key.seal(&[1; 12], b"place", &mut page).unwrap();
        assert_eq!(count(&below(top), &table), 0);
        paint();
        key.open(&[1; 12], b"place", &mut page, &tag).unwrap();
        assert_eq!(count(&below(top), &table), 0);
        let mut opened = vec![0; 4096];
        let tag = key.seal(&[1; 12], b"place", &mut page).unwrap();
        paint();
        key.open_to(&[1; 12], b"place", &page, &mut opened, &tag)
            .unwrap();
        assert_eq!(count(&below(top), &table), 0);
    }
}
