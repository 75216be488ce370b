//! The fleet page over HTTP: its routes, the reader's certificate and role, the theme, the headers.
//!
//! Invariants:
//! 1. Every page is made for one reader after the service has looked up the reader's role. A
//!    response that needs no certificate contains nothing of the fleet.
//! 2. Every response has the headers of [`HEADERS`].
//! 3. A request changes nothing but a cookie of its own browser.
//!
//! Must not: decide who may see the fleet; the service does.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use maud::Markup;
use strongroom_format::code;
use strongroom_keyring::Error;

use super::frame::{self, Reader, Section, Theme};
use super::model::Fleet;
use super::query::Query;
use super::records::Policy;
use super::unavailable::Unavailable;
use super::{HEADERS, detail, lists, overview};
use crate::http::{
    Connection, ConnectionInfo, ErrorResponse, PathParameter, SharedServer, is_from_another_site,
};
use crate::log::log_failure;
use crate::server::{Server, WaitsFor};

/// The cookie with the reader's theme.
const COOKIE: &str = "__Host-theme";
/// The longest query of a choice of theme, in bytes; it contains the page to return to.
const THEME_QUERY_MAX: usize = 4096;

/// Builds the router of the page. A path outside the page gets SR-8433.
pub(crate) fn routes() -> Router<Arc<Server>> {
    Router::new()
        .route("/", get(front))
        .route("/fleet", get(async || redirect("/", None)))
        .route("/fleet/keys", get(keys))
        .route("/fleet/nodes", get(nodes))
        .route("/fleet/objects/{id}", get(object))
        .route("/fleet/keys/{name}", get(key))
        .route("/fleet/nodes/{name}", get(node))
        .route("/fleet/theme", get(theme))
        .route(
            "/fleet/style.css",
            get(async || file("text/css; charset=utf-8", frame::STYLE)),
        )
        .route(
            "/fleet/icon.svg",
            get(async || file("image/svg+xml", frame::ICON)),
        )
        .route("/fleet/{*rest}", get(unknown_path))
        .fallback(async || ErrorResponse::from(Error::new(&code::SERVER_NO_ADDRESS, "")))
}

/// The content of a page: its section, its title and its body; or why it is not available.
type PageContent = Result<(Section, String, Markup), Unavailable>;

/// Handles `GET /`: the overview and the objects that the query selects ([`render_page`]). 400 for
/// an invalid query.
async fn front(
    State(server): SharedServer,
    Extension(connection): Connection,
    RawQuery(text): RawQuery,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    render_page(server, connection, &uri, &headers, move |fleet| {
        let query = parse_query(text.as_deref())?;
        Ok((
            Section::Fleet,
            "Fleet".to_owned(),
            overview::overview(fleet, &query),
        ))
    })
    .await
}

/// Handles `GET /fleet/keys?page=N`: the list of keys ([`render_page`]). 400 for an invalid query.
async fn keys(
    State(server): SharedServer,
    Extension(connection): Connection,
    RawQuery(text): RawQuery,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    render_page(server, connection, &uri, &headers, move |fleet| {
        let query = parse_query(text.as_deref())?;
        Ok((
            Section::Keys,
            "Keys".to_owned(),
            lists::keys(fleet, query.page),
        ))
    })
    .await
}

/// Handles `GET /fleet/nodes?page=N`: the list of nodes ([`render_page`]). 400 for an invalid
/// query.
async fn nodes(
    State(server): SharedServer,
    Extension(connection): Connection,
    RawQuery(text): RawQuery,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    render_page(server, connection, &uri, &headers, move |fleet| {
        let query = parse_query(text.as_deref())?;
        Ok((
            Section::Nodes,
            "Nodes".to_owned(),
            lists::nodes(fleet, query.page),
        ))
    })
    .await
}

/// Handles `GET /fleet/objects/{id}`: the page of an object ([`render_page`]). 404 if there is
/// none.
async fn object(
    State(server): SharedServer,
    Extension(connection): Connection,
    name: PathParameter,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    render_page(server, connection, &uri, &headers, move |fleet| {
        let object = fleet
            .object(&object_name(name)?)
            .ok_or(Unavailable::NotFound)?;
        Ok((
            Section::Fleet,
            object.record.name.clone(),
            detail::object(fleet, object),
        ))
    })
    .await
}

