//! The walk over definitions of tables: columns, defaults, constraints, partition bounds.
//!
//! Must not: take a column for a plain one whose type is not known.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AlterTableStmt, AlterTableType, ColumnDef, ConstrType, Constraint, CreateStmt, Node,
    PartitionBoundSpec, TypeName, a_const,
};
use strongroom_format::columns::{Class, Kind};

use super::catalog::{Catalog, Column};
use super::comparable::ComparableColumn;
use super::flow::{Columns, Flow};
use super::functions;
use super::plain_definition::WITHOUT_VALUES;
use super::refusal::Refusal;
use super::resolver::{Resolver, Source};
use super::tree::{integer, names, schema_and_name, schema_of};

/// Returns the kind of a column that is defined with this type. `None` if the type is not
/// confidential.
pub(super) fn kind_from_definition(of: Option<&TypeName>) -> Option<Kind> {
    functions::confidential_type(names(&of?.names).last()?)
}

/// Returns the modifier that PostgreSQL makes of a confidential type's words: the class, and
/// precision and scale of a numeric. -1 without words that it would take.
pub(super) fn modifier_from_definition(of: Option<&TypeName>) -> i32 {
    let words = of.map_or(&[][..], |of| of.typmods.as_slice());
    let class = words.iter().find_map(|word| match word.node.as_ref()? {
        NodeEnum::ColumnRef(word) => Class::from_name(names(&word.fields).first()?),
        NodeEnum::AConst(word) => match word.val.as_ref()? {
            a_const::Val::Sval(word) => Class::from_name(&word.sval),
            _ => None,
        },
        _ => None,
    });
    let numbers: Vec<i32> = words.iter().filter_map(integer).collect();
    let class = class.unwrap_or_default().modifier();
    match numbers.as_slice() {
        [] if words.is_empty() => -1,
        [] => class,
        [precision, rest @ ..] => {
            let scale = rest.first().copied().unwrap_or(0);
            let packed = ((precision & 0x7ff) << 16 | scale & 0x7ff).saturating_add(4);
            class | packed
        }
    }
}

/// Returns a defined column's name, and what its type says of its values: confidential, unknown if
/// the type holds confidential values or is not named here, else plain.
pub(super) fn column_from_definition(catalog: &Catalog, column: &ColumnDef) -> (String, Flow) {
    let of = column.type_name.as_ref();
    let parts = of.map(|of| names(&of.names)).unwrap_or_default();
    let name = parts.last().copied();
    let flow = match (kind_from_definition(column.type_name.as_ref()), name) {
        (Some(kind), _) => Flow::confidential(Some(kind)),
        // A serial is an integer with a default.
        (None, Some(name))
            if catalog.type_may_hold_confidential(&parts) && !WITHOUT_VALUES.contains(&name) =>
        {
            Flow::unknown()
        }
        // PARTITION OF and OF: the column of the parent, the attribute of the type.
        (None, None) => Flow::unknown(),
        _ => Flow::plain(),
    };
    (column.colname.clone(), flow)
}

/// Returns a column as its definition says.
pub(super) fn defined_column(catalog: &Catalog, column: &ColumnDef) -> Column {
    let (name, flow) = column_from_definition(catalog, column);
    let of = column.type_name.as_ref();
    let is_array = of.is_some_and(|of| !of.array_bounds.is_empty());
    let kind = flow.kind.filter(|_| !is_array);
    Column {
        name,
        kind,
        holds_confidential: flow.confidential && kind.is_none(),
        place: 0,
        modifier: modifier_from_definition(column.type_name.as_ref()),
    }
}

/// Whether a CREATE TABLE takes columns from other tables or from a type: LIKE, INHERITS, PARTITION
/// OF, OF.
pub(super) fn takes_other_columns(create: &CreateStmt) -> bool {
    let is_like = |element: &Node| matches!(element.node, Some(NodeEnum::TableLikeClause(_)));
    !create.inh_relations.is_empty()
        || create.of_typename.is_some()
        || create.table_elts.iter().any(is_like)
}

