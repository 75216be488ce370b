//! Joining a key server: this host gets a certificate, and the configuration to use it with.
//!
//! Invariants: the private key is on disk before the token is sent. The configuration is written
//! last, so incomplete files are never used. Nothing that exists is overwritten; where a
//! configuration is replaced, the one in use changes to the new files in one step, after which its
//! former private key is overwritten and removed.
//!
//! Must not: take the authority from the network.

use std::io;
use std::path::{Path, PathBuf};

use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_keyring::pair::remove_key;
use strongroom_keyring::{Error, durable, paths};

use crate::enrol::{Enrolment, enrol};
use crate::node::{Files, Node};

/// Files of this many joins can stand in one directory.
const JOINS_MAX: usize = 1000;

/// A join that was checked, and needs the token.
pub struct Join {
    config: PathBuf,
    servers: Vec<String>,
    authority: Vec<u8>,
    node: String,
}

/// A host that has joined.
pub struct Joined {
    /// The configuration that was written.
    pub config: PathBuf,
    /// The role that the token gave.
    pub role: String,
    /// The last second of the certificate, since the Unix epoch.
    pub ends: u64,
    /// The former configuration's private key, where that could not be removed.
    pub former_key: Option<PathBuf>,
}

impl Join {
    /// Checks what can be checked before a token is used up, and reads the authority's file.
    /// Nothing is written or sent. `servers` are asked in this order, and the first one enrols;
    /// `authority` is the file of their authority's certificate; `node` is the name that the token
    /// was made for; `replace` allows a configuration at `config` already.
    ///
    /// # Errors
    /// SR-1002 when there is something at `config` and `replace` is false; SR-8408 for an address;
    /// SR-1006 without the authority's file; SR-5001 when the system reports an error.
    pub fn prepare(
        config: &Path,
        servers: Vec<String>,
        authority: &Path,
        node: String,
        replace: bool,
    ) -> Result<Self, Error> {
        let config = std::path::absolute(config).map_err(|e| Error::on_path(config, e))?;
        if config.symlink_metadata().is_ok() && !replace {
            return Err(Error::new(&code::EXISTS, config.display().to_string()));
        }
        Node::check_servers(&servers)?;
        let authority = std::fs::read(authority).map_err(|e| Error::opening(authority, e))?;
        Ok(Self {
            config,
            servers,
            authority,
            node,
        })
    }

    /// Enrols at the first server and writes the files beside the configuration: the private key
    /// before the token is sent, then the certificate and the authority, and the configuration
    /// last. If there was a configuration before, overwrites and removes its private key and its
    /// other files, unless another configuration names them. If the enrolment fails, removes the
    /// new private key again, unless there may be a certificate for it.
    ///
    /// # Errors
    /// Those of [`enrol()`], with the server's code, such as SR-8431 for the token; SR-8405 when
    /// it is not known whether the token was used, and SR-8404 for a malformed response, after
    /// which the private key stays; SR-8400 for a configuration that would not be valid; SR-1002
    /// and SR-5001 of the files.
    pub fn enrol(&self, token: &SecretBytes) -> Result<Joined, Error> {
        let files = NewFiles::beside(&self.config)?;
        let enrolment = Enrolment {
            server: self.servers.first().map_or("", String::as_str),
            authority: &self.authority,
            node: &self.node,
            token,
        };
        // Bad addresses are found before the token is used up.
        let text = configuration(&self.servers, &files);
        Node::check(&text)?;
        let mut kept = false;
        let enrolled = enrol::<Error>(&enrolment, |key| {
            paths::create_private(&files.key, key.as_slice())?;
            kept = true;
            Ok(())
        });
        let enrolled = enrolled.inspect_err(|error| {
            // Without a response, and after one that makes no sense, the server may have used the
            // token and have made a certificate.
            let may_be_certified =
                [&code::KEYSERVER_UNCERTAIN, &code::KEYSERVER_ANSWER].contains(&error.code());
            if kept && !may_be_certified {
                // That it stays would do no harm.
                drop(std::fs::remove_file(&files.key));
            }
        })?;
        paths::create_new(&files.certificate, enrolled.certificate.as_bytes())?;
        paths::create_new(&files.authority, &self.authority)?;
        let former = Files::load(&self.config).ok();
        durable::replace(&self.config, text.as_bytes(), 0o644)
            .map_err(|error| Error::on_path(&self.config, error))?;
        // What was written is what will be used.
        let ends = Node::load(&self.config)?.validity().ends;
        let former_key = match former {
            Some(former) => forget(&self.config, &former)?,
            None => None,
        };
        Ok(Joined {
            config: self.config.clone(),
            role: enrolled.role,
            ends,
            former_key,
        })
    }
}

