//! Constants of SQL: their types and values, and the form in which a confidential one is written.
//!
//! Must not: convert a value to its binary form.

use pg_query::NodeEnum;
use pg_query::protobuf::{AConst, Node, TypeName, a_const};
use strongroom_format::columns::Kind;
use zeroize::Zeroizing;

use super::clock::Clock;
use super::functions;
use super::refusal::Refusal;
use super::tree::{integer, names};

/// The type of a constant, by its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// Digits: its type is the first of integer, bigint, numeric that holds it.
    Number(Kind),
    /// A string, whose type is that of the value that it is combined with.
    String,
    /// `true` or `false`.
    Boolean,
    /// `B'..'`, `X'..'`: no confidential type takes it.
    Bits,
    /// A string or number with a type.
    Typed(Kind),
    /// A string with an array type.
    Array(Kind),
    /// What a clock tells; the text is the function's name.
    Clock(Clock),
    /// A string or number with a type that has no confidential counterpart.
    Foreign(String),
}

/// The form in which a marked site is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `$n`: the server finds the type.
    Bare,
    /// `$n::enc_kind`.
    Typed(Kind),
    /// `$n::enc_kind[]`.
    Array(Kind),
}

/// A constant.
#[derive(Clone)]
pub(crate) struct Literal {
    pub(crate) token: Token,
    /// The value as text, as the type's input function accepts it.
    pub(crate) text: Zeroizing<String>,
    /// Bytes into the statement.
    pub(crate) location: i32,
}

impl std::fmt::Debug for Literal {
    /// Without the value.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Literal")
            .field("token", &self.token)
            .field("location", &self.location)
            .finish_non_exhaustive()
    }
}

impl Literal {
    /// Makes the literal of a constant of the tree. `None` for NULL, which is not hidden.
    pub(crate) fn of(constant: &AConst) -> Option<Self> {
        let (token, text) = match constant.val.as_ref().filter(|_| !constant.isnull)? {
            a_const::Val::Ival(number) => (Token::Number(Kind::Int4), number.ival.to_string()),
            a_const::Val::Fval(number) => (
                Token::Number(number_kind(&number.fval)),
                number.fval.clone(),
            ),
            a_const::Val::Boolval(truth) => (
                Token::Boolean,
                if truth.boolval { "t" } else { "f" }.to_owned(),
            ),
            a_const::Val::Sval(text) => (Token::String, text.sval.clone()),
            a_const::Val::Bsval(bits) => (Token::Bits, bits.bsval.clone()),
        };
        Some(Self {
            token,
            text: Zeroizing::new(text),
            location: constant.location,
        })
    }

    /// Returns whether the text is an envelope, which may stay where it is.
    pub(crate) fn is_envelope(&self) -> bool {
        crate::envelope::from_text(self.text.as_bytes()).is_ok()
    }

    /// Makes the literal `true` that a boolean at this place is compared with.
    pub(crate) fn truth(location: i32) -> Self {
        Self {
            token: Token::Boolean,
            text: Zeroizing::new("t".to_owned()),
            location,
        }
    }

    /// Makes the literal of a function that tells the time. `None` for every other node.
    pub(crate) fn of_clock(node: &Node) -> Option<Self> {
        let (clock, name) = Clock::of(node)?;
        let location = match node.node.as_ref()? {
            NodeEnum::FuncCall(call) => call.location,
            NodeEnum::SqlvalueFunction(function) => function.location,
            _ => -1,
        };
        Some(Self {
            token: Token::Clock(clock),
            text: Zeroizing::new(name.to_owned()),
            location,
        })
    }

    /// Returns the literal with a type, as in `date '..'` or `'..'::date`. A type, or a modifier of
    /// one, to which no confidential type corresponds makes it foreign.
    pub(crate) fn with_type(mut self, of: &TypeName) -> Self {
        let name = names(&of.names)
            .last()
            .copied()
            .unwrap_or_default()
            .to_owned();
        let array = functions::kind_of_array_type(&name);
        let kind = array.or_else(|| functions::kind_of_type(&name));
        if !of.array_bounds.is_empty() || array.is_some() {
            // A string with a length for each element would have to be read and cut.
            let kind = kind.filter(|_| of.typmods.is_empty() && self.token == Token::String);
            self.token = kind.map_or(Token::Foreign(name), Token::Array);
            return self;
        }
        self.token = match kind {
            Some(kind)
                if self.is_exact_as(kind, &name)
                    && self.apply_modifiers(kind, &name, &of.typmods) =>
            {
                Token::Typed(kind)
            }
            _ => Token::Foreign(name),
        };
        self
    }

    /// Returns whether a cast of this constant to the type `name`, whose values are sealed as
    /// `kind`, leaves its text unchanged. `false` for `true::text`, which gives `true` where a
    /// boolean's text is `t`, for a number that `real` rounds, and for one that does not fit
    /// `smallint`.
    fn is_exact_as(&self, kind: Kind, name: &str) -> bool {
        match name {
            "int2" => self.text.parse::<i16>().is_ok(),
            "float4" => match (self.text.parse::<f32>(), self.text.parse::<f64>()) {
                (Ok(single), Ok(double)) => f64::from(single) == double,
                _ => false,
            },
            _ => self.token != Token::Boolean || kind == Kind::Bool,
        }
    }

