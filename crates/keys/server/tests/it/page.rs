//! The fleet page as a browser parses it: what is shown of which records, what hostile names
//! become, what can be read without colours.
//!
//! Must not: compare whole pages with stored ones.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that panics has failed"
)]

pub(crate) mod fixture;
pub(crate) mod server;

use std::collections::BTreeSet;

use fixture::{HOSTILE, NOW, all_pages, fleet, one_object, parse, reader, text_of};
use scraper::{Html, Selector};
use strongroom_keys_server::page::findings::{Concern, Measure, Severity};
use strongroom_keys_server::page::frame::{STYLE, Section, Theme};
use strongroom_keys_server::page::model::Fleet;
use strongroom_keys_server::page::query::{PER_PAGE, Query};
use strongroom_keys_server::page::records::{DAY_S, KeyRecord, KeyState, Kind, Policy, Records};
use strongroom_keys_server::page::unavailable::Unavailable;
use strongroom_keys_server::page::{HEADERS, elements, frame, lists, overview};

fn select<'a>(page: &'a Html, selector: &str) -> Vec<scraper::ElementRef<'a>> {
    page.select(&Selector::parse(selector).unwrap()).collect()
}

fn query(text: &str) -> Query {
    let pairs: Vec<_> = form_urlencoded::parse(text.as_bytes()).collect();
    Query::parse(pairs.iter().map(|(name, value)| (&**name, &**value))).unwrap()
}

#[test]
fn every_page_is_sound_html_with_landmarks_and_labels() {
    for (title, html) in all_pages(&fleet(40)) {
        let page = parse(&html);
        assert!(page.errors.is_empty(), "{title}: {:?}", page.errors);
        for (selector, number) in [
            ("html[lang=en]", 1),
            ("main#main", 1),
            ("body > header", 1),
            ("body > footer", 1),
            ("h1", 1),
            ("a.skip[href='#main']", 1),
            ("meta[name=viewport]", 1),
        ] {
            assert_eq!(select(&page, selector).len(), number, "{title}: {selector}");
        }
        let ids: Vec<&str> = select(&page, "[id]")
            .iter()
            .filter_map(|element| element.attr("id"))
            .collect();
        let distinct: BTreeSet<&str> = ids.iter().copied().collect();
        assert_eq!(ids.len(), distinct.len(), "{title}: an id twice");
        for element in select(&page, "[aria-labelledby]") {
            let id = element.attr("aria-labelledby").unwrap();
            assert!(distinct.contains(id), "{title}: label {id} is not there");
        }
        for cell in select(&page, "th") {
            assert!(cell.attr("scope").is_some(), "{title}: th without scope");
            assert!(!text_of(cell).trim().is_empty(), "{title}: empty th");
        }
        let fields = select(&page, "select, input:not([type=hidden])");
        let labelled = select(&page, "label select, label input:not([type=hidden])");
        assert_eq!(
            fields.len(),
            labelled.len(),
            "{title}: a field without label"
        );
    }
}

#[test]
fn nothing_is_loaded_from_elsewhere_and_nothing_runs() {
    for (title, html) in all_pages(&fleet(40)) {
        let page = parse(&html);
        for forbidden in [
            "script", "style", "iframe", "object", "embed", "base", "img", "[style]",
        ] {
            assert!(select(&page, forbidden).is_empty(), "{title}: {forbidden}");
        }
        for element in select(&page, "*") {
            for (name, value) in element.value().attrs() {
                assert!(!name.starts_with("on"), "{title}: {name}={value}");
                if matches!(name, "href" | "src" | "action") {
                    let local = value.starts_with('/') && !value.starts_with("//");
                    assert!(local || value == "#main", "{title}: {name}={value}");
                }
            }
        }
    }
    for text in [STYLE, frame::ICON] {
        let elsewhere = ["url(", "@import", "script", "href"];
        assert!(elsewhere.iter().all(|one| !text.contains(one)));
    }
}

