//! Whether my clock agrees with my peers': the one comparison of wall clocks of different hosts.
//!
//! It decides nothing about who is alive. It catches a bad clock before that raises an `end_ms` far ahead.
//!
//! A **peer** is a host, not a code: workers of one host share a clock, and a clock has one voice, however many codes
//! are held by it. Hosts are told apart by their owners' names ([`Owner::host`]). Containers that share a machine share
//! its clock too, which nobody can tell from a name; so name owners after machines where that is known.
//!
//! A peer is **fresh** whose record was written between two scans of mine, by itself (it is active: what is freed,
//! fenced or expired may have been written by an operator or a contender), by a clock whose error it knows. Its stamp
//! was read before its swap landed, and after it was at most a request's age. So by a clock that agrees with mine, it
//! lies between "as long ago as my first scan was sent, and what a request may take" and "now".
//!
//! "As long ago" is counted by the boot-time clock, back from the wall clock of now: my own wall clock at the first scan
//! says nothing, since it is the step in between that is to be caught.
//!
//! What can be seen is therefore a clock that is wrong by more than the time between two scans, a request, and both
//! error bounds: some seconds in a fleet with a window of ten. Hours are what it is for.

use std::collections::{BTreeMap, BTreeSet};

use snowmint_core::mutation::{self, Mutation};

use crate::{CodeRecord, Now, Owner, Revision, State, Stored};

/// How many fresh peers can outvote a clock.
pub const FRESH_PEERS_MIN: usize = 3;

/// How many renewals one agreement is good for, as long as the wall clock keeps step with the boot-time clock. A scan
/// is one request, but it tells every record: 200 workers that scanned at each renewal would read 60 times a second.
const RENEWALS_PER_COMPARISON: u8 = 3;

/// A wall clock keeps step if it moves with the boot-time clock to this part: a clock that is slewed does.
const STEP_PART: u64 = 500;

/// A scan, as it concerns a clock.
#[derive(Clone, Copy, Debug)]
pub struct Scan<'a> {
    /// My boot-time clock before it was sent, in milliseconds.
    pub sent_boot_ms: u64,
    /// My clocks once its reply was there.
    pub now: Now,
    /// What it showed.
    pub codes: &'a [(u32, Stored<CodeRecord>)],
}

/// Whose clock is compared.
#[derive(Clone, Copy, Debug)]
pub struct Voter<'a> {
    /// The name that I hold codes by: codes of my own host have no say.
    pub owner: &'a Owner,
    /// The clock error above which a clock is not believed, in milliseconds; peers above it have no say. One whose error
    /// is unknown has none in any case.
    pub clock_error_ms_max: u32,
}

impl Voter<'_> {
    fn has_a_say(&self, record: &CodeRecord) -> bool {
        let is_other = record.owner.as_ref().is_some_and(|owner| owner.host() != self.owner.host());
        let is_known = record.clock_error_ms != u32::MAX && record.clock_error_ms <= self.clock_error_ms_max;
        record.state == State::Active && is_other && is_known
    }

    /// How many hosts could have a say, if they are alive.
    pub(crate) fn peers(&self, codes: &[(u32, Stored<CodeRecord>)]) -> usize {
        let peers = codes.iter().map(|(_, stored)| &stored.record).filter(|record| self.has_a_say(record));
        let hosts: BTreeSet<_> = peers.filter_map(|record| record.owner.as_ref().map(Owner::host)).collect();
        hosts.len()
    }
}

/// What is remembered of a scan: which write of each peer's record it showed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sighting {
    pub(crate) sent_boot_ms: u64,
    /// In the order of the codes; of those only that had a say.
    pub(crate) revisions: Vec<(u32, Revision)>,
}

impl Sighting {
    /// What is to be remembered of this scan.
    pub fn new(scan: &Scan<'_>, voter: &Voter<'_>) -> Self {
        let voting = scan.codes.iter().filter(|(_, stored)| voter.has_a_say(&stored.record));
        Self {
            sent_boot_ms: scan.sent_boot_ms,
            revisions: voting.map(|(code, stored)| (*code, stored.revision)).collect(),
        }
    }

    /// Whether somebody wrote the record since. One that had no say then, and has one now, was written.
    fn is_older_than(&self, code: u32, revision: Revision) -> bool {
        match self.revisions.binary_search_by_key(&code, |(code, _)| *code) {
            Ok(at) => self.revisions.get(at).is_none_or(|(_, before)| *before != revision),
            Err(_) => true,
        }
    }
}

/// What peers say about my clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// How many peers were fresh.
    pub fresh: usize,
    /// How many of them show a time that cannot be mine.
    pub odd: usize,
    /// The codes of those.
    pub odd_codes: Vec<u32>,
    /// The fresh codes of all others.
    pub agreeing_codes: Vec<u32>,
    /// The verdict.
    pub verdict: Verdict,
}

