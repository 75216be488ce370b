//! Where two administrators have to agree on a key's destruction: they agree on one time, one of
//! them alone cannot bring it forward, and a request that waits is shown, can be withdrawn, and
//! expires.
//!
//! Method: a real server in this process, real TLS. For two servers on one store: two services,
//! where the store of one lets the other act just before a commit.
#![expect(
    clippy::unwrap_used,
    reason = "a test that panics has failed, which is what it is for"
)]

use crate::common;

use std::sync::Arc;

use common::service::{enrolled, opened, peer};
use common::store::Hooked;
use common::{Client, Identity, Installation, Running, request};
use serde_json::{Value, json};
use strongroom_keyring::Error;
use strongroom_keys_server::config::Config;
use strongroom_keys_server::now;
use strongroom_keys_server::records::{self, Guarded, Key, Role, State};
use strongroom_keys_server::service::{Peer, Service};
use strongroom_keys_server::store::{Append, Store};

const DAY_S: u64 = 86_400;
const DESTROY: &str = "/v1/keys/k/destroy";

/// A place whose server wants two administrators.
fn installation() -> Installation {
    let installation = Installation::with_provider();
    installation
        .edit(|text| text.replace("destroy_administrators = 1", "destroy_administrators = 2"));
    installation
}

/// A further administrator, or a viewer.
fn enrol(running: &Running, installation: &Installation, name: &str, role: &str) -> Identity {
    let token = json!({"node": name, "role": role, "expires_seconds": 600});
    running.enrol(installation, &token)
}

/// Two administrators at a running server that has the key `k`.
fn two(running: &Running, installation: &Installation) -> (Client, Client) {
    let mut admin = running.admin(installation);
    let second = enrol(running, installation, "boss", "admin");
    assert_eq!(admin.post("/v1/keys", &json!({"name": "k"})).status, 201);
    (admin, running.client(Some(&second)))
}

fn days(days: u64) -> Value {
    json!({"after_seconds": days * DAY_S})
}

