//! Services on the store of a server that is not running, and their clients.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use strongroom_keyring::Keyring;
use strongroom_keys_server::authority::parse_client_certificate;
use strongroom_keys_server::config::Config;
use strongroom_keys_server::keys::{Keys, ROOT_KEY_NAME};
use strongroom_keys_server::records::Role;
use strongroom_keys_server::rules::Rules;
use strongroom_keys_server::service::{NewToken, Peer, Service};
use strongroom_keys_server::store::{self, Store};

use super::{Installation, request};

/// Opens the store of a server that is not running. Returns the store, the keys of its records, and
/// the rules of its configuration.
pub(crate) fn opened(
    installation: &Installation,
) -> (Arc<dyn Store>, impl Fn() -> Keys + use<>, Rules) {
    let config = Config::read(&installation.path("server.toml")).unwrap();
    let keyring = Keyring::open(&installation.path("root.keyring")).unwrap();
    let root = keyring.key(ROOT_KEY_NAME, None).unwrap();
    let store = store::open(&config, &root, false).unwrap();
    let id = config.server_id().unwrap();
    (
        store,
        move || Keys::derive(&root, id).unwrap(),
        config.rules(),
    )
}

/// A peer with this certificate (PEM).
pub(crate) fn peer(certificate: &str) -> Peer {
    let der = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
    Peer {
        certificate: Some(parse_client_certificate(&der).unwrap()),
        address: "127.0.0.1".to_owned(),
        ..Peer::default()
    }
}

/// Enrols a client of this name. Nodes may create keys.
pub(crate) fn enrolled(service: &Service, admin: &Peer, name: &str, role: Role) -> Peer {
    let token = NewToken {
        node: name.to_owned(),
        role,
        keys: Vec::new(),
        may_create: role == Role::Node,
        may_destroy: false,
        keeps_rights: false,
        expires_s: 600,
    };
    let token = service.create_token(admin, &token).unwrap();
    let enrolled = service.enroll("127.0.0.1", &token, &request(name).1);
    peer(&enrolled.unwrap().certificate)
}