#[test]
fn names_that_attack_are_only_text() {
    let fleet = fixture::hostile();
    let object = &fleet.objects[0];
    for (title, html) in all_pages(&fleet) {
        let page = parse(&html);
        for element in ["b", "i", "img", "script", "svg:not(.bar)", "xss"] {
            assert!(select(&page, element).is_empty(), "{title}: {element}");
        }
        // The reader's own filters are in fields that are not shown, as they were.
        let text = text_of(page.root_element());
        assert!(!text.contains('\u{202e}'), "{title}: direction changed");
        assert!(!text.contains('\u{1b}'), "{title}: control character");
    }
    let page = parse(&fixture::of_object(&fleet, object));
    let heading = text_of(select(&page, "h1")[0]);
    assert_eq!(heading, HOSTILE.replace(['\u{202e}', '\u{1b}'], "\u{fffd}"));
    // The link to its key leads to that key, and to nothing else.
    let links = select(&page, "dd a");
    let hrefs: Vec<&str> = links.iter().filter_map(|a| a.attr("href")).collect();
    let expected = format!(
        "/fleet/nodes/{}",
        elements::path_segment(&object.record.node)
    );
    assert!(
        select(&page, ".lead a")
            .iter()
            .any(|a| a.attr("href") == Some(&expected))
    );
    assert!(hrefs.iter().all(|href| !href.contains("/..")), "{hrefs:?}");
}

#[test]
fn parts_of_paths_hold_no_separators() {
    for text in [
        "a/b", "..", "a b", "a?b#c", "%2f", "\u{fc}\n", "a\\b", "<>\"'&",
    ] {
        let segment = elements::path_segment(text);
        assert!(
            segment
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-._~%".contains(&b)),
            "{segment}"
        );
        let plus_free = segment.replace('+', "%2B");
        let (decoded, _) = form_urlencoded::parse(plus_free.as_bytes()).next().unwrap();
        assert_eq!(decoded, text);
    }
}

#[test]
fn intervals_are_kept_to_the_second() {
    let at = |age_s: u64, days: u32| Measure::new(Some(NOW - age_s), 0, days, NOW).severity;
    assert_eq!(at(0, 10), Severity::Fine);
    assert_eq!(at(8 * DAY_S, 10), Severity::Fine);
    assert_eq!(at(8 * DAY_S + 1, 10), Severity::Soon);
    assert_eq!(at(10 * DAY_S, 10), Severity::Soon);
    assert_eq!(at(10 * DAY_S + 1, 10), Severity::Overdue);
    assert_eq!(at(NOW, 0), Severity::Fine, "0 days: not asked for");
    // Never done counts from the making.
    let never = |made| Measure::new(None, made, 10, NOW).severity;
    assert_eq!(never(NOW - DAY_S), Severity::Fine);
    assert_eq!(never(NOW - 11 * DAY_S), Severity::Overdue);
    // A clock a little ahead is forgiven; a date of next year is not.
    let ahead = |by| Measure::new(Some(NOW + by), 0, 10, NOW).severity;
    assert_eq!(ahead(600), Severity::Fine);
    assert_eq!(ahead(601), Severity::Overdue);
    assert_eq!(ahead(u64::MAX - NOW), Severity::Overdue);
    let long = Measure::new(Some(NOW), 0, u32::MAX, NOW).severity;
    assert_eq!(long, Severity::Fine);
}

#[test]
fn what_a_kind_cannot_have_is_not_asked_for() {
    let old = NOW - 2000 * DAY_S;
    for kind in Kind::ALL {
        let mut record = one_object(kind);
        (record.created, record.rotated) = (old, None);
        (record.backed_up, record.verified) = (None, None);
        let fleet = fixture::of(vec![record], vec![]);
        let object = &fleet.objects[0];
        let asked = Concern::MEASURED.map(|one| object.measure(one).unwrap().interval_s.is_some());
        let expected = match kind {
            Kind::Backup => [false, true, true, true],
            Kind::Volume => [true, true, false, true],
            Kind::Database | Kind::Instance => [true; 4],
        };
        assert_eq!(asked, expected, "{kind:?}");
        let overdue = object
            .findings
            .iter()
            .filter(|f| f.severity == Severity::Overdue);
        let asked = expected.iter().filter(|asked| **asked).count();
        assert_eq!(overdue.count(), asked - 1, "{kind:?}: all but the report");
    }
    let mut record = one_object(Kind::Volume);
    record.verified = Some(NOW - 31 * DAY_S);
    let fleet = fixture::of(vec![record], vec![]);
    assert_eq!(
        fleet.objects[0].severity(),
        Severity::Overdue,
        "a volume that was verified once"
    );
}

