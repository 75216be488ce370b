//! The machine: QEMU in pure emulation, its console, and the port through which scripts are run in
//! the guest.
//!
//! Must not: open a port of the host's; give the guest a way out but the forwarded ones.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::kernel::Kernel;
use crate::nbd::Served;
use crate::programs;

/// What is long enough for anything a guest does, on a loaded machine too.
pub const LONG: Duration = Duration::from_secs(1200);

/// A machine that has not been switched on.
#[derive(Debug)]
pub struct Setup {
    /// What it boots.
    pub kernel: Kernel,
    /// Its first file system.
    pub initramfs: PathBuf,
    /// Its memory.
    pub memory_mib: u32,
    /// The kernel's command line.
    pub append: String,
    arguments: Vec<String>,
    forwards: String,
}

impl Setup {
    /// A machine with this first file system, no disk and no network.
    #[must_use]
    pub fn new(kernel: Kernel, initramfs: PathBuf) -> Self {
        Self {
            kernel,
            initramfs,
            memory_mib: 768,
            append: "console=ttyS0 quiet panic=-1 rdinit=/init".to_owned(),
            arguments: Vec::new(),
            forwards: String::new(),
        }
    }

    /// A disk that is a file. In the guest: `/dev/disk/by-id/virtio-NAME`.
    pub fn file(&mut self, name: &str, path: &Path, read_only: bool) {
        let how = if read_only {
            "cache=unsafe,readonly=on"
        } else {
            "cache=unsafe"
        };
        self.drive(name, &format!("file={},{how}", path.display()));
    }

    /// A disk with a cache that forgets.
    pub fn served(&mut self, name: &str, disk: &Served) {
        self.drive(name, &format!("file={},cache=none", disk.name()));
    }

    /// Connections of the guest to `10.0.2.NUMBER:8443` reach this port of the host's loopback.
    pub fn forward(&mut self, number: u8, port: u16) {
        let nc = programs::installed("busybox", "busybox-static");
        self.forwards += &format!(
            ",guestfwd=tcp:10.0.2.{number}:8443-cmd:{} nc 127.0.0.1 {port}",
            nc.display()
        );
    }

    fn drive(&mut self, name: &str, how: &str) {
        self.arguments.extend([
            "-drive".to_owned(),
            format!("if=none,id={name},format=raw,{how}"),
            "-device".to_owned(),
            format!("virtio-blk-pci,drive={name},serial={name}"),
        ]);
    }
}

/// What a script left.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Output {
    /// Its exit code.
    pub code: i32,
    /// What it wrote, to standard output and standard error.
    pub text: String,
}

/// A machine that runs.
#[derive(Debug)]
pub struct Machine {
    child: Child,
    port: UnixStream,
    answers: Receiver<String>,
    console: UnixStream,
    shown: Arc<Mutex<String>>,
    sent: u64,
    booted: Duration,
    _directory: tempfile::TempDir,
}

impl Machine {
    /// Switches it on and waits until the guest listens.
    ///
    /// # Panics
    /// When it does not.
    #[must_use]
    pub fn boot(setup: &Setup) -> Self {
        let mut machine = Self::power_on(setup);
        machine.wait_ready();
        machine
    }

