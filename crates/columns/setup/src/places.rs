//! Where everything is that belongs to the zone of a machine.
//!
//! The places are fixed: each is in a directory that root alone decides on, and two runs cannot
//! mean different ones.
//!
//! Must not: be built from what somebody else wrote.

/// The user as whom the zone runs.
pub(crate) const USER: &str = "strongroom-zone";
/// The directory of the zone's sealed store.
pub(crate) const STATE: &str = "/var/lib/strongroom-zone";
/// The key of the store.
pub(crate) const KEY: &str = "/etc/strongroom/zone.key";
/// The directory of the zone's socket, which systemd makes.
pub(crate) const RUNTIME: &str = "/run/strongroom";
/// The zone's socket.
pub(crate) const SOCKET: &str = "/run/strongroom/zone";
/// The unit.
pub(crate) const UNIT: &str = "/etc/systemd/system/strongroom-zone.service";
/// The unit's name.
pub(crate) const SERVICE: &str = "strongroom-zone.service";
/// The server's socket, unless another one is named.
pub(crate) const SERVER: &str = "/run/postgresql/.s.PGSQL.5432";
