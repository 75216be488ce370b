//! The handlers of the audit log and of the metrics.
//!
//! Must not: decide what a client may do.

use axum::Extension;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use serde_json::json as value;
use strongroom_format::code;
use strongroom_keyring::Error;

use super::handler::{Connection, HandlerResult, SharedServer};
use super::request::{parse_list_query, run_blocking, with_service};
use super::response::ok_json;
use crate::records::Role;

/// Handles `GET /metrics`: responds with the metrics as text. While the server is sealed, any
/// client gets the one gauge that says so, with status 200. Otherwise SR-8420 without a
/// certificate, SR-8421 for one that is not enrolled, SR-8422 unless the client is a viewer or an
/// administrator; what the store reports.
pub(super) async fn metrics(
    State(server): SharedServer,
    Extension(connection): Connection,
) -> HandlerResult {
    let text = match server.service() {
        Ok(service) => {
            let roles = [Role::Admin, Role::Viewer];
            let config = server.config();
            let fleet = run_blocking(move || {
                service.check_role(&connection.peer, "metrics", &roles)?;
                let break_glass = service.read_break_glass()?;
                let space = service.space(&config)?;
                let fleet =
                    crate::metrics::fleet_text(&service.client_expiry()?, break_glass.as_ref());
                Ok(fleet + &crate::metrics::space_text(&space))
            });
            let fleet = fleet.await?;
            server.metrics.text(false) + &fleet
        }
        Err(_) => crate::metrics::sealed_text(true),
    };
    let mut response = Response::new(Body::from(text));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// Handles `GET /v1/audit?after=N&limit=M`: responds with rows of the audit log after the row N,
/// where the store's part of the log begins, and `more`, whether there may be further rows. SR-8429
/// for a malformed query; SR-8420 without a certificate, SR-8421 for one that is not enrolled,
/// SR-8422 unless the client is a viewer or an administrator; SR-8436 for a row that does not open;
/// SR-8428 while sealed; what the store reports.
pub(super) async fn audit(
    State(server): SharedServer,
    Extension(connection): Connection,
    RawQuery(text): RawQuery,
) -> HandlerResult {
    let query = parse_list_query(text.as_deref())?;
    let after = match query.after.as_str() {
        "" => Some(0),
        text => text.parse::<u64>().ok(),
    };
    let after = after.ok_or_else(|| Error::new(&code::SERVER_REQUEST, "after: a number"))?;
    let limit = query.limit;
    let read = with_service(&server, move |service| {
        service.audit(&connection.peer, after, limit)
    });
    let (cut, rows) = read.await?;
    let begins = value!({"after": cut.through, "hash": cut.head, "archive": cut.file});
    let more = rows.len() >= limit;
    ok_json(&value!({"begins": begins, "rows": rows, "more": more}))
}

/// Handles `POST /v1/audit/archive` of an administrator: writes all rows that the configuration
/// does not keep into archives, files in the server's configured directory, and removes them from
/// the store. Responds with the name of each archive, its first and last row and the last one's
/// hash, not with its contents; with none when no row is due. Errors of
/// [`crate::service::Service::archive`]; SR-8428 while sealed.
pub(super) async fn archive(
    State(server): SharedServer,
    Extension(connection): Connection,
) -> HandlerResult {
    let config = server.config();
    let archived = with_service(&server, move |service| {
        service.archive(&connection.peer, &config)
    });
    ok_json(&value!({"archives": archived.await?}))
}
