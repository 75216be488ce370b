//! Text and binary forms: what the server reads, and what it makes of it.

use strongroom_columns_ring::function::Field;
use strongroom_columns_values::{
    Buf, Out, Settings, TimeZone, Unreadable, parse, parse_interval, print, receive, send,
};
use strongroom_format::columns::Kind;

use crate::random::{Random, cases, documents, number_like, text, uuid_like, value};
use crate::server::Server;
use crate::{Differences, Said, answers, called, caught};

const ZONE: &str = "America/New_York";

fn settings() -> Settings {
    Settings {
        time_zone: TimeZone::by_name(ZONE).unwrap(),
    }
}

/// A literal as applications write them, sound or not.
fn literal(random: &mut Random, kind: Kind) -> String {
    match kind {
        Kind::Bool => {
            let words = [
                "t", "true", "TRUE", " yes", "y", "on", "of", "off", "o", "1", "0", "no", "n",
                "fa", "", "tru ", "2",
            ];
            random.pick(&words).to_owned()
        }
        Kind::Int4 | Kind::Int8 | Kind::Float8 | Kind::Numeric => number_like(random),
        Kind::Text => text(random),
        Kind::Bytea => bytea(random),
        Kind::Date | Kind::Timestamp | Kind::Timestamptz => moment(random, kind),
        Kind::Interval => interval(random),
        Kind::Uuid => uuid_like(random),
        Kind::Time => clock(random),
        Kind::Jsonb => documents::document_like(random),
    }
}

fn bytea(random: &mut Random) -> String {
    let parts = [
        "\\x", "00", "ff", "aB", " ", "7", "\\\\", "\\001", "\\377", "a", "\\", "\\400", "xyz",
    ];
    let begin = random.pick(&["", "\\x"]);
    (0..random.below(5)).fold(begin.to_owned(), |text, _| text + random.pick(&parts))
}

fn moment(random: &mut Random, kind: Kind) -> String {
    if random.one_in(3) {
        return value(random, kind);
    }
    let year = random.pick(&[
        "1998", "2024", "0001", "0000", "999", "12345", "1970", "294276", "98", "5874897",
    ]);
    let (month, day) = (random.below(14), random.below(33));
    let date = match random.below(5) {
        0 => format!("{year}-{month}-{day}"),
        1 => format!("{year}/{month:02}/{day:02}"),
        2 => format!("{:04}{month:02}{day:02}", random.below(9999)),
        _ => format!("{year}-{month:02}-{day:02}"),
    };
    let (hour, minute, second) = (random.below(26), random.below(61), random.below(62));
    let time = match random.below(7) {
        0 => String::new(),
        1 => format!(" {hour}:{minute:02}"),
        2 => format!("T{hour:02}:{minute:02}:{second:02}"),
        3 => format!("  {hour:02}:{minute:02}:{second:02}.{}", random.below(1000)),
        4 => format!(
            " {hour:02}:{minute:02}:{second:02}.{}5",
            random.below(9_999_999)
        ),
        5 => " 24:00:00".to_owned(),
        _ => format!(" {hour:02}:{minute:02}:{second:02}"),
    };
    let place = match random.below(8) {
        _ if time.is_empty() => "",
        0 => "+02",
        1 => "-08:30",
        2 => " Z",
        3 => "+0545",
        4 => " Europe/Berlin",
        5 => "-00:00:30",
        6 => " utc",
        _ => "",
    };
    let era = random.pick(&["", "", "", "", " BC", " AD"]);
    [&date, &time, place, era].concat()
}

fn clock(random: &mut Random) -> String {
    const EDGES: [&str; 16] = [
        "24:00:00",
        "24:00:00.0000004",
        "24:00:00.000001",
        "23:59:60",
        "23:59:60.1",
        "23:59:59.9999999",
        "",
        "12",
        "12:",
        "12:30:",
        "12.30",
        "now",
        "040506",
        "04:05 PM",
        "12:30:45.",
        "x",
    ];
    if random.one_in(3) {
        return value(random, Kind::Time);
    }
    let (hour, minute, second) = (random.below(26), random.below(61), random.below(62));
    let fraction = random.below(9_999_999);
    let time = match random.below(8) {
        0 => format!("{hour}:{minute}"),
        1 => format!("  {hour:02}:{minute:02}:{second:02}.{fraction} "),
        2 => format!("{hour:02}:{minute:02}:{second:02}.{fraction}5"),
        3 => random.pick(&EDGES).to_owned(),
        _ => format!("{hour:02}:{minute:02}:{second:02}"),
    };
    let place = random.pick(&["", "", "", "", "+02", "-08:30", " Z", "z", " Europe/Berlin"]);
    time + place
}