/// Walks the defaults, constraints and partition bounds of a CREATE TABLE. The table's own columns
/// are put into a scope, which is left there.
pub(super) fn create_table(resolver: &mut Resolver<'_>, create: &mut CreateStmt) {
    let mut columns = taken_columns(resolver, create);
    for element in &create.table_elts {
        let Some(NodeEnum::ColumnDef(column)) = element.node.as_ref() else {
            continue;
        };
        // PARTITION OF and OF: the column is there already.
        if column.type_name.is_none() && columns.find_or_open(&column.colname).is_some() {
            continue;
        }
        let (name, flow) = column_from_definition(resolver.catalog, column);
        resolver.touched |= flow.confidential;
        note_unknown_type(resolver, column, &flow);
        columns.named.push((name, flow));
    }
    resolver
        .scopes
        .push(vec![Source::new(String::new(), columns)]);
    if let Some(bound) = create.partbound.as_mut() {
        partition_bound(resolver, bound);
    }
    let table = naming_table(create);
    for element in &mut create.table_elts {
        match element.node.as_mut() {
            Some(NodeEnum::ColumnDef(column)) => {
                column_definition(resolver, column, table.as_ref());
            }
            Some(NodeEnum::Constraint(constraint)) => {
                walk_constraint(resolver, constraint, &DefaultTarget::none());
            }
            _ => {}
        }
    }
}

/// The table by which the columns of a definition are known.
pub(super) struct NamingTable {
    /// Its schema; empty if the statement names none.
    pub(super) schema: String,
    pub(super) name: String,
    /// Whether the statement makes it.
    pub(super) is_new: bool,
}

/// Returns the table by which the columns of a CREATE TABLE are known: a partition's is the one
/// that it is a part of.
fn naming_table(create: &CreateStmt) -> Option<NamingTable> {
    let parent = create
        .inh_relations
        .first()
        .and_then(|parent| match &parent.node {
            Some(NodeEnum::RangeVar(parent)) => Some(parent),
            _ => None,
        });
    let range = if create.partbound.is_some() {
        parent
    } else {
        create.relation.as_ref()
    };
    range.map(|range| NamingTable {
        schema: schema_of(range).to_owned(),
        name: range.relname.clone(),
        is_new: true,
    })
}

/// Notes the name of a column's type that the catalog does not know, so that it is read again.
fn note_unknown_type(resolver: &mut Resolver<'_>, column: &ColumnDef, flow: &Flow) {
    let of = column.type_name.as_ref();
    let name = of.and_then(|of| names(&of.names).last().copied());
    if let Some(name) = name.filter(|_| flow.confidential && flow.kind.is_none())
        && !resolver.catalog.holds_confidential(name)
    {
        resolver.unknown.push(name.to_owned());
    }
}

/// Returns the columns that a CREATE TABLE takes from other tables, and from a type.
fn taken_columns(resolver: &mut Resolver<'_>, create: &CreateStmt) -> Columns {
    let mut columns = Columns::default();
    for parent in &create.inh_relations {
        if let Some(NodeEnum::RangeVar(parent)) = parent.node.as_ref() {
            columns.splice(resolver.relation(&parent.schemaname, &parent.relname));
        }
    }
    for element in &create.table_elts {
        if let Some(NodeEnum::TableLikeClause(like)) = element.node.as_ref()
            && let Some(other) = &like.relation
        {
            columns.splice(resolver.relation(&other.schemaname, &other.relname));
        }
    }
    if let Some(of) = &create.of_typename {
        let (schema, name) = schema_and_name(&of.names).unwrap_or_default();
        columns.splice(resolver.relation(schema.unwrap_or_default(), name));
    }
    columns
}

/// Walks a column's default and constraints. The default's constants flow into the column.
/// `table`: the one by which the column is known, `None` if that is not certain.
fn column_definition(
    resolver: &mut Resolver<'_>,
    column: &mut ColumnDef,
    table: Option<&NamingTable>,
) {
    let modifier = modifier_from_definition(column.type_name.as_ref());
    let class = Class::of_modifier(modifier);
    let mut flow = match &column.type_name {
        Some(_) => column_from_definition(resolver.catalog, column).1,
        None => resolver.column(&[column.colname.as_str()]),
    };
    let mut is_comparable = flow.confidential && class.is_comparable();
    if is_comparable {
        let catalog = resolver.catalog;
        flow.comparable = table.and_then(|table| {
            catalog.comparable_column_to_be(table, &column.colname, (class, modifier))
        });
    } else if let (None, Some(table)) = (&column.type_name, table) {
        let known = resolver
            .catalog
            .comparable_columns(&table.schema, &table.name);
        flow.comparable = of_name(&known, &column.colname);
        is_comparable = flow.comparable.is_some();
    }
    let target = DefaultTarget {
        flow,
        is_comparable,
    };
    if let Some(default) = column.raw_default.as_mut() {
        set_default(resolver, &target, default);
    }
    for constraint in &mut column.constraints {
        if let Some(NodeEnum::Constraint(constraint)) = constraint.node.as_mut() {
            walk_constraint(resolver, constraint, &target);
        }
    }
}

