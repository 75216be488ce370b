//! Two servers on one store interfere, or one is killed between two writes: a header in escrow is
//! complete, and a revoked client leaves nothing to the next client of its name.
//!
//! Method: two services on one store. The store of the first one lets the second one act, or fails,
//! just before a certain commit.
#![expect(
    clippy::unwrap_used,
    reason = "a test that panics has failed, which is what it is for"
)]

use crate::common;

use std::sync::Arc;

use common::service::{enrolled, opened, peer};
use common::store::Hooked;
use common::{Installation, request};
use strongroom_keyring::Error;
use strongroom_keys_server::keys::Keys;
use strongroom_keys_server::paths::{ESCROW, ESCROW_DATA, ESCROW_WORK, GRANTS, NODES};
use strongroom_keys_server::records::{self, Report, Role, UnnamedPieces};
use strongroom_keys_server::service::{Peer, Service};
use strongroom_keys_server::store::{Append, Store};

const ID: &str = "000102030405060708090a0b0c0d0e0f";

/// Two servers, an administrator and a node.
struct Two {
    _installation: Installation,
    store: Arc<Hooked>,
    keys: Keys,
    one: Arc<Service>,
    other: Arc<Service>,
    admin: Peer,
    node: Peer,
}

impl Two {
    fn new() -> Self {
        let installation = Installation::with_provider();
        let (shared, keys, rules) = opened(&installation);
        let hooked = Hooked::new(Arc::clone(&shared));
        let one: Arc<dyn Store> = Arc::<Hooked>::clone(&hooked);
        let one = Arc::new(Service::open(one, keys(), rules).unwrap());
        let other = Arc::new(Service::open(shared, keys(), rules).unwrap());
        let admin = peer(&std::fs::read_to_string(installation.path("admin.pem")).unwrap());
        let node = enrolled(&other, &admin, "a", Role::Node);
        let report = Report {
            kind: "volume".to_owned(),
            name: "v".to_owned(),
            cipher: "aes-xts-plain64".to_owned(),
            key_id: "k".to_owned(),
            key_version: 1,
            created: 1,
            rotated: None,
            backed_up: None,
            verified: None,
            shredded: None,
        };
        other.report(&node, ID, &report).unwrap();
        Self {
            _installation: installation,
            store: hooked,
            keys: keys(),
            one,
            other,
            admin,
            node,
        }
    }

    /// What the other server does just before the first one commits a change of a path that begins
    /// so.
    fn meanwhile(&self, prefix: &'static str, act: impl FnOnce(&Service, &Peer) + Send + 'static) {
        let (other, node) = (Arc::clone(&self.other), self.node.clone());
        self.store.before(prefix, move || act(&other, &node));
    }

    /// Both servers have this header, or none; and nothing else is left in the store.
    fn has(&self, header: Option<&[u8]>) {
        for service in [&self.one, &self.other] {
            match header {
                Some(header) => assert!(service.header(&self.node, ID).unwrap() == header),
                None => assert_eq!(number(service.header(&self.node, ID)), 8423),
            }
        }
        let pieces = header.map_or(0, |header| header.len().div_ceil(512 * 1024));
        assert_eq!(self.count(ESCROW_DATA), pieces, "pieces");
        assert_eq!(self.count(ESCROW_WORK), 0, "what tells of pieces");
    }

    fn count(&self, prefix: &str) -> usize {
        self.store.list(prefix, "", 1000).unwrap().len()
    }

    /// As if the writing that is under way had begun long ago.
    fn age(store: &dyn Store, keys: &Keys) {
        for (path, _) in store.list(ESCROW_WORK, "", 10).unwrap() {
            let old = records::put(keys, &path, &UnnamedPieces { since: 1 }).unwrap();
            store.commit(&[], &[old], &Append::default()).unwrap();
        }
    }
}

fn number<T>(outcome: Result<T, Error>) -> u16 {
    outcome.err().map_or(0, |error| error.code().number)
}

/// Headers of several pieces.
fn headers() -> (Vec<u8>, Vec<u8>) {
    (vec![1; 1_300_000], vec![2; 700_000])
}

#[test]
fn of_two_headers_put_at_once_one_is_kept_whole() {
    let two = Two::new();
    let (first, second) = headers();
    let meant = second.clone();
    two.meanwhile(ESCROW, move |other, node| {
        other.store_header(node, ID, &meant).unwrap();
    });
    // It began before the other one, which is newer, and ends after it.
    assert_eq!(number(two.one.store_header(&two.node, ID, &first)), 8442);
    two.has(Some(&second));
    // The same where one was before.
    let meant = first.clone();
    two.meanwhile(ESCROW, move |other, node| {
        other.store_header(node, ID, &meant).unwrap();
    });
    assert_eq!(number(two.one.store_header(&two.node, ID, &[3; 9])), 8442);
    two.has(Some(&first));
    // While its pieces are written, too.
    let meant = second.clone();
    two.meanwhile(ESCROW_DATA, move |other, node| {
        other.store_header(node, ID, &meant).unwrap();
    });
    assert_eq!(number(two.one.store_header(&two.node, ID, &first)), 8442);
    two.has(Some(&second));
    two.one.store_header(&two.node, ID, &first).unwrap();
    two.has(Some(&first));
}

