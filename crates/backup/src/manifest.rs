//! The manifest of a PostgreSQL server, kept beside a set as an object of its own, for incremental
//! sets that build on it.

use strongroom_format::code;

use crate::head::Description;
use crate::options::CreateOptions;
use crate::set::SetKeys;
use crate::single_family::{open_family_bytes, seal_family};
use crate::store::Store;
use crate::{Error, Result};

/// The longest manifest that is read, in bytes.
const MANIFEST_MAX: u64 = 512 << 20;

/// The name of the object that has a set's manifest.
pub(crate) fn manifest_name(set_id: &str) -> String {
    format!("data/{set_id}.manifest")
}

/// Seals the manifest of a source and stores it as an object of its own, if the source has one, and
/// notes its end in the description. Does nothing for a set that is not of a PostgreSQL cluster.
/// Errors of the store; SR-9001 if the object exists already.
pub(crate) fn store_manifest(
    store: &dyn Store,
    set_keys: &SetKeys,
    options: &CreateOptions<'_>,
    manifest: Option<&[u8]>,
    description: &mut Description,
) -> Result<()> {
    let (Some(manifest), Some(facts)) = (manifest, &mut description.postgres) else {
        return Ok(());
    };
    let (bytes, end) = seal_family(set_keys, manifest, options)?;
    let name = manifest_name(&description.set_id);
    let created = store.create_new(&name, &bytes);
    let shown = format!("{}/{name}", store.shown());
    if !created.map_err(|error| Error::io(shown.as_str(), error))? {
        return Err(Error::new(&code::BUG, shown));
    }
    facts.manifest_object = Some(end);
    Ok(())
}

/// Reads the server's manifest of a set; it is authenticated if the set is sealed.
///
/// # Errors
/// SR-7108 when it is missing; SR-7110 when it is not the one that the head names, or cut short;
/// SR-7109 when it is damaged; SR-7111 when it is too long; errors of the store.
pub(crate) fn read_manifest(
    store: &dyn Store,
    set_keys: &SetKeys,
    description: &Description,
) -> Result<Vec<u8>> {
    let name = manifest_name(&description.set_id);
    let shown = format!("{}/{name}", store.shown());
    let read = store.read(&name, MANIFEST_MAX);
    let bytes = read.map_err(|error| Error::io(shown.as_str(), error))?;
    let bytes = bytes.ok_or_else(|| Error::new(&code::FAMILY_ABSENT, shown.as_str()))?;
    let stated = description
        .cluster_facts()
        .and_then(|facts| facts.manifest_object.as_ref());
    let signed = stated.is_some_and(|end| end.bytes_digest.is_some());
    let (manifest, ends) = open_family_bytes(set_keys, bytes, MANIFEST_MAX, signed)?;
    if stated.is_none() || ends.first() != stated {
        return Err(Error::new(&code::FAMILY_SHORT, shown));
    }
    Ok(manifest)
}
