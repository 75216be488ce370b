//! Which constants flow into which expression: the unit that the resolver computes with.
//!
//! Must not: look at the tree.

use strongroom_format::columns::{Kind, Lineage};

use super::comparable::ComparableColumn;

/// A place in the statement that may have to be changed: a constant, a parameter of the client, a
/// cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Carried {
    /// Number of the site, in the order in which the resolver meets them.
    pub(crate) site: usize,
    /// Whether nothing stands between it and the expression: an untyped parameter in its place gets
    /// its type from there.
    pub(crate) direct: bool,
    /// Whether the expression's value may be this one itself, and is not computed from it.
    pub(crate) is_value: bool,
}

/// The flow of an expression's value: its kind, and the sites that flow into it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flow {
    /// Whether it is, or is made from, a confidential value, or from a name that is not known.
    pub(crate) confidential: bool,
    /// The kind, as far as it is known, of a confidential value or of a literal.
    pub(crate) kind: Option<Kind>,
    /// What flows into it and is not marked yet.
    pub(crate) carried: Vec<Carried>,
    /// The fields of a row.
    pub(crate) row: Option<Vec<Self>>,
    /// The comparable column that it is, of the relation that the statement changes.
    pub(crate) comparable: Option<ComparableColumn>,
    /// What a confidential value can be a value of. `None` if that is not known, and if it is not
    /// certain that the server sends a confidential value.
    pub(crate) origins: Option<Origins>,
    /// The name that PostgreSQL gives a result's column that is this value; `None` if that is not
    /// certain.
    pub(crate) label: Option<String>,
}

/// What a value can be a value of, as the lineage of a result's envelope tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origins {
    /// Anything: it is certain only that the value is confidential.
    Any,
    /// One of these columns, or, with `made`, none of them: it was computed, or is a constant.
    Of {
        columns: Vec<OriginColumn>,
        made: bool,
    },
}

/// A column whose value a result can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OriginColumn {
    /// The lineage that it has by its name.
    pub(crate) lineage: Lineage,
    /// The OID of its relation.
    pub(crate) relation: u32,
}

impl Origins {
    /// Returns the origins of what was computed.
    pub(crate) const fn made() -> Self {
        Self::Of {
            columns: Vec::new(),
            made: true,
        }
    }

    /// Returns the origins of a value that is of either.
    pub(crate) fn or(self, other: Self) -> Self {
        let (
            Self::Of { mut columns, made },
            Self::Of {
                columns: others,
                made: or_made,
            },
        ) = (self, other)
        else {
            return Self::Any;
        };
        for other in others {
            if !columns.contains(&other) {
                columns.push(other);
            }
        }
        Self::Of {
            columns,
            made: made || or_made,
        }
    }
}

impl Flow {
    /// Returns what the value can be a value of; a plain one is a constant, where it becomes
    /// confidential.
    pub(crate) fn origins(&self) -> Option<Origins> {
        if self.confidential {
            self.origins.clone()
        } else {
            Some(Origins::made())
        }
    }

    /// Returns what a value can be a value of that is one of these.
    pub(crate) fn origins_of_one(flows: &[Self]) -> Option<Origins> {
        let mut each = flows.iter().map(Self::origins);
        let first = each.next()??;
        each.try_fold(first, |known, other| Some(known.or(other?)))
    }

    /// Returns the flow (what is known of a value, and the constants and parameters it comes from)
    /// of a plain value into which no constant flows.
    pub(crate) fn plain() -> Self {
        Self::default()
    }

    /// Returns what is known of a value that counts as confidential because nothing is known of it.
    pub(crate) fn unknown() -> Self {
        Self::confidential(None)
    }

    /// Returns what is known of a confidential value; `kind` is `None` where that is not known.
    pub(crate) fn confidential(kind: Option<Kind>) -> Self {
        Self {
            confidential: true,
            kind,
            ..Self::default()
        }
    }