fn interval(random: &mut Random) -> String {
    if random.one_in(3) {
        return value(random, Kind::Interval);
    }
    let mut text = match random.below(8) {
        0 => format!("{}-{}", random.below(50), random.below(14)),
        1 => {
            let date = format!(
                "P{}Y{}M{}D",
                random.below(9),
                random.below(30),
                random.below(50)
            );
            format!(
                "{date}T{}H{}M{}S",
                random.below(50),
                random.below(90),
                random.below(99)
            )
        }
        2 => format!("PT{}.{}H", random.below(50), random.below(99)),
        3 => random.below(5000).to_string(),
        _ => (0..1 + random.below(3))
            .map(|_| interval_part(random))
            .collect::<Vec<_>>()
            .join(" "),
    };
    if random.one_in(4) && !text.starts_with('P') {
        let sign = random.pick(&["", "-", "+"]);
        let (hours, minutes, seconds) = (random.below(99), random.below(61), random.below(62));
        text += &format!(
            " {sign}{hours}:{minutes:02}:{seconds:02}.{}",
            random.below(999)
        );
    }
    if random.one_in(8) {
        text + " ago"
    } else {
        text
    }
}

/// A number with a unit.
fn interval_part(random: &mut Random) -> String {
    const UNITS: &str = "day days d hours h min m mon months year yrs w weeks s second secs ms milliseconds us microseconds \
                         decade century mils quarter DAY x";
    const EDGES: [&str; 6] = [
        "2147483647",
        "2147483648",
        "9223372036854775807",
        "9223372036854775808",
        ".5",
        "+3",
    ];
    let number = match random.below(6) {
        0 => format!("{}.{}", random.below(100), random.below(1000)),
        1 => format!("-{}", random.below(100)),
        2 => format!("-{}.{}", random.below(10), random.below(100)),
        3 => random.pick(&EDGES).to_owned(),
        _ => random.below(1000).to_string(),
    };
    let units: Vec<&str> = UNITS.split_whitespace().collect();
    format!("{number}{}{}", random.pick(&[" ", ""]), random.pick(&units))
}

/// Text form, and binary form in hexadecimal.
fn ours(kind: Kind, text: &str) -> Result<Said, Unreadable> {
    let mut out = Out::new();
    match parse(kind, text, &settings(), &mut out) {
        Ok(()) => {}
        Err(Unreadable::Unsupported) => return Err(Unreadable::Unsupported),
        Err(why) => return Ok(Said::Error(why.sqlstate(kind).to_owned(), String::new())),
    }
    let (mut shown, mut sent) = (Buf::new(), Buf::new());
    print(kind, out.value(), &settings(), &mut shown).unwrap();
    send(kind, out.value(), &mut sent).unwrap();
    let hex: String = sent
        .as_slice()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let mut back = Out::new();
    receive(kind, sent.as_slice(), &mut back).unwrap();
    let mut again = Buf::new();
    print(kind, back.value(), &settings(), &mut again).unwrap();
    assert_eq!(
        shown.as_slice(),
        again.as_slice(),
        "{}: {text:?} in binary and back",
        kind.base()
    );
    let shown = core::str::from_utf8(shown.as_slice()).unwrap();
    let shown = match (kind, shown) {
        (Kind::Bool, "t") => "true",
        (Kind::Bool, _) => "false",
        (_, shown) => shown,
    };
    Ok(Said::Value(format!("{shown} {hex}")))
}

