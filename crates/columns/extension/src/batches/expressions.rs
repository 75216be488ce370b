//! Expressions of a plan as instructions of a program.
//!
//! Must not: make an instruction whose result differs from the expression's.

use pg_sys::{NodeTag, Oid};
use pgrx::pg_sys;
use strongroom_columns_ring::function::{Arg, Field, Function, Gives};
use strongroom_columns_ring::program::{
    INPUTS_MAX, INSTRUCTIONS_MAX, Instruction, Program, Register, Sort, truths,
};
use strongroom_format::columns::Kind;

use super::operands::{array_constant, kind_of, orders_of, plain_constant, plain_width, symbol_of};
use crate::call::{bits, call_postgres, int4};
use crate::catalog::options::items;
use crate::catalog::types;
use crate::functions::compute::{depends_on_time_zone, look_up};

/// Most elements of a list that a value is compared with.
const LIST_MAX: usize = 64;

/// Where the input of a program comes from: a column of the rows that a node reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// The column's identifier, or 0 for NULL.
    Value(i16),
    /// The bits of a column whose values are whole numbers of so many bytes; 0 for NULL.
    Word(i16, u8),
    /// Whether the column is NULL.
    IsNull(i16),
}

impl Source {
    /// Number of the column.
    pub(super) const fn column(self) -> i16 {
        match self {
            Self::Value(column) | Self::Word(column, _) | Self::IsNull(column) => column,
        }
    }
}

/// A program that is being made of expressions.
pub(super) struct Compiler {
    program: Program,
    sources: Vec<Source>,
    /// The relation or the input of the node whose columns are inputs (`Var.varno`).
    varno: i32,
    /// Where the statement's parameters have their values. Null while it is planned: they count as
    /// NULL.
    pub(super) context: *mut pg_sys::ExprContext,
    depends_on_time_zone: bool,
    pub(super) depends_on_subplans: bool,
    /// How many conditions restrict the rows for which the next instruction is carried out.
    pub(super) depth: usize,
}

/// A program, and where its inputs come from.
pub(super) struct Compiled {
    pub(super) program: Program,
    /// By input.
    pub(super) sources: Vec<Source>,
    /// Whether confidential values are computed or compared.
    pub(super) computes: bool,
    /// Whether results may depend on the session's time zone.
    pub(super) depends_on_time_zone: bool,
    /// Whether it has results of subplans, which may be others when the node is begun again.
    pub(super) depends_on_subplans: bool,
}

impl Compiler {
    /// An empty program, whose inputs are columns of `varno`. `context` is the node's, from which
    /// parameters get their values; null while the statement is planned.
    pub(super) fn new(varno: i32, context: *mut pg_sys::ExprContext) -> Self {
        Self {
            program: Program::default(),
            sources: Vec::new(),
            varno,
            context,
            depends_on_time_zone: false,
            depends_on_subplans: false,
            depth: 0,
        }
    }
}

/// Numbers of inputs begin here until all of them are known.
const INPUT: Register = 1 << 15;

impl Compiler {
    /// The program. `None` if it breaks a rule, such as a limit.
    pub(super) fn finish(mut self) -> Option<Compiled> {
        // Inputs come first: until now they were numbered from another beginning.
        let count = Register::try_from(self.sources.len()).ok()?;
        if self.sources.len() > INPUTS_MAX || self.program.instructions.len() > INSTRUCTIONS_MAX {
            return None;
        }
        let place = |register: Register| match register.checked_sub(INPUT) {
            Some(input) => input,
            None => register.saturating_add(count),
        };
        let program = &mut self.program;
        for instruction in &mut program.instructions {
            *instruction = instruction.map_registers(place);
        }
        for key in &mut program.keys {
            *key = place(*key);
        }
        for step in &mut program.aggregates {
            step.of = step.of.map(place);
            step.filter = step.filter.map(place);
        }
        self.program.sorts().ok()?;
        let asks = |instruction: &Instruction| {
            matches!(
                instruction,
                Instruction::Compute { .. }
                    | Instruction::Test { .. }
                    | Instruction::Compare { .. }
            )
        };
        Some(Compiled {
            computes: self.program.instructions.iter().any(asks),
            program: self.program,
            sources: self.sources,
            depends_on_time_zone: self.depends_on_time_zone,
            depends_on_subplans: self.depends_on_subplans,
        })
    }

