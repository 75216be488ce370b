//! The command's allocator: it zeroes memory that is freed, once `keyserver run` has switched that
//! on.
//!
//! Must not: be switched on by a command that handles much data: every free would cost a write.

/// See [`strongroom_wiping`].
#[global_allocator]
pub(crate) static ALLOCATOR: strongroom_wiping::Wiping = strongroom_wiping::Wiping::new();
