//! What a worker counts.

use std::collections::BTreeMap;

use snowmint_core::{Layout, Refusal, Role, Run};

/// What a worker has done since it was made. Each figure only grows, but for the rollback.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// IDs that were minted.
    pub ids: u64,
    /// Refusals by [`Refusal::reason`], each as often as a caller asked, waits included.
    pub refusals: BTreeMap<&'static str, u64>,
    /// How many IDs each tick that is over has held: the real bursts.
    pub bursts: Bursts,
    /// How far the wall clock is behind what was minted, in milliseconds, as of the last call; 0 when it is not.
    pub rolled_back_ms: u64,
    /// The tick that is being filled, and how far.
    tick: u64,
    tick_count: u64,
}

impl Counters {
    pub(crate) fn minted(&mut self, layout: &Layout, run: &Run) {
        let count = u64::from(run.count());
        self.ids += count;
        self.asked(None);
        let tick = layout.value(run.first(), Role::Timestamp);
        if tick != self.tick {
            self.bursts.note(self.tick_count);
            (self.tick, self.tick_count) = (tick, 0);
        }
        self.tick_count += count;
    }

    pub(crate) fn refused(&mut self, refusal: Refusal) {
        *self.refusals.entry(refusal.reason()).or_default() += 1;
        self.asked(Some(refusal));
    }

    /// The clock, as the last answer shows it. All that a probe leaves behind: it is nobody's ID, and nobody's refusal.
    pub(crate) fn asked(&mut self, refusal: Option<Refusal>) {
        self.rolled_back_ms = match refusal {
            Some(Refusal::ClockRolledBack { by_ms, .. }) => by_ms,
            _ => 0,
        };
    }
}

/// A histogram of IDs a tick, in powers of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bursts {
    buckets: [u64; Self::BOUNDS.len() + 1],
    sum: u64,
}

impl Bursts {
    /// The upper bounds of the buckets, each included; one more bucket holds what lies above.
    pub const BOUNDS: [u64; 14] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 3_000, 4_096];

    fn note(&mut self, count: u64) {
        if count == 0 {
            return;
        }
        self.sum += count;
        let at = Self::BOUNDS.iter().position(|bound| count <= *bound).unwrap_or(Self::BOUNDS.len());
        if let Some(bucket) = self.buckets.get_mut(at) {
            *bucket += 1;
        }
    }

    /// How many ticks fell into each bucket, not cumulated.
    pub const fn buckets(&self) -> &[u64] {
        &self.buckets
    }

    /// How many IDs all of them held.
    pub const fn sum(&self) -> u64 {
        self.sum
    }

    /// What both hold.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        for (bucket, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *bucket += more;
        }
        self.sum += other.sum;
        self
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use snowmint_core::Id;

    use super::*;

    #[test]
    fn bursts_are_counted_by_tick_and_refusals_by_reason() {
        // Shows that runs of one tick are one burst, told once the next tick begins, and that a rollback ends with the
        // next ID.
        let layout = Layout::SNOWMINT;
        let run =
            |tick: u64, count| Run::new(Id::new(tick << 22), 1, NonZeroU32::new(count).unwrap()).unwrap();
        let mut counters = Counters::default();
        counters.minted(&layout, &run(5, 2));
        counters.minted(&layout, &run(5, 2));
        counters.refused(Refusal::ClockRolledBack { by_ms: 7, wait_ms: 7 });
        assert_eq!((counters.ids, counters.bursts.sum(), counters.rolled_back_ms), (4, 0, 7));
        counters.minted(&layout, &run(6, 4_096));
        counters.minted(&layout, &run(7, 1));
        assert_eq!((counters.ids, counters.bursts.sum(), counters.rolled_back_ms), (4_101, 4_100, 0));
        let at = |bound| Bursts::BOUNDS.iter().position(|other| *other == bound).unwrap();
        let buckets = counters.bursts.buckets();
        assert_eq!((buckets[at(4)], buckets[at(4_096)], buckets.iter().sum::<u64>()), (1, 1, 2));
        assert_eq!(counters.refusals.get("clock-rolled-back"), Some(&1));
        assert_eq!(counters.bursts.and(&counters.bursts).sum(), 8_200);

        let before = counters.clone();
        counters.asked(Some(Refusal::ClockRolledBack { by_ms: 3, wait_ms: 3 }));
        assert_eq!(counters, Counters { rolled_back_ms: 3, ..before.clone() });
        counters.asked(None);
        assert_eq!(counters, before, "a probe is not counted");
    }
}
