//! Every address of the API.
//!
//! Must not: decide who may do what.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::{delete, get, post, put};
use axum::{Extension, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json as value};
use strongroom_format::code;
use strongroom_keyring::Error;
use zeroize::Zeroizing;

use super::answer::{METHOD, json, json_bytes};
use super::ask::{blocking, body_of, json_of, query, waiting};
use super::browser::{changing, changing_bytes};
use super::{Other, Refusal};
use crate::large::Turn;
use crate::records::{Report, Role};
use crate::server::Server;
use crate::service::{Delivered, HEADER_MAX, KeyInfo, NewToken};

pub(super) type Shared = State<Arc<Server>>;
pub(super) type From = Extension<Other>;
pub(super) type Answer = Result<Response, Refusal>;
type Name = Result<Path<String>, PathRejection>;

/// The addresses.
pub(super) fn routes() -> Router<Arc<Server>> {
    Router::new()
        .route("/healthz", get(health))
        .route("/metrics", get(super::log::metrics))
        .route("/openapi.json", get(openapi))
        .route("/v1/status", get(status))
        .route("/v1/unseal", changing(post(unseal)))
        .route("/v1/seal", changing(post(seal)))
        .route("/v1/enroll", changing(post(enroll)))
        .route("/v1/renew", changing(post(renew)))
        .route("/v1/keys", get(keys).merge(changing(post(create))))
        .route("/v1/keys/{name}", get(key))
        .route("/v1/keys/{name}/versions/{version}/material", get(material))
        .route("/v1/keys/{name}/needs", get(needs))
        .route("/v1/keys/{name}/rotate", changing(post(rotate)))
        .route("/v1/keys/{name}/disable", changing(post(disable)))
        .route("/v1/keys/{name}/enable", changing(post(enable)))
        .route(
            "/v1/keys/{name}/destroy",
            changing(post(destroy).delete(destroy_withdraw)),
        )
        .route("/v1/keys/{name}/restore", changing(post(restore)))
        .route(
            "/v1/escrow/{id}",
            get(escrow_get)
                .merge(changing_bytes(put(escrow_put)))
                .merge(changing(delete(escrow_delete))),
        )
        .route("/v1/objects", get(objects))
        .route("/v1/objects/{id}", changing(put(report).delete(forget)))
        .route("/v1/tokens", get(tokens).merge(changing(post(token))))
        .route("/v1/tokens/{id}", changing(delete(withdraw)))
        .route("/v1/nodes", get(nodes))
        .route("/v1/nodes/{name}", changing(delete(revoke)))
        .route(
            "/v1/grants",
            get(grants).merge(changing(post(grant).delete(ungrant))),
        )
        .route("/v1/audit", get(super::log::audit))
        .route("/v1/audit/archive", changing(post(super::log::archive)))
        .fallback(async || Refusal::from(Error::new(&code::SERVER_NO_ADDRESS, "")))
        .method_not_allowed_fallback(async || {
            Refusal::from(Error::new(&code::SERVER_NO_ADDRESS, METHOD))
        })
}

pub(super) fn fine(value: &impl Serialize) -> Answer {
    Ok(json(StatusCode::OK, value))
}

