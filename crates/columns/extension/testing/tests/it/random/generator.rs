//! Random statements over the two tables of the test, typed, so that most of them are sound.
//!
//! What may fail for a row (division, overflow, a square root) stands in lists of results and in
//! SET only: the order in which a server evaluates the conditions of a WHERE is its own affair.
//! Must not: draw from anything but its own generator.

use fastrand::Rng;

use super::values::Type::{
    self, Bool, Bytea, Date, Float8, Int4, Int8, Numeric, Text, Time, Timestamp, Uuid,
};
use super::values::{COLUMNS, pick};

/// A statement, and how its answer is compared.
pub(crate) struct Statement {
    pub(crate) sql: String,
    /// Rows come in an order that the statement fixes.
    pub(crate) ordered: bool,
    /// Equal values become one.
    pub(crate) merges: bool,
    pub(crate) parameters: Vec<String>,
}

pub(crate) struct Generator {
    pub(crate) random: Rng,
    /// Names of the tables that expressions are about.
    from: Vec<&'static str>,
    /// Whether what may fail for a row is allowed here.
    pub(super) risky: bool,
}

impl Generator {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Rng::with_seed(seed),
            from: Vec::new(),
            risky: false,
        }
    }

    pub(super) fn one<T: Copy>(&mut self, of: &[T]) -> T {
        pick(&mut self.random, of)
    }

    /// Once in so many.
    pub(super) fn chance(&mut self, of: u32) -> bool {
        self.random.u32(0..of) == 0
    }

    fn any_type(&mut self) -> Type {
        self.one(COLUMNS).1
    }

    pub(super) fn column(&mut self, of: Type) -> String {
        let table = pick(&mut self.random, &self.from);
        let named = COLUMNS.iter().find(|(_, known)| *known == of);
        let name = named.map_or("id", |(name, _)| name);
        format!("{table}.{name}")
    }

    /// An expression of this type.
    pub(crate) fn value(&mut self, of: Type, depth: u32) -> String {
        if depth == 0 || self.chance(4) {
            return if self.chance(4) {
                self.literal(of)
            } else {
                self.column(of)
            };
        }
        let below = depth - 1;
        if self.chance(6) {
            return self.conditional(of, below);
        }
        match of {
            Int4 => self.int4(below),
            Int8 => self.arithmetic(Int8, below),
            Float8 => self.float8(below),
            Numeric => self.numeric(below),
            Text => self.text(below),
            Bytea => format!(
                "({} || {})",
                self.value(Bytea, below),
                self.value(Bytea, below)
            ),
            Date => self.date(below),
            Timestamp => self.timestamp(below),
            Uuid => self.uuid(below),
            Time => self.time(below),
            // What a comparison gives is a plain truth; beside a confidential one it would not be
            // of its type.
            Bool => self.conditional(Bool, below),
        }
    }

    /// An expression with a column in it: a function of constants alone is one of plain values,
    /// also where its result meets others.
    pub(super) fn data(&mut self, of: Type, depth: u32) -> String {
        let made = self.value(of, depth);
        let has_column = self
            .from
            .iter()
            .any(|table| made.contains(&format!("{table}.")));
        if has_column { made } else { self.column(of) }
    }

    fn conditional(&mut self, of: Type, below: u32) -> String {
        let (one, two) = (self.value(of, below), self.value(of, below));
        match self.random.u32(0..4) {
            0 => format!(
                "CASE WHEN {} THEN {one} ELSE {two} END",
                self.condition(below)
            ),
            1 => format!("coalesce({one}, {two})"),
            2 => format!("nullif({one}, {two})"),
            _ if of == Bool => one,
            _ => format!("{}({one}, {two})", self.one(&["greatest", "least"])),
        }
    }

    /// A condition.
    pub(crate) fn condition(&mut self, depth: u32) -> String {
        let risky = std::mem::replace(&mut self.risky, false);
        let made = self.safe_condition(depth);
        self.risky = risky;
        made
    }

    fn safe_condition(&mut self, depth: u32) -> String {
        if depth > 0 && self.chance(3) {
            let (one, two) = (
                self.safe_condition(depth - 1),
                self.safe_condition(depth - 1),
            );
            return match self.random.u32(0..3) {
                0 => format!("({one} AND {two})"),
                1 => format!("({one} OR {two})"),
                _ => format!("NOT ({one})"),
            };
        }
        let of = self.any_type();
        let below = depth.min(1);
        let one = self.data(of, below);
        match self.random.u32(0..9) {
            0 => format!("{one} IS {}NULL", self.one(&["", "NOT "])),
            1 => format!(
                "{one} BETWEEN {} AND {}",
                self.value(of, 0),
                self.value(of, 0)
            ),
            2 => format!(
                "{one} {}IN ({}, {})",
                self.one(&["", "NOT "]),
                self.value(of, 0),
                self.literal(of)
            ),
            3 if of == Text && self.chance(3) => format!(
                "{one} {} {}",
                self.one(&["~", "!~", "~*", "!~*"]),
                self.one(&["'^a'", "'b|[[:digit:]]$'", "'.{3,5}'", "'(a'"])
            ),
            3 if of == Text => format!(
                "{one} {} {}",
                self.one(&["LIKE", "NOT LIKE", "ILIKE"]),
                self.one(&["'a%'", "'%b%'", "'_'", "'%\\%'"])
            ),
            4 => format!(
                "{one} IS {}DISTINCT FROM {}",
                self.one(&["", "NOT "]),
                self.value(of, 0)
            ),
            5 => format!(
                "id_of({}) {} {}",
                pick(&mut self.random, &self.from),
                self.one(&["<", ">", "="]),
                self.random.u32(0..60)
            )
            .replace("id_of(", "(")
            .replace(") ", ".id) "),
            _ => format!(
                "{one} {} {}",
                self.one(&["=", "<>", "<", "<=", ">", ">="]),
                self.value(of, below)
            ),
        }
    }

    fn risky_value(&mut self, depth: u32) -> String {
        let of = self.any_type();
        self.risky = true;
        let made = self.value(of, depth);
        self.risky = false;
        made
    }

    fn aggregate(&mut self) -> String {
        // Sums of floating point depend on the order of the rows, which a plan may change.
        let of = self.one(&[
            Int4, Int8, Numeric, Text, Date, Timestamp, Bool, Bytea, Float8, Uuid, Time,
        ]);
        let value = self.value(of, 1);
        let distinct = if self.chance(5) { "DISTINCT " } else { "" };
        let ordering = ["min", "max", "count"];
        match of {
            Int4 | Int8 | Numeric => format!(
                "{}({distinct}{value})",
                self.one(&[
                    "sum",
                    "avg",
                    "min",
                    "max",
                    "count",
                    "stddev_samp",
                    "var_pop"
                ])
            ),
            Bool => format!(
                "{}({value})",
                self.one(&["bool_and", "bool_or", "count", "every"])
            ),
            Text if self.chance(3) => format!("string_agg({value}, ',' ORDER BY {})", self.ids()),
            Bytea | Uuid => format!("count({distinct}{value})"),
            _ => format!("{}({distinct}{value})", self.one(&ordering)),
        }
    }

    fn ids(&self) -> String {
        let ids: Vec<String> = self
            .from
            .iter()
            .map(|table| format!("{table}.id"))
            .collect();
        ids.join(", ")
    }

    fn about(&mut self, tables: &[&'static str]) {
        self.from = tables.to_vec();
    }

    /// The next statement.
    pub(crate) fn statement(&mut self) -> Statement {
        let kind = self.random.u32(0..20);
        let (sql, ordered) = match kind {
            0..4 => self.projection(),
            4..7 => self.grouping(),
            7..9 => self.join(),
            9..11 => self.set_operation(),
            11..13 => self.subquery(),
            13 => self.window(),
            14 => self.with(),
            15 => return self.parameters(),
            16 => self.distinct(),
            _ => self.change(),
        };
        Statement {
            sql,
            ordered,
            merges: matches!(kind, 4..7 | 9..11 | 16),
            parameters: Vec::new(),
        }
    }

    fn projection(&mut self) -> (String, bool) {
        self.about(&["t"]);
        let (one, two) = (self.risky_value(3), self.risky_value(2));
        let (key, direction) = (self.any_type(), self.one(&["", " DESC", " NULLS FIRST"]));
        let (condition, key) = (self.condition(2), self.value(key, 1));
        (
            format!(
                "SELECT t.id, {one}, {two} FROM t WHERE {condition} ORDER BY {key}{direction}, t.id"
            ),
            true,
        )
    }

    fn distinct(&mut self) -> (String, bool) {
        self.about(&["t"]);
        let of = self.any_type();
        let limit = if self.chance(2) { " LIMIT 5" } else { "" };
        (
            format!(
                "SELECT DISTINCT {} AS v FROM t WHERE {} ORDER BY v{limit}",
                self.value(of, 1),
                self.condition(1)
            ),
            true,
        )
    }

    fn grouping(&mut self) -> (String, bool) {
        self.about(&["t"]);
        let (one, two) = (self.aggregate(), self.aggregate());
        let condition = self.condition(1);
        match self.random.u32(0..3) {
            0 => (
                format!("SELECT count(*), {one}, {two} FROM t WHERE {condition}"),
                true,
            ),
            1 => (
                format!(
                    "SELECT t.g, {one}, {two} FROM t WHERE {condition} GROUP BY t.g ORDER BY t.g"
                ),
                true,
            ),
            _ => {
                let of = self.any_type();
                let key = self.column(of);
                let having = if self.chance(2) {
                    " HAVING count(*) > 1"
                } else {
                    ""
                };
                (
                    format!(
                        "SELECT {key}, {one}, count(*) FROM t WHERE {condition} GROUP BY {key}{having}"
                    ),
                    false,
                )
            }
        }
    }

    fn join(&mut self) -> (String, bool) {
        self.about(&["t", "u"]);
        let of = self.any_type();
        let column = COLUMNS
            .iter()
            .find(|(_, known)| *known == of)
            .map_or("i", |(name, _)| name);
        let on = self.one(&["t.id = u.tid", ""]);
        let on = if on.is_empty() {
            format!("t.{column} = u.{column}")
        } else {
            on.to_owned()
        };
        // A full join needs a condition that merges or hashes: both have it.
        let kind = self.one(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]);
        let of = self.any_type();
        (
            format!(
                "SELECT t.id, u.id, {} FROM t {kind} u ON {on} WHERE {}",
                self.value(of, 2),
                self.condition(1)
            ),
            false,
        )
    }

    fn set_operation(&mut self) -> (String, bool) {
        let of = self.any_type();
        self.about(&["t"]);
        let (one, first) = (self.value(of, 1), self.condition(1));
        self.about(&["u"]);
        let (two, second) = (self.value(of, 1), self.condition(1));
        let operation = self.one(&["UNION", "UNION ALL", "INTERSECT", "EXCEPT", "EXCEPT ALL"]);
        (
            format!(
                "SELECT {one} FROM t WHERE {first} {operation} SELECT {two} FROM u WHERE {second}"
            ),
            false,
        )
    }

    fn subquery(&mut self) -> (String, bool) {
        let of = self.any_type();
        self.about(&["u"]);
        let (inner, condition) = (self.value(of, 1), self.condition(1));
        self.about(&["t"]);
        let outer = self.value(of, 1);
        let made = match self.random.u32(0..4) {
            0 => format!(
                "SELECT t.id FROM t WHERE {outer} IN (SELECT {inner} FROM u WHERE {condition}) ORDER BY t.id"
            ),
            1 => format!(
                "SELECT t.id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.tid = t.id AND {condition}) ORDER BY t.id"
            ),
            2 if !matches!(of, Bool | Bytea | Uuid) => {
                let which = self.one(&["min", "max"]);
                format!(
                    "SELECT t.id FROM t WHERE {outer} >= (SELECT {which}({inner}) FROM u WHERE {condition}) ORDER BY t.id"
                )
            }
            _ => format!(
                "SELECT t.id, (SELECT {inner} FROM u WHERE u.tid = t.id ORDER BY u.id LIMIT 1) FROM t ORDER BY t.id"
            ),
        };
        (made, true)
    }

    fn window(&mut self) -> (String, bool) {
        self.about(&["t"]);
        let of = self.any_type();
        let (value, key) = (self.value(of, 1), self.value(of, 1));
        let function = match self.random.u32(0..4) {
            0 => format!("row_number() OVER (PARTITION BY t.g ORDER BY {key}, t.id)"),
            1 => format!(
                "sum({}) OVER (PARTITION BY t.g ORDER BY t.id)",
                self.value(Numeric, 1)
            ),
            2 => format!("lag({value}) OVER (ORDER BY t.id)"),
            _ => format!("rank() OVER (ORDER BY {key})"),
        };
        (
            format!("SELECT t.id, {function} FROM t ORDER BY t.id"),
            true,
        )
    }

    fn with(&mut self) -> (String, bool) {
        self.about(&["t"]);
        let of = self.any_type();
        let (value, condition, literal) = (self.value(of, 2), self.condition(1), self.literal(of));
        (
            format!(
                "WITH x AS (SELECT t.id, {value} AS v FROM t WHERE {condition}) SELECT id, v FROM x WHERE v <= {literal} ORDER BY id"
            ),
            true,
        )
    }

    fn parameters(&mut self) -> Statement {
        self.about(&["t"]);
        let (one, two) = (self.any_type(), self.any_type());
        let (first, second) = (self.column(one), self.column(two));
        let order = self.one(&["<", "<=", "=", ">"]);
        Statement {
            sql: format!(
                "SELECT t.id, coalesce({second}, $2) FROM t WHERE {first} {order} $1 OR {second} = $2 ORDER BY t.id"
            ),
            ordered: true,
            merges: false,
            parameters: vec![self.text_of(one), self.text_of(two)],
        }
    }

    fn change(&mut self) -> (String, bool) {
        self.about(&["t"]);
        let (column, of) = self.one(COLUMNS);
        self.risky = true;
        let value = self.value(of, 2);
        self.risky = false;
        let condition = self.condition(1);
        let id = self.random.u32(1..80);
        let made = match self.random.u32(0..6) {
            0 => format!(
                "DELETE FROM t WHERE t.id % 7 = {} AND {condition} RETURNING t.id, t.{column}",
                id % 7
            ),
            1 => format!(
                "INSERT INTO t (id, g, {column}) VALUES ({}, {}, {}) RETURNING *",
                id + 100,
                id % 5,
                self.literal(of)
            ),
            2 => format!(
                "INSERT INTO t (id, g, {column}) SELECT t.id + 1000, t.g, {value} FROM t WHERE {condition}"
            ),
            3 => format!(
                "INSERT INTO t (id, g, {column}) VALUES ({id}, 1, {}) ON CONFLICT (id) DO UPDATE SET {column} = excluded.{column}, g = t.g + 1",
                self.literal(of)
            ),
            4 => format!(
                "UPDATE t SET {column} = u.{column} FROM u WHERE u.tid = t.id AND u.id % 2 = 0 RETURNING t.id, t.{column}"
            ),
            _ => format!(
                "UPDATE t SET {column} = {value} WHERE {condition} RETURNING t.id, t.{column}"
            ),
        };
        (made, false)
    }
}
