//! Aggregates: the same groups, the same result or error; and the same again from parts that are
//! combined.

use strongroom_columns_ring::Fault;
use strongroom_columns_ring::function::Aggregate;
use strongroom_columns_values::{Accumulator, Buf, Out, Settings, Value, parse, print};
use strongroom_format::columns::Kind;

use crate::random::{Random, cases, value};
use crate::server::{Server, escaped};
use crate::{Differences, Said, answers, caught};

const fn name(aggregate: Aggregate) -> &'static str {
    match aggregate {
        Aggregate::Sum => "sum",
        Aggregate::Avg => "avg",
        Aggregate::Min => "min",
        Aggregate::Max => "max",
        Aggregate::StddevSamp => "stddev_samp",
        Aggregate::StddevPop => "stddev_pop",
        Aggregate::VarSamp => "var_samp",
        Aggregate::VarPop => "var_pop",
        Aggregate::StringAgg => "string_agg",
        Aggregate::BoolAnd => "bool_and",
        Aggregate::BoolOr => "bool_or",
    }
}

/// A group: mostly ordinary values, so that sums are seldom NaN or out of range.
fn group(random: &mut Random, kind: Kind) -> Vec<String> {
    let count = if random.one_in(8) {
        random.below(3)
    } else {
        random.below(25)
    };
    let (is_tame, scale) = (!random.one_in(4), random.below(4));
    let tame = |random: &mut Random| match kind {
        Kind::Numeric | Kind::Float8 => {
            let (whole, fraction) = (
                random.below(100_000),
                random.below(10_usize.pow(u32::try_from(scale).unwrap())),
            );
            format!("{}{whole}.{fraction:0scale$}", random.pick(&["", "-"]))
        }
        Kind::Interval => format!(
            "{} mons {} days 0:{}:3.5",
            random.below(50),
            random.below(40),
            random.below(60)
        ),
        _ => value(random, kind),
    };
    (0..count)
        .map(|_| {
            if is_tame {
                tame(random)
            } else {
                value(random, kind)
            }
        })
        .collect()
}

fn parsed(kind: Kind, text: &str) -> Out {
    let mut out = Out::new();
    parse(kind, text, &Settings::utc(), &mut out).unwrap();
    out
}

fn accumulated(aggregate: Aggregate, kind: Kind, values: &[String]) -> Result<Accumulator, Fault> {
    let mut accumulator = Accumulator::new(aggregate, kind).unwrap();
    for text in values {
        accumulator.add(parsed(kind, text).value(), Some(Value::Bytes(b", ")))?;
    }
    Ok(accumulator)
}

fn said(result: Result<Accumulator, Fault>, gives: Kind) -> Said {
    match result.and_then(|accumulator| accumulator.finish()) {
        Ok(None) => Said::Null,
        Ok(Some(out)) if gives == Kind::Bool => {
            Said::Value(out.value().bool().unwrap().to_string())
        }
        Ok(Some(out)) => {
            let mut buf = Buf::new();
            print(gives, out.value(), &Settings::utc(), &mut buf).unwrap();
            Said::Value(String::from_utf8(buf.as_slice().to_vec()).unwrap())
        }
        Err(fault) => Said::Error(fault.sqlstate().to_owned(), fault.message().to_owned()),
    }
}

/// The same values in three parts, one after the other.
fn in_parts(aggregate: Aggregate, kind: Kind, values: &[String]) -> Result<Accumulator, Fault> {
    let third = values.len() / 3;
    let mut whole = accumulated(aggregate, kind, &values[..third])?;
    whole.combine(&accumulated(aggregate, kind, &values[third..third * 2])?)?;
    whole.combine(&accumulated(aggregate, kind, &values[third * 2..])?)?;
    Ok(whole)
}

fn script(aggregate: Aggregate, kind: Kind, groups: &[Vec<String>]) -> String {
    let delimiter = if aggregate == Aggregate::StringAgg {
        ", ', '"
    } else {
        ""
    };
    let query = format!(
        "SELECT {}(v::{}{delimiter} ORDER BY i) FROM items WHERE items.g = a::int",
        name(aggregate),
        kind.base()
    );
    let mut script = caught(&query);
    script += "CREATE TEMP TABLE items (g int, i int, v text); COPY items FROM STDIN;\n";
    for (at, group) in groups.iter().enumerate() {
        for (number, text) in group.iter().enumerate() {
            script += &format!("{at}\t{number}\t{}\n", escaped(text));
        }
    }
    let count = groups.len();
    script += "\\.\nCREATE INDEX ON items (g); ANALYZE items;\n";
    script += &format!(
        "COPY (SELECT pg_temp.call(g::text, '', '') FROM generate_series(0, {count} - 1) g) TO STDOUT;\n"
    );
    script
}