/// Whether to go on by my clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Fewer than [`FRESH_PEERS_MIN`] fresh peers: they cannot tell who is wrong.
    Unknown,
    /// Half of the fresh peers or more agree with me.
    Agrees,
    /// Most fresh peers do not: my clock is to be treated as unknown, and nothing is swapped by it.
    Disagrees,
}

/// Compares my clock with that of every peer whose record changed between two scans.
pub fn agreement(first: &Sighting, second: &Scan<'_>, voter: &Voter<'_>) -> Agreement {
    let now = &second.now;
    // Whoever is told to believe a clock of unknown error has nothing to widen by.
    let own_error_ms = if now.clock_error_ms == u32::MAX { 0 } else { u64::from(now.clock_error_ms) };
    let elapsed_ms = now.boot_ms.saturating_sub(first.sent_boot_ms);
    // By host: its fresh codes that agree, and those that do not.
    let mut hosts = BTreeMap::<&str, (Vec<u32>, Vec<u32>)>::new();
    for (code, Stored { record, revision }) in second.codes {
        let Some(owner) = record.owner.as_ref().filter(|_| voter.has_a_say(record)) else { continue };
        if !first.is_older_than(*code, *revision) {
            continue;
        }
        let errors_ms = own_error_ms + u64::from(record.clock_error_ms);
        let back_ms = elapsed_ms.saturating_add(errors_ms).saturating_add(request_ms(record));
        let from_ms = now.wall_ms.saturating_sub(back_ms);
        let to_ms = now.wall_ms.saturating_add(errors_ms);
        let (agreeing, odd) = hosts.entry(owner.host()).or_default();
        let side = if (from_ms..=to_ms).contains(&record.stamp_ms) { agreeing } else { odd };
        side.push(*code);
    }
    let fresh = hosts.len();
    let odd = hosts.values().filter(|(agreeing, _)| agreeing.is_empty()).count();
    let (mut odd_codes, mut agreeing_codes) = (Vec::new(), Vec::new());
    for (agreeing, odd) in hosts.into_values() {
        // One stamp that fits is from after a clock was mended.
        let side = if agreeing.is_empty() { &mut odd_codes } else { &mut agreeing_codes };
        side.extend(agreeing.into_iter().chain(odd));
    }
    odd_codes.sort_unstable();
    agreeing_codes.sort_unstable();
    let verdict = if fresh < FRESH_PEERS_MIN {
        Verdict::Unknown
    } else if odd * 2 > fresh {
        Verdict::Disagrees
    } else {
        Verdict::Agrees
    };
    Agreement { fresh, odd, odd_codes, agreeing_codes, verdict }
}

/// How old a swap of a peer can be when it lands: a keeper gives it up after a third of its window, and its TTL is 1.5
/// windows.
fn request_ms(record: &CodeRecord) -> u64 {
    u64::from(record.ttl_ms / 4)
}

/// What a keeper remembers of its peers between scans.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Peers {
    pub(crate) first: Option<Sighting>,
    verdict: Verdict,
    /// When they last agreed.
    agreed: Option<Now>,
    /// How many ends were raised since.
    renewals: u8,
    /// Codes that were reported.
    odd: BTreeSet<u32>,
    /// Whether it was reported that they cannot be read.
    is_unread: bool,
}

/// What a comparison changed.
#[derive(Debug)]
pub(crate) struct Compared {
    pub(crate) fresh: usize,
    pub(crate) odd: usize,
    /// The codes to be reported: once, until they are seen to agree.
    pub(crate) report: Vec<u32>,
    /// Whether enough peers had a say this time.
    pub(crate) is_known: bool,
}

impl Peers {
    pub(crate) const fn new() -> Self {
        Self {
            first: None,
            verdict: Verdict::Unknown,
            agreed: None,
            renewals: 0,
            odd: BTreeSet::new(),
            is_unread: false,
        }
    }

    /// Whether most of them disagreed when last enough had a say.
    pub(crate) fn is_outvoted(&self) -> bool {
        self.verdict == Verdict::Disagrees
    }

    /// Whether they agreed a moment ago, and the clock has done nothing odd since.
    pub(crate) fn covers(&self, now: &Now) -> bool {
        let Some(agreed) = self.agreed.filter(|_| self.renewals < RENEWALS_PER_COMPARISON) else {
            return false;
        };
        if self.verdict != Verdict::Agrees || now.boot_ms < agreed.boot_ms {
            return false;
        }
        let elapsed_ms = now.boot_ms - agreed.boot_ms;
        let expected_ms = agreed.wall_ms.saturating_add(elapsed_ms);
        let known_ms = |error_ms: u32| if error_ms == u32::MAX { 0 } else { u64::from(error_ms) };
        // Each clock is cut to whole milliseconds, at two moments.
        let slack_ms =
            known_ms(agreed.clock_error_ms) + known_ms(now.clock_error_ms) + elapsed_ms / STEP_PART + 2;
        now.wall_ms.abs_diff(expected_ms) <= slack_ms
    }

