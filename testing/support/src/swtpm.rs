//! A simulated TPM (`swtpm`) of the test's own, set up with `tpm2-tools`: a second implementation
//! of what the product speaks. Shared by the tests of this crate and of the client.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::port::free_pair;

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A TPM, ended and removed when dropped.
pub struct Swtpm {
    child: Child,
    port: u16,
    directory: PathBuf,
}

impl Swtpm {
    /// Starts one with nothing in it. Needs the packages `swtpm` and `tpm2-tools`.
    pub fn start() -> Self {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("strongroom-tpm-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        // The second one is the control channel's.
        let port = free_pair();
        let child = Command::new("swtpm")
            .args(["socket", "--tpm2", "--flags", "not-need-init,startup-clear"])
            .arg("--tpmstate")
            .arg(format!("dir={}", directory.display()))
            .arg("--server")
            .arg(format!("type=tcp,port={port},bindaddr=127.0.0.1"))
            .arg("--ctrl")
            .arg(format!("type=tcp,port={},bindaddr=127.0.0.1", port + 1))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("swtpm is installed");
        let tpm = Self {
            child,
            port,
            directory,
        };
        let began = Instant::now();
        // The control channel: a connection to the TPM's own would be one command's.
        while TcpStream::connect(("127.0.0.1", port + 1)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(20), "swtpm listens");
            std::thread::sleep(Duration::from_millis(20));
        }
        tpm
    }

    /// Where it is. It serves one connection at a time: the tools wait while the product holds one.
    pub fn place(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Runs one of `tpm2-tools`.
    pub fn tool(&self, name: &str, args: &[&str]) -> String {
        let output = Command::new(name)
            .args(args)
            .current_dir(&self.directory)
            .env(
                "TPM2TOOLS_TCTI",
                format!("swtpm:host=127.0.0.1,port={}", self.port),
            )
            .output()
            .expect("tpm2-tools are installed");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{name} {args:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Makes an attestation key of the algorithm (`ecc` with `ecdsa`, `rsa` with `rsassa`) at a
    /// handle; its public area.
    pub fn attestation_key(&self, algorithm: &str, scheme: &str, handle: u32) -> Vec<u8> {
        let (area, at) = (format!("{handle:x}.pub"), format!("{handle:#x}"));
        self.tool(
            "tpm2_createek",
            &["-c", "ek.ctx", "-G", "rsa", "-u", "ek.pub"],
        );
        let tail = ["-u", &area, "-n", "ak.name"];
        let head = [
            "-C", "ek.ctx", "-c", "ak.ctx", "-G", algorithm, "-g", "sha256", "-s", scheme,
        ];
        self.tool("tpm2_createak", &[&head[..], &tail].concat());
        self.tool("tpm2_flushcontext", &["-t"]);
        self.tool("tpm2_evictcontrol", &["-C", "o", "-c", "ak.ctx", &at]);
        self.tool("tpm2_flushcontext", &["-t"]);
        self.file(&area)
    }

    /// What a tool has written.
    pub fn file(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.directory.join(name)).unwrap()
    }

    /// The value of a register of the SHA-256 bank.
    pub fn pcr(&self, number: u8) -> [u8; 32] {
        let bank = format!("sha256:{number}");
        self.tool("tpm2_pcrread", &[&bank, "-o", "pcr.bin"]);
        self.file("pcr.bin").try_into().unwrap()
    }

    /// Extends a register of the SHA-256 bank by a byte's repetition.
    pub fn extend(&self, number: u8, byte: u8) {
        let digest = format!("{byte:02x}").repeat(32);
        self.tool("tpm2_pcrextend", &[&format!("{number}:sha256={digest}")]);
    }

    /// Makes a counter at an index, with further attributes.
    pub fn counter(&self, index: u32, attributes: &str) {
        let index = format!("{index:#x}");
        let args = ["-C", "o", "-s", "8", "-a", attributes, &index];
        self.tool("tpm2_nvdefine", &args);
    }

    /// A directory of the test's own.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

/// What a counter for a store needs.
pub const COUNTER: &str = "nt=counter|authread|authwrite|ownerread|no_da";

impl Drop for Swtpm {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        drop(std::fs::remove_dir_all(&self.directory));
    }
}
