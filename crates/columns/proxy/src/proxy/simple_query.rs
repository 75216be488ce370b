//! Simple queries: several statements in one text, as one implicit transaction.
//!
//! Invariant: the client gets the answers that it would get without the proxy, whether its text is
//! sent as it is or by the extended protocol. Must not: plan a statement.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use strongroom_postgres_wire::Fields;

use super::copy::Transform;
use super::session::{Columns, DescriptionSlot, ExpectedStatement, PendingAnswer};
use super::upstream::{Failure, Outcome, POISON, Upstream, bind_values, malformed};
use crate::sql::refusal::Refusal;
use crate::sql::{Copies, Effects, Plan};

impl Upstream {
    /// Makes the server fail as it would at a simple query, and has its error replaced by the
    /// refusal.
    pub(super) fn refuse_query(&mut self, refusal: Refusal) {
        let expect = PendingAnswer::Query {
            refusal: Some(refusal),
            expected: VecDeque::new(),
            is_exact: false,
            has_failed: false,
            is_bound: false,
            others: Copies::Nothing,
            copy: None,
            request: 0,
        };
        let sent = self.send(expect, b'Q', |message| {
            message.string(POISON);
        });
        drop(sent);
    }

    /// Handles a simple query: plans it and sends it as it is, or by the extended protocol if a
    /// constant has to be sealed. Fails with SR-8105 for a malformed message, with the plan's
    /// refusal, or with SR-8103 for a COPY together with other statements.
    pub(super) fn handle_query(&mut self, body: &[u8]) -> Outcome {
        let text = Fields(body).string().ok_or_else(malformed)?;
        let plans = self.plan_statements(text, 0)?;
        // How many statements were prepared before each of these.
        let mut prepared = Vec::with_capacity(plans.len());
        for plan in &plans {
            prepared.push(self.endings.prepared());
            self.check_sendable(plan)?;
        }
        for plan in &plans {
            self.note_effects(plan.effects, &plan.changes)?;
        }
        let mut copy = None;
        for plan in &plans {
            if let Some(planned) = &plan.copy {
                copy = Transform::of(planned)?;
                if plans.len() > 1 && copy.is_some() {
                    let message =
                        "COPY of confidential columns together with other statements in one query";
                    return Err(Refusal::statement(message, "Send it alone.").into());
                }
            }
        }
        if plans.iter().all(|plan| !plan.changed) {
            plans.iter().for_each(|plan| self.zone.note(plan.effects));
            let expected: Vec<ExpectedStatement> = plans
                .iter()
                .zip(&prepared)
                .map(|(plan, prepared)| ExpectedStatement {
                    columns: self.expected_of(plan.named.as_ref(), &plan.expected),
                    copies: plan.effects.copies,
                    ends: self.endings.begin(plan.named.as_ref(), *prepared),
                })
                .collect();
            // A text that is not parsed is one plan, whatever statements it has. Where backslashes
            // escape, a string may end elsewhere than the proxy's parser says.
            let is_parsed = !plans.is_empty() && plans.iter().all(|plan| plan.is_parsed);
            let is_bound = expected.iter().any(ExpectedStatement::is_bound);
            let is_exact = is_parsed
                && (!text.contains(&b'\\') || self.session.lock().settings.standard_strings);
            return self.send(
                PendingAnswer::Query {
                    refusal: None,
                    expected: expected.into(),
                    is_exact,
                    has_failed: false,
                    is_bound,
                    others: plans
                        .last()
                        .map_or(Copies::Anything, |plan| plan.effects.copies),
                    copy,
                    request: 0,
                },
                b'Q',
                |message| {
                    message.string(text);
                },
            );
        }
        self.send_changed((&plans, &prepared), text)
    }

    /// Sends a simple query by the extended protocol, because a constant has to be sealed. Fails
    /// with SR-8103 for a COPY from the client, with `Skipped` if the connection ends, and with its
    /// error.
    fn send_changed(&mut self, (plans, prepared): (&[Plan], &[u64]), text: &[u8]) -> Outcome {
        if plans
            .iter()
            .any(|plan| plan.effects.copies == Copies::FromClient)
        {
            let message = "COPY FROM STDIN together with statements that have to be changed";
            return Err(Refusal::statement(message, "Send it alone.").into());
        }
        let original = Arc::from(std::str::from_utf8(text).unwrap_or_default());
        let is_block = self.needs_block(plans)?;
        let sent = if is_block {
            self.send_block((plans, prepared), &original)
        } else {
            self.send_extended((plans, prepared), &original)
        };
        match sent {
            Err(Failure::Refused(refusal)) => self.refuse(refusal),
            Err(Failure::Io(error)) => return Err(error.into()),
            Ok(()) | Err(Failure::Skipped) => {}
        }
        if is_block {
            self.end_block()?;
        }
        self.send(PendingAnswer::Sync { forward: true }, b'S', |_| {})
    }

