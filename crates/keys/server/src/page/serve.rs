//! The page over HTTP: addresses, the reader's certificate and role, the choice of a theme, headers.
//!
//! Invariants:
//! 1. Every page is made for the one who asks, after its role was looked up: what needs no certificate holds nothing of the fleet.
//! 2. Every answer has the headers of [`HEADERS`].
//! 3. The only thing that a request changes is a cookie of its own browser.
//!
//! Must not: decide who may see the fleet; that is the service's.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use maud::Markup;
use strongroom_format::code;
use strongroom_keyring::Error;

use super::frame::{self, Place, Reader, Theme};
use super::model::Fleet;
use super::query::Query;
use super::records::Policy;
use super::states::Why;
use super::{HEADERS, detail, lists, overview};
use crate::http::{Other, Refusal, is_from_another_site};
use crate::log::log_failure;
use crate::server::{Server, WaitsFor};

type Shared = State<Arc<Server>>;
type From = Extension<Other>;
type Name = Result<Path<String>, PathRejection>;

/// The reader's choice of light or dark.
const COOKIE: &str = "__Host-theme";
/// Longest query of that choice, with the way back in it.
const CHOICE_MAX: usize = 4096;

/// The addresses of the page.
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
        .route("/fleet/{*rest}", get(nothing))
        .fallback(async || Refusal::from(Error::new(&code::SERVER_NO_ADDRESS, "")))
}

/// What is shown of a fleet: where it belongs, its title, its content.
type Shown = Result<(Place, String, Markup), Why>;

async fn front(
    State(server): Shared,
    Extension(other): From,
    RawQuery(text): RawQuery,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    shown(server, other, &uri, &headers, move |fleet| {
        let query = query(text.as_deref())?;
        Ok((
            Place::Fleet,
            "Fleet".to_owned(),
            overview::overview(fleet, &query),
        ))
    })
    .await
}

async fn keys(
    State(server): Shared,
    Extension(other): From,
    RawQuery(text): RawQuery,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    shown(server, other, &uri, &headers, move |fleet| {
        let query = query(text.as_deref())?;
        Ok((
            Place::Keys,
            "Keys".to_owned(),
            lists::keys(fleet, query.page),
        ))
    })
    .await
}

async fn nodes(
    State(server): Shared,
    Extension(other): From,
    RawQuery(text): RawQuery,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    shown(server, other, &uri, &headers, move |fleet| {
        let query = query(text.as_deref())?;
        Ok((
            Place::Nodes,
            "Nodes".to_owned(),
            lists::nodes(fleet, query.page),
        ))
    })
    .await
}

async fn object(
    State(server): Shared,
    Extension(other): From,
    name: Name,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    shown(server, other, &uri, &headers, move |fleet| {
        let object = fleet.object(&named(name)?).ok_or(Why::NotThere)?;
        Ok((
            Place::Fleet,
            object.record.name.clone(),
            detail::object(fleet, object),
        ))
    })
    .await
}

async fn key(
    State(server): Shared,
    Extension(other): From,
    name: Name,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    shown(server, other, &uri, &headers, move |fleet| {
        let key = fleet.key(&named(name)?).ok_or(Why::NotThere)?;
        Ok((
            Place::Keys,
            key.record.name.clone(),
            detail::key(fleet, key),
        ))
    })
    .await
}

async fn node(
    State(server): Shared,
    Extension(other): From,
    name: Name,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    shown(server, other, &uri, &headers, move |fleet| {
        let node = fleet.node(&named(name)?).ok_or(Why::NotThere)?;
        Ok((Place::Nodes, node.name.clone(), detail::node(fleet, node)))
    })
    .await
}

async fn nothing(
    State(server): Shared,
    Extension(other): From,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    shown(server, other, &uri, &headers, |_| Err(Why::NotThere)).await
}

