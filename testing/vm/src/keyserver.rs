//! The real key server on the host's loopback, and nodes of it: made by `strongroom keyserver`,
//! asked by curl and openssl, so that nothing of the product's own client stands between the test
//! and the server's answers.
//!
//! Must not: listen anywhere but on loopback; outlive its value.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use strongroom_testing_support::key::OTHER;
use strongroom_testing_support::keyserver as support;

use crate::machine::LONG;
use crate::place;

/// The name by which guests know it; see `guest.rs`.
pub const NAME: &str = "keys-a";

/// A key server.
#[derive(Debug)]
pub struct KeyServer {
    directory: PathBuf,
    server: support::KeyServer,
}

/// A node's configuration and identity, in a directory of the host.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its directory.
    pub directory: PathBuf,
}

impl KeyServer {
    /// A new server, running and not sealed.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start(directory: &Path) -> Self {
        fs::create_dir_all(directory).expect("a directory");
        let root = directory.join("root.key");
        write(&root, OTHER, 0o600);
        let (store, provider) = (
            text(&directory.join("keys.db")),
            format!("file:{}", root.display()),
        );
        let names = ["--name", NAME, "--name", "127.0.0.1"];
        let options = ["--store", &store, "--root-provider", &provider];
        let options = [&names[..], &options].concat();
        let made = support::KeyServer::init(directory, &options, Command::new(place::command()));
        let mut server = Self {
            directory: directory.to_owned(),
            server: made,
        };
        server.run();
        server
    }

    /// Starts it again.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn run(&mut self) {
        let (directory, port) = (self.directory.clone(), self.port());
        let status = || curl(&directory, port, &["--max-time", "10"], "/v1/status");
        let command = Command::new(place::command());
        self.server.start_until(command, LONG, || {
            status().and_then(|answer| answer.get("sealed")?.as_bool()) == Some(false)
        });
    }

    /// Ends it.
    pub fn stop(&mut self) {
        self.server.stop();
    }

    /// The port on loopback.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.server.port()
    }

    /// What the administrator asks. `None` when there was no answer, or none in JSON.
    #[must_use]
    pub fn admin(&self, method: &str, path: &str, body: Option<&Value>) -> Option<Value> {
        let (certificate, key) = (self.at("admin.pem"), self.at("admin.key"));
        let mut arguments = vec![
            "-X".to_owned(),
            method.to_owned(),
            "--cert".to_owned(),
            text(&certificate),
            "--key".to_owned(),
            text(&key),
        ];
        if method != "GET" {
            arguments.extend(["-H".to_owned(), "Content-Type: application/json".to_owned()]);
        }
        if let Some(body) = body {
            arguments.extend(["-d".to_owned(), body.to_string()]);
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.curl(&arguments, path)
    }

    /// Enrols a node by a token of one use, and writes its configuration for the host.
    ///
    /// # Panics
    /// When the server refuses.
    #[must_use]
    pub fn enrol(&self, name: &str) -> Node {
        let node = Node {
            directory: self.at(&format!("node-{name}")),
        };
        fs::create_dir_all(&node.directory).expect("a directory");
        let wanted = json!({"node": name, "role": "node", "keys": [], "may_create": true, "expires_seconds": 3600});
        let made = self
            .admin("POST", "/v1/tokens", Some(&wanted))
            .expect("a token");
        let token = made
            .get("token")
            .and_then(Value::as_str)
            .unwrap_or_else(|| refused(&made));
        let (key, csr) = (
            node.directory.join("node.key"),
            node.directory.join("node.csr"),
        );
        let status = Command::new("openssl")
            .args([
                "req",
                "-new",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-nodes",
                "-subj",
                &format!("/CN={name}"),
            ])
            .arg("-keyout")
            .arg(&key)
            .arg("-out")
            .arg(&csr)
            .stderr(Stdio::null())
            .status();
        assert!(status.is_ok_and(|status| status.success()), "openssl req");
        let csr = fs::read_to_string(&csr).expect("a request");
        let body = json!({"token": token, "csr": csr}).to_string();
        let answer = self
            .curl(
                &["-H", "Content-Type: application/json", "-d", &body],
                "/v1/enroll",
            )
            .expect("an enrolment");
        let member = |name: &str| {
            answer
                .get(name)
                .and_then(Value::as_str)
                .unwrap_or_else(|| refused(&answer))
        };
        write(
            &node.directory.join("node.pem"),
            member("certificate"),
            0o644,
        );
        write(
            &node.directory.join("authority.pem"),
            member("authority"),
            0o644,
        );
        write(&key, &fs::read_to_string(&key).expect("a key"), 0o600);
        write(
            &node.directory.join("node.toml"),
            &configuration(&self.server.address(), 60),
            0o644,
        );
        node
    }

    fn curl(&self, arguments: &[&str], path: &str) -> Option<Value> {
        curl(&self.directory, self.port(), arguments, path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

impl Node {
    /// What a guest of this node has in `/etc/strongroom`: files and their contents. It knows the
    /// server by its name.
    ///
    /// # Panics
    /// When the node was not enrolled.
    #[must_use]
    pub fn identity(&self) -> [(&'static str, String); 4] {
        let read = |name| {
            let file = fs::read_to_string(self.directory.join(name));
            (name, file.expect("a file of an enrolled node"))
        };
        [
            read("node.pem"),
            read("authority.pem"),
            read("node.key"),
            ("node.toml", configuration(&format!("{NAME}:8443"), 60)),
        ]
    }

    /// Runs the command as this node, on the host.
    ///
    /// # Panics
    /// When it fails.
    pub fn strongroom(&self, arguments: &[&str]) {
        let mut command = Command::new(place::command());
        command
            .args(arguments)
            .env_clear()
            .env("HOME", &self.directory)
            .env("STRONGROOM_NODE", self.directory.join("node.toml"));
        let output = command.output().expect("the command can be started");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {text}");
    }

    /// A volume in a file, under the key `id` and with the label `id`; its recovery key goes into a
    /// file.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn create_volume(&self, id: &str, image: &Path, recovery: &Path, size: &str) {
        let (image, recovery) = (text(image), text(recovery));
        let what = ["volume", "create", &image, "--size", size];
        let key = ["--key-id", id, "--label", id, "--recovery-out", &recovery];
        self.strongroom(&[what.as_slice(), &key].concat());
    }
}

/// Asks the server whose files are in this directory.
fn curl(directory: &Path, port: u16, arguments: &[&str], path: &str) -> Option<Value> {
    let output = Command::new("curl")
        .args(["-s", "--cacert", &text(&directory.join("authority.pem"))])
        .args(arguments)
        .arg(format!("https://127.0.0.1:{port}{path}"))
        .output()
        .expect("apt-get install curl");
    if output.stdout.is_empty() && output.status.success() {
        return Some(Value::Null);
    }
    serde_json::from_slice(&output.stdout).ok()
}

/// A node's configuration that asks this server, for so many seconds in all.
#[must_use]
pub fn configuration(server: &str, seconds: u32) -> String {
    format!(
        "servers = [\"https://{server}\"]\nauthority = \"authority.pem\"\ncertificate = \"node.pem\"\nkey = \"node.key\"\n\
         request_timeout_seconds = 10\ntotal_timeout_seconds = {seconds}\n"
    )
}

#[expect(clippy::panic, reason = "a test without its server has failed")]
fn refused(answer: &Value) -> &'static str {
    panic!("the key server answered: {answer}")
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[expect(clippy::disallowed_methods, reason = "a test's file")]
fn write(path: &Path, contents: &str, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::write(path, contents).expect("a file can be written");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("permissions");
}
