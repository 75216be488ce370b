//! What the proxy has learned of relations and functions, and the lines of the file that keeps
//! them.
//!
//! Must not: hold a value.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use serde_json::{Value, json};
use strongroom_format::columns::Kind;
use strongroom_keyring::durable;

use super::shape::{PLAIN, PartOf, Shape, difference, shape_of};
use crate::sql::catalog::{Column, Presence, Relation};
use crate::sql::comparable::{ColumnPath, LineageNames};

/// First lines of the file.
const HEADING: &str = "# Columns of relations with confidential columns, as the proxy saw them first. Written by\n\
     # `strongroom columns proxy`; `strongroom columns pins` shows and forgets them.\n";

/// What names a relation: the server's address, database, schema, name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RelationName {
    /// The server's address, as the proxy was told.
    pub server: String,
    /// Database.
    pub database: String,
    /// Schema.
    pub schema: String,
    /// Name.
    pub relation: String,
}

/// The relations that are known, by their names.
pub type Shapes = BTreeMap<RelationName, Shape>;

impl RelationName {
    /// Its schema and name.
    pub(super) fn path(&self) -> (&str, &str) {
        (&self.schema, &self.relation)
    }
}

/// What names a function: the server's address, database and name, in whatever schema.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FunctionName {
    /// The server's address, as the proxy was told.
    pub server: String,
    /// Database.
    pub database: String,
    /// Name.
    pub function: String,
}

/// What names a column: the server's address, database, and the names of schema, relation and
/// column; of a partition the table at the top of its hierarchy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ColumnName {
    /// The server's address, as the proxy was told.
    pub server: String,
    /// Database.
    pub database: String,
    /// Schema, relation, column.
    pub path: ColumnPath,
}

/// Everything that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Relations with a confidential column.
    pub relations: Shapes,
    /// Functions with a confidential argument or result.
    pub functions: BTreeSet<FunctionName>,
    /// By column, the names that its lineage is made from, where the data owner has said that these
    /// are not its own.
    pub adopted: BTreeMap<ColumnName, LineageNames>,
}

/// Returns the relation with this shape, of which the catalog says nothing any more, for statements
/// that name it without a schema: they find one of the `others`, which have its name in other
/// schemas. It differs unless all of those have the same columns.
pub(super) fn gone<'o>(
    name: &RelationName,
    shape: &Shape,
    mut others: impl Iterator<Item = &'o Relation>,
) -> Relation {
    let alike = others.all(|other| shape.allows(&shape_of(other)));
    let column = |(name, what): &(String, String)| {
        let base = what.strip_prefix("enc_").unwrap_or_default();
        let base = base.split('(').next().unwrap_or_default();
        let kind = Kind::ALL.iter().find(|kind| kind.base() == base).copied();
        Column {
            name: name.clone(),
            kind,
            holds_confidential: kind.is_none() && what != PLAIN,
            place: 0,
            modifier: -1,
        }
    };
    let differs = format!(
        "{}.{} is gone, and another relation has its name",
        name.schema, name.relation
    );
    Relation {
        schema: name.schema.clone(),
        oid: 0,
        columns: shape
            .columns
            .iter()
            .chain(&shape.defined)
            .map(column)
            .collect(),
        root: match &shape.part_of {
            PartOf::Table(schema, name) => Some((schema.clone(), name.clone())),
            PartOf::Nothing | PartOf::Any => None,
        },
        is_view: false,
        has_own_rows: false,
        presence: Presence::Gone,
        differs: Some(differs).filter(|_| !alike),
    }
}

/// Learns a relation that is new and has a confidential column, or new columns of a known one;
/// marks one that is not what it was.
pub(super) fn learn_or_mark(known: &mut Shapes, name: RelationName, relation: &mut Relation) {
    let shape = shape_of(relation);
    match known.get_mut(&name) {
        None if shape.is_plain() => {}
        None => drop(known.insert(name, shape)),
        Some(before) if !before.allows(&shape) => {
            relation.differs = Some(difference(&name, before, &shape));
        }
        Some(_) if shape.is_plain() => drop(known.remove(&name)),
        Some(before) => *before = shape,
    }
}

