//! Certificates of clients before they expire: a renewal that is lost or interrupted leaves a valid
//! certificate.
#![expect(
    clippy::unwrap_used,
    reason = "a test that panics has failed, which is what it is for"
)]

use crate::common;

use common::{Client, Identity, Installation, Running, request};
use serde_json::json;

/// Renews; the new certificate, which was not used yet.
fn renewed(client: &mut Client) -> Identity {
    let (key, csr) = request("somebody-else");
    let answer = client.post("/v1/renew", &json!({"csr": csr}));
    assert_eq!(answer.status, 201, "{}", answer.text());
    assert_eq!(answer.json()["node"], "n");
    let certificate = answer.json()["certificate"].as_str().unwrap().to_owned();
    Identity { certificate, key }
}

/// Actions of the audit log by and about the node.
fn actions(running: &Running, installation: &Installation) -> Vec<String> {
    let rows = running
        .admin(installation)
        .get("/v1/audit?limit=1000")
        .json();
    let rows = rows["rows"].as_array().unwrap().iter();
    let of_node = rows.filter(|row| row["actor"] == "n");
    of_node
        .map(|row| row["action"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn the_former_certificate_counts_until_the_new_one_is_used() {
    let installation = Installation::with_provider();
    let running = Running::open(&installation);
    let first = running.node(&installation, "n");
    let mut old = running.client(Some(&first));
    assert_eq!(old.post("/v1/keys", &json!({"name": "k"})).status, 201);

    // The answer is lost: nothing is.
    let lost = renewed(&mut old);
    assert_eq!(old.material("k", "1").len(), 44);
    // Asked again: the certificate that was made first waits no longer.
    let second = renewed(&mut old);
    running
        .client(Some(&lost))
        .get("/v1/keys")
        .refused(403, "SR-8421");
    assert_eq!(
        running.client(Some(&first)).material("k", "1").len(),
        44,
        "who shows a certificate that waits no longer ends nothing"
    );

    // Used: the former one ends, also on its open connection.
    let mut new = running.client(Some(&second));
    assert_eq!(new.material("k", "1").len(), 44);
    old.get("/v1/keys").refused(403, "SR-8421");
    old.post("/v1/renew", &json!({"csr": request("n").1}))
        .refused(403, "SR-8421");
    running
        .client(Some(&first))
        .get("/v1/keys")
        .refused(403, "SR-8421");
    assert_eq!(new.material("k", "1").len(), 44);
    let listed = running.admin(&installation).get("/v1/nodes").json();
    let nodes = listed["nodes"].as_array().unwrap();
    assert_eq!(nodes.iter().filter(|node| node["name"] == "n").count(), 1);
    assert_eq!(
        actions(&running, &installation)
            .iter()
            .filter(|action| *action != "deliver")
            .collect::<Vec<_>>(),
        ["enroll", "create", "renew", "renew", "renewed"]
    );
}

#[test]
fn a_renewal_is_for_a_new_key() {
    let installation = Installation::with_provider();
    let running = Running::open(&installation);
    let identity = running.node(&installation, "n");
    let mut node = running.client(Some(&identity));
    let csr_of = |key: &str| {
        let key = rcgen::KeyPair::from_pem(key).unwrap();
        let params = rcgen::CertificateParams::default();
        params.serialize_request(&key).unwrap().pem().unwrap()
    };
    node.post("/v1/renew", &json!({"csr": csr_of(&identity.key)}))
        .refused(400, "SR-8429");
    let other = running.node(&installation, "m");
    node.post("/v1/renew", &json!({"csr": csr_of(&other.key)}))
        .refused(400, "SR-8429");
    // The request that was sent twice has one answer that is good, and it is the last one.
    let (key, csr) = request("n");
    let mut last = None;
    for _ in 0..2 {
        let answer = node.post("/v1/renew", &json!({"csr": csr}));
        assert_eq!(answer.status, 201, "{}", answer.text());
        last = answer.json()["certificate"].as_str().map(str::to_owned);
    }
    let certificate = last.unwrap();
    let new = Identity { certificate, key };
    assert_eq!(running.client(Some(&new)).get("/v1/keys").status, 200);
    node.get("/v1/keys").refused(403, "SR-8421");
}

#[test]
fn who_is_revoked_or_enrolled_anew_has_no_certificate_that_waits() {
    let installation = Installation::with_provider();
    let running = Running::open(&installation);
    let mut admin = running.admin(&installation);
    let first = running.node(&installation, "n");
    let waiting = renewed(&mut running.client(Some(&first)));
    let anew = running.node(&installation, "n");
    for ended in [&first, &waiting] {
        running
            .client(Some(ended))
            .get("/v1/keys")
            .refused(403, "SR-8421");
    }
    let waiting = renewed(&mut running.client(Some(&anew)));
    assert_eq!(admin.delete("/v1/nodes/n").status, 204);
    for ended in [&anew, &waiting] {
        running
            .client(Some(ended))
            .get("/v1/keys")
            .refused(403, "SR-8421");
    }
}

#[test]
fn many_first_uses_at_once_end_one_certificate_once() {
    let installation = Installation::with_provider();
    let running = Running::open(&installation);
    let first = running.node(&installation, "n");
    let second = renewed(&mut running.client(Some(&first)));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                assert_eq!(running.client(Some(&second)).get("/v1/keys").status, 200);
            });
        }
    });
    let all = actions(&running, &installation);
    assert_eq!(all.iter().filter(|action| *action == "renewed").count(), 1);
}

