//! Exact sums of integers and numerics, and of their squares (`NumericAggState` and
//! `Int128AggState` of numeric.c).
//!
//! Sums are kept in 128 bits as long as they fit, then in big integers. Must not: round before the
//! result.

use num_bigint::{BigInt, Sign};
use strongroom_columns_ring::Fault;
use strongroom_columns_ring::function::Aggregate;
use strongroom_format::columns::Kind;
use zeroize::Zeroize;

use crate::numeric::{Num, TEN, arithmetic, power_of_ten, small};
use crate::value::{Out, Value};

/// Number of values by class, and sums of the finite ones.
pub(super) struct Exact {
    finite: u64,
    nans: u64,
    infinities: [u64; 2],
    /// The greatest display scale so far; the sum's too.
    scale: u32,
    sum: Wide,
    /// The sum of squares, at twice the scale, when the result needs it.
    squares: Option<Wide>,
}

/// A sum: the part in 128 bits, and the part that did not fit.
#[derive(Default)]
struct Wide {
    narrow: i128,
    big: BigInt,
}

impl Wide {
    /// Adds a number. The sum moves to the wide part before it would overflow.
    fn add(&mut self, number: i128) {
        match self.narrow.checked_add(number) {
            Some(sum) => self.narrow = sum,
            None => {
                self.big += self.narrow;
                self.narrow = number;
            }
        }
    }

    /// Multiplies the sum by `10^by`.
    fn scale_up(&mut self, by: u32) {
        if self.big.sign() != Sign::NoSign {
            self.big *= BigInt::from(power_of_ten(by));
        }
        let factor = usize::try_from(by).ok().and_then(|by| TEN.get(by));
        match factor.and_then(|factor| self.narrow.checked_mul(*factor)) {
            Some(scaled) => self.narrow = scaled,
            None => {
                self.big += BigInt::from(self.narrow) * BigInt::from(power_of_ten(by));
                self.narrow = 0;
            }
        }
    }

    /// The whole sum.
    fn total(&self) -> BigInt {
        &self.big + self.narrow
    }
}

impl Exact {
    /// Sums of no values. `with_squares` if squares have to be summed too, for variances.
    pub(super) fn new(with_squares: bool) -> Self {
        Self {
            finite: 0,
            nans: 0,
            infinities: [0, 0],
            scale: 0,
            sum: Wide::default(),
            squares: with_squares.then(Wide::default),
        }
    }

    /// Adds an integer.
    pub(super) fn add_integer(&mut self, number: i64) {
        self.finite = self.finite.saturating_add(1);
        self.sum.add(i128::from(number));
        if let Some(squares) = &mut self.squares {
            squares.add(i128::from(number) * i128::from(number));
        }
    }

    /// Adds a numeric; NaN and infinities are only counted. `Fault::KindMismatch` for bytes that
    /// are no numeric.
    pub(super) fn add(&mut self, value: Value<'_>) -> Result<(), Fault> {
        if let Some((unscaled, scale)) = small(value) {
            self.rescale(scale);
            let factor = usize::try_from(self.scale - scale)
                .ok()
                .and_then(|by| TEN.get(by));
            let scaled = factor.and_then(|factor| i128::from(unscaled).checked_mul(*factor));
            if let Some(scaled) = scaled
                && (self.squares.is_none() || scaled.checked_mul(scaled).is_some())
            {
                self.finite = self.finite.saturating_add(1);
                self.sum.add(scaled);
                if let Some(squares) = &mut self.squares {
                    squares.add(scaled * scaled);
                }
                return Ok(());
            }
        }
        match Num::read(value)? {
            Num::Nan => self.nans = self.nans.saturating_add(1),
            Num::Inf(negative) => {
                let count = &mut self.infinities[usize::from(negative)];
                *count = count.saturating_add(1);
            }
            Num::Fin(unscaled, scale) => {
                self.rescale(scale);
                let scaled = arithmetic::rescaled(&unscaled, scale, self.scale);
                self.finite = self.finite.saturating_add(1);
                if let Some(squares) = &mut self.squares {
                    squares.big += &scaled * &scaled;
                }
                self.sum.big += scaled;
            }
        }
        Ok(())
    }

