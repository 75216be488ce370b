//! Fleets for the tests of the page: made from numbers, the same every time.

use maud::Markup;
use scraper::{ElementRef, Html};
use strongroom_keys_server::page::frame::{self, Reader, Section};
use strongroom_keys_server::page::model::{Fleet, Object};
use strongroom_keys_server::page::query::Query;
use strongroom_keys_server::page::records::{
    DAY_S, KeyRecord, KeyState, Kind, NodeRecord, ObjectRecord, PendingDestroyRequest, Policy,
    Records,
};
use strongroom_keys_server::page::{detail, lists, overview, unavailable};

/// The time of all fleets.
pub(crate) const NOW: u64 = 1_795_000_000;
/// A name that tries what names can try.
pub(crate) const HOSTILE: &str = "</h1><script>alert(1)</script><img src=x onerror=alert(1)>\"'`{{7*7}}&lt;b\u{202e}\u{1b}[31m/../../<i>";

/// One object that is in order, of a node that is enrolled.
pub(crate) fn one_object(kind: Kind) -> ObjectRecord {
    ObjectRecord {
        id: format!("{:032x}", 7),
        node: "db-0".to_owned(),
        kind,
        name: "/srv/data".to_owned(),
        cipher: "aes-256-gcm".to_owned(),
        key_id: "key-0".to_owned(),
        key_version: 1,
        created: NOW - 3600,
        rotated: None,
        backed_up: None,
        verified: None,
        reported: NOW - 3600,
        shredded: None,
    }
}

/// The client of a name.
pub(crate) fn node(name: &str) -> NodeRecord {
    NodeRecord {
        name: name.to_owned(),
        role: "node".to_owned(),
        enrolled: Some(NOW - 100 * DAY_S),
        expires: Some(NOW + 200 * DAY_S),
    }
}

/// These objects and keys, and ten nodes.
pub(crate) fn of(objects: Vec<ObjectRecord>, keys: Vec<KeyRecord>) -> Fleet {
    let nodes = (0..10).map(|n| node(&format!("db-{n}"))).collect();
    let records = Records {
        objects,
        keys,
        nodes,
        cut: false,
    };
    Fleet::new(records, Policy::default(), NOW)
}

fn numbered(n: u64) -> ObjectRecord {
    let kind = Kind::ALL[usize::try_from(n % 4).unwrap()];
    // Scattered over two years, some never.
    let scattered = |salt: u64, days: u64| {
        let mixed = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17)
            ^ salt.wrapping_mul(0xd6e8_feb8_6659_fd93);
        let number = mixed.wrapping_mul(0xff51_afd7_ed55_8ccd) >> 33;
        (!number.is_multiple_of(7)).then(|| NOW - number % (days * DAY_S))
    };
    ObjectRecord {
        id: format!(
            "{:032x}",
            u128::from(n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
        ),
        node: format!("db-{}", n / 4 % 10),
        name: format!("/srv/{}/data{n:05}", kind.word()),
        kind,
        cipher: ["aes-256-gcm", "aes-256-xts", "aes-xts-plain64"][usize::try_from(n % 3).unwrap()]
            .to_owned(),
        key_id: format!("key-{}", n % 5),
        key_version: u32::try_from(n % 2).unwrap() + 1,
        created: NOW - 800 * DAY_S,
        rotated: scattered(1, 500),
        backed_up: scattered(2, 3),
        verified: scattered(3, 40),
        reported: scattered(4, 2).unwrap_or(NOW - 10 * DAY_S),
        shredded: None,
    }
}

/// A fleet of so many objects, with keys in every state.
pub(crate) fn fleet(objects: u64) -> Fleet {
    let state = |n: u64| match n {
        1 => KeyState::Disabled,
        2 => KeyState::Pending { at: NOW + DAY_S },
        _ => KeyState::Active,
    };
    let key = |n: u64| KeyRecord {
        name: format!("key-{n}"),
        state: state(n),
        versions: vec![
            (1, NOW - (300 + 30 * n) * DAY_S),
            (2, NOW - (1 + n) * DAY_S),
        ],
        nodes: (0..10).map(|node| format!("db-{node}")).collect(),
        destroy_request: None,
    };
    of(
        (0..objects).map(numbered).collect(),
        (0..4).map(key).collect(),
    )
}

