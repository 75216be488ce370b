//! Functions and comparisons: the same arguments, the same result or error.

use std::cmp::Ordering;

use strongroom_columns_ring::Fault;
use strongroom_columns_ring::function::{Arg, FUNCTIONS, Field, Function, Gives};
use strongroom_columns_values::{
    Buf, Operand, Out, Settings, TimeZone, compare, compute, parse, print, test, token_bytes,
};
use strongroom_format::columns::Kind;

use crate::random::{Random, arguments, cases, documents, value};
use crate::server::Server;
use crate::{Differences, Said, answers, called, caught};

/// Zones with changes of the clocks, one without, one of half an hour, one by half an hour.
const ZONES: [&str; 5] = [
    "UTC",
    "America/New_York",
    "Europe/Berlin",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
];

fn settings(zone: &str) -> Settings {
    Settings {
        time_zone: TimeZone::by_name(zone).unwrap(),
    }
}

/// The call in SQL, on the texts `a`, `b`, `c`.
fn expression(function: &Function) -> String {
    let args: Vec<String> = function
        .args
        .iter()
        .zip(["a", "b", "c"])
        .map(|(arg, name)| match arg {
            Arg::Of(kind) => format!("{name}::{}", kind.base()),
            Arg::Plain => format!("{name}::int4"),
            Arg::Name => name.to_owned(),
        })
        .collect();
    match function.gives {
        // Casts that are no function of PostgreSQL but input and output.
        Gives::Value(kind) if function.code >= 331 => format!("{}::{}", args[0], kind.base()),
        _ => format!("pg_catalog.\"{}\"({})", function.name, args.join(", ")),
    }
}

/// What this crate says.
fn ours(function: &Function, args: &[String], settings: &Settings) -> Said {
    let mut parsed: Vec<Out> = Vec::new();
    for (arg, text) in function.args.iter().zip(args) {
        let mut out = Out::new();
        if let Arg::Of(kind) = arg {
            let read = parse(*kind, text, settings, &mut out);
            assert!(
                read.is_ok(),
                "{}: {text:?} is not read: {read:?}",
                kind.base()
            );
        }
        parsed.push(out);
    }
    let operands: Vec<Operand<'_>> = function
        .args
        .iter()
        .zip(args)
        .zip(&parsed)
        .map(|((arg, text), out)| match arg {
            Arg::Of(_) => Operand::Value(out.value()),
            Arg::Plain => Operand::Plain(text.parse().unwrap()),
            Arg::Name => Operand::Field(Field::by_name(text).unwrap()),
        })
        .collect();
    let mut out = Out::new();
    let done = match function.gives {
        Gives::Truth => test(function, &operands).map(|truth| truth.to_string()),
        Gives::Value(kind) => {
            compute(function, &operands, settings, &mut out).map(|()| shown(kind, &out, settings))
        }
    };
    match done {
        Ok(text) => Said::Value(text),
        Err(Fault::FieldOfInfinity | Fault::NoSuchPart) => Said::Null,
        Err(fault) => Said::Error(fault.sqlstate().to_owned(), fault.message().to_owned()),
    }
}

/// The result as a cast to text shows it.
fn shown(kind: Kind, out: &Out, settings: &Settings) -> String {
    if kind == Kind::Bool {
        return out.value().bool().unwrap().to_string();
    }
    let mut buf = Buf::new();
    print(kind, out.value(), settings, &mut buf).unwrap();
    String::from_utf8(buf.as_slice().to_vec()).unwrap()
}

/// Whether the two say the same. Where PostgreSQL's message quotes the value or the field, ours
/// cannot: then the SQLSTATE counts.
fn agree(theirs: &Said, ours: &Said) -> bool {
    let quotes =
        |message: &str| message.contains('"') || message.starts_with("invalid regular expression");
    match (theirs, ours) {
        (Said::Error(a, said), Said::Error(b, _)) if quotes(said) => a == b,
        _ => theirs == ours,
    }
}

/// The least time of an interval that the tests have.
const LEAST_TIME: &str = "-2562047788:00:54.775807";