fn empty() -> Answer {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

fn named(name: Name) -> Result<String, Refusal> {
    let malformed = |_| Error::new(&code::SERVER_REQUEST, "the address");
    Ok(name.map_err(malformed)?.0)
}

async fn health(State(server): Shared) -> Response {
    match server.service() {
        Ok(_) => json(StatusCode::OK, &value!({"status": "ok"})),
        Err(_) => json(
            StatusCode::SERVICE_UNAVAILABLE,
            &value!({"status": "sealed"}),
        ),
    }
}

async fn openapi() -> Response {
    json_bytes(
        StatusCode::OK,
        Body::from(include_str!("../../openapi.json")),
    )
}

async fn status(State(server): Shared, Extension(other): From) -> Answer {
    // Whoever gives the last share has the lock until the store is open.
    fine(&waiting(move || Ok(server.status_for(&other.peer))).await?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Share {
    share: String,
}

async fn unseal(
    State(server): Shared,
    Extension(other): From,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    // Shares are the authority. Who is enrolled is not known before they are given.
    if server.config().policy.unseal_certificate && other.peer.shown.is_none() {
        return Err(Error::new(&code::SERVER_CERTIFICATE_NEEDED, "unseal_certificate").into());
    }
    let asked: Share = json_of(&server, &headers, body).await?;
    let shared = Arc::clone(&server);
    let share = Zeroizing::new(asked.share);
    let given = waiting(move || shared.give_share(&share)).await;
    let status = |()| json(StatusCode::OK, &server.status());
    let mut answer = given.map_or_else(|refusal| refusal.response(), status);
    // The buffers that held the share are freed, and so wiped, with the connection.
    let close = HeaderValue::from_static("close");
    answer.headers_mut().insert(header::CONNECTION, close);
    Ok(answer)
}

async fn seal(State(server): Shared, Extension(other): From) -> Answer {
    blocking(&server, move |service| {
        service.authorised(&other.peer, "seal", &[Role::Admin])
    })
    .await?;
    server.seal();
    fine(&server.status())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Enrolment {
    token: String,
    csr: String,
}

async fn enroll(
    State(server): Shared,
    Extension(other): From,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    server.service()?;
    let asked: Enrolment = json_of(&server, &headers, body).await?;
    let token = Zeroizing::new(asked.token);
    let enrolled = blocking(&server, move |service| {
        service.enroll(&other.peer.address, &token, &asked.csr)
    });
    Ok(json(StatusCode::CREATED, &enrolled.await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Renewal {
    csr: String,
}

async fn renew(
    State(server): Shared,
    Extension(other): From,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let asked: Renewal = json_of(&server, &headers, body).await?;
    let renewed = blocking(&server, move |service| {
        service.renew(&other.peer, &asked.csr)
    });
    Ok(json(StatusCode::CREATED, &renewed.await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewKey {
    name: String,
    object: Option<std::collections::BTreeMap<String, String>>,
}

async fn create(
    State(server): Shared,
    Extension(other): From,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let asked: NewKey = json_of(&server, &headers, body).await?;
    let made = blocking(&server, move |service| {
        service.create_key(&other.peer, &asked.name, asked.object.as_ref())
    });
    let made = made.await?;
    let answer = value!({"name": made.name, "version": 1, "state": made.state.name()});
    Ok(json(StatusCode::CREATED, &answer))
}

/// A list, and whether there may be more after it.
fn page_of<T: Serialize>(name: &str, items: &[T], limit: usize) -> Answer {
    let mut answer = serde_json::Map::new();
    let items = serde_json::to_value(items).unwrap_or_default();
    let more = items.as_array().is_some_and(|items| items.len() >= limit);
    answer.insert(name.to_owned(), items);
    answer.insert("more".to_owned(), Value::Bool(more));
    fine(&answer)
}

async fn keys(State(server): Shared, Extension(other): From, RawQuery(text): RawQuery) -> Answer {
    let page = query(text.as_deref())?;
    let limit = page.limit;
    let found = blocking(&server, move |service| {
        service.key_list(&other.peer, &page.after, limit)
    });
    page_of("keys", &found.await?, limit)
}

async fn key(State(server): Shared, Extension(other): From, name: Name) -> Answer {
    let name = named(name)?;
    fine(&blocking(&server, move |service| service.key(&other.peer, &name)).await?)
}

async fn material(
    State(server): Shared,
    Extension(other): From,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Answer {
    let malformed = || Error::new(&code::SERVER_REQUEST, "the address");
    let (name, version) = path.map_err(|_| malformed())?.0;
    let version = match version.as_str() {
        "latest" => None,
        // One spelling of each number.
        text => match text.parse::<u32>() {
            Ok(number) if number > 0 && number.to_string() == text => Some(number),
            _ => return Err(malformed().into()),
        },
    };
    let asked = name.clone();
    let delivered = blocking(&server, move |service| {
        service.deliver(&other.peer, &asked, version)
    });
    let delivered = delivered.await?;
    server.metrics.delivered.fetch_add(1, Relaxed);
    Ok(json_bytes(
        StatusCode::OK,
        Body::from(material_body(&name, &delivered)),
    ))
}

/// The body with the key, in memory that is wiped when it has been sent.
fn material_body(name: &str, delivered: &Delivered) -> bytes::Bytes {
    let mut encoded = Zeroizing::new([0_u8; 44]);
    let written = STANDARD.encode_slice(delivered.key.expose(), encoded.as_mut_slice());
    assert_eq!(written, Ok(44), "32 bytes are 44 characters");
    let head = format!(
        "{{\"name\":\"{name}\",\"version\":{},\"material\":\"",
        delivered.version
    );
    let mut body = Zeroizing::new(Vec::with_capacity(head.len() + 46));
    body.extend_from_slice(head.as_bytes());
    body.extend_from_slice(encoded.as_slice());
    body.extend_from_slice(b"\"}");
    bytes::Bytes::from_owner(Wiped(body))
}

struct Wiped(Zeroizing<Vec<u8>>);

impl AsRef<[u8]> for Wiped {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

async fn rotate(State(server): Shared, Extension(other): From, name: Name) -> Answer {
    let name = named(name)?;
    let info = blocking(&server, move |service| {
        service.rotate_key(&other.peer, &name)
    })
    .await?;
    let version = info.versions.last().map_or(0, |last| last.version);
    fine(&value!({"name": info.name, "version": version}))
}

fn state_of(info: &KeyInfo) -> Answer {
    let mut told =
        value!({"name": info.name, "state": info.state.name(), "destroy_at": info.destroy_at});
    if let (Value::Object(asked), Value::Object(told)) = (value!(info.destroy_asked), &mut told) {
        told.extend(asked);
    }
    fine(&told)
}

async fn needs(State(server): Shared, Extension(other): From, name: Name) -> Answer {
    let name = named(name)?;
    fine(&blocking(&server, move |service| service.needs(&other.peer, &name)).await?)
}

async fn disable(State(server): Shared, Extension(other): From, name: Name) -> Answer {
    let name = named(name)?;
    state_of(
        &blocking(&server, move |service| {
            service.disable_key(&other.peer, &name)
        })
        .await?,
    )
}

async fn enable(State(server): Shared, Extension(other): From, name: Name) -> Answer {
    let name = named(name)?;
    state_of(
        &blocking(&server, move |service| {
            service.enable_key(&other.peer, &name)
        })
        .await?,
    )
}

async fn restore(State(server): Shared, Extension(other): From, name: Name) -> Answer {
    let name = named(name)?;
    state_of(
        &blocking(&server, move |service| {
            service.restore_key(&other.peer, &name)
        })
        .await?,
    )
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Destruction {
    after_seconds: Option<u64>,
}

async fn destroy(
    State(server): Shared,
    Extension(other): From,
    name: Name,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let name = named(name)?;
    let bytes = body_of(&server, &headers, body, super::ask::JSON_MAX).await?;
    let asked: Destruction = match bytes.is_empty() {
        true => Destruction::default(),
        false => serde_json::from_slice(&bytes)
            .map_err(|_| Error::new(&code::SERVER_REQUEST, "the body"))?,
    };
    let info = blocking(&server, move |service| {
        service.destroy_key(&other.peer, &name, asked.after_seconds)
    });
    state_of(&info.await?)
}

async fn destroy_withdraw(State(server): Shared, Extension(other): From, name: Name) -> Answer {
    let name = named(name)?;
    let info = blocking(&server, move |service| {
        service.withdraw_destroy(&other.peer, &name)
    });
    state_of(&info.await?)
}

async fn escrow_put(
    State(server): Shared,
    Extension(other): From,
    id: Name,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let id = named(id)?;
    // Before 32 MiB are read of whoever it is.
    let turn = turn(&server, &other, "escrow-put").await?;
    let bytes = body_of(&server, &headers, body, HEADER_MAX).await?;
    let kept = blocking(&server, move |service| {
        let kept = service.keep_header(&other.peer, &id, &bytes);
        // The bytes are there until here, whether somebody still waits for the answer or not.
        drop((bytes, turn));
        kept
    });
    fine(&kept.await?)
}

/// Waits until there is room for a header of the client, if it is one that may have headers here.
async fn turn(server: &Arc<Server>, other: &Other, action: &'static str) -> Result<Turn, Refusal> {
    let asking = other.clone();
    let roles = [Role::Admin, Role::Node];
    let allowed = blocking(server, move |service| {
        service.allowed(&asking.peer, action, &roles)
    });
    Ok(server.large.turn(&allowed.await?.name).await)
}

/// A header on its way to a client.
struct Sent {
    bytes: Vec<u8>,
    _turn: Turn,
}

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

async fn escrow_get(State(server): Shared, Extension(other): From, id: Name) -> Answer {
    let id = named(id)?;
    let turn = turn(&server, &other, "escrow-get").await?;
    let sent = blocking(&server, move |service| {
        let bytes = service.header(&other.peer, &id)?;
        Ok(Sent { bytes, _turn: turn })
    });
    let sent = bytes::Bytes::from_owner(sent.await?);
    let mut response = Response::new(Body::from(sent));
    let kind = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

async fn escrow_delete(State(server): Shared, Extension(other): From, id: Name) -> Answer {
    let id = named(id)?;
    blocking(&server, move |service| {
        service.remove_header(&other.peer, &id)
    })
    .await?;
    empty()
}

async fn report(
    State(server): Shared,
    Extension(other): From,
    id: Name,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let id = named(id)?;
    let asked: Report = json_of(&server, &headers, body).await?;
    blocking(&server, move |service| {
        service.report(&other.peer, &id, &asked)
    })
    .await?;
    empty()
}

async fn objects(
    State(server): Shared,
    Extension(other): From,
    RawQuery(text): RawQuery,
) -> Answer {
    let page = query(text.as_deref())?;
    let limit = page.limit;
    let found = blocking(&server, move |service| {
        service.objects(&other.peer, &page.after, limit)
    });
    page_of("objects", &found.await?, limit)
}

async fn forget(State(server): Shared, Extension(other): From, id: Name) -> Answer {
    let id = named(id)?;
    blocking(&server, move |service| {
        service.forget_object(&other.peer, &id)
    })
    .await?;
    empty()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenFor {
    node: String,
    role: Role,
    #[serde(default)]
    keys: Vec<String>,
    may_create: Option<bool>,
    may_destroy: Option<bool>,
    expires_seconds: u64,
}

async fn token(
    State(server): Shared,
    Extension(other): From,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let asked: TokenFor = json_of(&server, &headers, body).await?;
    let new = NewToken {
        node: asked.node,
        role: asked.role,
        keys: asked.keys,
        keeps_rights: asked.may_create.is_none() && asked.may_destroy.is_none(),
        may_create: asked.may_create.unwrap_or(false),
        may_destroy: asked.may_destroy.unwrap_or(false),
        expires_s: asked.expires_seconds,
    };
    let token = blocking(&server, move |service| {
        service.create_token(&other.peer, &new)
    })
    .await?;
    let body = Zeroizing::new(format!("{{\"token\":\"{}\"}}", &*token).into_bytes());
    Ok(json_bytes(
        StatusCode::CREATED,
        Body::from(bytes::Bytes::from_owner(Wiped(body))),
    ))
}

async fn tokens(State(server): Shared, Extension(other): From, RawQuery(text): RawQuery) -> Answer {
    let page = query(text.as_deref())?;
    let limit = page.limit;
    let found = blocking(&server, move |service| {
        service.tokens(&other.peer, &page.after, limit)
    });
    page_of("tokens", &found.await?, limit)
}

async fn withdraw(State(server): Shared, Extension(other): From, id: Name) -> Answer {
    let id = named(id)?;
    blocking(&server, move |service| {
        service.withdraw_token(&other.peer, &id)
    })
    .await?;
    empty()
}

async fn nodes(State(server): Shared, Extension(other): From, RawQuery(text): RawQuery) -> Answer {
    let page = query(text.as_deref())?;
    let limit = page.limit;
    let found = blocking(&server, move |service| {
        service.nodes(&other.peer, &page.after, limit)
    });
    page_of("nodes", &found.await?, limit)
}

async fn revoke(State(server): Shared, Extension(other): From, name: Name) -> Answer {
    let name = named(name)?;
    blocking(&server, move |service| service.revoke(&other.peer, &name)).await?;
    empty()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Granted {
    node: String,
    key: String,
    #[serde(default)]
    may_destroy: bool,
}

async fn grant(
    State(server): Shared,
    Extension(other): From,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let asked: Granted = json_of(&server, &headers, body).await?;
    let done = blocking(&server, move |service| {
        service.grant(&other.peer, &asked.node, &asked.key, asked.may_destroy)
    });
    done.await?;
    empty()
}

async fn ungrant(
    State(server): Shared,
    Extension(other): From,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let asked: Granted = json_of(&server, &headers, body).await?;
    blocking(&server, move |service| {
        service.ungrant(&other.peer, &asked.node, &asked.key)
    })
    .await?;
    empty()
}

async fn grants(State(server): Shared, Extension(other): From, RawQuery(text): RawQuery) -> Answer {
    let page = query(text.as_deref())?;
    let limit = page.limit;
    let found = blocking(&server, move |service| {
        service.grants(&other.peer, &page.after, limit)
    });
    page_of("grants", &found.await?, limit)
}
