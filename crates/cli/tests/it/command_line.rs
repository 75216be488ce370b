//! Help, usage errors, `explain`: what scripts and people can rely on before any file is touched.
//!
//! Method: the real binary, its output and its exit code.

use crate::common;

use std::fs;

use common::{Place, members};

/// Every command, as words.
const COMMANDS: &[&str] = &[
    "keyring init",
    "keyring status",
    "keyring rotate-root",
    "keyring export",
    "keyring import",
    "keyring accept-older",
    "key create",
    "key list",
    "key rotate",
    "key retire",
    "cert create",
    "cert import",
    "cert list",
    "cert export",
    "cert restore",
    "cert retire",
    "sqlite encrypt",
    "sqlite decrypt",
    "sqlite rekey",
    "sqlite shell",
    "sqlite run",
    "pg initdb",
    "pg start",
    "pg stop",
    "pg restart",
    "pg promote",
    "pg status",
    "pg run",
    "pg controldata",
    "pg encrypt",
    "pg decrypt",
    "pg rotate",
    "pg service",
    "duckdb rekey",
    "duckdb scrub",
    "duckdb header-backup",
    "duckdb header-restore",
    "duckdb key",
    "backup create",
    "backup header",
    "backup verify",
    "backup restore",
    "backup wal-push",
    "backup wal-fetch",
    "backup wal-receive",
    "backup rewrap",
    "backup expire",
    "backup history",
    "columns setup",
    "columns zone",
    "columns proxy",
    "columns status",
    "columns ledger",
    "columns replay",
    "columns convert",
    "columns pins",
    "volume create",
    "volume status",
    "volume list",
    "volume open",
    "volume close",
    "volume attach",
    "volume detach",
    "volume enroll",
    "volume unenroll",
    "volume backup",
    "volume restore",
    "volume rotate",
    "volume repair",
    "volume migrate",
    "volume swap",
    "volume unlock",
    "volume shred",
    "keyserver init",
    "keyserver run",
    "keyserver join",
    "keyserver renew",
    "keyserver report",
    "keyserver server-cert",
    "keyserver break-glass",
    "keyserver status",
    "keyserver unseal",
    "keyserver seal",
    "keyserver token",
    "keyserver tokens",
    "keyserver nodes",
    "keyserver revoke",
    "keyserver grant",
    "keyserver ungrant",
    "keyserver grants",
    "keyserver keys",
    "keyserver create",
    "keyserver rotate",
    "keyserver disable",
    "keyserver enable",
    "keyserver destroy",
    "keyserver restore",
    "keyserver forget",
    "keyserver audit",
    "inspect",
    "verify",
    "explain",
    "completion",
    "man",
];

#[test]
fn every_help_ends_with_exit_status_and_an_example_of_itself() {
    let place = Place::new();
    for words in COMMANDS {
        let mut arguments: Vec<&str> = words.split(' ').collect();
        arguments.push("--help");
        let help = place.run(&arguments).succeeded();
        let (_, tail) = help.split_once("\nEXIT STATUS\n").unwrap();
        let (codes, example) = tail.split_once("\nEXAMPLE\n").unwrap();
        for code in ["  0 ", "  2 ", "  3 ", "  4 ", "  5 ", "  6 ", "  70 "] {
            assert!(codes.contains(code), "{words}: {code}");
        }
        assert!(
            example.starts_with(&format!("  strongroom {words}")),
            "{words}: {example}"
        );
    }
}

#[test]
fn every_command_is_in_the_list_above() {
    let place = Place::new();
    let mut found = Vec::new();
    for noun in verbs(&place, &[]) {
        let below = verbs(&place, &[&noun]);
        if below.is_empty() {
            found.push(noun);
        } else {
            found.extend(below.iter().map(|verb| format!("{noun} {verb}")));
        }
    }
    assert_eq!(found, COMMANDS);
}

