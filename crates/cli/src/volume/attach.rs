//! `strongroom volume attach FILE MOUNTPOINT`: a volume in a file, mounted without device-mapper.
//!
//! Without --foreground this command starts itself a second time, with --serving, and waits until
//! that process has mounted the volume.
//!
//! Must not: have a key in the process that waits.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::Args;
use strongroom_format::code;
use strongroom_luks2::{
    Found, LuksError, Request, Slots, Started, Warning, check_mountpoint, detach_from_terminal,
    mount, start_again,
};

use super::material::ProviderOptions;
use super::secret::SecretOptions;
use crate::context::Context;
use crate::failure::{Failure, note, warn};
use crate::help::tail;

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
    /// Attaches the volume and prints the path of the file that holds its data. Starts this program
    /// again in the background, which serves the file, and waits until it is mounted; with
    /// `--foreground` serves in this process until the volume is detached, and prints nothing.
    /// Errors: SR-8310 if the mount point is no empty directory, SR-8311 if the background process
    /// fails; with `--foreground` those of [`Self::serve`].
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        if self.foreground || self.serving {
            return self.serve(context);
        }
        check_mountpoint(&self.mountpoint)?;
        let failed = |why: String| {
            let detail = format!("starting the process that serves: {why}");
            Failure::new(&code::FUSE, detail)
        };
        let started = start_again(OsStr::new("--serving"));
        match started.map_err(|error| failed(error.to_string()))? {
            Started::Serving => {}
            Started::Ended(Some(exit)) => return Err(Failure::already_reported(&code::FUSE, exit)),
            Started::Ended(None) => {
                let detail = "the process that serves has ended";
                return Err(Failure::new(&code::FUSE, detail));
            }
        }
        let file = self.mountpoint.join(strongroom_luks2::FILE_NAME);
        context.output.line(&file.display().to_string())
    }

    /// Opens and mounts the volume, and serves it until it is unmounted. SIGINT, SIGTERM and SIGHUP
    /// unmount it unless it is in use. With `--serving`, leaves the terminal after mounting, which
    /// tells the waiting command so. Errors: SR-1006 if there is no such volume; the errors of
    /// opening it with the secret and of mounting it; SR-5001 when the system reports an error.
    fn serve(self, context: &Context) -> Result<(), Failure> {
        let path = self
            .path
            .canonicalize()
            .map_err(|e| Failure::open(&self.path, &e))?;
        let request = Request {
            path: &path,
            mountpoint: &self.mountpoint,
            read_only: self.read_only,
            allow_other: self.allow_other,
        };
        let opener = self.secret.opener(context, &self.provider);
        let secret = |found: &Found| match opener.typed(&path)? {
            Some(secret) => Ok((secret, Slots::default())),
            None => {
                let metadata = &found.header.metadata;
                Ok::<_, Failure>(opener.secret_of_metadata(&self.path, metadata)?)
            }
        };
        let mut mounted = mount(&request, secret, &mut |warning| match warning {
            Warning::OneCopy(text) => {
                warn(&code::LUKS_ONE_COPY, &format!("{}: {text}", path.display()));
            }
            Warning::ReadOnly => note("the volume is attached for reading only"),
        })?;
        let mut unmounter = mounted.unmounter();
        // A volume that is in use stays mounted; its users have to be stopped first.
        ctrlc::set_handler(move || drop(unmounter.unmount()))
            .map_err(|error| Failure::new(&code::IO, format!("signal handler: {error}")))?;
        if self.serving {
            let detached = detach_from_terminal();
            detached.map_err(|error| Failure::new(&code::IO, error.to_string()))?;
        }
        Ok(mounted.serve()?)
    }
}

impl From<LuksError> for Failure {
    /// Keeps code and detail, but makes a file that does not exist SR-1006.
    fn from(error: LuksError) -> Self {
        match &error {
            LuksError::Io(path, source) if source.kind() == std::io::ErrorKind::NotFound => {
                Self::open(Path::new(path), source)
            }
            _ => Self::new(error.code(), error.detail()),
        }
    }
}