/// Removes the files of the configuration that was replaced; they are overwritten first. Files in
/// another directory, or that another configuration beside it names, are left. Returns the path of
/// the former private key if that is left and exists, otherwise `None`. SR-5001 when the system
/// reports an error.
fn forget(config: &Path, former: &Files) -> Result<Option<PathBuf>, Error> {
    let mut kept = None;
    let beside = config.parent().unwrap_or_else(|| Path::new("/"));
    let others = configurations(beside)?;
    let is_free = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        path.parent() == Some(beside)
            && path.symlink_metadata().is_ok_and(|about| about.is_file())
            && !others.iter().any(|text| text.contains(&*quoted(&name)))
    };
    let next = former.pair().next();
    for path in [&former.key, &next, &former.certificate, &former.authority] {
        if is_free(path) {
            remove_key(path).map_err(|error| Error::on_path(path, error))?;
        } else if path == &former.key && path.exists() {
            kept = Some(path.clone());
        }
    }
    Ok(kept)
}

/// Reads the texts of all files `*.toml` in a directory. Files that cannot be read are left out.
/// SR-5001 if the directory cannot be listed.
fn configurations(directory: &Path) -> Result<Vec<String>, Error> {
    let failed = |error: io::Error| Error::on_path(directory, error);
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|end| end == "toml") {
            texts.extend(std::fs::read_to_string(&path));
        }
    }
    Ok(texts)
}

/// The files of one join.
struct NewFiles {
    authority: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

impl NewFiles {
    /// Chooses names of files beside the configuration that do not exist yet: `node.key`, else
    /// `node-2.key` and so on, and likewise for the certificate and the authority. Makes the
    /// directory if it is missing, but no file. SR-1002 after 1000 joins; SR-5001 when the system
    /// reports an error.
    fn beside(config: &Path) -> Result<Self, Error> {
        let directory = config.parent().unwrap_or_else(|| Path::new("/"));
        std::fs::create_dir_all(directory).map_err(|error| Error::on_path(directory, error))?;
        for number in 1..=JOINS_MAX {
            let suffix = match number {
                1 => String::new(),
                _ => format!("-{number}"),
            };
            let files = Self {
                authority: directory.join(format!("authority{suffix}.pem")),
                certificate: directory.join(format!("node{suffix}.pem")),
                key: directory.join(format!("node{suffix}.key")),
            };
            let all = [&files.authority, &files.certificate, &files.key];
            if all.iter().all(|path| path.symlink_metadata().is_err()) {
                return Ok(files);
            }
        }
        let detail = format!("{}: files of earlier joins", directory.display());
        Err(Error::new(&code::EXISTS, detail))
    }
}

/// Writes the text of `node.toml`, with the default times. Files are named without their directory.
fn configuration(servers: &[String], files: &NewFiles) -> String {
    let name = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        quoted(&name)
    };
    let servers: Vec<String> = servers.iter().map(|server| quoted(server)).collect();
    format!(
        "# Written by `strongroom keyserver join`; docs/spec/node.md says what may stand here.\nservers = [{}]\nauthority = {}\ncertificate = {}\nkey = {}\nrequest_timeout_seconds = 5\ntotal_timeout_seconds = 60\n",
        servers.join(", "),
        name(&files.authority),
        name(&files.certificate),
        name(&files.key),
    )
}

/// Puts a text in quotes as a TOML string, without escapes. What would need an escape is refused
/// when the configuration is checked.
fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}
