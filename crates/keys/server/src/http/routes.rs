//! The routes of the API and their handlers.
//!
//! Must not: decide what a client may do.

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

use super::audit_routes;
use super::browser::{changing, changing_bytes};
use super::escrow_routes;
use super::handler::{Connection, HandlerResult, PathParameter, SharedServer, path_parameter};
use super::request::{
    JSON_MAX, ListQuery, parse_list_query, read_body, read_json, run_blocking, with_service,
};
use super::response::{ErrorResponse, METHOD, json, json_bytes, no_content, ok_json};
use crate::records::{Report, Role};
use crate::server::Server;
use crate::service::{Delivered, KeyInfo, NewToken};

/// Builds the API's router. SR-8433 for any other path (status 404) or method (status 405).
pub(super) fn routes() -> Router<Arc<Server>> {
    Router::new()
        .route("/healthz", get(health))
        .route("/metrics", get(audit_routes::metrics))
        .route("/openapi.json", get(openapi))
        .route("/v1/status", get(status))
        .route("/v1/unseal", changing(post(unseal)))
        .route("/v1/seal", changing(post(seal)))
        .route("/v1/enroll", changing(post(enroll)))
        .route("/v1/renew", changing(post(renew)))
        .route("/v1/keys", get(keys).merge(changing(post(create))))
        .route("/v1/keys/{name}", get(key_info))
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
            get(escrow_routes::get)
                .merge(changing_bytes(put(escrow_routes::put)))
                .merge(changing(delete(escrow_routes::delete))),
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
        .route("/v1/audit", get(audit_routes::audit))
        .route("/v1/audit/archive", changing(post(audit_routes::archive)))
        .fallback(async || ErrorResponse::from(Error::new(&code::SERVER_NO_ADDRESS, "")))
        .method_not_allowed_fallback(async || {
            ErrorResponse::from(Error::new(&code::SERVER_NO_ADDRESS, METHOD))
        })
}

/// Handles `GET /healthz`, for every client: 200 while the server is open, 503 while it is sealed.
async fn health(State(server): SharedServer) -> Response {
    match server.service() {
        Ok(_) => json(StatusCode::OK, &value!({"status": "ok"})),
        Err(_) => json(
            StatusCode::SERVICE_UNAVAILABLE,
            &value!({"status": "sealed"}),
        ),
    }
}

/// Handles `GET /openapi.json`, for every client: the description of the API.
async fn openapi() -> Response {
    json_bytes(
        StatusCode::OK,
        Body::from(include_str!("../../openapi.json")),
    )
}

