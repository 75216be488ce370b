//! Conditions: where the server needs a boolean in clear, a confidential one is compared with true.
//!
//! Must not: change an expression whose value is stored, returned or compared.

use pg_query::NodeEnum;
use pg_query::protobuf::{AExpr, AExprKind, Node};
use strongroom_format::columns::Kind;

use super::expr::name_node;
use super::flow::Flow;
use super::literal::Literal;
use super::resolver::Resolver;
use super::site::SiteKind;

impl Resolver<'_> {
    /// Walks the condition of a WHERE, HAVING, FILTER, ON or CASE, or an operand of AND, OR and
    /// NOT. In the second walk a confidential boolean `x` becomes `x = $n` with `true` as the
    /// parameter. Does nothing for `None`.
    pub(super) fn condition(&mut self, node: Option<&mut Box<Node>>) {
        if let Some(node) = node {
            self.truth(node);
        }
    }

    /// Walks each of these as [`Self::condition`] does.
    pub(super) fn conditions(&mut self, nodes: &mut [Node]) {
        for node in nodes {
            self.truth(node);
        }
    }

    /// Walks one condition. A comparison is a boolean in clear already.
    fn truth(&mut self, node: &mut Node) {
        let flow = self.expr(node);
        let Some(location) = location_of_value(node) else {
            return;
        };
        // Both walks have to meet the same sites.
        let site = self.visit_site(SiteKind::Constant(Literal::truth(location)));
        if !self.is_confidential(&flow) || flow.kind != Some(Kind::Bool) {
            return;
        }
        self.combine(&[flow, Flow::site(site, Some(Kind::Bool))]);
        let mut parameter = Node::default();
        self.replace(&mut parameter, site);
        if parameter.node.is_none() {
            return;
        }
        let comparison = AExpr {
            kind: AExprKind::AexprOp.into(),
            name: vec![name_node("=")],
            lexpr: Some(Box::new(std::mem::take(node))),
            rexpr: Some(Box::new(parameter)),
            location,
            ..AExpr::default()
        };
        node.node = Some(NodeEnum::AExpr(Box::new(comparison)));
    }
}

/// Returns the place in the statement, in bytes, of an expression that may be a boolean value.
/// `None` for operators and other expressions whose result is never a confidential boolean.
fn location_of_value(node: &Node) -> Option<i32> {
    Some(match node.node.as_ref()? {
        NodeEnum::ColumnRef(column) => column.location,
        NodeEnum::FuncCall(call) => call.location,
        NodeEnum::CaseExpr(case) => case.location,
        NodeEnum::CoalesceExpr(of) => of.location,
        NodeEnum::SubLink(link) => link.location,
        NodeEnum::TypeCast(cast) => cast.location,
        _ => return None,
    })
}
