//! The handlers of headers in escrow.
//!
//! Must not: decide what a client may do; read a header before there is memory for it.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;

use super::handler::{
    Connection, ConnectionInfo, HandlerResult, PathParameter, SharedServer, path_parameter,
};
use super::request::{read_body, with_service};
use super::response::{ErrorResponse, no_content, ok_json};
use crate::header_memory::HeaderPermit;
use crate::records::Role;
use crate::server::Server;
use crate::service::HEADER_MAX;

/// Handles `PUT /v1/escrow/{id}`: waits for the memory, reads the body of at most 32 MiB, stores it
/// as the header of the object in place of a former one, and responds with its size, SHA-256 and
/// time. SR-8428 while sealed; SR-8430 for a longer body; SR-8438 for one that takes too long;
/// SR-8429 for the path; errors of [`crate::service::Service::store_header`].
pub(super) async fn put(
    State(server): SharedServer,
    Extension(connection): Connection,
    id: PathParameter,
    headers: HeaderMap,
    body: Body,
) -> HandlerResult {
    let id = path_parameter(id)?;
    // The client must be allowed to store headers before up to 32 MiB are read.
    let permit = header_permit(&server, &connection, "escrow-put").await?;
    let bytes = read_body(&server, &headers, body, HEADER_MAX).await?;
    let stored = with_service(&server, move |service| {
        let stored = service.store_header(&connection.peer, &id, &bytes);
        // The permit covers the bytes until here, even if the client has disconnected.
        drop((bytes, permit));
        stored
    });
    ok_json(&stored.await?)
}

/// Checks that the client is a node or an administrator, and then waits, without a limit of its
/// own, until it may have a header in memory.
///
/// # Errors
/// SR-8428 while sealed; SR-8420 without a certificate; SR-8421 for one that is not enrolled;
/// SR-8422 for a viewer.
async fn header_permit(
    server: &Arc<Server>,
    connection: &ConnectionInfo,
    action: &'static str,
) -> Result<HeaderPermit, ErrorResponse> {
    let peer = connection.peer.clone();
    let roles = [Role::Admin, Role::Node];
    let identity = with_service(server, move |service| {
        service.check_role(&peer, action, &roles)
    });
    Ok(server.header_memory.acquire(&identity.await?.name).await)
}

/// The bytes of a header in a response, with the permit to have them in memory.
struct HeaderBytes {
    bytes: Vec<u8>,
    _permit: HeaderPermit,
}

impl AsRef<[u8]> for HeaderBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Handles `GET /v1/escrow/{id}`: waits for the memory and responds with the bytes of the object's
/// header. The delivery is a row of the audit log. SR-8428 while sealed; SR-8429 for the path or
/// the id; SR-8423 when there is none or another node owns it.
pub(super) async fn get(
    State(server): SharedServer,
    Extension(connection): Connection,
    id: PathParameter,
) -> HandlerResult {
    let id = path_parameter(id)?;
    let permit = header_permit(&server, &connection, "escrow-get").await?;
    let header = with_service(&server, move |service| {
        let bytes = service.header(&connection.peer, &id)?;
        Ok(HeaderBytes {
            bytes,
            _permit: permit,
        })
    });
    let bytes = bytes::Bytes::from_owner(header.await?);
    let mut response = Response::new(Body::from(bytes));
    let kind = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// Handles `DELETE /v1/escrow/{id}`: removes the object's header and responds with status 204.
/// SR-8428 while sealed; SR-8429 for the path or the id; SR-8423 when there is none or another node
/// owns it.
pub(super) async fn delete(
    State(server): SharedServer,
    Extension(connection): Connection,
    id: PathParameter,
) -> HandlerResult {
    let id = path_parameter(id)?;
    with_service(&server, move |service| {
        service.remove_header(&connection.peer, &id)
    })
    .await?;
    no_content()
}
