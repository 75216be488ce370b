//! What every handler of a request shares: the server, the connection, the result.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::extract::rejection::PathRejection;
use axum::response::Response;
use strongroom_format::code;
use strongroom_keyring::Error;

use super::response::ErrorResponse;
use crate::server::Server;
use crate::service::Peer;

/// The other end of a connection.
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    /// The client, for the service.
    pub peer: Peer,
    /// The client's address.
    pub address: IpAddr,
}

/// The server, as a handler gets it.
pub(crate) type SharedServer = State<Arc<Server>>;
/// The connection, as a handler gets it.
pub(crate) type Connection = Extension<ConnectionInfo>;
/// The parameter in a request's path, as a handler gets it.
pub(crate) type PathParameter = Result<axum::extract::Path<String>, PathRejection>;
/// The result of a handler.
pub(super) type HandlerResult = Result<Response, ErrorResponse>;

/// Returns the parameter in the path of a request. SR-8429 if it could not be decoded.
pub(super) fn path_parameter(parameter: PathParameter) -> Result<String, ErrorResponse> {
    let malformed = |_| Error::new(&code::SERVER_REQUEST, "the address");
    Ok(parameter.map_err(malformed)?.0)
}
