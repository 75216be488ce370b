//! The walk over expressions.
//!
//! Must not: relate anything but the operands of one expression; `query.rs` relates the parts of a
//! query.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AExpr, AExprKind, CaseExpr, Integer, Node, ParamRef, RowExpr, String as Name, SubLink,
    SubLinkType, TypeCast, TypeName,
};
use strongroom_format::columns::Kind;

use super::flow::{Flow, Origins};
use super::fold;
use super::functions::{self, Structure};
use super::literal::{self, Form, Literal, Token};
use super::query::is_star;
use super::resolver::Resolver;
use super::site::{Site, SiteKind};
use super::tree::names;
use super::versions::is_system_user;

impl Resolver<'_> {
    /// Walks an expression as [`Self::expr`] does. `None` counts as a plain value.
    pub(crate) fn optional_expr(&mut self, node: Option<&mut Box<Node>>) -> Flow {
        node.map_or_else(Flow::plain, |node| self.expr(node))
    }

    /// Walks expressions that are independent of one another; returns what is known of each value,
    /// in order.
    pub(crate) fn exprs(&mut self, nodes: &mut [Node]) -> Vec<Flow> {
        nodes.iter_mut().map(|node| self.expr(node)).collect()
    }

    /// Walks one expression and returns what is known of its value: whether it is confidential, its
    /// kind, and the constants and parameters that flow into it. In the second walk it changes the
    /// expression: marked constants become parameters, and confidential casts and functions the
    /// extension's own.
    pub(crate) fn expr(&mut self, node: &mut Node) -> Flow {
        if let Some(literal) = Literal::of_clock(node) {
            return self.visit_constant(node, literal);
        }
        match node.node.as_mut() {
            None => Flow::plain(),
            Some(NodeEnum::AConst(_)) => self.constant(node),
            Some(NodeEnum::ParamRef(param)) => {
                let site = self.visit_site(SiteKind::Parameter(param.number));
                Flow::site(site, None)
            }
            Some(NodeEnum::TypeCast(_)) => self.cast(node),
            Some(NodeEnum::ColumnRef(column)) => {
                if is_star(column.fields.last()) {
                    return self.star(&names(&column.fields)).whole();
                }
                let found = self.column(&names(&column.fields));
                self.touched |= found.confidential;
                found
            }
            Some(NodeEnum::AExpr(expr)) => {
                let flow = self.operator(expr);
                self.fold(node).unwrap_or(flow)
            }
            Some(NodeEnum::BoolExpr(expr)) => {
                self.conditions(&mut expr.args);
                Flow::plain()
            }
            Some(NodeEnum::NullTest(test)) => {
                self.optional_expr(test.arg.as_mut());
                Flow::plain()
            }
            Some(NodeEnum::BooleanTest(test)) => {
                self.condition(test.arg.as_mut());
                Flow::plain()
            }
            Some(NodeEnum::SubLink(link)) => self.sublink(link),
            Some(NodeEnum::CaseExpr(case)) => self.case(case),
            Some(NodeEnum::CoalesceExpr(expr)) => {
                let flows = self.exprs(&mut expr.args);
                self.choose(&flows)
            }
            Some(NodeEnum::MinMaxExpr(expr)) => {
                let flows = self.exprs(&mut expr.args);
                self.choose(&flows)
            }
            Some(NodeEnum::FuncCall(call)) if is_system_user(call) => self.system_user(),
            Some(NodeEnum::FuncCall(call)) => self.call(call),
            _ => self.construct(node),
        }
    }

    /// Walks constructors and wrappers, as [`Self::expr`] does: rows, arrays, lists, subscripts and
    /// other nodes that only combine values. The value of a node of a type that is not known counts
    /// as confidential.
    fn construct(&mut self, node: &mut Node) -> Flow {
        match node.node.as_mut() {
            Some(NodeEnum::RowExpr(row)) => self.row(row),
            Some(NodeEnum::AArrayExpr(array)) => {
                let flows = self.exprs(&mut array.elements);
                let flows: Vec<Flow> = flows.into_iter().map(Flow::indirect).collect();
                self.combine(&flows)
            }
            Some(NodeEnum::List(list)) => {
                let flows = self.exprs(&mut list.items);
                self.combine(&flows)
            }
            Some(NodeEnum::AIndirection(of)) => {
                let mut subscripts = Vec::new();
                for part in &mut of.indirection {
                    if let Some(NodeEnum::AIndices(indices)) = part.node.as_mut() {
                        subscripts.push(self.optional_expr(indices.lidx.as_mut()));
                        subscripts.push(self.optional_expr(indices.uidx.as_mut()));
                    }
                }
                let of = self.optional_expr(of.arg.as_mut());
                if of.kind == Some(Kind::Jsonb) && !subscripts.is_empty() {
                    self.refuse_subscripts();
                }
                let mut met = vec![of.indirect()];
                for subscript in subscripts {
                    let decided = self.structure(subscript, Structure::Integer, &met);
                    met.extend(decided);
                }
                self.combine(&met)
            }
            Some(NodeEnum::CollateClause(of)) => self.optional_expr(of.arg.as_mut()),
            Some(NodeEnum::NamedArgExpr(of)) => self.optional_expr(of.arg.as_mut()),
            Some(NodeEnum::ResTarget(target)) => self.optional_expr(target.val.as_mut()),
            Some(NodeEnum::SortBy(by)) => self.optional_expr(by.node.as_mut()),
            Some(NodeEnum::XmlExpr(xml)) => {
                let mut flows = self.exprs(&mut xml.named_args);
                flows.extend(self.exprs(&mut xml.args));
                self.refuse_rendering("an XML expression", &flows);
                self.combine(&flows).indirect()
            }
            Some(NodeEnum::XmlSerialize(xml)) => self.optional_expr(xml.expr.as_mut()).indirect(),
            Some(NodeEnum::GroupingSet(set)) => {
                self.exprs(&mut set.content);
                Flow::plain()
            }
            Some(NodeEnum::GroupingFunc(of)) => {
                self.exprs(&mut of.args);
                Flow::plain()
            }
            Some(NodeEnum::SelectStmt(select)) => {
                let columns = self.select(select);
                columns.at(0).indirect()
            }
            None
            | Some(
                NodeEnum::SqlvalueFunction(_)
                | NodeEnum::SetToDefault(_)
                | NodeEnum::CurrentOfExpr(_),
            ) => Flow::plain(),
            // Its result is unknown; constants in it are found by the check that all were visited.
            _ => {
                self.touched |= self.may_be_a_call_in_15(node);
                Flow::unknown()
            }
        }
    }

    /// Walks a row and returns what is known of it and of its fields.
    fn row(&mut self, row: &mut RowExpr) -> Flow {
        let starred = row.args.iter().any(|field| match field.node.as_ref() {
            Some(NodeEnum::ColumnRef(column)) => is_star(column.fields.last()),
            Some(NodeEnum::AIndirection(of)) => is_star(of.indirection.last()),
            _ => false,
        });
        let fields = self.exprs(&mut row.args);
        let mut whole = Flow::default();
        for field in &fields {
            whole.join(field);
        }
        // A star means any number of fields.
        Flow {
            row: Some(fields).filter(|_| !starred),
            kind: None,
            ..whole
        }
    }

    /// Visits a constant and returns what is known of it; in the second walk replaces it by a
    /// parameter if it was marked. NULL is plain and no site.
    fn constant(&mut self, node: &mut Node) -> Flow {
        let Some(literal) = literal::constant(node).and_then(Literal::of) else {
            return Flow::plain();
        };
        self.visit_constant(node, literal)
    }

    /// Visits this constant, which the node is, and returns what is known of it; in the second walk
    /// replaces it by a parameter if it was marked.
    pub(super) fn visit_constant(&mut self, node: &mut Node, literal: Literal) -> Flow {
        let kind = literal.kind();
        let site = self.visit_site(SiteKind::Constant(literal));
        self.replace(node, site);
        Flow::site(site, kind)
    }

    /// Handles an argument that is structure and not data: whole numbers and names of fields stay,
    /// a parameter is marked to be checked when its value comes. Returns what has to be treated as
    /// data after all; `None` if nothing has.
    pub(super) fn structure(&mut self, flow: Flow, of: Structure, data: &[Flow]) -> Option<Flow> {
        let confidential = data.iter().any(|flow| self.is_confidential(flow));
        let plain = data
            .iter()
            .all(|flow| !self.is_confidential(flow) && flow.carried.is_empty());
        let applying = self.applying;
        let mut left = Vec::new();
        for carried in &flow.carried {
            let stays = match self.sites.get_mut(carried.site) {
                Some(Site {
                    kind: SiteKind::Constant(literal),
                    ..
                }) => match of {
                    Structure::Integer => literal.token == Token::Number(Kind::Int4),
                    Structure::Field => literal.token == Token::String && of.has(&literal.text),
                },
                Some(Site {
                    kind: SiteKind::Parameter(_),
                    structure,
                    ..
                }) if confidential => {
                    if !applying {
                        *structure = Some(of);
                    }
                    carried.direct
                }
                _ => plain,
            };
            if !stays {
                left.push(*carried);
            }
        }
        let kept = flow.confidential || !left.is_empty();
        kept.then_some(Flow {
            carried: left,
            row: None,
            ..flow
        })
    }

    /// Walks `'..'::enc_text` or `'{..}'::enc_text[]`: an envelope stays as it is; any other text
    /// is a constant that the client wants to be confidential, and becomes a parameter.
    pub(super) fn sealed_constant(
        &mut self,
        node: &mut Node,
        mut literal: Literal,
        kind: Kind,
        is_array: bool,
    ) -> Flow {
        self.touched = true;
        let is_envelope = literal.is_envelope();
        let token = if is_array { Token::Array } else { Token::Typed };
        literal.token = token(kind);
        let site = self.visit_site(SiteKind::Constant(literal));
        let mut sealed = Flow::confidential(Some(kind));
        if !is_envelope {
            let constant = Flow::site(site, Some(kind));
            self.combine(&[sealed.clone(), constant.clone()]);
            self.replace(node, site);
            sealed.join(&constant);
        }
        sealed
    }

    /// Returns the confidential type's name, with its schema, as a node of the tree.
    pub(super) fn enc_type_name(&self, kind: Kind) -> TypeName {
        let name = format!("enc_{}", kind.base());
        TypeName {
            names: vec![name_node(self.catalog.schema()), name_node(&name)],
            typemod: -1,
            ..TypeName::default()
        }
    }

    /// Returns the name of the confidential type's array type as a node of the tree.
    pub(super) fn enc_array_type_name(&self, kind: Kind) -> TypeName {
        TypeName {
            array_bounds: vec![Node {
                node: Some(NodeEnum::Integer(Integer { ival: -1 })),
            }],
            ..self.enc_type_name(kind)
        }
    }

    /// In the second walk, replaces the constant of a marked site by its parameter, with a cast to
    /// the confidential type where that is needed. Otherwise does nothing.
    pub(super) fn replace(&mut self, node: &mut Node, site: usize) {
        let Some(form) = self.form(site) else {
            return;
        };
        let Some(number) = self.numbers.get(site).copied().flatten() else {
            return;
        };
        self.changed = true;
        if let Some(kept) = self.kept_constant(number) {
            *node = kept;
            return;
        }
        let param = Node {
            node: Some(NodeEnum::ParamRef(ParamRef {
                number,
                location: 0,
            })),
        };
        let type_name = match form {
            Form::Bare => {
                *node = param;
                return;
            }
            Form::Typed(kind) => self.enc_type_name(kind),
            Form::Array(kind) => self.enc_array_type_name(kind),
        };
        let cast = TypeCast {
            arg: Some(Box::new(param)),
            type_name: Some(type_name),
            location: 0,
        };
        *node = Node {
            node: Some(NodeEnum::TypeCast(Box::new(cast))),
        };
    }

    /// Treats arithmetic between two constants as one constant, a site of its own, and returns what
    /// is known of it; in the second walk its parameter takes its place if it was marked. `None` if
    /// it cannot be computed here. The two constants themselves stay unmarked.
    fn fold(&mut self, node: &mut Node) -> Option<Flow> {
        let Some(NodeEnum::AExpr(expr)) = node.node.as_ref() else {
            return None;
        };
        if expr.kind() != AExprKind::AexprOp {
            return None;
        }
        let left = literal::typed_constant(expr.lexpr.as_deref()?)?;
        let right = literal::typed_constant(expr.rexpr.as_deref()?)?;
        let folded = fold::fold_constants(names(&expr.name).last()?, &left, &right)?;
        let kind = folded.kind();
        let site = self.visit_site(SiteKind::Constant(folded));
        self.replace(node, site);
        Some(Flow::site(site, kind))
    }

    /// Walks the right side of IN or BETWEEN, and records that each of the list is compared with
    /// the left side.
    fn compare_with_each(&mut self, left: Flow, items: &mut [Node]) {
        let mut flows = self.exprs(items);
        if flows.iter().any(|flow| flow.row.is_some()) {
            for flow in &flows {
                self.compare(&left, flow);
            }
            return;
        }
        let untyped = |flow: &Flow| !flow.carried.is_empty();
        if untyped(&left) && flows.iter().any(untyped) {
            // Each of the list is compared with the left side alone: two parameters would have no
            // type.
            flows = flows.into_iter().map(Flow::indirect).collect();
            flows.push(left.indirect());
        } else {
            flows.push(left);
        }
        self.compare_all(&flows);
    }

    /// Walks an operator or a construct that compares, such as IN and BETWEEN, and records that its
    /// operands are combined. Returns what is known of the result; a comparison's is plain.
    fn operator(&mut self, expr: &mut AExpr) -> Flow {
        let name = names(&expr.name)
            .last()
            .copied()
            .unwrap_or_default()
            .to_owned();
        let is_known = self.is_of_known_schema(&names(&expr.name));
        let left = self.optional_expr(expr.lexpr.as_mut());
        let right = match expr.rexpr.as_mut().and_then(|node| node.node.as_mut()) {
            Some(NodeEnum::List(list)) => {
                self.compare_with_each(left, &mut list.items);
                return Flow::plain();
            }
            _ => self.optional_expr(expr.rexpr.as_mut()),
        };
        let document = expr.lexpr.is_some() && left.kind == Some(Kind::Jsonb);
        let taken = functions::taken_from_document(&name).filter(|_| document);
        if taken.is_some() {
            // The name of a member: the server could not choose between it and a place.
            self.give_kind(&right, Kind::Text);
        }
        let compares = match expr.kind() {
            // A sign before one operand, such as ~, computes.
            AExprKind::AexprOp => is_known && expr.lexpr.is_some() && functions::compares(&name),
            AExprKind::AexprNullif => false,
            AExprKind::AexprOpAny | AExprKind::AexprOpAll => {
                // The right side is an array: its elements, not the array itself, are compared with
                // the left side.
                self.combine(&[left, right]);
                return Flow::plain();
            }
            _ => true,
        };
        if compares {
            self.compare(&left, &right);
            return Flow::plain();
        }
        let kind = match expr.lexpr {
            _ if !is_known => None,
            Some(_) if expr.kind() == AExprKind::AexprOp => {
                taken.or_else(|| functions::operator_kind(&name, left.kind, right.kind))
            }
            _ => functions::wider(left.kind, right.kind),
        };
        let is_left = expr.kind() == AExprKind::AexprNullif;
        let certain = |flow: &Flow| flow.confidential && flow.origins.is_some();
        let origins = if is_left {
            left.origins().map(|of| of.or(Origins::made()))
        } else if is_known && functions::computes(&name) {
            (certain(&left) || certain(&right)).then(Origins::made)
        } else {
            None
        };
        let value = left.carried.clone();
        let mut out = self.combine(&[left, right]);
        if is_left {
            // Its value is the left one, or null.
            out.add_values(&value);
        }
        Flow {
            kind,
            origins,
            ..out
        }
    }

    /// Walks a subquery in an expression and records what it is compared with. Returns what is
    /// known of the result: plain for EXISTS, IN, ANY and ALL, else that of its columns.
    fn sublink(&mut self, link: &mut SubLink) -> Flow {
        let test = self.optional_expr(link.testexpr.as_mut());
        let kind = link.sub_link_type();
        let columns = match link.subselect.as_mut().and_then(|node| node.node.as_mut()) {
            Some(NodeEnum::SelectStmt(select)) if kind == SubLinkType::ExprSublink => {
                self.select(select).indirect()
            }
            Some(NodeEnum::SelectStmt(select)) => self.unnamed_select(select).indirect(),
            _ => return Flow::unknown(),
        };
        match kind {
            SubLinkType::ExistsSublink => Flow::plain(),
            SubLinkType::AnySublink | SubLinkType::AllSublink | SubLinkType::RowcompareSublink => {
                match &test.row {
                    Some(fields) => {
                        for (at, field) in fields.iter().enumerate() {
                            self.compare(field, &columns.at(at));
                        }
                    }
                    None => self.compare(&test, &columns.at(0)),
                }
                Flow::plain()
            }
            // An array is none of the values that are in it, and has another name.
            SubLinkType::ArraySublink => Flow {
                origins: None,
                label: None,
                row: None,
                ..columns
                    .open
                    .as_ref()
                    .map_or_else(|| columns.at(0), |_| columns.whole())
            },
            _ if columns.open.is_some() => columns.whole(),
            _ => {
                let fields: Vec<Flow> = (0..columns.len()).map(|at| columns.at(at)).collect();
                let first = columns.at(0);
                if fields.len() > 1 {
                    Flow {
                        row: Some(fields),
                        ..columns.whole()
                    }
                } else {
                    first
                }
            }
        }
    }

    /// Walks a CASE. Its results are combined with one another, and, if it has an argument, so are
    /// the argument and the conditions. Returns what is known of the result.
    fn case(&mut self, case: &mut CaseExpr) -> Flow {
        let compares = case.arg.is_some();
        let mut compared = vec![self.optional_expr(case.arg.as_mut())];
        let mut results = Vec::new();
        for when in &mut case.args {
            if let Some(NodeEnum::CaseWhen(when)) = when.node.as_mut() {
                if compares {
                    compared.push(self.optional_expr(when.expr.as_mut()));
                } else {
                    self.condition(when.expr.as_mut());
                }
                results.push(self.optional_expr(when.result.as_mut()));
            }
        }
        results.push(self.optional_expr(case.defresult.as_mut()));
        self.combine(&compared);
        self.choose(&results)
    }
}

/// Returns a part of a name as a node of the tree.
pub(crate) fn name_node(name: &str) -> Node {
    Node {
        node: Some(NodeEnum::String(Name {
            sval: name.to_owned(),
        })),
    }
}