/// `case`, or one that every release answers alike: `right` of the least integer gives the whole
/// text before 15.20. The time of day of the least interval is none at the server.
fn known_to(server: &Server, function: &Function, mut case: Vec<String>) -> Vec<String> {
    let least = i32::MIN.to_string();
    if function.name == "right" && case[1] == least && server.release() < 20 {
        case[1] = (i32::MIN + 1).to_string();
    }
    if function.name == "time" && case[0].ends_with(LEAST_TIME) {
        case[0] = case[0].replace(LEAST_TIME, "-02:00:54.775807");
    }
    case
}

fn check(
    server: &Server,
    function: &Function,
    zone: &str,
    random: &mut Random,
    differences: &mut Differences,
    count: usize,
) -> usize {
    let cases: Vec<Vec<String>> = (0..count)
        .map(|_| arguments(random, function))
        .map(|case| known_to(server, function, case))
        .collect();
    let script = format!(
        "SET TIME ZONE '{zone}';\n{}{}",
        caught(&expression(function)),
        called(&cases)
    );
    let theirs = answers(server, &script);
    assert_eq!(theirs.len(), cases.len(), "{}", function.name);
    let settings = settings(zone);
    let mut not_computed = 0;
    for (args, theirs) in cases.iter().zip(&theirs) {
        let ours = ours(function, args, &settings);
        if matches!(function.code, 194..=197)
            && matches!(&ours, Said::Error(state, _) if state == "0A000")
        {
            not_computed += 1;
            continue;
        }
        if !agree(theirs, &ours) {
            differences.add(|| {
                format!(
                    "{} {}({args:?}) in {zone}: {theirs:?}, ours {ours:?}",
                    function.code, function.name
                )
            });
        }
    }
    let values = theirs
        .iter()
        .filter(|said| matches!(said, Said::Value(_)))
        .count();
    assert!(
        values * 20 > cases.len(),
        "{} {}: nearly everything is an error",
        function.code,
        function.name
    );
    assert!(
        not_computed * 10 < cases.len(),
        "{}: {not_computed} regular expressions are not computed",
        function.name
    );
    cases.len()
}

fn depends_on_zone(function: &Function) -> bool {
    let is_zoned = |kind: Kind| kind == Kind::Timestamptz;
    function
        .args
        .iter()
        .any(|arg| matches!(arg, Arg::Of(kind) if is_zoned(*kind)))
        || matches!(function.gives, Gives::Value(kind) if is_zoned(kind))
}

#[test]
fn every_function_gives_what_the_server_gives() {
    let server = Server::shared();
    let mut random = Random::for_test("functions");
    let (mut differences, mut done, mut functions) = (Differences::default(), 0, 0);
    for function in FUNCTIONS {
        let zones = if depends_on_zone(function) {
            &ZONES[..]
        } else {
            &ZONES[..1]
        };
        for zone in zones {
            done += check(
                &server,
                function,
                zone,
                &mut random,
                &mut differences,
                cases() / zones.len(),
            );
        }
        functions += 1;
    }
    differences.none(done);
    println!("{done} calls of {functions} functions");
    assert!(
        functions >= 120 && done >= functions * cases(),
        "{functions} functions, {done} calls"
    );
}

/// Numerics at the limits of the type, with few digits that are not 0, so that the server computes
/// with them in no time.
const FAR: [&str; 9] = [
    "1e131071",
    "-9.99e131070",
    "1e-16383",
    "-5.5e-16382",
    "123456789e-130",
    "3",
    "-0.7",
    "0",
    "NaN",
];