/// Marks a relation that is not what is known of it, or not what it was within the same
/// transaction; notes what it is there. Learns nothing.
pub(super) fn note_or_mark(
    (known, within): (&Shapes, &mut Shapes),
    name: RelationName,
    relation: &mut Relation,
) {
    let shape = shape_of(relation);
    let of_known = known.get(&name);
    let why = of_known.and_then(|before| before.against(&name, &shape));
    let of_before = || within.get(&name)?.against(&name, &shape);
    relation.differs = why.or_else(of_before);
    if relation.differs.is_none() && !shape.is_plain() {
        within.insert(name, shape);
    }
}

/// What is in the file; nothing if there is none. `InvalidData` for a file that does not begin with
/// a comment, and a line that this version does not understand, or with a member that it
/// does not know: it would be lost when the file is written anew.
pub(super) fn read(path: &Path) -> io::Result<Known> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Known::default()),
        Err(error) => return Err(error),
    };
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let mut known = Known::default();
    let all = lines.map(|line| known.add_line(line));
    let all: Option<()> = all.collect();
    let known = all.map(|()| known);
    known.filter(|_| text.starts_with('#')).ok_or_else(|| {
        let what = "it is not a list of relations with its heading, or a newer version of \
                    Strongroom has written it, whose proxy can read it (SR-3002)";
        io::Error::new(io::ErrorKind::InvalidData, what)
    })
}

/// Replaces the file by one with what is known.
pub(super) fn write(path: &Path, known: &Known) -> io::Result<()> {
    let mut text = String::from(HEADING);
    let relations = known.relations.iter();
    let relations = relations.map(|(name, shape)| relation_to_json(name, shape));
    let functions = known.functions.iter().map(function_to_json);
    let adopted = known.adopted.iter();
    let adopted = adopted.map(|(name, lineage_of)| adopted_to_json(name, lineage_of));
    for line in relations.chain(functions).chain(adopted) {
        text.push_str(&line.to_string());
        text.push('\n');
    }
    durable::replace(path, text.as_bytes(), 0o600)
}

/// A relation as JSON, which is a line of the file.
#[must_use]
pub fn relation_to_json(name: &RelationName, shape: &Shape) -> Value {
    let mut line = json!({
        "server": name.server,
        "database": name.database,
        "schema": name.schema,
        "relation": name.relation,
        "part_of": match &shape.part_of {
            PartOf::Nothing => Value::Null,
            PartOf::Table(schema, name) => json!([schema, name]),
            PartOf::Any => json!("any"),
        },
        "columns": shape.columns,
    });
    if let Some(line) = line.as_object_mut().filter(|_| !shape.defined.is_empty()) {
        line.insert("defined".to_owned(), json!(shape.defined));
    }
    if let (Some(line), Some(elsewhere)) = (line.as_object_mut(), &shape.elsewhere) {
        line.insert("elsewhere".to_owned(), json!(elsewhere));
    }
    line
}

/// A function as JSON, which is a line of the file.
#[must_use]
pub fn function_to_json(name: &FunctionName) -> Value {
    json!({
        "server": name.server,
        "database": name.database,
        "function": name.function,
    })
}

/// A column that has the lineage of another name as JSON, which is a line of the file.
#[must_use]
pub fn adopted_to_json(name: &ColumnName, lineage_of: &LineageNames) -> Value {
    let [schema, relation, column] = &name.path;
    json!({
        "server": name.server,
        "database": name.database,
        "schema": schema,
        "relation": relation,
        "column": column,
        "lineage_of": lineage_of,
    })
}