    /// Appends a condition of which only the rows count for which it is true. `None` if a part of
    /// it has no place in a program; the program is then not to be used.
    ///
    /// # Safety
    ///
    /// An expression of a finished plan.
    pub(super) unsafe fn keep(&mut self, condition: *mut pg_sys::Node) -> Option<()> {
        // SAFETY: the caller's promise.
        let truth = unsafe { self.truth(condition) }?;
        self.push(Instruction::Keep(truth))?;
        Some(())
    }

    /// Appends an instruction, and returns its register.
    pub(super) fn push(&mut self, instruction: Instruction) -> Option<Register> {
        let register = Register::try_from(self.program.instructions.len()).ok()?;
        match instruction {
            Instruction::Narrow { .. } | Instruction::Keep(_) => self.depth += 1,
            Instruction::Widen => self.depth = self.depth.checked_sub(1)?,
            _ => {}
        }
        self.program.instructions.push(instruction);
        (register < INPUT).then_some(register)
    }

    /// The register of an input, a new one if there is none from this source yet.
    pub(super) fn input(&mut self, source: Source, sort: Sort) -> Option<Register> {
        let known = self.sources.iter().position(|known| *known == source);
        let at = known.unwrap_or_else(|| {
            self.sources.push(source);
            self.program.inputs.push(sort);
            self.sources.len() - 1
        });
        Some(INPUT | Register::try_from(at).ok()?)
    }

    /// Appends a key to group by: a column of this number and type. `None` for a type whose values
    /// are not equal exactly when their bits are.
    pub(super) fn key(&mut self, column: i16, type_oid: Oid) -> Option<()> {
        let key = match types::kind_of(type_oid) {
            Some(Kind::Jsonb) => return None,
            Some(kind) => self.input(Source::Value(column), Sort::Value(kind))?,
            None => {
                let word = Source::Word(column, plain_width(type_oid)?);
                let is_null = self.input(Source::IsNull(column), Sort::Truth)?;
                self.program.keys.push(is_null);
                self.input(word, Sort::Plain)?
            }
        };
        self.program.keys.push(key);
        Some(())
    }

    /// Appends whether a column is not NULL. `None` for another expression.
    ///
    /// # Safety
    ///
    /// An expression of a finished plan.
    pub(super) unsafe fn is_not_null(&mut self, node: *mut pg_sys::Node) -> Option<Register> {
        // SAFETY: the caller's promise; a node begins with its tag, which tells its structure.
        let column = unsafe {
            if (*node).type_ != NodeTag::T_Var {
                return None;
            }
            let var: *mut pg_sys::Var = node.cast();
            let is_input = (*var).varno == self.varno && (*var).varattno > 0;
            is_input.then_some((*var).varattno)?
        };
        let is_null = self.input(Source::IsNull(column), Sort::Truth)?;
        self.push(Instruction::Not(is_null))
    }

    /// Appends whether both truths are true.
    pub(super) fn both(&mut self, a: Register, b: Register) -> Option<Register> {
        self.push(Instruction::And(a, b))
    }

    /// Appends an aggregate.
    pub(super) fn step(&mut self, step: strongroom_columns_ring::program::Step) {
        self.program.aggregates.push(step);
    }

