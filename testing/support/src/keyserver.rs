//! A real key server as a process of the command: made, run, waited for and ended.
//!
//! Who uses it says how the command is made: which program, in which directory, with which
//! environment.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::port::free_port;
use crate::process::{PATIENCE, checked, run};

/// A key server; its process ends with it.
#[derive(Debug)]
pub struct KeyServer {
    directory: PathBuf,
    port: u16,
    child: Option<Child>,
}

impl KeyServer {
    /// A server whose files are in `directory`; it listens at this port when it runs.
    pub fn at(directory: &Path, port: u16) -> Self {
        Self {
            directory: directory.to_owned(),
            port,
            child: None,
        }
    }

    /// Makes the files of a server in `directory` by `keyserver init` with these options, which do
    /// not say where it listens. It does not run yet.
    pub fn init(directory: &Path, options: &[&str], mut command: Command) -> Self {
        fs::create_dir_all(directory).unwrap();
        let server = Self::at(directory, free_port());
        command.args(["keyserver", "init"]).args(options);
        checked(command.args(["--address", &server.address()]));
        server
    }

    /// Runs it, and waits until it delivers keys to its administrator.
    #[track_caller]
    pub fn start(&mut self, command: impl Fn() -> Command) {
        let admin = self.directory.join("admin.toml");
        self.start_until(command(), PATIENCE, || {
            let mut keys = command();
            keys.args(["keyserver", "keys", "--node"]).arg(&admin);
            run(&mut keys).code == 0
        });
    }

    /// Runs it, and waits until it listens and is ready. Its log goes to the file `log` beside its
    /// configuration.
    #[track_caller]
    pub fn start_until(
        &mut self,
        mut command: Command,
        patience: Duration,
        mut is_ready: impl FnMut() -> bool,
    ) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.directory.join("log"));
        command
            .args(["keyserver", "run", "--config"])
            .arg(self.directory.join("server.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.unwrap());
        self.child = Some(command.spawn().unwrap());
        let begun = Instant::now();
        while !self.listens() || !is_ready() {
            let ended = self.child.as_mut().unwrap().try_wait().unwrap();
            let late = begun.elapsed() > patience;
            assert!(
                ended.is_none() && !late,
                "the key server does not serve: {ended:?}\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn listens(&self) -> bool {
        TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok()
    }

    /// Ends it as a power cut would.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }

    /// Number of its process; it runs.
    pub fn process(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Port at which it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Address and port at which it listens.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The same as nodes are told it.
    pub fn url(&self) -> String {
        format!("https://{}", self.address())
    }
}

impl Drop for KeyServer {
    fn drop(&mut self) {
        self.stop();
    }
}
