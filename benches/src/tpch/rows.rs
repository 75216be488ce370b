//! Generated rows as SQLite values.
//!
//! The generator's text form (TPC-H's own .tbl, columns separated by '|') is parsed by the column's
//! kind: one path for all tables, and the stored values are what any other loader of .tbl files
//! would store.
//! Must not: be inside a measurement.

use rusqlite::types::Value;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};

use crate::Failure;
use crate::tpch::{Kind, Table};

/// Rows as text.
pub type Lines = Box<dyn Iterator<Item = String>>;

macro_rules! lines {
    ($generator:ident, $scale:expr) => {
        Box::new(
            $generator::new($scale, 1, 1)
                .iter()
                .map(|row| row.to_string()),
        )
    };
}

/// The rows of `table` at `scale` in TPC-H's own form, columns ended by `|`. Always the same.
///
/// # Errors
/// A table that TPC-H does not have.
pub fn lines(table: &Table, scale: f64) -> Result<Lines, Failure> {
    Ok(match table.name {
        "region" => lines!(RegionGenerator, scale),
        "nation" => lines!(NationGenerator, scale),
        "supplier" => lines!(SupplierGenerator, scale),
        "customer" => lines!(CustomerGenerator, scale),
        "part" => lines!(PartGenerator, scale),
        "partsupp" => lines!(PartSuppGenerator, scale),
        "orders" => lines!(OrderGenerator, scale),
        "lineitem" => lines!(LineItemGenerator, scale),
        other => return Err(format!("no generator for {other}").into()),
    })
}

/// The rows of `table` at `scale`, always the same.
///
/// # Errors
/// A table that TPC-H does not have; for a row, one that does not fit the schema.
pub fn rows(
    table: &'static Table,
    scale: f64,
) -> Result<impl Iterator<Item = Result<Vec<Value>, Failure>>, Failure> {
    Ok(lines(table, scale)?.map(|line| parse(table, &line)))
}

fn parse(table: &Table, line: &str) -> Result<Vec<Value>, Failure> {
    let fields = line.trim_end_matches('|').split('|');
    let values: Vec<Value> = fields
        .zip(table.columns)
        .map(|(field, (_, kind))| value(*kind, field))
        .collect::<Result<_, _>>()?;
    if values.len() == table.columns.len() {
        Ok(values)
    } else {
        Err(format!("{}: a row has {} columns", table.name, values.len()).into())
    }
}

fn value(kind: Kind, field: &str) -> Result<Value, Failure> {
    Ok(match kind {
        Kind::Integer => Value::Integer(field.parse()?),
        Kind::Decimal => Value::Real(field.parse()?),
        Kind::Text => Value::Text(field.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::rows;
    use crate::tpch::{TABLES, table};
    use rusqlite::types::Value;

    #[test]
    fn every_table_has_as_many_rows_as_the_scale_says() {
        for table in TABLES {
            let count = rows(table, 0.01).unwrap().map(Result::unwrap).count();
            match (table.name, table.rows_at_scale_1) {
                (_, Some(rows)) => assert_eq!(
                    count,
                    usize::try_from(rows).unwrap() / 100,
                    "{}",
                    table.name
                ),
                ("region", None) => assert_eq!(count, 5),
                ("nation", None) => assert_eq!(count, 25),
                // An order has 1 to 7 items, 4 on average.
                _ => assert!((57_000..63_000).contains(&count), "{count}"),
            }
        }
    }

    #[test]
    fn the_first_row_is_the_generator_s_documented_one() {
        let row = rows(table("lineitem").unwrap(), 1.0)
            .unwrap()
            .next()
            .unwrap()
            .unwrap();
        assert_eq!(row[0], Value::Integer(1));
        assert_eq!(row[1], Value::Integer(155_190));
        assert_eq!(row[5], Value::Real(21168.23));
        assert_eq!(row[10], Value::Text("1996-03-13".to_owned()));
        assert_eq!(row[13], Value::Text("DELIVER IN PERSON".to_owned()));
        assert_eq!(row[15], Value::Text("egular courts above the".to_owned()));
    }
}
