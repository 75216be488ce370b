//! The order of a conversion: plan, control file, files, directories, verification.
//!
//! Invariants: V1 to V3 of [`super`].
//!
//! Must not: touch header or state; their order is the callers'.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use strongroom_format::code;
use strongroom_format::postgres::convert::State;
use strongroom_format::postgres::tweak_control;
use strongroom_keyring::Error;

use super::control::{Control, USED};
use super::lock::{ConversionLock, remove};
use super::log::{Log, is_converted};
use super::logical_file::{LogicalFile, Side};
use super::parallel::{batches, in_parallel};
use super::plan::{CONTROL, Plan, PlannedFile, check_free_space};
use super::report::{Options, Phase, Report};
use super::worker::{ContentDigest, ProgressMeter, Worker, open_for_reading};
use crate::classify::Class;
use crate::layout::{BlockKey, FileLayout};
use crate::resolve::Seal;

/// A conversion of one instance from one side to the other.
pub(super) struct Conversion<'a> {
    pub(super) lock: &'a ConversionLock,
    pub(super) options: &'a Options<'a>,
    pub(super) from: Side<'a>,
    pub(super) to: Side<'a>,
}

/// A conversion under way.
struct Run<'a> {
    conversion: &'a Conversion<'a>,
    plan: &'a Plan,
    log: &'a Log<'a>,
    contents: Mutex<BTreeMap<Vec<u8>, ContentDigest>>,
    threads: usize,
}

impl Conversion<'_> {
    /// Checks everything that can be checked, and plans what becomes of each file. `state` is that
    /// of an interrupted run. Writes nothing.
    ///
    /// # Errors
    /// SR-7001 or SR-7011 when the control file cannot be read, SR-7009 when the instance was not
    /// shut down cleanly, SR-7010 for other sizes, SR-7014 without room, SR-7002 for a file that
    /// cannot be sealed, SR-5001 when the system reports an error.
    pub(super) fn plan(&self, state: Option<&State>) -> Result<Plan, Error> {
        let control = self.control(state)?;
        control.check()?;
        let version_directory = format!("PG_{}_{}", self.lock.major(), control.catalog_version);
        let plan = Plan::new(self.lock.directory(), version_directory, state)?;
        let growing = matches!(self.from, Side::Plain);
        check_free_space(&plan, self.threads(), growing)?;
        Ok(plan)
    }

    /// Converts everything, `global/pg_control` first: removes temporary files, converts each file
    /// in place, syncs the directories, and reads all files back.
    ///
    /// # Errors
    /// SR-5001 when the system reports an error; SR-7001 when a file is damaged or reads back
    /// differently; SR-7029 for damaged transaction status files; SR-7011 when the control file is
    /// empty.
    pub(super) fn convert_control_first(&self, plan: Plan, log: &Log<'_>) -> Result<Report, Error> {
        let run = self.begin(&plan, log)?;
        run.convert_control()?;
        run.convert_items()?;
        run.sync_directories()?;
        run.verify(plan.all())?;
        Ok(run.report())
    }

    /// Converts everything, `global/pg_control` last: removes temporary files, converts each file
    /// in place, syncs the directories, reads all files back, and only then converts the control
    /// file and reads it back.
    ///
    /// # Errors
    /// SR-5001 when the system reports an error; SR-7001 when a file is damaged or reads back
    /// differently; SR-7029 for damaged transaction status files; SR-7011 when the control file is
    /// empty.
    pub(super) fn convert_control_last(&self, plan: Plan, log: &Log<'_>) -> Result<Report, Error> {
        let run = self.begin(&plan, log)?;
        run.convert_items()?;
        run.sync_directories()?;
        run.verify(plan.items.iter())?;
        run.convert_control()?;
        run.verify(plan.control.iter())?;
        Ok(run.report())
    }

    /// Removes the files and directories that the plan removes, and prepares the run. SR-5001 if
    /// one cannot be removed.
    fn begin<'run>(&'run self, plan: &'run Plan, log: &'run Log<'_>) -> Result<Run<'run>, Error> {
        for path in &plan.remove {
            remove(path)?;
        }
        for path in &plan.remove_directories {
            match fs::remove_dir(path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(Error::io(path.display().to_string(), error));
                }
                _ => {}
            }
        }
        Ok(Run {
            conversion: self,
            plan,
            log,
            contents: Mutex::new(BTreeMap::new()),
            threads: self.threads(),
        })
    }

    /// Reads and parses the control file, on the side on which it is. If it is damaged or of
    /// another version, SR-7011 on the plain side and SR-7001 on the sealed one; SR-5001 if it
    /// cannot be read.
    fn control(&self, state: Option<&State>) -> Result<Control, Error> {
        let path = self.lock.directory().join("global/pg_control");
        let done = state.is_some_and(|state| is_converted(self.lock.directory(), state, CONTROL));
        let side = if done { self.to } else { self.from };
        let mut used = [0_u8; USED];
        let mut read = || {
            let file = open_for_reading(&path)?;
            LogicalFile::new(&file, side, &control_seal()).read(&mut used, 0)
        };
        read().map_err(|error| Error::io(path.display().to_string(), error))?;
        let code = match side {
            Side::Plain => &code::PG_NOT_INSTANCE,
            Side::Sealed(_) => &code::PG_FILE,
        };
        let unreadable = || Error::new(code, format!("{}: checksum or version", path.display()));
        Control::parse(&used).ok_or_else(unreadable)
    }

    /// Returns the number of threads to use: as configured, or that of the processors.
    fn threads(&self) -> usize {
        match self.options.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            wanted => wanted,
        }
    }
}