    /// An end is raised.
    pub(crate) fn count(&mut self) {
        self.renewals = self.renewals.saturating_add(1);
    }

    /// They cannot be read. Whether that is news.
    pub(crate) fn unread(&mut self) -> bool {
        !std::mem::replace(&mut self.is_unread, true)
    }

    /// Takes a scan in. Where too few have a say, what they said before stands, for a whole window.
    pub(crate) fn compare(&mut self, scan: &Scan<'_>, voter: &Voter<'_>, window_ms: u32) -> Compared {
        self.is_unread = false;
        let Some(first) = &self.first else {
            self.first = Some(Sighting::new(scan, voter));
            return Compared { fresh: 0, odd: 0, report: Vec::new(), is_known: false };
        };
        let Agreement { fresh, odd, odd_codes, agreeing_codes, verdict } = agreement(first, scan, voter);
        let is_known = verdict != Verdict::Unknown;
        let is_old = scan.sent_boot_ms.saturating_sub(first.sent_boot_ms) >= u64::from(window_ms);
        if is_known || is_old {
            self.first = Some(Sighting::new(scan, voter));
            self.verdict = verdict;
        }
        if self.verdict == Verdict::Disagrees && mutation::active(Mutation::AgreementIgnored) {
            self.verdict = Verdict::Agrees;
        }
        if verdict == Verdict::Agrees {
            self.agreed = Some(scan.now);
            self.renewals = 0;
        }
        for code in agreeing_codes {
            self.odd.remove(&code);
        }
        // The majority is not odd: I am.
        let report = if self.verdict == Verdict::Disagrees { Vec::new() } else { odd_codes };
        let report = report.into_iter().filter(|code| self.odd.insert(*code)).collect();
        Compared { fresh, odd, report, is_known }
    }

    /// For how long the first scan of a comparison was made, in milliseconds of the boot-time clock.
    pub(crate) fn waited_ms(&self, now: &Now) -> u64 {
        self.first.as_ref().map_or(0, |first| now.boot_ms.saturating_sub(first.sent_boot_ms))
    }

