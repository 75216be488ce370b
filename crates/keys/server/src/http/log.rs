//! The addresses of the audit log and of the metrics.
//!
//! Must not: decide who may do what.

use axum::Extension;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use serde_json::json as value;
use strongroom_format::code;
use strongroom_keyring::Error;

use super::ask::{blocking, query, waiting};
use super::routes::{Answer, From, Shared, fine};
use crate::records::Role;

pub(super) async fn metrics(State(server): Shared, Extension(other): From) -> Answer {
    let text = match server.service() {
        Ok(service) => {
            let roles = [Role::Admin, Role::Viewer];
            let config = server.config();
            let fleet = waiting(move || {
                service.allowed(&other.peer, "metrics", &roles)?;
                let glass = service.glass_broken()?;
                let room = service.room(&config)?;
                let fleet = crate::metrics::fleet_text(&service.ending()?, glass.as_ref());
                Ok(fleet + &crate::metrics::room_text(&room))
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

pub(super) async fn audit(
    State(server): Shared,
    Extension(other): From,
    RawQuery(text): RawQuery,
) -> Answer {
    let page = query(text.as_deref())?;
    let after = match page.after.as_str() {
        "" => Some(0),
        text => text.parse::<u64>().ok(),
    };
    let after = after.ok_or_else(|| Error::new(&code::SERVER_REQUEST, "after: a number"))?;
    let limit = page.limit;
    let read = blocking(&server, move |service| {
        service.audit(&other.peer, after, limit)
    });
    let (cut, rows) = read.await?;
    let begins = value!({"after": cut.through, "hash": cut.head, "archive": cut.file});
    let more = rows.len() >= limit;
    fine(&value!({"begins": begins, "rows": rows, "more": more}))
}

pub(super) async fn archive(State(server): Shared, Extension(other): From) -> Answer {
    let config = server.config();
    let archived = blocking(&server, move |service| {
        service.archive(&other.peer, &config)
    });
    fine(&value!({"archives": archived.await?}))
}
