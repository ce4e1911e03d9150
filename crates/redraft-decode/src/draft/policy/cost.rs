//! What a round costs, in units of one plain decode step.

use crate::draft::Plan;

/// Why measured costs were refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CostError {
    /// A curve without a point.
    #[error("a cost curve needs at least one measured point; found none")]
    NoPoints,
    /// The rows of a curve do not rise.
    #[error(
        "point {index} of a cost curve is for {rows} rows; expected more than {before}, the rows before it"
    )]
    NotRising {
        /// Index of the point.
        index: usize,
        /// Its rows.
        rows: u32,
        /// Rows of the point before it; 0 before the first.
        before: u32,
    },
    /// A cost is no finite number or is negative.
    #[error("the cost {what} is {found}; expected a finite number of plain steps, at least 0")]
    NotACost {
        /// Which cost.
        what: &'static str,
        /// Its value.
        found: f64,
    },
    /// A cost that no measurement gives.
    #[error("{what} costs {found:.3} plain steps; measuring gives {least:.3} to {most:.3}")]
    NotMeasured {
        /// What costs that.
        what: &'static str,
        /// Its cost in plain steps.
        found: f64,
        /// The least that it may cost.
        least: f64,
        /// The most.
        most: f64,
    },
}

/// The largest cost that is believed of a step, in plain steps.
const MOST: f64 = 1000.0;

/// Cost of a forward by its number of rows, in plain steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// (rows, cost), rows rising.
    points: Vec<(u32, f64)>,
}

impl Curve {
    /// The curve through measured `points` of (rows, cost), rows rising.
    ///
    /// # Errors
    /// [`CostError`].
    pub fn new(points: Vec<(u32, f64)>) -> Result<Self, CostError> {
        if points.is_empty() {
            return Err(CostError::NoPoints);
        }
        let mut before = 0;
        for (index, &(rows, cost)) in points.iter().enumerate() {
            if rows <= before {
                return Err(CostError::NotRising { index, rows, before });
            }
            check("of a curve", cost)?;
            before = rows;
        }
        Ok(Self { points })
    }

    /// The measured points of (rows, cost), rows rising.
    #[must_use]
    pub fn points(&self) -> &[(u32, f64)] {
        &self.points
    }

    /// The cost of `rows` rows: straight lines between the points, flat before the first, and beyond the last in
    /// proportion to the rows.
    #[must_use]
    pub fn at(&self, rows: u32) -> f64 {
        let behind = self.points.partition_point(|point| point.0 < rows);
        let (before, after) =
            (behind.checked_sub(1).and_then(|at| self.points.get(at)), self.points.get(behind));
        match (before, after) {
            (Some(&(r0, c0)), Some(&(r1, c1))) => {
                c0 + (c1 - c0) * (f64::from(rows - r0) / f64::from(r1 - r0))
            }
            (None, Some(&(_, cost))) => cost,
            (Some(&(r0, c0)), None) => c0 * (f64::from(rows) / f64::from(r0)),
            (None, None) => f64::INFINITY,
        }
    }
}

/// Measured costs of an adapter and a model, in units of the fastest plain decode step.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// V: a target forward by its rows.
    pub verify: Curve,
    /// C: a drafter step by its rows.
    pub draft: Curve,
    /// The extend pass of the drafter over the tokens accepted last round.
    pub extend: f64,
    /// What a round adds beside its forwards.
    pub overhead: f64,
    /// What the drafter costs for each token that was decoded without it, when it runs again.
    pub catch_up: f64,
    /// Most tokens that it catches up on.
    pub catch_up_most: u32,
}

impl Costs {
    /// Checks that all costs are finite and none is negative.
    ///
    /// # Errors
    /// [`CostError::NotACost`], naming the first that is neither.
    pub fn validate(&self) -> Result<(), CostError> {
        check("extend", self.extend)?;
        check("overhead", self.overhead)?;
        check("catch_up", self.catch_up)
    }

    /// Checks that costs which were kept somewhere may have been measured, with a drafter if `drafts`.
    ///
    /// A busy machine measures wildly, so that little can be said of large numbers; but a step of one row is the unit,
    /// steps of more rows never cost less, and nothing is free.
    ///
    /// # Errors
    /// [`CostError::NotMeasured`], naming the first cost that cannot be.
    pub fn check_measured(&self, drafts: bool) -> Result<(), CostError> {
        let within = |what, found: f64, least: f64, most: f64| {
            let good = (least..=most).contains(&found);
            if good { Ok(()) } else { Err(CostError::NotMeasured { what, found, least, most }) }
        };
        let mut least = 1.0;
        for &(_, cost) in self.verify.points() {
            within("a step of the model", cost, least, MOST)?;
            least = cost;
        }
        within("a step of one row", self.verify.at(1), 1.0, 1.0 + 1e-9)?;
        let paid = if drafts { 1e-6 } else { 0.0 };
        for &(_, cost) in self.draft.points() {
            within("a step of the drafter", cost, paid, MOST)?;
        }
        within("an extend pass", self.extend, paid, MOST)?;
        within("what a round adds", self.overhead, 0.0, 1.0)?;
        within("catching up on a token", self.catch_up, 0.0, MOST)?;
        within("catching up on all", self.catch_up * f64::from(self.catch_up_most), 0.0, 64.0 * MOST)
    }