#[test]
fn numerics_at_the_limits_are_the_servers() {
    let server = Server::shared();
    let (mut differences, mut done, mut overflows) = (Differences::default(), 0, 0);
    let numeric = Arg::Of(Kind::Numeric);
    for function in FUNCTIONS
        .iter()
        .filter(|function| function.args.first() == Some(&numeric))
    {
        let seconds: Vec<&str> = match function.args.get(1) {
            Some(Arg::Of(_)) => FAR.to_vec(),
            // Scales, and as typmods numeric(1000, 0), numeric(10, 2) and numeric(5, -3).
            Some(_) => vec![
                "-131073", "-131071", "-300", "16383", "8200", "65536004", "655366", "329729",
            ],
            None => vec![""],
        };
        let cases: Vec<Vec<String>> = FAR
            .iter()
            .flat_map(|a| {
                seconds
                    .iter()
                    .map(|b| vec![(*a).to_owned(), (*b).to_owned()])
            })
            .collect();
        // The text's ends and length: whole, they would be a hundred megabytes.
        let whole = expression(function);
        let short = format!(
            "(SELECT left(t, 90) || ' ' || length(t) || ' ' || right(t, 90) FROM (SELECT ({whole})::text AS t) AS s)"
        );
        let theirs = answers(&server, &(caught(&short) + &called(&cases)));
        assert_eq!(theirs.len(), cases.len(), "{}", function.name);
        for (args, theirs) in cases.iter().zip(&theirs) {
            let ours = match ours(function, args, &Settings::utc()) {
                Said::Value(text) => {
                    let ends = (
                        &text[..text.len().min(90)],
                        &text[text.len().saturating_sub(90)..],
                    );
                    Said::Value(format!("{} {} {}", ends.0, text.len(), ends.1))
                }
                said => said,
            };
            overflows += usize::from(matches!(&ours, Said::Error(state, _) if state == "22003"));
            if !agree(theirs, &ours) {
                differences.add(|| {
                    format!(
                        "{} {}({args:?}): {theirs:?}, ours {ours:?}",
                        function.code, function.name
                    )
                });
            }
        }
        done += cases.len();
    }
    differences.none(done);
    println!("{done} calls at the limits, {overflows} out of range");
    assert!(done > 600 && overflows > 20);
}

#[test]
fn every_kind_is_ordered_as_the_server_orders_it() {
    let server = Server::shared();
    let mut random = Random::for_test("comparisons");
    let (mut differences, mut done, mut equals) = (Differences::default(), 0, 0);
    for kind in Kind::ALL {
        let mut pairs: Vec<Vec<String>> = Vec::new();
        while pairs.len() < cases() {
            let a = value(&mut random, *kind);
            let b = if random.one_in(4) {
                same_in_another_form(*kind, &a)
            } else {
                value(&mut random, *kind)
            };
            pairs.push(vec![a, b]);
        }
        let base = kind.base();
        let expression = format!(
            "CASE WHEN a::{base} < b::{base} THEN 'less' WHEN a::{base} = b::{base} THEN 'equal' ELSE 'greater' END"
        );
        let theirs = answers(&server, &(caught(&expression) + &called(&pairs)));
        assert_eq!(theirs.len(), pairs.len());
        for (pair, theirs) in pairs.iter().zip(&theirs) {
            let (order, same_token) = ordered(*kind, &pair[0], &pair[1]);
            let ours = match order {
                Ordering::Less => "less",
                Ordering::Equal => "equal",
                Ordering::Greater => "greater",
            };
            equals += usize::from(order == Ordering::Equal);
            if *theirs != Said::Value(ours.to_owned()) || same_token != (order == Ordering::Equal) {
                differences.add(|| {
                    format!("{base} {pair:?}: {theirs:?}, ours {ours}, same token {same_token}")
                });
            }
        }
        done += pairs.len();
    }
    differences.none(done);
    println!("{done} comparisons, {equals} equal");
    assert!(done == Kind::ALL.len() * cases() && equals * 10 > done);
}

fn same_in_another_form(kind: Kind, text: &str) -> String {
    match kind {
        Kind::Numeric if text.contains('.') => format!("{text}000"),
        Kind::Float8 if text == "0" => "-0".to_owned(),
        Kind::Uuid => text.to_ascii_uppercase().replace('-', ""),
        Kind::Jsonb => documents::in_another_form(text),
        _ => text.to_owned(),
    }
}

fn ordered(kind: Kind, a: &str, b: &str) -> (Ordering, bool) {
    let [a, b] = [a, b].map(|text| {
        let mut out = Out::new();
        parse(kind, text, &Settings::utc(), &mut out).unwrap();
        out
    });
    let [a_token, b_token] = [&a, &b].map(|out| {
        let mut token = Buf::new();
        token_bytes(kind, out.value(), &mut token).unwrap();
        token
    });
    let same = a_token.as_slice() == b_token.as_slice();
    (compare(kind, a.value(), b.value()).unwrap(), same)
}
