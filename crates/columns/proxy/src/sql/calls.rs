//! The walk over function calls.
//!
//! Must not: resolve overloads as PostgreSQL does; the server does that.

use pg_query::NodeEnum;
use pg_query::protobuf::{CoercionForm, FuncCall};
use strongroom_format::columns::Kind;

use super::expr::name_node;
use super::flow::{Flow, Origins};
use super::literal::{Token, typed_constant};
use super::refusal::Refusal;
use super::resolver::Resolver;
use super::site::{Site, SiteKind};
use super::tree::names;
use super::{functions, kept};

impl Resolver<'_> {
    /// Walks a function call: its data arguments are combined. In the second walk a call with
    /// confidential arguments becomes one of the extension's function. Returns what is known of the
    /// result.
    pub(crate) fn call(&mut self, call: &mut FuncCall) -> Flow {
        let name = names(&call.funcname)
            .last()
            .copied()
            .unwrap_or_default()
            .to_owned();
        let ours = self.is_known_function(&names(&call.funcname));
        let opens = kept::kind_of_function(&name).filter(|_| ours && has_envelope(call));
        let args = self.exprs(&mut call.args);
        if opens.is_some() {
            return Flow::confidential(opens);
        }
        self.note_texts(&args);
        let mut order = self.exprs(&mut call.agg_order);
        self.condition(call.agg_filter.as_mut());
        if let Some(window) = call.over.as_mut() {
            self.window(window);
        }
        let by_name = call
            .args
            .iter()
            .any(|arg| matches!(arg.node, Some(NodeEnum::NamedArgExpr(_))));
        let mut data = match ours && !by_name {
            true => self.data_of(&name, args),
            false => args,
        };
        // A type's name called as a function is a cast.
        let kind = functions::confidential_type(&name);
        if kind.is_some() || self.catalog.holds_confidential(&name) {
            self.touched = true;
            data.push(Flow::confidential(kind));
        }
        if self.catalog.has_function(&name) {
            self.touched = true;
            data.push(Flow::unknown());
        }
        if call.agg_within_group {
            data.append(&mut order);
        }
        let first = data
            .iter()
            .find(|flow| self.is_confidential(flow))
            .and_then(|flow| flow.kind);
        if ours && functions::renders(&name) {
            self.refuse_rendering(&format!("{name}()"), &data);
        }
        if !ours {
            let out = self.combine(&data);
            return Flow { kind: None, ..out };
        }
        let origins = origins_of_call(&name, &data, first);
        let out = self.combine_arguments(&name, &data);
        if self.applying && out.confidential {
            self.changed |= call_extension_function(call, &name);
        }
        match names(&call.funcname).as_slice() {
            ["strongroom_columns", "declassify"] => return Flow::plain(),
            ["strongroom_columns", "classify"] => return Flow::unknown(),
            _ if functions::is_plain(&name) => return Flow::plain(),
            _ => {}
        }
        Flow {
            kind: functions::result_kind(&name, first).filter(|_| out.confidential),
            row: None,
            origins,
            ..out
        }
    }
}