    /// Applies the modifiers of the type to the text. `false` when that cannot be done exactly
    /// here.
    fn apply_modifiers(&mut self, kind: Kind, name: &str, modifiers: &[Node]) -> bool {
        let Some(first) = modifiers.first() else {
            return true;
        };
        let Some(modifier) = integer(first) else {
            return false;
        };
        match kind {
            Kind::Text if matches!(name, "varchar" | "bpchar") => self.cut(modifier),
            Kind::Interval if modifiers.len() == 1 => self.with_field(modifier),
            _ => false,
        }
    }

    /// Cuts the text off after `len` characters, as an explicit cast to a length does (varchar.c).
    /// A shorter text is left as it is, and not padded. `false`, and no change, for a negative
    /// length.
    fn cut(&mut self, len: i32) -> bool {
        let Ok(len) = usize::try_from(len) else {
            return false;
        };
        if let Some((at, _)) = self.text.char_indices().nth(len) {
            self.text.truncate(at);
        }
        true
    }

    /// Turns `interval '90' day` into `interval '90 day'`. `false`, and no change, unless the
    /// string is a number alone and the field is a single one.
    fn with_field(&mut self, mask: i32) -> bool {
        // INTERVAL_MASK of src/include/utils/timestamp.h: one bit for each field.
        let unit = match mask {
            0x2 => "month",
            0x4 => "year",
            0x8 => "day",
            0x400 => "hour",
            0x800 => "minute",
            0x1000 => "second",
            _ => return false,
        };
        let digits = self.text.trim().trim_start_matches(['-', '+']);
        let alone = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if alone {
            self.text = Zeroizing::new(format!("{} {unit}", self.text.trim()));
        }
        alone
    }

    /// Returns the form in which the literal is written in a confidential expression, beside a
    /// value of kind `beside`. `direct`: the server can find a bare parameter's type in this place.
    ///
    /// # Errors
    /// SR-8101 if no confidential type accepts it.
    pub(crate) fn form(&self, direct: bool, beside: Option<Kind>) -> Result<Form, Refusal> {
        let same = |own: Kind| beside == Some(own);
        match &self.token {
            Token::String if direct => Ok(Form::Bare),
            Token::String => Ok(Form::Typed(beside.unwrap_or(Kind::Text))),
            Token::Number(own)
                if direct && beside.is_some_and(|to| functions::widens(*own, to)) =>
            {
                Ok(Form::Bare)
            }
            Token::Number(own) => Ok(Form::Typed(*own)),
            Token::Boolean if direct && same(Kind::Bool) => Ok(Form::Bare),
            Token::Boolean => Ok(Form::Typed(Kind::Bool)),
            Token::Typed(own) => Ok(Form::Typed(*own)),
            Token::Array(own) => Ok(Form::Array(*own)),
            Token::Clock(clock) => Ok(Form::Typed(clock.kind())),
            Token::Bits => Err(self.refusal("no confidential type holds bit strings")),
            Token::Foreign(name) => Err(self.refusal(&format!(
                "no confidential type stands for {name} as it is written"
            ))),
        }
    }

    /// Makes the refusal (SR-8101) that names this constant and its place.
    pub(crate) fn refusal(&self, why: &str) -> Refusal {
        Refusal::constant(&self.for_message(), self.location, why)
    }

    /// Returns its text for an error message, cut to 60 characters.
    pub(crate) fn for_message(&self) -> String {
        const SHOWN_MAX: usize = 60;
        let mut shown: String = self.text.chars().take(SHOWN_MAX).collect();
        if shown.len() < self.text.len() {
            shown.push_str("..");
        }
        match self.token {
            Token::Number(_) | Token::Boolean | Token::Clock(_) => shown,
            _ => format!("'{shown}'"),
        }
    }

    /// Returns the kind of a number, a boolean or a typed constant, of an array's elements, or of
    /// what a clock tells. `None` for every other one.
    pub(crate) const fn kind(&self) -> Option<Kind> {
        match self.token {
            Token::Number(kind) | Token::Typed(kind) | Token::Array(kind) => Some(kind),
            Token::Clock(clock) => Some(clock.kind()),
            Token::Boolean => Some(Kind::Bool),
            _ => None,
        }
    }
}

/// Returns the type that PostgreSQL gives a number: the first of integer, bigint and numeric that
/// holds it (scan.l, `process_integer_literal`; `parse_node.c`, `make_const`).
fn number_kind(text: &str) -> Kind {
    if text.parse::<i32>().is_ok() {
        Kind::Int4
    } else if text.parse::<i64>().is_ok() {
        Kind::Int8
    } else {
        Kind::Numeric
    }
}

/// Returns the constant of a node, or the constant within a cast with the cast's type. `None` for
/// every other node, and for NULL.
pub(crate) fn typed_constant(node: &Node) -> Option<Literal> {
    match node.node.as_ref()? {
        NodeEnum::AConst(constant) => Literal::of(constant),
        NodeEnum::TypeCast(cast) => {
            let literal = constant(cast.arg.as_deref()?).and_then(Literal::of)?;
            Some(literal.with_type(cast.type_name.as_ref()?))
        }
        _ => None,
    }
}

/// Returns the constant of a node. `None` if the node is no constant.
pub(crate) fn constant(node: &Node) -> Option<&AConst> {
    match node.node.as_ref()? {
        NodeEnum::AConst(constant) => Some(constant),
        _ => None,
    }
}