    /// Returns whether a text is to be a transaction block that the client has not begun: the
    /// server makes one of the statements of a simple query, and some have to be in one. Waits for
    /// the server's answers if one is. Fails with `Skipped` if the connection ends.
    fn needs_block(&mut self, plans: &[Plan]) -> Outcome<bool> {
        let has = |what: fn(&Effects) -> bool| plans.iter().any(|plan| what(&plan.effects));
        let ends =
            has(|effects| effects.begins || effects.ends || effects.chains || effects.undoes);
        if self.in_pipeline || ends || !has(|effects| effects.needs_block) || plans.len() < 2 {
            return Ok(false);
        }
        self.flush()?;
        if !self.session.wait(|state| state.pending_answers.is_empty()) {
            return Err(Failure::Skipped);
        }
        let state = self.session.lock();
        Ok(state.transaction == b'I' && !state.is_open)
    }

    /// Sends a simple query as [`Self::send_extended`] does, in a transaction block. Fails as that
    /// does.
    fn send_block(&mut self, plans: (&[Plan], &[u64]), original: &Arc<str>) -> Outcome {
        self.run_within("BEGIN")?;
        self.send_extended(plans, original)?;
        self.run_within("COMMIT").map(drop)
    }

    /// Ends a block in which something has failed. Fails with `Skipped` if the connection ends.
    fn end_block(&mut self) -> Outcome {
        self.send(PendingAnswer::Sync { forward: false }, b'S', |_| {})?;
        self.flush()?;
        if !self.session.wait(|state| state.pending_answers.is_empty()) {
            return Err(Failure::Skipped);
        }
        if self.session.lock().transaction == b'E' {
            self.query_simply("ROLLBACK")?;
        }
        Ok(())
    }

    /// Sends a simple query by the extended protocol, each of its statements with how many were
    /// `prepared` before it: the statements up to one Sync are one
    /// implicit transaction, as those of a simple query are, and the client gets the same answers.
    /// The Sync is the caller's. Waits for descriptions where constants are to be sealed. Fails
    /// with SR-8101 or SR-8104 if a constant cannot be sealed, with `Skipped` if the server does
    /// not make a statement or would ignore the messages, and with the connection's error.
    fn send_extended(
        &mut self,
        (plans, prepared): (&[Plan], &[u64]),
        original: &Arc<str>,
    ) -> Outcome {
        for (plan, prepared) in plans.iter().zip(prepared) {
            let slot: DescriptionSlot = Arc::new(OnceLock::new());
            let texts = plan.texts(original);
            self.send_parse(&[], plan.sql.as_bytes(), &[], None, texts, &slot)?;
            let constants = if plan.constants.is_empty() {
                Vec::new()
            } else {
                let description = self.wait_for_description(&slot)?.ok_or(Failure::Skipped)?;
                self.seal_constants(&plan.constants, &description)?
            };
            let expected = self.expected_of(plan.named.as_ref(), &plan.expected);
            let ends = self.endings.begin(plan.named.as_ref(), *prepared);
            self.zone.note(plan.effects);
            self.send(PendingAnswer::Bind { told: None }, b'B', |message| {
                message.string(b"").string(b"");
                bind_values(message, &constants);
                message.count(0);
            })?;
            self.send(
                PendingAnswer::DescribePortal {
                    forward: true,
                    rows_only: true,
                    known: None,
                    expected: Arc::clone(&expected),
                },
                b'D',
                |message| {
                    message.byte(b'P').string(b"");
                },
            )?;
            self.send(
                PendingAnswer::Execute {
                    columns: Columns::Described,
                    expected,
                    copies: plan.effects.copies,
                    copy: None,
                    refusal: None,
                    ends,
                    request: 0,
                },
                b'E',
                |message| {
                    message.string(b"").int32(0);
                },
            )?;
        }
        Ok(())
    }
}
