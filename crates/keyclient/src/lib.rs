//! The client of the key server.
//!
//! Must not: keep a key that it was given; wait without a limit; believe a server whose certificate the configured authority did not sign.
