//! The databases of a run: one for each peer, made and loaded in the peer's own process.
//!
//! Must not: measure.

use strongroom_benches::key_files::new_key_file;
use strongroom_benches::variant::Variant;
use strongroom_benches::{Failure, note};
use strongroom_keyring::{Keyring, Provider};
use tempfile::TempDir;

use crate::options::Options;
use crate::setup::Place;
use crate::worker;

/// One loaded database per peer, gone when dropped.
pub(crate) struct Databases {
    pub(crate) place: Place,
    /// File sizes in bytes: stock, GCM, CTR.
    pub(crate) sizes: [u64; 3],
    _directory: TempDir,
}

impl Databases {
    /// Makes and loads them, each in its peer's process.
    pub(crate) fn make(options: &Options) -> Result<Self, Failure> {
        let directory = tempfile::Builder::new()
            .prefix("strongroom-bench-")
            .tempdir_in(&options.report.directory)?;
        let place = Place::at(directory.path().canonicalize()?, options.cache_kib);
        new_key_file(&place.key_file())?;
        make_keyring(&place)?;
        note(&format!("loading TPC-H at scale {}", options.scale));
        let mut sizes = [0; 3];
        for (size, variant) in sizes.iter_mut().zip(Variant::ALL) {
            worker::start(&place, variant, worker::SETUP, 0, options)?;
            *size = std::fs::metadata(place.database(variant))?.len();
        }
        Ok(Self {
            place,
            sizes,
            _directory: directory,
        })
    }
}

fn make_keyring(place: &Place) -> Result<(), Failure> {
    let root = place.path("root.key");
    new_key_file(&root)?;
    let provider = Provider::parse(&format!("file:{}", root.display()))?;
    Keyring::init(&place.keyring(), &provider)?;
    Keyring::open(&place.keyring())?.create_key("bench")?;
    Ok(())
}
