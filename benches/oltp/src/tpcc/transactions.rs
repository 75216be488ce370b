//! The five transactions (clauses 2.4 to 2.8), each one transaction of the database. Must not: try
//! again by itself; keep a value from one transaction for the next.

use fastrand::Rng;

use super::{Constants, Scale, cents, customer, item, last_name, money};
use crate::wire::{Answer, Client, Failure};

/// Which transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Clause 2.4.
    NewOrder,
    /// Clause 2.5.
    Payment,
    /// Clause 2.6.
    OrderStatus,
    /// Clause 2.7.
    Delivery,
    /// Clause 2.8.
    StockLevel,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::NewOrder,
        Self::Payment,
        Self::OrderStatus,
        Self::Delivery,
        Self::StockLevel,
    ];

    /// Drawn with the shares of clause 5.2.3, as a deck of clause 5.2.4.2 gives them on the
    /// average.
    pub fn draw(random: &mut Rng) -> Self {
        match random.u32(0..100) {
            0..45 => Self::NewOrder,
            45..88 => Self::Payment,
            88..92 => Self::OrderStatus,
            92..96 => Self::Delivery,
            _ => Self::StockLevel,
        }
    }
}

/// How a transaction ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Committed.
    Done,
    /// A New-Order: this order of warehouse and district is there.
    Ordered(u32, u32, u32),
    /// A New-Order with an item that is not there: rolled back, as clause 2.4.1.4 wants it of one
    /// in a hundred.
    RolledBack,
}

/// One user at a terminal: its home is a warehouse (2.4.1.1).
pub struct User<'a> {
    /// The connection.
    pub client: &'a mut Client,
    /// Numbers.
    pub random: &'a mut Rng,
    /// Rows that there are.
    pub scale: Scale,
    /// The home.
    pub warehouse: u32,
    /// The time that is entered, in ISO form.
    pub now: &'a str,
}

/// Runs a statement whose parameters are anything that can be written.
macro_rules! run {
    ($user:expr, $sql:expr $(, $parameter:expr)*) => {{
        let texts = [$($parameter.to_string()),*];
        let parameters = texts.each_ref().map(|text: &String| Some(text.as_str()));
        $user.client.execute($sql, &parameters)
    }};
}