    /// Returns what is known of a constant, a parameter or a cast: that it comes from this place in
    /// the statement (site) alone, and directly. Not confidential; `kind` is `None` where it is not
    /// known.
    pub(crate) fn site(site: usize, kind: Option<Kind>) -> Self {
        Self {
            kind,
            carried: vec![Carried {
                site,
                direct: true,
                is_value: true,
            }],
            ..Self::default()
        }
    }

    /// Returns what is known of the value after an operator, a function or a subquery: its
    /// constants and parameters (sites) no longer flow into it directly, so that an untyped
    /// parameter in its place would get no type.
    pub(crate) fn indirect(mut self) -> Self {
        for carried in &mut self.carried {
            carried.direct = false;
        }
        self
    }

    /// Adds constants and parameters (sites) that the value may be itself, although they do not
    /// stand directly in its place.
    pub(crate) fn add_values(&mut self, values: &[Carried]) {
        for carried in values {
            let value = Carried {
                direct: false,
                ..*carried
            };
            if !self.carried.contains(&value) {
                self.carried.push(value);
            }
        }
    }

    /// Returns what is known of what is computed from the value, which is no constant or parameter
    /// (site) itself.
    pub(crate) fn computed(mut self) -> Self {
        for carried in &mut self.carried {
            carried.direct = false;
            carried.is_value = false;
        }
        self
    }

    /// Adds the constants and parameters (sites) that flow into `other`. The value is confidential
    /// if one of both is, and takes the kind of `other` if it has none. The fields of a row stay as
    /// they are.
    pub(crate) fn join(&mut self, other: &Self) {
        self.origins = match (self.origins(), other.origins()) {
            (Some(own), Some(other)) => Some(own.or(other)),
            _ => None,
        };
        self.confidential |= other.confidential;
        self.kind = self.kind.or(other.kind);
        for carried in &other.carried {
            if !self.carried.contains(carried) {
                self.carried.push(*carried);
            }
        }
    }
}

/// The columns of a query's result or of a relation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Columns {
    /// The columns that are known by name, in order.
    pub(crate) named: Vec<(String, Flow)>,
    /// The flow of every other name, when not all columns are known.
    pub(crate) open: Option<Flow>,
    /// How many of the named columns stand at the place that they have here. `None`: all do; an
    /// unknown number of columns (`f.*` of a function) before others moves those.
    pub(crate) certain: Option<usize>,
    /// The first place, from 0, whose column depends on how many columns the server says that a `*`
    /// before it stands for. `None`: no place does. The columns of a relation that the proxy keeps
    /// in its file (`relations.rs`) are certain, but the server may show new ones behind them.
    pub(crate) told_from: Option<usize>,
    /// What stands at each place, where that is not the named columns' order: any of several
    /// relations may be meant.
    pub(crate) places: Option<Vec<Flow>>,
}

impl Columns {
    /// Returns columns of unknown number and names; `flow` says what is known of each of them.
    pub(crate) fn open(flow: Flow) -> Self {
        Self {
            open: Some(flow),
            ..Self::default()
        }
    }

    /// Returns what is known of the column of this name; the flows of several of the name are
    /// joined. `None` if no known column has it.
    pub(crate) fn find(&self, name: &str) -> Option<Flow> {
        let mut found: Option<Flow> = None;
        for (_, flow) in self.named.iter().filter(|(known, _)| known == name) {
            match &mut found {
                Some(found) => found.join(flow),
                None => found = Some(flow.clone()),
            }
        }
        found
    }

    /// Returns what is known of the column of this name: of the known columns, or else of the
    /// columns whose names are not known. `None` if all columns are known and none has the name.
    pub(crate) fn find_or_open(&self, name: &str) -> Option<Flow> {
        self.find(name).or_else(|| self.open.clone())
    }

