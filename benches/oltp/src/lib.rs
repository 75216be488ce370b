//! Transactional loads for PostgreSQL, plain or with confidential columns: TPC-C ([`tpcc`]) and
//! loops of sysbench's kind ([`simple`]), over a client of their own ([`wire`]).
//!
//! The same statements go to a server and to a proxy: only the schema says which columns are
//! confidential. Must not: start a server; be quicker by leaving out what an application would do.

#![forbid(unsafe_code)]

pub mod run;
pub mod simple;
pub mod tpcc;
pub mod wire;

/// The schema of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schema {
    /// PostgreSQL's own types.
    Plain,
    /// Columns that are not keys have confidential types.
    Confidential,
}

impl Schema {
    /// The name of a type in this schema; `base` may have modifiers.
    #[must_use]
    pub fn of(self, base: &str) -> String {
        match self {
            Self::Plain => base.to_owned(),
            Self::Confidential => format!("enc_{base}"),
        }
    }

    /// The name of a type in this schema for a column that has an index: if it is confidential, its
    /// order is known to the server.
    #[must_use]
    pub fn of_indexed(self, base: &str) -> String {
        match (self, base.strip_suffix(')')) {
            (Self::Plain, _) => base.to_owned(),
            (Self::Confidential, Some(modified)) => format!("enc_{modified},ordered)"),
            (Self::Confidential, None) => format!("enc_{base}(ordered)"),
        }
    }

    /// The end of a table's definition, after its columns.
    #[must_use]
    pub fn method(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Confidential => " USING strongroom",
        }
    }
}
