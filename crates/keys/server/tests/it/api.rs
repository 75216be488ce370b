//! The API as clients see it: what each client gets, and what each client is told.
//!
//! Method: a real server in this process, real TLS, requests byte by byte.
use crate::common;

use common::{Installation, Running, all_bytes};
use serde_json::{Value, json};
use strongroom_keys_server::audit::{Chain, Row};

#[test]
fn a_node_makes_fetches_and_rotates_its_key_and_nobody_else_gets_it() {
    let installation = Installation::with_provider();
    let running = Running::open(&installation);
    let a = running.node(&installation, "a");
    let b = running.node(&installation, "b");
    let mut a = running.client(Some(&a));
    let made = a.post(
        "/v1/keys",
        &json!({"name": "db-7", "object": {"kind": "volume"}}),
    );
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(
        made.json(),
        json!({"name": "db-7", "version": 1, "state": "active"})
    );
    a.post("/v1/keys", &json!({"name": "db-7"}))
        .refused(409, "SR-8424");
    let first = a.material("db-7", "1");
    assert_eq!((first.len(), &first), (44, &a.material("db-7", "latest")));
    let rotated = a.post("/v1/keys/db-7/rotate", &json!({}));
    assert_eq!(rotated.json(), json!({"name": "db-7", "version": 2}));
    let second = a.material("db-7", "latest");
    assert_ne!(first, second);
    assert_eq!(
        (a.material("db-7", "1"), a.material("db-7", "2")),
        (first.clone(), second)
    );
    let answer = a.get("/v1/keys/db-7/versions/2/material");
    assert_eq!(answer.headers["cache-control"], "no-store");

    // A key of another and a key that is not there look the same, from node and administrator.
    let mut b = running.client(Some(&b));
    let mut admin = running.admin(&installation);
    for client in [&mut b, &mut admin] {
        let theirs = client.get("/v1/keys/db-7/versions/1/material");
        theirs.refused(404, "SR-8423");
        let missing = client.get("/v1/keys/nothing/versions/1/material");
        assert_eq!(theirs.text().replace("db-7", "nothing"), missing.text());
    }
    b.get("/v1/keys/db-7").refused(404, "SR-8423");
    b.post("/v1/keys/db-7/rotate", &json!({}))
        .refused(404, "SR-8423");
    assert_eq!(b.get("/v1/keys").json()["keys"], json!([]));
    assert_eq!(admin.get("/v1/keys").json()["keys"][0]["name"], "db-7");
    assert_eq!(
        admin.get("/v1/keys/db-7").json()["versions"]
            .as_array()
            .unwrap()
            .len(),
        2
    );

    // Granted, then taken back, on a connection that stays open.
    let granted = json!({"node": "b", "key": "db-7"});
    assert_eq!(admin.post("/v1/grants", &granted).status, 204);
    assert_eq!(b.material("db-7", "1"), first);
    assert_eq!(
        admin
            .ask("DELETE", "/v1/grants", Some(granted.to_string().as_bytes()))
            .status,
        204
    );
    b.get("/v1/keys/db-7/versions/1/material")
        .refused(404, "SR-8423");
    admin
        .post("/v1/grants", &json!({"node": "c", "key": "db-7"}))
        .refused(404, "SR-8455");
    for version in ["0", "3", "01", "-1", "latest ", "99999999999"] {
        let path = format!(
            "/v1/keys/db-7/versions/{}/material",
            version.replace(' ', "%20")
        );
        assert!([400, 404].contains(&a.get(&path).status), "{version}");
    }
}

