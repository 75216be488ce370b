//! Goal: `strongroom columns proxy` says where it listens when it does, and what is wrong with an
//! address that it cannot use. Method: the real command; no server is needed before a client comes.

use crate::common;

use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use common::Place;

fn place() -> Place {
    let place = Place::new();
    place.with_key();
    place
}

fn proxy(listen: &[&str]) -> Vec<String> {
    let fixed = "columns proxy --server /nowhere --key-id app --accept-process-attestation";
    let mut words: Vec<String> = fixed.split(' ').map(str::to_owned).collect();
    for address in listen {
        words.extend(["--listen".to_owned(), (*address).to_owned()]);
    }
    words
}

fn run(place: &Place, listen: &[&str]) -> common::Run {
    let words = proxy(listen);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    place.run(&words)
}

#[test]
fn it_says_where_it_listens_once_it_does() {
    let place = place();
    let socket = place.path("socket").display().to_string();
    let mut command: Command = place.command();
    let mut child = command
        .args(proxy(&["127.0.0.1:0", &socket]))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let said = lines
        .find_map(|line| Some(line.ok()?.split_once("listening at ")?.1.to_owned()))
        .unwrap();
    let (tcp, unix) = said.split_once(", ").unwrap();
    // The port that the system chose, and somebody who answers there.
    let connected = TcpStream::connect(tcp).is_ok();
    let there = std::os::unix::net::UnixStream::connect(unix).is_ok();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(connected && there && !tcp.ends_with(":0"), "{said}");
}

#[test]
fn a_port_that_is_taken_is_named() {
    let place = place();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let told = run(&place, &["127.0.0.1:0", &address]).failed(5, "SR-5001");
    assert!(told.contains(&format!("{address}: ")), "{told}");
    assert!(!told.contains("listening"), "{told}");
    let told = run(&place, &["/nowhere/socket"]).failed(5, "SR-5001");
    assert!(told.contains("/nowhere/socket: "), "{told}");
}

#[test]
fn an_address_without_a_host_or_a_port_is_a_usage_error() {
    let place = place();
    for (address, example) in [
        ("6432", "127.0.0.1:6432"),
        ("localhost", "127.0.0.1:6432"),
        ("7000", "127.0.0.1:7000"),
    ] {
        let told = run(&place, &[address]).failed(2, "SR-1001");
        assert!(told.contains(example), "{told}");
    }
    let words = ["columns", "status", "--server", "5432"];
    place.run(&words).failed(2, "SR-1001");
}