/// The commands that a help text lists.
fn verbs(place: &Place, noun: &[&str]) -> Vec<String> {
    let help = place.run(&[noun, &["--help"]].concat()).succeeded();
    let Some((_, list)) = help.split_once("\nCommands:\n") else {
        return Vec::new();
    };
    let lines = list.lines().take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names
        .filter(|name| !name.is_empty() && *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn usage_errors_exit_with_2() {
    let place = Place::new();
    let cases: &[&[&str]] = &[
        &[],
        &["frobnicate"],
        &["sqlite"],
        &["inspect"],
        &["inspect", "a", "b"],
        &["verify", "x", "--key-id", "a", "--ask"],
        &["verify", "x", "--key-env", "A", "--key-file", "b"],
        &["sqlite", "rekey", "x", "--new-key-id", "a", "--new-ask"],
        &["sqlite", "encrypt", "a", "b", "--cipher", "rot13"],
        &["sqlite", "encrypt", "a", "b", "--page-size", "1000"],
        &["sqlite", "shell", "a", "--mode", "xml"],
        &["keyring", "init"],
        &["cert", "create"],
        &["cert", "create", "a", "--rsa", "2048"],
        &["cert", "export", "a"],
        &["cert", "export", "a", "--out", "b", "--public", "--ask"],
        &["pg"],
        &["pg", "initdb", "--cipher", "aes-256-gcm"],
        &["pg", "initdb", "--key-id", "a", "--ask"],
        &["pg", "run", "-D", "x"],
        &["pg", "encrypt", "--threads", "many"],
        &["pg", "rotate", "--new-key-id", "a", "--new-ask"],
        &["explain", "SR-0000"],
        &["explain", "nonsense"],
    ];
    for arguments in cases {
        let run = place.run(arguments);
        assert_eq!(run.out, "", "{arguments:?}");
        run.failed(2, "SR-1001");
    }
    assert!(place.names().is_empty());
}

#[test]
fn a_usage_error_with_json_is_json_too() {
    let place = Place::new();
    let run = place.run(&["inspect", "--json"]);
    let object = run.json();
    assert_eq!(members(&object), ["error"]);
    assert_eq!(
        members(&object["error"]),
        ["code", "detail", "todo", "what"]
    );
    assert_eq!(object["error"]["code"], "SR-1001");
    run.failed(2, "SR-1001");
}

#[test]
fn an_error_has_two_lines_and_its_json_the_same_words() {
    let place = Place::new();
    let run = place.run(&["inspect", "nothing.db", "--json"]);
    assert_eq!(
        run.err,
        "error[SR-1006]: the file does not exist (nothing.db)\n  to do: check the path\n"
    );
    let error = &run.json()["error"];
    assert_eq!(error["code"], "SR-1006");
    assert_eq!(error["what"], "the file does not exist");
    assert_eq!(error["detail"], "nothing.db");
    assert_eq!(error["todo"], "check the path");
    assert_eq!(run.code, 2);
}

#[test]
fn control_characters_in_names_do_not_reach_the_terminal() {
    let place = Place::new();
    let run = place.run(&["inspect", "a\u{1b}[2Jb\nc"]);
    assert!(!run.err.contains('\u{1b}'));
    assert_eq!(run.err.lines().count(), 2);
    run.failed(2, "SR-1006");
}

#[test]
fn explain_knows_every_code_by_both_names() {
    let place = Place::new();
    for code in strongroom_format::code::ALL {
        let name = format!("SR-{:04}", code.number);
        let text = place.run(&["explain", &name]).succeeded();
        assert!(
            text.starts_with(&format!("{name}: {}\n", code.what)),
            "{text}"
        );
        assert!(text.contains(code.todo), "{text}");
        assert!(
            text.contains(&format!("(exit code {})", code.class.exit_code())),
            "{text}"
        );
    }
    let short = place.run(&["explain", "2002"]).succeeded();
    assert_eq!(short, place.run(&["explain", "sr-2002"]).succeeded());
}

#[test]
fn a_closed_standard_output_is_not_a_panic() {
    use std::process::Stdio;
    let place = Place::new();
    place.plain_database("a.db", 100_000);
    let mut command = place.command();
    command.args([
        "sqlite",
        "shell",
        "a.db",
        "--mode",
        "csv",
        "-c",
        "SELECT * FROM t",
    ]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(5));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

/// Bash itself completes with the script: a verb, an option, and nothing where there is nothing.
#[test]
fn bash_completes_verbs_and_options() {
    let place = Place::new();
    let script = place.run(&["completion", "bash"]).succeeded();
    place.write("completion", script);
    let completed = |words: &[&str]| {
        let last = words.len() - 1;
        let words = words.join(" ");
        let program = format!(
            "source ./completion; COMP_WORDS=({words}); COMP_CWORD={last}; \
             _strongroom strongroom \"${{COMP_WORDS[{last}]}}\"; echo \"${{COMPREPLY[*]}}\""
        );
        let output = std::process::Command::new("bash")
            .args(["-c", &program])
            .current_dir(place.path("."))
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(completed(&["strongroom", "keyr"]), "keyring");
    assert_eq!(completed(&["strongroom", "pg", "enc"]), "encrypt");
    assert_eq!(
        completed(&["strongroom", "pg", "encrypt", "--key-f"]),
        "--key-file"
    );
    assert_eq!(completed(&["strongroom", "nonsen"]), "");
    for shell in ["zsh", "fish"] {
        let script = place.run(&["completion", shell]).succeeded();
        assert!(
            script.contains("keyring") && script.contains("key-file"),
            "{shell}"
        );
    }
    place.run(&["completion", "tcsh"]).failed(2, "SR-1001");
}

#[test]
fn every_command_has_a_manual_page() {
    let place = Place::new();
    let page = place.run(&["man"]).succeeded();
    assert!(page.contains(".TH strongroom 1"), "{page}");
    fs::create_dir(place.path("pages")).unwrap();
    place.run(&["man", "--out", "pages"]).succeeded();
    for words in COMMANDS {
        let name = format!("strongroom-{}", words.replace(' ', "-"));
        let page = fs::read_to_string(place.path(&format!("pages/{name}.1"))).unwrap();
        assert!(page.contains(&format!(".TH {name} 1")), "{name}");
        assert!(page.contains("EXIT STATUS"), "{name}");
    }
    place.run(&["man", "--out", "absent"]).failed(5, "SR-5001");
}

/// What is wrong is told as that, and not as a fault of the disk or as keys that contradict each
/// other.
#[test]
fn mistakes_of_newcomers_are_told_as_what_they_are() {
    let place = Place::new();
    place.with_key();
    place.plain_database("plain.db", 1);
    fs::create_dir(place.path("directory")).unwrap();
    let key = ["--key-id", "app"];
    let run = |arguments: &[&str]| place.run(&[arguments, &key].concat());
    // A directory that is missing.
    for arguments in [
        ["sqlite", "encrypt", "plain.db", "no/sealed.db"],
        ["cert", "export", "backup", "--out=no/backup.p12"],
    ] {
        let told = run(&arguments).failed(2, "SR-1006");
        assert!(told.contains("the directory no"), "{told}");
    }
    // A directory that holds nothing to be verified.
    let told = run(&["verify", "directory"]).failed(2, "SR-7011");
    assert!(told.contains("name a file"), "{told}");
    // An option that is missing.
    let create = ["volume", "create", "v", "--provider", "keyring"];
    let size = ["--size", "24M", "--no-recovery"];
    run(&[&create[..], &size].concat()).succeeded();
    let told = place.run(&["volume", "backup", "v"]).failed(2, "SR-1001");
    assert!(told.contains("--out"), "{told}");
    let told = place.run(&["volume", "restore", "v"]).failed(2, "SR-1001");
    assert!(told.contains("--from <FILE>|--from-server"), "{told}");
    let both = ["volume", "restore", "v", "--from", "h", "--from-server"];
    place.run(&both).failed(2, "SR-1001");
}