#[test]
fn neither_keys_nor_names_are_in_the_files() {
    let installation = Installation::with_provider();
    let running = Running::open(&installation);
    let node = running.node(&installation, "a");
    let mut node = running.client(Some(&node));
    node.post("/v1/keys", &json!({"name": "db-7"}));
    node.post("/v1/keys/db-7/rotate", &json!({}));
    let (first, second) = (node.material("db-7", "1"), node.material("db-7", "2"));
    let files = all_bytes(installation.directory.path());
    let is_in = |needle: &[u8]| files.windows(needle.len()).any(|window| window == needle);
    for secret in [&first, &second] {
        use base64::Engine as _;
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(secret)
            .unwrap();
        assert!(!is_in(&bytes) && !is_in(secret.as_bytes()));
    }
    assert!(!is_in(b"db-7"));
}

#[test]
fn disabled_destroyed_restored() {
    let installation = Installation::with_provider();
    let running = Running::open(&installation);
    let node_identity = running.node(&installation, "a");
    let mut node = running.client(Some(&node_identity));
    let mut admin = running.admin(&installation);
    assert_eq!(node.post("/v1/keys", &json!({"name": "k"})).status, 201);
    let before = node.material("k", "1");
    let material = "/v1/keys/k/versions/1/material";
    node.post("/v1/keys/k/disable", &json!({}))
        .refused(403, "SR-8422");
    assert_eq!(
        admin.post("/v1/keys/k/disable", &json!({})).json()["state"],
        "disabled"
    );
    node.get(material).refused(423, "SR-8426");
    node.post("/v1/keys/k/rotate", &json!({}))
        .refused(423, "SR-8426");
    assert_eq!(
        admin.post("/v1/keys/k/enable", &json!({})).json()["state"],
        "active"
    );
    assert_eq!(node.material("k", "1"), before);

    // A node destroys what it made, but not at once.
    node.post("/v1/keys/k/destroy", &json!({"after_seconds": 0}))
        .refused(403, "SR-8422");
    let pending = node.post("/v1/keys/k/destroy", &json!({}));
    assert_eq!(
        pending.json()["state"],
        "destroy-pending",
        "{}",
        pending.text()
    );
    assert!(
        pending.json()["destroy_at"].as_u64().unwrap() > strongroom_keys_server::now() + 6 * 86_400
    );
    node.get(material).refused(423, "SR-8426");
    admin
        .post("/v1/keys/k/enable", &json!({}))
        .refused(409, "SR-8439");
    assert_eq!(
        admin.post("/v1/keys/k/restore", &json!({})).json()["state"],
        "disabled"
    );
    assert_eq!(admin.post("/v1/keys/k/enable", &json!({})).status, 200);
    assert_eq!(node.material("k", "1"), before, "restored whole");

    // Nor does an administrator have it erased before anybody can look.
    for seconds in [0, 7 * 86_400 - 1] {
        let soon = json!({"after_seconds": seconds});
        let refused = admin.post("/v1/keys/k/destroy", &soon);
        refused.refused(403, "SR-8452");
    }
    assert_eq!(admin.get("/v1/keys/k").json()["state"], "active");
    drop(running);
    at_once_where_that_is_allowed(&installation, &node_identity);
}

fn at_once_where_that_is_allowed(installation: &Installation, node: &common::Identity) {
    installation.edit(|text| text.replace("destroy_least_days = 7", "destroy_least_days = 0"));
    let running = Running::open(installation);
    let mut admin = running.admin(installation);
    let mut node = running.client(Some(node));
    let material = "/v1/keys/k/versions/1/material";
    let nothing = json!({"after_seconds": 0});
    let gone = admin.post("/v1/keys/k/destroy", &nothing);
    assert_eq!(gone.json()["state"], "destroyed", "{}", gone.text());
    node.get(material).refused(410, "SR-8425");
    for action in ["restore", "enable", "disable", "rotate", "destroy"] {
        admin
            .post(&format!("/v1/keys/k/{action}"), &json!({}))
            .refused(410, "SR-8425");
    }
    node.post("/v1/keys", &json!({"name": "k"}))
        .refused(409, "SR-8424");
    admin
        .post("/v1/keys/k/destroy", &json!({"after_seconds": 40_000_000}))
        .refused(400, "SR-8429");
}

