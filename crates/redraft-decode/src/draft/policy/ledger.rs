//! What may still be lost, in the unit of the clock: seconds where steps are timed, else plain steps.

/// A balance that never goes below what was earned, and keeps no more than its cap.
///
/// As long as nothing is started that [`Ledger::affords`] refuses, the sum of all losses stays below the opening balance
/// plus all that was earned: what the cap cuts off can only make it less.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ledger {
    balance: f64,
    cap: f64,
}

impl Ledger {
    pub(super) fn new(opening: f64, cap: f64) -> Self {
        Self { balance: opening.min(cap), cap }
    }

    /// Whether a loss of up to `loss` may be risked.
    pub(super) fn affords(&self, loss: f64) -> bool {
        loss <= self.balance
    }

    /// Whether a further gain would be cut off.
    pub(super) fn is_full(&self) -> bool {
        self.balance >= self.cap
    }

    /// Books a gain, or a loss where negative.
    pub(super) fn book(&mut self, gain: f64) {
        self.balance = (self.balance + gain).min(self.cap);
    }

    /// What is there.
    pub(super) fn balance(&self) -> f64 {
        self.balance
    }

    /// Books what happened since there was `balance` anew, as a gain of `gain`.
    pub(super) fn settle(&mut self, balance: f64, gain: f64) {
        self.balance = (balance + gain).min(self.cap);
    }

    /// Counts in another unit from here on.
    pub(super) fn convert(&mut self, unit: f64) {
        self.balance *= unit;
        self.cap *= unit;
    }

    /// Changes the cap.
    pub(super) fn set_cap(&mut self, cap: f64) {
        self.cap = cap;
        self.balance = self.balance.min(cap);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gains_are_capped_and_losses_are_not() {
        let mut ledger = Ledger::new(2.0, 3.0);
        assert!(ledger.affords(2.0) && !ledger.affords(2.5), "the opening balance");
        ledger.book(5.0);
        assert!(ledger.affords(3.0) && !ledger.affords(3.5) && ledger.is_full(), "capped");
        ledger.book(-2.5);
        assert!(ledger.affords(0.5) && !ledger.affords(0.75) && !ledger.is_full(), "spent");
        ledger.settle(ledger.balance(), 0.25);
        assert!(ledger.affords(0.75) && !ledger.affords(1.0), "settled");
        ledger.settle(0.25, 0.25);
        assert!(ledger.affords(0.5) && !ledger.affords(0.75), "anew");
        ledger.convert(8.0);
        assert!(ledger.affords(4.0) && !ledger.affords(6.0), "in other units");
        ledger.set_cap(0.25);
        assert!(!ledger.affords(0.5), "a lower cap takes");
        assert!(!Ledger::new(2.0, 1.0).affords(1.5), "also from the opening balance");
    }
}
