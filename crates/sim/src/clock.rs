//! Clocks, each with the shape of its fault.

use crate::Rng;

/// A step of a wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// When, in microseconds of true time.
    pub at_us: u64,
    /// By how much, in microseconds.
    pub by_us: i64,
}

/// What a wall clock does that it should not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Nothing.
    Steady,
    /// It runs too fast, or too slow.
    Drifting {
        /// By how many parts in a million.
        ppm: i64,
    },
    /// It is set, by a millisecond or by hours.
    Stepping {
        /// When and by how much, in order.
        steps: Vec<Step>,
    },
    /// A leap second is smeared: it falls behind evenly.
    Smeared {
        /// From when on, in microseconds of true time.
        from_us: u64,
        /// For how long.
        for_us: u64,
        /// By how much in all, in microseconds.
        by_us: i64,
    },
    /// A leap second is repeated, again and again: back by a second at once, then right again in steps.
    Sawtooth {
        /// How often, in microseconds.
        every_us: u64,
        /// How far back, in microseconds.
        back_us: i64,
    },
    /// It stands still, then is right again.
    Frozen {
        /// From when on, in microseconds of true time.
        from_us: u64,
        /// Until when.
        until_us: u64,
    },
}

/// A wall clock: a pure function of true time, so that nothing that reads it disturbs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WallClock {
    /// Unix milliseconds at true time 0.
    pub epoch_ms: u64,
    /// How far off it is all the time, in microseconds.
    pub offset_us: i64,
    /// Its fault.
    pub shape: Shape,
    /// Whether its error bound tells of a fault: unknown for half a second after a step, or while it stands still.
    pub is_honest: bool,
}

/// How long an honest clock does not trust itself after a step, in microseconds.
const DISTRUST_US: u64 = 500_000;

impl WallClock {
    /// A clock that is right.
    pub const fn steady(epoch_ms: u64) -> Self {
        Self { epoch_ms, offset_us: 0, shape: Shape::Steady, is_honest: true }
    }

    /// A clock with a random fault within a run of `run_us` microseconds.
    pub fn random(epoch_ms: u64, run_us: u64, rng: &mut Rng) -> Self {
        let shape = match rng.below(8) {
            0 => Shape::Steady,
            1 => Shape::Drifting { ppm: signed(rng.skewed(1, 200_000), rng) },
            2..=4 => {
                let mut steps: Vec<_> = (0..rng.between(1, 8))
                    .map(|_| {
                        // One millisecond to two hours.
                        let by_us = rng.skewed(1, 7_200_000) * 1_000;
                        Step { at_us: rng.below(run_us), by_us: signed(by_us, rng) }
                    })
                    .collect();
                if rng.chance(700) {
                    // Mostly steps of the size of a window, which are the dangerous ones.
                    for step in &mut steps {
                        step.by_us %= 2_000_000;
                    }
                }
                steps.sort_by_key(|step| step.at_us);
                Shape::Stepping { steps }
            }
            5 => Shape::Smeared {
                from_us: rng.below(run_us),
                for_us: rng.between(1, run_us),
                by_us: signed(rng.between(1, 2_000_000), rng),
            },
            6 => Shape::Sawtooth {
                every_us: rng.between(200_000, 3_000_000),
                back_us: signed(rng.between(1_000, 1_000_000), rng).abs(),
            },
            _ => {
                let from_us = rng.below(run_us);
                Shape::Frozen { from_us, until_us: from_us + rng.skewed(1_000, 5_000_000) }
            }
        };
        let offset_us = signed(rng.skewed(0, 50_000), rng);
        Self { epoch_ms, offset_us, shape, is_honest: rng.chance(500) }
    }

    /// The reading in Unix milliseconds at `true_us`.
    pub fn now_ms(&self, true_us: u64) -> u64 {
        let running_us = match &self.shape {
            Shape::Frozen { from_us, until_us } if (*from_us..*until_us).contains(&true_us) => *from_us,
            _ => true_us,
        };
        let shifted_us = self.offset_us.saturating_add(self.shift_us(true_us));
        let reading_us = i128::from(self.epoch_ms) * 1_000 + i128::from(running_us) + i128::from(shifted_us);
        u64::try_from(reading_us.max(0) / 1_000).unwrap_or(u64::MAX)
    }

    fn shift_us(&self, true_us: u64) -> i64 {
        let true_i = i64::try_from(true_us).unwrap_or(i64::MAX);
        match &self.shape {
            Shape::Steady | Shape::Frozen { .. } => 0,
            Shape::Drifting { ppm } => true_i / 1_000 * ppm / 1_000,
            Shape::Stepping { steps } => {
                let before = steps.iter().take_while(|step| step.at_us <= true_us);
                before.fold(0, |sum: i64, step| sum.saturating_add(step.by_us))
            }
            Shape::Smeared { from_us, for_us, by_us } => {
                let into_us = true_us.saturating_sub(*from_us).min(*for_us);
                let part = i128::from(*by_us) * i128::from(into_us) / i128::from((*for_us).max(1));
                i64::try_from(part).unwrap_or(0)
            }
            // Back at the start of each odd period, right again at the start of each even one.
            Shape::Sawtooth { every_us, back_us } => {
                if (true_us / (*every_us).max(1)) % 2 == 1 {
                    -back_us
                } else {
                    0
                }
            }
        }
    }

    /// The error bound in milliseconds at `true_us`; `u32::MAX` when it is not known.
    pub fn error_ms(&self, true_us: u64) -> u32 {
        let distrusts = self.is_honest
            && match &self.shape {
                Shape::Stepping { steps } => {
                    steps.iter().any(|step| (step.at_us..step.at_us + DISTRUST_US).contains(&true_us))
                }
                Shape::Frozen { from_us, until_us } => (*from_us..*until_us).contains(&true_us),
                _ => false,
            };
        if distrusts { u32::MAX } else { 2 }
    }
}

fn signed(value: u64, rng: &mut Rng) -> i64 {
    let value = i64::try_from(value).unwrap_or(i64::MAX);
    if rng.chance(500) { -value } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shape_does_what_it_is_called() {
        // Shows readings of each shape, in milliseconds after the clock's epoch, at a few moments of true time.
        let read = |shape: Shape, at_ms: u64| {
            let clock = WallClock { shape, ..WallClock::steady(1_000_000) };
            i64::try_from(clock.now_ms(at_ms * 1_000)).unwrap() - 1_000_000
        };
        let steps = vec![Step { at_us: 5_000, by_us: -2_000 }, Step { at_us: 9_000, by_us: 3_600_000_000 }];
        for (shape, expected) in [
            (Shape::Steady, [0, 5, 10]),
            (Shape::Drifting { ppm: 100_000 }, [0, 5, 11]),
            (Shape::Stepping { steps }, [0, 3, 3_600_008]),
            (Shape::Smeared { from_us: 0, for_us: 10_000, by_us: -4_000 }, [0, 3, 6]),
            (Shape::Sawtooth { every_us: 5_000, back_us: 3_000 }, [0, 2, 10]),
            (Shape::Frozen { from_us: 4_000, until_us: 8_000 }, [0, 4, 10]),
        ] {
            let readings = [0, 5, 10].map(|at_ms| read(shape.clone(), at_ms));
            assert_eq!(readings, expected, "{shape:?}");
        }
    }
}
