//! Roles and labels: the names that go into keys and associated data.

use super::*;

#[test]
fn roles_are_those_of_the_code() {
    let sources = read("crates/core/format/src/aad.rs");
    let coded = between(&sources, "=> *b\"", "\"");
    let page = read("docs/spec/header.md");
    let stated: BTreeSet<&str> = page
        .lines()
        .filter_map(cells)
        .filter(|row| row.len() == 7)
        .filter_map(|row| row.first()?.strip_prefix('`')?.strip_suffix('`'))
        .collect();
    assert_eq!(stated, coded, "left: docs/spec/header.md");
    assert!(coded.len() > 5);
}

#[test]
fn labels_are_those_of_the_code() {
    let sources = read("crates/core/keyring/src/purpose.rs");
    let coded = between(&sources, "b\"strongroom/v1/", "\"");
    let page = read("docs/spec/header.md");
    let stated: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| {
            line.strip_prefix("| `strongroom/v1/")?
                .split_once('`')
                .map(|(label, _)| label)
        })
        .collect();
    assert_eq!(stated, coded, "left: docs/spec/header.md");
    assert!(coded.len() > 5);
    // Labels of keys that no object has: those of the channel, of envelopes, of redo records'
    // nonces and of signatures of backups.
    let channel = read("crates/core/format/src/columns/channel.rs");
    let envelope = read("crates/core/format/src/columns/envelope.rs");
    let mut agreed = between(&channel, "\"strongroom/v1/", "\"");
    agreed.extend(between(&envelope, "\"strongroom/v1/", "\""));
    let nonces = ["redo", "block", "manifest"]
        .map(|name| read(&format!("crates/core/format/src/columns/{name}.rs")));
    let signature = read("crates/core/format/src/backup_signature.rs");
    agreed.extend(between(&signature, "\"strongroom/v1/", "\""));
    for source in &nonces {
        agreed.extend(between(source, "\"strongroom/v1/", "\""));
    }
    // And of the key server's keys, which belong to its root key, of volumes', which belong to
    // LUKS2 headers, and of what DuckDB gets.
    let elsewhere = [
        "crates/keys/server/src/keys.rs",
        "crates/keys/server/src/audit.rs",
        "crates/keys/server/src/archive.rs",
        "crates/volumes/volume/src/secret.rs",
        "crates/duckdb/src/key.rs",
    ]
    .map(read);
    for source in &elsewhere {
        let labels = between(source, "b\"strongroom/v1/", "\"").into_iter();
        agreed.extend(labels.map(|label| label.trim_end_matches("\\0")));
    }
    assert!(agreed.len() > 3 && agreed.is_disjoint(&coded));
    for (page, text) in files("docs/spec", "md") {
        let used = between(&text, "strongroom/v1/", "\n").into_iter();
        for label in used.map(|rest| {
            rest.split(|c: char| !(c.is_ascii_lowercase() || c == '-'))
                .next()
                .unwrap()
        }) {
            assert!(
                coded.contains(label) || agreed.contains(label),
                "{page}: there is no label strongroom/v1/{label}"
            );
        }
    }
}
