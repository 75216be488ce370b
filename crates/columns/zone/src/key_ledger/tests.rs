//! Tests of the ledgers of column keys: limits, what is durable, lines.

use super::*;

const KEY: KeyId = [1; 16];
const OTHER: KeyId = [2; 16];
const LIMIT: Limit = Limit {
    key_id: KEY,
    period: 100,
    truths: 160,
    outputs: LIMITLESS,
};

/// Ledgers of both keys, the first with the limit, set at the time 1000.
fn ledgers() -> KeyLedgers {
    let mut ledgers = KeyLedgers::default();
    ledgers.begin(OTHER);
    ledgers.set_limit(&LIMIT, 1000).unwrap();
    ledgers
}

fn name(text: &str) -> Arc<str> {
    Arc::from(text)
}

/// What a manifest that is written now has.
fn written(ledgers: &KeyLedgers) -> Vec<u8> {
    let mut out = Vec::new();
    let done: Result<(), ()> = ledgers.write(|bytes| {
        out.extend_from_slice(bytes);
        Ok(())
    });
    done.unwrap();
    out
}

/// The ledgers that a zone has that is killed and reads this manifest.
fn reopened(manifest: &[u8]) -> KeyLedgers {
    let mut ledgers = KeyLedgers::default();
    let rest = ledgers.load(2, manifest);
    assert_eq!(rest, Some(&[][..]));
    ledgers
}

#[test]
fn what_is_told_under_a_key_has_an_end_for_all_sessions() {
    let (a, b) = (name("a@shop"), name("b@shop"));
    let mut ledgers = ledgers();
    let mut tell = |name, count, at| {
        let told = Told::truths(count);
        ledgers
            .charge(&[KEY, OTHER], To::Session(name), told, || at)
            .map(drop)
    };
    assert_eq!(tell(&a, 100, 1001), Ok(()));
    assert_eq!(tell(&b, 60, 1002), Ok(()));
    assert_eq!(tell(&b, 1, 1099), Err(Fault::BudgetSpent));
    assert_eq!(tell(&b, 1, 1100), Ok(()), "another period");
    assert_eq!(ledgers.check(&[OTHER], u64::MAX, || 1100), Ok(()));
    assert_eq!(ledgers.check(&[KEY], 159, || 1100), Ok(()));
    let spent = Err(Fault::BudgetSpent);
    assert_eq!(ledgers.check(&[OTHER, KEY], 160, || 1100), spent);
    assert_eq!(ledgers.check(&[KEY], 160, || 1200), Ok(()), "the next one");
}

#[test]
fn checks_count_like_truths_and_values_by_themselves() {
    let a = name("a@shop");
    let mut ledgers = ledgers();
    let limit = Limit {
        truths: 3,
        outputs: 1,
        period: 0,
        ..LIMIT
    };
    ledgers.set_limit(&limit, 1000).unwrap();
    let told = Told {
        truths: 1,
        checks: 2,
        outputs: 1,
        declassified: 1,
    };
    let mut tell = |told, at| {
        ledgers
            .charge(&[KEY], To::Session(&a), told, || at)
            .map(drop)
    };
    assert_eq!(tell(told, 1000), Ok(()));
    assert_eq!(tell(Told::truths(1), u64::MAX), Err(Fault::BudgetSpent));
    let output = Told {
        outputs: 1,
        ..Told::default()
    };
    assert_eq!(tell(output, u64::MAX), Err(Fault::BudgetSpent));
}

#[test]
fn a_key_without_as_much_left_charges_no_other() {
    let a = name("a@shop");
    let mut ledgers = ledgers();
    let told = Told::truths(161);
    let done = ledgers.charge(&[OTHER, KEY], To::Session(&a), told, || 1001);
    assert_eq!(done, Err(Fault::BudgetSpent));
    assert!(!ledgers.to_json(&[OTHER], 1001).contains("161"));
}

