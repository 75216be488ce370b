//! What is asked of documents: a part of one, and whether one is in another
//! (src/backend/utils/adt/jsonfuncs.c, `jsonb_op.c`, `jsonb_util.c`).
//!
//! Where PostgreSQL gives NULL there is `Fault::NoSuchPart`: a confidential value cannot be NULL.
//! Must not: search for longer than [`STEPS_MAX`] allows.

use strongroom_columns_ring::Fault;

use super::{Digits, Document, Node, fault, significant};
use crate::value::{Out, Value};

/// How many values are compared before a search is given up, long texts counted as several.
const STEPS_MAX: usize = 1 << 22;
/// Bytes of a text that count as one step.
const STEP_LEN: usize = 64;

/// In which form a part is given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As a document.
    Document,
    /// As text, a string without quotes.
    Text,
}

/// Sets `out` to the member of this name (`jsonb_object_field`). `Fault::NoSuchPart` if the
/// document is no object, or has none; of a text, also for a null.
pub(crate) fn member(of: Value<'_>, name: &str, form: Form, out: &mut Out) -> Result<(), Fault> {
    let document = Document::of(of)?;
    let node = document.member(document.root, name.as_bytes());
    document.give(node, form, out)
}

/// Sets `out` to the element at this place, from 0, or from the end for a negative one
/// (`jsonb_array_element`). `Fault::NoSuchPart` as [`member`]. For the server a scalar is an array
/// of one element.
pub(crate) fn element(of: Value<'_>, place: i32, form: Form, out: &mut Out) -> Result<(), Fault> {
    let document = Document::of(of)?;
    let found = |items: &[usize]| {
        let distance = usize::try_from(place.unsigned_abs()).ok()?;
        let at = match place {
            0.. => distance,
            _ => items.len().checked_sub(distance)?,
        };
        items.get(at).copied()
    };
    let node = match document.root() {
        Some(Node::Array(items)) => found(items),
        Some(Node::Object(_)) | None => None,
        Some(_) => found(&[document.root]),
    };
    document.give(node, form, out)
}

/// Whether an object has a member of this name, or an array a string (`jsonb_exists`).
pub(crate) fn exists(of: Value<'_>, name: &str) -> Result<bool, Fault> {
    let (document, name) = (Document::of(of)?, name.as_bytes());
    let is_name = |node: Option<&Node>| matches!(node, Some(Node::String(text)) if document.text(*text) == name);
    Ok(match document.root() {
        Some(Node::Object(_)) => document.member(document.root, name).is_some(),
        Some(Node::Array(items)) => items.iter().any(|item| is_name(document.nodes.get(*item))),
        root => is_name(root),
    })
}

/// Whether `part` is contained in `whole` (`jsonb_contains`). `Fault::StringTooLong` when that
/// takes too long.
pub(crate) fn contains(whole: Value<'_>, part: Value<'_>) -> Result<bool, Fault> {
    let (whole, part) = (Document::of(whole)?, Document::of(part)?);
    let mut search = Search {
        whole: &whole,
        part: &part,
        steps: 0,
    };
    match (whole.root(), part.root()) {
        (Some(Node::Array(_) | Node::Object(_)), Some(Node::Array(_) | Node::Object(_))) => {
            search.contains(whole.root, part.root)
        }
        // A scalar is contained in an array that has it.
        (Some(Node::Array(items)), Some(_)) => search.has_scalar(items, part.root),
        (Some(Node::Object(_)), _) | (_, Some(Node::Array(_) | Node::Object(_))) => Ok(false),
        _ => search.is_same_scalar(whole.root, part.root),
    }
}

impl Document {
    /// The value of the member of this name. `None` if the node is no object that has one.
    fn member(&self, node: usize, name: &[u8]) -> Option<usize> {
        let Some(Node::Object(members)) = self.nodes.get(node) else {
            return None;
        };
        let found = members.binary_search_by(|(known, _)| {
            let known = self.text(*known);
            let lengths = known.len().cmp(&name.len());
            lengths.then_with(|| known.cmp(name))
        });
        found
            .ok()
            .and_then(|at| members.get(at))
            .map(|(_, value)| *value)
    }

