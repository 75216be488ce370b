//! Root key providers that need a client of their own, registered with the keyring by the command.
//!
//! Must not: keep a root key; wait without a limit; take a secret from an argument.

mod network;
