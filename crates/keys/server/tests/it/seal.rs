//! Sealed and open: nothing is delivered without the root key, and only the right root key opens
//! the server.
use crate::common;

use common::{Installation, Running};
use serde_json::json;
use strongroom_keys_server::config::Config;
use strongroom_keys_server::init::{NewServer, RootSource, init};
use strongroom_keys_server::tls;

/// Nothing is served to a client that would be served by an open server.
fn served_nothing(client: &mut common::Client) {
    for path in [
        "/v1/keys",
        "/v1/keys/k/versions/1/material",
        "/v1/nodes",
        "/v1/audit",
        "/v1/objects",
    ] {
        client.get(path).refused(503, "SR-8428");
    }
    let changes = [
        ("/v1/keys", json!({"name": "x"})),
        ("/v1/enroll", json!({"token": "x", "csr": "y"})),
        ("/v1/seal", json!({})),
    ];
    for (path, body) in changes {
        client.post(path, &body).refused(503, "SR-8428");
    }
    assert_eq!(client.get("/healthz").status, 503);
}

#[test]
fn fewer_shares_than_needed_serve_nothing() {
    let installation = Installation::with_shares(3, 5);
    let other = Installation::with_shares(3, 5);
    let node = {
        let running = Running::sealed(&installation);
        for share in &installation.shares[..3] {
            running.server.give_share(share).unwrap();
        }
        let node = running.node(&installation, "a");
        assert_eq!(
            running
                .client(Some(&node))
                .post("/v1/keys", &json!({"name": "k"}))
                .status,
            201
        );
        node
    };
    // Started again: sealed again.
    let running = Running::sealed(&installation);
    let mut client = running.client(Some(&node));
    // The server closes the connection that a share came on.
    let give = |share: &str| {
        let mut nobody = running.client(None);
        let given = nobody.post("/v1/unseal", &json!({"share": share}));
        assert_eq!(given.headers["connection"], "close");
        given
    };
    served_nothing(&mut client);
    give(&other.shares[0]).refused(400, "SR-8432");
    give("").refused(400, "SR-8432");
    assert_eq!(give(&installation.shares[4]).json()["shares_given"], 1);
    give(&installation.shares[4]).refused(409, "SR-8441");
    assert_eq!(
        give(&installation.shares[1]).json(),
        json!({"sealed": true, "waits_for": "shares", "threshold": 3, "shares_given": 2, "version": env!("CARGO_PKG_VERSION")})
    );
    served_nothing(&mut client);
    assert!(
        client
            .get("/metrics")
            .text()
            .contains("strongroom_keyserver_sealed 1\n")
    );
    assert_eq!(give(&installation.shares[0]).json()["sealed"], false);
    assert_eq!(client.material("k", "1").len(), 44);
    let unwanted = give(&installation.shares[2]);
    unwanted.refused(409, "SR-8439");
    assert_eq!(
        unwanted.json()["error"]["detail"],
        "the server is open already"
    );

    // Sealed by an administrator, on open connections too; and opened again.
    assert_eq!(
        running
            .admin(&installation)
            .post("/v1/seal", &json!({}))
            .json()["sealed"],
        true
    );
    served_nothing(&mut client);
    for share in &installation.shares[2..] {
        assert_eq!(give(share).status, 200);
    }
    assert_eq!(client.material("k", "1").len(), 44);
}

#[test]
fn another_root_key_opens_nothing() {
    let (installation, other) = (Installation::with_provider(), Installation::with_provider());
    std::fs::copy(
        other.path("root.keyring"),
        installation.path("root.keyring"),
    )
    .unwrap();
    let running = Running::sealed(&installation);
    let error = running.server.unseal_by_provider().err().unwrap();
    assert_eq!(error.code().number, 8437);
    running.client(None).get("/v1/keys").refused(503, "SR-8428");

    // Nor does the check value help: the store is another's.
    let theirs = std::fs::read_to_string(other.path("server.toml")).unwrap();
    installation.edit(|_| theirs.clone());
    let running = Running::sealed(&installation);
    assert!(running.server.unseal_by_provider().is_err());
}

#[test]
fn a_provider_that_does_not_answer_leaves_it_sealed_until_it_does() {
    let installation = Installation::with_provider();
    let (key, away) = (installation.path("root.key"), installation.path("away"));
    std::fs::copy(&key, &away).unwrap();
    std::fs::remove_file(&key).unwrap();
    let running = Running::sealed(&installation);
    assert_eq!(
        running
            .server
            .unseal_by_provider()
            .err()
            .unwrap()
            .code()
            .number,
        2007
    );
    assert!(running.server.wants_provider());
    std::fs::copy(&away, &key).unwrap();
    running.server.unseal_by_provider().unwrap();
    let mut admin = running.admin(&installation);
    assert_eq!(admin.get("/v1/nodes").status, 200);
    // By order: no provider opens it any more.
    admin.post("/v1/seal", &json!({}));
    assert!(!running.server.wants_provider());
    running
        .client(None)
        .post("/v1/unseal", &json!({"share": "x"}))
        .refused(409, "SR-8439");
}

/// Two listeners on one address, or a store in the place of another file, would be found when the
/// server starts.
#[test]
fn a_server_that_could_not_start_is_not_made() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let new = |store: &str, page: Option<&str>| NewServer {
        config: at("server.toml"),
        store: format!("sqlite:{store}"),
        names: vec!["localhost".to_owned()],
        address: "127.0.0.1:8443".parse().unwrap(),
        page: page.map(|page| page.parse().unwrap()),
        root: RootSource::Shares {
            threshold: 2,
            shares: 3,
        },
    };
    let absolute = at("root.keyring").display().to_string();
    for (store, page) in [
        ("keys.db", Some("127.0.0.1:8443")),
        ("admin.key", None),
        ("server.toml", None),
        ("authority.pem", None),
        (&absolute, None),
    ] {
        let refused = init(&new(store, page)).err().unwrap();
        assert_eq!(refused.code().number, 8434, "{store}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    init(&new("keys.db", Some("127.0.0.1:8444"))).unwrap();
}

/// Whoever writes the configuration or the authority's file decides whom the server trusts.
#[test]
fn files_that_decide_about_trust_are_refused_where_others_may_write_them() {
    use std::os::unix::fs::PermissionsExt as _;

    let installation = Installation::with_provider();
    let read = || {
        let config = Config::read(&installation.path("server.toml"))?;
        tls::server_config(&config).map(drop)
    };
    for (name, number) in [("server.toml", 8434), ("authority.pem", 8440)] {
        let path = installation.path(name);
        for (mode, good) in [
            (0o640, true),
            (0o664, false),
            (0o620, false),
            (0o646, false),
            (0o644, true),
        ] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            match read() {
                Ok(()) => assert!(good, "{name} {mode:o}"),
                Err(error) => {
                    assert!(!good, "{name} {mode:o}: {error}");
                    assert_eq!(error.code().number, number, "{error}");
                    assert!(error.detail().contains(name), "{error}");
                }
            }
        }
    }
}