#[test]
fn state_and_version_of_the_key_are_found() {
    let check = |state: KeyState, versions: &[(u32, u64)], expected: Option<&str>| {
        let record = one_object(Kind::Volume);
        let key = KeyRecord {
            name: record.key_id.clone(),
            state,
            versions: versions.to_vec(),
            nodes: vec![],
            destroy_request: None,
        };
        let fleet = fixture::of(vec![record], vec![key]);
        let findings = &fleet.objects[0].findings;
        let texts: Vec<&str> = findings.iter().map(|f| f.text.as_str()).collect();
        match expected {
            None => assert!(texts.is_empty(), "{texts:?}"),
            Some(text) => assert!(
                texts.iter().any(|one| one.contains(text)),
                "{text}: {texts:?}"
            ),
        }
    };
    let day = NOW - DAY_S;
    check(KeyState::Active, &[(1, day)], None);
    check(
        KeyState::Active,
        &[(1, day), (2, day)],
        Some("the newest is 2"),
    );
    check(
        KeyState::Active,
        &[(2, day)],
        Some("version 1 of its key is not known"),
    );
    check(KeyState::Disabled, &[(1, day)], Some("key disabled"));
    let pending = KeyState::Pending {
        at: NOW + 3 * DAY_S,
    };
    check(pending, &[(1, day)], Some("destroyed in 3 d"));
    check(
        KeyState::Pending { at: NOW },
        &[(1, day)],
        Some("about to be destroyed"),
    );
    check(KeyState::Destroyed, &[], Some("key destroyed"));
}

#[test]
fn what_is_not_encrypted_is_said() {
    for (cipher, severity) in [
        ("none", Severity::Overdue),
        ("", Severity::Overdue),
        ("cipher_null-ecb", Severity::Overdue),
        ("3des-cbc", Severity::Soon),
        ("aes-256-gcm", Severity::Fine),
        ("aes-xts-plain64", Severity::Fine),
    ] {
        let mut record = one_object(Kind::Database);
        cipher.clone_into(&mut record.cipher);
        let fleet = fixture::of(vec![record], vec![]);
        assert_eq!(fleet.objects[0].severity(), severity, "{cipher}");
    }
}

#[test]
fn nodes_are_judged_with_their_certificates() {
    let mut node = fixture::node("a");
    let check = |expires, expected| {
        node.expires = expires;
        let records = Records {
            nodes: vec![node.clone()],
            ..Records::default()
        };
        let fleet = Fleet::new(records, Policy::default(), NOW);
        let worst = fleet.nodes[0].findings.iter().map(|f| f.severity).max();
        assert_eq!(worst, expected, "{expires:?}");
    };
    let mut check = check;
    check(None, None);
    check(Some(NOW + 31 * DAY_S), None);
    check(Some(NOW + 29 * DAY_S), Some(Severity::Soon));
    check(Some(NOW), Some(Severity::Overdue));
    // A node that was revoked leaves objects behind: they and it are marked.
    let mut record = one_object(Kind::Database);
    record.node = "gone".to_owned();
    let fleet = fixture::of(vec![record], vec![]);
    assert_eq!(fleet.objects[0].severity(), Severity::Soon);
    assert!(fleet.node("gone").unwrap().record.is_none());
}

#[test]
fn filters_select_what_they_say() {
    let fleet = fleet(400);
    let all = fleet.objects.len();
    let number = |text: &str| query(text).select(&fleet).len();
    assert_eq!(number(""), all);
    let kinds: usize = ["sqlite", "instance", "volume", "backup"]
        .iter()
        .map(|kind| number(&format!("kind={kind}")))
        .sum();
    assert_eq!(kinds, all);
    let states: usize = ["fine", "soon", "overdue"]
        .iter()
        .map(|state| number(&format!("state={state}")))
        .sum();
    assert_eq!(states, all);
    // The numbers of the first page lead to lists of that length.
    for concern in Concern::MEASURED {
        let tally = fleet.concern_tally(concern);
        for severity in Severity::ALL {
            let link = format!("concern={}&state={}", concern.word(), severity.word());
            let found = query(&link).select(&fleet);
            let exact = found.iter().filter(|object| {
                let measure = object.measure(concern).unwrap();
                measure.severity == severity && measure.interval_s.is_some()
            });
            assert_eq!(exact.count(), tally.of(severity), "{link}");
            assert_eq!(found.len(), tally.of(severity), "{link}");
        }
    }
    for object in query("node=db-3&kind=volume&q=DATA").select(&fleet) {
        assert_eq!(
            (object.record.node.as_str(), object.record.kind),
            ("db-3", Kind::Volume)
        );
    }
    assert!(number("node=db-3&kind=volume&q=DATA") > 0);
    assert_eq!(number("q=no+such+thing"), 0);
}