const fn sender(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool => "boolsend",
        Kind::Int4 => "int4send",
        Kind::Int8 => "int8send",
        Kind::Float8 => "float8send",
        Kind::Numeric => "numeric_send",
        Kind::Text => "textsend",
        Kind::Bytea => "byteasend",
        Kind::Date => "date_send",
        Kind::Timestamp => "timestamp_send",
        Kind::Timestamptz => "timestamptz_send",
        Kind::Interval => "interval_send",
        Kind::Uuid => "uuid_send",
        Kind::Time => "time_send",
        Kind::Jsonb => "jsonb_send",
    }
}

#[test]
fn texts_are_read_and_printed_as_the_server_does() {
    let server = Server::shared();
    let mut random = Random::for_test("texts");
    let (mut differences, mut done, mut unsupported) = (Differences::default(), 0, 0);
    for kind in Kind::ALL {
        let texts: Vec<Vec<String>> = (0..cases())
            .map(|_| vec![literal(&mut random, *kind)])
            .collect();
        let base = kind.base();
        let expression = format!(
            "(a::{base})::text || ' ' || encode({}(a::{base}), 'hex')",
            sender(*kind)
        );
        let script = format!(
            "SET TIME ZONE '{ZONE}';\n{}{}",
            caught(&expression),
            called(&texts)
        );
        let theirs = answers(&server, &script);
        assert_eq!(theirs.len(), texts.len());
        let (mut read, mut refused) = (0, 0);
        for (text, theirs) in texts.iter().zip(&theirs) {
            let Ok(ours) = ours(*kind, &text[0]) else {
                refused += 1;
                continue;
            };
            let agree = match (&ours, theirs) {
                (Said::Error(a, _), Said::Error(b, _)) => a == b,
                _ => ours == *theirs,
            };
            read += 1;
            if !agree {
                differences.add(|| format!("{base} {:?}: {theirs:?}, ours {ours:?}", text[0]));
            }
        }
        println!("{base}: {read} compared, {refused} not supported");
        assert!(
            read * 2 > texts.len(),
            "{base}: {refused} of {} are not supported",
            texts.len()
        );
        done += read;
        unsupported += refused;
    }
    differences.none(done);
    assert!(done + unsupported == Kind::ALL.len() * cases());
}

#[test]
fn intervals_of_one_field_are_the_servers() {
    let server = Server::shared();
    let mut random = Random::for_test("intervals of one field");
    let (mut differences, mut done) = (Differences::default(), 0);
    // The bit of each field in a type modifier (datetime.h), as the literal's field gets into it.
    let fields = [
        (Field::Month, 1),
        (Field::Year, 2),
        (Field::Day, 3),
        (Field::Hour, 10),
        (Field::Minute, 11),
        (Field::Second, 12),
    ];
    for (field, bit) in fields {
        let typmod = (1 << bit) << 16 | 0xffff;
        let texts: Vec<Vec<String>> = (0..cases() / 5)
            .map(|_| {
                let number = format!("{}{}", random.pick(&["", "-"]), random.below(400));
                let fraction = random.pick(&["", "", ".5", ".75"]);
                vec![if random.one_in(3) {
                    interval(&mut random)
                } else {
                    number + fraction
                }]
            })
            .collect();
        let expression = format!("interval_in(textout(a), 0, {typmod})::text || ' '");
        let theirs = answers(&server, &(caught(&expression) + &called(&texts)));
        assert_eq!(theirs.len(), texts.len());
        for (text, theirs) in texts.iter().zip(&theirs) {
            let mut out = Out::new();
            let ours = match parse_interval(&text[0], field, &mut out) {
                Ok(()) => {
                    let mut shown = Buf::new();
                    print(Kind::Interval, out.value(), &settings(), &mut shown).unwrap();
                    Said::Value(String::from_utf8(shown.as_slice().to_vec()).unwrap() + " ")
                }
                Err(Unreadable::Unsupported) => continue,
                Err(why) => Said::Error(why.sqlstate(Kind::Interval).to_owned(), String::new()),
            };
            let agree = match (&ours, theirs) {
                (Said::Error(a, _), Said::Error(b, _)) => a == b,
                _ => ours == *theirs,
            };
            done += 1;
            if !agree {
                differences.add(|| {
                    format!(
                        "interval {:?}, bit {bit}: {theirs:?}, ours {ours:?}",
                        text[0]
                    )
                });
            }
        }
    }
    differences.none(done);
    assert!(done > cases());
}