/// Asks for the destruction of `k` and returns what was answered.
fn destroy(client: &mut Client, body: &Value) -> Value {
    let answer = client.post(DESTROY, body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// How many whole days it is until the key is destroyed.
fn days_left(key: &Value) -> u64 {
    assert_eq!(key["state"], "destroy-pending", "{key}");
    (key["destroy_at"].as_u64().unwrap() + 60 - now()) / DAY_S
}

/// The detail of the newest row of the audit log with this action.
fn last_detail(client: &mut Client, action: &str) -> String {
    let rows = client.get("/v1/audit?limit=5000").json();
    let rows = rows["rows"].as_array().unwrap().iter().rev();
    let mut of_action = rows.filter(|row| row["action"] == action);
    of_action.next().unwrap()["detail"].as_str().unwrap().into()
}

#[test]
fn one_administrator_alone_brings_no_destruction_forward() {
    let installation = installation();
    let running = Running::open(&installation);
    let (mut admin, mut second) = two(&running, &installation);
    assert_eq!(destroy(&mut admin, &days(30))["state"], "active");
    let detail = last_detail(&mut admin, "destroy");
    let waits = "after_seconds 2592000, waits for another administrator until ";
    assert!(detail.starts_with(waits), "{detail}");
    // Another time is not what the first one asked for.
    let other = second.post(DESTROY, &days(20));
    other.refused(409, "SR-8458");
    assert!(
        other
            .text()
            .contains("admin asked for after_seconds 2592000")
    );
    assert_eq!(admin.get("/v1/keys/k").json()["state"], "active");
    // Without a time, the second one agrees with that of the first, and not with the policy's.
    assert_eq!(days_left(&destroy(&mut second, &json!({}))), 30);
    let detail = last_detail(&mut admin, "destroy");
    let agreed = "after_seconds 2592000, destroy_at ";
    let is_agreed = detail.starts_with(agreed) && detail.ends_with(", asked for by admin");
    assert!(is_agreed, "{detail}");

    // Neither of them brings it forward alone, whether a time is said or the policy's is meant.
    for body in [json!({}), days(8), json!({})] {
        let asked = destroy(&mut second, &body);
        let shown = (days_left(&asked), &asked["destroy_asked_by"]);
        assert_eq!(shown, (30, &"boss".into()));
    }
    admin.post(DESTROY, &days(7)).refused(409, "SR-8458");
    assert_eq!(days_left(&destroy(&mut admin, &days(8))), 8);
    // One of them puts it off, which takes back what waits.
    destroy(&mut admin, &days(7));
    let later = destroy(&mut second, &days(60));
    assert_eq!(
        (days_left(&later), later.get("destroy_asked_by")),
        (60, None)
    );
    let detail = last_detail(&mut admin, "destroy");
    let taken = ", taken back: after_seconds 604800, asked for by admin";
    assert!(detail.ends_with(taken), "{detail}");
    // One of them restores the key, and then it takes two from the beginning.
    destroy(&mut admin, &days(7));
    let restored = second.post("/v1/keys/k/restore", &json!({})).json();
    assert_eq!(restored["state"], "disabled");
    assert_eq!(destroy(&mut second, &days(7))["state"], "disabled");
}

#[test]
fn a_request_that_waits_is_shown_and_taken_back() {
    let installation = installation();
    let running = Running::open(&installation);
    let (mut admin, mut second) = two(&running, &installation);
    let viewer = enrol(&running, &installation, "looks", "viewer");
    let mut viewer = running.client(Some(&viewer));
    let began = now();
    destroy(&mut admin, &days(9));
    let keys = viewer.get("/v1/keys").json();
    let key = &keys["keys"][0];
    assert_eq!(key["destroy_asked_by"], "admin");
    assert_eq!(key["destroy_asked_after_seconds"], 9 * DAY_S);
    let at = key["destroy_asked_at"].as_u64().unwrap();
    assert!((began..=now()).contains(&at), "{key}");
    assert_eq!(key["destroy_asked_until"], at + 7 * DAY_S);
    assert_eq!(viewer.get("/v1/keys/k").json(), *key);
    // The key is disabled first, as one does; that takes nothing back.
    for (action, state) in [("disable", "disabled"), ("enable", "active")] {
        let answer = second.post(&format!("/v1/keys/k/{action}"), &json!({}));
        let answer = answer.json();
        let shown = (&answer["state"], &answer["destroy_asked_by"]);
        assert_eq!(shown, (&state.into(), &"admin".into()));
    }
    let withdraw = |client: &mut Client| client.delete(DESTROY);
    withdraw(&mut viewer).refused(403, "SR-8422");
    let answer = withdraw(&mut second).json();
    let shown = (&answer["state"], answer.get("destroy_asked_by"));
    assert_eq!(shown, (&"active".into(), None));
    let detail = last_detail(&mut admin, "destroy-withdraw");
    assert_eq!(
        detail,
        "taken back: after_seconds 777600, asked for by admin"
    );
    withdraw(&mut second).refused(409, "SR-8439");
    // It begins anew, with the second one's time. `restore` takes that back too.
    assert_eq!(destroy(&mut second, &days(10))["destroy_asked_by"], "boss");
    let restored = admin.post("/v1/keys/k/restore", &json!({})).json();
    let shown = (&restored["state"], restored.get("destroy_asked_by"));
    assert_eq!(shown, (&"active".into(), None));
    assert_eq!(destroy(&mut admin, &days(10))["state"], "active");
    // Of a destruction that both agreed on, only the request for an earlier one is taken back.
    destroy(&mut second, &days(10));
    destroy(&mut second, &days(8));
    assert_eq!(days_left(&withdraw(&mut admin).json()), 10);
    assert_eq!(
        viewer.get("/v1/keys/k").json().get("destroy_asked_by"),
        None
    );
}

#[test]
fn the_request_of_who_is_no_administrator_any_more_does_not_count() {
    let installation = installation();
    let running = Running::open(&installation);
    let (mut admin, mut second) = two(&running, &installation);
    let waits = |client: &mut Client| {
        let key = client.get("/v1/keys/k").json();
        key.get("destroy_asked_by").cloned()
    };
    // Revoked.
    destroy(&mut second, &days(9));
    assert_eq!(waits(&mut admin), Some("boss".into()));
    assert_eq!(admin.delete("/v1/nodes/boss").status, 204);
    assert_eq!(waits(&mut admin), None);
    assert_eq!(destroy(&mut admin, &days(9))["destroy_asked_by"], "admin");
    assert_eq!(admin.delete(DESTROY).status, 200);
    // Enrolled again under the name: that is somebody else, as is who only lost the certificate.
    let mut second = running.client(Some(&enrol(&running, &installation, "boss", "admin")));
    destroy(&mut second, &days(9));
    let mut third = running.client(Some(&enrol(&running, &installation, "boss", "admin")));
    assert_eq!(waits(&mut admin), None);
    assert_eq!(destroy(&mut third, &days(9))["state"], "active");
    // Of another role.
    enrol(&running, &installation, "boss", "viewer");
    assert_eq!(waits(&mut admin), None);
    assert_eq!(destroy(&mut admin, &days(9))["state"], "active");
    assert_eq!(admin.delete(DESTROY).status, 200);
    // A renewed certificate is the same administrator's.
    let mut second = running.client(Some(&enrol(&running, &installation, "boss", "admin")));
    destroy(&mut second, &days(9));
    let (key, csr) = request("boss");
    let renewed = second.post("/v1/renew", &json!({"csr": csr})).json();
    let certificate = renewed["certificate"].as_str().unwrap().to_owned();
    let mut renewed = running.client(Some(&Identity { certificate, key }));
    assert_eq!(waits(&mut renewed), Some("boss".into()));
    assert_eq!(destroy(&mut renewed, &days(9))["state"], "active");
    assert_eq!(days_left(&destroy(&mut admin, &days(9))), 9);
}

/// Changes the request for the destruction of `k` in the store of a server that does not run.
fn with_request(installation: &Installation, change: impl FnOnce(&mut records::DestroyRequest)) {
    let (store, keys, _) = opened(installation);
    let found: Guarded<Key> = records::read(&*store, &keys(), "keys/k").unwrap();
    let mut key = found.record.unwrap();
    change(key.destroy_asked.as_mut().unwrap());
    let changed = records::put(&keys(), "keys/k", &key).unwrap();
    store.commit(&[], &[changed], &Append::default()).unwrap();
}

#[test]
fn a_request_outlives_the_server_and_ends_after_seven_days() {
    let installation = installation();
    let running = Running::open(&installation);
    let second = enrol(&running, &installation, "boss", "admin");
    let mut admin = running.admin(&installation);
    assert_eq!(admin.post("/v1/keys", &json!({"name": "k"})).status, 201);
    let again = |running: Running, change: &dyn Fn(&mut records::DestroyRequest)| {
        drop(running);
        with_request(&installation, |asked| change(asked));
        Running::open(&installation)
    };
    destroy(&mut admin, &days(30));
    let running = again(running, &|asked| asked.at -= 7 * DAY_S - 60);
    let mut boss = running.client(Some(&second));
    assert_eq!(days_left(&destroy(&mut boss, &json!({}))), 30, "restarted");
    assert_eq!(boss.post("/v1/keys/k/restore", &json!({})).status, 200);

    destroy(&mut running.admin(&installation), &days(30));
    let running = again(running, &|asked| asked.at -= 7 * DAY_S);
    let mut boss = running.client(Some(&second));
    let key = boss.get("/v1/keys/k").json();
    assert_eq!(key.get("destroy_asked_by"), None, "it has ended");
    // Without a time, this is a request for the policy's.
    let asked = destroy(&mut boss, &json!({}));
    assert_eq!(asked["state"], "disabled");
    assert_eq!(asked["destroy_asked_after_seconds"], 7 * DAY_S);

    // An older build put down no time: nobody can agree with it.
    let running = again(running, &|asked| asked.after_seconds = None);
    let mut admin = running.admin(&installation);
    assert_eq!(admin.get("/v1/keys/k").json().get("destroy_asked_by"), None);
    let asked = destroy(&mut admin, &days(7));
    let shown = (&asked["state"], &asked["destroy_asked_by"]);
    assert_eq!(shown, (&"disabled".into(), &"admin".into()));
}

/// The least delay that is in force when the second one agrees counts. No key is kept waiting for a
/// second administrator where one is enough by now.
#[test]
fn the_policy_of_the_moment_counts() {
    let installation = installation();
    let running = Running::open(&installation);
    let (mut admin, mut second) = two(&running, &installation);
    destroy(&mut admin, &days(7));
    let with = |from: &str, to: &str| {
        installation.edit(|text| text.replace(from, to));
        let config = Config::read(&installation.path("server.toml")).unwrap();
        running.server.reconfigure(config);
    };
    with("destroy_least_days = 7", "destroy_least_days = 8");
    let refused = second.post(DESTROY, &json!({}));
    refused.refused(403, "SR-8452");
    assert!(refused.text().contains("withdraw it"), "{}", refused.text());
    second.post(DESTROY, &days(7)).refused(403, "SR-8452");
    with("destroy_administrators = 2", "destroy_administrators = 1");
    assert_eq!(admin.get("/v1/keys/k").json().get("destroy_asked_by"), None);
    assert_eq!(days_left(&destroy(&mut second, &days(9))), 9);
}

fn number<T>(outcome: Result<T, Error>) -> u16 {
    outcome.err().map_or(0, |error| error.code().number)
}

#[test]
fn of_two_requests_at_once_one_is_the_first() {
    let installation = installation();
    let (shared, keys, rules) = opened(&installation);
    let hooked = Hooked::new(Arc::clone(&shared));
    let one: Arc<dyn Store> = Arc::<Hooked>::clone(&hooked);
    let one = Service::open(one, keys(), rules).unwrap();
    let other = Arc::new(Service::open(shared, keys(), rules).unwrap());
    let admin = peer(&std::fs::read_to_string(installation.path("admin.pem")).unwrap());
    let boss = enrolled(&other, &admin, "boss", Role::Admin);
    other.create_key(&admin, "k", None).unwrap();
    // What the other server does just before the first one commits.
    let meanwhile = |act: fn(&Service, &Peer)| {
        let (other, boss) = (Arc::clone(&other), boss.clone());
        hooked.before("keys/", move || act(&other, &boss));
    };
    // Of two times that are not the same, none is agreed on.
    meanwhile(|other, boss| {
        other.destroy_key(boss, "k", Some(30 * DAY_S)).unwrap();
    });
    let asked = one.destroy_key(&admin, "k", Some(7 * DAY_S));
    assert_eq!(number(asked), 8458);
    let key = one.key(&admin, "k").unwrap();
    assert_eq!(key.state, State::Active);
    assert_eq!(key.destroy_request.unwrap().destroy_asked_by, "boss");
    // Taken back before the second one agrees: that is a request, and no agreement.
    meanwhile(|other, boss| {
        other.withdraw_destroy(boss, "k").unwrap();
    });
    let asked = one.destroy_key(&admin, "k", Some(30 * DAY_S)).unwrap();
    assert_eq!(asked.state, State::Active);
    assert_eq!(asked.destroy_request.unwrap().destroy_asked_by, "admin");
    one.withdraw_destroy(&admin, "k").unwrap();
    // Both ask for the same time: one of them is the second.
    meanwhile(|other, boss| {
        other.destroy_key(boss, "k", Some(7 * DAY_S)).unwrap();
    });
    let agreed = one.destroy_key(&admin, "k", Some(7 * DAY_S)).unwrap();
    assert_eq!(agreed.state, State::DestroyPending);
    one.restore_key(&admin, "k").unwrap();
    // The first one is revoked before the second one's agreement is committed.
    other.destroy_key(&boss, "k", Some(7 * DAY_S)).unwrap();
    let (service, by) = (Arc::clone(&other), admin.clone());
    hooked.before("keys/", move || service.revoke(&by, "boss").unwrap());
    let asked = one.destroy_key(&admin, "k", Some(7 * DAY_S)).unwrap();
    assert_eq!(asked.state, State::Disabled);
    assert_eq!(asked.destroy_request.unwrap().destroy_asked_by, "admin");
}
