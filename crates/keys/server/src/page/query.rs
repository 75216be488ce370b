//! What a reader asked to see: filters, order and page of the list of objects, read from a query and written into links.
//!
//! Invariants:
//! 1. A parameter with a value that means nothing is refused: a misspelt filter must not show more, or less, than was asked.
//! 2. What is written into a link reads back as the same query.
//!
//! Must not: make HTML.

use std::cmp::Ordering;

use super::judge::{Concern, Severity};
use super::model::{Fleet, Object};
use super::records::Kind;

/// Objects on one page.
pub const PER_PAGE: usize = 100;
/// Characters of a filter.
const LONGEST: usize = 256;

/// What the list is in order of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Sort {
    /// The worst first.
    #[default]
    Attention,
    /// Name.
    Name,
    /// Kind.
    Kind,
    /// Node.
    Node,
    /// Cipher suite.
    Cipher,
    /// Key and version.
    Key,
    /// Age of the version of the key.
    KeyAge,
    /// One of the measures.
    Measure(Concern),
}

impl Sort {
    const WORDS: [(Self, &'static str); 11] = [
        (Self::Attention, "attention"),
        (Self::Name, "name"),
        (Self::Kind, "kind"),
        (Self::Node, "node"),
        (Self::Cipher, "cipher"),
        (Self::Key, "key"),
        (Self::KeyAge, "key-age"),
        (Self::Measure(Concern::Rotation), "rotation"),
        (Self::Measure(Concern::Backup), "backup"),
        (Self::Measure(Concern::Verification), "verification"),
        (Self::Measure(Concern::Report), "report"),
    ];

    fn word(self) -> &'static str {
        let found = Self::WORDS.iter().find(|(sort, _)| *sort == self);
        found.map_or("attention", |(_, word)| word)
    }

    fn of(word: &str) -> Option<Self> {
        let found = Self::WORDS.iter().find(|(_, one)| *one == word);
        found.map(|(sort, _)| *sort)
    }
}

/// A parameter that means nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadQuery {
    /// Its name.
    pub parameter: &'static str,
}

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Of this kind.
    pub kind: Option<Kind>,
    /// Of this node.
    pub node: Option<String>,
    /// Opened by this key.
    pub key: Option<String>,
    /// That stand so; with a concern: in its respect.
    pub state: Option<Severity>,
    /// With something found in this respect.
    pub concern: Option<Concern>,
    /// With this in name, node, key, cipher or id.
    pub text: String,
    /// In this order.
    pub sort: Sort,
    /// The other way round.
    pub reversed: bool,
    /// Which page, from 1.
    pub page: usize,
}

impl Query {
    /// Reads the parameters of a query. Unknown names are passed over, empty values are those of a form that was not filled in.
    ///
    /// # Errors
    /// The first parameter whose value means nothing.
    pub fn read<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, BadQuery> {
        let mut query = Self {
            page: 1,
            ..Self::default()
        };
        for (name, value) in pairs {
            let value = value.trim();
            if !value.is_empty() {
                query.set(name, value)?;
            }
        }
        Ok(query)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), BadQuery> {
        let bad = |parameter| BadQuery { parameter };
        let text = |parameter| {
            if value.chars().count() <= LONGEST {
                Ok(value.to_owned())
            } else {
                Err(bad(parameter))
            }
        };
        match name {
            "kind" => self.kind = Some(Kind::of(value).ok_or_else(|| bad("kind"))?),
            "node" => self.node = Some(text("node")?),
            "key" => self.key = Some(text("key")?),
            "state" => self.state = Some(Severity::of(value).ok_or_else(|| bad("state"))?),
            "concern" => self.concern = Some(Concern::of(value).ok_or_else(|| bad("concern"))?),
            "q" => self.text = text("q")?,
            "sort" => self.sort = Sort::of(value).ok_or_else(|| bad("sort"))?,
            "order" => self.reversed = order(value).ok_or_else(|| bad("order"))?,
            "page" => self.page = page(value).ok_or_else(|| bad("page"))?,
            _ => {}
        }
        Ok(())
    }

    /// The query as a link to the list.
    #[must_use]
    pub fn link(&self) -> String {
        let mut pairs = form_urlencoded::Serializer::new(String::new());
        for (name, value) in self.pairs() {
            pairs.append_pair(name, &value);
        }
        let text = pairs.finish();
        if text.is_empty() {
            "/".to_owned()
        } else {
            format!("/?{text}")
        }
    }

