//! Sets confidential columns up on the machine of a PostgreSQL server: the zone's user, state
//! directory, key and unit; the server's settings; the extension in a database.
//!
//! Invariants:
//! 1. Everything is looked at before anything is made, so that a refusal leaves everything
//!    unchanged.
//! 2. Root's own rights are used only on paths that root alone decides on. What the server's user
//!    decides on, its socket and its configuration, is reached with that user's rights.
//! 3. Nothing that is there is overwritten, given to another user, or opened to others. The one
//!    exception is the configuration: the settings file of this library is written anew, and one
//!    line may be added at the end of the server's main configuration file.
//! 4. A second run changes nothing.
//!
//! Must not: print; show, read or overwrite the zone's key; restart the server.
#![forbid(unsafe_code)]
#![deny(clippy::expect_used)]

mod database;
mod files;
mod libraries;
mod options;
mod places;
mod report;
mod server;
mod settings;
mod shell;
mod systemd;
mod unit;
mod user;
mod zone;

use std::path::Path;

use strongroom_format::code;
use strongroom_keyring::Error;

use crate::database::Database;
use crate::report::Found;
use crate::server::Server;
use crate::settings::SettingsFile;
use crate::shell::shell_word;
use crate::unit::Unit;

pub use crate::options::Setup;
pub use crate::report::{Report, Step, ToDo};

impl Setup {
    /// Looks at everything, and makes what is missing unless this is a dry run. What was done is
    /// in `report` also when a later step fails.
    ///
    /// # Errors
    /// SR-8127 unless root runs it, SR-8126 when something that is there is in the way, SR-8128
    /// when the extension is not installed, SR-6020 when others could exchange a path of root's;
    /// nothing was changed then. SR-8122 when the server refuses a statement, SR-8129 when the zone
    /// does not begin to serve, SR-6021 when root cannot act as the server's user; SR-5001 when the
    /// system reports an error.
    pub fn run(&self, report: &mut Report) -> Result<(), Error> {
        if !rustix::process::geteuid().is_root() {
            return Err(Error::new(&code::COLUMN_SETUP_ROOT, ""));
        }
        let server = Server::ask(self)?;
        let user = user::look(&server)?;
        let state = zone::look_at_state(user)?;
        let key = zone::look_at_key(user)?;
        let unit = Unit::of(&server)?;
        let settings = SettingsFile::plan(&server)?;
        let mut database = match &self.database {
            Some(name) => Some(Database::look(self, &server, name)?),
            None => None,
        };

        let make = !self.dry_run;
        let user = match user {
            Some(user) => {
                report.there(user::shown());
                Some(user)
            }
            None => {
                let made = make.then(user::make).transpose()?;
                report.made(user::shown());
                made
            }
        };
        self.step(report, &state, zone::state_shown(), || {
            zone::make_state(user)
        })?;
        self.step(report, &key, zone::key_shown(), || zone::make_key(user))?;
        if make && matches!(key, Found::Missing) {
            report.add_left(
                "keep a copy of the key in another place: whoever loses it has lost every value",
                vec![format!("cp {} PLACE", places::KEY)],
            );
        }
        self.step(report, &unit.found, unit.shown(), || unit.make())?;
        self.step(report, &settings.found(), settings.shown(), || {
            settings.write(&server)
        })?;
        self.start_zone(report, &unit, &server)?;
        if !server.has_loaded() || matches!(settings.found(), Found::Missing) {
            report.add_left("restart the server", vec![server.restart_command()]);
        }
        self.finish(report, &server, database.as_mut())?;
        let what = "on the application's side, make a key and start the proxy";
        report.add_left(what, server.proxy_commands());
        Ok(())
    }

    /// Reports what is there, makes what is missing unless this is a dry run, and reports that.
    /// The errors of `make`.
    fn step(
        &self,
        report: &mut Report,
        found: &Found,
        shown: String,
        make: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        match found {
            Found::There => report.there(shown),
            Found::Missing => {
                if !self.dry_run {
                    make()?;
                }
                report.made(shown);
            }
        }
        Ok(())
    }

    /// Starts the zone where systemd manages services, now and at each boot; elsewhere reports how
    /// to start it. Errors: SR-8129 when it does not begin to serve, SR-5001.
    fn start_zone(&self, report: &mut Report, unit: &Unit, server: &Server) -> Result<(), Error> {
        let serves = zone::serves(server)?;
        if systemd::is_managed() {
            let shown = String::from("zone: the service is enabled and serves");
            if serves && systemd::is_enabled() {
                report.there(shown);
                return Ok(());
            }
            if !self.dry_run {
                systemd::start(serves)?;
                zone::wait_until_it_serves(server)?;
            }
            report.made(shown);
        } else if serves {
            report.there(format!("zone: it serves at {}", places::SOCKET));
        } else {
            let what = "start the zone, as there is no systemd here; /run is empty after a boot";
            report.add_left(what, unit.by_hand());
        }
        Ok(())
    }

    /// Makes the extension and the example table if the server has the library, otherwise reports
    /// that they are left. SR-8122 when the server refuses, SR-5001.
    fn finish(
        &self,
        report: &mut Report,
        server: &Server,
        database: Option<&mut Database>,
    ) -> Result<(), Error> {
        let Some(database) = database else {
            let what = "make the extension in each database that is to have it";
            report.add_left(what, vec![self.command("NAME")]);
            return Ok(());
        };
        if !(database.is_complete() || server.has_loaded()) {
            let again = vec![self.command(database.name())];
            report.add_left("then run this command again, for the extension", again);
            return Ok(());
        }
        if !self.dry_run {
            database.make()?;
        }
        for (shown, found) in database.parts() {
            match found {
                Found::There => report.there(shown),
                Found::Missing => report.made(shown),
            }
        }
        Ok(())
    }

    /// Returns the command line that runs this again, for a database.
    fn command(&self, database: &str) -> String {
        let mut line = String::from("strongroom columns setup");
        let mut add = |option: &str, value: &str| {
            line.push_str(&format!(" {option} {}", shell_word(value)));
        };
        if self.socket != Path::new(places::SERVER) {
            add("--server", &self.socket.display().to_string());
        }
        if self.user != "postgres" {
            add("--user", &self.user);
        }
        add("--database", database);
        if let Some(table) = &self.example_table {
            add("--example-table", table);
        }
        line
    }
}
