//! What is known of the columns of a name of the catalog, which may mean several relations.
//!
//! Must not: look at the tree.

use strongroom_format::columns::Kind;

use super::catalog::{Catalog, Column, Presence, Relation};
use super::flow::{Columns, Flow, Origins};

/// Returns the columns of the relation `name` of the catalog. A system relation is known by name
/// only: it has unknown columns, all of them plain. `single`: no other relation may be meant.
pub(super) fn columns_of(
    catalog: &Catalog,
    relation: &Relation,
    name: &str,
    single: bool,
) -> Columns {
    // What the catalog says of the type is certain, unless a statement may be changing it.
    let is_certain = relation.presence != Presence::Announced && !catalog.is_doubted(name);
    let flow = |column: &Column| {
        let of = catalog.origin(relation, name, column).filter(|_| single);
        let origins = of.map_or(Origins::Any, |column| Origins::Of {
            columns: vec![column],
            made: false,
        });
        Flow {
            origins: Some(origins).filter(|_| is_certain && column.kind.is_some()),
            label: Some(column.name.clone()),
            ..column.flow()
        }
    };
    let columns = relation.columns.iter();
    let named: Vec<(String, Flow)> = columns
        .map(|column| (column.name.clone(), flow(column)))
        .collect();
    // PostgreSQL's own relations are known by name only.
    let is_own = match relation.schema.as_str() {
        "pg_catalog" | "information_schema" => true,
        schema => schema.starts_with("pg_toast"),
    };
    // So are those that a statement makes by a query.
    let is_unknown = is_own || relation.presence == Presence::Announced;
    let open = (is_unknown && relation.columns.is_empty()).then(Flow::plain);
    // The columns of a plain relation are not kept.
    let is_kept = named.iter().any(|(_, flow): &(_, Flow)| flow.confidential);
    Columns {
        told_from: Some(if is_kept { named.len() } else { 0 }),
        named,
        open,
        ..Columns::default()
    }
}

/// Returns the columns of a name that may mean any of several relations: a column is confidential
/// if it is so, by its name or by its position, in one of them.
pub(super) fn any_of(all: &[Columns]) -> Columns {
    let shape = |columns: &Columns| -> Vec<(String, bool, Option<Kind>)> {
        let named = columns.named.iter();
        named
            .map(|(name, flow)| (name.clone(), flow.confidential, flow.kind))
            .collect()
    };
    let (Some(first), rest) = (all.first(), all.get(1..).unwrap_or_default()) else {
        return Columns::open(Flow::unknown());
    };
    if rest.iter().all(|other| shape(other) == shape(first)) {
        return first.clone();
    }
    let mut any = Columns {
        certain: Some(0),
        ..Columns::default()
    };
    let mut places: Vec<Flow> = Vec::new();
    for columns in all {
        for (at, (name, flow)) in columns.named.iter().enumerate() {
            match any.named.iter_mut().find(|(known, _)| known == name) {
                Some((_, known)) => *known = merge_candidates(known, flow),
                None => any.named.push((name.clone(), flow.clone())),
            }
            match places.get_mut(at) {
                Some(known) => *known = merge_candidates(known, flow),
                None => places.push(flow.clone()),
            }
        }
        any.open = any.open.or_else(|| columns.open.clone());
    }
    any.places = Some(places).filter(|_| any.open.is_none());
    any
}

/// Returns what is known of a column that may be either of two: confidential if one is, and of a
/// kind only if both have it.
fn merge_candidates(one: &Flow, other: &Flow) -> Flow {
    let (confidential, same) = (
        one.confidential || other.confidential,
        one.confidential == other.confidential && one.kind == other.kind,
    );
    let origins = one.origins.clone().zip(other.origins.clone());
    Flow {
        confidential,
        kind: one.kind.filter(|_| same),
        origins: origins.map(|(one, other)| one.or(other)).filter(|_| same),
        ..Flow::plain()
    }
}
