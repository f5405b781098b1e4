//! When codes can be granted again: what operators see of those that are not free.

use crate::protocol::{next_floor_ms, quarantine_wait_ms};
use crate::{ClusterRecord, CodeRecord, Now, State};

/// When a code can be granted again, to a worker without a lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reuse {
    /// At once.
    Now,
    /// After so many milliseconds of the wall clock: a quarantine stands, or IDs of it lie ahead of the clock.
    After {
        /// Milliseconds to wait; at least 1.
        wait_ms: u64,
    },
    /// Once its holder gives it back, or falls silent and is expired.
    Held,
    /// Not any more: its IDs reach to the end of the layout, or to the planned cut-over, or it was granted as often as
    /// can be counted.
    Never,
}

impl Reuse {
    /// When the code of this record can be granted again.
    pub fn of(record: &CodeRecord, cluster: &ClusterRecord, now: &Now) -> Self {
        if record.state == State::Active {
            return Self::Held;
        }
        let floor_ms = next_floor_ms(record, cluster);
        let last_ms = cluster.last_ms();
        if floor_ms >= last_ms || now.wall_ms > last_ms || record.term == u32::MAX {
            return Self::Never;
        }
        // A fence is past its quarantine before anybody may free the code; a free code has none.
        let first_ms = cluster.layout.first_ms_above(floor_ms);
        match quarantine_wait_ms(record, now).max(first_ms.saturating_sub(now.wall_ms)) {
            0 => Self::Now,
            wait_ms => Self::After { wait_ms },
        }
    }

    /// The name, as every face writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Now => "now",
            Self::After { .. } => "later",
            Self::Held => "held",
            Self::Never => "never",
        }
    }
}

/// How many codes of a region there are in each state of [`Reuse`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Can be granted at once.
    pub now: u32,
    /// Can be granted later.
    pub later: u32,
    /// Are held.
    pub held: u32,
    /// Will not be granted again.
    pub never: u32,
    /// Milliseconds until the first of those that can be granted later.
    pub next_wait_ms: Option<u64>,
}

impl Left {
    /// Counts codes.
    pub fn count(codes: impl IntoIterator<Item = Reuse>) -> Self {
        let mut left = Self::default();
        for reuse in codes {
            match reuse {
                Reuse::Now => left.now += 1,
                Reuse::After { wait_ms } => {
                    left.later += 1;
                    left.next_wait_ms = Some(left.next_wait_ms.map_or(wait_ms, |least| least.min(wait_ms)));
                }
                Reuse::Held => left.held += 1,
                Reuse::Never => left.never += 1,
            }
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use snowmint_core::Layout;

    use super::*;
    use crate::Owner;
    use crate::protocol::{self, Bid};

    const T: u64 = 1_750_000_000_000;

    fn at(wall_ms: u64) -> Now {
        Now { boot_ms: 0, wall_ms, clock_error_ms: 10 }
    }

    #[test]
    fn a_graveyard_says_when_each_code_can_be_had_again() {
        // Shows the answer for each state of a record, and that it is what the protocol then does.
        let cluster = ClusterRecord::new(1, Layout::SNOWMINT, 0).unwrap();
        let owner = Owner::new("a").unwrap();
        let bid = Bid { owner: &owner, window_ms: 1_000, lead_ms: 0 };
        let active = protocol::acquire(&CodeRecord::UNUSED, &cluster, &bid, &at(T), 1).unwrap();
        let holder = protocol::Holder { term: active.term, nonce: active.nonce };
        let released = protocol::release(&active, holder, T + 400, &at(T), 2).unwrap();
        let fenced = protocol::fence(&active, 5_000, &at(T), 3);
        let spent = CodeRecord { term: u32::MAX, ..released.clone() };
        let ended = CodeRecord { end_ms: cluster.last_ms(), ..released.clone() };
        for (record, expected) in [
            (&CodeRecord::UNUSED, Reuse::Now),
            (&active, Reuse::Held),
            (&released, Reuse::After { wait_ms: 401 }),
            // Both clocks' errors, and the millisecond after.
            (&fenced, Reuse::After { wait_ms: 5_021 }),
            (&spent, Reuse::Never),
            (&ended, Reuse::Never),
        ] {
            assert_eq!(Reuse::of(record, &cluster, &at(T)), expected, "{record:?}");
            let Reuse::After { wait_ms } = expected else { continue };
            let freed = |wall_ms| {
                let now = at(wall_ms);
                let record = if record.state == State::Fenced {
                    protocol::free(record, &now, 4).ok()?
                } else {
                    record.clone()
                };
                protocol::acquire(&record, &cluster, &bid, &now, 5).ok()
            };
            assert!(freed(T + wait_ms - 1).is_none() && freed(T + wait_ms).is_some(), "{record:?}");
        }
    }

    #[test]
    fn what_is_left_is_counted() {
        // Shows the counts, and the least of the waits.
        let after = |wait_ms| Reuse::After { wait_ms };
        let codes = [Reuse::Now, after(9), Reuse::Held, after(7), Reuse::Never, Reuse::Now];
        let expected = Left { now: 2, later: 2, held: 1, never: 1, next_wait_ms: Some(7) };
        assert_eq!(Left::count(codes), expected);
    }
}