#[test]
fn a_zone_that_is_killed_gives_nothing_twice() {
    let a = name("a@shop");
    let mut ledgers = ledgers();
    let mut manifest = written(&ledgers);
    ledgers.begin_publication();
    ledgers.end_publication(true);
    let (mut given, mut checkpoints) = (0, 0);
    for _ in 0..1000 {
        let told = Told::truths(7);
        let Ok(undurable) = ledgers.charge(&[KEY], To::Session(&a), told, || 1001) else {
            break;
        };
        if undurable {
            ledgers.reserve(&[KEY]);
            manifest = written(&ledgers);
            ledgers.begin_publication();
            ledgers.end_publication(true);
            checkpoints += 1;
        }
        given += 7;
        // Killed here, the zone would count at least what it has given.
        let left = reopened(&manifest).check(&[KEY], 161 - given, || 1001);
        assert_eq!(left, Err(Fault::BudgetSpent), "{given} were given");
    }
    assert_eq!(given, 154);
    assert!(checkpoints <= 16, "{checkpoints} checkpoints");
    // Orderly, it counts exactly that.
    ledgers.give_back_reserves();
    let again = reopened(&written(&ledgers));
    assert_eq!(again.check(&[KEY], 6, || 1001), Ok(()));
    assert_eq!(again.check(&[KEY], 7, || 1001), Err(Fault::BudgetSpent));
}

#[test]
fn a_period_that_was_not_written_begins_with_a_checkpoint() {
    let a = name("a@shop");
    let mut ledgers = ledgers();
    ledgers.reserve(&[KEY]);
    ledgers.begin_publication();
    ledgers.end_publication(true);
    let mut tell = |at| ledgers.charge(&[KEY], To::Session(&a), Told::truths(1), || at);
    assert_eq!(tell(1001), Ok(false), "reserved");
    assert_eq!(tell(1100), Ok(true));
}

#[test]
fn without_a_session_everything_is_counted_and_nothing_limited() {
    let mut ledgers = ledgers();
    for _ in 0..2 {
        let told = Told::truths(1000);
        let done = ledgers.charge(&[KEY], To::NoSession, told, || 1001);
        assert_eq!(done, Ok(false));
    }
    let json = ledgers.to_json(&[KEY], 1001);
    assert!(
        json.contains("\"name\":null,\"seen\":0,\"truths\":2000"),
        "{json}"
    );
    assert!(json.contains("\"spent\":{\"answers\":0,\"outputs\":0}"));
}

#[test]
fn many_names_share_a_line_and_strange_ones_are_quoted() {
    let mut ledgers = ledgers();
    for at in 0..200 {
        let name = name(&format!("client {at}"));
        let told = Told::truths(1);
        ledgers
            .charge(&[OTHER], To::Session(&name), told, || 5)
            .unwrap();
    }
    let told = Told::truths(1);
    ledgers.charge(&[OTHER], To::NoSession, told, || 5).unwrap();
    let ledger = &ledgers.0[&OTHER];
    assert_eq!(ledger.lines.len(), LINES_MAX);
    let others = ledger.lines.iter().find(|line| line.asker == Asker::Others);
    assert_eq!(others.unwrap().told.truths, 200 - 62);
    assert_eq!(quoted(r#"a"b\c"#), r#""a\"b\\c""#);
    // And they come back.
    let bytes = written(&ledgers);
    assert_eq!(written(&reopened(&bytes)), bytes);
    for cut in [0, 1, 71, 72, 100, bytes.len() - 1] {
        assert!(KeyLedgers::default().load(2, &bytes[..cut]).is_none());
    }
    // In another order they are no manifest's.
    let (first, second) = bytes.split_at(72);
    let swapped = [second, first].concat();
    assert!(KeyLedgers::default().load(2, &swapped).is_none());
}

#[test]
fn keys_of_strangers_have_an_end() {
    let mut ledgers = KeyLedgers::default();
    for at in 0..UNBOUND_MAX as u64 {
        let mut key_id = [9; 16];
        key_id[..8].copy_from_slice(&at.to_le_bytes());
        ledgers.set_limit(&Limit { key_id, ..LIMIT }, 1).unwrap();
    }
    assert_eq!(ledgers.set_limit(&LIMIT, 1), Err(Fault::OutOfMemory));
    // The key of a column has a ledger all the same, and so can be limited.
    ledgers.begin(KEY);
    assert_eq!(ledgers.set_limit(&LIMIT, 1), Ok(()));
    ledgers.retain(|_| false);
    assert!(ledgers.has(&KEY));
    let limitless = Limit {
        truths: LIMITLESS,
        ..LIMIT
    };
    ledgers.set_limit(&limitless, 1).unwrap();
    ledgers.retain(|_| false);
    assert!(!ledgers.has(&KEY));
}
