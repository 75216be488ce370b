//! JSON as LUKS2 uses it, read strictly: no member twice, whole numbers only, and every refusal
//! names the path of the member it is about.
//!
//! JSON that libcryptsetup has parsed and checked comes as [`serde_json::Value`]. It is read with
//! the same functions, but members, names and lengths that are not known pass:
//! [`Rules::OfLibrary`].
//!
//! Must not: convert one type into another; let depth or size grow without bound (the area is at
//! most 4 MiB, and `serde_json` stops at 128 levels).

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::error::LuksError;

/// Most key slots, and most tokens, of a volume.
pub(crate) const SLOTS_MAX: u32 = 32;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tree {
    Null,
    Bool(bool),
    Number(u64),
    /// A negative number, or a fraction in what libcryptsetup has parsed: nothing in LUKS2 is one.
    OtherNumber,
    Text(String),
    List(Vec<Self>),
    Object(BTreeMap<String, Self>),
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without fractions")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Bool(value))
    }

    /// Turns a number that is not negative into [`Tree::Number`]. A fraction is refused, because
    /// there is no method for it.
    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Number(value))
    }

    /// Turns a negative number into [`Tree::OtherNumber`].
    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(u64::try_from(value).map_or(Tree::OtherNumber, Tree::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Text(value.to_owned()))
    }

    /// Reads a list, in its order.
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Tree::List(list))
    }

    /// Reads an object. An error when a member is there twice.
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Tree, A::Error> {
        let mut object = BTreeMap::new();
        while let Some((name, value)) = members.next_entry::<String, Tree>()? {
            if object.insert(name, value).is_some() {
                return Err(A::Error::custom("a member stands twice"));
            }
        }
        Ok(Tree::Object(object))
    }
}

impl From<&Value> for Tree {
    /// Negative numbers and fractions become [`Tree::OtherNumber`].
    fn from(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Number(number) => number.as_u64().map_or(Self::OtherNumber, Self::Number),
            Value::String(text) => Self::Text(text.clone()),
            Value::Array(items) => Self::List(items.iter().map(Self::from).collect()),
            Value::Object(members) => {
                let members = members.iter();
                let members = members.map(|(name, value)| (name.clone(), Self::from(value)));
                Self::Object(members.collect())
            }
        }
    }
}

/// How much of what is not known is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rules {
    /// All of it, where it could change what the bytes mean: nobody else has read them.
    Own,
    /// What libcryptsetup has read and checked by its own rules: what a newer version of it knows
    /// passes.
    OfLibrary,
}

/// A value, its path in the JSON, and the rules by which it is read.
#[derive(Clone)]
pub(crate) struct At<'a> {
    pub(crate) path: String,
    pub(crate) value: &'a Tree,
    pub(crate) rules: Rules,
}

impl<'a> At<'a> {
    /// Returns the whole JSON as a value to be read by `rules`.
    pub(crate) fn root(value: &'a Tree, rules: Rules) -> Self {
        let path = String::new();
        Self { path, value, rules }
    }

    /// Refuses this value unless it is `known`, or libcryptsetup has accepted it.
    ///
    /// # Errors
    /// [`LuksError::Damaged`] with the value's path.
    pub(crate) fn must_be_known(&self, known: bool) -> Result<(), LuksError> {
        if known || self.rules == Rules::OfLibrary {
            return Ok(());
        }
        Err(self.refused())
    }

    /// Returns the error that refuses this value: [`LuksError::Damaged`] with its path.
    pub(crate) fn refused(&self) -> LuksError {
        LuksError::damaged(if self.path.is_empty() {
            "JSON area"
        } else {
            &self.path
        })
    }

