//! How the command starts programs: with one of our libraries preloaded ([`library`]), with a
//! secret that they inherit ([`secret`]), or with the rights of another user ([`owner`]).
//!
//! Must not: put a key into an argument or a variable; start a program with root's rights on files
//! of another user.

pub mod library;
pub mod owner;
pub mod secret;
