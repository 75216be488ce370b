//! Goal: a server finds its instance in the ways in which PostgreSQL does, says so when it finds
//! none, and dumps no core.
//!
//! Method: real servers, started on a directory of configuration as Debian has them, on a plain
//! directory, and under each limit for cores; what the kernel tells of the processes.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::support;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use strongroom_format::header::Cipher;
use strongroom_testing_support::account::{give_unchanged, is_root};
use strongroom_testing_support::process::{children, until};
use support::{Place, Server, binary, check, library, program};

fn put(path: &Path, text: &str) {
    std::fs::File::create(path)
        .and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()))
        .unwrap();
    give_unchanged(path);
}

/// A directory as in /etc/postgresql: its postgresql.conf names the data directory.
fn configuration(place: &Place, name: &str, data: &Path) -> PathBuf {
    let directory = place.plain(name);
    let files = ["pg_hba.conf", "pg_ident.conf"].map(|name| {
        let copy = directory.join(name);
        put(&copy, &std::fs::read_to_string(data.join(name)).unwrap());
        copy.display().to_string()
    });
    let [hba, ident] = files;
    let own = std::fs::read_to_string(data.join("postgresql.conf")).unwrap();
    let text = format!(
        "{own}\n# data_directory = '/nowhere'\ndata_directory = '{}'\t\t# use data in another directory\n\
         hba_file = '{hba}'\nident_file = '{ident}'\nlisten_addresses = ''\nunix_socket_directories = '{}'\nport = 5499\n",
        data.display(),
        place.path().display()
    );
    put(&directory.join("postgresql.conf"), &text);
    directory
}

fn shielded(words: &[&str]) -> Command {
    let mut command = program("env");
    command.arg(format!("LD_PRELOAD={}", library().display()));
    command.args(words).current_dir("/");
    command
}

fn ask(place: &Place, statement: &str) -> Output {
    let mut psql = program(binary("psql"));
    psql.args([
        "-X", "-A", "-t", "-U", "postgres", "-d", "postgres", "-p", "5499",
    ]);
    psql.arg("-h").arg(place.path()).args(["-c", statement]);
    psql.current_dir("/").output().unwrap()
}

#[test]
fn a_directory_of_configuration_leads_to_the_instance() {
    let place = Place::new();
    let server = Server::create(&place, place.sealed("data", Cipher::Aes128Xts), "");
    let configured = configuration(&place, "conf", &server.data);
    let named = configured.display().to_string();
    let file = format!("config_file={named}/postgresql.conf");
    let data = server.data.display().to_string();
    let here = format!("data_directory={data}");
    let (pg_ctl, log) = (binary("pg_ctl"), place.path().join("log"));
    put(&log, "");
    // -D on the configuration; as pg_ctlcluster has it; and by options alone.
    for (directory, options) in [
        (&named, String::new()),
        (&data, format!("-c {file}")),
        (&named, format!("-c {here}")),
    ] {
        let mut start = shielded(&[pg_ctl.to_str().unwrap(), "-w", "-s", "-D", directory]);
        start.args(["-l", log.to_str().unwrap(), "-o", &options, "start"]);
        let done = start
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .unwrap();
        let said = std::fs::read_to_string(&log).unwrap();
        assert!(done.success(), "{directory} {options}: {said}");
        assert!(!said.contains("SR-"), "{said}");
        assert_eq!(check(ask(&place, "select 1")).trim(), "1");
        let mut stop = program(&pg_ctl);
        stop.args(["-w", "-s", "-m", "fast", "-D", &data, "stop"]);
        check(stop.current_dir("/").output().unwrap());
    }
    // A key that can be fetched once is not spent on the question where the data is.
    let hidden = server.data.join("strongroom.conf");
    let key = std::fs::read_to_string(&hidden).unwrap();
    std::fs::remove_file(&hidden).unwrap();
    let postgres = binary("postgres");
    let mut question = shielded(&[
        postgres.to_str().unwrap(),
        "-C",
        "data_directory",
        "-D",
        &named,
    ]);
    assert_eq!(check(question.output().unwrap()).trim(), data);
    let mut other = shielded(&[
        postgres.to_str().unwrap(),
        "-C",
        "data_checksums",
        "-D",
        &named,
    ]);
    let output = other.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("SR-2001"), "the instance was found: {said}");
    put(&hidden, &key);
}