    /// Returns its members. [`LuksError::Damaged`] when it is not an object.
    pub(crate) fn object(&self) -> Result<&'a BTreeMap<String, Tree>, LuksError> {
        match self.value {
            Tree::Object(object) => Ok(object),
            _ => Err(self.refused()),
        }
    }

    /// Returns all members with their names, in the order of the names. [`LuksError::Damaged`] when
    /// it is not an object.
    pub(crate) fn members(&self) -> Result<Vec<(&'a str, Self)>, LuksError> {
        let members = self.object()?.iter();
        Ok(members
            .map(|(name, value)| (name.as_str(), self.child(name, value)))
            .collect())
    }

    /// Refuses members other than these, unless libcryptsetup has accepted them.
    ///
    /// # Errors
    /// [`LuksError::Damaged`] with the path of the first such member, or when it is not an object.
    pub(crate) fn only(&self, names: &[&str]) -> Result<(), LuksError> {
        if self.rules == Rules::OfLibrary {
            return Ok(());
        }
        let unknown = self
            .object()?
            .keys()
            .find(|name| !names.contains(&name.as_str()));
        unknown.map_or(Ok(()), |name| Err(LuksError::damaged(self.path_of(name))))
    }

    /// Returns the member of this name. [`LuksError::Damaged`] when there is none, or this is not
    /// an object.
    pub(crate) fn member(&self, name: &str) -> Result<Self, LuksError> {
        self.optional(name)?
            .ok_or_else(|| LuksError::damaged(self.path_of(name)))
    }

    /// Returns the member of this name, `None` when there is none. [`LuksError::Damaged`] when this
    /// is not an object.
    pub(crate) fn optional(&self, name: &str) -> Result<Option<Self>, LuksError> {
        let value = self.object()?.get(name);
        Ok(value.map(|value| self.child(name, value)))
    }

    /// Returns the items of a list. [`LuksError::Damaged`] when it is not one.
    pub(crate) fn list(&self) -> Result<Vec<Self>, LuksError> {
        let Tree::List(list) = self.value else {
            return Err(self.refused());
        };
        let items = list.iter().enumerate();
        Ok(items
            .map(|(index, value)| self.child(&index.to_string(), value))
            .collect())
    }

    /// Returns its text. [`LuksError::Damaged`] when it is not a text.
    pub(crate) fn text(&self) -> Result<&'a str, LuksError> {
        match self.value {
            Tree::Text(text) => Ok(text),
            _ => Err(self.refused()),
        }
    }

    /// Returns a number of 32 bits, which LUKS2 writes as a number. [`LuksError::Damaged`] for
    /// anything else.
    pub(crate) fn u32(&self) -> Result<u32, LuksError> {
        match self.value {
            Tree::Number(number) => u32::try_from(*number).map_err(|_| self.refused()),
            _ => Err(self.refused()),
        }
    }

    /// Returns a number of 64 bits, which LUKS2 writes as text. [`LuksError::Damaged`] for anything
    /// else.
    pub(crate) fn u64_text(&self) -> Result<u64, LuksError> {
        decimal(self.text()?).ok_or_else(|| self.refused())
    }

    /// Returns a list of texts. [`LuksError::Damaged`] when one of them is there twice or not a
    /// text.
    pub(crate) fn texts(&self) -> Result<Vec<String>, LuksError> {
        let mut texts: Vec<String> = Vec::new();
        for item in self.list()? {
            let text = item.text()?;
            if texts.iter().any(|known| known == text) {
                return Err(item.refused());
            }
            texts.push(text.to_owned());
        }
        Ok(texts)
    }

    /// Returns a list of numbers of 32 bits that are written as text. [`LuksError::Damaged`] when
    /// one of them is there twice or has another form.
    pub(crate) fn numbers(&self) -> Result<Vec<u32>, LuksError> {
        let texts = self.texts()?.into_iter();
        let numbers = texts.map(|text| {
            decimal(&text)
                .and_then(|number| u32::try_from(number).ok())
                .ok_or_else(|| self.refused())
        });
        numbers.collect()
    }

    /// Returns bytes from base64, as many as one of `lengths`; of any number when libcryptsetup has
    /// accepted them.
    ///
    /// # Errors
    /// [`LuksError::Damaged`] when the text is not canonical base64, or the length is another one.
    pub(crate) fn base64(&self, lengths: &[usize]) -> Result<Vec<u8>, LuksError> {
        let bytes = base64(self.text()?).ok_or_else(|| self.refused())?;
        self.must_be_known(lengths.contains(&bytes.len()))?;
        Ok(bytes)
    }

    /// Returns a value within this one, with its path and the same rules.
    fn child(&self, name: &str, value: &'a Tree) -> Self {
        let (path, rules) = (self.path_of(name), self.rules);
        At { path, value, rules }
    }

    /// Returns the path of a member, for errors. The name is cut after 40 characters, and control
    /// characters are replaced.
    pub(crate) fn path_of(&self, name: &str) -> String {
        let name: String = name.chars().take(40).map(harmless).collect();
        if self.path.is_empty() {
            name
        } else {
            format!("{}.{name}", self.path)
        }
    }
}

/// Replaces a control character, and returns any other unchanged: a header can be an attacker's
/// text, and must not control a terminal that shows it.
pub(crate) fn harmless(c: char) -> char {
    if c.is_control() { '\u{fffd}' } else { c }
}

/// Reads a number from decimal digits. `None` when there are other characters or leading zeros, or
/// more than 64 bits.
pub(crate) fn decimal(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let canonical = digits && (text.len() == 1 || !text.starts_with('0'));
    canonical.then(|| text.parse().ok()).flatten()
}

/// Decodes base64 (RFC 4648, section 4). `None` unless the text is canonical: with its padding,
/// without other characters, and with zeros in the bits after the last byte.
fn base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Tree> {
        serde_json::from_str(text).ok()
    }

    #[test]
    fn a_member_twice_and_fractions_are_refused() {
        assert!(read(r#"{"a":1,"b":[true,null,"x"]}"#).is_some());
        for text in [
            r#"{"a":1,"a":1}"#,
            r#"{"x":{"a":1,"a":2}}"#,
            "1.5",
            "1e3",
            "18446744073709551616",
            "",
            "{",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(read("-1"), Some(Tree::OtherNumber));
        assert_eq!(read(&"[".repeat(100_000)), None);
    }

    #[test]
    fn numbers_in_text_are_canonical() {
        assert_eq!(decimal("0"), Some(0));
        assert_eq!(decimal("18446744073709551615"), Some(u64::MAX));
        for text in [
            "",
            "00",
            "01",
            "-1",
            "+1",
            " 1",
            "1 ",
            "0x1",
            "18446744073709551616",
            "dynamic",
        ] {
            assert_eq!(decimal(text), None, "{text}");
        }
    }

    #[test]
    fn base64_is_canonical() {
        assert_eq!(base64("").as_deref(), Some(b"".as_slice()));
        assert_eq!(base64("AA==").as_deref(), Some([0].as_slice()));
        assert_eq!(base64("//8=").as_deref(), Some([255, 255].as_slice()));
        assert_eq!(base64("Zm9v").as_deref(), Some(b"foo".as_slice()));
        for text in [
            "A", "AA", "AB==", "//9=", "====", "AAA=AAAA", "A===", "Zm9v\n", "Zm-v",
        ] {
            assert_eq!(base64(text), None, "{text}");
        }
    }
}
