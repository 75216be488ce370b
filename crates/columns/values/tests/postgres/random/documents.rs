//! Random documents of JSON, sound or nearly so.

use super::{Random, numeric};

/// Parts of strings, as JSON writes them.
const CHARACTERS: &[&str] = &[
    "a",
    "b",
    "aa",
    "B",
    " ",
    "\u{e9}",
    "\u{65e5}",
    "\u{1f600}",
    "\\\"",
    "\\\\",
    "\\/",
    "\\b",
    "\\f",
    "\\n",
    "\\r",
    "\\t",
    "\\u0001",
    "\\u001F",
    "\\u007f",
    "\u{7f}",
    "\\u00e9",
    "\\ud83d\\ude00",
    "x",
];

/// Parts of strings that are none in JSON, or not in PostgreSQL.
const WRONG_CHARACTERS: &[&str] = &[
    "\\u0000",
    "\\ud83d",
    "\\ude00",
    "\\ud83d\\ud83d",
    "\\x",
    "\\u12",
    "\n",
    "\t",
    "\"",
    "\\",
    "\\u12g4",
    "\\ud83dx",
    "\\ud83d\\n",
];

/// Numbers, some of which are the same with other digits.
const NUMBERS: &[&str] = &[
    "0",
    "-0",
    "0.0",
    "-0.00",
    "1",
    "1.0",
    "1.00",
    "-1",
    "10",
    "1e1",
    "1E+1",
    "100e-1",
    "1.5",
    "0.1",
    "0.10",
    "12345678901234567890",
    "1e-20",
    "1e40",
    "-1.50e2",
    "0e5",
    "0.0e-3",
    "-0e1",
    "1e300",
];

/// What is no number in JSON, or too large a one.
const WRONG_NUMBERS: &[&str] = &[
    "01",
    "1.",
    ".5",
    "+1",
    "1e",
    "1x",
    "-",
    "NaN",
    "1e131072",
    "1e-16384",
    "1e99999999999",
    "0x1",
    "1e131071",
    "--1",
    "1.5.1",
    "-a",
    "1\u{e9}",
];

/// A document that the server accepts. Small, so that some are equal.
pub(crate) fn document(random: &mut Random) -> String {
    value(random, 3)
}

/// A document that the server accepts, or nearly one.
pub(crate) fn document_like(random: &mut Random) -> String {
    let mut text = value(random, 4);
    for _ in 0..random.pick(&[0, 0, 1, 1, 2]) {
        let at = random.below(text.chars().count() + 1);
        let at = text.char_indices().nth(at).map_or(text.len(), |(at, _)| at);
        match random.below(6) {
            0 => text.insert_str(at, random.pick(WRONG_NUMBERS)),
            1 => text.insert_str(at, random.pick(WRONG_CHARACTERS)),
            2 => text.insert_str(
                at,
                random.pick(&["\"\\u0000\"", "[1e131072", " ", "\u{a0}", "_"]),
            ),
            3 => text.insert(
                at,
                random.pick(&['{', '}', '[', ']', ',', ':', '"', '1', 'e', '.']),
            ),
            4 if at < text.len() => drop(text.remove(at)),
            _ => text.truncate(at),
        }
    }
    text
}

/// The same document with blanks around it, and with a zero behind its last fraction.
pub(crate) fn in_another_form(text: &str) -> String {
    match text.strip_suffix(']') {
        Some(rest) if rest.ends_with(".0") => format!(" {rest}0 ]\n"),
        _ => format!(" {text}\r\n\t"),
    }
}

/// Arguments of a function of documents, of few names and values, so that parts are found.
pub(crate) fn arguments(random: &mut Random, code: u16) -> Vec<String> {
    let (mut one, other) = (small(random, 3), small(random, 3));
    if matches!(code, 280 | 281) && !random.one_in(4) {
        one = small_object(random, 3);
    }
    let second = match code {
        280 | 281 | 286 => random.pick(&["a", "b", "aa", ""]).to_owned(),
        282 | 283 => random.within(-4, 3).to_string(),
        _ => other,
    };
    vec![one, second]
}

fn small(random: &mut Random, depth: usize) -> String {
    const SCALARS: &[&str] = &["1", "1.0", "2", "\"a\"", "\"b\"", "null", "true", "\"\""];
    match random.below(if depth == 0 { 1 } else { 4 }) {
        0 => random.pick(SCALARS).to_owned(),
        1 => {
            let items: Vec<String> = (0..random.below(4))
                .map(|_| small(random, depth - 1))
                .collect();
            format!("[{}]", items.join(","))
        }
        _ => small_object(random, depth),
    }
}

fn small_object(random: &mut Random, depth: usize) -> String {
    let mut members = Vec::new();
    for _ in 0..random.below(4) {
        let name = random.pick(&["\"a\":", "\"b\":", "\"aa\":"]);
        members.push(name.to_owned() + &small(random, depth - 1));
    }
    format!("{{{}}}", members.join(","))
}

fn value(random: &mut Random, depth: usize) -> String {
    match random.below(if depth == 0 { 6 } else { 10 }) {
        0 => random.pick(&["null", "true", "false"]).to_owned(),
        1 | 2 => random.pick(NUMBERS).to_owned(),
        3 => {
            // As JSON has it: with a digit before and behind the point, and finite.
            let number = numeric(random);
            let is_json = number.ends_with(|c: char| c.is_ascii_digit())
                && !number.contains('e')
                && number.trim_start_matches('-').find('.') != Some(0);
            let zeros = number.trim_start_matches('-').starts_with('0');
            if is_json && !zeros {
                number
            } else {
                "7".to_owned()
            }
        }
        4 | 5 => string(random),
        6 | 7 => {
            let items: Vec<String> = (0..random.below(4))
                .map(|_| value(random, depth - 1))
                .collect();
            let between = random.pick(&[",", ", ", " ,\n"]);
            format!("[{}]", items.join(between))
        }
        _ => {
            let members: Vec<String> = (0..random.below(5))
                .map(|_| {
                    let colon = random.pick(&[":", ": ", "\t:\r"]);
                    string(random) + colon + &value(random, depth - 1)
                })
                .collect();
            format!("{{{}}}", members.join(random.pick(&[",", ", "])))
        }
    }
}

fn string(random: &mut Random) -> String {
    let parts: String = (0..random.below(4))
        .map(|_| random.pick(CHARACTERS))
        .collect();
    format!("\"{parts}\"")
}