/// Handles `GET /v1/status`: the server's state, with the store's space for viewers and admins.
async fn status(State(server): SharedServer, Extension(connection): Connection) -> HandlerResult {
    // While the last share is being added, the status is locked until the store is open.
    ok_json(&run_blocking(move || Ok(server.status_for(&connection.peer))).await?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ShareRequest {
    share: String,
}

/// Handles `POST /v1/unseal`: adds a share, which may open the server, sends its status, and closes
/// the connection. SR-8420 where a certificate is required; errors of [`Server::give_share`].
async fn unseal(
    State(server): SharedServer,
    Extension(connection): Connection,
    headers: HeaderMap,
    body: Body,
) -> HandlerResult {
    // The certificate only has to be one of the authority: a sealed server cannot look up clients.
    if server.config().policy.unseal_certificate && connection.peer.certificate.is_none() {
        return Err(Error::new(&code::SERVER_CERTIFICATE_NEEDED, "unseal_certificate").into());
    }
    let body: ShareRequest = read_json(&server, &headers, body).await?;
    let shared = Arc::clone(&server);
    let share = Zeroizing::new(body.share);
    let given = run_blocking(move || shared.give_share(&share)).await;
    let status = |()| json(StatusCode::OK, &server.status());
    let mut response = given.map_or_else(|error| error.response(), status);
    // Closing the connection frees, and so wipes, the buffers that held the share.
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(header::CONNECTION, close);
    Ok(response)
}

/// Handles `POST /v1/seal`: writes an audit row, seals, sends the status. SR-8422 unless admin.
async fn seal(State(server): SharedServer, Extension(connection): Connection) -> HandlerResult {
    with_service(&server, move |service| {
        service.record_action(&connection.peer, "seal", &[Role::Admin])
    })
    .await?;
    server.seal();
    ok_json(&server.status())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EnrolmentRequest {
    token: String,
    csr: String,
}

/// Handles `POST /v1/enroll`: redeems a token for a certificate, 201. SR-8431 for a wrong token.
async fn enroll(
    State(server): SharedServer,
    Extension(connection): Connection,
    headers: HeaderMap,
    body: Body,
) -> HandlerResult {
    server.service()?;
    let body: EnrolmentRequest = read_json(&server, &headers, body).await?;
    let token = Zeroizing::new(body.token);
    let enrolled = with_service(&server, move |service| {
        service.enroll(&connection.peer.address, &token, &body.csr)
    });
    Ok(json(StatusCode::CREATED, &enrolled.await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RenewalRequest {
    csr: String,
}

/// Handles `POST /v1/renew`: issues a further certificate to the client, 201. SR-8428 if sealed.
async fn renew(
    State(server): SharedServer,
    Extension(connection): Connection,
    headers: HeaderMap,
    body: Body,
) -> HandlerResult {
    let body: RenewalRequest = read_json(&server, &headers, body).await?;
    let renewed = with_service(&server, move |service| {
        service.renew(&connection.peer, &body.csr)
    });
    Ok(json(StatusCode::CREATED, &renewed.await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewKeyRequest {
    name: String,
    object: Option<std::collections::BTreeMap<String, String>>,
}

/// Handles `POST /v1/keys`: creates a key and sends its name, version and state, 201. SR-8424 if
/// the name is taken; SR-8422 without the right; SR-8443 above a quota; SR-8428 if sealed.
async fn create(
    State(server): SharedServer,
    Extension(connection): Connection,
    headers: HeaderMap,
    body: Body,
) -> HandlerResult {
    let body: NewKeyRequest = read_json(&server, &headers, body).await?;
    let made = with_service(&server, move |service| {
        service.create_key(&connection.peer, &body.name, body.object.as_ref())
    });
    let made = made.await?;
    let created = value!({"name": made.name, "version": 1, "state": made.state.name()});
    Ok(json(StatusCode::CREATED, &created))
}

/// Responds with a list under `name`, and with `more`: true if it has `limit` items or more.
fn list_response<T: Serialize>(name: &str, items: &[T], limit: usize) -> HandlerResult {
    let mut body = serde_json::Map::new();
    let items = serde_json::to_value(items).unwrap_or_default();
    let more = items.as_array().is_some_and(|items| items.len() >= limit);
    body.insert(name.to_owned(), items);
    body.insert("more".to_owned(), Value::Bool(more));
    ok_json(&body)
}

/// Handles `GET /v1/keys`: lists keys without bytes, for a node its own. SR-8429 for the query.
async fn keys(
    State(server): SharedServer,
    Extension(connection): Connection,
    RawQuery(text): RawQuery,
) -> HandlerResult {
    let ListQuery { after, limit } = parse_list_query(text.as_deref())?;
    let found = with_service(&server, move |service| {
        service.key_list(&connection.peer, &after, limit)
    });
    list_response("keys", &found.await?, limit)
}

/// Handles `GET /v1/keys/{name}`: sends one key's description, without its bytes. SR-8423 for a
/// node without a grant; SR-8454 if there is no such key; SR-8428 if sealed.
async fn key_info(
    State(server): SharedServer,
    Extension(connection): Connection,
    name: PathParameter,
) -> HandlerResult {
    let name = path_parameter(name)?;
    ok_json(&with_service(&server, move |service| service.key(&connection.peer, &name)).await?)
}

/// Handles `GET /v1/keys/{name}/versions/{version}/material`: delivers a version of a key, or
/// `latest`, and counts it. SR-8429 for the path, SR-8428 if sealed; errors of `Service::deliver`.
async fn material(
    State(server): SharedServer,
    Extension(connection): Connection,
    path: Result<Path<(String, String)>, PathRejection>,
) -> HandlerResult {
    let malformed = || Error::new(&code::SERVER_REQUEST, "the address");
    let (name, version) = path.map_err(|_| malformed())?.0;
    let version = match version.as_str() {
        "latest" => None,
        // Each number has one spelling only.
        text => match text.parse::<u32>() {
            Ok(number) if number > 0 && number.to_string() == text => Some(number),
            _ => return Err(malformed().into()),
        },
    };
    let wanted = name.clone();
    let delivered = with_service(&server, move |service| {
        service.deliver(&connection.peer, &wanted, version)
    });
    let delivered = delivered.await?;
    server.metrics.delivered.fetch_add(1, Relaxed);
    Ok(json_bytes(
        StatusCode::OK,
        Body::from(material_body(&name, &delivered)),
    ))
}

/// Makes the JSON body with a key in base64, in memory that is wiped after it was sent.
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
    bytes::Bytes::from_owner(WipedBytes(body))
}

/// The bytes of a body, wiped when they are dropped.
struct WipedBytes(Zeroizing<Vec<u8>>);

impl AsRef<[u8]> for WipedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Handles `POST /v1/keys/{name}/rotate`: creates a version and sends its number. SR-8423 without a
/// grant; SR-8425, SR-8426 unless active; SR-8443 if too many; SR-8428 if sealed.
async fn rotate(
    State(server): SharedServer,
    Extension(connection): Connection,
    name: PathParameter,
) -> HandlerResult {
    let name = path_parameter(name)?;
    let info = with_service(&server, move |service| {
        service.rotate_key(&connection.peer, &name)
    })
    .await?;
    let version = info.versions.last().map_or(0, |last| last.version);
    ok_json(&value!({"name": info.name, "version": version}))
}

/// Responds with a key's state, and the request for its destruction if there is one. Never fails.
fn key_state_response(info: &KeyInfo) -> HandlerResult {
    let mut body =
        value!({"name": info.name, "state": info.state.name(), "destroy_at": info.destroy_at});
    if let (Value::Object(request), Value::Object(body)) = (value!(info.destroy_request), &mut body)
    {
        body.extend(request);
    }
    ok_json(&body)
}

/// Handles `GET /v1/keys/{name}/needs`: sends what needs the key. SR-8422 without the right.
async fn needs(
    State(server): SharedServer,
    Extension(connection): Connection,
    name: PathParameter,
) -> HandlerResult {
    let name = path_parameter(name)?;
    ok_json(
        &with_service(&server, move |service| {
            service.needs(&connection.peer, &name)
        })
        .await?,
    )
}

/// Handles `POST /v1/keys/{name}/disable`: stops delivery, sends state. SR-8422/8423 unless admin.
async fn disable(
    State(server): SharedServer,
    Extension(connection): Connection,
    name: PathParameter,
) -> HandlerResult {
    let name = path_parameter(name)?;
    key_state_response(
        &with_service(&server, move |service| {
            service.disable_key(&connection.peer, &name)
        })
        .await?,
    )
}

/// Handles `POST /v1/keys/{name}/enable`: allows delivery, sends state. SR-8422/8423 unless admin.
async fn enable(
    State(server): SharedServer,
    Extension(connection): Connection,
    name: PathParameter,
) -> HandlerResult {
    let name = path_parameter(name)?;
    key_state_response(
        &with_service(&server, move |service| {
            service.enable_key(&connection.peer, &name)
        })
        .await?,
    )
}

/// Handles `POST /v1/keys/{name}/restore`: cancels its destruction, sends the state. SR-8422 unless
/// admin, SR-8423 without a grant; SR-8439 if active without a request; SR-8425 if destroyed.
async fn restore(
    State(server): SharedServer,
    Extension(connection): Connection,
    name: PathParameter,
) -> HandlerResult {
    let name = path_parameter(name)?;
    key_state_response(
        &with_service(&server, move |service| {
            service.restore_key(&connection.peer, &name)
        })
        .await?,
    )
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct DestroyRequestBody {
    after_seconds: Option<u64>,
}

/// Handles `POST /v1/keys/{name}/destroy`: schedules or requests destruction, by `after_seconds` of
/// a body that may be empty, and sends the key's state. Errors of `Service::destroy_key`.
async fn destroy(
    State(server): SharedServer,
    Extension(connection): Connection,
    name: PathParameter,
    headers: HeaderMap,
    body: Body,
) -> HandlerResult {
    let name = path_parameter(name)?;
    let bytes = read_body(&server, &headers, body, JSON_MAX).await?;
    let body: DestroyRequestBody = match bytes.is_empty() {
        true => DestroyRequestBody::default(),
        false => serde_json::from_slice(&bytes)
            .map_err(|_| Error::new(&code::SERVER_REQUEST, "the body"))?,
    };
    let info = with_service(&server, move |service| {
        service.destroy_key(&connection.peer, &name, body.after_seconds)
    });
    key_state_response(&info.await?)
}

/// Handles `DELETE /v1/keys/{name}/destroy`: ends a request. SR-8422 unless admin; SR-8439 if none.
async fn destroy_withdraw(
    State(server): SharedServer,
    Extension(connection): Connection,
    name: PathParameter,
) -> HandlerResult {
    let name = path_parameter(name)?;
    let info = with_service(&server, move |service| {
        service.withdraw_destroy(&connection.peer, &name)
    });
    key_state_response(&info.await?)
}

/// Handles `PUT /v1/objects/{id}`: stores a node's report, 204. SR-8423 for another node's object.
async fn report(
    State(server): SharedServer,
    Extension(connection): Connection,
    id: PathParameter,
    headers: HeaderMap,
    body: Body,
) -> HandlerResult {
    let id = path_parameter(id)?;
    let body: Report = read_json(&server, &headers, body).await?;
    with_service(&server, move |service| {
        service.report(&connection.peer, &id, &body)
    })
    .await?;
    no_content()
}

/// Handles `GET /v1/objects`: lists reported objects. SR-8422 unless viewer or administrator.
async fn objects(
    State(server): SharedServer,
    Extension(connection): Connection,
    RawQuery(text): RawQuery,
) -> HandlerResult {
    let ListQuery { after, limit } = parse_list_query(text.as_deref())?;
    let found = with_service(&server, move |service| {
        service.objects(&connection.peer, &after, limit)
    });
    list_response("objects", &found.await?, limit)
}

/// Handles `DELETE /v1/objects/{id}`: removes a report, 204. SR-8422 unless admin; SR-8457 if none.
async fn forget(
    State(server): SharedServer,
    Extension(connection): Connection,
    id: PathParameter,
) -> HandlerResult {
    let id = path_parameter(id)?;
    with_service(&server, move |service| {
        service.forget_object(&connection.peer, &id)
    })
    .await?;
    no_content()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenRequest {
    node: String,
    role: Role,
    #[serde(default)]
    keys: Vec<String>,
    may_create: Option<bool>,
    may_destroy: Option<bool>,
    expires_seconds: u64,
}

/// Handles `POST /v1/tokens`: creates an enrolment token and sends its text, once, 201. SR-8422
/// unless admin; SR-8429 for a malformed request; SR-8454 for an unknown key; SR-8428 if sealed.
async fn token(
    State(server): SharedServer,
    Extension(connection): Connection,
    headers: HeaderMap,
    body: Body,
) -> HandlerResult {
    let body: TokenRequest = read_json(&server, &headers, body).await?;
    let new = NewToken {
        node: body.node,
        role: body.role,
        keys: body.keys,
        keeps_rights: body.may_create.is_none() && body.may_destroy.is_none(),
        may_create: body.may_create.unwrap_or(false),
        may_destroy: body.may_destroy.unwrap_or(false),
        expires_s: body.expires_seconds,
    };
    let token = with_service(&server, move |service| {
        service.create_token(&connection.peer, &new)
    })
    .await?;
    let body = Zeroizing::new(format!("{{\"token\":\"{}\"}}", &*token).into_bytes());
    Ok(json_bytes(
        StatusCode::CREATED,
        Body::from(bytes::Bytes::from_owner(WipedBytes(body))),
    ))
}

/// Handles `GET /v1/tokens`: lists unused tokens, not their text. SR-8422 unless viewer or admin.
async fn tokens(
    State(server): SharedServer,
    Extension(connection): Connection,
    RawQuery(text): RawQuery,
) -> HandlerResult {
    let ListQuery { after, limit } = parse_list_query(text.as_deref())?;
    let found = with_service(&server, move |service| {
        service.tokens(&connection.peer, &after, limit)
    });
    list_response("tokens", &found.await?, limit)
}

/// Handles `DELETE /v1/tokens/{id}`: drops an unused token. SR-8422 unless admin; SR-8459 if none.
async fn withdraw(
    State(server): SharedServer,
    Extension(connection): Connection,
    id: PathParameter,
) -> HandlerResult {
    let id = path_parameter(id)?;
    with_service(&server, move |service| {
        service.withdraw_token(&connection.peer, &id)
    })
    .await?;
    no_content()
}

/// Handles `GET /v1/nodes`: lists enrolled clients. SR-8422 unless viewer or administrator.
async fn nodes(
    State(server): SharedServer,
    Extension(connection): Connection,
    RawQuery(text): RawQuery,
) -> HandlerResult {
    let ListQuery { after, limit } = parse_list_query(text.as_deref())?;
    let found = with_service(&server, move |service| {
        service.nodes(&connection.peer, &after, limit)
    });
    list_response("nodes", &found.await?, limit)
}

/// Handles `DELETE /v1/nodes/{name}`: revokes a client, 204. SR-8422 unless admin; SR-8455 if none.
async fn revoke(
    State(server): SharedServer,
    Extension(connection): Connection,
    name: PathParameter,
) -> HandlerResult {
    let name = path_parameter(name)?;
    with_service(&server, move |service| {
        service.revoke(&connection.peer, &name)
    })
    .await?;
    no_content()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GrantRequest {
    node: String,
    key: String,
    #[serde(default)]
    may_destroy: bool,
}

/// Handles `POST /v1/grants`: grants a key, 204. SR-8422 unless admin; SR-8454, SR-8455 if unknown.
async fn grant(
    State(server): SharedServer,
    Extension(connection): Connection,
    headers: HeaderMap,
    body: Body,
) -> HandlerResult {
    let body: GrantRequest = read_json(&server, &headers, body).await?;
    let done = with_service(&server, move |service| {
        service.grant(&connection.peer, &body.node, &body.key, body.may_destroy)
    });
    done.await?;
    no_content()
}

/// Handles `DELETE /v1/grants`: removes a grant, 204. SR-8422 unless admin; SR-8444 if none.
async fn ungrant(
    State(server): SharedServer,
    Extension(connection): Connection,
    headers: HeaderMap,
    body: Body,
) -> HandlerResult {
    let body: GrantRequest = read_json(&server, &headers, body).await?;
    with_service(&server, move |service| {
        service.ungrant(&connection.peer, &body.node, &body.key)
    })
    .await?;
    no_content()
}

/// Handles `GET /v1/grants`: lists grants of keys. SR-8422 unless viewer or administrator.
async fn grants(
    State(server): SharedServer,
    Extension(connection): Connection,
    RawQuery(text): RawQuery,
) -> HandlerResult {
    let ListQuery { after, limit } = parse_list_query(text.as_deref())?;
    let found = with_service(&server, move |service| {
        service.grants(&connection.peer, &after, limit)
    });
    list_response("grants", &found.await?, limit)
}
