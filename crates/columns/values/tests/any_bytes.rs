//! Goal: no value, of whatever form, makes this crate panic or give what is no value. Method: every
//! function, aggregate, comparison and form with random words, bytes, plain numbers and fields, as
//! if the store had been damaged or a kind been confused; overflow is checked in test builds, so
//! that it would be seen.
#![expect(clippy::unwrap_used, reason = "a test")]

use strongroom_columns_ring::function::{Aggregate, Arg, FUNCTIONS, Field, Gives};
use strongroom_columns_values::{
    Accumulator, Buf, Operand, Out, Settings, TimeZone, Value, compare, compute, parse, print,
    send, test, token_bytes,
};
use strongroom_format::columns::Kind;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end).unwrap()).unwrap()
    }

    fn word(&mut self) -> u64 {
        match self.below(4) {
            0 => [
                0,
                1,
                u64::MAX,
                1 << 63,
                (1 << 63) - 1,
                0x7fff_ffff,
                0xffff_ffff_8000_0000,
            ][self.below(7)],
            1 => self.next() >> self.below(64),
            2 => u64::MAX << self.below(64),
            _ => self.next(),
        }
    }

    /// Bytes of a length that some form has, often beginning like a numeric.
    fn bytes(&mut self) -> Vec<u8> {
        let len = [0, 1, 2, 3, 4, 8, 16, 16, 20, 40][self.below(10)];
        let mut bytes: Vec<u8> = (0..len).map(|_| self.word().to_le_bytes()[0]).collect();
        if self.below(2) == 0 && bytes.len() > 3 {
            bytes[0] = self.next().to_le_bytes()[0] % 6;
            bytes[2] %= 64;
        }
        bytes
    }
}

/// Half of the values are of the right sort, word or bytes, so that more than the first check is
/// reached.
fn operand<'a>(random: &mut Random, bytes: &'a [u8], arg: Arg) -> Operand<'a> {
    let of_bytes = Operand::Value(Value::Bytes(bytes));
    match arg {
        Arg::Plain if random.below(8) > 0 => {
            let plain = i32::try_from(random.word().cast_signed() >> 32).unwrap();
            // Great scales are computed elsewhere; here they would only take time.
            Operand::Plain(if random.below(4) > 0 {
                plain % 100
            } else {
                plain
            })
        }
        Arg::Name if random.below(8) > 0 => {
            Operand::Field(Field::ALL[random.below(Field::ALL.len())].1)
        }
        Arg::Of(Kind::Text | Kind::Bytea | Kind::Interval | Kind::Uuid | Kind::Jsonb)
            if random.below(8) > 0 =>
        {
            of_bytes
        }
        _ if random.below(3) == 0 => of_bytes,
        _ => Operand::Value(Value::Word(random.word())),
    }
}

#[test]
fn functions_of_anything_give_a_value_or_a_fault() {
    let mut random = Random(0x51_7cc1_b727_220a);
    let settings = Settings {
        time_zone: TimeZone::by_name("Europe/Berlin").unwrap(),
    };
    let (mut given, mut refused) = (0, 0);
    for function in FUNCTIONS {
        for _ in 0..500 {
            let bytes = [random.bytes(), random.bytes(), random.bytes()];
            let args: Vec<Operand<'_>> = function
                .args
                .iter()
                .zip(&bytes)
                .map(|(arg, bytes)| operand(&mut random, bytes, *arg))
                .collect();
            let mut out = Out::new();
            let done = match function.gives {
                Gives::Truth => test(function, &args).map(|_| ()),
                Gives::Value(_) => compute(function, &args, &settings, &mut out),
            };
            match (done, function.gives) {
                (Ok(()), Gives::Value(kind)) => {
                    let mut shown = Buf::new();
                    print(kind, out.value(), &settings, &mut shown).unwrap();
                    given += 1;
                }
                (Ok(()), Gives::Truth) => given += 1,
                (Err(_), _) => refused += 1,
            }
        }
    }
    assert!(
        given > 18_000 && refused > 4_000,
        "{given} given, {refused} refused"
    );
}

#[test]
fn everything_else_of_anything_gives_something_or_a_fault() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let settings = Settings::utc();
    let mut done = 0;
    for kind in Kind::ALL {
        for round in 0..2000 {
            let (a, b) = (random.bytes(), random.bytes());
            let value = |random: &mut Random, bytes| match random.below(2) {
                0 => Value::Word(random.word()),
                _ => Value::Bytes(bytes),
            };
            let (x, y) = (value(&mut random, &a), value(&mut random, &b));
            let mut buf = Buf::new();
            let read = [
                compare(*kind, x, y).is_ok(),
                token_bytes(*kind, x, &mut buf).is_ok(),
                send(*kind, x, &mut buf).is_ok(),
                print(*kind, x, &settings, &mut buf).is_ok(),
            ];
            let aggregate = Aggregate::ALL[round % Aggregate::ALL.len()];
            let added = Accumulator::new(aggregate, *kind).is_some_and(|mut accumulator| {
                let added = accumulator
                    .add(x, Some(y))
                    .and_then(|()| accumulator.add(y, Some(x)));
                accumulator.finish().is_ok() && added.is_ok()
            });
            let text = String::from_utf8_lossy(&a).into_owned();
            let parsed = parse(*kind, &text, &settings, &mut Out::new()).is_ok();
            done += read
                .into_iter()
                .chain([added, parsed])
                .filter(|done| *done)
                .count();
        }
    }
    assert!(done > 10_000, "{done}");
}