/// Handles `GET /fleet/keys/{name}`: the page of a key ([`render_page`]). 404 if there is none.
async fn key(
    State(server): SharedServer,
    Extension(connection): Connection,
    name: PathParameter,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    render_page(server, connection, &uri, &headers, move |fleet| {
        let key = fleet
            .key(&object_name(name)?)
            .ok_or(Unavailable::NotFound)?;
        Ok((
            Section::Keys,
            key.record.name.clone(),
            detail::key(fleet, key),
        ))
    })
    .await
}

/// Handles `GET /fleet/nodes/{name}`: the page of a node ([`render_page`]). 404 if there is none.
async fn node(
    State(server): SharedServer,
    Extension(connection): Connection,
    name: PathParameter,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    render_page(server, connection, &uri, &headers, move |fleet| {
        let node = fleet
            .node(&object_name(name)?)
            .ok_or(Unavailable::NotFound)?;
        Ok((Section::Nodes, node.name.clone(), detail::node(fleet, node)))
    })
    .await
}

/// Handles any other path below `/fleet/`: 404 for a reader who may see the fleet
/// ([`render_page`]).
async fn unknown_path(
    State(server): SharedServer,
    Extension(connection): Connection,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    render_page(server, connection, &uri, &headers, |_| {
        Err(Unavailable::NotFound)
    })
    .await
}

