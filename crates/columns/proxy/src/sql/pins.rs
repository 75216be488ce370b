//! Columns that the data owner knows to be confidential, whatever the server says.
//!
//! Must not: believe the server's catalog about a pinned column.

use strongroom_format::columns::Class;

use super::catalog::Catalog;

/// A column that the data owner knows to be confidential, whatever the server says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedColumn {
    /// Schema.
    pub schema: String,
    /// Relation.
    pub relation: String,
    /// Column.
    pub column: String,
    /// What the server may learn of its values without a session.
    pub class: Class,
}

impl PinnedColumn {
    /// Parses `schema.relation.column`, as in the catalog, without quotes, for an opaque column;
    /// with `:ordered` or `:equality` behind it for a column of that class. `None` unless there are
    /// three parts; empty parts do not count.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let named = text.rsplit_once(':').and_then(|(name, class)| {
            let class = Class::from_name(class).filter(|class| class.is_comparable())?;
            Some((name, class))
        });
        let (text, class) = named.unwrap_or((text, Class::Opaque));
        let mut parts = text.split('.').filter(|part| !part.is_empty());
        let (schema, relation, column) = (parts.next()?, parts.next()?, parts.next()?);
        let pinned = Self {
            schema: schema.to_owned(),
            relation: relation.to_owned(),
            column: column.to_owned(),
            class,
        };
        parts.next().is_none().then_some(pinned)
    }
}

impl std::fmt::Display for PinnedColumn {
    /// Writes `schema.relation.column`, without quotes, and the class behind a colon unless it is
    /// opaque.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.schema, self.relation, self.column)?;
        match self.class {
            Class::Opaque => Ok(()),
            class => write!(f, ":{}", class.name()),
        }
    }
}

impl Catalog {
    /// Pins the columns that the data owner knows to be confidential.
    ///
    /// # Errors
    /// The first of them that the server calls plain, or does not name, or of whose values it
    /// would learn more without a session than its pinned class says: a database without the
    /// extension or the relation would get every constant for it in clear, and an ordered column
    /// would show the order of its values. Those before it stay pinned.
    pub fn pin<'p>(&mut self, pinned: &'p [PinnedColumn]) -> Result<(), &'p PinnedColumn> {
        for pinned in pinned {
            let found = self
                .relations(&pinned.schema, &pinned.relation)
                .find_map(|relation| {
                    let mut columns = relation.columns.iter();
                    let column = columns.find(|column| column.name == pinned.column)?;
                    let sound = column.class() <= pinned.class;
                    column.kind.filter(|_| sound)?;
                    Some((relation.oid, column.place))
                });
            match found {
                Some(place) => drop(self.pinned.insert(place)),
                None => return Err(pinned),
            }
        }
        Ok(())
    }

    /// Returns whether the column that the server names as the origin of a result's column is
    /// pinned. `relation` is its OID, `column` its number; `false` for OID 0, which means no column
    /// of a relation.
    pub(crate) fn is_pinned(&self, relation: u32, column: i16) -> bool {
        relation != 0 && self.pinned.contains(&(relation, column))
    }
}

#[cfg(test)]
mod tests {
    use strongroom_format::columns::Kind;

    use super::*;
    use crate::sql::tests::catalog_rows;

    #[test]
    fn a_pinned_column_is_written_as_it_is_read() {
        for (text, class) in [
            ("public.staff.pay", Class::Opaque),
            ("public.staff.mail:equality", Class::Equality),
            ("public.staff.name:ordered", Class::Ordered),
        ] {
            let pinned = PinnedColumn::parse(text).expect(text);
            assert_eq!(pinned.class, class);
            assert_eq!(pinned.to_string(), text);
        }
        for bad in [
            "",
            "staff.pay",
            "a.b.c.d",
            "a.b.",
            ":ordered",
            "a.b:equality",
        ] {
            assert_eq!(PinnedColumn::parse(bad), None, "{bad}");
        }
        // A class that does not exist, or needs no word, is part of a name.
        for text in ["a.b.c:opaque", "a.b.c:Ordered", "a.b.c:", "a.b.c:unique"] {
            let pinned = PinnedColumn::parse(text).expect(text);
            assert_eq!((pinned.class, &*pinned.column), (Class::Opaque, &text[4..]));
        }
    }

    /// The server may say of a pinned column that it tells less than its owner grants, never more.
    #[test]
    fn the_catalog_grants_no_more_than_the_pin() {
        for pinned in Class::ALL {
            for found in Class::ALL {
                let mut rows = catalog_rows(&[]);
                let of = (90_000 + u32::from(Kind::Text.number())).to_string();
                let modifier = found.modifier().to_string();
                let row = ["r", "public", "t", "00001", "c", &of, "7", &modifier, "own"];
                rows.push(row.map(|field| Some(field.to_owned())).to_vec());
                let mut catalog = Catalog::from_rows(&rows);
                let mut pin = PinnedColumn::parse("public.t.c").expect("three parts");
                pin.class = *pinned;
                let refused = catalog.pin(std::slice::from_ref(&pin)).is_err();
                assert_eq!(refused, found > pinned, "{pinned:?}, {found:?}");
            }
        }
    }
}
