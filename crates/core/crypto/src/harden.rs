//! Process-wide hardening and the wiping of dead stack frames.
//!
//! Invariants: nothing here can fail in a way the caller must handle; both are second lines of
//! defence behind the locked arenas.
//!
//! Must not: forbid core dumps from a library that is loaded into another program. Whether a
//! database server may dump core is its operator's decision; only the `strongroom` command forbids
//! it for itself.
#![expect(unsafe_code, reason = "prctl, setrlimit, and clearing registers")]

#[cfg(target_arch = "x86_64")]
use std::arch::asm;

use zeroize::zeroize_stack;

/// Forbids this process to dump core and other processes of the same user to read its memory.
///
/// Sets `PR_SET_DUMPABLE` to 0 and `RLIMIT_CORE` to 0. Errors are ignored: on failure the arenas
/// are still excluded from dumps.
pub fn forbid_core_dumps() {
    // SAFETY: PR_SET_DUMPABLE takes one integer and changes only an attribute of the process.
    let _refused = unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `none` is a valid rlimit for the duration of the call.
    let _refused = unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
}

/// Overwrites about 16 KiB of dead stack below the caller, and the vector registers.
///
/// Key set-up leaves copies of keys in the frames of functions that have returned. Call this right
/// after such a function, from the function that called it, and make sure that neither was inlined
/// into the other. Best effort (docs/internals/crypto.md): frames that are still alive, and
/// registers other than the vector registers of x86-64, are not reached.
#[inline(never)]
pub fn wipe_stack() {
    wipe_vector_registers();
    zeroize_stack::<{ 16 * 1024 }>();
}

/// Overwrites about 4 KiB of dead stack below the caller, and the vector registers, as
/// [`wipe_stack`], for the small frames of one MAC: it runs more often.
#[inline(never)]
pub(crate) fn wipe_stack_short() {
    wipe_vector_registers();
    zeroize_stack::<{ 4 * 1024 }>();
}

/// Bytes of dead stack that [`wipe_after_wide`] overwrites.
#[cfg(all(feature = "wide-gcm", target_arch = "x86_64"))]
pub(crate) const WIPED_AFTER_WIDE: usize = 4 * 1024;

/// Overwrites 4 KiB of dead stack below the caller, and all 32 vector registers, which AWS-LC's
/// kernels for AVX-512 use. It runs once for each page and is written in assembly, because a call
/// of `memset` takes three times as long.
#[cfg(all(feature = "wide-gcm", target_arch = "x86_64"))]
#[inline(never)]
pub(crate) fn wipe_after_wide() {
    let mut dead = std::mem::MaybeUninit::<[u8; WIPED_AFTER_WIDE]>::uninit();
    let end = dead.as_mut_ptr().wrapping_add(1);
    // SAFETY: only reached where the processor has AVX-512; writes to `dead` alone, and what else
    // it changes is declared.
    unsafe {
        asm!(
            "vzeroall",
            "vpxord xmm16, xmm16, xmm16",
            "vpxord xmm17, xmm17, xmm17",
            "vpxord xmm18, xmm18, xmm18",
            "vpxord xmm19, xmm19, xmm19",
            "vpxord xmm20, xmm20, xmm20",
            "vpxord xmm21, xmm21, xmm21",
            "vpxord xmm22, xmm22, xmm22",
            "vpxord xmm23, xmm23, xmm23",
            "vpxord xmm24, xmm24, xmm24",
            "vpxord xmm25, xmm25, xmm25",
            "vpxord xmm26, xmm26, xmm26",
            "vpxord xmm27, xmm27, xmm27",
            "vpxord xmm28, xmm28, xmm28",
            "vpxord xmm29, xmm29, xmm29",
            "vpxord xmm30, xmm30, xmm30",
            "vpxord xmm31, xmm31, xmm31",
            "2:",
            "vmovdqu64 [rax], zmm16",
            "vmovdqu64 [rax + 64], zmm16",
            "vmovdqu64 [rax + 128], zmm16",
            "vmovdqu64 [rax + 192], zmm16",
            "add rax, 256",
            "cmp rax, rcx",
            "jb 2b",
            inout("rax") dead.as_mut_ptr() => _,
            in("rcx") end,
            clobber_abi("C"),
            options(nostack)
        );
    }
}

/// Zeroes the vector registers, in which AES instructions leave round keys. The next signal would
/// save them to the stack.
#[cfg(target_arch = "x86_64")]
fn wipe_vector_registers() {
    macro_rules! zeroed_by {
        ($($instruction:literal),*) => {
            asm!($($instruction),*,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                options(nomem, nostack, preserves_flags))
        };
    }
    if std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: the processor has the instruction; what it changes is declared.
        unsafe { zeroed_by!("vzeroall") };
    } else {
        // SAFETY: every processor of this architecture has these; what they change is declared.
        unsafe {
            zeroed_by!(
                "pxor xmm0, xmm0",
                "pxor xmm1, xmm1",
                "pxor xmm2, xmm2",
                "pxor xmm3, xmm3",
                "pxor xmm4, xmm4",
                "pxor xmm5, xmm5",
                "pxor xmm6, xmm6",
                "pxor xmm7, xmm7",
                "pxor xmm8, xmm8",
                "pxor xmm9, xmm9",
                "pxor xmm10, xmm10",
                "pxor xmm11, xmm11",
                "pxor xmm12, xmm12",
                "pxor xmm13, xmm13",
                "pxor xmm14, xmm14",
                "pxor xmm15, xmm15"
            );
        }
    }
}

/// Does nothing on other architectures than x86-64.
#[cfg(not(target_arch = "x86_64"))]
const fn wipe_vector_registers() {}
