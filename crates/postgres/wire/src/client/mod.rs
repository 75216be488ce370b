//! A client's blocking connection to a server. [`Config`] has the settings as libpq has them;
//! [`Session`] is a connection that the server has authenticated, [`StatementClient`] runs
//! statements on one.
//!
//! docs/internals/postgres-wire.md lists the invariants Q1 to Q10; each file names those that it
//! keeps. Must not: retry after an error, start a thread, or write a file. It reads only the files
//! that the settings name.

mod authentication;
mod config;
mod connection_string;
mod error;
mod message_stream;
mod passfile;
mod reply;
mod scram;
mod secret;
mod session;
mod socket;
mod statements;
pub mod tls;
mod transport;

pub use authentication::AuthenticationPolicy;
pub use config::{ChannelBindingMode, Config, SslMode};
pub use error::{AuthenticationError, Error, Result, ServerError};
pub use message_stream::WaitLimit;
pub use reply::{Reply, Row, unexpected_message};
pub use secret::Secret;
pub use session::{Session, SessionOptions};
pub use socket::{Socket, connect_local};
pub use statements::{Answer, StatementClient, TextRow};
pub use transport::CLOSE_TIMEOUT;
