//! Makes a set: checks the rules of the medium, writes the families, then the head.
//!
//! Invariants: B9 (`medium`); the rules of a medium are checked before anything is read or written.
//!
//! Must not: remove a set before its successor is durable.

use strongroom_format::{code, hex};

use crate::clock::now_unix_s;
use crate::family::FamilyWriter;
use crate::head::FamilyEnd;
use crate::options::CreateOptions;
use crate::pipeline::write::{self, Settings, Target};
use crate::set::SetKeys;
use crate::set_heads::family_name;
use crate::source::Source;
use crate::store::Store;
use crate::stream::writer::StreamWriter;
use crate::target_medium::{
    self, Created, ExaminedMedium, HeadInputs, StartTime, TargetMedium, remove_families,
};
use crate::{Error, Result};

/// Backs `source` up to `store`, as a new set. `progress` gets the bytes of files so far.
///
/// # Errors
/// Before anything is written: SR-7103 when the place holds something else, SR-7104 or SR-7105 when
/// the medium is sealed and the set would not be or the other way round, SR-7117 for another number
/// of stripes, SR-7123 when a set to be replaced has not expired. SR-7131 when another writer uses
/// the medium or has begun it anew; those of the source; SR-5001, or SR-7141 to SR-7143 for an
/// object store, when the medium fails, and SR-7144 when writing takes too long for one. The medium
/// then has no new set, only families that no head names. After SR-7147 it is not known whether a
/// set was added.
pub fn create(
    store: &dyn Store,
    source: &mut dyn Source,
    options: &CreateOptions<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<Created> {
    let made = create_on(&[store], source, options, progress)?;
    let only = made.into_iter().next();
    only.ok_or_else(|| Error::new(&code::BUG, "no medium"))
}

/// Backs `source` up to the first of `stores`, and the same set to the others, its mirrors. Returns
/// the result for each, in order. `progress` gets the bytes of files so far.
///
/// # Errors
/// As [`create`], for any of the media; SR-1001 when a medium is named twice, SR-7117 when they
/// differ in the number of stripes; SR-7145 when some media have the set and others do not; SR-7147
/// when that is not known.
pub fn create_on(
    stores: &[&dyn Store],
    source: &mut dyn Source,
    options: &CreateOptions<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<Created>> {
    let started_unix_s = now_unix_s();
    let mut found = Vec::new();
    for store in stores {
        found.push(ExaminedMedium::new(*store, options, started_unix_s)?);
    }
    let stripes = target_medium::choose_stripes(&found, options)?;
    target_medium::check_all_different(&found)?;
    source.prepare()?;
    let mut media = Vec::new();
    for found in found {
        media.push(found.into_target(options, stripes, started_unix_s)?);
    }
    let stripes = target_medium::common_stripes(&media)?;
    let began = StartTime::now();
    let set_keys = options.new_set_keys()?;
    let written = write_families(&media, &set_keys, stripes, options, source, progress);
    let (end, left_out, families) = match written {
        Ok(written) => written,
        Err(error) => {
            for medium in &media {
                remove_families(medium.store, &set_keys, stripes);
            }
            return Err(error);
        }
    };
    let mut description = options.describe(&set_keys, "", started_unix_s);
    description.kind = source.kind();
    description.source = source.shown();
    description.members = end.members;
    description.files = end.files;
    description.backup_size_bytes = end.size;
    description.compressed_size_bytes = families.iter().map(|end| end.length_bytes).sum();
    description.families = families;
    source.describe(&mut description);
    let sealing = HeadInputs {
        set_keys: &set_keys,
        options,
        source,
        began: &began,
    };
    let mut made = target_medium::publish_to_all(media, &sealing, &description)?;
    for created in &mut made {
        created.left_out.clone_from(&left_out);
    }
    Ok(made)
}

type Written = (
    strongroom_format::backup::StreamEnd,
    Vec<String>,
    Vec<FamilyEnd>,
);

/// Writes the stream of `source`, cut into `stripes` families, to all media. Returns the end of the
/// stream, what the source left out, and the end of each family. After an error, of the source, a
/// medium or the sealing, the caller removes the families.
fn write_families(
    media: &[TargetMedium<'_>],
    set_keys: &SetKeys,
    stripes: u16,
    options: &CreateOptions<'_>,
    source: &mut dyn Source,
    progress: &mut dyn FnMut(u64),
) -> Result<Written> {
    let set_id = hex::hex(&set_keys.set_id());
    let mut targets = Vec::new();
    for family in 0..stripes {
        let key = set_keys.new_family(family, stripes)?;
        let name = family_name(&set_id, family);
        let mut outs = Vec::new();
        for medium in media {
            let shown = format!("{}/{name}", medium.store.shown());
            let upload = medium.store.begin(&name);
            let upload = upload.map_err(|error| Error::io(shown.as_str(), error))?;
            outs.push((shown, upload));
        }
        let writer = FamilyWriter::begin(outs, &key, options.sign_key.is_some())?;
        targets.push(Target { key, writer });
    }
    let settings = Settings {
        threads: options.threads,
        level: options.compression.level(),
    };
    let ((end, left_out), families) = write::run(targets, settings, |pieces| {
        let mut stream = StreamWriter::new(pieces, progress, source.kind());
        source.write(&mut stream)?;
        stream.finish()
    })?;
    Ok((end, left_out, families))
}