/// A column that a definition gives a default.
struct DefaultTarget {
    /// What flows into it. It names the comparable column, where that is known.
    flow: Flow,
    /// Whether it can be compared without a session.
    is_comparable: bool,
}

impl DefaultTarget {
    /// No column: the expression is compared, or it is not known what it is for.
    fn none() -> Self {
        Self {
            flow: Flow::plain(),
            is_comparable: false,
        }
    }
}

/// Walks the expression of a column's default. For a comparable column it keeps a refusal if a
/// constant in it is computed with, or if the column's name is not known: the zone stores a
/// constant in a comparable column only if it was sealed for that column, and as it is.
fn set_default(resolver: &mut Resolver<'_>, column: &DefaultTarget, default: &mut Node) {
    let first = resolver.sites.len();
    let value = resolver.expr(default);
    resolver.assign(&column.flow, &value);
    if !column.is_comparable || resolver.applying {
        return;
    }
    let own = resolver.sites.get(first..).unwrap_or_default();
    let mut marked = own.iter().filter(|site| site.form.is_some());
    let is_stored = is_passed_on(default) || value.carried.iter().all(|carried| carried.direct);
    if is_stored && marked.all(|site| site.destination.column().is_some()) {
        return;
    }
    let refusal = if column.flow.comparable.is_some() {
        Refusal::statement(
            "a computed default of a column that can be compared without a session",
            "Write the value as a constant, or in the application.",
        )
    } else {
        Refusal::statement(
            "the default of a column that can be compared without a session, and whose name may be another one's",
            "Name the table's schema, or set the default in a statement of its own when the table \
             is there: ALTER TABLE ... ALTER COLUMN ... SET DEFAULT.",
        )
    };
    resolver.refusal.get_or_insert(refusal);
}

/// Whether the value of an expression is one of its operands', as it is.
fn is_passed_on(node: &Node) -> bool {
    match node.node.as_ref() {
        Some(NodeEnum::TypeCast(cast)) => cast.arg.as_deref().is_some_and(is_passed_on),
        Some(NodeEnum::CoalesceExpr(_) | NodeEnum::CaseExpr(_) | NodeEnum::MinMaxExpr(_)) => true,
        _ => false,
    }
}

/// Returns the comparable column of this name. `None` if there is none.
fn of_name(columns: &[(String, ComparableColumn)], name: &str) -> Option<ComparableColumn> {
    let mut columns = columns.iter();
    columns.find_map(|(known, column)| (known == name).then_some(*column))
}

/// Walks the values of a partition key, which is never a confidential column.
fn partition_bound(resolver: &mut Resolver<'_>, bound: &mut PartitionBoundSpec) {
    let lists = [
        &mut bound.listdatums,
        &mut bound.lowerdatums,
        &mut bound.upperdatums,
    ];
    for datum in lists.into_iter().flatten() {
        match datum.node.as_mut() {
            Some(NodeEnum::PartitionRangeDatum(datum)) => {
                resolver.optional_expr(datum.value.as_mut());
            }
            _ => {
                resolver.expr(datum);
            }
        }
    }
}

/// Walks the expression of DEFAULT, GENERATED or CHECK, if there is one; the value of the first two
/// flows into the column.
fn walk_constraint(
    resolver: &mut Resolver<'_>,
    constraint: &mut Constraint,
    column: &DefaultTarget,
) {
    let is_value = matches!(
        constraint.contype(),
        ConstrType::ConstrDefault | ConstrType::ConstrGenerated
    );
    match constraint.raw_expr.as_mut() {
        Some(value) if is_value => set_default(resolver, column, value),
        condition => drop(resolver.optional_expr(condition)),
    }
    resolver.optional_expr(constraint.where_clause.as_mut());
}

