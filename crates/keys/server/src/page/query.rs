//! The query of the list of objects: filters, order and page. It is parsed from a URL and written
//! into links.
//!
//! Invariants:
//! 1. A parameter with an invalid value is refused, so that a misspelt filter does not show other
//!    objects than the reader wanted.
//! 2. A query that is written into a link is parsed as the same query.
//!
//! Must not: make HTML.

use std::cmp::Ordering;

use super::findings::{Concern, Severity};
use super::model::{Fleet, Object};
use super::records::Kind;

/// The objects on one page.
pub const PER_PAGE: usize = 100;
/// The longest filter, in characters.
const FILTER_MAX: usize = 256;

/// The order of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Sort {
    /// By severity, the worst first.
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
    /// The time when the version of the key was created.
    KeyAge,
    /// The time of a measure.
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

    /// Returns the word for this order in links.
    fn word(self) -> &'static str {
        let found = Self::WORDS.iter().find(|(sort, _)| *sort == self);
        found.map_or("attention", |(_, word)| word)
    }

    /// Returns the order for a word in links; `None` for another word.
    fn of(word: &str) -> Option<Self> {
        let found = Self::WORDS.iter().find(|(_, one)| *one == word);
        found.map(|(sort, _)| *sort)
    }
}

/// A parameter with an invalid value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadQuery {
    /// Its name.
    pub parameter: &'static str,
}

/// A query. An object has to fit every filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// The kind of the objects.
    pub kind: Option<Kind>,
    /// The node that reports them.
    pub node: Option<String>,
    /// The key that opens them.
    pub key: Option<String>,
    /// Their severity; with a concern, that of its findings.
    pub state: Option<Severity>,
    /// A concern of which they have a finding.
    pub concern: Option<Concern>,
    /// A part of their name, node, key, cipher or id.
    pub text: String,
    /// The order.
    pub sort: Sort,
    /// Whether the order is reversed.
    pub reversed: bool,
    /// The page, from 1.
    pub page: usize,
}

impl Query {
    /// Parses the parameters of a query. Unknown names are ignored, and so are empty values, which
    /// come from a form that was not filled in. If a name comes twice, the last value counts.
    ///
    /// # Errors
    /// The first parameter with an invalid value.
    pub fn parse<'a>(
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, BadQuery> {
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

    /// Sets the parameter of this name, in place of an earlier value; an unknown name changes
    /// nothing. Fails with the parameter's name if the value is not valid, or is too long a text.
    fn set(&mut self, name: &str, value: &str) -> Result<(), BadQuery> {
        let bad = |parameter| BadQuery { parameter };
        let text = |parameter| {
            if value.chars().count() <= FILTER_MAX {
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
            "order" => self.reversed = parse_order(value).ok_or_else(|| bad("order"))?,
            "page" => self.page = parse_page(value).ok_or_else(|| bad("page"))?,
            _ => {}
        }
        Ok(())
    }

    /// Returns the query as a link to the list.
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

    /// Returns the parameters that differ from those of an empty query, as names and values that
    /// are not encoded.
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

    /// Whether the query has a filter.
    #[must_use]
    pub fn is_filtered(&self) -> bool {
        self.kind.is_some()
            || self.node.is_some()
            || self.key.is_some()
            || self.state.is_some()
            || self.concern.is_some()
            || !self.text.is_empty()
    }

    /// Returns the same query from its first page, in this order; reversed if it has this order
    /// already, unless that is reversed.
    #[must_use]
    pub fn sorted(&self, sort: Sort) -> Self {
        Self {
            sort,
            reversed: self.sort == sort && !self.reversed,
            page: 1,
            ..self.clone()
        }
    }

    /// Returns the same query for another page.
    #[must_use]
    pub fn on_page(&self, page: usize) -> Self {
        Self {
            page,
            ..self.clone()
        }
    }

    /// Returns the objects that fit the query, of all pages, in order. Shredded ones are left out.
    #[must_use]
    pub fn select<'a>(&self, fleet: &'a Fleet) -> Vec<&'a Object> {
        let needle = self.text.to_lowercase();
        let mut found: Vec<&Object> = fleet
            .objects
            .iter()
            .filter(|object| self.matches(object, &needle))
            .collect();
        found.sort_by(|a, b| {
            let order = compare(a, b, self.sort);
            let order = if self.reversed {
                order.reverse()
            } else {
                order
            };
            order.then_with(|| compare_names(a, b))
        });
        found
    }

    /// Whether the object fits every filter. `needle` is the text that is searched for, in lower
    /// case.
    fn matches(&self, object: &Object, needle: &str) -> bool {
        let record = &object.record;
        self.kind.is_none_or(|kind| record.kind == kind)
            && self.node.as_ref().is_none_or(|node| record.node == *node)
            && self.key.as_ref().is_none_or(|key| record.key_id == *key)
            && self.matches_severity(object)
            && (needle.is_empty() || contains_text(object, needle))
    }

    /// Whether the object has the wanted severity and a finding of the wanted concern. With both,
    /// the worst finding of the concern has to have the severity; "in order" then means no finding,
    /// and an interval where the concern has one.
    fn matches_severity(&self, object: &Object) -> bool {
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

/// Parses `asc` as false and `desc` as true (reversed); `None` for another text.
fn parse_order(value: &str) -> Option<bool> {
    match value {
        "asc" => Some(false),
        "desc" => Some(true),
        _ => None,
    }
}

/// Parses the number of a page, from 1 to a million; `None` for another text.
fn parse_page(value: &str) -> Option<usize> {
    let number: usize = value.parse().ok()?;
    (1..=1_000_000).contains(&number).then_some(number)
}

/// Whether the name, node, key, cipher or id contains `needle`, which is in lower case, in any case
/// of letters.
fn contains_text(object: &Object, needle: &str) -> bool {
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

/// Compares two objects by this order, which is not reversed. Attention puts the worst first, and
/// among equals the one with more overdue findings.
fn compare(a: &Object, b: &Object, sort: Sort) -> Ordering {
    let (x, y) = (&a.record, &b.record);
    match sort {
        Sort::Attention => b
            .severity()
            .cmp(&a.severity())
            .then_with(|| overdue_count(b).cmp(&overdue_count(a))),
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

/// Counts the findings that are overdue.
fn overdue_count(object: &Object) -> usize {
    let findings = object.findings.iter();
    findings.filter(|f| f.severity == Severity::Overdue).count()
}

/// Returns when the key version that the object is sealed under was created, in seconds since 1970.
/// `u64::MAX` when that is not known, so that the object comes last.
fn key_time(object: &Object) -> u64 {
    object.key_created.unwrap_or(u64::MAX)
}

/// Compares two objects by name, and then by id.
fn compare_names(a: &Object, b: &Object) -> Ordering {
    let (a, b) = (&a.record, &b.record);
    (&a.name, &a.id).cmp(&(&b.name, &b.id))
}
