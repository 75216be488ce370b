//! One question put to several servers, in order and again, until the time is over.
//!
//! Invariants:
//! - N2: nothing here waits beyond the total time.
//! - N3: an answer that decides, from a server that is trusted, ends the question. What is asked
//!   again is what may come out otherwise: a server out of reach, sealed or busy.
//! - N7: between rounds there is a pause that grows and is never the same for two nodes.
//! - N8: a change that may have been made is not asked for again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use strongroom_tls::rustls::ClientConfig;

use crate::address::Address;
use crate::answer::{Refusal, Verdict, judge};
use crate::error::{Error, Kind, Result};
use crate::exchange::{Answer, Fault, Request, exchange};
use crate::watch::Watch;

/// The pause after the first round.
const PAUSE_FIRST: Duration = Duration::from_millis(250);

/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(8);

/// For each of these many bytes that are sent or may come, an exchange may take a second longer.
const BYTES_A_SECOND: usize = 1024 * 1024;

/// Whom to ask, and for how long.
pub(crate) struct Servers<'a> {
    pub(crate) addresses: &'a [Address],
    pub(crate) tls: &'a Arc<ClientConfig>,
    pub(crate) request_timeout: Duration,
    pub(crate) total_timeout: Duration,
    /// For how long servers are asked again while nobody is at any of the addresses, if that is
    /// not the whole time.
    pub(crate) nobody_timeout: Option<Duration>,
}

/// What a round came to, when nothing decided it.
#[derive(Default)]
struct Round {
    failures: Vec<Error>,
    /// How many of the failures say that nobody is at the address.
    nobody: usize,
    /// Another round may come to something else.
    again: bool,
    /// A server asked to wait this long.
    wait: Duration,
}

impl Servers<'_> {
    pub(crate) fn ask(&self, request: &Request<'_>) -> Result<Answer> {
        let began = Instant::now();
        let deadline = began + self.total_timeout;
        let watch = Watch::begin(self);
        let mut pause = PAUSE_FIRST;
        let mut last: Option<Error> = None;
        loop {
            let mut round = Round::default();
            if let Some(answer) = self.round(request, deadline, &mut round)? {
                return Ok(answer);
            }
            // A round that the end of the time cut off before it began tells nothing.
            let (again, wait) = (round.again, round.wait);
            let nobody = round.nobody == self.addresses.len();
            let error = match (round.failures.is_empty(), last) {
                (true, Some(last)) => last,
                _ => round.told(),
            };
            let left = deadline.saturating_duration_since(Instant::now());
            let next = jittered(pause)?.max(wait);
            let is_over = |limit| began.elapsed() + next >= limit;
            if nobody && self.nobody_timeout.is_some_and(is_over) {
                return Err(Error::new(Kind::Nobody, error.detail()));
            }
            if !again || next >= left {
                return Err(error);
            }
            watch.saw(&error);
            last = Some(error);
            std::thread::sleep(next);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// `None`: nobody decided it.
    fn round(
        &self,
        request: &Request<'_>,
        deadline: Instant,
        round: &mut Round,
    ) -> Result<Option<Answer>> {
        let size = request.body.map_or(0, <[u8]>::len) + request.answer_max;
        let extra = u64::try_from(size / BYTES_A_SECOND).unwrap_or(u64::MAX);
        let time = self
            .request_timeout
            .saturating_add(Duration::from_secs(extra));
        for address in self.addresses {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                round.again = true;
                break;
            }
            match exchange(self.tls, address, request, time.min(left)) {
                Ok(answer) => match judge(answer) {
                    Verdict::Fine(answer) => return Ok(Some(answer)),
                    Verdict::Decided(refusal) => return Err(at(address, refusal)),
                    Verdict::Later(refusal, wait) => {
                        round.again = true;
                        round.wait = round.wait.max(wait.min(PAUSE_MAX));
                        round.failures.push(at(address, refusal));
                    }
                    Verdict::Broken(refusal) => {
                        broken(request, address, true, &refusal.detail)?;
                        round.failures.push(at(address, refusal));
                    }
                },
                Err(Fault {
                    kind,
                    detail,
                    sent,
                    nobody,
                }) => {
                    broken(request, address, sent, &detail)?;
                    round.nobody += usize::from(nobody);
                    round.again |= kind == Kind::Unreachable;
                    let code = None;
                    round
                        .failures
                        .push(at(address, Refusal { kind, code, detail }));
                }
            }
        }
        Ok(None)
    }
}

/// N8: whether the next server may be asked after one whose answer is missing or makes no sense.
fn broken(request: &Request<'_>, address: &Address, sent: bool, detail: &str) -> Result<()> {
    match sent && !request.repeatable {
        true => Err(Error::new(
            Kind::Uncertain,
            format!("{}: {detail}", address.text()),
        )),
        false => Ok(()),
    }
}

fn at(address: &Address, refusal: Refusal) -> Error {
    let detail = format!("{}: {}", address.text(), refusal.detail);
    Error::new(refusal.kind, detail).with_code(refusal.code)
}

impl Round {
    /// One error for all servers: of the kind that says most, with the words of each.
    fn told(self) -> Error {
        let mut order = vec![Kind::Host, Kind::Sealed, Kind::Busy];
        match self.again {
            // Where some may yet come back, the rest's certainty is not the answer.
            true => order.push(Kind::Unreachable),
            false => order.extend([Kind::NotAccepted, Kind::NotTrusted, Kind::Malformed]),
        }
        let words: Vec<String> = self
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
        let detail = match words.is_empty() {
            true => String::from("the time was over before a server could be asked"),
            false => words.join("; "),
        };
        Error::new(kind, detail).with_code(code)
    }
}

/// Between half of `pause` and all of it.
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
