//! What the fleet page shows besides its list: objects that were shredded, and a server whose store
//! is filling up.
//!
//! Method: fleets made of records.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, which is what it is for"
)]

#[expect(dead_code, reason = "tests of the list use the rest")]
use crate::page::fixture;

use fixture::{NOW, of, one_object};
use strongroom_keys_server::page::query::Query;
use strongroom_keys_server::page::records::{
    DAY_S, KeyRecord, KeyState, Kind, ObjectRecord, PendingDestroyRequest,
};
use strongroom_keys_server::page::{detail, overview};

#[test]
fn shredded_objects_have_a_heading_of_their_own_and_nothing_is_asked_of_them() {
    let gone = ObjectRecord {
        id: format!("{:032x}", 8),
        name: "/dev/gone".to_owned(),
        shredded: Some(NOW - 3600),
        created: 1,
        ..one_object(Kind::Volume)
    };
    let key = |state| KeyRecord {
        name: "key-0".to_owned(),
        state,
        versions: vec![(1, NOW - 3600)],
        nodes: Vec::new(),
        destroy_request: None,
    };
    let pending = KeyState::Pending {
        at: NOW + 6 * DAY_S,
    };
    let fleet = of(vec![gone.clone()], vec![key(pending)]);
    assert_eq!((fleet.objects.len(), fleet.shredded.len()), (0, 1));
    assert_eq!(fleet.keys[0].objects, 0);
    let page = overview::overview(&fleet, &Query::default()).into_string();
    for part in [
        "Shredded",
        "/dev/gone",
        "not destroyed yet: at",
        "in 6 d",
        &gone.id,
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(fleet.object(&gone.id).is_some(), "its page is still there");
    let mut waiting = key(KeyState::Active);
    waiting.destroy_request = Some(PendingDestroyRequest {
        by: "boss".to_owned(),
        after_s: 30 * DAY_S,
        until: NOW + 6 * DAY_S,
    });
    let fleet_of_one = of(Vec::new(), vec![waiting]);
    let page = detail::key(&fleet_of_one, &fleet_of_one.keys[0]).into_string();
    let text = "boss asked for its destruction 30 d after a second administrator agrees";
    assert!(page.contains(text), "{page}");
    let fleet = of(vec![gone], vec![key(KeyState::Destroyed)]);
    let page = overview::overview(&fleet, &Query::default()).into_string();
    assert!(
        page.contains("<td data-label=\"State of the key\">destroyed</td>"),
        "{page}"
    );
    assert!(
        !of(vec![one_object(Kind::Volume)], Vec::new())
            .objects
            .is_empty()
    );
}

#[test]
fn the_page_says_that_the_server_needs_room() {
    let mut fleet = of(vec![one_object(Kind::Volume)], Vec::new());
    let calm = overview::overview(&fleet, &Query::default()).into_string();
    assert!(!calm.contains("needs room"));
    fleet.alarms = vec!["the store's file system has 9 MiB free".to_owned()];
    let page = overview::overview(&fleet, &Query::default()).into_string();
    assert!(
        page.contains("needs room") && page.contains("9 MiB free"),
        "{page}"
    );
}