#[test]
fn a_server_to_which_nothing_is_sealed_says_so() {
    let place = Place::new();
    let server = Server::create(&place, place.sealed("data", Cipher::Aes128Xts), "");
    std::fs::remove_file(server.data.join("strongroom.header")).unwrap();
    let postgres = binary("postgres");
    let data = server.data.display().to_string();
    let output = shielded(&[postgres.to_str().unwrap(), "-D", &data])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // And PostgreSQL refuses, since the control file is sealed.
    assert!(said.starts_with("strongroom: SR-7024: "), "{said}");
    assert_eq!(said.matches("strongroom: ").count(), 1, "{said}");
    assert!(!output.status.success() && said.contains("FATAL"), "{said}");

    let plain = Server::create(&place, place.plain("plain"), "");
    let data = plain.data.display().to_string();
    let words = [postgres.to_str().unwrap(), "-C", "port", "-D", &data];
    let output = shielded(&words).output().unwrap();
    assert!(output.stderr.is_empty(), "{output:?}");
    let initdb = binary("initdb");
    let fresh = place.plain("fresh").display().to_string();
    let words = [initdb.to_str().unwrap(), "--no-sync", "-D", &fresh];
    let output = shielded(&words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("strongroom"), "{said}");
}

/// What the kernel limits a process to: the row of `/proc/PID/limits` for cores, in words.
fn core_limit(process: u32) -> String {
    let limits = std::fs::read_to_string(format!("/proc/{process}/limits")).unwrap();
    let row = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max core file size"));
    let words: Vec<&str> = row.unwrap().split_whitespace().take(2).collect();
    words.join(" ")
}

/// Whether the kernel would dump the process: the files of one that it would not belong to root.
fn is_dumpable(process: u32) -> bool {
    let of = |path: String| std::fs::metadata(path).unwrap().uid();
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let row = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let user = row.unwrap().split_whitespace().nth(1).unwrap();
    of(format!("/proc/{process}/environ")).to_string() == user
}

#[test]
fn a_sealed_server_dumps_no_core_under_any_limit() {
    let place = Place::new();
    let server = Server::create(&place, place.sealed("data", Cipher::Aes128Xts), "");
    // A limit of 0 does not hold for cores that are piped to a program; 1 does, and what is not
    // dumpable is not dumped.
    for (given, limit, dumpable) in [
        ("unlimited", "1 1", true),
        ("0:unlimited", "1 1", true),
        ("1", "1 1", true),
        ("0", "0 0", false),
    ] {
        let postmaster = start_limited(&place, &server, given);
        let mut all = children(postmaster);
        assert!(all.len() > 3, "{all:?}");
        all.push(postmaster);
        for process in &all {
            assert_eq!(core_limit(*process), limit, "{given}");
            assert_eq!(is_dumpable(*process), dumpable, "{given}");
        }
        // Where the pattern for cores is a file's name, this would leave one.
        let checkpointer =
            server.sql("select pid from pg_stat_activity where backend_type = 'checkpointer'");
        check(
            Command::new("kill")
                .args(["-SEGV", &checkpointer])
                .output()
                .unwrap(),
        );
        let again = || {
            let found = server
                .psql()
                .args([
                    "-c",
                    "select pid from pg_stat_activity where backend_type = 'checkpointer'",
                ])
                .output()
                .unwrap();
            let found = String::from_utf8_lossy(&found.stdout).trim().to_owned();
            !found.is_empty() && found != checkpointer
        };
        until("it comes back", again);
        server.stop();
        let cores: Vec<PathBuf> = support::files(&server.data)
            .into_iter()
            .filter(|path| {
                let name = path.file_name().unwrap().to_string_lossy();
                name == "core" || name.starts_with("core.")
            })
            .collect();
        assert!(cores.is_empty(), "{given}: {cores:?}");
    }
}

/// Starts the server under a limit for cores, as prlimit(1) takes it.
fn start_limited(place: &Place, server: &Server, limit: &str) -> u32 {
    let log = place.path().join("limited.log");
    put(&log, "");
    let mut command = Command::new("prlimit");
    command.arg(format!("--core={limit}"));
    if is_root() {
        // After the limit, which another user may not be allowed to raise.
        command.args(["runuser", "-u", "postgres", "--"]);
    }
    let start = server.start_command(&log, &[]);
    command
        .arg(start.get_program())
        .args(start.get_args())
        .current_dir(place.path());
    let done = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(done.success(), "{limit}: {said}");
    server.postmaster().unwrap()
}