    /// Appends the instructions of a condition, and returns the register of its truth.
    ///
    /// # Safety
    ///
    /// An expression of a finished plan.
    pub(super) unsafe fn truth(&mut self, node: *mut pg_sys::Node) -> Option<Register> {
        // SAFETY: the caller's promise; a node begins with its tag, which tells its structure.
        unsafe {
            match (*node).type_ {
                NodeTag::T_BoolExpr => self.connective(node.cast()),
                NodeTag::T_OpExpr => {
                    let of: *mut pg_sys::OpExpr = node.cast();
                    self.test((*of).opfuncid, (*of).args)
                }
                NodeTag::T_FuncExpr => {
                    let of: *mut pg_sys::FuncExpr = node.cast();
                    self.test((*of).funcid, (*of).args)
                }
                NodeTag::T_ScalarArrayOpExpr => self.any_of(node.cast()),
                NodeTag::T_NullTest => {
                    let of: *mut pg_sys::NullTest = node.cast();
                    if (*of).argisrow {
                        return None;
                    }
                    let value = self.value((*of).arg.cast())?;
                    let is_null = self.push(Instruction::IsNull(value))?;
                    if (*of).nulltesttype == pg_sys::NullTestType::IS_NOT_NULL {
                        self.push(Instruction::Not(is_null))
                    } else {
                        Some(is_null)
                    }
                }
                _ => None,
            }
        }
    }

    /// AND, OR and NOT. The operands of AND and OR are carried out for the rows for which those
    /// before them have not decided.
    ///
    /// # Safety
    ///
    /// A node of a finished plan.
    unsafe fn connective(&mut self, node: *mut pg_sys::BoolExpr) -> Option<Register> {
        // SAFETY: the caller's promise.
        unsafe {
            let is_and = match (*node).boolop {
                pg_sys::BoolExprType::AND_EXPR => true,
                pg_sys::BoolExprType::OR_EXPR => false,
                _ => {
                    let operand = items::<pg_sys::Node>((*node).args).next()?;
                    let truth = self.truth(operand)?;
                    return self.push(Instruction::Not(truth));
                }
            };
            let mut operands = items::<pg_sys::Node>((*node).args);
            let mut all = self.truth(operands.next()?)?;
            for operand in operands {
                all = self.behind(is_and, all, |this| this.truth(operand))?;
            }
            Some(all)
        }
    }

    /// The truth of `before AND next`, or OR: the next operand is carried out for the rows for
    /// which the one before has not decided.
    fn behind(
        &mut self,
        is_and: bool,
        before: Register,
        next: impl FnOnce(&mut Self) -> Option<Register>,
    ) -> Option<Register> {
        let undecided = if is_and { truths::TRUE } else { truths::FALSE };
        self.push(Instruction::Narrow {
            of: before,
            truths: undecided | truths::NULL,
        })?;
        let next = next(self)?;
        self.push(Instruction::Widen)?;
        self.push(if is_and {
            Instruction::And(before, next)
        } else {
            Instruction::Or(before, next)
        })
    }

    /// A comparison, or a function whose result is a truth.
    ///
    /// # Safety
    ///
    /// The arguments of a call in a finished plan.
    unsafe fn test(&mut self, function: Oid, args: *mut pg_sys::List) -> Option<Register> {
        let symbol = symbol_of(function)?;
        if let Some(orders) = orders_of(&symbol) {
            // SAFETY: the caller's promise.
            let mut operands = unsafe { items::<pg_sys::Node>(args) };
            // SAFETY: as above.
            let (a, b) = unsafe { (self.value(operands.next()?)?, self.value(operands.next()?)?) };
            return self.push(Instruction::Compare { orders, a, b });
        }
        let found =
            (symbol == "strongroom_test").then(|| look_up(&types::function(function)))??;
        // SAFETY: the caller's promise.
        let args = unsafe { self.arguments(found, args) }?;
        let function = found.code;
        self.push(Instruction::Test { function, args })
    }

    /// `value = ANY (list)` and its like, for a list of few elements: an OR or AND of comparisons.
    ///
    /// # Safety
    ///
    /// A node of a finished plan.
    unsafe fn any_of(&mut self, node: *mut pg_sys::ScalarArrayOpExpr) -> Option<Register> {
        // SAFETY: the caller's promise.
        unsafe {
            let orders = orders_of(&symbol_of((*node).opfuncid)?)?;
            let mut operands = items::<pg_sys::Node>((*node).args);
            let (first, list) = (operands.next()?, operands.next()?);
            let a = self.value(first)?;
            let elements = self.elements(list, kind_of(pg_sys::exprType(first))?)?;
            let (first, others) = elements.split_first()?;
            let b = *first;
            let mut all = self.push(Instruction::Compare { orders, a, b })?;
            for b in others.iter().copied() {
                all = self.behind(!(*node).useOr, all, |this| {
                    this.push(Instruction::Compare { orders, a, b })
                })?;
            }
            Some(all)
        }
    }