/// Walks an ALTER TABLE: its defaults, constraints and partition bounds. The table is put into the
/// innermost scope, which is made if there is none, and stays there. The resolver marks the
/// constants that flow into confidential columns and keeps refusals; a column that is defined with
/// a confidential type sets its `touched`.
pub(super) fn alter_table(resolver: &mut Resolver<'_>, alter: &mut AlterTableStmt) {
    resolver.add_relation(alter.relation.as_ref(), "");
    let added = added_columns(resolver.catalog, alter);
    let comparable = comparable_names(resolver.catalog, alter);
    let range = alter.relation.clone().unwrap_or_default();
    let known = resolver
        .catalog
        .comparable_columns(&range.schemaname, &range.relname);
    let table = resolver
        .catalog
        .only_relation(&range.schemaname, &range.relname)
        .map(|relation| NamingTable {
            schema: relation.schema.clone(),
            name: range.relname.clone(),
            is_new: false,
        });
    if let Some(scope) = resolver.scopes.last_mut() {
        scope.push(Source::new(String::new(), added));
    }
    for command in &mut alter.cmds {
        let Some(NodeEnum::AlterTableCmd(command)) = command.node.as_mut() else {
            continue;
        };
        let column = resolver.column(&[command.name.as_str()]);
        let is_comparable = comparable.contains(&command.name);
        let subtype = command.subtype();
        match command.def.as_mut().and_then(|def| def.node.as_mut()) {
            Some(NodeEnum::ColumnDef(definition)) => {
                let (_, flow) = column_from_definition(resolver.catalog, definition);
                resolver.touched |= flow.confidential;
                note_unknown_type(resolver, definition, &flow);
                if subtype == AlterTableType::AtAlterColumnType
                    && flow.confidential
                    && !column.confidential
                {
                    refuse_cast_of_plain(resolver, definition);
                }
                // The expression that a type is changed by is no default.
                let table = table
                    .as_ref()
                    .filter(|_| subtype == AlterTableType::AtAddColumn);
                column_definition(resolver, definition, table);
            }
            Some(NodeEnum::Constraint(constraint)) => {
                walk_constraint(resolver, constraint, &DefaultTarget::none());
            }
            Some(NodeEnum::PartitionCmd(command)) => {
                if let Some(bound) = command.bound.as_mut() {
                    partition_bound(resolver, bound);
                }
            }
            Some(_) if !command.name.is_empty() => {
                let mut target = DefaultTarget {
                    flow: column,
                    is_comparable,
                };
                target.flow.comparable = of_name(&known, &command.name);
                if let Some(default) = command.def.as_mut() {
                    set_default(resolver, &target, default);
                }
            }
            Some(_) => drop(resolver.optional_expr(command.def.as_mut())),
            None => {}
        }
    }
}

/// Refuses to make a plain column confidential by a cast: the server has no key to seal its values
/// with. `USING strongroom_columns.classify(...)` has the zone seal them.
fn refuse_cast_of_plain(resolver: &mut Resolver<'_>, definition: &ColumnDef) {
    let using = definition.raw_default.as_deref().map(|node| &node.node);
    if matches!(using, None | Some(Some(NodeEnum::TypeCast(_)))) {
        let message = "a plain column is made confidential by ALTER COLUMN TYPE";
        let hint =
            "Convert the column with `strongroom columns convert`, and mark the migration as done.";
        let refusal = Refusal::statement(message, hint);
        resolver.refusal.get_or_insert(refusal);
    }
}

/// Returns the names of the comparable columns that the table of an ALTER TABLE may have.
fn comparable_names(catalog: &Catalog, alter: &AlterTableStmt) -> Vec<String> {
    let Some(range) = alter.relation.as_ref() else {
        return Vec::new();
    };
    let meant = catalog.relations(&range.schemaname, &range.relname);
    let columns = meant.flat_map(|relation| &relation.columns);
    columns
        .filter(|column| column.class().is_comparable())
        .map(|column| column.name.clone())
        .collect()
}

/// Returns the columns that an ALTER TABLE adds, which its constraints can name.
fn added_columns(catalog: &Catalog, alter: &AlterTableStmt) -> Columns {
    let defined = alter.cmds.iter().filter_map(|command| {
        let Some(NodeEnum::AlterTableCmd(command)) = command.node.as_ref() else {
            return None;
        };
        match command.def.as_ref()?.node.as_ref()? {
            NodeEnum::ColumnDef(column) if command.subtype() == AlterTableType::AtAddColumn => {
                Some(column_from_definition(catalog, column))
            }
            _ => None,
        }
    });
    Columns {
        named: defined.collect(),
        ..Columns::default()
    }
}