    /// The cost of a round of `plan`: V(M) + extend + S · C(k + R) + overhead, without what the drafter does not do in
    /// a plan that only looks up.
    #[must_use]
    pub fn round(&self, plan: &Plan) -> f64 {
        let drafter = match plan.steps() {
            _ if !plan.drafter => 0.0,
            0 => self.extend,
            steps => self.extend + f64::from(steps) * self.draft.at(plan.step_rows()),
        };
        self.verify.at(plan.verified_rows()) + drafter + self.overhead
    }
}

fn check(what: &'static str, found: f64) -> Result<(), CostError> {
    if found.is_finite() && found >= 0.0 { Ok(()) } else { Err(CostError::NotACost { what, found }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_by_hand() {
        let verify = Curve::new(vec![(1, 1.0), (4, 1.5), (8, 2.5)]).unwrap();
        assert_eq!(
            [1, 2, 4, 6, 8, 16].map(|m| verify.at(m)),
            [1.0, 1.0 + 0.5 / 3.0, 1.5, 2.0, 2.5, 5.0],
            "V"
        );
        let draft = Curve::new(vec![(4, 0.25)]).unwrap();
        assert_eq!([1, 4, 8].map(|rows| draft.at(rows)), [0.25, 0.25, 0.5], "C");
        let costs = Costs { verify, draft, extend: 0.125, overhead: 0.0625, catch_up: 0.0, catch_up_most: 0 };
        assert_eq!(costs.validate(), Ok(()), "good costs");
        assert_eq!(costs.round(&Plan::chain(3)), 1.5 + 0.125 + 2.0 * 0.25 + 0.0625, "a chain");
        assert_eq!(
            costs.round(&Plan::reconsider(7, 3, 4, 4, 4, 2)),
            2.5 + 0.125 + 2.0 * 0.5 + 0.0625,
            "a tree"
        );
        assert_eq!(costs.round(&Plan::lookup(3)), 1.5 + 0.0625, "no drafter");
        assert_eq!(costs.round(&Plan::tree(3, 1, 1, 3)), 1.5 + 0.125 + 0.0625, "no step behind extend");
    }

    #[test]
    fn costs_that_nobody_measured() {
        let curve = |points: &[(u32, f64)]| Curve::new(points.to_vec()).unwrap();
        let good = Costs {
            verify: curve(&[(1, 1.0), (8, 3.25)]),
            draft: curve(&[(4, 0.125)]),
            extend: 0.25,
            overhead: 0.0,
            catch_up: 0.0625,
            catch_up_most: 48,
        };
        assert_eq!(good.check_measured(true), Ok(()), "good costs");
        let expected =
            CostError::NotMeasured { what: "a step of the model", found: 0.5, least: 1.0, most: MOST };
        let cheap = Costs { verify: curve(&[(1, 1.0), (8, 0.5)]), ..good.clone() };
        assert_eq!(cheap.check_measured(true), Err(expected), "more rows for less");
        let bad = [
            Costs { verify: curve(&[(8, 3.25)]), ..good.clone() },
            Costs { verify: curve(&[(1, 1.0), (8, 4000.0)]), ..good.clone() },
            Costs { draft: curve(&[(1, 1e5)]), ..good.clone() },
            Costs { extend: 1e9, ..good.clone() },
            Costs { overhead: 50.0, ..good.clone() },
            Costs { catch_up: 1e6, ..good.clone() },
            Costs { catch_up_most: 4_000_000_000, ..good.clone() },
        ];
        for costs in bad {
            assert!(costs.check_measured(true).is_err(), "{costs:?}");
        }
        let free = Costs { draft: curve(&[(1, 0.0)]), extend: 0.0, ..good };
        assert_eq!(free.check_measured(false), Ok(()), "no drafter");
        assert!(free.check_measured(true).is_err(), "a drafter for nothing");
    }

    #[test]
    fn bad_costs_are_errors() {
        assert_eq!(Curve::new(Vec::new()), Err(CostError::NoPoints), "no point");
        let expected = CostError::NotRising { index: 1, rows: 2, before: 2 };
        assert_eq!(Curve::new(vec![(2, 1.0), (2, 1.0)]), Err(expected), "twice the same");
        assert!(Curve::new(vec![(0, 1.0)]).is_err(), "no rows");
        assert!(Curve::new(vec![(1, f64::NAN)]).is_err() && Curve::new(vec![(1, -1.0)]).is_err(), "no costs");
        let curve = Curve::new(vec![(1, 1.0)]).unwrap();
        let (verify, draft) = (curve.clone(), curve);
        let costs = Costs { verify, draft, extend: 0.0, overhead: 0.0, catch_up: 0.0, catch_up_most: 0 };
        for bad in [f64::NAN, -1.0, f64::INFINITY] {
            assert!(Costs { extend: bad, ..costs.clone() }.validate().is_err(), "extend {bad}");
            assert!(Costs { overhead: bad, ..costs.clone() }.validate().is_err(), "overhead {bad}");
            assert!(Costs { catch_up: bad, ..costs.clone() }.validate().is_err(), "catch_up {bad}");
        }
    }
}