    /// The registers of the elements of a list, of values of a kind. `None` if it is no list of
    /// expressions, or a long one.
    ///
    /// # Safety
    ///
    /// An expression of a finished plan.
    unsafe fn elements(&mut self, list: *mut pg_sys::Node, kind: Kind) -> Option<Vec<Register>> {
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(fids) = array_constant(list) {
                (fids.len() <= LIST_MAX).then_some(())?;
                let literal = |fid| self.push(Instruction::Literal { kind, fid });
                return fids.into_iter().map(literal).collect();
            }
            if (*list).type_ != NodeTag::T_ArrayExpr {
                return None;
            }
            let list: *mut pg_sys::ArrayExpr = list.cast();
            let count = (*(*list).elements).length;
            if (*list).multidims || usize::try_from(count).ok()? > LIST_MAX {
                return None;
            }
            let elements = items::<pg_sys::Node>((*list).elements);
            elements.map(|element| self.value(element)).collect()
        }
    }

    /// Appends the instructions of an expression of a confidential type, and returns the register
    /// of its value.
    ///
    /// # Safety
    ///
    /// An expression of a finished plan.
    pub(super) unsafe fn value(&mut self, node: *mut pg_sys::Node) -> Option<Register> {
        // SAFETY: the caller's promise; a node begins with its tag, which tells its structure.
        unsafe {
            match (*node).type_ {
                NodeTag::T_Var => {
                    let var: *mut pg_sys::Var = node.cast();
                    let kind = kind_of((*var).vartype)?;
                    if (*var).varno != self.varno || (*var).varattno <= 0 {
                        return None;
                    }
                    self.input(Source::Value((*var).varattno), Sort::Value(kind))
                }
                NodeTag::T_Const => {
                    let of: *mut pg_sys::Const = node.cast();
                    let kind = kind_of((*of).consttype)?;
                    let fid = if (*of).constisnull {
                        0
                    } else {
                        bits((*of).constvalue)
                    };
                    self.push(Instruction::Literal { kind, fid })
                }
                NodeTag::T_Param => {
                    let of: *mut pg_sys::Param = node.cast();
                    let kind = kind_of((*of).paramtype)?;
                    let fid = match (*of).paramkind {
                        pg_sys::ParamKind::PARAM_EXTERN => self.parameter(of)?,
                        pg_sys::ParamKind::PARAM_EXEC => self.result_of_subplan(of)?,
                        _ => return None,
                    };
                    self.push(Instruction::Literal { kind, fid })
                }
                NodeTag::T_OpExpr => {
                    let of: *mut pg_sys::OpExpr = node.cast();
                    self.compute((*of).opfuncid, (*of).args)
                }
                NodeTag::T_FuncExpr => {
                    let of: *mut pg_sys::FuncExpr = node.cast();
                    self.compute((*of).funcid, (*of).args)
                }
                NodeTag::T_CaseExpr => self.case(node.cast()),
                _ => None,
            }
        }
    }

    /// A function whose result is a value.
    ///
    /// # Safety
    ///
    /// The arguments of a call in a finished plan.
    unsafe fn compute(&mut self, function: Oid, args: *mut pg_sys::List) -> Option<Register> {
        let symbol = symbol_of(function)?;
        let found =
            (symbol == "strongroom_compute").then(|| look_up(&types::function(function)))??;
        if found.gives == Gives::Value(Kind::Jsonb) {
            return None;
        }
        // SAFETY: the caller's promise.
        let args = unsafe { self.arguments(found, args) }?;
        self.push(Instruction::Compute {
            function: found.code,
            args,
        })
    }

    /// The registers of a function's arguments; those beyond them are the first one's.
    ///
    /// # Safety
    ///
    /// The arguments of a call in a finished plan.
    unsafe fn arguments(
        &mut self,
        function: &Function,
        args: *mut pg_sys::List,
    ) -> Option<[Register; 3]> {
        let mut registers = [None; 3];
        // SAFETY: the caller's promise.
        let given = unsafe { items::<pg_sys::Node>(args) };
        let mut count = 0;
        for ((node, arg), register) in given.zip(function.args).zip(&mut registers) {
            // SAFETY: as above.
            *register = Some(unsafe {
                match arg {
                    Arg::Of(_) => self.value(node)?,
                    Arg::Plain => {
                        let number = i64::from(int4(plain_constant(node)?));
                        self.push(Instruction::Number(number))?
                    }
                    Arg::Name => {
                        let name = call_postgres(|| {
                            pg_sys::text_to_cstring((plain_constant(node)?).cast_mut_ptr()).into()
                        });
                        let name: Option<*mut core::ffi::c_char> = name;
                        let name = std::ffi::CStr::from_ptr(name?).to_string_lossy();
                        let field = Field::by_name(&name)?;
                        self.push(Instruction::Number(i64::from(field as u8)))?
                    }
                }
            });
            count += 1;
        }
        self.depends_on_time_zone |= depends_on_time_zone(function);
        let [first, second, third] = registers;
        (count == function.args.len()).then_some(())?;
        Some([first?, second.or(first)?, third.or(first)?])
    }

    /// CASE whose results are values.
    ///
    /// # Safety
    ///
    /// A node of a finished plan.
    unsafe fn case(&mut self, node: *mut pg_sys::CaseExpr) -> Option<Register> {
        // SAFETY: the caller's promise.
        unsafe {
            let kind = kind_of((*node).casetype)?;
            self.arms(
                node,
                |this, result| this.value(result),
                |this| this.push(Instruction::Literal { kind, fid: 0 }),
                Self::choose,
            )
        }
    }

    /// CASE: each condition is carried out for the rows for which those before it are not true, and
    /// each result for the rows that it is for. `result` appends the instructions of a result,
    /// `null` those of NULL, and `choose` the choice between two results by a truth.
    ///
    /// # Safety
    ///
    /// A node of a finished plan.
    pub(super) unsafe fn arms<T>(
        &mut self,
        node: *mut pg_sys::CaseExpr,
        result: impl Fn(&mut Self, *mut pg_sys::Node) -> Option<T>,
        null: impl FnOnce(&mut Self) -> Option<T>,
        choose: impl Fn(&mut Self, Register, T, T) -> Option<T>,
    ) -> Option<T> {
        // SAFETY: the caller's promise.
        unsafe {
            if !(*node).arg.is_null() {
                return None;
            }
            let mut arms = Vec::new();
            for arm in items::<pg_sys::CaseWhen>((*node).args) {
                let condition = self.truth((*arm).expr.cast())?;
                self.narrow(condition, truths::TRUE)?;
                let result = result(self, (*arm).result.cast())?;
                self.push(Instruction::Widen)?;
                self.narrow(condition, truths::FALSE | truths::NULL)?;
                arms.push((condition, result));
            }
            let mut otherwise = if (*node).defresult.is_null() {
                null(self)?
            } else {
                result(self, (*node).defresult.cast())?
            };
            for (of, then) in arms.into_iter().rev() {
                self.push(Instruction::Widen)?;
                otherwise = choose(self, of, then, otherwise)?;
            }
            Some(otherwise)
        }
    }

    /// Appends the choice between two registers by a truth.
    pub(super) fn choose(
        &mut self,
        of: Register,
        then: Register,
        otherwise: Register,
    ) -> Option<Register> {
        self.push(Instruction::Choose {
            of,
            then,
            otherwise,
        })
    }

    /// Appends the beginning of instructions for some rows only.
    pub(super) fn narrow(&mut self, of: Register, truths: u8) -> Option<Register> {
        self.push(Instruction::Narrow { of, truths })
    }
}