#[test]
fn tokens_are_used_once_and_a_new_certificate_ends_the_one_before() {
    let installation = Installation::with_provider();
    let running = Running::open(&installation);
    let mut admin = running.admin(&installation);
    let token = json!({"node": "n", "role": "node", "may_create": true, "expires_seconds": 600});
    let first = admin.post("/v1/tokens", &token).json()["token"]
        .as_str()
        .unwrap()
        .to_owned();
    running
        .enrol_with("strongroom-token-1-00")
        .0
        .refused(403, "SR-8431");
    running
        .client(None)
        .post("/v1/enroll", &json!({"token": first, "csr": "none"}))
        .refused(400, "SR-8429");
    let (_, identity) = running.enrol_with(&first);
    running.enrol_with(&first).0.refused(403, "SR-8431");
    let mut node = running.client(identity.as_ref());
    assert_eq!(node.post("/v1/keys", &json!({"name": "k"})).status, 201);

    // Enrolled anew: the former certificate no longer counts, not even on its open connection.
    // Grants stay.
    let again = running.enrol(&installation, &token);
    node.get("/v1/keys").refused(403, "SR-8421");
    running
        .client(identity.as_ref())
        .get("/v1/keys")
        .refused(403, "SR-8421");
    let mut node = running.client(Some(&again));
    assert_eq!(node.material("k", "1").len(), 44);

    // Revoked: at once, and a new node of that name begins with nothing.
    let spare = admin.post("/v1/tokens", &token).json()["token"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(admin.delete("/v1/nodes/n").status, 204);
    // Nor does it come back by itself.
    running.enrol_with(&spare).0.refused(403, "SR-8431");
    node.get("/v1/keys/k/versions/1/material")
        .refused(403, "SR-8421");
    let anew = running.enrol(&installation, &token);
    running
        .client(Some(&anew))
        .get("/v1/keys/k/versions/1/material")
        .refused(404, "SR-8423");
    admin.delete("/v1/nodes/admin").refused(409, "SR-8439");
    admin.delete("/v1/nodes/nobody").refused(404, "SR-8455");
    admin
        .post("/v1/grants", &json!({"node": "admin", "key": "none"}))
        .refused(404, "SR-8454");
}

#[test]
fn a_token_that_was_not_used_can_be_taken_back() {
    let installation = Installation::with_provider();
    let running = Running::open(&installation);
    let mut admin = running.admin(&installation);
    admin.post("/v1/keys", &json!({"name": "k"}));
    let wanted = json!({"node": "a", "role": "node", "keys": ["k"], "expires_seconds": 600});
    let tokens: Vec<String> = (0..2)
        .map(|_| {
            admin.post("/v1/tokens", &wanted).json()["token"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    let listed = admin.get("/v1/tokens");
    let infos = listed.json()["tokens"].as_array().unwrap().clone();
    assert_eq!(infos.len(), 2, "{}", listed.text());
    assert_eq!(
        (&infos[0]["node"], &infos[0]["keys"]),
        (&json!("a"), &json!(["k"]))
    );
    assert!(
        tokens
            .iter()
            .all(|token| !listed.text().contains(&token[20..]))
    );
    let one = |info: &Value| format!("/v1/tokens/{}", info["id"].as_str().unwrap());
    assert_eq!(admin.delete(&one(&infos[0])).status, 204);
    admin.delete(&one(&infos[0])).refused(404, "SR-8459");
    // One of the two is good still, and only once.
    let used = tokens
        .iter()
        .map(|token| running.enrol_with(token).0.status);
    let mut used: Vec<u16> = used.collect();
    used.sort_unstable();
    assert_eq!(used, [201, 403]);
    assert_eq!(admin.get("/v1/tokens").json()["tokens"], json!([]));
    let node = running.node(&installation, "b");
    let mut node = running.client(Some(&node));
    node.get("/v1/tokens").refused(403, "SR-8422");
    node.delete(&one(&infos[1])).refused(403, "SR-8422");
}

#[test]
fn a_token_ends_with_its_time() {
    let installation = Installation::with_provider();
    let running = Running::open(&installation);
    let token = json!({"node": "n", "role": "node", "expires_seconds": 1});
    let made = running
        .admin(&installation)
        .post("/v1/tokens", &token)
        .json();
    let token = made["token"].as_str().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    running.enrol_with(token).0.refused(403, "SR-8431");
    assert_eq!(running.server.service().unwrap().sweep().unwrap(), 0);
    running.enrol_with(token).0.refused(403, "SR-8431");
}

#[test]
fn roles() {
    let installation = Installation::with_provider();
    let running = Running::open(&installation);
    let viewer = running.enrol(
        &installation,
        &json!({"node": "v", "role": "viewer", "expires_seconds": 60}),
    );
    let node = running.enrol(
        &installation,
        &json!({"node": "n", "role": "node", "expires_seconds": 60}),
    );
    let (mut viewer, mut node) = (running.client(Some(&viewer)), running.client(Some(&node)));
    let mut nobody = running.client(None);
    let token = json!({"node": "x", "role": "admin", "expires_seconds": 60});
    let posts: [(&str, Value); 5] = [
        ("/v1/keys", json!({"name": "k"})),
        ("/v1/tokens", token),
        ("/v1/grants", json!({"node": "n", "key": "k"})),
        ("/v1/seal", json!({})),
        ("/v1/renew", json!({"csr": ""})),
    ];
    for (path, body) in &posts {
        nobody.post(path, body).refused(401, "SR-8420");
        if *path != "/v1/renew" {
            viewer.post(path, body).refused(403, "SR-8422");
            node.post(path, body).refused(403, "SR-8422");
        }
    }
    for path in [
        "/v1/nodes",
        "/v1/audit",
        "/v1/objects",
        "/v1/grants",
        "/metrics",
    ] {
        nobody.get(path).refused(401, "SR-8420");
        node.get(path).refused(403, "SR-8422");
        assert_eq!(viewer.get(path).status, 200, "{path}");
    }
    assert_eq!(viewer.get("/v1/keys").status, 200);
    viewer.delete("/v1/nodes/n").refused(403, "SR-8422");
    for path in ["/healthz", "/v1/status", "/openapi.json"] {
        assert_eq!(nobody.get(path).status, 200);
    }
    assert_eq!(nobody.get("/v1/status").json()["sealed"], false);
    let metrics = viewer.get("/metrics").text();
    assert!(
        metrics.starts_with("# HELP strongroom_keyserver_sealed"),
        "{metrics}"
    );
    assert!(
        metrics.contains("\nstrongroom_keyserver_requests_total{status=\"4xx\"} "),
        "{metrics}"
    );
}

#[test]
fn everything_is_written_down_in_a_chain() {
    let installation = Installation::with_provider();
    let running = Running::open(&installation);
    let node = running.node(&installation, "a");
    let mut client = running.client(Some(&node));
    client.post("/v1/keys", &json!({"name": "k"}));
    client.material("k", "1");
    client
        .get("/v1/keys/other/versions/1/material")
        .refused(404, "SR-8423");
    let mut admin = running.admin(&installation);
    let mut rows: Vec<Row> = Vec::new();
    loop {
        let after = rows.last().map_or(0, |row| row.n);
        let page = admin
            .get(&format!("/v1/audit?after={after}&limit=3"))
            .json();
        let part: Vec<Row> = serde_json::from_value(page["rows"].clone()).unwrap();
        assert_eq!(page["more"], part.len() == 3);
        rows.extend(part);
        if page["more"] == false {
            break;
        }
    }
    let mut chain = Chain::default();
    for row in &rows {
        chain.verify(row).unwrap();
    }
    let told: Vec<String> = rows
        .iter()
        .map(|row| format!("{} {} {}", row.actor, row.action, row.subject))
        .collect();
    let expected = [
        "- init admin",
        "- unseal ",
        "admin token a",
        "a enroll a",
        "a create k",
        "a deliver k",
        "a denied other",
    ];
    assert_eq!(told, expected);
    assert_eq!(rows[5].version, 1);
    assert_eq!(rows[6].detail, "deliver SR-8423");
    assert!(rows[4..].iter().all(|row| row.address == "127.0.0.1"));
}

#[test]
fn headers_in_escrow() {
    let installation = Installation::with_provider();
    let running = Running::open(&installation);
    let (a, b) = (
        running.node(&installation, "a"),
        running.node(&installation, "b"),
    );
    let (mut a, mut b) = (running.client(Some(&a)), running.client(Some(&b)));
    let path = "/v1/escrow/000102030405060708090a0b0c0d0e0f";
    a.get(path).refused(404, "SR-8423");
    let report = json!({"kind": "volume", "name": "v", "cipher": "aes-xts-plain64", "key_id": "k", "key_version": 1, "created": 1});
    let object = path.replace("escrow", "objects");
    let reported = a.ask("PUT", &object, Some(report.to_string().as_bytes()));
    assert_eq!(reported.status, 204);
    // More than a piece, and not a multiple of one.
    let header: Vec<u8> = (0..1_300_000_u32)
        .map(|n| n.to_le_bytes()[0] ^ 0x5a)
        .collect();
    let kept = a.ask("PUT", path, Some(&header));
    assert_eq!(kept.json()["size"], 1_300_000, "{}", kept.text());
    assert_eq!(a.get(path).body, header);
    let shorter = &header[..600_000];
    assert_eq!(a.ask("PUT", path, Some(shorter)).status, 200);
    assert_eq!(a.get(path).body, shorter);
    b.get(path).refused(404, "SR-8423");
    b.ask("PUT", path, Some(b"mine now"))
        .refused(404, "SR-8423");
    b.delete(path).refused(404, "SR-8423");
    assert_eq!(running.admin(&installation).get(path).body, shorter);
    assert_eq!(a.delete(path).status, 204);
    a.get(path).refused(404, "SR-8423");
    a.ask("PUT", path, Some(b"")).refused(400, "SR-8429");
    a.ask("PUT", "/v1/escrow/00", Some(b"x"))
        .refused(400, "SR-8429");
    // Refused by its length alone, before a byte of it is read.
    let head = format!(
        "PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\nContent-Length: {}\r\n\r\n",
        33 << 20
    );
    a.send(head.as_bytes()).unwrap();
    a.answer().unwrap().refused(413, "SR-8430");
}

#[test]
fn objects_are_reported_by_whoever_may_open_them() {
    let installation = Installation::with_provider();
    let running = Running::open(&installation);
    let (a, b) = (
        running.node(&installation, "a"),
        running.node(&installation, "b"),
    );
    let (mut a, mut b) = (running.client(Some(&a)), running.client(Some(&b)));
    let mut admin = running.admin(&installation);
    a.post("/v1/keys", &json!({"name": "k"}));
    let path = "/v1/objects/000102030405060708090a0b0c0d0e0f";
    let report = json!({"kind": "volume", "name": "/dev/vdb", "cipher": "aes-xts-plain64", "key_id": "k", "key_version": 1, "created": 1_700_000_000, "verified": 1_700_000_100});
    let text = report.to_string();
    assert_eq!(a.ask("PUT", path, Some(text.as_bytes())).status, 204);
    b.ask("PUT", path, Some(text.as_bytes()))
        .refused(404, "SR-8423");
    admin.post("/v1/grants", &json!({"node": "b", "key": "k"}));
    assert_eq!(b.ask("PUT", path, Some(text.as_bytes())).status, 204);
    let objects = admin.get("/v1/objects").json();
    let object = &objects["objects"][0];
    assert_eq!(
        (&object["node"], &object["key_id"]),
        (&json!("b"), &json!("k")),
        "{objects}"
    );
    assert!(object["reported"].as_u64().unwrap() > 1_700_000_000);
    for (member, value) in [
        ("kind", json!("toaster")),
        ("name", json!("a\u{7}b")),
        ("extra", json!(1)),
        ("created", json!(-1)),
    ] {
        let mut wrong = report.clone();
        wrong[member] = value;
        let answer = a.ask("PUT", path, Some(wrong.to_string().as_bytes()));
        answer.refused(400, "SR-8429");
    }
    assert_eq!(admin.delete(path).status, 204);
    assert_eq!(admin.get("/v1/objects").json()["objects"], json!([]));
}

#[test]
fn what_is_not_well_formed_is_refused_in_the_same_form() {
    let installation = Installation::with_provider();
    let running = Running::open(&installation);
    let mut admin = running.admin(&installation);
    let cases: [(&str, &str, Option<&str>, u16); 16] = [
        ("GET", "/nothing", None, 404),
        ("GET", "/v1/keys/", None, 404),
        ("PATCH", "/v1/keys", None, 405),
        ("DELETE", "/v1/status", None, 405),
        ("POST", "/v1/keys", Some("{"), 400),
        ("POST", "/v1/keys", Some("[]"), 400),
        ("POST", "/v1/keys", Some(""), 400),
        (
            "POST",
            "/v1/tokens",
            Some("{\"node\":\"a\",\"role\":\"root\",\"expires_seconds\":1}"),
            400,
        ),
        (
            "POST",
            "/v1/tokens",
            Some("{\"node\":\"a\",\"role\":\"node\",\"expires_seconds\":1,\"x\":1}"),
            400,
        ),
        (
            "POST",
            "/v1/tokens",
            Some("{\"node\":\"..\",\"role\":\"node\",\"expires_seconds\":1}"),
            400,
        ),
        ("GET", "/v1/keys?limit=0", None, 400),
        ("GET", "/v1/keys?limit=1&frob=2", None, 400),
        ("GET", "/v1/keys?after=%2e%2e", None, 400),
        ("GET", "/v1/keys/..%2f..%2fauthority", None, 400),
        ("GET", "/v1/keys/a%00b", None, 400),
        ("GET", "/v1/keys/%ff", None, 400),
    ];
    for (method, path, body, status) in cases {
        let answer = admin.ask(method, path, body.map(str::as_bytes));
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text());
        assert!(answer.code().starts_with("SR-84"), "{method} {path}");
        assert_eq!(answer.headers["content-type"], "application/json");
    }
    let long = format!("/v1/keys/{}", "a".repeat(200));
    admin.get(&long).refused(400, "SR-8429");
    // Its length is enough: of a body that nobody reads, what is on its way would cost the sender
    // the answer.
    let large = "POST /v1/keys HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n";
    admin.send(large.as_bytes()).unwrap();
    admin.answer().unwrap().refused(413, "SR-8430");
}

#[test]
fn whoever_asks_too_often_waits_and_nobody_else() {
    let installation = Installation::with_provider();
    installation.edit(|text| {
        text.replace("client_per_second = 100", "client_per_second = 1")
            .replace("client_burst = 200", "client_burst = 20")
    });
    let running = Running::open(&installation);
    let node = running.node(&installation, "a");
    let mut client = running.client(Some(&node));
    let limited = (0..100)
        .map(|_| client.get("/v1/keys"))
        .find(|answer| answer.status != 200);
    let limited = limited.unwrap();
    limited.refused(429, "SR-8427");
    assert!(limited.headers["retry-after"].parse::<u64>().unwrap() >= 1);
    assert_eq!(running.admin(&installation).get("/v1/nodes").status, 200);
}
