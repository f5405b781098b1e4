//! Whether my clock agrees with my peers': the one comparison of wall clocks of different hosts.
//!
//! It decides nothing about who is alive. It catches a bad clock before that raises an `end_ms` far ahead.

use crate::{CodeRecord, Stored};

/// How many fresh peers can outvote a clock.
pub const FRESH_PEERS_MIN: usize = 3;

/// All code records as one scan showed them, and my wall clock around it.
#[derive(Clone, Copy, Debug)]
pub struct Sighting<'a> {
    /// My wall clock before the scan was sent, in Unix milliseconds.
    pub sent_wall_ms: u64,
    /// My wall clock when its reply was there.
    pub replied_wall_ms: u64,
    /// My clock's error bound, the larger of the two.
    pub clock_error_ms: u32,
    /// What the scan showed.
    pub codes: &'a [(u32, Stored<CodeRecord>)],
}

/// What peers say about my clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// How many peers wrote their record between the two scans.
    pub fresh: usize,
    /// The codes of those whose stamp cannot be of my time: worth a report each.
    pub odd: Vec<u32>,
    /// The verdict.
    pub verdict: Verdict,
}

/// Whether to go on by my clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Fewer than [`FRESH_PEERS_MIN`] fresh peers: they cannot tell who is wrong.
    Unknown,
    /// Most fresh peers agree with me.
    Agrees,
    /// Most fresh peers do not: my clock is to be treated as unknown, and nothing is swapped by it.
    Disagrees,
}

/// Compares my clock with that of every peer whose record changed between two scans.
///
/// Such a peer wrote its stamp after the first scan was sent and before the reply of the second was there. So the
/// stamp must lie between my two readings, widened by both error bounds in both directions. Mine (`own`) is left
/// out.
pub fn agreement(first: &Sighting<'_>, second: &Sighting<'_>, own: Option<u32>) -> Agreement {
    let mut fresh = 0;
    let mut odd = Vec::new();
    let own_error_ms = u64::from(first.clock_error_ms.max(second.clock_error_ms));
    for (code, now) in second.codes {
        let before = first.codes.iter().find(|(other, _)| other == code);
        let is_fresh = before.is_some_and(|(_, before)| before.revision != now.revision);
        if !is_fresh || Some(*code) == own {
            continue;
        }
        fresh += 1;
        let errors_ms = own_error_ms.saturating_add(u64::from(now.record.clock_error_ms));
        let from_ms = first.sent_wall_ms.saturating_sub(errors_ms);
        let to_ms = second.replied_wall_ms.saturating_add(errors_ms);
        if !(from_ms..=to_ms).contains(&now.record.stamp_ms) {
            odd.push(*code);
        }
    }
    let verdict = if fresh < FRESH_PEERS_MIN {
        Verdict::Unknown
    } else if odd.len() * 2 > fresh {
        Verdict::Disagrees
    } else {
        Verdict::Agrees
    };
    Agreement { fresh, odd, verdict }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Owner, Revision, State};

    const T: u64 = 1_750_000_000_000;

    fn codes(stamps: &[u64], revision: u64) -> Vec<(u32, Stored<CodeRecord>)> {
        (0..)
            .zip(stamps)
            .map(|(code, &stamp_ms)| {
                let record = CodeRecord {
                    state: State::Active,
                    term: 1,
                    owner: Some(Owner::new("peer").unwrap()),
                    stamp_ms,
                    clock_error_ms: 10,
                    ..CodeRecord::UNUSED
                };
                (code, Stored { record, revision: Revision::new(revision) })
            })
            .collect()
    }

    #[test]
    fn a_majority_of_three_fresh_peers_outvotes_a_clock() {
        // Shows the verdict for peers at various distances from my clock, which reads T + 1000 and T + 2000 around
        // the peers' writes; both error bounds are 10 ms. F15: a clock 8 h fast is refused.
        let hours_8 = 8 * 3_600_000;
        let none: &[u32] = &[];
        for (stamps, odd, verdict) in [
            (&[T + 1_500, T + 1_500][..], none, Verdict::Unknown),
            (&[T + 1_500, T + 980, T + 2_020], none, Verdict::Agrees),
            (&[T + 1_500, T + 979, T + 2_000], &[1], Verdict::Agrees),
            (&[T + 1_500, T + 979, T + 2_021], &[1, 2], Verdict::Disagrees),
            (&[T + 1_500 - hours_8; 3], &[0, 1, 2], Verdict::Disagrees),
            (&[T + 1_500 + hours_8; 3], &[0, 1, 2], Verdict::Disagrees),
            (&[T + 1_500, T + 1_500, 0, 0], &[2, 3], Verdict::Agrees),
            (&[0, 0], &[0, 1], Verdict::Unknown),
        ] {
            let before = codes(stamps, 1);
            let after = codes(stamps, 2);
            let first = Sighting {
                sent_wall_ms: T + 1_000,
                replied_wall_ms: T + 1_010,
                clock_error_ms: 10,
                codes: &before,
            };
            let second = Sighting {
                sent_wall_ms: T + 1_990,
                replied_wall_ms: T + 2_000,
                clock_error_ms: 5,
                codes: &after,
            };
            let agreement = agreement(&first, &second, None);
            assert_eq!((&agreement.odd[..], agreement.verdict), (odd, verdict), "{stamps:?}");
        }
    }

    #[test]
    fn only_fresh_peers_have_a_say() {
        // Shows that a record that did not change, and my own, say nothing however odd they are.
        let before = codes(&[0, 0, 0, 0], 1);
        let mut after = codes(&[0, 0, 0, 0], 2);
        after[0].1.revision = Revision::new(1);
        let first = Sighting { sent_wall_ms: T, replied_wall_ms: T, clock_error_ms: 0, codes: &before };
        let second = Sighting { codes: &after, ..first };
        assert_eq!(
            agreement(&first, &second, Some(3)),
            Agreement { fresh: 2, odd: vec![1, 2], verdict: Verdict::Unknown }
        );
    }
}
