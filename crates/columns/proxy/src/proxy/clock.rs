//! The proxy's clock, for functions such as `now()` beside a confidential value.

use std::time::{Duration, SystemTime};

use strongroom_columns_ring::function::{Arg, by_name};
use strongroom_columns_values::{Buf, Operand, Out, compute, print, receive};
use strongroom_format::columns::Kind;
use zeroize::Zeroizing;

use super::convert::Converter;
use crate::sql::Clock;
use crate::sql::refusal::Refusal;

/// Between 1970 and 2000, from which PostgreSQL counts (src/include/datatype/timestamp.h).
const EPOCH: Duration = Duration::from_secs(946_684_800);

impl Converter<'_> {
    /// Returns the text form of what a clock tells at this time in the session's time zone, to the
    /// microsecond. Fails with SR-8104 if that zone is not in the IANA database, or the time is
    /// before 2000.
    #[expect(
        clippy::big_endian_bytes,
        reason = "PostgreSQL's binary forms are big-endian"
    )]
    pub(super) fn clock(&self, clock: Clock, at: SystemTime) -> Result<Zeroizing<String>, Refusal> {
        let unset = || Refusal::value("58000", "the proxy's clock is not set");
        let since = at.duration_since(SystemTime::UNIX_EPOCH + EPOCH);
        let micros = since
            .ok()
            .and_then(|since| i64::try_from(since.as_micros()).ok());
        let micros = micros.ok_or_else(unset)?;
        let settings = self.value_settings(Kind::Timestamptz)?;
        let (mut moment, mut told, mut text) = (Out::new(), Out::new(), Buf::new());
        receive(Kind::Timestamptz, &micros.to_be_bytes(), &mut moment).map_err(|_| unset())?;
        let convert = match clock {
            Clock::Moment => None,
            other => by_name(other.kind().base(), &[Arg::Of(Kind::Timestamptz)]),
        };
        let value = match convert {
            Some(function) => {
                let args = [Operand::Value(moment.value())];
                compute(function, &args, &settings, &mut told).map_err(|_| unset())?;
                told.value()
            }
            None => moment.value(),
        };
        print(clock.kind(), value, &settings, &mut text).map_err(|_| unset())?;
        let text = std::str::from_utf8(text.as_slice()).map_err(|_| unset())?;
        Ok(Zeroizing::new(text.to_owned()))
    }
}