    /// Returns what is known of the column at this place, from 0. Where the order is not certain,
    /// returns the flow of the whole row; beyond the last column, what is known of unknown columns,
    /// or else a flow that counts as confidential. Where a constant or a parameter may stand at
    /// another place than the server says, returns the flow of all columns that may stand here.
    pub(crate) fn at(&self, place: usize) -> Flow {
        if let Some(places) = &self.places {
            let known = places.get(place).cloned();
            return known
                .or_else(|| self.open.clone())
                .unwrap_or_else(Flow::unknown);
        }
        if self.certain.is_some_and(|certain| place >= certain) {
            return self.whole();
        }
        if self.may_hold_another(place) {
            return self.whole_from(self.told_from.unwrap_or_default());
        }
        let named = self.named.get(place).map(|(_, flow)| flow.clone());
        named
            .or_else(|| self.open.clone())
            .unwrap_or_else(Flow::unknown)
    }

    /// Returns the number of columns that are known; there may be more.
    pub(crate) fn len(&self) -> usize {
        self.places.as_ref().map_or(self.named.len(), Vec::len)
    }

    /// Returns what is known of the whole row: what is known of all columns, unknown ones included,
    /// joined, so that it is confidential if one of them is. It has no kind and no fields, and no
    /// site flows directly into it.
    pub(crate) fn whole(&self) -> Flow {
        self.whole_from(0)
    }

    /// Returns whether a constant or a parameter of another place may really stand at this one,
    /// because the server lies about the number of columns of a `*`. The place may be behind the
    /// last column.
    pub(crate) fn may_hold_another(&self, place: usize) -> bool {
        let told = self.told_from.filter(|told| place >= *told);
        let moved = told.and_then(|told| self.named.get(told..));
        moved.is_some_and(|moved| moved.iter().any(|(_, flow)| !flow.carried.is_empty()))
    }

    /// Returns what `whole` does, of the columns from this place on.
    fn whole_from(&self, first: usize) -> Flow {
        let mut whole = self.open.clone().unwrap_or_default();
        for (_, flow) in self.named.iter().skip(first) {
            whole.join(flow);
        }
        Flow {
            kind: None,
            row: None,
            origins: None,
            ..whole
        }
        .indirect()
    }

    /// Appends the columns that a `*` stands for. If `other` may have more columns than are known,
    /// so may `self` from then on, with what both know of unknown columns joined, and the places of
    /// columns after its known ones are uncertain. Places that are uncertain in `other` stay so,
    /// and those that are the server's word.
    pub(crate) fn splice(&mut self, other: Self) {
        let before = self.named.len();
        let moved = other
            .certain
            .or_else(|| other.open.as_ref().map(|_| other.named.len()));
        if self.certain.is_none() {
            self.certain = moved.map(|moved| before.saturating_add(moved));
        }
        if self.told_from.is_none() {
            self.told_from = other.told_from.map(|told| before.saturating_add(told));
        }
        self.named.extend(other.named);
        if let Some(open) = other.open {
            match &mut self.open {
                Some(known) => known.join(&open),
                None => self.open = Some(open),
            }
        }
    }

    /// Returns the same columns under these names, from the first on. Columns beyond the names keep
    /// theirs; names beyond the known columns name unknown ones, and are dropped if there are none.
    pub(crate) fn renamed<'n>(mut self, names: impl Iterator<Item = &'n str>) -> Self {
        let names: Vec<&str> = names.collect();
        let flows: Vec<Flow> = (0..names.len()).map(|place| self.at(place)).collect();
        for (place, (new, flow)) in names.into_iter().zip(flows).enumerate() {
            match self.named.get_mut(place) {
                Some((name, known)) => {
                    new.clone_into(name);
                    *known = flow;
                    known.label = Some(new.to_owned());
                }
                None if self.open.is_some() => self.named.push((new.to_owned(), flow)),
                None => break,
            }
        }
        self
    }

    /// Returns the same columns as they are seen from outside the query: no site flows directly
    /// into them.
    pub(crate) fn indirect(mut self) -> Self {
        for (_, flow) in &mut self.named {
            *flow = std::mem::take(flow).indirect();
        }
        self.open = self.open.map(Flow::indirect);
        self
    }
}