impl<'a> Run<'a> {
    /// Converts the control file, unless an earlier run did, and syncs its directory. SR-7011 when
    /// it is empty; SR-7001 when it is damaged; SR-5001 when the system reports an error.
    fn convert_control(&self) -> Result<(), Error> {
        let Some(control) = self.plan.control.as_ref() else {
            return Err(Error::new(
                &code::PG_NOT_INSTANCE,
                "global/pg_control is empty",
            ));
        };
        if !control.done {
            self.worker(Phase::Converting, control.size)
                .convert(&[control])?;
            sync_directory(control.path.parent().unwrap_or(&control.path))?;
        }
        Ok(())
    }

    /// Converts the other files that are not converted yet, on several threads. SR-7001 or SR-7029
    /// when a file is damaged; SR-5001 when the system reports an error. Converted files stay
    /// converted.
    fn convert_items(&self) -> Result<(), Error> {
        let waiting = || self.plan.items.iter().filter(|item| !item.done);
        let worker = self.worker(Phase::Converting, waiting().map(|item| item.size).sum());
        in_parallel(self.threads, &batches(waiting()), |batch| {
            worker.convert(batch)
        })
    }

    /// Reads the files back, on several threads, and compares them with what was converted. SR-7001
    /// when one differs or is damaged, or when most pages that an earlier run converted do not look
    /// like pages; SR-7029 for a damaged transaction status file; SR-5001 when the system reports
    /// an error.
    fn verify<'item>(&self, items: impl Iterator<Item = &'item PlannedFile>) -> Result<(), Error> {
        let items: Vec<&PlannedFile> = items.collect();
        let worker = self.worker(Phase::Verifying, items.iter().map(|item| item.size).sum());
        in_parallel(self.threads, &batches(items.into_iter()), |batch| {
            worker.verify(batch)
        })?;
        worker.check_page_counts()
    }

    /// Syncs every directory that was walked and not removed, so that the new names are durable.
    /// SR-5001 when that fails.
    fn sync_directories(&self) -> Result<(), Error> {
        let gone = &self.plan.remove_directories;
        let left = self
            .plan
            .directories
            .iter()
            .filter(|path| !gone.contains(path));
        left.into_iter().try_for_each(|path| sync_directory(path))
    }

    /// Makes a worker for one phase; `total` is the bytes of that phase.
    fn worker(&self, phase: Phase, total: u64) -> Worker<'_> {
        Worker {
            from: self.conversion.from,
            to: self.conversion.to,
            log: self.log,
            meter: ProgressMeter::new(self.conversion.options.progress, phase, total),
            contents: &self.contents,
            pages: Mutex::default(),
        }
    }

    /// Returns the result of the run.
    fn report(&self) -> Report {
        let plan = self.plan;
        let count = |done: bool| plan.all().filter(|item| item.done == done).count();
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let known = self.contents.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = plan.all().map(|item| {
            known
                .get(&item.relative)
                .map_or(item.size, |contents| contents.len)
        });
        Report {
            resumed: count(true) > 0,
            converted: number(count(false)),
            converted_before: number(count(true)),
            bytes: bytes.sum(),
            in_clear: plan.in_clear,
            removed: number(plan.remove.len()),
            other_names: plan.other_names.clone(),
            not_followed: plan.not_followed.clone(),
        }
    }
}

/// Says how the control file of any instance is sealed.
fn control_seal() -> Seal {
    Seal {
        root: 0,
        class: Class::Control,
        layout: FileLayout::Block,
        key: BlockKey::Control,
        tweak: tweak_control(0),
    }
}

/// Syncs a directory. SR-5001 if that fails.
fn sync_directory(path: &Path) -> Result<(), Error> {
    let synced = File::open(path).and_then(|directory| directory.sync_all());
    synced.map_err(|error| Error::io(path.display().to_string(), error))
}