/// What alarms are made of: certificates that end, and an administrator who was made beside the
/// server.
#[test]
fn metrics_tell_what_ends_and_that_somebody_used_the_root_key() {
    use strongroom_keys_server::offline::Offline;

    let installation = Installation::with_provider();
    installation.edit(|text| text.replace("certificate_days = 1825", "certificate_days = 20"));
    let running = Running::open(&installation);
    let value = |name: &str| -> u64 {
        let text = running.admin(&installation).get("/metrics").text();
        let start = format!("\nstrongroom_keyserver_{name} ");
        let rest = text.split_once(&start).unwrap().1;
        rest.lines().next().unwrap().parse().unwrap()
    };
    let identity = running.node(&installation, "n");
    drop(renewed(&mut running.client(Some(&identity))));
    assert_eq!(value("break_glass_count"), 0);
    assert_eq!(
        value("node_certificates"),
        2,
        "one that waits does not count"
    );
    assert_eq!(value("node_certificates_end_in_30_days"), 1);
    assert_eq!(value("node_certificates_end_in_7_days"), 0);
    assert_eq!(value("node_certificates_ended"), 0);
    let offline = Offline::open(&installation.path("server.toml"), &[]).unwrap();
    drop(offline.break_glass("second").unwrap());
    assert_eq!(value("break_glass_count"), 1);
    assert!(value("break_glass_seconds") > 1_700_000_000);
}

#[test]
fn a_token_that_says_nothing_of_rights_takes_none() {
    let installation = Installation::with_provider();
    let running = Running::open(&installation);
    let rights = || {
        let listed = running.admin(&installation).get("/v1/nodes").json();
        let nodes = listed["nodes"].as_array().unwrap();
        let node = nodes.iter().find(|node| node["name"] == "n").unwrap();
        (node["may_create"] == true, node["may_destroy"] == true)
    };
    let enrol = |more: &[(&str, bool)]| {
        let mut token = json!({"node": "n", "role": "node", "expires_seconds": 600});
        for (name, value) in more {
            token[*name] = (*value).into();
        }
        running.enrol(&installation, &token)
    };
    drop(enrol(&[]));
    assert_eq!(rights(), (false, false));
    drop(enrol(&[("may_create", true), ("may_destroy", true)]));
    drop(enrol(&[]));
    assert_eq!(rights(), (true, true), "nothing said, nothing taken");
    drop(enrol(&[("may_create", true)]));
    assert_eq!(rights(), (true, false));
    drop(enrol(&[("may_create", false)]));
    assert_eq!(rights(), (false, false));
}

/// A command that is refused has issued no certificate, which the audit log would name.
#[test]
fn a_certificate_of_a_server_that_is_refused_leaves_no_row() {
    use strongroom_keyring::pair::Pair;
    use strongroom_keys_server::offline::Offline;

    let (installation, other) = (Installation::with_provider(), Installation::with_provider());
    let path = |name: &str| installation.path(name);
    let rows = || common::service::opened(&installation).0.last_row().unwrap();
    let number = |error: strongroom_keyring::Error| error.code().number;
    let offline = Offline::open(&path("server.toml"), &[]).unwrap();
    let before = rows();
    {
        let files = Pair::new(&path("server.pem"), &path("server.key"));
        let _lock = files.lock().unwrap();
        assert_eq!(number(offline.renew().unwrap_err()), 8440);
    }
    assert_eq!(rows(), before);
    for name in ["server.pem", "server.key"] {
        std::fs::remove_file(path(name)).unwrap();
    }
    let own = std::fs::read(path("authority.pem")).unwrap();
    std::fs::copy(other.path("authority.pem"), path("authority.pem")).unwrap();
    assert_eq!(number(offline.issue().unwrap_err()), 8440);
    assert_eq!(rows(), before);
    assert!(!path("server.key").exists());

    // Something has the name that could not be read: that is no failure of the disk.
    std::fs::remove_file(path("authority.pem")).unwrap();
    std::os::unix::fs::symlink("nowhere", path("authority.pem")).unwrap();
    assert_eq!(number(offline.issue().unwrap_err()), 1002);
    std::fs::remove_file(path("authority.pem")).unwrap();
    offline.issue().unwrap();
    assert_eq!(std::fs::read(path("authority.pem")).unwrap(), own);
}