#[test]
fn orders_are_total_and_reversible() {
    let fleet = fleet(300);
    for sort in
        "attention name kind node cipher key key-age rotation backup verification report".split(' ')
    {
        let ids = |text: &str| -> Vec<String> {
            let found = query(text).select(&fleet);
            found
                .iter()
                .map(|object| object.record.id.clone())
                .collect()
        };
        let (up, down) = (
            ids(&format!("sort={sort}")),
            ids(&format!("sort={sort}&order=desc")),
        );
        assert_ne!(up, down, "{sort}");
        let set: BTreeSet<&String> = up.iter().collect();
        assert_eq!((set.len(), down.len()), (300, 300), "{sort}");
    }
    let severities: Vec<Severity> = query("")
        .select(&fleet)
        .iter()
        .map(|o| o.severity())
        .collect();
    assert!(severities.is_sorted_by(|a, b| a >= b), "the worst first");
}

#[test]
fn links_read_back_as_the_same_query() {
    for text in [
        "",
        "kind=volume&node=a%26b%3Dc&key=%2F..%2F&state=soon&concern=backup&q=%3Cscript%3E+%26&sort=key-age&order=desc&page=7",
        "q=%C3%BC%20%23",
    ] {
        let query = query(text);
        let link = query.link();
        let again = link.split_once('?').map_or("", |(_, pairs)| pairs);
        assert_eq!(self::query(again), query, "{link}");
    }
    for bad in [
        ("kind", "volumes"),
        ("state", "late"),
        ("concern", "x"),
        ("sort", "Name"),
        ("order", "up"),
        ("page", "0"),
        ("page", "-1"),
        ("page", "99999999999999999999"),
    ] {
        let refused = Query::parse([bad]).unwrap_err();
        assert_eq!(refused.parameter, bad.0);
    }
    let long = "x".repeat(257);
    assert!(Query::parse([("q", long.as_str())]).is_err());
    assert!(Query::parse([("kind", ""), ("unknown", "1")]).is_ok());
}

#[test]
fn ten_thousand_objects_are_paged_and_each_is_shown_once() {
    let fleet = fleet(10_000);
    let mut seen = BTreeSet::new();
    let mut link = Some("sort=name".to_owned());
    let mut pages = 0;
    while let Some(text) = link {
        let html = overview::objects(&fleet, &query(&text)).into_string();
        let page = parse(&html);
        let rows = select(&page, "table.objects tbody th a");
        assert_eq!(rows.len(), PER_PAGE);
        for row in rows {
            assert!(
                seen.insert(row.attr("href").unwrap().to_owned()),
                "shown twice"
            );
        }
        let next = select(&page, "a[rel=next]");
        link = next.first().map(|next| {
            let href = next.attr("href").unwrap();
            let (_, pairs) = href.split_once('?').unwrap();
            pairs.trim_end_matches("#list").to_owned()
        });
        pages += 1;
    }
    assert_eq!((pages, seen.len()), (100, 10_000));
    // A page beyond the last is the last.
    let beyond = overview::objects(&fleet, &query("page=5000")).into_string();
    assert!(text_of(parse(&beyond).root_element()).contains("Page 100 of 100"));
}

#[test]
fn long_lists_of_keys_and_nodes_are_paged() {
    let key = |n: u32| KeyRecord {
        name: format!("k{n:05}"),
        state: KeyState::Active,
        versions: vec![(1, NOW)],
        nodes: vec![],
        destroy_request: None,
    };
    let fleet = fixture::of(vec![], (0..250).map(key).collect());
    let mut seen = BTreeSet::new();
    for page in 1..=3 {
        let html = lists::keys(&fleet, page).into_string();
        for a in select(&parse(&html), "tbody th a") {
            assert!(seen.insert(a.attr("href").unwrap().to_owned()));
        }
    }
    assert_eq!(seen.len(), 250);
}

