//! The rules for programs: what each instruction takes and gives.
//!
//! Must not: read or write bytes.

use super::{
    AGGREGATES_MAX, Arg, DEPTH_MAX, Fault, Field, Fold, Gives, INPUTS_MAX, INSTRUCTIONS_MAX,
    Instruction, KEYS_MAX, Program, Register, Sort, Step, by_code, orders, truths,
};

/// The sorts of a program's registers so far.
struct Sorts(Vec<Sort>);

/// The sorts of all registers of a program, inputs first. `Fault::BadRequest` if it breaks a rule.
pub(super) fn sorts(program: &Program) -> Result<Vec<Sort>, Fault> {
    let within = program.inputs.len() <= INPUTS_MAX
        && program.instructions.len() <= INSTRUCTIONS_MAX
        && program.keys.len() <= KEYS_MAX
        && program.aggregates.len() <= AGGREGATES_MAX;
    if !within {
        return Err(Fault::BadRequest);
    }
    let mut sorts = Sorts(program.inputs.clone());
    let mut depth = 0_usize;
    let mut numbers = Vec::new();
    for instruction in &program.instructions {
        match instruction {
            Instruction::Narrow { .. } => depth += 1,
            Instruction::Widen => depth = depth.checked_sub(1).ok_or(Fault::BadRequest)?,
            Instruction::Keep(_) if depth > 0 => return Err(Fault::BadRequest),
            _ => {}
        }
        if depth > DEPTH_MAX {
            return Err(Fault::BadRequest);
        }
        let sort = sorts.of(instruction, &numbers)?;
        if let Instruction::Number(number) = instruction {
            let register = Register::try_from(sorts.0.len()).map_err(|_| Fault::BadRequest)?;
            numbers.push((register, *number));
        }
        sorts.0.push(sort);
    }
    let keys_fit = program.keys.iter().all(|key| sorts.is_key(program, *key));
    let mut steps = program.aggregates.iter();
    if depth > 0 || !keys_fit || !steps.all(|step| sorts.take(step)) {
        return Err(Fault::BadRequest);
    }
    Ok(sorts.0)
}

impl Sorts {
    /// The sort of a register that is defined. `Fault::BadRequest` for another one.
    fn get(&self, register: Register) -> Result<Sort, Fault> {
        let sort = self.0.get(usize::from(register)).copied();
        sort.ok_or(Fault::BadRequest)
    }

    /// Checks that a register holds truths. `Fault::BadRequest` if not.
    fn truth(&self, register: Register) -> Result<Sort, Fault> {
        match self.get(register)? {
            Sort::Truth => Ok(Sort::Truth),
            _ => Err(Fault::BadRequest),
        }
    }

    /// The sort of what an instruction gives. `numbers` are the registers that hold one number in
    /// clear for all rows. `Fault::BadRequest` if its registers are not of the sorts that it takes.
    fn of(&self, instruction: &Instruction, numbers: &[(Register, i64)]) -> Result<Sort, Fault> {
        match *instruction {
            Instruction::Literal { kind, .. } => Ok(Sort::Value(kind)),
            Instruction::Number(_) | Instruction::Widen => Ok(Sort::Plain),
            Instruction::Compute { function, args } => match self.call(function, args, numbers)? {
                Gives::Value(kind) => Ok(Sort::Value(kind)),
                Gives::Truth => Err(Fault::BadRequest),
            },
            Instruction::Test { function, args } => match self.call(function, args, numbers)? {
                Gives::Truth => Ok(Sort::Truth),
                Gives::Value(_) => Err(Fault::BadRequest),
            },
            Instruction::Compare { orders: of, a, b } => {
                let known = orders::LESS | orders::EQUAL | orders::GREATER;
                match (self.get(a)?, self.get(b)?) {
                    (Sort::Value(a), Sort::Value(b)) if a == b && of & !known == 0 => {
                        Ok(Sort::Truth)
                    }
                    _ => Err(Fault::BadRequest),
                }
            }
            Instruction::And(a, b) | Instruction::Or(a, b) => {
                self.truth(a)?;
                self.truth(b)
            }
            Instruction::Not(of) | Instruction::Keep(of) => self.truth(of),
            Instruction::IsNull(of) => match self.get(of)? {
                Sort::Value(_) | Sort::Truth => Ok(Sort::Truth),
                Sort::Plain => Err(Fault::BadRequest),
            },
            Instruction::Narrow { of, truths: which } => {
                let known = truths::FALSE | truths::TRUE | truths::NULL;
                if which & !known == 0 {
                    self.truth(of)
                } else {
                    Err(Fault::BadRequest)
                }
            }
            Instruction::Choose {
                of,
                then,
                otherwise,
            } => {
                self.truth(of)?;
                let sort = self.get(then)?;
                match self.get(otherwise)? {
                    other if other == sort => Ok(sort),
                    _ => Err(Fault::BadRequest),
                }
            }
        }
    }

    /// What the function of a code gives, if the registers are what it takes: values of its kinds,
    /// and for arguments in clear one number for all rows. `Fault::BadRequest` otherwise.
    fn call(
        &self,
        code: u16,
        args: [Register; 3],
        numbers: &[(Register, i64)],
    ) -> Result<Gives, Fault> {
        let function = by_code(code).ok_or(Fault::BadRequest)?;
        for (arg, register) in function.args.iter().zip(args) {
            let number = numbers.iter().find(|(known, _)| *known == register);
            let number = number.map(|(_, number)| *number);
            let fits = match (arg, self.get(register)?) {
                (Arg::Of(kind), Sort::Value(given)) => *kind == given,
                (Arg::Plain, Sort::Plain) => number.is_some_and(|n| i32::try_from(n).is_ok()),
                (Arg::Name, Sort::Plain) => {
                    let field = number.and_then(|n| u8::try_from(n).ok());
                    field.and_then(Field::from_number).is_some()
                }
                _ => false,
            };
            if !fits {
                return Err(Fault::BadRequest);
            }
        }
        Ok(function.gives)
    }

    /// Whether rows can be grouped by a register: an input, or a value.
    fn is_key(&self, program: &Program, register: Register) -> bool {
        let is_input = usize::from(register) < program.inputs.len();
        is_input || matches!(self.get(register), Ok(Sort::Value(_)))
    }

    /// Whether an aggregate takes what its registers hold.
    fn take(&self, step: &Step) -> bool {
        let filters = step.filter.is_none_or(|filter| self.truth(filter).is_ok());
        let fits = match (step.fold, step.of.map(|of| self.get(of))) {
            (Fold::Count, None | Some(Ok(Sort::Value(_) | Sort::Truth))) => true,
            // The texts of `string_agg` need a delimiter, which a program has no place for.
            (Fold::Of(super::Aggregate::StringAgg), _) => false,
            (Fold::Of(aggregate), Some(Ok(Sort::Value(kind)))) => aggregate.gives(kind).is_some(),
            (fold, Some(Ok(Sort::Plain))) => fold.takes_numbers(),
            _ => false,
        };
        filters && fits
    }
}