    /// The parameters that differ from those of an empty query.
    #[must_use]
    pub fn pairs(&self) -> Vec<(&'static str, String)> {
        let mut pairs = Vec::new();
        pairs.extend(self.kind.map(|kind| ("kind", kind.word().to_owned())));
        pairs.extend(self.node.clone().map(|node| ("node", node)));
        pairs.extend(self.key.clone().map(|key| ("key", key)));
        pairs.extend(self.state.map(|state| ("state", state.word().to_owned())));
        pairs.extend(self.concern.map(|one| ("concern", one.word().to_owned())));
        if !self.text.is_empty() {
            pairs.push(("q", self.text.clone()));
        }
        if self.sort != Sort::default() {
            pairs.push(("sort", self.sort.word().to_owned()));
        }
        if self.reversed {
            pairs.push(("order", "desc".to_owned()));
        }
        if self.page > 1 {
            pairs.push(("page", self.page.to_string()));
        }
        pairs
    }

    /// Whether anything is left out.
    #[must_use]
    pub fn is_filtered(&self) -> bool {
        self.kind.is_some()
            || self.node.is_some()
            || self.key.is_some()
            || self.state.is_some()
            || self.concern.is_some()
            || !self.text.is_empty()
    }

    /// The same from its first page, in this order; the other way round if it is in this order already.
    #[must_use]
    pub fn sorted(&self, sort: Sort) -> Self {
        Self {
            sort,
            reversed: self.sort == sort && !self.reversed,
            page: 1,
            ..self.clone()
        }
    }

    /// The same, another page.
    #[must_use]
    pub fn on_page(&self, page: usize) -> Self {
        Self {
            page,
            ..self.clone()
        }
    }

    /// The objects that are asked for, on all pages, in order.
    #[must_use]
    pub fn select<'a>(&self, fleet: &'a Fleet) -> Vec<&'a Object> {
        let needle = self.text.to_lowercase();
        let mut found: Vec<&Object> = fleet
            .objects
            .iter()
            .filter(|object| self.wants(object, &needle))
            .collect();
        found.sort_by(|a, b| {
            let order = compare(a, b, self.sort);
            let order = if self.reversed {
                order.reverse()
            } else {
                order
            };
            order.then_with(|| tie(a, b))
        });
        found
    }

    fn wants(&self, object: &Object, needle: &str) -> bool {
        let record = &object.record;
        self.kind.is_none_or(|kind| record.kind == kind)
            && self.node.as_ref().is_none_or(|node| record.node == *node)
            && self.key.as_ref().is_none_or(|key| record.key_id == *key)
            && self.stands(object)
            && (needle.is_empty() || mentions(object, needle))
    }

    fn stands(&self, object: &Object) -> bool {
        let Some(concern) = self.concern else {
            return self.state.is_none_or(|state| object.severity() == state);
        };
        let found = object.findings.iter().filter(|f| f.concern == concern);
        let worst = found.map(|finding| finding.severity).max();
        match (self.state, worst) {
            (None, worst) => worst.is_some(),
            (Some(Severity::Fine), None) => object
                .measure(concern)
                .is_none_or(|measure| measure.interval_s.is_some()),
            (state, worst) => worst == state,
        }
    }
}

fn order(value: &str) -> Option<bool> {
    match value {
        "asc" => Some(false),
        "desc" => Some(true),
        _ => None,
    }
}

fn page(value: &str) -> Option<usize> {
    let number: usize = value.parse().ok()?;
    (1..=1_000_000).contains(&number).then_some(number)
}

fn mentions(object: &Object, needle: &str) -> bool {
    let record = &object.record;
    [
        &record.name,
        &record.node,
        &record.key_id,
        &record.cipher,
        &record.id,
    ]
    .iter()
    .any(|text| text.to_lowercase().contains(needle))
}

fn compare(a: &Object, b: &Object, sort: Sort) -> Ordering {
    let (x, y) = (&a.record, &b.record);
    match sort {
        Sort::Attention => b
            .severity()
            .cmp(&a.severity())
            .then_with(|| bad(b).cmp(&bad(a))),
        Sort::Name => x.name.cmp(&y.name),
        Sort::Kind => x.kind.cmp(&y.kind),
        Sort::Node => x.node.cmp(&y.node),
        Sort::Cipher => x.cipher.cmp(&y.cipher),
        Sort::Key => (&x.key_id, x.key_version).cmp(&(&y.key_id, y.key_version)),
        Sort::KeyAge => key_time(a).cmp(&key_time(b)),
        Sort::Measure(concern) => {
            let time = |object: &Object| object.measure(concern).and_then(|m| m.at);
            time(a).cmp(&time(b))
        }
    }
}

/// How many things are overdue.
fn bad(object: &Object) -> usize {
    let findings = object.findings.iter();
    findings.filter(|f| f.severity == Severity::Overdue).count()
}

/// Unknown last.
fn key_time(object: &Object) -> u64 {
    object.key_made.unwrap_or(u64::MAX)
}

fn tie(a: &Object, b: &Object) -> Ordering {
    let (a, b) = (&a.record, &b.record);
    (&a.name, &a.id).cmp(&(&b.name, &b.id))
}
