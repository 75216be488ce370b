//! The population (clause 4.3.3.1), by COPY. From one seed both schemas get the same rows. Must
//! not: depend on a clock.

use fastrand::Rng;

use super::names::{data, digits, last, letters, zip};
use super::{Constants, Scale, money, nurand, schema};
use crate::Schema;
use crate::wire::{Client, Failure};

/// When everything was entered: a constant, so that two loads are the same.
const ENTERED: &str = "2024-05-01 12:00:00";

/// Makes and fills the tables.
///
/// # Errors
/// The server's.
pub fn load(client: &mut Client, schema: Schema, scale: Scale, seed: u64) -> Result<(), Failure> {
    schema::create(client, schema)?;
    let mut random = Rng::with_seed(seed);
    copy(
        client,
        "item",
        (1..=scale.items).map(|id| item(&mut random, id)),
    )?;
    for warehouse in 1..=scale.warehouses {
        copy(
            client,
            "warehouse",
            [warehouse_row(&mut random, warehouse, scale)],
        )?;
        let stock = (1..=scale.items).map(|item| stock(&mut random, warehouse, item));
        copy(client, "stock", stock)?;
        for district in 1..=scale.districts {
            let row = district_row(&mut random, warehouse, district, scale);
            copy(client, "district", [row])?;
            fill(client, &mut random, (warehouse, district), scale)?;
        }
    }
    schema::finish(client)
}

fn copy(
    client: &mut Client,
    table: &str,
    lines: impl IntoIterator<Item = String>,
) -> Result<(), Failure> {
    let sql = format!("COPY {table} ({}) FROM STDIN", schema::columns(table));
    let _rows = client.copy_in(&sql, lines)?;
    Ok(())
}

fn line(fields: &[String]) -> String {
    fields.join("\t") + "\n"
}

fn address(random: &mut Rng) -> Vec<String> {
    vec![
        letters(random, 10, 20),
        letters(random, 10, 20),
        letters(random, 10, 20),
        letters(random, 2, 2),
        zip(random),
    ]
}

fn item(random: &mut Rng, id: u32) -> String {
    line(&[
        id.to_string(),
        random.u32(1..=10_000).to_string(),
        letters(random, 14, 24),
        money(random.i64(100..=10_000)),
        data(random),
    ])
}

/// A rate of 0.0000 to 0.2000, or to the given one.
fn rate(random: &mut Rng, high: u32) -> String {
    format!("0.{:04}", random.u32(0..=high))
}

fn warehouse_row(random: &mut Rng, id: u32, scale: Scale) -> String {
    let mut fields = vec![id.to_string(), letters(random, 6, 10)];
    fields.extend(address(random));
    fields.push(rate(random, 2000));
    // 300,000.00 at the specified scale: what the customers have paid (3.3.2.8).
    fields.push(money(
        1000 * i64::from(scale.customers) * i64::from(scale.districts),
    ));
    line(&fields)
}

fn stock(random: &mut Rng, warehouse: u32, item: u32) -> String {
    let mut fields = vec![
        warehouse.to_string(),
        item.to_string(),
        random.u32(10..=100).to_string(),
    ];
    fields.extend((0..10).map(|_| letters(random, 24, 24)));
    fields.extend(["0", "0", "0"].map(str::to_owned));
    fields.push(data(random));
    line(&fields)
}

fn district_row(random: &mut Rng, warehouse: u32, id: u32, scale: Scale) -> String {
    let mut fields = vec![
        warehouse.to_string(),
        id.to_string(),
        (scale.customers + 1).to_string(),
        letters(random, 6, 10),
    ];
    fields.extend(address(random));
    fields.push(rate(random, 2000));
    fields.push(money(1000 * i64::from(scale.customers)));
    line(&fields)
}

/// A customer's name: the first thousand have all of them in turn.
fn name_of(random: &mut Rng, id: u32, scale: Scale) -> String {
    if id <= 1000 {
        return last(id - 1);
    }
    let high = scale.customers.min(1000) - 1;
    last(nurand(random, 255, Constants::LOAD.last, 0, high))
}

fn customer(random: &mut Rng, (warehouse, district): (u32, u32), id: u32, scale: Scale) -> String {
    let mut fields = vec![
        warehouse.to_string(),
        district.to_string(),
        id.to_string(),
        letters(random, 8, 16),
        "OE".to_owned(),
        name_of(random, id, scale),
    ];
    fields.extend(address(random));
    let credit = if random.u32(0..10) == 0 { "BC" } else { "GC" };
    fields.extend([
        digits(random, 16),
        ENTERED.to_owned(),
        credit.to_owned(),
        "50000.00".to_owned(),
        rate(random, 5000),
        "-10.00".to_owned(),
        "10.00".to_owned(),
        "1".to_owned(),
        "0".to_owned(),
        letters(random, 300, 500),
    ]);
    line(&fields)
}

/// Customers, their payments, orders and order lines of one district.
fn fill(
    client: &mut Client,
    random: &mut Rng,
    (warehouse, district): (u32, u32),
    scale: Scale,
) -> Result<(), Failure> {
    let at = (warehouse, district);
    let customers = (1..=scale.customers).map(|id| customer(random, at, id, scale));
    copy(client, "customer", customers)?;
    let (w, d) = (warehouse.to_string(), district.to_string());
    let history = (1..=scale.customers).map(|id| {
        let id = id.to_string();
        let (date, paid) = (ENTERED.to_owned(), "10.00".to_owned());
        let of = [id, d.clone(), w.clone(), d.clone(), w.clone(), date, paid];
        let mut fields = of.to_vec();
        fields.push(letters(random, 12, 24));
        line(&fields)
    });
    copy(client, "history", history)?;
    // Each customer has one order, in an order drawn at random.
    let mut permuted: Vec<u32> = (1..=scale.customers).collect();
    random.shuffle(&mut permuted);
    let counts: Vec<u32> = permuted.iter().map(|_| random.u32(5..=15)).collect();
    let delivered = scale.delivered();
    let orders =
        (1..)
            .zip(permuted.iter().zip(&counts))
            .map(|(id, (customer, count)): (u32, _)| {
                let carrier = if id <= delivered {
                    random.u32(1..=10).to_string()
                } else {
                    "\\N".to_owned()
                };
                format!("{w}\t{d}\t{id}\t{customer}\t{ENTERED}\t{carrier}\t{count}\t1\n")
            });
    copy(client, "orders", orders)?;
    let waiting = (delivered + 1..=scale.customers).map(|id| format!("{w}\t{d}\t{id}\n"));
    copy(client, "new_order", waiting)?;
    let lines = (1..)
        .zip(&counts)
        .flat_map(|(id, count): (u32, _)| (1..=*count).map(move |number| (id, number)));
    let lines = lines.map(|(order, number)| {
        order_line(
            random,
            &format!("{w}\t{d}\t{order}\t{number}\t"),
            &w,
            order <= delivered,
            scale,
        )
    });
    copy(client, "order_line", lines)
}

fn order_line(
    random: &mut Rng,
    keys: &str,
    warehouse: &str,
    delivered: bool,
    scale: Scale,
) -> String {
    let (date, amount) = if delivered {
        (ENTERED, 0)
    } else {
        ("\\N", random.i64(1..=999_999))
    };
    format!(
        "{keys}{}\t{warehouse}\t{date}\t5\t{}\t{}\n",
        random.u32(1..=scale.items),
        money(amount),
        letters(random, 24, 24)
    )
}
