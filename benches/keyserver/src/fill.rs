//! Many keys at once, written into the store of a server that does not run, as the server itself
//! would write them.
//!
//! Must not: be used on a store that anyone needs: the audit log knows nothing of these keys.

use strongroom_benches::Failure;
use strongroom_crypto::{SecretKey, random16};
use strongroom_format::hex::hex;
use strongroom_keyring::Keyring;
use strongroom_keys_server::config::Config;
use strongroom_keys_server::keys::{Keys, ROOT_KEY_NAME, WrapContext};
use strongroom_keys_server::paths::KEYS;
use strongroom_keys_server::records::{Key, State, Version};
use strongroom_keys_server::store::{self, Append, Change, Outcome};

use crate::place::Place;

/// Records of a commit.
const TOGETHER: usize = 90;

/// Adds the keys with numbers from `from` to before `until`.
pub(crate) fn fill(place: &Place, from: usize, until: usize) -> Result<(), Failure> {
    let config = Config::read(&place.path("server.toml"))?;
    let root = Keyring::open(&place.path("root.keyring"))?.key(ROOT_KEY_NAME, None)?;
    let keys = Keys::derive(&root, config.server_id()?)?;
    let store = store::open(&config, &root, false)?;
    let numbers: Vec<usize> = (from..until).collect();
    for some in numbers.chunks(TOGETHER) {
        let changes: Result<Vec<Change>, Failure> =
            some.iter().map(|number| record(&keys, *number)).collect();
        match store.commit(&[], &changes?, &Append::default())? {
            Outcome::Done => {}
            Outcome::Conflict => return Err("someone else writes to the store".into()),
        }
    }
    Ok(())
}

fn record(keys: &Keys, number: usize) -> Result<Change, Failure> {
    let name = format!("volume-{number:07}");
    let id = random16()?;
    let kept = WrapContext {
        id,
        name: &name,
        version: 1,
    };
    let wrapped = keys.wrap(&kept, &SecretKey::generate()?)?;
    let key = Key {
        id: hex(&id),
        state: State::Active,
        destroy_at: None,
        destroy_asked: None,
        created_by: String::from("bench"),
        versions: vec![Version {
            version: 1,
            created: strongroom_keys_server::now(),
            wrapped: hex(&wrapped),
        }],
        object: None,
    };
    let path = format!("{KEYS}{name}");
    let value = keys.seal(&path, &serde_json::to_vec(&key)?)?;
    Ok(Change::Put { path, value })
}
