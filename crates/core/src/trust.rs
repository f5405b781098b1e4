//! When a clock whose error was too large is believed again.

/// A clock that was refused is believed again once its error bound is at most this part of the limit, in percent.
const AGAIN_PERCENT: u64 = 80;

/// Whether a clock is believed, with hysteresis: refused above the limit, believed again only at 80 % of it, so that a
/// bound which hovers at the limit does not make minting stutter.
///
/// It stands here because when to mint is decided here. It keeps no time and is not part of a generator: whoever reads
/// a clock passes each bound through [`ClockTrust::judge`], and gives generators and leases what comes out.
///
/// ```
/// use snowmint_core::ClockTrust;
///
/// let mut trust = ClockTrust::new(10);
/// assert_eq!(trust.judge(10), 10);
/// assert_eq!(trust.judge(12), 12); // Refused,
/// assert_eq!(trust.judge(9), 11); // and still so,
/// assert_eq!(trust.judge(8), 8); // until now.
/// ```
#[derive(Clone, Debug)]
pub struct ClockTrust {
    error_ms_max: u32,
    is_trusted: bool,
}

impl ClockTrust {
    /// A clock that is believed up to a bound of `error_ms_max` milliseconds; at `u32::MAX`, always.
    pub const fn new(error_ms_max: u32) -> Self {
        Self { error_ms_max, is_trusted: true }
    }

    /// The bound to go by, from the clock's own (`u32::MAX` when unknown): never less than that, and above the limit
    /// while the clock is not believed. So it bounds the error whenever the clock's own bound does.
    pub fn judge(&mut self, error_bound_ms: u32) -> u32 {
        if error_bound_ms > self.error_ms_max {
            self.is_trusted = false;
        } else if error_bound_ms <= self.again_ms() {
            self.is_trusted = true;
        }
        if self.is_trusted { error_bound_ms } else { error_bound_ms.max(self.error_ms_max.saturating_add(1)) }
    }

    /// Whether the clock was believed when last judged.
    pub const fn is_trusted(&self) -> bool {
        self.is_trusted
    }

    /// The largest bound that is believed, in milliseconds.
    pub const fn error_ms_max(&self) -> u32 {
        self.error_ms_max
    }

    /// The bound at which a refused clock is believed again, in milliseconds. Rounded up: bounds are, too, and a limit
    /// of 1 ms could not be met again otherwise.
    pub fn again_ms(&self) -> u32 {
        let again_ms = (u64::from(self.error_ms_max) * AGAIN_PERCENT).div_ceil(100);
        u32::try_from(again_ms).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_clock_is_believed_again_well_below_the_limit() {
        const UNKNOWN: u32 = u32::MAX;
        // By limit: each bound, and what is gone by.
        let rows: &[(u32, &[(u32, u32)])] = &[
            (10, &[(0, 0), (10, 10), (11, 11), (10, 11), (9, 11), (8, 8), (10, 10), (11, 11)]),
            (10, &[(UNKNOWN, UNKNOWN), (9, 11), (500, 500), (8, 8), (9, 9)]),
            (0, &[(0, 0), (1, 1), (0, 0)]),
            (1, &[(1, 1), (2, 2), (1, 1)]),
            (5, &[(6, 6), (5, 6), (4, 4)]),
            (1_250, &[(1_251, 1_251), (1_001, 1_251), (1_000, 1_000), (1_250, 1_250)]),
            (UNKNOWN - 1, &[(UNKNOWN, UNKNOWN), (UNKNOWN - 1, UNKNOWN), (0, 0)]),
            // Any clock will do.
            (UNKNOWN, &[(UNKNOWN, UNKNOWN), (7, 7), (UNKNOWN, UNKNOWN)]),
        ];
        for &(error_ms_max, steps) in rows {
            let mut trust = ClockTrust::new(error_ms_max);
            for &(bound_ms, expected) in steps {
                assert_eq!(trust.judge(bound_ms), expected, "{error_ms_max}: {bound_ms}");
                assert_eq!(trust.is_trusted(), expected <= error_ms_max, "{error_ms_max}: {bound_ms}");
            }
        }
    }
}
