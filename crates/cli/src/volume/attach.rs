//! `strongroom volume attach FILE MOUNTPOINT`: a volume in a file, mounted without device-mapper.
//!
//! Without --foreground this command starts itself a second time and waits until that process has
//! mounted the volume. Only the second process ever has the key, so the key never crosses from one
//! process to another.
//!
//! Must not: write to a volume whose header is not whole; continue when a volume is in use.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_luks2::{
    Found, LuksError, MountOptions, Mounted, Slots, Volume, check_mountpoint, check_not_active,
    open_locked, read, unlock,
};
use strongroom_volume::secret::slot_secret;
use strongroom_volume::token::Provider;

use super::material::ProviderOptions;
use super::secret::SecretOptions;
use crate::context::Context;
use crate::failure::{Failure, warn};
use crate::help::tail;

/// What the process that serves says when the volume is there.
const READY: &str = "ready";

/// Attach a volume where there is no device-mapper: MOUNTPOINT/volume is its data, encrypted and
/// decrypted through FUSE.
///
/// For containers and other places where `volume open` cannot work. The bytes on the device are the
/// same. The file can be read and written as it is, or stand behind a loop device. It stays until
/// `strongroom volume detach`.
#[derive(Args)]
#[command(after_help = tail!("  strongroom volume attach db.img /mnt/db --passphrase\n  mount -o loop /mnt/db/volume /srv/db"))]
pub(super) struct AttachArgs {
    /// The volume: a file or a block device
    #[arg(value_name = "FILE")]
    path: PathBuf,
    /// An empty directory
    #[arg(value_name = "MOUNTPOINT")]
    mountpoint: PathBuf,
    #[command(flatten)]
    secret: SecretOptions,
    #[command(flatten)]
    provider: ProviderOptions,
    /// Refuse writes; several may read one volume
    #[arg(long)]
    read_only: bool,
    /// Let users other than this one use the file
    #[arg(long)]
    allow_other: bool,
    /// Serve until it is detached, instead of in the background
    #[arg(long)]
    foreground: bool,
    /// Serves for the command that started it.
    #[arg(long, hide = true, conflicts_with = "foreground")]
    serving: bool,
}

impl AttachArgs {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        if self.foreground || self.serving {
            return self.serve(context);
        }
        check_mountpoint(&self.mountpoint)?;
        start()?;
        let file = self.mountpoint.join(strongroom_luks2::FILE_NAME);
        context.output.line(&file.display().to_string())
    }

    fn serve(self, context: &mut Context) -> Result<(), Failure> {
        let path = self
            .path
            .canonicalize()
            .map_err(|e| Failure::open(&self.path, &e))?;
        check_mountpoint(&self.mountpoint)?;
        let file = open_locked(&path, self.read_only)?;
        let found = read(&file)?;
        check_not_active(&found.header.binary.uuid)?;
        if let Some(text) = found.warning() {
            warn(&code::LUKS_ONE_COPY, &format!("{}: {text}", path.display()));
        }
        let key = match self.secret.typed(&path)? {
            Some(secret) => unlock(&file, &found.header, &secret, &Slots::default())?,
            None => {
                let (secret, slots) = self.of_token(context, &found)?;
                unlock(&file, &found.header, &secret, &slots)?
            }
        };
        let volume = Volume::open(file, &found, &key, self.read_only)?;
        drop(key);
        if volume.is_read_only() && !self.read_only {
            crate::failure::note("the volume is attached for reading only");
        }
        let options = MountOptions {
            source: path.display().to_string(),
            threads: std::thread::available_parallelism()
                .map_or(2, |count| count.get().clamp(2, 8)),
            allow_other: self.allow_other,
        };
        let mut mounted = Mounted::mount(volume, &self.mountpoint, &options)?;
        let mut unmounter = mounted.unmounter();
        // In use it stays; its users have to be stopped first.
        ctrlc::set_handler(move || drop(unmounter.unmount()))
            .map_err(|error| Failure::new(&code::IO, format!("signal handler: {error}")))?;
        if self.serving {
            detach_from_terminal()?;
        }
        Ok(mounted.serve()?)
    }

    /// The passphrase that the key of the volume's token makes, or its TPM's, and the slots it is
    /// for.
    fn of_token(&self, context: &Context, found: &Found) -> Result<(SecretBytes, Slots), Failure> {
        let mut tokens = found.header.metadata.tokens.values();
        let ours = tokens.find_map(|token| Some((token.strongroom.as_ref()?, &token.keyslots)));
        let has_tpm = || {
            let mut tokens = found.header.metadata.tokens.values();
            tokens.any(|token| token.tpm.is_some())
        };
        if self.secret.tpm || (ours.is_none() && has_tpm()) {
            let (secret, slots) = self
                .secret
                .place
                .secret_of(&self.path, &found.header.metadata)?;
            return Ok((secret, Slots { only: Some(slots) }));
        }
        let Some((token, slots)) = ours else {
            let detail = "the volume has no token of Strongroom: give --passphrase or --recovery";
            return Err(Failure::new(&code::NO_KEY, detail));
        };
        let hint = match token.provider.as_str() {
            "keyring" => Provider::Keyring,
            _ => Provider::KeyServer,
        };
        let mut keys = self.provider.keys(context, Some(hint))?;
        let material = keys.fetch(&token.key_id, Some(token.key_version))?;
        let secret = slot_secret(&material.key, &token.object_id)?;
        let slots = Slots {
            only: Some(slots.clone()),
        };
        Ok((secret, slots))
    }
}

/// Starts this command anew, and waits until the volume is there.
fn start() -> Result<(), Failure> {
    let failed = |error| {
        Failure::new(
            &code::FUSE,
            format!("starting the process that serves: {error}"),
        )
    };
    let program = std::env::current_exe().map_err(failed)?;
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    // Before "--", after which every word is a file.
    let end = arguments.iter().position(|word| word == "--");
    arguments.insert(end.unwrap_or(arguments.len()), "--serving".into());
    let mut child = Command::new(program)
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let told = child
        .stdout
        .take()
        .map(BufReader::new)
        .map(|told| told.lines().next());
    if let Some(Some(Ok(line))) = told
        && line == READY
    {
        return Ok(());
    }
    // It has printed why.
    let ended = child.wait().map_err(failed)?;
    let exit = ended.code().and_then(|code| u8::try_from(code).ok());
    Err(match exit {
        Some(exit @ 1..) => Failure::already_reported(&code::FUSE, exit),
        _ => Failure::new(&code::FUSE, "the process that serves has ended"),
    })
}

/// Tells the command that waits, and lets go of its terminal and its directory.
fn detach_from_terminal() -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new(&code::IO, error.to_string());
    let mut out = std::io::stdout();
    writeln!(out, "{READY}")
        .and_then(|()| out.flush())
        .map_err(failed)?;
    // Refused only to the leader of a group, who has no terminal to lose.
    let _leader = rustix::process::setsid();
    std::env::set_current_dir("/").map_err(failed)?;
    let nothing = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map_err(failed)?;
    rustix::stdio::dup2_stdin(&nothing).map_err(|error| failed(error.into()))?;
    rustix::stdio::dup2_stdout(&nothing).map_err(|error| failed(error.into()))?;
    rustix::stdio::dup2_stderr(&nothing).map_err(|error| failed(error.into()))
}

impl From<LuksError> for Failure {
    fn from(error: LuksError) -> Self {
        match &error {
            LuksError::Io(path, source) if source.kind() == std::io::ErrorKind::NotFound => {
                Self::open(Path::new(path), source)
            }
            _ => Self::new(error.code(), error.detail()),
        }
    }
}