/// A file for `COPY ... (FORMAT binary)` with one row of one column.
fn copy_file(bytes: &[u8]) -> Vec<u8> {
    let mut file = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x01".to_vec();
    file.extend(i32::try_from(bytes.len()).unwrap().to_be_bytes());
    file.extend(bytes);
    file.extend([0xff, 0xff]);
    file
}

/// A binary form: sound, nearly sound, or anything.
fn bytes(random: &mut Random, kind: Kind) -> Vec<u8> {
    let mut out = Out::new();
    parse(kind, &value(random, kind), &settings(), &mut out).unwrap();
    let mut sent = Buf::new();
    send(kind, out.value(), &mut sent).unwrap();
    let mut bytes = sent.as_slice().to_vec();
    match random.below(4) {
        0 => {}
        1 if !bytes.is_empty() => {
            let at = random.below(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }
        2 => bytes
            .iter_mut()
            .for_each(|byte| *byte = random.next().to_le_bytes()[0]),
        _ if random.one_in(2) => bytes.push(0),
        _ => drop(bytes.pop()),
    }
    bytes
}

#[test]
fn binary_forms_are_read_as_the_server_does() {
    let server = Server::shared();
    let mut random = Random::for_test("binary forms");
    let (mut differences, mut done, mut refused) = (Differences::default(), 0, 0);
    let mut script = format!("SET TIME ZONE '{ZONE}';\n");
    let mut forms: Vec<(Kind, Vec<u8>)> = Vec::new();
    for kind in Kind::ALL {
        let base = kind.base();
        script += &format!(
            "CREATE TEMP TABLE one_{base} (v {base});
             CREATE OR REPLACE FUNCTION pg_temp.call(path text) RETURNS text LANGUAGE plpgsql AS $call$
             DECLARE r text; BEGIN TRUNCATE one_{base};
             EXECUTE format('COPY one_{base} FROM %L (FORMAT binary)', path);
             SELECT v::text INTO r FROM one_{base}; RETURN '=' || r;
             EXCEPTION WHEN OTHERS THEN RETURN '!' || SQLSTATE || ' ' || SQLERRM; END $call$;\n"
        );
        for number in 0..cases() / 20 {
            let form = bytes(&mut random, *kind);
            let path = server.file(&format!("{base}-{number}"), &copy_file(&form));
            script += &format!(
                "COPY (SELECT pg_temp.call('{}')) TO STDOUT;\n",
                path.display()
            );
            forms.push((*kind, form));
        }
    }
    let theirs = answers(&server, &script);
    assert_eq!(theirs.len(), forms.len());
    for ((kind, form), theirs) in forms.iter().zip(&theirs) {
        let mut out = Out::new();
        let ours = match receive(*kind, form, &mut out) {
            Ok(()) if *kind == Kind::Bool => Said::Value(out.value().bool().unwrap().to_string()),
            Ok(()) => {
                let mut shown = Buf::new();
                print(*kind, out.value(), &settings(), &mut shown).unwrap();
                Said::Value(String::from_utf8(shown.as_slice().to_vec()).unwrap())
            }
            Err(why) => Said::Error(why.sqlstate(*kind).to_owned(), String::new()),
        };
        let agree = match (&ours, theirs) {
            // Of a form that ends too early the server says what the protocol says, 08P01, and of a
            // version of jsonb that there is not an internal error.
            (Said::Error(a, _), Said::Error(b, _)) => {
                a == b || (a == "22P03" && matches!(b.as_str(), "08P01" | "XX000"))
            }
            _ => ours == *theirs,
        };
        refused += usize::from(matches!(theirs, Said::Error(..)));
        done += 1;
        if !agree {
            differences.add(|| format!("{} {form:02x?}: {theirs:?}, ours {ours:?}", kind.base()));
        }
    }
    differences.none(done);
    println!("{done} binary forms, {refused} refused");
    assert!(done == Kind::ALL.len() * (cases() / 20) && refused * 10 > done && refused * 2 < done);
}
