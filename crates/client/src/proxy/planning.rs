//! The catalog kept fresh, and the client's statements planned with it.
//!
//! Must not: send anything but the query of the catalog.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::PlaintextConstants;
use super::convert::declared_oid;
use super::session::{Expect, Rows};
use super::upstream::{Failure, Outcome, Upstream};
use crate::sql::catalog::{CATALOG_QUERY, Catalog};
use crate::sql::refusal::Refusal;
use crate::sql::{self, Plan};

/// How long a catalog is believed although nobody is known to have changed it.
const CATALOG_AGE_MAX: Duration = Duration::from_secs(10);

impl Upstream {
    pub(super) fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.session.lock().catalog)
    }

    /// Reads the catalog again where that is possible: not in a pipeline, nor in a failed transaction; in an open transaction only
    /// when it must be (a query would come before SET TRANSACTION otherwise).
    fn refresh(&mut self, must: bool) -> Outcome<bool> {
        let epoch = self.shared.epoch.load(Ordering::Acquire);
        let due =
            self.defined || epoch != self.epoch || self.catalog_read.elapsed() > CATALOG_AGE_MAX;
        if self.in_pipeline || !(due || must) {
            return Ok(false);
        }
        self.flush()?;
        if !self.session.wait(|state| state.expects.is_empty()) {
            return Err(Failure::Skipped);
        }
        let transaction = self.session.lock().transaction;
        if transaction != b'I' && !(transaction == b'T' && (self.defined || must)) {
            return Ok(false);
        }
        let rows: Rows = Arc::new(OnceLock::new());
        let expect = Expect::Own {
            rows: Arc::clone(&rows),
            collected: Vec::new(),
        };
        self.send(expect, b'Q', |message| {
            message.string(CATALOG_QUERY.as_bytes());
        })?;
        self.flush()?;
        // Also the ReadyForQuery behind the rows.
        if !self
            .session
            .wait(|state| rows.get().is_some() && state.expects.is_empty())
        {
            return Err(Failure::Skipped);
        }
        if let Some(Some(rows)) = rows.get() {
            let catalog = Catalog::from_rows(rows);
            self.denied = catalog.denied(&self.shared.pinned).map(Refusal::denied);
            self.session.lock().catalog = Arc::new(catalog);
            self.catalog_read = Instant::now();
            if std::mem::take(&mut self.defined) {
                // In an open transaction nobody else sees the change yet.
                if transaction == b'I' {
                    self.shared.epoch.fetch_add(1, Ordering::AcqRel);
                } else {
                    self.defined = true;
                }
            }
            self.epoch = self.shared.epoch.load(Ordering::Acquire);
        }
        Ok(true)
    }

    /// What is to be sent for the client's SQL.
    pub(super) fn planned(&mut self, text: &[u8], declared: usize) -> Outcome<Vec<Plan>> {
        self.refresh(false)?;
        if let Some(refusal) = &self.denied {
            return Err(refusal.clone().into());
        }
        let catalog = self.catalog();
        let invalid = || {
            Refusal::postgres(
                "22021",
                "invalid byte sequence for encoding \"UTF8\"".to_owned(),
            )
        };
        let text = match std::str::from_utf8(text) {
            Ok(text) => text,
            Err(_) if !catalog.is_confidential() => return Ok(Vec::new()),
            Err(_) => return Err(invalid().into()),
        };
        if catalog.is_confidential() && !self.session.lock().settings.standard_strings {
            let refusal = Refusal::statement(
                "standard_conforming_strings is off, and the proxy cannot tell where constants end",
                "SET standard_conforming_strings TO on",
            );
            // The way out has to stay open.
            if !text
                .to_ascii_lowercase()
                .contains("standard_conforming_strings")
            {
                return Err(refusal.into());
            }
        }
        let plans = match sql::plan(text, &catalog, declared) {
            Err(_) if !catalog.is_confidential() => return Ok(Vec::new()),
            other => other?,
        };
        let unknown = plans.iter().any(|plan| !plan.unknown.is_empty());
        if unknown && self.refresh(true)? {
            if let Some(refusal) = &self.denied {
                return Err(refusal.clone().into());
            }
            let catalog = self.catalog();
            return Ok(sql::plan(text, &catalog, declared)?);
        }
        Ok(plans)
    }

    /// The types that the server is told: confidential ones for parameters of confidential expressions.
    pub(super) fn types(&self, plan: &Plan, declared: &[u32]) -> Outcome<Vec<u32>> {
        let catalog = self.catalog();
        let mut types = Vec::with_capacity(declared.len());
        for (at, oid) in declared.iter().enumerate() {
            let number = at.saturating_add(1);
            let confidential =
                i32::try_from(number).is_ok_and(|number| plan.confidential.contains(&number));
            if !confidential {
                types.push(*oid);
                continue;
            }
            match declared_oid(&catalog, *oid) {
                Some(oid) => types.push(oid),
                None if self.shared.plaintext_constants == PlaintextConstants::Allow => {
                    types.push(*oid);
                }
                None => {
                    let why =
                        format!("no confidential type stands for the declared type with OID {oid}");
                    return Err(Refusal::parameter(number, &why).into());
                }
            }
        }
        Ok(types)
    }
}