/// Looks up who asks, makes the page, answers.
async fn shown(
    server: Arc<Server>,
    other: Other,
    uri: &Uri,
    headers: &HeaderMap,
    show: impl FnOnce(&Fleet) -> Shown + Send + 'static,
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
    let policy = policy(&server);
    let asked = Arc::clone(&server);
    let made = tokio::task::spawn_blocking(move || {
        let service = asked.service()?;
        let (identity, fleet) = service.fleet(&other.peer, policy, &asked.config())?;
        Ok::<_, Error>((identity, fleet.now, show(&fleet)))
    });
    let why = match made.await {
        Ok(Ok((identity, now, shown))) => {
            reader.name = Some(identity.name);
            identity.role.name().clone_into(&mut reader.role);
            match shown {
                Ok((place, title, content)) => {
                    let page = frame::page(&reader, place, &title, Some(now), &content);
                    return html(StatusCode::OK, page);
                }
                Err(why) => why,
            }
        }
        Ok(Err(error)) => why_of(&server, &error),
        Err(_) => Why::Failed,
    };
    let status = StatusCode::from_u16(why.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let page = frame::page(&reader, Place::Elsewhere, why.title(), None, &why.content());
    html(status, page)
}

fn policy(server: &Server) -> Policy {
    let policy = &server.config().policy;
    Policy {
        rotation_days: policy.rotation_days,
        backup_days: policy.backup_days,
        verification_days: policy.verification_days,
        report_days: policy.report_days,
    }
}

fn query(text: Option<&str>) -> Result<Query, Why> {
    let pairs: Vec<_> = form_urlencoded::parse(text.unwrap_or_default().as_bytes()).collect();
    let pairs = pairs.iter().map(|(name, value)| (&**name, &**value));
    Query::read(pairs).map_err(|bad| Why::BadQuery(bad.parameter))
}

fn named(name: Name) -> Result<String, Why> {
    name.map(|Path(name)| name).map_err(|_| Why::NotThere)
}

fn why_of(server: &Server, error: &Error) -> Why {
    let number = error.code().number;
    if number == code::SERVER_SEALED.number {
        let status = server.status();
        return Why::Sealed {
            threshold: u32::from(status.threshold),
            given: u32::try_from(status.shares_given).unwrap_or(u32::MAX),
            without_store: status.waits_for == Some(WaitsFor::Store),
        };
    }
    if number == code::SERVER_CERTIFICATE_NEEDED.number {
        return Why::NoCertificate;
    }
    if number == code::SERVER_NOT_ENROLLED.number || number == code::SERVER_ROLE.number {
        return Why::Forbidden;
    }
    log_failure("failed", error);
    Why::Failed
}

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

/// Takes the reader's choice and sends it back to where it was made.
async fn theme(RawQuery(text): RawQuery, headers: HeaderMap) -> Result<Response, Refusal> {
    let text = text.unwrap_or_default();
    if text.len() > CHOICE_MAX {
        return Err(Error::new(&code::SERVER_TOO_LARGE, "the way back").into());
    }
    let (mut theme, mut back) = (None, "/".to_owned());
    for (name, value) in form_urlencoded::parse(text.as_bytes()) {
        match &*name {
            "theme" => theme = Theme::of(&value),
            "back" if is_here(&value) => back = value.into_owned(),
            _ => {}
        }
    }
    let theme = theme.ok_or_else(|| Error::new(&code::SERVER_REQUEST, "theme"))?;
    // Another site does not choose for the reader.
    let chosen = (!is_from_another_site(&headers)).then_some(theme);
    Ok(redirect(&back, chosen))
}

/// Whether this is a path of this server, and nothing that a browser takes for another one.
fn is_here(path: &str) -> bool {
    let printable = path
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    path.starts_with('/') && !path.starts_with("//") && printable
}

fn redirect(to: &str, theme: Option<Theme>) -> Response {
    let mut response = answer(StatusCode::SEE_OTHER, Body::empty());
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

fn html(status: StatusCode, page: Markup) -> Response {
    let mut response = answer(status, Body::from(page.into_string()));
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn file(kind: &'static str, text: &'static str) -> Response {
    let mut response = answer(StatusCode::OK, Body::from(text));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    let kept = HeaderValue::from_static("private, max-age=300");
    headers.insert(header::CACHE_CONTROL, kept);
    response
}

fn answer(status: StatusCode, body: Body) -> Response {
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
