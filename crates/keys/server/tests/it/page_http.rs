//! The fleet page over real TLS: who may see it, the responses to others, its headers, and that it
//! changes nothing.
//!
//! Must not: depend on when the fleet is read again: the test waits for what has to appear.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that panics has failed"
)]

#[expect(dead_code, reason = "other tests use the rest")]
use crate::page::server;

use std::time::{Duration, Instant};

use scraper::{Html, Selector};
use server::{Answered, Credentials, Running, peer, volume};
use strongroom_keys_server::page::HEADERS;
use strongroom_keys_server::records::Role;

const ID: &str = "00112233445566778899aabbccddeeff";
const HOSTILE: &str = "</th><script>alert(1)</script><img src=x onerror=alert(1)>&lt;\u{200b}\"'";

fn has_headers(answer: &Answered, what: &str) {
    for (name, value) in HEADERS {
        assert_eq!(answer.header(name), Some(value), "{what}: {name}");
    }
}

/// Asks until the page holds the text: a fleet is kept for a moment.
fn until(running: &Running, client: &Credentials, path: &str, text: &str) -> Answered {
    let began = Instant::now();
    loop {
        let answer = running.get(Some(client), path);
        if answer.body.contains(text) {
            return answer;
        }
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "{text} in {}",
            answer.body
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn viewers_and_administrators_see_the_fleet_and_nobody_else() {
    let running = Running::open();
    let node = running.enrolled("db-1", Role::Node);
    let viewer = running.enrolled("ops", Role::Viewer);
    running.report(&node, ID, &volume("/dev/vdb"));
    for client in [&viewer, &running.admin()] {
        let page = until(&running, client, "/", "/dev/vdb");
        assert_eq!(page.status, 200);
        has_headers(&page, "/");
        assert_eq!(page.header("cache-control"), Some("no-store"));
        assert_eq!(
            page.header("content-type"),
            Some("text/html; charset=utf-8")
        );
    }
    let detail = format!("/fleet/objects/{ID}");
    let pages = [
        "/",
        "/?kind=volume",
        "/fleet/keys",
        "/fleet/nodes",
        "/fleet/nodes/db-1",
        &detail,
        "/fleet/nothing",
    ];
    for (client, status) in [(None, 401), (Some(&node), 403)] {
        for path in pages {
            let page = running.get(client, path);
            assert_eq!(page.status, status, "{path}");
            has_headers(&page, path);
            let hidden = ["/dev/vdb", "db-1", "ops", "aes-xts"];
            // The address itself is known to whoever asked.
            for hidden in hidden.iter().filter(|text| !path.contains(**text)) {
                assert!(
                    !page.body.contains(*hidden),
                    "{path}: {hidden} in {}",
                    page.body
                );
            }
        }
    }
    for path in ["/fleet/keys", "/fleet/nodes", "/fleet/nodes/db-1", &detail] {
        assert_eq!(running.get(Some(&viewer), path).status, 200, "{path}");
    }
    // What the pages need to be read, sealed or not.
    for (path, kind) in [
        ("/fleet/style.css", "text/css; charset=utf-8"),
        ("/fleet/icon.svg", "image/svg+xml"),
    ] {
        let file = running.get(None, path);
        assert_eq!(
            (file.status, file.header("content-type")),
            (200, Some(kind))
        );
        has_headers(&file, path);
    }
    // Revoked: at once, whatever was kept.
    running
        .service()
        .revoke(&peer(&running.admin()), "ops")
        .unwrap();
    let page = running.get(Some(&viewer), "/");
    assert_eq!(page.status, 403);
    assert!(!page.body.contains("/dev/vdb"));
}

#[test]
fn a_sealed_server_shows_that_it_is_sealed_and_nothing_more() {
    let running = Running::sealed();
    let admin = running.admin();
    for path in ["/", "/fleet/keys", "/fleet/objects/x"] {
        let page = running.get(Some(&admin), path);
        assert_eq!(page.status, 503, "{path}");
        assert!(page.body.contains("0 of 2"), "{}", page.body);
        has_headers(&page, path);
    }
    running.give_share(2);
    assert!(running.get(None, "/").body.contains("1 of 2"));
    running.give_share(0);
    let node = running.enrolled("db-1", Role::Node);
    running.report(&node, ID, &volume("/dev/vdb"));
    until(&running, &admin, "/", "/dev/vdb");
    // Sealed again: what was kept is not shown.
    running.server.seal();
    let page = running.get(Some(&admin), "/");
    assert_eq!(page.status, 503);
    assert!(!page.body.contains("/dev/vdb") && !page.body.contains("admin"));
}

#[test]
fn what_a_node_reports_stays_text() {
    let running = Running::open();
    let node = running.enrolled("db-1", Role::Node);
    let viewer = running.enrolled("ops", Role::Viewer);
    running.report(&node, ID, &volume(HOSTILE));
    for path in ["/", &format!("/fleet/objects/{ID}"), "/fleet/nodes/db-1"] {
        let page = until(&running, &viewer, path, "alert(1)");
        let html = Html::parse_document(&page.body);
        for element in ["script", "img", "th > img", "[onerror]"] {
            let selector = Selector::parse(element).unwrap();
            assert!(html.select(&selector).next().is_none(), "{path}: {element}");
        }
        assert!(!page.body.contains('\u{200b}'));
    }
}

#[test]
fn what_is_not_there_and_what_means_nothing_are_told_apart() {
    let running = Running::open();
    let admin = running.admin();
    for path in [
        "/fleet/objects/x",
        "/fleet/keys/%2e%2e%2f",
        "/fleet/nodes/%ff",
        "/fleet/a/b/c",
        "/fleet/keys/",
    ] {
        let page = running.get(Some(&admin), path);
        assert_eq!(page.status, 404, "{path}");
        has_headers(&page, path);
    }
    for path in [
        "/?kind=x",
        "/?page=0",
        "/?sort=%3Cscript%3E",
        "/fleet/keys?page=x",
    ] {
        let page = running.get(Some(&admin), path);
        assert_eq!(page.status, 400, "{path}");
        has_headers(&page, path);
        assert!(!page.body.contains("<script>"));
    }
    // Other methods change nothing and show nothing.
    for method in ["POST", "PUT", "DELETE", "TRACE", "OPTIONS"] {
        let page = running.ask(Some(&admin), &format!("{method} / HTTP/1.1\r\n"), "");
        assert_eq!(page.status, 405, "{method}");
    }
    for path in ["/fleet/theme", "/fleet/keys", "/v1/renew", "/v1/keys"] {
        for method in ["POST", "PUT", "DELETE", "PATCH"] {
            let head = format!("{method} {path} HTTP/1.1\r\nContent-Type: application/json\r\n");
            let page = running.ask(Some(&admin), &head, "{}");
            assert_eq!(page.status, 405, "{method} {path}");
        }
    }
    // Nothing of the API is where the page is, and the page is not where the API is.
    for path in ["/v1/keys", "/v1/status", "/openapi.json", "/metrics"] {
        assert_eq!(running.get(Some(&admin), path).status, 404, "{path}");
    }
    for path in ["/", "/fleet", "/fleet/keys", "/fleet/style.css"] {
        let head = format!("GET {path} HTTP/1.1\r\n");
        assert_eq!(running.ask_api(Some(&admin), &head, "").status, 404);
    }
}

#[test]
fn the_choice_of_a_theme_is_a_cookie_and_leads_nowhere_else() {
    let running = Running::open();
    let admin = running.admin();
    let choose = |query: &str| running.get(Some(&admin), &format!("/fleet/theme?{query}"));
    let chosen = choose("back=%2F%3Fkind%3Dvolume&theme=dark");
    assert_eq!(
        (chosen.status, chosen.header("location")),
        (303, Some("/?kind=volume"))
    );
    let cookie = chosen.header("set-cookie").unwrap();
    for part in [
        "__Host-theme=dark;",
        "Secure",
        "HttpOnly",
        "SameSite=Strict",
        "Path=/",
    ] {
        assert!(cookie.contains(part), "{cookie}");
    }
    has_headers(&chosen, "theme");
    let page = running.ask(
        Some(&admin),
        "GET / HTTP/1.1\r\nCookie: a=b; __Host-theme=dark\r\n",
        "",
    );
    assert!(page.body.contains("data-theme=\"dark\""));
    let page = running.ask(
        Some(&admin),
        "GET / HTTP/1.1\r\nCookie: __Host-theme=\"><script>\r\n",
        "",
    );
    assert!(!page.body.contains("data-theme") && !page.body.contains("<script>"));
    // Away from here, or a header of the attacker's.
    for back in [
        "//evil.example",
        "/%5Cevil.example",
        "https://evil.example",
        "%2F%0d%0aSet-Cookie:x=y",
        "/%0aX",
        "javascript:x",
        "",
    ] {
        let answer = choose(&format!("theme=light&back={back}"));
        assert_eq!(
            (answer.status, answer.header("location")),
            (303, Some("/")),
            "{back}"
        );
        let cookies = answer
            .headers
            .iter()
            .filter(|(name, _)| name == "set-cookie");
        assert_eq!(cookies.count(), 1);
    }
    assert_eq!(choose("theme=purple").status, 400);
    let long = format!("theme=dark&back=/{}", "x".repeat(5000));
    assert_eq!(choose(&long).status, 413);
    // Another site does not choose.
    let head = "GET /fleet/theme?theme=dark HTTP/1.1\r\nSec-Fetch-Site: cross-site\r\n";
    let foreign = running.ask(Some(&admin), head, "");
    assert_eq!((foreign.status, foreign.header("set-cookie")), (303, None));
}