    /// Switches it on.
    ///
    /// # Panics
    /// When QEMU does not start.
    #[must_use]
    pub fn power_on(setup: &Setup) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("sr-vm-")
            .tempdir()
            .expect("a directory");
        let errors = directory.path().join("errors");
        let mut command = command(setup, directory.path());
        command.stderr(fs::File::create(&errors).expect("a file"));
        let mut child = command.spawn().expect("QEMU can be started");
        let console = connect(&directory.path().join("console"), &mut child, &errors);
        let port = connect(&directory.path().join("port"), &mut child, &errors);
        let shown = show(&console);
        let answers = listen(&port);
        Self {
            child,
            port,
            answers,
            console,
            shown,
            sent: 0,
            booted: Duration::ZERO,
            _directory: directory,
        }
    }

    /// Waits until the guest listens.
    ///
    /// # Panics
    /// When it does not.
    pub fn wait_ready(&mut self) {
        let line = self
            .line(LONG)
            .unwrap_or_else(|| self.fail("the guest did not come up"));
        let uptime = line
            .strip_prefix("ready 0 ")
            .map(decoded)
            .unwrap_or_default();
        self.booted =
            Duration::try_from_secs_f64(uptime.trim().parse().unwrap_or(0.0)).unwrap_or_default();
        trace(&format!("up after {:.1} s", self.booted.as_secs_f32()));
    }

    /// The guest's uptime when it began to listen.
    #[must_use]
    pub const fn booted(&self) -> Duration {
        self.booted
    }

    /// Runs a script in the guest's shell.
    ///
    /// # Panics
    /// When the guest does not answer.
    pub fn run(&mut self, script: &str) -> Output {
        let number = self.send(script);
        let began = Instant::now();
        let output = self.answer(number, LONG);
        let output = output.unwrap_or_else(|| self.fail(&format!("no answer to: {script}")));
        let what = script.trim().lines().next().unwrap_or_default();
        trace(&format!(
            "{:.1} s, exit {}: {what:.100}",
            began.elapsed().as_secs_f32(),
            output.code
        ));
        output
    }

    /// Runs a script that has to succeed, and returns what it wrote.
    ///
    /// # Panics
    /// When it fails.
    pub fn must(&mut self, script: &str) -> String {
        let output = self.run(script);
        if output.code != 0 {
            self.fail::<()>(&format!(
                "{script}\nexit code {}: {}",
                output.code, output.text
            ));
        }
        output.text
    }

    /// Starts a script and does not wait for it. One at a time: the guest takes the next one when
    /// it has ended.
    ///
    /// # Panics
    /// When the port is closed.
    pub fn send(&mut self, script: &str) -> u64 {
        self.sent += 1;
        let line = format!("{} {}\n", self.sent, STANDARD.encode(script));
        self.port
            .write_all(line.as_bytes())
            .expect("the port takes a line");
        self.sent
    }

    /// The answer to a script that was sent. `None` when there is none in time, or the machine is
    /// off.
    pub fn answer(&mut self, number: u64, at_most: Duration) -> Option<Output> {
        let until = Instant::now() + at_most;
        loop {
            let line = self.line(until.saturating_duration_since(Instant::now()))?;
            let mut words = line.splitn(3, ' ');
            if words.next()?.parse() == Ok(number) {
                let code = words.next()?.parse().ok()?;
                return Some(Output {
                    code,
                    text: decoded(words.next().unwrap_or_default()),
                });
            }
        }
    }

    /// Types a line at the console.
    ///
    /// # Panics
    /// When the console is closed.
    pub fn type_line(&mut self, text: &str) {
        self.console
            .write_all(format!("{text}\n").as_bytes())
            .expect("the console takes a line");
    }

    /// Waits until the console has shown this.
    ///
    /// # Panics
    /// When it does not.
    pub fn wait_console(&mut self, text: &str) {
        self.wait_console_times(text, 1);
    }

    /// Waits until the console has shown this so many times.
    ///
    /// # Panics
    /// When it does not.
    pub fn wait_console_times(&mut self, text: &str, times: usize) {
        let until = Instant::now() + LONG;
        while self.console().matches(text).count() < times {
            let over =
                Instant::now() > until || self.child.try_wait().is_ok_and(|ended| ended.is_some());
            if over && self.console().matches(text).count() < times {
                self.fail::<()>(&format!("the console never showed {text:?}"));
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// What the console has shown.
    #[must_use]
    pub fn console(&self) -> String {
        self.shown
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The power goes. Disks with a cache are then to be settled.
    pub fn power_cut(mut self) {
        self.end();
    }

    /// Switches off as an administrator does: file systems are unmounted or synced by the script,
    /// then the power goes.
    ///
    /// # Panics
    /// When the guest does not switch itself off.
    pub fn power_off(self) {
        self.power_off_by("sync; poweroff -f");
    }

    /// Switches off by this script.
    ///
    /// # Panics
    /// When the guest does not switch itself off.
    pub fn power_off_by(mut self, script: &str) {
        self.send(script);
        let until = Instant::now() + LONG;
        while !self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
            if Instant::now() > until {
                self.fail::<()>("the guest did not switch itself off");
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn line(&mut self, at_most: Duration) -> Option<String> {
        self.answers.recv_timeout(at_most).ok()
    }

    fn end(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }

    #[expect(
        clippy::panic,
        reason = "a guest that does not do what it must is a failed test"
    )]
    fn fail<T>(&self, why: &str) -> T {
        let console = self.console();
        let from = console.len().saturating_sub(4000);
        let tail = console.get(from..).unwrap_or(&console);
        panic!("{why}\nThe console's end:\n{tail}")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.end();
    }
}

/// With `STRONGROOM_VM_CONSOLE` set: what a console shows, in that file, while it shows it.
fn append(file: &Path, text: &str) {
    let file = fs::OpenOptions::new().create(true).append(true).open(file);
    drop(file.and_then(|mut file| file.write_all(text.as_bytes())));
}

/// With `STRONGROOM_VM_TRACE` set: what the machine is at, so that whoever waits sees where the
/// time goes.
fn trace(what: &str) {
    static WANTED: OnceLock<bool> = OnceLock::new();
    if *WANTED.get_or_init(|| std::env::var_os("STRONGROOM_VM_TRACE").is_some()) {
        drop(writeln!(std::io::stderr(), "machine: {what}"));
    }
}

fn command(setup: &Setup, directory: &Path) -> Command {
    // QEMU ends with the harness, also when that is killed (M2).
    let mut command = Command::new(programs::installed("setpriv", "util-linux"));
    command.args(["--pdeathsig", "KILL", "--"]);
    command.arg(programs::installed("qemu-system-x86_64", "qemu-system-x86"));
    command.args([
        "-nodefaults",
        "-no-user-config",
        "-no-reboot",
        "-display",
        "none",
        "-vga",
        "none",
    ]);
    command.args([
        "-accel",
        "tcg",
        "-cpu",
        "max",
        "-smp",
        "1",
        "-m",
        &setup.memory_mib.to_string(),
    ]);
    command.args(["-device", "virtio-rng-pci", "-device", "virtio-serial-pci"]);
    command
        .arg("-kernel")
        .arg(setup.kernel.image())
        .arg("-initrd")
        .arg(&setup.initramfs);
    command.args(["-append", &setup.append]);
    for name in ["console", "port"] {
        let socket = directory.join(name);
        command.arg("-chardev").arg(format!(
            "socket,id={name},path={},server=on,wait=off",
            socket.display()
        ));
    }
    command.args([
        "-serial",
        "chardev:console",
        "-device",
        "virtserialport,chardev=port,name=harness",
    ]);
    if setup.forwards.is_empty() {
        command.args(["-nic", "none"]);
    } else {
        command
            .arg("-netdev")
            .arg(format!("user,id=net,restrict=on{}", setup.forwards));
        command.args(["-device", "virtio-net-pci,netdev=net"]);
    }
    command
        .args(&setup.arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

fn connect(socket: &Path, child: &mut Child, errors: &Path) -> UnixStream {
    let until = Instant::now() + LONG;
    loop {
        if let Ok(stream) = UnixStream::connect(socket) {
            return stream;
        }
        let ended = child.try_wait().is_ok_and(|ended| ended.is_some());
        let why = if ended {
            fs::read_to_string(errors).unwrap_or_default()
        } else {
            String::new()
        };
        assert!(
            !ended && Instant::now() < until,
            "QEMU did not start: {why}"
        );
        thread::sleep(Duration::from_millis(20));
    }
}

/// Collects what the console shows.
fn show(console: &UnixStream) -> Arc<Mutex<String>> {
    let shown = Arc::new(Mutex::new(String::new()));
    let mut stream = console.try_clone().expect("a second handle");
    let target = Arc::clone(&shown);
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count) = stream.read(&mut buffer) {
            if count == 0 {
                return;
            }
            let text =
                String::from_utf8_lossy(buffer.get(..count).unwrap_or_default()).into_owned();
            if let Some(file) = std::env::var_os("STRONGROOM_VM_CONSOLE") {
                append(Path::new(&file), &text);
            }
            target
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push_str(&text);
        }
    });
    shown
}

fn listen(port: &UnixStream) -> Receiver<String> {
    let (give, take) = channel();
    let stream = port.try_clone().expect("a second handle");
    thread::spawn(move || {
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { return };
            if give.send(line).is_err() {
                return;
            }
        }
    });
    take
}

/// The text that the machine sent in base64. What is not base64, because the kernel wrote a message
/// into it, is returned as it came.
fn decoded(text: &str) -> String {
    match STANDARD.decode(text) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => text.to_owned(),
    }
}
