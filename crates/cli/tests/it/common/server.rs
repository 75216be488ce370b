//! The real key server, for tests of volumes; nodes join it with one-time tokens.

use strongroom_testing_support::keyserver::KeyServer;

use super::keyserver;
use crate::common::{Place, Run};

/// A key server, and this host joined to it.
pub(crate) struct Server {
    /// Its directory, and that of the nodes that join.
    pub(crate) place: Place,
    keys: KeyServer,
}

impl Server {
    /// Makes one and starts it.
    pub(crate) fn new() -> Self {
        let place = Place::new();
        let keys = keyserver::started(&place, "server");
        Self { place, keys }
    }

    /// Starts it again.
    #[track_caller]
    pub(crate) fn start(&mut self) {
        self.keys.start(|| self.place.command());
    }

    /// Kills it.
    pub(crate) fn stop(&mut self) {
        self.keys.stop();
    }

    /// A node that may make and destroy keys, with its configuration in a directory of its name.
    pub(crate) fn join(&self, node: &str) {
        self.join_with(node, &["--may-create", "--may-destroy"]);
    }

    /// A client whose token is made with these options, with its configuration in a directory of
    /// its name.
    pub(crate) fn join_with(&self, node: &str, options: &[&str]) {
        let token = format!("{node}.token");
        let admin = ["keyserver", "token", "--node", "server/admin.toml", node];
        let admin = [&admin[..], options, &["--out", &token]].concat();
        self.place.run(&admin).succeeded();
        let url = self.keys.url();
        let config = format!("{node}/node.toml");
        let join = [
            "keyserver",
            "join",
            &url,
            "--authority",
            "server/authority.pem",
            "--node",
            node,
            "--token-file",
            &token,
            "--config",
            &config,
        ];
        self.place.run(&join).succeeded();
    }

    /// A verb of `volume`, as this node.
    pub(crate) fn volume(&self, node: &str, arguments: &[&str]) -> Run {
        let config = format!("{node}/node.toml");
        let all = [&["volume"][..], arguments, &["--node", &config]].concat();
        self.place.run(&all)
    }
}
