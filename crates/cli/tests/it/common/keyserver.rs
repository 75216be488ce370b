//! A key server as a process of the same binary, on a port of the kernel's choice.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::Place;

const PATIENCE: Duration = Duration::from_secs(60);

/// A server that runs until it is dropped.
pub(crate) struct Server {
    child: Child,
    /// Where it listens.
    pub(crate) url: String,
}

impl Server {
    /// A new server in the place's directory `name`.
    pub(crate) fn start(place: &Place, name: &str) -> Self {
        for _ in 0..5 {
            let free = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = free.local_addr().unwrap().to_string();
            drop(free);
            let store = format!("{name}/keys.db");
            drop(std::fs::remove_dir_all(place.path(name)));
            std::fs::create_dir(place.path(name)).unwrap();
            let init = [
                "keyserver",
                "init",
                "--store",
                &store,
                "--name",
                "127.0.0.1",
                "--address",
                &address,
                "--root-provider",
                "env:ROOT",
            ];
            place.run(&init).succeeded();
            if let Some(child) = Self::run(place, name, &address) {
                let url = format!("https://{address}");
                return Self { child, url };
            }
        }
        panic!("no port is free");
    }

    /// Runs what was made; `None` when it ends at once.
    pub(crate) fn run(place: &Place, name: &str, address: &str) -> Option<Child> {
        let mut child = place
            .command()
            .args([
                "keyserver",
                "run",
                "--config",
                &format!("{name}/server.toml"),
            ])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + PATIENCE;
        let config = format!("{name}/admin.toml");
        while TcpStream::connect(address).is_err()
            || place.run(&["keyserver", "keys", "--node", &config]).code != 0
        {
            if child.try_wait().unwrap().is_some() {
                return None;
            }
            assert!(Instant::now() < deadline, "the server does not serve");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(child)
    }

    /// Ends it, and runs it again with what its configuration says now.
    pub(crate) fn restart(&mut self, place: &Place, name: &str) {
        self.stop();
        let address = self.url.trim_start_matches("https://").to_owned();
        self.child = Self::run(place, name, &address).unwrap();
    }

    /// Ends it.
    pub(crate) fn stop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}