    /// Raises the display scale of the sums to `scale` at least; their value stays the same.
    fn rescale(&mut self, scale: u32) {
        let Some(more @ 1..) = scale.checked_sub(self.scale) else {
            return;
        };
        self.scale = scale;
        self.sum.scale_up(more);
        if let Some(squares) = &mut self.squares {
            squares.scale_up(2 * more);
        }
    }

    /// Adds the sums of another worker, which are not changed.
    pub(super) fn combine(&mut self, other: &Self) {
        // A host that has sums added to themselves doubles the counts each time.
        self.finite = self.finite.saturating_add(other.finite);
        self.nans = self.nans.saturating_add(other.nans);
        for (count, more) in self.infinities.iter_mut().zip(other.infinities) {
            *count = count.saturating_add(more);
        }
        self.rescale(other.scale);
        let behind = self.scale - other.scale;
        self.sum.big += other.sum.total() * BigInt::from(power_of_ten(behind));
        if let (Some(squares), Some(others)) = (&mut self.squares, &other.squares) {
            squares.big += others.total() * BigInt::from(power_of_ten(2 * behind));
        }
    }

    /// Sets `out` to the aggregate's result. False, which is NULL, for too few values; `out` is
    /// then unchanged. `Fault::Int8OutOfRange` or `Fault::NumericOverflow` if the result does not
    /// fit.
    pub(super) fn finish(
        &self,
        aggregate: Aggregate,
        kind: Kind,
        out: &mut Out,
    ) -> Result<bool, Fault> {
        let others = [self.nans, self.infinities[0], self.infinities[1]];
        let count = others.into_iter().fold(self.finite, u64::saturating_add);
        let sample = matches!(aggregate, Aggregate::StddevSamp | Aggregate::VarSamp);
        if count < if sample { 2 } else { 1 } {
            return Ok(false);
        }
        match aggregate {
            Aggregate::Sum if kind == Kind::Int4 => {
                // The sum of as many integers as there can be fits.
                out.set_int8(i64::try_from(self.sum.total()).map_err(|_| Fault::Int8OutOfRange)?);
            }
            Aggregate::Sum => self.total().put(out)?,
            Aggregate::Avg => match self.total() {
                finite @ Num::Fin(..) => {
                    arithmetic::quotient(&finite, &Num::Fin(BigInt::from(self.finite), 0))?
                        .put(out)?;
                }
                special => special.put(out)?,
            },
            _ => self.deviation(aggregate, sample).put(out)?,
        }
        Ok(true)
    }

    /// The sum as a numeric, NaN and infinities included (`numeric_sum`).
    fn total(&self) -> Num {
        match self.infinities {
            _ if self.nans > 0 => Num::Nan,
            [0, 0] => Num::Fin(self.sum.total(), self.scale),
            [_, 0] => Num::Inf(false),
            [0, _] => Num::Inf(true),
            _ => Num::Nan,
        }
    }

    /// The variance, or its square root for `stddev`, of a sample or of all values
    /// (`numeric_stddev_internal`). NaN if there was a NaN or an infinity. 0 for too few values,
    /// where SQL has NULL: the caller checks their number.
    fn deviation(&self, aggregate: Aggregate, sample: bool) -> Num {
        if self.nans > 0 || self.infinities != [0, 0] {
            return Num::Nan;
        }
        let sum = self.sum.total();
        let squares = self.squares.as_ref().map(Wide::total).unwrap_or_default();
        let numerator = BigInt::from(self.finite) * squares - &sum * &sum;
        if numerator.sign() != Sign::Plus {
            return Num::zero();
        }
        let divisor = BigInt::from(self.finite) * BigInt::from(self.finite - u64::from(sample));
        let (numerator, divisor) = (Num::Fin(numerator, 2 * self.scale), Num::Fin(divisor, 0));
        match arithmetic::quotient(&numerator, &divisor) {
            Ok(Num::Fin(variance, scale))
                if matches!(aggregate, Aggregate::StddevSamp | Aggregate::StddevPop) =>
            {
                Num::Fin(arithmetic::root(variance.magnitude(), scale, scale), scale)
            }
            Ok(variance) => variance,
            // The divisor is not 0: there are values, and two of them for a sample.
            Err(_) => Num::Nan,
        }
    }

    /// Overwrites the parts of the sums that are in 128 bits; big integers are not overwritten.
    pub(super) fn zeroize(&mut self) {
        self.sum.narrow.zeroize();
        if let Some(squares) = &mut self.squares {
            squares.narrow.zeroize();
        }
    }
}