/// Responds with the page that `content` makes of the fleet, if the reader is a viewer or an
/// administrator. Otherwise responds with a page that gives the reason: 503 while the server is
/// sealed or the store fails, 401 without a certificate, 403 without one of the two roles, or what
/// `content` reports.
async fn render_page(
    server: Arc<Server>,
    connection: ConnectionInfo,
    uri: &Uri,
    headers: &HeaderMap,
    content: impl FnOnce(&Fleet) -> PageContent + Send + 'static,
) -> Response {
    let mut reader = Reader {
        name: None,
        role: String::new(),
        theme: theme_of(headers),
        path: uri
            .path_and_query()
            .map_or("/", |path| path.as_str())
            .to_owned(),
    };
    let policy = policy_of(&server);
    let shared = Arc::clone(&server);
    let made = tokio::task::spawn_blocking(move || {
        let service = shared.service()?;
        let (identity, fleet) = service.fleet(&connection.peer, policy, &shared.config())?;
        Ok::<_, Error>((identity, fleet.now, content(&fleet)))
    });
    let unavailable = match made.await {
        Ok(Ok((identity, now, content))) => {
            reader.name = Some(identity.name);
            identity.role.name().clone_into(&mut reader.role);
            match content {
                Ok((section, title, content)) => {
                    let page = frame::page(&reader, section, &title, Some(now), &content);
                    return html(StatusCode::OK, page);
                }
                Err(unavailable) => unavailable,
            }
        }
        Ok(Err(error)) => unavailable_because(&server, &error),
        Err(_) => Unavailable::Failed,
    };
    let status =
        StatusCode::from_u16(unavailable.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let page = frame::page(
        &reader,
        Section::None,
        unavailable.title(),
        None,
        &unavailable.content(),
    );
    html(status, page)
}

/// Returns the operator's intervals, from the configuration.
fn policy_of(server: &Server) -> Policy {
    let policy = &server.config().policy;
    Policy {
        rotation_days: policy.rotation_days,
        backup_days: policy.backup_days,
        verification_days: policy.verification_days,
        report_days: policy.report_days,
    }
}

/// Parses the query of a URL. [`Unavailable::BadQuery`] for a parameter with an invalid value.
fn parse_query(text: Option<&str>) -> Result<Query, Unavailable> {
    let pairs: Vec<_> = form_urlencoded::parse(text.unwrap_or_default().as_bytes()).collect();
    let pairs = pairs.iter().map(|(name, value)| (&**name, &**value));
    Query::parse(pairs).map_err(|bad| Unavailable::BadQuery(bad.parameter))
}

/// Returns the name or the id in the path of a request. [`Unavailable::NotFound`] if it cannot be
/// decoded.
fn object_name(name: PathParameter) -> Result<String, Unavailable> {
    name.map(|Path(name)| name)
        .map_err(|_| Unavailable::NotFound)
}

/// Returns what the page shows instead of the fleet after this error. An error of the server itself
/// is logged.
fn unavailable_because(server: &Server, error: &Error) -> Unavailable {
    let number = error.code().number;
    if number == code::SERVER_SEALED.number {
        let status = server.status();
        return Unavailable::Sealed {
            threshold: u32::from(status.threshold),
            given: u32::try_from(status.shares_given).unwrap_or(u32::MAX),
            without_store: status.waits_for == Some(WaitsFor::Store),
        };
    }
    if number == code::SERVER_CERTIFICATE_NEEDED.number {
        return Unavailable::NoCertificate;
    }
    if number == code::SERVER_NOT_ENROLLED.number || number == code::SERVER_ROLE.number {
        return Unavailable::Forbidden;
    }
    log_failure("failed", error);
    Unavailable::Failed
}

/// Returns the theme in the reader's cookie, or the default without a valid one.
fn theme_of(headers: &HeaderMap) -> Theme {
    let cookies = headers.get_all(header::COOKIE).iter();
    let mut pairs = cookies
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    let ours = pairs.find(|(name, _)| *name == COOKIE);
    ours.and_then(|(_, value)| Theme::of(value))
        .unwrap_or_default()
}

/// Handles `GET /fleet/theme`: sets the cookie with the reader's theme for a year, and redirects to
/// the page where it was chosen, or to `/` if that is not a path of this server. A request from a
/// page of another site sets no cookie.
///
/// # Errors
/// SR-8430 if the query is longer than 4 KiB; SR-8429 without a known theme.
async fn theme(RawQuery(text): RawQuery, headers: HeaderMap) -> Result<Response, ErrorResponse> {
    let text = text.unwrap_or_default();
    if text.len() > THEME_QUERY_MAX {
        return Err(Error::new(&code::SERVER_TOO_LARGE, "the address to return to").into());
    }
    let (mut theme, mut back) = (None, "/".to_owned());
    for (name, value) in form_urlencoded::parse(text.as_bytes()) {
        match &*name {
            "theme" => theme = Theme::of(&value),
            "back" if is_local_path(&value) => back = value.into_owned(),
            _ => {}
        }
    }
    let theme = theme.ok_or_else(|| Error::new(&code::SERVER_REQUEST, "theme"))?;
    // A page of another site must not set the theme.
    let chosen = (!is_from_another_site(&headers)).then_some(theme);
    Ok(redirect(&back, chosen))
}

/// Whether this is a path of this server, and not what a browser reads as a URL of another one.
fn is_local_path(path: &str) -> bool {
    let printable = path
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    path.starts_with('/') && !path.starts_with("//") && printable
}

/// Responds with a redirection (303) to a path, and sets the cookie with the theme if one is given.
fn redirect(to: &str, theme: Option<Theme>) -> Response {
    let mut response = response_with_headers(StatusCode::SEE_OTHER, Body::empty());
    let headers = response.headers_mut();
    let to = HeaderValue::from_str(to).unwrap_or(HeaderValue::from_static("/"));
    headers.insert(header::LOCATION, to);
    if let Some(theme) = theme {
        let cookie = format!(
            "{COOKIE}={}; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=31536000",
            theme.word()
        );
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            headers.insert(header::SET_COOKIE, cookie);
        }
    }
    response
}

/// Responds with a page of HTML, with this status.
fn html(status: StatusCode, page: Markup) -> Response {
    let mut response = response_with_headers(status, Body::from(page.into_string()));
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Responds with a file of this content type, which a browser may cache for five minutes.
fn file(kind: &'static str, text: &'static str) -> Response {
    let mut response = response_with_headers(StatusCode::OK, Body::from(text));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    let cached = HeaderValue::from_static("private, max-age=300");
    headers.insert(header::CACHE_CONTROL, cached);
    response
}

/// Makes a response with this status and the headers of [`HEADERS`].
fn response_with_headers(status: StatusCode, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    for (name, value) in HEADERS {
        let (name, value) = (
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
        response.headers_mut().insert(name, value);
    }
    response
}
