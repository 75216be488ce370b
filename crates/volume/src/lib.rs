//! Encrypted volumes: LUKS2 through libcryptsetup, with keys that a keyring or a key server has.
//!
//! Must not: put anything of its own on a disk but a LUKS2 token; keep a key on the disk that it opens.