#[test]
fn every_aggregate_gives_what_the_server_gives() {
    let server = Server::shared();
    let mut random = Random::for_test("aggregates");
    let (mut differences, mut done, mut kinds) = (Differences::default(), 0, 0);
    for aggregate in Aggregate::ALL {
        for kind in Kind::ALL {
            let Some(gives) = aggregate.gives(*kind) else {
                continue;
            };
            let groups: Vec<_> = (0..cases() / 5)
                .map(|_| group(&mut random, *kind))
                .collect();
            let theirs = answers(&server, &script(*aggregate, *kind, &groups));
            assert_eq!(theirs.len(), groups.len());
            for (group, theirs) in groups.iter().zip(&theirs) {
                let ours = said(accumulated(*aggregate, *kind, group), gives);
                // Sums of doubles depend on the order, and an interval's sum can overflow in one
                // order only.
                let parts = said(in_parts(*aggregate, *kind, group), gives);
                let is_exact = !matches!(kind, Kind::Float8 | Kind::Interval);
                if *theirs != ours || (is_exact && parts != ours) {
                    differences.add(|| {
                        format!(
                            "{}({}) of {group:?}: {theirs:?}, ours {ours:?}, in parts {parts:?}",
                            name(*aggregate),
                            kind.base()
                        )
                    });
                }
            }
            done += groups.len();
            kinds += 1;
        }
    }
    differences.none(done);
    println!("{done} groups of {kinds} aggregates");
    assert!(
        kinds >= 36 && done == kinds * (cases() / 5),
        "{kinds} aggregates, {done} groups"
    );
}

#[test]
fn moments_of_doubles_combine_as_the_server_combines_them() {
    let server = Server::shared();
    let mut random = Random::for_test("float8_combine");
    let (mut texts, mut ours) = (Vec::new(), Vec::new());
    while texts.len() < cases() / 5 {
        let parts = [
            group(&mut random, Kind::Float8),
            group(&mut random, Kind::Float8),
        ];
        // The server's transition states, from its own transition function; empty groups have one
        // too.
        let state = |values: &[String]| {
            let list = values
                .iter()
                .map(|value| format!("'{value}'::float8"))
                .collect::<Vec<_>>();
            list.iter()
                .fold("'{0,0,0}'::float8[]".to_owned(), |state, value| {
                    format!("float8_accum({state}, {value})")
                })
        };
        let accumulated = parts
            .each_ref()
            .map(|part| accumulated(Aggregate::StddevSamp, Kind::Float8, part));
        let [Ok(mut whole), Ok(other)] = accumulated else {
            continue;
        };
        texts.push(vec![state(&parts[0]), state(&parts[1])]);
        ours.push(said(whole.combine(&other).map(|()| whole), Kind::Float8));
    }
    let mut script = String::from(
        "CREATE FUNCTION pg_temp.call(a text, b text, c text) RETURNS text LANGUAGE plpgsql AS $call$
         DECLARE r text; BEGIN
         EXECUTE 'SELECT float8_stddev_samp(float8_combine(' || a || ',' || b || '))' INTO r;
         RETURN coalesce('=' || r, '0');
         EXCEPTION WHEN OTHERS THEN RETURN '!' || SQLSTATE || ' ' || SQLERRM; END $call$;\n",
    );
    script += &crate::called(&texts);
    let theirs = answers(&server, &script);
    let mut differences = Differences::default();
    for ((text, theirs), ours) in texts.iter().zip(&theirs).zip(&ours) {
        if theirs != ours {
            differences.add(|| format!("{text:?}: {theirs:?}, ours {ours:?}"));
        }
    }
    differences.none(texts.len());
    assert!(
        theirs.len() == cases() / 5 && theirs.iter().any(|said| matches!(said, Said::Value(_)))
    );
}
