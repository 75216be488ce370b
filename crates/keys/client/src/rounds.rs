//! One request to several servers, in order and again, until the time is over.
//!
//! Invariants:
//! - N2: nothing here waits beyond the total time.
//! - N3: a decision of a trusted server ends the request. It is repeated only where the result may
//!   differ: when a server was out of reach, sealed or busy.
//! - N7: the pauses between rounds grow and are random, so that nodes do not send at the same time.
//! - N8: a request for a change that may have taken effect is not repeated.

use std::sync::Arc;
use std::time::{Duration, Instant};

use strongroom_tls::rustls::ClientConfig;

use crate::address::Address;
use crate::error::{Error, Kind, Result};
use crate::exchange::{Failure, Request, Response, exchange};
use crate::verdict::{Refusal, Verdict, judge};
use crate::watch::Watch;

/// The pause after the first round.
const PAUSE_FIRST: Duration = Duration::from_millis(250);

/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(8);

/// An exchange may take a second longer for each of these many bytes of request and response.
const BYTES_A_SECOND: usize = 1024 * 1024;

/// Which servers are asked, and for how long.
pub(crate) struct Servers<'a> {
    pub(crate) addresses: &'a [Address],
    pub(crate) tls: &'a Arc<ClientConfig>,
    pub(crate) request_timeout: Duration,
    pub(crate) total_timeout: Duration,
    /// For how long servers are asked again while all of them are absent, if that is not the whole
    /// time.
    pub(crate) absence_timeout: Option<Duration>,
}

/// The result of a round in which no server decided.
#[derive(Default)]
struct Round {
    failures: Vec<Error>,
    /// How many of the failures say that no program listens at the address.
    absent: usize,
    /// Another round may have another result.
    may_repeat: bool,
    /// A server asked to wait this long.
    wait: Duration,
}

impl Servers<'_> {
    /// Sends a request to the servers, one after another, and again in rounds after growing random
    /// pauses, until one decides or the total time is over. Returns the response of success. Sleeps
    /// in between, and notifies the listener of `watch.rs` when it takes long.
    ///
    /// # Errors
    /// The decision of the first server that refuses. [`Kind::Uncertain`] if a request that is not
    /// repeatable may have taken effect. [`Kind::Absent`] if all servers are absent for longer than
    /// `absence_timeout`. Otherwise one error for the last round ([`Round::into_error`]): at once
    /// where a repetition cannot help, else when the time is over. [`Kind::Host`] without random
    /// numbers.
    pub(crate) fn ask(&self, request: &Request<'_>) -> Result<Response> {
        let began = Instant::now();
        let deadline = began + self.total_timeout;
        let watch = Watch::begin(self);
        let mut pause = PAUSE_FIRST;
        let mut last: Option<Error> = None;
        loop {
            let mut round = Round::default();
            if let Some(response) = self.round(request, deadline, &mut round)? {
                return Ok(response);
            }
            let (may_repeat, wait) = (round.may_repeat, round.wait);
            let all_absent = round.absent == self.addresses.len();
            // A round for which there was no time has no failures; the last one's error counts.
            let error = match (round.failures.is_empty(), last) {
                (true, Some(last)) => last,
                _ => round.into_error(),
            };
            let remaining = deadline.saturating_duration_since(Instant::now());
            let next = jittered(pause)?.max(wait);
            let is_over = |limit| began.elapsed() + next >= limit;
            if all_absent && self.absence_timeout.is_some_and(is_over) {
                return Err(Error::new(Kind::Absent, error.detail()));
            }
            if !may_repeat || next >= remaining {
                return Err(error);
            }
            watch.note_failure(&error);
            last = Some(error);
            std::thread::sleep(next);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Asks each server once, in order, until one decides. Returns the response of success. `None`:
    /// no server decided, and `round` has the failures. Each may take the request's time, and a
    /// second more for each MiB that may be transferred.
    ///
    /// # Errors
    /// The decision of a server that refuses; [`Kind::Uncertain`] ([`check_unchanged`]).
    fn round(
        &self,
        request: &Request<'_>,
        deadline: Instant,
        round: &mut Round,
    ) -> Result<Option<Response>> {
        let size = request.body.map_or(0, <[u8]>::len) + request.response_max;
        let extra = u64::try_from(size / BYTES_A_SECOND).unwrap_or(u64::MAX);
        let time = self
            .request_timeout
            .saturating_add(Duration::from_secs(extra));
        for address in self.addresses {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                round.may_repeat = true;
                break;
            }
            match exchange(self.tls, address, request, time.min(remaining)) {
                Ok(response) => match judge(response) {
                    Verdict::Success(response) => return Ok(Some(response)),
                    Verdict::Final(refusal) => return Err(error_of(address, refusal)),
                    Verdict::Retry(refusal, wait) => {
                        let is_open = !refusal.is_without_effect();
                        check_unchanged(request, address, is_open, &refusal.detail)?;
                        round.may_repeat = true;
                        round.wait = round.wait.max(wait.min(PAUSE_MAX));
                        round.failures.push(error_of(address, refusal));
                    }
                    Verdict::NotKeyServer(refusal) => {
                        check_unchanged(request, address, true, &refusal.detail)?;
                        round.failures.push(error_of(address, refusal));
                    }
                },
                Err(Failure {
                    kind,
                    detail,
                    was_sent,
                    is_absent,
                }) => {
                    check_unchanged(request, address, was_sent, &detail)?;
                    round.absent += usize::from(is_absent);
                    round.may_repeat |= kind == Kind::Unreachable;
                    let code = None;
                    round
                        .failures
                        .push(error_of(address, Refusal { kind, code, detail }));
                }
            }
        }
        Ok(None)
    }
}

