//! The options that say where a key comes from: a name in the keyring, a variable, a file, a
//! command or the terminal.
//!
//! Must not: have any option that takes a secret.

use std::path::PathBuf;

use clap::Args;

/// Where the key comes from. At most one; secrets never stand on the command line.
#[derive(Args, Clone, Default)]
#[group(required = false, multiple = false)]
pub(crate) struct KeyOptions {
    /// A key of the keyring, by name
    #[arg(long, value_name = "NAME", help_heading = "Key options")]
    pub(crate) key_id: Option<String>,
    /// The environment variable that holds the key
    #[arg(long, value_name = "VAR", help_heading = "Key options")]
    pub(crate) key_env: Option<String>,
    /// The file that holds the key
    #[arg(long, value_name = "FILE", help_heading = "Key options")]
    pub(crate) key_file: Option<PathBuf>,
    /// The command that prints the key on its standard output
    #[arg(long, value_name = "CMD", help_heading = "Key options")]
    pub(crate) key_command: Option<String>,
    /// Ask for a passphrase on the terminal
    #[arg(long, help_heading = "Key options")]
    pub(crate) ask: bool,
}

/// Where the key of a sealed source comes from. At most one.
#[derive(Args, Clone)]
#[group(required = false, multiple = false)]
pub(crate) struct SourceKeyOptions {
    /// A key of the keyring, by name
    #[arg(long, value_name = "NAME", help_heading = "Source key options")]
    source_key_id: Option<String>,
    /// The environment variable that holds the source's key
    #[arg(long, value_name = "VAR", help_heading = "Source key options")]
    source_key_env: Option<String>,
    /// The file that holds the source's key
    #[arg(long, value_name = "FILE", help_heading = "Source key options")]
    source_key_file: Option<PathBuf>,
    /// The command that prints the source's key on its standard output
    #[arg(long, value_name = "CMD", help_heading = "Source key options")]
    source_key_command: Option<String>,
    /// Ask for the source's passphrase on the terminal
    #[arg(long, help_heading = "Source key options")]
    source_ask: bool,
}

impl From<SourceKeyOptions> for KeyOptions {
    fn from(source: SourceKeyOptions) -> Self {
        Self {
            key_id: source.source_key_id,
            key_env: source.source_key_env,
            key_file: source.source_key_file,
            key_command: source.source_key_command,
            ask: source.source_ask,
        }
    }
}

/// Where the new key comes from. At most one.
#[derive(Args)]
#[group(required = false, multiple = false)]
pub(crate) struct NewKeyOptions {
    /// A key of the keyring, by name
    #[arg(long, value_name = "NAME", help_heading = "New key options")]
    new_key_id: Option<String>,
    /// The environment variable that holds the new key
    #[arg(long, value_name = "VAR", help_heading = "New key options")]
    new_key_env: Option<String>,
    /// The file that holds the new key
    #[arg(long, value_name = "FILE", help_heading = "New key options")]
    new_key_file: Option<PathBuf>,
    /// The command that prints the new key on its standard output
    #[arg(long, value_name = "CMD", help_heading = "New key options")]
    new_key_command: Option<String>,
    /// Ask for a new passphrase on the terminal
    #[arg(long, help_heading = "New key options")]
    new_ask: bool,
}

impl From<NewKeyOptions> for KeyOptions {
    fn from(new: NewKeyOptions) -> Self {
        Self {
            key_id: new.new_key_id,
            key_env: new.new_key_env,
            key_file: new.new_key_file,
            key_command: new.new_key_command,
            ask: new.new_ask,
        }
    }
}

/// Where the key comes from that opens a restored instance. At most one.
#[derive(Args, Clone)]
#[group(required = false, multiple = false)]
pub(crate) struct InstanceKeyOptions {
    /// A key of the keyring, by name
    #[arg(long, value_name = "NAME", help_heading = "Instance key options")]
    instance_key_id: Option<String>,
    /// The environment variable that holds the instance's key
    #[arg(long, value_name = "VAR", help_heading = "Instance key options")]
    instance_key_env: Option<String>,
    /// The file that holds the instance's key
    #[arg(long, value_name = "FILE", help_heading = "Instance key options")]
    instance_key_file: Option<PathBuf>,
    /// The command that prints the instance's key on its standard output
    #[arg(long, value_name = "CMD", help_heading = "Instance key options")]
    instance_key_command: Option<String>,
    /// Ask for the instance's passphrase on the terminal
    #[arg(long, help_heading = "Instance key options")]
    instance_ask: bool,
}

impl InstanceKeyOptions {
    /// Returns whether one of the options was given.
    pub(crate) const fn is_given(&self) -> bool {
        self.instance_key_id.is_some()
            || self.instance_key_env.is_some()
            || self.instance_key_file.is_some()
            || self.instance_key_command.is_some()
            || self.instance_ask
    }
}

impl From<InstanceKeyOptions> for KeyOptions {
    fn from(instance: InstanceKeyOptions) -> Self {
        Self {
            key_id: instance.instance_key_id,
            key_env: instance.instance_key_env,
            key_file: instance.instance_key_file,
            key_command: instance.instance_key_command,
            ask: instance.instance_ask,
        }
    }
}