impl Resolver<'_> {
    /// Returns those of the arguments of a function of PostgreSQL's or of the extension's that are
    /// data and not structure.
    fn data_of(&mut self, name: &str, args: Vec<Flow>) -> Vec<Flow> {
        let mut data: Vec<Flow> = Vec::new();
        let mut how = Vec::new();
        for (at, arg) in args.into_iter().enumerate() {
            if let Some(kind) = functions::other_kind_of_argument(name, at) {
                self.give_kind(&arg, kind);
            }
            match functions::structure_of_argument(name, at) {
                Some(of) => how.push((arg, of)),
                None => data.push(arg),
            }
        }
        for (arg, of) in how {
            let decided = self.structure(arg, of, &data);
            data.extend(decided);
        }
        data
    }

    /// Returns whether a call of this name is certainly one of PostgreSQL's own functions or of the
    /// extension's: what is known of these by their names holds for no function of a user.
    pub(super) fn is_known_function(&self, parts: &[&str]) -> bool {
        let name = parts.last();
        let of_user = name.is_none_or(|name| self.catalog.has_function(name));
        !of_user && self.is_of_known_schema(parts)
    }

    /// Returns whether the name of a function or operator has no schema, or that of PostgreSQL's
    /// own or of the extension's.
    pub(super) fn is_of_known_schema(&self, parts: &[&str]) -> bool {
        match parts {
            [] | [_] | [.., "pg_catalog" | kept::SCHEMA, _] => true,
            [.., schema, _] => *schema == self.catalog.schema(),
        }
    }

    /// Notes which constants a function is called with: some functions execute them, as
    /// `query_to_xml` does.
    fn note_texts(&mut self, args: &[Flow]) {
        if self.applying {
            return;
        }
        let sites = args.iter().flat_map(|flow| &flow.carried);
        let sites: Vec<usize> = sites.map(|carried| carried.site).collect();
        self.arguments.extend(sites);
    }

    /// Records that a function of PostgreSQL's or of the extension's is called with these values,
    /// and returns what is known of its result.
    fn combine_arguments(&mut self, name: &str, data: &[Flow]) -> Flow {
        let mut out = self.combine(data);
        if name == "unnest" {
            // Its rows are the elements themselves.
            for flow in data {
                out.add_values(&flow.carried);
            }
        }
        out
    }

    /// Sets the kind of a string constant that is an argument of a function to `kind`, which the
    /// function takes there. The constant's kind cannot be inferred from the value that the call is
    /// compared with, because the function returns another kind. Does nothing if the argument is
    /// not a string constant.
    pub(super) fn give_kind(&mut self, arg: &Flow, kind: Kind) {
        for carried in arg.carried.iter().filter(|carried| carried.direct) {
            if let Some(Site {
                kind: SiteKind::Constant(literal),
                form: None,
                ..
            }) = self.sites.get_mut(carried.site)
                && literal.token == Token::String
            {
                literal.token = Token::Typed(kind);
            }
        }
    }

    /// Refuses an expression that writes values of any type as text, if one of them is
    /// confidential: the server would write its envelope. What meets a relation that is not known
    /// is left to the server, which says so.
    pub(super) fn refuse_rendering(&mut self, what: &str, flows: &[Flow]) {
        let known = self.unknown.is_empty();
        let sealed = |flow: &Flow| self.is_confidential(flow) && (known || flow.kind.is_some());
        if flows.iter().any(sealed) {
            let message =
                format!("{what} of a confidential value: the server would write its envelope");
            let hint = "Read the column and write the text in the application.";
            let refusal = Refusal::statement(&message, hint);
            self.refusal.get_or_insert(refusal);
        }
    }

    /// Refuses the parts of a confidential document by subscripts: the server would see the place,
    /// which is confidential.
    pub(super) fn refuse_subscripts(&mut self) {
        let refusal = Refusal::statement(
            "subscripts of a confidential document",
            "Write document -> name or document -> place.",
        );
        self.refusal.get_or_insert(refusal);
    }
}

/// Returns what the result of a function can be a value of, whose arguments' values are `data`, the
/// first confidential one of the kind `first`: only of one that the extension has.
fn origins_of_call(name: &str, data: &[Flow], first: Option<Kind>) -> Option<Origins> {
    functions::result_kind(name, first)?;
    let known = |flow: &Flow| flow.confidential && flow.origins.is_some();
    if functions::picks(name) {
        return Some(Flow::origins_of_one(data)?.or(Origins::made()));
    }
    data.iter().any(known).then(Origins::made)
}

/// Returns whether the call's one argument is an envelope.
fn has_envelope(call: &FuncCall) -> bool {
    let [argument] = call.args.as_slice() else {
        return false;
    };
    typed_constant(argument).is_some_and(|literal| literal.is_envelope())
}

/// Changes a call that the grammar wrote as one of `pg_catalog`, or under another name, into one of
/// the extension's function. Returns whether it has changed the call.
fn call_extension_function(call: &mut FuncCall, name: &str) -> bool {
    let Some(ours) = functions::extension_name(name) else {
        return false;
    };
    let by_grammar = call.funcformat() == CoercionForm::CoerceSqlSyntax;
    let other = by_grammar || ours != name || names(&call.funcname).first() == Some(&"pg_catalog");
    if other {
        call.funcname = vec![name_node(ours)];
        call.funcformat = CoercionForm::CoerceExplicitCall.into();
    }
    other
}