/// Fails with [`Kind::Uncertain`] for a request that is not repeatable and that may have taken
/// effect, because it may have reached the server and no response says otherwise (N8). With `Ok`
/// the next server may be asked.
fn check_unchanged(
    request: &Request<'_>,
    address: &Address,
    may_have_effect: bool,
    detail: &str,
) -> Result<()> {
    match may_have_effect && !request.is_repeatable {
        true => Err(Error::new(
            Kind::Uncertain,
            format!("{}: {detail}", address.text()),
        )),
        false => Ok(()),
    }
}

/// Makes the error of a server's refusal: its kind and code, and its text after the address.
fn error_of(address: &Address, refusal: Refusal) -> Error {
    let detail = format!("{}: {}", address.text(), refusal.detail);
    Error::new(refusal.kind, detail).with_code(refusal.code)
}

impl Round {
    /// Makes one error for all servers: of the most telling kind among the failures, with the
    /// details of each. The order is [`Kind::Host`], [`Kind::Sealed`], [`Kind::Busy`]; then, if a
    /// server may still respond, [`Kind::Unreachable`], else [`Kind::NotAccepted`],
    /// [`Kind::NotTrusted`], [`Kind::Malformed`]. [`Kind::Unreachable`] without one of these.
    fn into_error(self) -> Error {
        let mut order = vec![Kind::Host, Kind::Sealed, Kind::Busy];
        match self.may_repeat {
            // Some may still respond, so what the others are for certain does not decide.
            true => order.push(Kind::Unreachable),
            false => order.extend([Kind::NotAccepted, Kind::NotTrusted, Kind::Malformed]),
        }
        let details: Vec<String> = self
            .failures
            .iter()
            .map(|one| one.detail().to_owned())
            .collect();
        let worst = order
            .into_iter()
            .find_map(|kind| self.failures.iter().find(|failed| failed.kind() == kind));
        let (kind, code) = worst.map_or((Kind::Unreachable, None), |worst| {
            (worst.kind(), Some(worst.code()))
        });
        let detail = match details.is_empty() {
            true => String::from("the time was over before a server could be asked"),
            false => details.join("; "),
        };
        Error::new(kind, detail).with_code(code)
    }
}

/// Returns a random time between half of `pause` and all of it. [`Kind::Host`] without random
/// numbers.
fn jittered(pause: Duration) -> Result<Duration> {
    let mut random = [0_u8; 4];
    strongroom_crypto::fill_random(&mut random)?;
    let share = f64::from(u32::from_le_bytes(random)) / f64::from(u32::MAX);
    Ok(pause.mul_f64(0.5 + share / 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_differ_and_stay_within_bounds() {
        let pauses: std::collections::BTreeSet<Duration> =
            (0..50).map(|_| jittered(PAUSE_MAX).unwrap()).collect();
        assert!(pauses.len() > 25);
        assert!(
            pauses
                .iter()
                .all(|pause| (PAUSE_MAX / 2..=PAUSE_MAX).contains(pause))
        );
    }
}