#[test]
fn a_client_that_asks_both_servers_for_the_same_thing_gets_it() {
    let two = Two::new();
    let (header, _) = headers();
    let meant = header.clone();
    two.meanwhile(ESCROW, move |other, node| {
        other.store_header(node, ID, &meant).unwrap();
    });
    let kept = two.one.store_header(&two.node, ID, &header).unwrap();
    assert_eq!(kept.size, header.len() as u64);
    two.has(Some(&header));
}

#[test]
fn a_header_that_is_removed_while_another_is_put_leaves_none_or_a_whole_one() {
    let two = Two::new();
    let (first, second) = headers();
    two.one.store_header(&two.node, ID, &first).unwrap();
    two.meanwhile(ESCROW, |other, node| other.remove_header(node, ID).unwrap());
    assert_eq!(number(two.one.store_header(&two.node, ID, &second)), 8442);
    two.has(None);
    // Removed first; its pieces go when the next header is there already.
    two.one.store_header(&two.node, ID, &first).unwrap();
    let meant = second.clone();
    two.meanwhile(ESCROW_DATA, move |other, node| {
        other.store_header(node, ID, &meant).unwrap();
    });
    two.one.remove_header(&two.node, ID).unwrap();
    two.has(Some(&second));
}

#[test]
fn what_a_killed_server_left_is_swept_up_and_what_was_there_stays() {
    let two = Two::new();
    let (first, second) = headers();
    two.one.store_header(&two.node, ID, &first).unwrap();
    two.store.dies_before(ESCROW);
    assert_eq!(number(two.one.store_header(&two.node, ID, &second)), 8435);
    two.store.revive();
    assert_eq!(two.count(ESCROW_DATA), 5, "pieces of both");
    // It may be that they are still being written.
    two.other.sweep().unwrap();
    assert_eq!(two.count(ESCROW_DATA), 5);
    Two::age(&*two.store, &two.keys);
    two.other.sweep().unwrap();
    two.has(Some(&first));
    // Killed when the record names the new ones, and the old ones are still there.
    let store = Arc::clone(&two.store);
    two.store.before(ESCROW, move || {
        store.dies_before(ESCROW_DATA);
    });
    two.one.store_header(&two.node, ID, &second).unwrap();
    two.store.revive();
    assert_eq!(two.count(ESCROW_DATA), 5);
    two.other.sweep().unwrap();
    two.has(Some(&second));
}

#[test]
fn who_writes_for_too_long_names_no_pieces_that_were_swept_up() {
    let two = Two::new();
    let (first, second) = headers();
    two.one.store_header(&two.node, ID, &first).unwrap();
    let (store, keys) = (Arc::clone(&two.store), Arc::new(two.keys));
    let other = Arc::clone(&two.other);
    let theirs = Arc::clone(&keys);
    two.store.before(ESCROW, move || {
        Two::age(&*store.store, &theirs);
        other.sweep().unwrap();
    });
    assert_eq!(number(two.one.store_header(&two.node, ID, &second)), 8442);
    assert!(two.one.header(&two.node, ID).unwrap() == first);
    assert_eq!(two.store.list(ESCROW_DATA, "", 100).unwrap().len(), 3);
}

#[test]
fn a_revocation_that_broke_off_leaves_nothing_to_the_next_of_that_name() {
    let two = Two::new();
    two.one.create_key(&two.node, "k", None).unwrap();
    two.one.deliver(&two.node, "k", None).unwrap();
    two.store.dies_before(GRANTS);
    assert_eq!(number(two.one.revoke(&two.admin, "a")), 8435);
    two.store.revive();
    assert_eq!(number(two.other.deliver(&two.node, "k", None)), 8421);
    assert_eq!(two.count(GRANTS), 1, "the grant is left");
    let anew = enrolled(&two.other, &two.admin, "a", Role::Node);
    assert_eq!(number(two.other.deliver(&anew, "k", None)), 8423);
    assert_eq!(two.count(GRANTS), 0);
    // Who is only enrolled anew keeps what it has.
    two.other.grant(&two.admin, "a", "k", false).unwrap();
    let again = enrolled(&two.other, &two.admin, "a", Role::Node);
    two.other.deliver(&again, "k", None).unwrap();
}

/// Of two requests that use a renewed certificate for the first time, the second one finds it in
/// use between its two reads, and is served too.
#[test]
fn a_first_use_that_another_request_has_just_committed_is_served() {
    let two = Two::new();
    let renewed = two.other.renew(&two.node, &request("a").1).unwrap();
    let client = peer(&renewed.certificate);
    let (other, same) = (Arc::clone(&two.other), client.clone());
    two.store
        .before_read(NODES, move || drop(other.identify(&same).unwrap()));
    two.one.identify(&client).unwrap();
    let ended = two.one.identify(&two.node).err().unwrap();
    assert_eq!(ended.code().number, 8421);
}
