//! Key servers of the command under test, each in a directory of a place.

use strongroom_testing_support::keyserver::KeyServer;

use super::Place;

/// Makes a server in the place's directory `name`. It does not run yet.
pub(crate) fn made(place: &Place, name: &str) -> KeyServer {
    let store = format!("{name}/keys.db");
    let whom = ["--store", &store, "--name", "127.0.0.1"];
    let options = [&whom[..], &["--root-provider", "env:ROOT"]].concat();
    KeyServer::init(&place.path(name), &options, place.command())
}

/// Makes one and runs it.
#[track_caller]
pub(crate) fn started(place: &Place, name: &str) -> KeyServer {
    let mut server = made(place, name);
    server.start(|| place.command());
    server
}