impl Known {
    /// Adds what a line says. `None` for a line that is not understood.
    fn add_line(&mut self, line: &str) -> Option<()> {
        let value: Value = serde_json::from_str(line).ok()?;
        let understood = if !value["lineage_of"].is_null() {
            let (name, lineage_of) = adopted_of(&value)?;
            let understood = adopted_to_json(&name, &lineage_of);
            self.adopted.insert(name, lineage_of);
            understood
        } else if value["function"].is_null() {
            let (name, shape) = relation_of(&value)?;
            let understood = relation_to_json(&name, &shape);
            self.relations.insert(name, shape);
            understood
        } else {
            let name = function_of(&value)?;
            let understood = function_to_json(&name);
            self.functions.insert(name);
            understood
        };
        let mut members = value.as_object()?.keys();
        members
            .all(|member| understood.get(member).is_some())
            .then_some(())
    }
}

/// The column of a line, and the names that its lineage is made from. `None` for another line.
fn adopted_of(value: &Value) -> Option<(ColumnName, LineageNames)> {
    let text = |of: &Value| of.as_str().map(str::to_owned);
    let name = ColumnName {
        server: text(&value["server"])?,
        database: text(&value["database"])?,
        path: [
            text(&value["schema"])?,
            text(&value["relation"])?,
            text(&value["column"])?,
        ],
    };
    let lineage_of: Option<Vec<String>> = value["lineage_of"]
        .as_array()
        .and_then(|parts| parts.iter().map(text).collect());
    Some((name, lineage_of?.try_into().ok()?))
}

/// The function of a line. `None` for another line.
fn function_of(value: &Value) -> Option<FunctionName> {
    let text = |of: &Value| of.as_str().map(str::to_owned);
    Some(FunctionName {
        server: text(&value["server"])?,
        database: text(&value["database"])?,
        function: text(&value["function"])?,
    })
}

