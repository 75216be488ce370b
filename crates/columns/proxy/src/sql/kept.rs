//! Constants of definitions, which the server keeps as text: defaults and checks.
//!
//! Parameters cannot stand in a definition. Where the extension has a function for it, a constant
//! stands there as an envelope: `strongroom_columns.enc_text_constant('sr1:...')`. The plan has a
//! placeholder in the envelope's place, because only the connection has the keys. Must not: seal
//! anything.

use pg_query::NodeEnum;
use pg_query::protobuf::{AConst, CoercionForm, FuncCall, Node, String as Name, a_const};
use strongroom_format::columns::Kind;

use super::expr::name_node;
use super::functions;
use super::literal::{Form, Literal, Token};
use super::resolver::Resolver;
use super::site::{KeptConstant, Site, SiteKind};

/// The schema of the extension's functions for clients.
pub(super) const SCHEMA: &str = "strongroom_columns";
/// The end of the name of the functions that open an envelope of a definition.
const SUFFIX: &str = "_constant";

/// Returns the kind of the result of a function that opens an envelope of a definition. `None` for
/// every other name.
pub(super) fn kind_of_function(name: &str) -> Option<Kind> {
    functions::confidential_type(name.strip_suffix(SUFFIX)?)
}

/// Returns the kind that a marked constant is sealed as; `None` for one that no definition can
/// keep: an array, and the time at which the statement is executed.
fn kind_of_site(site: &Site, literal: &Literal) -> Option<Kind> {
    match (site.form?, &literal.token) {
        (_, Token::Clock(_)) | (Form::Array(_), _) => None,
        (Form::Typed(kind), _) => Some(kind),
        (Form::Bare, _) => Some(site.beside.unwrap_or(Kind::Text)),
    }
}

impl Resolver<'_> {
    /// Returns whether a definition can keep all marked constants, and nothing else of it stands in
    /// the way, such as a parameter.
    pub(super) fn can_keep_constants(&self) -> bool {
        let marked = self.sites.iter().filter(|site| site.form.is_some());
        let mut kept = marked.map(|site| match &site.kind {
            SiteKind::Constant(literal) => kind_of_site(site, literal).is_some(),
            SiteKind::Cast(_) | SiteKind::RecursiveColumn => true,
            SiteKind::Parameter(_) => false,
        });
        kept.all(|can| can)
    }

    /// Begins the second walk of a definition. In that walk each constant that the first walk has
    /// marked is replaced by a call with a placeholder as its argument; `kept` has the constants
    /// with their placeholders, which are chosen so that none is in the statement's own text.
    pub(super) fn begin_keeping(&mut self) {
        let mut prefix = "strongroom constant ".to_owned();
        while self.text.contains(&prefix) {
            prefix.push('~');
        }
        let mut kept = Vec::new();
        let mut numbers = Vec::with_capacity(self.sites.len());
        for site in &self.sites {
            let constant = match &site.kind {
                SiteKind::Constant(literal) => {
                    kind_of_site(site, literal).map(|kind| (kind, literal))
                }
                _ => None,
            };
            numbers.push(constant.map(|(kind, literal)| {
                let number = i32::try_from(kept.len()).unwrap_or(i32::MAX);
                kept.push(KeptConstant {
                    placeholder: format!("{prefix}{number}."),
                    kind,
                    literal: literal.clone(),
                    column: site.destination.column(),
                });
                number
            }));
        }
        self.begin_applying(numbers);
        self.kept = kept;
    }

    /// Returns the call that opens the envelope of the constant of this number, when the
    /// statement's constants are kept.
    pub(super) fn kept_constant(&self, number: i32) -> Option<Node> {
        let constant = self.kept.get(usize::try_from(number).ok()?)?;
        let text = AConst {
            isnull: false,
            location: 0,
            val: Some(a_const::Val::Sval(Name {
                sval: constant.placeholder.clone(),
            })),
        };
        let name = format!("enc_{}{SUFFIX}", constant.kind.base());
        let call = FuncCall {
            funcname: vec![name_node(SCHEMA), name_node(&name)],
            args: vec![Node {
                node: Some(NodeEnum::AConst(text)),
            }],
            funcformat: CoercionForm::CoerceExplicitCall.into(),
            ..FuncCall::default()
        };
        Some(Node {
            node: Some(NodeEnum::FuncCall(Box::new(call))),
        })
    }
}
