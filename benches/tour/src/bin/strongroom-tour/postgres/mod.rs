//! Stock PostgreSQL, plain and sealed: the same work, a power cut, what lies on the disk, what does
//! not start.
//!
//! Must not: run a server that the tour has not made, or leave one running.

mod canary;
mod convert;
mod crash;
pub(crate) mod instances;
mod refused;

use strongroom_benches::Failure;
use strongroom_benches::postgres::Tools;

use self::instances::{Instances, Workplace};
use crate::tour::Tour;

/// The whole part.
pub(crate) fn run(tour: &mut Tour) -> Result<(), Failure> {
    let tools = Tools::find();
    let version = tools.as_ref().ok().and_then(|tools| tools.version().ok());
    let version = version.as_deref().and_then(|text| text.split(' ').next());
    tour.checks.heading(&format!(
        "PostgreSQL {}, stock: a plain instance, and one sealed with AES-256-XTS",
        version.unwrap_or_default()
    ))?;
    let (checks, out) = (&mut tour.checks, tour.place.directory());
    let begun = tools.and_then(|tools| Workplace::prepare(out, &tools));
    let workplace = match begun {
        Ok(workplace) => workplace,
        Err(error) => return checks.check("PostgreSQL can be run", || Err(error)),
    };
    let made = Instances::make(&workplace);
    let mut instances = match made {
        Ok(instances) => instances,
        Err(error) => return checks.check("initdb, and pg initdb", || Err(error)),
    };
    instances.begin(checks)?;
    let left = crash::cut(&mut instances, &workplace, checks)?;
    canary::compare(&instances, checks)?;
    crash::recover(&mut instances, &left, checks)?;
    refused::run(&mut instances, checks)?;
    convert::run(instances, checks)
}
