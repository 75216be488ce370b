//! The functions of `strongroom_columns_ring::function`, resolved once, found by their code.
//!
//! Must not: compute.

use strongroom_columns_ring::Fault;
use strongroom_columns_ring::function::{FUNCTIONS, Function};
use strongroom_columns_values::{Computation, Condition};

/// One function, ready to run.
#[derive(Clone, Copy)]
pub(super) struct Resolved {
    pub(super) function: &'static Function,
    pub(super) computation: Option<Computation>,
    pub(super) condition: Option<Condition>,
}

/// All functions, by code.
pub(super) struct Functions(Vec<Option<Resolved>>);

impl Functions {
    /// Resolves all functions of the ring's list, which takes a while.
    pub(super) fn new() -> Self {
        let end = FUNCTIONS
            .last()
            .map_or(0, |last| usize::from(last.code) + 1);
        let mut by_code = vec![None; end];
        for function in FUNCTIONS {
            if let Some(place) = by_code.get_mut(usize::from(function.code)) {
                *place = Some(Resolved {
                    function,
                    computation: Computation::of(function),
                    condition: Condition::of(function),
                });
            }
        }
        Self(by_code)
    }

    /// The function of this code.
    ///
    /// # Errors
    /// [`Fault::BadRequest`] for an unknown code.
    pub(super) fn get(&self, code: u32) -> Result<Resolved, Fault> {
        let at = usize::try_from(code).map_err(|_| Fault::BadRequest)?;
        self.0.get(at).copied().flatten().ok_or(Fault::BadRequest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strongroom_columns_ring::function::Gives;

    #[test]
    fn every_function_is_there_and_can_be_carried_out() {
        let functions = Functions::new();
        for function in FUNCTIONS {
            let found = functions.get(u32::from(function.code)).unwrap();
            assert_eq!(found.function.name, function.name);
            match function.gives {
                Gives::Value(_) => assert!(found.computation.is_some(), "{}", function.code),
                Gives::Truth => assert!(found.condition.is_some(), "{}", function.code),
            }
        }
        assert!(functions.get(0).is_err() && functions.get(u32::MAX).is_err());
    }
}