    /// Sets `out` to a node in this form. `Fault::NoSuchPart` without one, and for the text of a
    /// null.
    fn give(&self, node: Option<usize>, form: Form, out: &mut Out) -> Result<(), Fault> {
        let node = node.ok_or(Fault::NoSuchPart)?;
        match (form, self.nodes.get(node)) {
            (Form::Text, Some(Node::Null)) | (_, None) => Err(Fault::NoSuchPart),
            (Form::Text, Some(Node::String(text))) => {
                out.set_bytes(self.text(*text));
                Ok(())
            }
            _ => self.print(node, Digits::All, out.begin(0)).map_err(fault),
        }
    }
}

/// A search for a document within another one.
struct Search<'d> {
    whole: &'d Document,
    part: &'d Document,
    steps: usize,
}

impl Search<'_> {
    /// Whether the container `part` is contained in `whole` (`JsonbDeepContains`). Recurses at most
    /// as deep as documents are.
    fn contains(&mut self, whole: usize, part: usize) -> Result<bool, Fault> {
        self.count(1)?;
        match (self.whole.nodes.get(whole), self.part.nodes.get(part)) {
            (Some(Node::Object(_)), Some(Node::Object(members))) => {
                for (name, wanted) in members {
                    let name = self.part.text(*name);
                    self.count(1 + name.len() / STEP_LEN)?;
                    let Some(found) = self.whole.member(whole, name) else {
                        return Ok(false);
                    };
                    if !self.is_same_or_contains(found, *wanted)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Some(Node::Array(items)), Some(Node::Array(wanted))) => {
                for one in wanted {
                    if !self.has(items, *one)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Whether one of the items is the same scalar as `part`, or a container that contains it.
    fn has(&mut self, items: &[usize], part: usize) -> Result<bool, Fault> {
        for item in items {
            if self.is_same_or_contains(*item, part)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether one of the items is the same scalar as `part`.
    fn has_scalar(&mut self, items: &[usize], part: usize) -> Result<bool, Fault> {
        for item in items {
            if self.is_same_scalar(*item, part)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_same_or_contains(&mut self, whole: usize, part: usize) -> Result<bool, Fault> {
        match self.part.nodes.get(part) {
            Some(Node::Array(_) | Node::Object(_)) => self.contains(whole, part),
            _ => self.is_same_scalar(whole, part),
        }
    }

    /// Whether two scalars are equal (`equalsJsonbScalarValue`); `false` if one is none.
    fn is_same_scalar(&mut self, whole: usize, part: usize) -> Result<bool, Fault> {
        self.count(1)?;
        match (self.whole.nodes.get(whole), self.part.nodes.get(part)) {
            (Some(Node::Null), Some(Node::Null)) => Ok(true),
            (Some(Node::Bool(one)), Some(Node::Bool(other))) => Ok(one == other),
            (Some(Node::String(one)), Some(Node::String(other))) => {
                let (one, other) = (self.whole.text(*one), self.part.text(*other));
                self.count(other.len() / STEP_LEN)?;
                Ok(one == other)
            }
            (Some(Node::Number(one)), Some(Node::Number(other))) => {
                let (one, other) = (self.whole.text(*one), self.part.text(*other));
                self.count(other.len() / STEP_LEN)?;
                Ok(significant(one) == significant(other))
            }
            _ => Ok(false),
        }
    }

    /// Counts steps. `Fault::StringTooLong` after [`STEPS_MAX`].
    fn count(&mut self, steps: usize) -> Result<(), Fault> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps > STEPS_MAX {
            return Err(Fault::StringTooLong);
        }
        Ok(())
    }
}