impl User<'_> {
    /// Runs one transaction. When it fails the transaction is rolled back, if there is still a
    /// connection.
    ///
    /// # Errors
    /// The server's.
    pub fn transact(&mut self, kind: Kind) -> Result<Outcome, Failure> {
        let result = match kind {
            Kind::NewOrder => self.new_order(),
            Kind::Payment => self.payment().map(|()| Outcome::Done),
            Kind::OrderStatus => self.order_status().map(|()| Outcome::Done),
            Kind::Delivery => self.delivery().map(|()| Outcome::Done),
            Kind::StockLevel => self.stock_level().map(|()| Outcome::Done),
        };
        if result.is_err() && self.client.in_transaction() {
            // The connection may be gone; the first error is the one to tell.
            let _rolled_back = self.client.query("ROLLBACK");
        }
        result
    }

    fn begin(&mut self) -> Result<(), Failure> {
        self.client.query("BEGIN").map(drop)
    }

    fn commit(&mut self) -> Result<(), Failure> {
        self.client.query("COMMIT").map(drop)
    }

    fn district(&mut self) -> u32 {
        self.random.u32(1..=self.scale.districts)
    }

    /// Another warehouse, when there is one.
    fn remote(&mut self) -> u32 {
        let other = self.random.u32(1..=self.scale.warehouses);
        if other == self.warehouse {
            other % self.scale.warehouses + 1
        } else {
            other
        }
    }

    /// Items, supplying warehouses and quantities of an order (2.4.1.3 to 2.4.1.5), in the order of
    /// the items, so that two orders never wait for each other's stock in a circle.
    fn lines(&mut self) -> Vec<(u32, u32, u32)> {
        let count = self.random.u32(5..=15);
        let rolled_back = self.random.u32(1..=100) == 1;
        let mut lines: Vec<(u32, u32, u32)> = (0..count)
            .map(|_| {
                let supply = if self.random.u32(1..=100) == 1 {
                    self.remote()
                } else {
                    self.warehouse
                };
                let item = item(self.random, Constants::RUN, self.scale);
                (item, supply, self.random.u32(1..=10))
            })
            .collect();
        if rolled_back && let Some(last) = lines.last_mut() {
            // An item number that is not there.
            last.0 = self.scale.items + 1;
        }
        lines.sort_unstable();
        lines
    }

    fn new_order(&mut self) -> Result<Outcome, Failure> {
        let (w, d) = (self.warehouse, self.district());
        let c = customer(self.random, Constants::RUN, self.scale);
        let lines = self.lines();
        // 2.4.2.2
        self.begin()?;
        let _priced = run!(
            self,
            "SELECT c_discount, c_last, c_credit, w_tax FROM customer JOIN warehouse ON w_id = c_w_id
             WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
            w, d, c
        )?;
        let district = run!(
            self,
            "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = $1 AND d_id = $2 RETURNING d_next_o_id - 1, d_tax",
            w,
            d
        )?;
        let order: u32 = district.text(0, 0).parse().unwrap_or_default();
        let local = u32::from(lines.iter().all(|(_, supply, _)| *supply == w));
        let _inserted = run!(
            self,
            "INSERT INTO orders (o_w_id, o_d_id, o_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local) VALUES ($1, $2, $3, $4, $5, $6, $7)",
            w,
            d,
            order,
            c,
            self.now,
            lines.len(),
            local
        )?;
        let _inserted = run!(
            self,
            "INSERT INTO new_order (no_w_id, no_d_id, no_o_id) VALUES ($1, $2, $3)",
            w,
            d,
            order
        )?;
        for (number, line) in (1_u32..).zip(&lines) {
            if !self.order_line((w, d, order), number, *line)? {
                let _rolled_back = self.client.query("ROLLBACK")?;
                return Ok(Outcome::RolledBack);
            }
        }
        self.commit()?;
        Ok(Outcome::Ordered(w, d, order))
    }

    /// One line of an order; whether there is such an item.
    fn order_line(
        &mut self,
        (w, d, order): (u32, u32, u32),
        number: u32,
        (item, supply, quantity): (u32, u32, u32),
    ) -> Result<bool, Failure> {
        let found = run!(
            self,
            "SELECT i_price, i_name, i_data FROM item WHERE i_id = $1",
            item
        )?;
        if found.rows.is_empty() {
            return Ok(false);
        }
        let stock = run!(
            self,
            &format!(
                "SELECT s_quantity, s_dist_{d:02}, s_data FROM stock WHERE s_w_id = $1 AND s_i_id = $2 FOR UPDATE"
            ),
            supply,
            item
        )?;
        let there: i64 = stock.text(0, 0).parse().unwrap_or_default();
        let quantity = i64::from(quantity);
        let left = if there >= quantity + 10 {
            there - quantity
        } else {
            there - quantity + 91
        };
        let remote = u32::from(supply != self.warehouse);
        let _updated = run!(
            self,
            "UPDATE stock SET s_quantity = $3, s_ytd = s_ytd + $4, s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + $5
             WHERE s_w_id = $1 AND s_i_id = $2",
            supply, item, left, quantity, remote
        )?;
        let amount = money(cents(found.text(0, 0)) * quantity);
        let _inserted = run!(
            self,
            "INSERT INTO order_line (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            w, d, order, number, item, supply, quantity, amount, stock.text(0, 1)
        )?;
        Ok(true)
    }

    /// The customer of a Payment or an Order-Status: by last name in 60 of 100 (2.5.1.2, 2.6.1.2),
    /// by number otherwise. The row is that of `columns`, which begin with `c_id`.
    fn customer(&mut self, w: u32, d: u32, columns: &str) -> Result<Answer, Failure> {
        if self.random.u32(1..=100) <= 60 {
            let name = last_name(self.random, Constants::RUN, self.scale);
            let sql = format!(
                "SELECT {columns} FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3 ORDER BY c_first"
            );
            let mut found = run!(self, &sql, w, d, name)?;
            // The one in the middle, rounded up (2.5.2.2).
            let middle = found.rows.len().saturating_sub(1) / 2;
            found.rows = found.rows.into_iter().skip(middle).take(1).collect();
            return Ok(found);
        }
        let c = customer(self.random, Constants::RUN, self.scale);
        let sql = format!(
            "SELECT {columns} FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3"
        );
        run!(self, &sql, w, d, c)
    }

    fn payment(&mut self) -> Result<(), Failure> {
        let (w, d) = (self.warehouse, self.district());
        // 2.5.1.2: a customer of another warehouse pays in 15 of 100.
        let (cw, cd) = if self.random.u32(1..=100) <= 85 {
            (w, d)
        } else {
            (self.remote(), self.district())
        };
        let amount = money(self.random.i64(100..=500_000));
        self.begin()?;
        let warehouse = run!(
            self,
            "UPDATE warehouse SET w_ytd = w_ytd + $2 WHERE w_id = $1 RETURNING w_name, w_street_1, w_street_2, w_city, w_state, w_zip",
            w,
            amount
        )?;
        let district = run!(
            self,
            "UPDATE district SET d_ytd = d_ytd + $3 WHERE d_w_id = $1 AND d_id = $2
             RETURNING d_name, d_street_1, d_street_2, d_city, d_state, d_zip",
            w,
            d,
            amount
        )?;
        let found = self.customer(
            cw,
            cd,
            "c_id, c_credit, c_first, c_middle, c_last, c_street_1, c_city, c_state, c_zip, c_phone, c_since, c_credit_lim, c_discount",
        )?;
        if found.rows.is_empty() {
            // A part of a district does not have every name.
            return self.client.query("ROLLBACK").map(drop);
        }
        let c = found.text(0, 0);
        let _paid = run!(
            self,
            "UPDATE customer SET c_balance = c_balance - $4, c_ytd_payment = c_ytd_payment + $4, c_payment_cnt = c_payment_cnt + 1
             WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
            cw, cd, c, amount
        )?;
        if found.text(0, 1) == "BC" {
            // 2.5.2.2: the history of a customer with bad credit, at most 500 characters.
            let entry = format!("{c} {cd} {cw} {d} {w} {amount} | ");
            let _noted = run!(
                self,
                "UPDATE customer SET c_data = left($4 || c_data, 500) WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
                cw,
                cd,
                c,
                entry
            )?;
        }
        let data = format!("{}    {}", warehouse.text(0, 0), district.text(0, 0));
        let _inserted = run!(
            self,
            "INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            c, cd, cw, d, w, self.now, amount, data
        )?;
        self.commit()
    }

    fn order_status(&mut self) -> Result<(), Failure> {
        let (w, d) = (self.warehouse, self.district());
        self.begin()?;
        let found = self.customer(w, d, "c_id, c_balance, c_first, c_middle, c_last")?;
        if !found.rows.is_empty() {
            let order = run!(
                self,
                "SELECT o_id, o_carrier_id, o_entry_d FROM orders WHERE o_w_id = $1 AND o_d_id = $2 AND o_c_id = $3
                 ORDER BY o_id DESC LIMIT 1",
                w, d, found.text(0, 0)
            )?;
            let _lines = run!(
                self,
                "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line
                 WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3",
                w, d, if order.rows.is_empty() { "0" } else { order.text(0, 0) }
            )?;
        }
        self.commit()
    }

    /// 2.7.4: the oldest order of each district that was not delivered, in one transaction.
    fn delivery(&mut self) -> Result<(), Failure> {
        let (w, carrier) = (self.warehouse, self.random.u32(1..=10));
        self.begin()?;
        for d in 1..=self.scale.districts {
            let oldest = run!(
                self,
                "DELETE FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 AND no_o_id =
                 (SELECT min(no_o_id) FROM new_order WHERE no_w_id = $1 AND no_d_id = $2) RETURNING no_o_id",
                w, d
            )?;
            if oldest.rows.is_empty() {
                // None left, or another delivery has just taken it (2.7.4.2: skipped).
                continue;
            }
            let o = oldest.text(0, 0);
            let order = run!(
                self,
                "UPDATE orders SET o_carrier_id = $4 WHERE o_w_id = $1 AND o_d_id = $2 AND o_id = $3 RETURNING o_c_id",
                w,
                d,
                o,
                carrier
            )?;
            let _dated = run!(
                self,
                "UPDATE order_line SET ol_delivery_d = $4 WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3",
                w,
                d,
                o,
                self.now
            )?;
            let total = run!(
                self,
                "SELECT sum(ol_amount) FROM order_line WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3",
                w,
                d,
                o
            )?;
            let _balanced = run!(
                self,
                "UPDATE customer SET c_balance = c_balance + $4, c_delivery_cnt = c_delivery_cnt + 1
                 WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
                w, d, order.text(0, 0), total.text(0, 0)
            )?;
        }
        self.commit()
    }

    fn stock_level(&mut self) -> Result<(), Failure> {
        let (w, d) = (self.warehouse, self.district());
        let threshold = self.random.u32(10..=20);
        self.begin()?;
        let district = run!(
            self,
            "SELECT d_next_o_id FROM district WHERE d_w_id = $1 AND d_id = $2",
            w,
            d
        )?;
        let next: i64 = district.text(0, 0).parse().unwrap_or_default();
        // 2.8.2.2: the last twenty orders.
        let _low = run!(
            self,
            "SELECT count(DISTINCT s_i_id) FROM order_line JOIN stock ON s_w_id = ol_w_id AND s_i_id = ol_i_id
             WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id < $3 AND ol_o_id >= $4 AND s_quantity < $5",
            w, d, next, next - 20, threshold
        )?;
        self.commit()
    }
}