/// A fleet whose every text attacks.
pub(crate) fn hostile() -> Fleet {
    let record = ObjectRecord {
        node: HOSTILE.to_owned(),
        name: HOSTILE.to_owned(),
        cipher: HOSTILE.to_owned(),
        key_id: HOSTILE.to_owned(),
        ..one_object(Kind::Volume)
    };
    let elsewhere = ObjectRecord {
        id: HOSTILE.to_owned(),
        key_id: "javascript:alert(1)".to_owned(),
        ..record.clone()
    };
    let gone = ObjectRecord {
        id: format!("{:032x}", 9),
        shredded: Some(u64::MAX),
        ..record.clone()
    };
    let key = KeyRecord {
        name: HOSTILE.to_owned(),
        state: KeyState::Active,
        versions: vec![(1, NOW)],
        nodes: vec![HOSTILE.to_owned()],
        destroy_request: Some(PendingDestroyRequest {
            by: HOSTILE.to_owned(),
            after_s: u64::MAX,
            until: u64::MAX,
        }),
    };
    let client = NodeRecord {
        role: HOSTILE.to_owned(),
        ..node(HOSTILE)
    };
    let records = Records {
        objects: vec![record, elsewhere, gone],
        keys: vec![key],
        nodes: vec![client],
        cut: true,
    };
    Fleet::new(records, Policy::default(), NOW)
}

/// Who reads.
pub(crate) fn reader() -> Reader {
    Reader {
        name: Some(HOSTILE.to_owned()),
        role: "viewer".to_owned(),
        path: format!("/?q={}", HOSTILE.len()),
        ..Reader::default()
    }
}

fn whole(section: Section, main: &Markup) -> String {
    frame::page(&reader(), section, HOSTILE, Some(NOW), main).into_string()
}

/// The page of an object.
pub(crate) fn of_object(fleet: &Fleet, object: &Object) -> String {
    whole(Section::Fleet, &detail::object(fleet, object))
}

/// Every sort of page of a fleet.
pub(crate) fn all_pages(fleet: &Fleet) -> Vec<(String, String)> {
    let attack = Query {
        text: HOSTILE
            .replace(char::is_control, "")
            .replace('\u{202e}', ""),
        node: Some(HOSTILE.to_owned()),
        key: Some(HOSTILE.to_owned()),
        ..Query::default()
    };
    let mut pages = vec![
        (
            "overview",
            whole(
                Section::Fleet,
                &overview::overview(fleet, &Query::default()),
            ),
        ),
        (
            "filtered",
            whole(Section::Fleet, &overview::overview(fleet, &attack)),
        ),
        ("keys", whole(Section::Keys, &lists::keys(fleet, 1))),
        ("nodes", whole(Section::Nodes, &lists::nodes(fleet, 1))),
        (
            "sealed",
            whole(
                Section::None,
                &unavailable::Unavailable::Sealed {
                    threshold: 2,
                    given: 0,
                    without_store: false,
                }
                .content(),
            ),
        ),
    ];
    let objects = fleet.objects.iter().take(6);
    pages.extend(objects.map(|object| ("object", of_object(fleet, object))));
    let keys = fleet.keys.iter();
    pages.extend(keys.map(|key| ("key", whole(Section::Keys, &detail::key(fleet, key)))));
    let nodes = fleet.nodes.iter().take(3);
    pages.extend(nodes.map(|node| ("node", whole(Section::Nodes, &detail::node(fleet, node)))));
    pages
        .into_iter()
        .map(|(title, html)| (title.to_owned(), html))
        .collect()
}

/// Parsed as a browser does.
pub(crate) fn parse(html: &str) -> Html {
    Html::parse_document(html)
}

/// The text in an element.
pub(crate) fn text_of(element: ElementRef<'_>) -> String {
    element.text().collect()
}