    /// For a model checker, whose wall clocks show anything and so never keep step.
    #[cfg(feature = "explore")]
    pub(crate) fn forget_what_is_reported(&mut self) {
        self.agreed = None;
        self.renewals = 0;
        self.odd.clear();
        self.is_unread = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: u64 = 1_750_000_000_000;
    const HOURS_8_MS: u64 = 8 * 3_600_000;

    fn owner(name: &str) -> Owner {
        Owner::new(name).unwrap()
    }

    fn record(name: &str, stamp_ms: u64) -> CodeRecord {
        CodeRecord {
            state: State::Active,
            term: 1,
            owner: Some(owner(name)),
            stamp_ms,
            clock_error_ms: 10,
            ttl_ms: 400,
            ..CodeRecord::UNUSED
        }
    }

    fn stored(records: &[CodeRecord], revision: u64) -> Vec<(u32, Stored<CodeRecord>)> {
        let stored =
            |record: &CodeRecord| Stored { record: record.clone(), revision: Revision::new(revision) };
        (0..).zip(records.iter().map(stored)).collect()
    }

    /// My wall clock reads T + 2000 when the second scan is there, a second after the first was sent.
    fn compared(before: &[CodeRecord], after: &[(u32, Stored<CodeRecord>)]) -> Agreement {
        let me = owner("me/7");
        let voter = Voter { owner: &me, clock_error_ms_max: 1_000 };
        let now = Now { boot_ms: 50_000, wall_ms: T + 2_000, clock_error_ms: 10 };
        let first = Scan { sent_boot_ms: 49_000, now, codes: &stored(before, 1) };
        let first = Sighting::new(&first, &voter);
        agreement(&first, &Scan { sent_boot_ms: 49_990, now, codes: after }, &voter)
    }

    #[test]
    fn a_majority_of_three_fresh_peers_outvotes_a_clock() {
        // Shows the verdict for peers at various distances from my clock; both error bounds are 10 ms, and a request
        // takes 100 ms at most. F15: a clock 8 h fast or slow is refused.
        let none: &[u32] = &[];
        for (stamps, odd, verdict) in [
            (&[T + 1_500, T + 1_500][..], none, Verdict::Unknown),
            (&[T + 1_500, T + 880, T + 2_020], none, Verdict::Agrees),
            (&[T + 1_500, T + 879, T + 2_000], &[1], Verdict::Agrees),
            (&[T + 1_500, T + 879, T + 2_021], &[1, 2], Verdict::Disagrees),
            (&[T + 1_500 - HOURS_8_MS; 3], &[0, 1, 2], Verdict::Disagrees),
            (&[T + 1_500 + HOURS_8_MS; 3], &[0, 1, 2], Verdict::Disagrees),
            (&[T + 1_500, T + 1_500, 0, 0], &[2, 3], Verdict::Agrees),
            (&[0, 0], &[0, 1], Verdict::Unknown),
        ] {
            let names = ["a", "b", "c", "d"];
            let records: Vec<_> = names.iter().zip(stamps).map(|(name, at)| record(name, *at)).collect();
            let agreement = compared(&records, &stored(&records, 2));
            assert_eq!((&agreement.odd_codes[..], agreement.verdict), (odd, verdict), "{stamps:?}");
            assert_eq!((agreement.fresh, agreement.odd), (stamps.len(), odd.len()));
        }
    }

    #[test]
    fn only_fresh_peers_with_a_clock_of_their_own_have_a_say() {
        // Shows who says nothing, however odd: a record that did not change, one of my own host, one whose writer's
        // clock has an unknown error or one above the limit, one that its holder did not write last; and that codes of
        // one host are one voice.
        let odd = record("a", 0);
        let with = |change: &dyn Fn(&mut CodeRecord)| {
            let mut record = odd.clone();
            change(&mut record);
            record
        };
        for (what, silent) in [
            ("my own host", record("me/8", 0)),
            ("unknown", with(&|it| it.clock_error_ms = u32::MAX)),
            ("above the limit", with(&|it| it.clock_error_ms = 1_001)),
            ("free", with(&|it| it.state = State::Free)),
            ("expired", with(&|it| it.state = State::Expired)),
            ("fenced", with(&|it| it.state = State::Fenced)),
        ] {
            let records = [odd.clone(), silent];
            let agreement = compared(&records, &stored(&records, 2));
            assert_eq!((agreement.fresh, &agreement.odd_codes[..]), (1, &[0][..]), "{what}");
        }
        let records = [record("b", 0), odd.clone()];
        let mut after = stored(&records, 2);
        after[0].1.revision = Revision::new(1);
        assert_eq!(compared(&records, &after).odd_codes, [1]);

        // Taken between the scans: its holder wrote it.
        let before = [CodeRecord { state: State::Free, ..odd.clone() }];
        assert_eq!(compared(&before, &stored(&[odd], 2)).fresh, 1);
        let eight = ["big/1", "big/2", "big/3", "big/4", "b", "c"];
        let odd_host: Vec<_> =
            (0..).zip(eight).map(|(at, name)| record(name, if at < 4 { 0 } else { T + 1_500 })).collect();
        let agreement = compared(&odd_host, &stored(&odd_host, 2));
        assert_eq!((agreement.fresh, agreement.odd, agreement.verdict), (3, 1, Verdict::Agrees));
        assert_eq!(
            (&agreement.odd_codes[..], &agreement.agreeing_codes[..]),
            (&[0, 1, 2, 3][..], &[4, 5][..])
        );
    }

    #[test]
    fn an_agreement_covers_three_renewals_of_a_clock_that_keeps_step() {
        // Shows when a clock is compared again: after three renewals, and at once after it was set.
        let me = owner("me");
        let voter = Voter { owner: &me, clock_error_ms_max: 10 };
        let at = |boot_ms: u64| Now { boot_ms, wall_ms: T + boot_ms, clock_error_ms: 1 };
        let mut peers = Peers::new();
        let look = |peers: &mut Peers, boot_ms, revision| {
            let records = ["a", "b", "c"].map(|name| record(name, T + boot_ms - 1));
            let codes = stored(&records, revision);
            peers.compare(&Scan { sent_boot_ms: boot_ms, now: at(boot_ms), codes: &codes }, &voter, 1_000)
        };
        assert!(!look(&mut peers, 5_000, 1).is_known);
        assert!(!peers.covers(&at(5_000)));
        assert!(look(&mut peers, 5_333, 2).is_known);
        for _ in 0..3 {
            assert!(peers.covers(&at(6_000)) && peers.covers(&Now { wall_ms: T + 6_003, ..at(6_000) }));
            for stepped_ms in [T + 5_990, T + 6_010, T + 6_000 + HOURS_8_MS, 0] {
                assert!(!peers.covers(&Now { wall_ms: stepped_ms, ..at(6_000) }), "{stepped_ms}");
            }
            peers.count();
        }
        assert!(!peers.covers(&at(6_000)));
        // Too few are fresh: what was said stands for a window, and then no more.
        assert!(!look(&mut peers, 6_000, 2).is_known);
        assert_eq!(peers.verdict, Verdict::Agrees);
        assert!(!look(&mut peers, 6_333, 2).is_known);
        assert_eq!(peers.verdict, Verdict::Unknown);
    }
}