#[test]
fn sealed_and_refused_show_nothing_of_the_fleet() {
    let sealed = Unavailable::Sealed {
        threshold: 3,
        given: 1,
        without_store: false,
    };
    let without_store = Unavailable::Sealed {
        threshold: 0,
        given: 0,
        without_store: true,
    };
    for (why, status) in [
        (sealed, 503),
        (without_store, 503),
        (Unavailable::NoCertificate, 401),
        (Unavailable::Forbidden, 403),
        (Unavailable::NotFound, 404),
        (Unavailable::BadQuery("sort"), 400),
        (Unavailable::Failed, 503),
    ] {
        assert_eq!(why.status(), status);
        let content = why.content();
        let page = parse(
            &frame::page(&reader(), Section::None, why.title(), None, &content).into_string(),
        );
        assert!(select(&page, "table, nav, .tile").is_empty(), "{why:?}");
    }
    let text = sealed.content().into_string();
    assert!(text.contains("1 of 3"), "{text}");
    let text = without_store.content().into_string();
    assert!(text.contains("its store did not answer"), "{text}");
}

#[test]
fn an_empty_fleet_says_what_to_do() {
    let none = Fleet::new(Records::default(), Policy::default(), NOW);
    let html = overview::overview(&none, &Query::default()).into_string();
    assert!(
        html.contains("keyserver token") && html.contains("keyserver join"),
        "{html}"
    );
    let fleet = fixture::of(vec![], vec![]);
    let html = overview::overview(&fleet, &Query::default()).into_string();
    assert!(html.contains("keyserver report"), "{html}");
    let found = overview::objects(&self::fleet(5), &query("q=nothing-like-this")).into_string();
    assert!(found.contains("No object is like this"));
}

#[test]
fn the_reader_chooses_light_or_dark() {
    for theme in Theme::ALL {
        let reader = frame::Reader { theme, ..reader() };
        let page =
            parse(&frame::page(&reader, Section::Fleet, "x", None, &maud::html! {}).into_string());
        let chosen = select(&page, "html")[0].attr("data-theme");
        assert_eq!(chosen, (theme != Theme::System).then(|| theme.word()));
        let pressed = select(&page, "button[aria-pressed=true]");
        assert_eq!(pressed.len(), 1);
        assert_eq!(pressed[0].attr("value"), Some(theme.word()));
    }
}

#[test]
fn the_policy_of_the_browser_is_strict() {
    let (_, csp) = HEADERS
        .iter()
        .find(|(name, _)| *name == "content-security-policy")
        .unwrap();
    let directives: Vec<&str> = csp.split("; ").collect();
    assert_eq!(directives[0], "default-src 'none'");
    assert!(
        directives.contains(&"frame-ancestors 'none'") && directives.contains(&"base-uri 'none'")
    );
    assert!(
        !csp.contains("unsafe")
            && !csp.contains("http")
            && !csp.contains('*')
            && !csp.contains("script")
    );
}

/// Relative luminance (WCAG 2.1) of `#rrggbb`.
fn luminance(colour: &str) -> f64 {
    let channel = |at: usize| {
        let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
        if value <= 0.040_45 {
            value / 12.92
        } else {
            ((value + 0.055) / 1.055).powf(2.4)
        }
    };
    0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
}

/// The variables of the block after `head`.
fn colours(head: &str) -> Vec<(&'static str, &'static str)> {
    let (_, block) = STYLE
        .split_once(head)
        .unwrap_or_else(|| panic!("no block {head}"));
    let (block, _) = block.split_once('}').unwrap();
    let lines = block
        .lines()
        .filter_map(|line| line.trim().strip_prefix("--"));
    lines
        .map(|line| line.trim_end_matches(';').split_once(": ").unwrap())
        .collect()
}

#[test]
fn text_can_be_read_on_its_ground_in_light_and_dark() {
    let dark = colours(":root:not([data-theme=\"light\"]) {");
    assert_eq!(
        dark,
        colours("\n:root[data-theme=\"dark\"] {"),
        "dark is dark, whoever chose it"
    );
    for scheme in [colours("\n:root {"), dark] {
        let of = |name: &str| scheme.iter().find(|(one, _)| *one == name).unwrap().1;
        let contrast = |a: &str, b: &str| {
            let (a, b) = (luminance(of(a)), luminance(of(b)));
            (a.max(b) + 0.05) / (a.min(b) + 0.05)
        };
        let grounds = ["ground", "panel", "chosen"];
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        for text in ["text", "quiet", "link", "overdue", "soon"] {
            pairs.extend(grounds.map(|ground| (text, ground)));
        }
        pairs.extend([
            ("overdue", "overdue-ground"),
            ("soon", "soon-ground"),
            ("fine", "fine-ground"),
        ]);
        for (text, ground) in pairs {
            assert!(
                contrast(text, ground) >= 4.5,
                "{text} on {ground}: {:.2}",
                contrast(text, ground)
            );
        }
    }
}