/// The relation of a line. `None` for another line.
fn relation_of(value: &Value) -> Option<(RelationName, Shape)> {
    let text = |of: &Value| of.as_str().map(str::to_owned);
    let name = RelationName {
        server: text(&value["server"])?,
        database: text(&value["database"])?,
        schema: text(&value["schema"])?,
        relation: text(&value["relation"])?,
    };
    let pair = |of: &Value| match of.as_array()?.as_slice() {
        [first, second] => Some((text(first)?, text(second)?)),
        _ => None,
    };
    let pairs = |of: &Value| of.as_array()?.iter().map(pair).collect::<Option<Vec<_>>>();
    let shape = Shape {
        part_of: match &value["part_of"] {
            Value::Null => PartOf::Nothing,
            Value::String(any) if any == "any" => PartOf::Any,
            root => pair(root).map(|(schema, name)| PartOf::Table(schema, name))?,
        },
        columns: pairs(&value["columns"])?,
        defined: match &value["defined"] {
            Value::Null => Vec::new(),
            defined => pairs(defined)?,
        },
        elsewhere: match &value["elsewhere"] {
            Value::Null => None,
            schemas => Some(
                schemas
                    .as_array()?
                    .iter()
                    .map(text)
                    .collect::<Option<_>>()?,
            ),
        },
    };
    Some((name, shape))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn golden(name: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../../testing/vectors/columns-proxy")
            .join(name)
    }

    /// Asserts that a file with what is known is the golden one.
    #[track_caller]
    fn is_written_as(known: &Known, name: &str) {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pins");
        write(&path, known).unwrap();
        assert_eq!(
            std::fs::read_to_string(path).unwrap(),
            std::fs::read_to_string(golden(name)).unwrap()
        );
    }

    /// The file as version 0.1.0 writes it. It is never changed.
    #[test]
    fn the_golden_file_is_read_and_written_as_it_is() {
        let known = read(&golden("1.pins")).unwrap();
        let server = "127.0.0.1:5432".to_owned();
        let relation = |relation: &str| RelationName {
            server: server.clone(),
            database: "app".to_owned(),
            schema: "public".to_owned(),
            relation: relation.to_owned(),
        };
        let shape = |part_of: Option<&str>, last: (&str, &str)| Shape {
            part_of: part_of.map_or(PartOf::Nothing, |root| {
                PartOf::Table("public".to_owned(), root.to_owned())
            }),
            columns: [("id", PLAIN), ("salary", "enc_numeric(ordered)"), last]
                .map(|(name, what)| (name.to_owned(), what.to_owned()))
                .to_vec(),
            defined: Vec::new(),
            elsewhere: None,
        };
        let part = shape(Some("staff"), ("marks", "holds confidential values"));
        let relations = [
            (relation("staff"), shape(None, ("note", "enc_text"))),
            (relation("staff_2026"), part),
        ];
        assert_eq!(known.relations, relations.into());
        let function = FunctionName {
            server,
            database: "app".to_owned(),
            function: "score".to_owned(),
        };
        assert_eq!(known.functions, [function].into());
        is_written_as(&known, "1.pins");
    }

    /// The file with a column that was adopted. It is never changed.
    #[test]
    fn the_golden_file_with_other_names_is_read_and_written_as_it_is() {
        let known = read(&golden("2.pins")).unwrap();
        let level = ColumnName {
            server: "127.0.0.1:5432".to_owned(),
            database: "app".to_owned(),
            path: ["public", "staff", "level"].map(str::to_owned),
        };
        let grade = ["app", "public", "staff", "grade"].map(str::to_owned);
        assert_eq!(known.adopted, [(level, grade)].into());
        assert_eq!(known.relations.len(), 2);
        is_written_as(&known, "2.pins");
    }

    /// The file after statements of the owner that are not looked at yet. It is never changed.
    #[test]
    fn the_golden_file_with_definitions_is_read_and_written_as_it_is() {
        let known = read(&golden("3.pins")).unwrap();
        let shapes: Vec<&Shape> = known.relations.values().collect();
        let pairs = |columns: &[(&str, &str)]| -> Vec<(String, String)> {
            let columns = columns.iter();
            columns
                .map(|(name, what)| ((*name).to_owned(), (*what).to_owned()))
                .collect()
        };
        let defined = Shape {
            part_of: PartOf::Any,
            columns: Vec::new(),
            defined: pairs(&[("name", "enc_text")]),
            elsewhere: None,
        };
        let changed = Shape {
            part_of: PartOf::Any,
            columns: pairs(&[
                ("id", PLAIN),
                ("salary", "enc_numeric"),
                ("note", "changed"),
            ]),
            defined: pairs(&[("more", "enc_int4(equality)")]),
            elsewhere: None,
        };
        assert_eq!(shapes, [&defined, &changed]);
        is_written_as(&known, "3.pins");
    }

    /// The file after a table was made without its schema, when two schemas had one of its name. It
    /// is never changed.
    #[test]
    fn the_golden_file_with_other_schemas_is_read_and_written_as_it_is() {
        let known = read(&golden("4.pins")).unwrap();
        let shapes: Vec<&Shape> = known.relations.values().collect();
        let name = ("name".to_owned(), "enc_text".to_owned());
        let made = Shape {
            part_of: PartOf::Nothing,
            columns: vec![("id".to_owned(), PLAIN.to_owned()), name.clone()],
            defined: vec![name],
            elsewhere: Some(["archive", "tenant"].map(str::to_owned).into()),
        };
        assert_eq!(shapes, [&made]);
        is_written_as(&known, "4.pins");
    }

    #[test]
    fn what_a_newer_version_has_written_is_not_overwritten() {
        let text = std::fs::read_to_string(golden("1.pins")).unwrap();
        let adopted = std::fs::read_to_string(golden("2.pins")).unwrap();
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pins");
        let newer = [
            text.replace("\"database\"", "\"cluster\":1,\"database\""),
            text.replace("\"function\"", "\"arguments\":1,\"function\""),
            format!("{text}{{\"view\":\"staff\"}}\n"),
            adopted.replace("\"column\":\"level\"", "\"index\":1,\"column\":\"level\""),
            adopted.replace("\"lineage_of\":[\"app\"", "\"lineage_of\":[\"1\",\"app\""),
        ];
        for bad in newer {
            durable::replace(&path, bad.as_bytes(), 0o600).unwrap();
            let refused = read(&path).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{bad}");
            assert!(refused.to_string().contains("newer version"));
        }
    }
}
