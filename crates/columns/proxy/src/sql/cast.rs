//! Casts: of constants, to confidential types, and to types that may hold confidential values.
//!
//! Must not: let a cast change a constant without being told.

use pg_query::NodeEnum;
use pg_query::protobuf::{CoercionForm, FuncCall, Node, TypeCast};
use strongroom_format::columns::Kind;

use super::catalog::Column;
use super::expr::name_node;
use super::flow::{Flow, Origins};
use super::functions;
use super::literal::{self, Form, Literal};
use super::refusal::Refusal;
use super::resolver::Resolver;
use super::site::SiteKind;
use super::tree::{integer, names};

impl Resolver<'_> {
    /// Walks a cast. The cast of a constant is part of the constant; the cast of a confidential
    /// value becomes, in the second walk, one to the confidential type. Returns what is known of
    /// the value.
    pub(super) fn cast(&mut self, node: &mut Node) -> Flow {
        let Some(NodeEnum::TypeCast(cast)) = node.node.as_mut() else {
            return Flow::plain();
        };
        let of = cast.type_name.clone().unwrap_or_default();
        if let Some(literal) = cast
            .arg
            .as_deref()
            .and_then(literal::constant)
            .and_then(Literal::of)
        {
            let name = names(&of.names).last().copied().unwrap_or_default();
            if let Some(kind) = functions::confidential_type(name) {
                return self.sealed_constant(node, literal, kind, !of.array_bounds.is_empty());
            }
            let bears = self.may_bear(&names(&of.names));
            let flow = self.visit_constant(node, literal.with_type(&of));
            return if bears {
                self.cast_to_bearing_type(name, &flow)
            } else {
                flow
            };
        }
        let mut flow = self.optional_expr(cast.arg.as_mut());
        let name = names(&of.names)
            .last()
            .copied()
            .unwrap_or_default()
            .to_owned();
        if let Some(kind) = functions::confidential_type(&name) {
            self.touched = true;
            let cast = self.choose(&[Flow::confidential(Some(kind)), flow]);
            return Flow {
                kind: Some(kind),
                row: None,
                ..cast
            };
        }
        // Any row is a record, with the fields that it has.
        if name == "record" && of.array_bounds.is_empty() {
            return flow;
        }
        if self.may_bear(&names(&of.names)) {
            return self.cast_to_bearing_type(&name, &flow);
        }
        let array = functions::kind_of_array_type(&name);
        let is_array = !of.array_bounds.is_empty() || array.is_some();
        let kind = array.or_else(|| functions::kind_of_type(&name));
        let form = if is_array { Form::Array } else { Form::Typed };
        let site = self.visit_site(SiteKind::Cast(kind.map(form)));
        flow.carried
            .extend_from_slice(&Flow::site(site, None).carried);
        self.merge_flow(&flow);
        if self.is_confidential(&flow) && kind.is_some() {
            self.combine(&[Flow::confidential(kind), flow.clone()]);
        }
        match self.form(site) {
            Some(Form::Typed(kind)) => self.recast(cast, kind, &name),
            Some(Form::Array(kind)) => {
                self.changed = true;
                cast.type_name = Some(self.enc_array_type_name(kind));
            }
            Some(Form::Bare) | None => {}
        }
        let origins = flow.origins.take();
        if kind.is_some() {
            flow.kind = kind;
            // A cast that changes nothing leaves the value what it is.
            flow.origins = origins
                .filter(|_| !is_array)
                .map(|of| of.or(Origins::made()));
        }
        Flow { row: None, ..flow }
    }

    /// Returns whether a type with these parts of a name may hold confidential values. One that the
    /// catalog does not know is noted, so that it is read again: another connection may have made
    /// it.
    fn may_bear(&mut self, parts: &[&str]) -> bool {
        let bears = self.catalog.type_may_hold_confidential(parts);
        if let Some(name) = parts.last().filter(|_| bears)
            && !self.catalog.holds_confidential(name)
        {
            self.unknown.push((*name).to_owned());
        }
        bears
    }

    /// Records a cast to a type that holds confidential values, or that is not known: the fields of
    /// a row are combined with the columns of the table of that name, any other value counts as
    /// confidential.
    fn cast_to_bearing_type(&mut self, name: &str, flow: &Flow) -> Flow {
        self.touched = true;
        let mut tables = self.catalog.relations("", name);
        let table = tables.next().filter(|_| tables.next().is_none());
        let columns = table.map(|table| table.columns.iter().map(Column::flow));
        match (&flow.row, columns) {
            (Some(fields), Some(columns)) if fields.len() == columns.len() => {
                for (field, column) in fields.iter().zip(columns) {
                    self.assign(&column, field);
                }
            }
            _ => drop(self.combine(&[Flow::unknown(), flow.clone()])),
        }
        Flow::unknown()
    }

    /// Changes a cast in the tree: `x::varchar(5)` becomes `left(x::enc_text, 5)`, `x::int` becomes
    /// `x::enc_int4`.
    fn recast(&mut self, cast: &mut TypeCast, kind: Kind, name: &str) {
        self.changed = true;
        let modifiers = cast
            .type_name
            .as_mut()
            .map(|of| std::mem::take(&mut of.typmods))
            .unwrap_or_default();
        let keeps = kind == Kind::Numeric;
        let cuts = matches!(name, "varchar" | "bpchar") && !modifiers.is_empty();
        self.refuse_precision(kind, &modifiers);
        let mut of = self.enc_type_name(kind);
        if keeps {
            of.typmods.clone_from(&modifiers);
        }
        cast.type_name = Some(of);
        if !cuts {
            return;
        }
        let inner = cast.arg.take().map(|arg| *arg).unwrap_or_default();
        let mut args = vec![inner];
        args.extend(modifiers);
        let call = FuncCall {
            funcname: vec![name_node("left")],
            args,
            funcformat: CoercionForm::CoerceExplicitCall.into(),
            ..FuncCall::default()
        };
        cast.arg = Some(Box::new(Node {
            node: Some(NodeEnum::FuncCall(Box::new(call))),
        }));
    }

    /// Refuses a cast to a type of times with a precision or fields, which confidential types have
    /// none of. Six digits are what every time has.
    fn refuse_precision(&mut self, kind: Kind, modifiers: &[Node]) {
        let rounds = match kind {
            Kind::Time | Kind::Timestamp | Kind::Timestamptz => {
                !modifiers.is_empty() && modifiers.first().and_then(integer) != Some(6)
            }
            Kind::Interval => !modifiers.is_empty(),
            _ => false,
        };
        if rounds {
            let refusal = Refusal::statement(
                "a confidential time is not cast to a precision or to fields of an interval",
                "Round it in the application, or use date_trunc.",
            );
            self.refusal.get_or_insert(refusal);
        }
    }
}
