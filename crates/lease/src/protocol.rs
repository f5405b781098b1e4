//! The protocol: `(record, operation, now) -> new record, or refusal`. Pure; whoever runs it swaps the result in.
//!
//! | operation | who, when | `term` | `end_ms` | then |
//! |---|---|---|---|---|
//! | [`acquire`] | anybody; free, or expired and past its quarantine, and the clock past its end | + 1 | max(floor, now + window) | active |
//! | [`renew`] | the holder, by term and nonce | | max(end, now + window) | active |
//! | [`release`] | the holder, after its generator was stopped | | the last ms reserved, within floor and end | free |
//! | [`expire`] | a contender that saw the same nonce for a whole TTL | | | expired |
//! | [`expire_alone`] | the one process of an embedded store, before its first grant | | | expired |
//! | [`fence`] | an operator | + 1 | | fenced |
//! | [`free`] | anybody, past the quarantine | | | free |
//!
//! The one rule: **`end_ms` never falls except by a clean release.** A grant starts above it, so grants of one code
//! never share a millisecond, whatever clocks and deadlines do.

use std::fmt;

use snowmint_core::mutation::{self, Mutation};

use crate::{ClusterRecord, CodeRecord, Owner, State, Stored};

/// The quarantine after a fence, where nobody chose another: 24 hours.
pub const FENCE_QUARANTINE_MS_DEFAULT: u64 = 24 * 60 * 60 * 1_000;

/// A reading of both clocks. The caller reads them; nothing here does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Now {
    /// The boot-time clock in milliseconds: it only goes forward, also while the machine sleeps, and starts anywhere.
    pub boot_ms: u64,
    /// The wall clock in Unix milliseconds.
    pub wall_ms: u64,
    /// The wall clock's error bound in milliseconds; `u32::MAX` when it is unknown, or the clock is not to be
    /// believed.
    pub clock_error_ms: u32,
}

/// How long the same nonce must be seen before its owner counts as gone: 1.5 windows.
pub const fn ttl_ms(window_ms: u32) -> u32 {
    window_ms.saturating_add(window_ms / 2)
}

/// Who acquires a code, and how.
#[derive(Clone, Copy, Debug)]
pub struct Bid<'a> {
    /// The name to hold it by.
    pub owner: &'a Owner,
    /// How long minting goes on without the store, in milliseconds.
    pub window_ms: u32,
    /// How far ahead of the clock the generator may stamp, in milliseconds.
    pub lead_ms: u32,
}

impl Bid<'_> {
    /// How far ahead of the clock a confirmed end reaches: a window above what the generator may stamp, which with a
    /// lead lies ahead of the clock itself. Without the lead in it, a burst that borrows ticks would meet the ceiling
    /// before its lead is used.
    pub const fn ahead_ms(&self) -> u64 {
        self.window_ms as u64 + self.lead_ms as u64
    }
}

/// Which grant a holder speaks for: the term, and the nonce of its last swap that is known to be in the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The grant's term.
    pub term: u32,
    /// The nonce.
    pub nonce: u128,
}

/// Why an operation does not apply to a record. Data for the caller to branch on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeaseRefusal {
    /// The code is held, or an operator's fence stands.
    NotFree {
        /// What it is doing.
        state: State,
        /// Who holds it, or held it last.
        owner: Option<Owner>,
    },
    /// The code is quarantined.
    Quarantined {
        /// Until then (Unix milliseconds), and as long as the clocks may be off.
        until_ms: u64,
        /// Milliseconds until the caller's clock is surely past it.
        wait_ms: u64,
    },
    /// The clock is not yet past the last millisecond that may be stamped with the code.
    NotYet {
        /// That millisecond.
        floor_ms: u64,
        /// Milliseconds until the code can mint.
        wait_ms: u64,
    },
    /// The layout has ended, or its cut-over is reached.
    LayoutEnded {
        /// Its last millisecond.
        last_ms: u64,
    },
    /// The code's term cannot be raised: it was granted four billion times.
    TermsEnded,
    /// The generation cannot be raised: the store was recovered 65,534 times.
    GenerationsEnded,
    /// A recovery would forbid every grant: its time lies at or above the layout's end.
    NotBeforeTooLate {
        /// The time that was given, in Unix milliseconds.
        not_before_ms: u64,
        /// The layout's last millisecond.
        last_ms: u64,
    },
    /// The record is not the caller's any more: the grant is over.
    NotHolder {
        /// What the code is doing.
        state: State,
        /// Its term.
        term: u32,
    },
    /// The owner was not silent for long enough.
    NotSilent {
        /// How long it was, in milliseconds of the watcher's boot-time clock.
        silent_ms: u64,
        /// How long it must be.
        ttl_ms: u32,
    },
    /// There is no holder to be expired.
    NotHeld {
        /// What the code is doing.
        state: State,
    },
    /// My clock and that of the service that leases to me differ by more than both may be off, and than its answer
    /// took.
    ClockDisagrees {
        /// My wall clock when the answer was there, in Unix milliseconds.
        own_ms: u64,
        /// The service's while it answered.
        service_ms: u64,
        /// By how much they differ at least, in milliseconds.
        off_ms: u64,
    },
}

impl LeaseRefusal {
    /// Milliseconds of the wall clock after which asking again helps, where that is known.
    pub const fn wait_ms(&self) -> Option<u64> {
        match self {
            Self::Quarantined { wait_ms, .. } | Self::NotYet { wait_ms, .. } => Some(*wait_ms),
            _ => None,
        }
    }
}

impl fmt::Display for LeaseRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFree { state, owner: Some(owner) } => {
                write!(
                    f,
                    "the code is {state}, by {owner}: take another, or fence it if its owner is gone for good"
                )
            }
            Self::NotFree { state, owner: None } => {
                write!(f, "the code is {state}: take another, or free it")
            }
            Self::Quarantined { until_ms, wait_ms } => write!(
                f,
                "the code is quarantined until {until_ms} (Unix ms): {wait_ms} ms to wait, or take another"
            ),
            Self::NotYet { floor_ms, wait_ms } => write!(
                f,
                "IDs of the code may exist up to {floor_ms} (Unix ms): {wait_ms} ms to wait, take another, or set the \
                 clock right"
            ),
            Self::LayoutEnded { last_ms } => write!(
                f,
                "the layout ends at {last_ms} (Unix ms): use the layout that it is cut over to, or set the clock right \
                 if it is in the future"
            ),
            Self::TermsEnded => f.write_str("the code was granted as often as can be counted; take another"),
            Self::GenerationsEnded => f.write_str(
                "the store was recovered as often as can be counted; make a new one for another region",
            ),
            Self::NotBeforeTooLate { not_before_ms, last_ms } => write!(
                f,
                "no grant could ever begin above {not_before_ms}: the layout ends at {last_ms} (Unix ms); give the time \
                 in milliseconds"
            ),
            Self::NotHolder { state, term } => write!(
                f,
                "the code is {state} at term {term}, which is not this grant's: the grant is over; take a new one"
            ),
            Self::NotSilent { silent_ms, ttl_ms } => {
                write!(f, "the owner was silent for {silent_ms} ms of {ttl_ms}: watch on")
            }
            Self::NotHeld { state } => write!(f, "the code is {state}: there is no holder to expire"),
            Self::ClockDisagrees { own_ms, service_ms, off_ms } => write!(
                f,
                "this clock reads {own_ms} (Unix ms), and that of the lease service {service_ms}: one of them is off by \
                 {off_ms} ms or more; see to the synchronisation of both, nothing is minted until they agree"
            ),
        }
    }
}

impl std::error::Error for LeaseRefusal {}

/// Milliseconds until the quarantine is past by more than both clocks' errors; 0 if it is.
pub(crate) fn quarantine_wait_ms(record: &CodeRecord, now: &Now) -> u64 {
    if record.not_again_before_ms == 0 {
        return 0;
    }
    // An unknown bound counts as none: uniqueness does not rest on the quarantine, and a code must not be lost for the
    // 49 days of the largest number.
    let known_ms = |error_ms: u32| if error_ms == u32::MAX { 0 } else { u64::from(error_ms) };
    let errors_ms = known_ms(record.clock_error_ms) + known_ms(now.clock_error_ms);
    let past_ms = record.not_again_before_ms.saturating_add(errors_ms).saturating_add(1);
    past_ms.saturating_sub(now.wall_ms)
}

fn check_quarantine(record: &CodeRecord, now: &Now) -> Result<(), LeaseRefusal> {
    match quarantine_wait_ms(record, now) {
        0 => Ok(()),
        wait_ms => Err(LeaseRefusal::Quarantined { until_ms: record.not_again_before_ms, wait_ms }),
    }
}

/// Where the next grant of a code begins: above all that may have been stamped with it.
pub(crate) fn next_floor_ms(record: &CodeRecord, cluster: &ClusterRecord) -> u64 {
    record.end_ms.max(cluster.not_before_ms)
}

/// How far a swap now reaches; never above the cluster's last millisecond.
fn reach_ms(cluster: &ClusterRecord, ahead_ms: u64, now: &Now) -> u64 {
    now.wall_ms.saturating_add(ahead_ms).min(cluster.last_ms())
}

/// Takes a code. Refused unless a generator could mint with it right now.
pub fn acquire(
    record: &CodeRecord,
    cluster: &ClusterRecord,
    bid: &Bid<'_>,
    now: &Now,
    nonce: u128,
) -> Result<CodeRecord, LeaseRefusal> {
    if !matches!(record.state, State::Free | State::Expired) {
        return Err(LeaseRefusal::NotFree { state: record.state, owner: record.owner.clone() });
    }
    check_quarantine(record, now)?;
    let floor_ms = next_floor_ms(record, cluster);
    let last_ms = cluster.last_ms();
    if floor_ms >= last_ms || now.wall_ms > last_ms {
        return Err(LeaseRefusal::LayoutEnded { last_ms });
    }
    // In ticks, as the generator compares: within a long tick the clock can be past the floor and mint nothing.
    let first_ms = cluster.layout.first_ms_above(floor_ms);
    let led_ms = now.wall_ms.saturating_add(u64::from(bid.lead_ms));
    if first_ms > led_ms {
        return Err(LeaseRefusal::NotYet { floor_ms, wait_ms: first_ms - led_ms });
    }
    let term = record.term.checked_add(1).ok_or(LeaseRefusal::TermsEnded)?;
    Ok(CodeRecord {
        state: State::Active,
        term,
        owner: Some(bid.owner.clone()),
        floor_ms,
        end_ms: floor_ms.max(reach_ms(cluster, bid.ahead_ms(), now)),
        stamp_ms: now.wall_ms,
        clock_error_ms: now.clock_error_ms,
        ttl_ms: ttl_ms(bid.window_ms),
        not_again_before_ms: 0,
        nonce,
    })
}

fn check_holder(record: &CodeRecord, holder: Holder) -> Result<(), LeaseRefusal> {
    if record.state == State::Active && record.term == holder.term && record.nonce == holder.nonce {
        return Ok(());
    }
    Err(LeaseRefusal::NotHolder { state: record.state, term: record.term })
}

/// Goes on holding a code: the swap is the heartbeat. `ahead_ms` is how far ahead of the clock the end is to reach
/// ([`Bid::ahead_ms`]); 0 renews without raising it, for a holder whose clock is not to be believed.
pub fn renew(
    record: &CodeRecord,
    cluster: &ClusterRecord,
    holder: Holder,
    ahead_ms: u64,
    now: &Now,
    nonce: u128,
) -> Result<CodeRecord, LeaseRefusal> {
    if !mutation::active(Mutation::RenewWithoutCompare) {
        check_holder(record, holder)?;
    }
    let reach_ms = if ahead_ms == 0 { 0 } else { reach_ms(cluster, ahead_ms, now) };
    Ok(CodeRecord {
        end_ms: record.end_ms.max(reach_ms),
        stamp_ms: now.wall_ms,
        clock_error_ms: now.clock_error_ms,
        nonce,
        ..record.clone()
    })
}

/// Gives a code back. The caller has stopped its generator, and `last_reserved_ms` is what that returned (the floor,
/// if it minted nothing): the last millisecond that it may have stamped. Kept within what was granted.
pub fn release(
    record: &CodeRecord,
    holder: Holder,
    last_reserved_ms: u64,
    now: &Now,
    nonce: u128,
) -> Result<CodeRecord, LeaseRefusal> {
    check_holder(record, holder)?;
    if mutation::active(Mutation::ReleaseBelowFloor) {
        let end_ms = last_reserved_ms.min(record.end_ms);
        let floor_ms = record.floor_ms.min(end_ms);
        return Ok(CodeRecord { state: State::Free, floor_ms, end_ms, nonce, ..record.clone() });
    }
    Ok(CodeRecord {
        state: State::Free,
        // Not `clamp`, which panics on bounds that a hostile record could turn round.
        end_ms: last_reserved_ms.max(record.floor_ms).min(record.end_ms),
        stamp_ms: now.wall_ms,
        clock_error_ms: now.clock_error_ms,
        nonce,
        ..record.clone()
    })
}

/// What a contender has seen of one code: for how long its holder was silent.
///
/// Time counts between two successful reads in a row that show the same nonce, from the reply of the first to the
/// sending of the second, by the watcher's own boot-time clock. A failed read takes nothing back, but the time around
/// it does not count: perhaps nobody could reach the store then. Nor does more than a third of the TTL between two
/// reads: a watcher that slept has seen nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Watch {
    nonce: Option<u128>,
    silent_ms: u64,
    /// When the last read's reply was there, if the last read succeeded.
    replied_boot_ms: Option<u64>,
}

impl Watch {
    /// Nothing seen yet.
    pub const fn new() -> Self {
        Self { nonce: None, silent_ms: 0, replied_boot_ms: None }
    }

    /// A read showed `record`; it was sent at `sent_boot_ms` and its reply was there at `replied_boot_ms`.
    pub fn saw(&mut self, record: &CodeRecord, sent_boot_ms: u64, replied_boot_ms: u64) {
        if record.state != State::Active {
            *self = Self::new();
        } else if self.nonce == Some(record.nonce) {
            if let Some(last_ms) = self.replied_boot_ms {
                let third_ms = u64::from(record.ttl_ms / 3).max(1);
                let silent_ms = sent_boot_ms.saturating_sub(last_ms).min(third_ms);
                self.silent_ms = self.silent_ms.saturating_add(silent_ms);
            }
            self.replied_boot_ms = Some(replied_boot_ms);
        } else {
            *self = Self { nonce: Some(record.nonce), silent_ms: 0, replied_boot_ms: Some(replied_boot_ms) };
        }
    }

    /// A read failed.
    pub fn missed(&mut self) {
        self.replied_boot_ms = None;
    }

    /// For how long the holder of `record` was seen to be silent, in milliseconds.
    pub fn silent_ms(&self, record: &CodeRecord) -> u64 {
        if self.nonce == Some(record.nonce) { self.silent_ms } else { 0 }
    }
}

fn expired(record: &CodeRecord, quarantine_ms: u64, now: &Now, nonce: u128) -> CodeRecord {
    CodeRecord {
        state: State::Expired,
        stamp_ms: now.wall_ms,
        clock_error_ms: now.clock_error_ms,
        not_again_before_ms: match quarantine_ms {
            0 => 0,
            _ => now.wall_ms.saturating_add(quarantine_ms),
        },
        nonce,
        ..record.clone()
    }
}

/// Counts a code's holder as gone, on the evidence of a [`Watch`]. `quarantine_ms` 0 is none, which is safe, since
/// ranges are disjoint.
pub fn expire(
    record: &CodeRecord,
    watch: &Watch,
    quarantine_ms: u64,
    now: &Now,
    nonce: u128,
) -> Result<CodeRecord, LeaseRefusal> {
    if record.state != State::Active {
        return Err(LeaseRefusal::NotHeld { state: record.state });
    }
    let silent_ms = watch.silent_ms(record);
    if silent_ms < u64::from(record.ttl_ms) {
        return Err(LeaseRefusal::NotSilent { silent_ms, ttl_ms: record.ttl_ms });
    }
    Ok(expired(record, quarantine_ms, now, nonce))
}

/// Counts a code's holder as gone because the caller holds the embedded store's lock, and has granted nothing yet:
/// the process that held the code has ended.
pub fn expire_alone(
    record: &CodeRecord,
    quarantine_ms: u64,
    now: &Now,
    nonce: u128,
) -> Result<CodeRecord, LeaseRefusal> {
    if record.state != State::Active {
        return Err(LeaseRefusal::NotHeld { state: record.state });
    }
    Ok(expired(record, quarantine_ms, now, nonce))
}

/// Takes a code from whoever holds it. What its holder has confirmed already it may still stamp, which harms nobody:
/// the next grant begins above.
pub fn fence(record: &CodeRecord, quarantine_ms: u64, now: &Now, nonce: u128) -> CodeRecord {
    CodeRecord {
        state: State::Fenced,
        // The nonce alone ends the grant; where terms have ended, the code cannot be granted again.
        term: record.term.saturating_add(1),
        stamp_ms: now.wall_ms,
        clock_error_ms: now.clock_error_ms,
        not_again_before_ms: now.wall_ms.saturating_add(quarantine_ms),
        nonce,
        ..record.clone()
    }
}

/// Makes a code that was expired or fenced free again. Its `end_ms` stays for ever.
pub fn free(record: &CodeRecord, now: &Now, nonce: u128) -> Result<CodeRecord, LeaseRefusal> {
    if !matches!(record.state, State::Expired | State::Fenced) {
        return Err(LeaseRefusal::NotFree { state: record.state, owner: record.owner.clone() });
    }
    check_quarantine(record, now)?;
    if mutation::active(Mutation::FreeResetsEnd) {
        return Ok(CodeRecord { state: State::Free, floor_ms: 0, end_ms: 0, nonce, ..record.clone() });
    }
    Ok(CodeRecord {
        state: State::Free,
        stamp_ms: now.wall_ms,
        clock_error_ms: now.clock_error_ms,
        not_again_before_ms: 0,
        nonce,
        ..record.clone()
    })
}

/// A new cluster of a store that remembers nothing of what was in its place: no grant begins within `reach_ms` of now, the
/// longest window of any worker and its lead ([`Bid::ahead_ms`]), which is as far as a grant can reach that was given by a
/// right clock before all records were deleted.
pub fn found(cluster: &ClusterRecord, reach_ms: u32, now: &Now) -> Result<ClusterRecord, LeaseRefusal> {
    let not_before_ms = cluster.not_before_ms.max(now.wall_ms.saturating_add(u64::from(reach_ms)));
    let last_ms = cluster.layout.last_ms();
    if not_before_ms >= last_ms {
        return Err(LeaseRefusal::LayoutEnded { last_ms });
    }
    Ok(ClusterRecord { not_before_ms, ..cluster.clone() })
}

/// Raises the generation: every grant of before is over, and none begins at or below `not_before_ms`, nor within
/// `window_ms` of now: give the longest window of any worker and its lead, which is as far as a grant that the store has
/// forgotten can reach.
pub fn recover(
    cluster: &ClusterRecord,
    not_before_ms: u64,
    window_ms: u32,
    now: &Now,
) -> Result<ClusterRecord, LeaseRefusal> {
    let generation = cluster.generation.checked_add(1).ok_or(LeaseRefusal::GenerationsEnded)?;
    let window_end_ms = now.wall_ms.saturating_add(u64::from(window_ms));
    let not_before_ms = cluster.not_before_ms.max(not_before_ms).max(window_end_ms);
    // The layout's own end: a planned cut-over may well lie below what was stamped. It could never be taken back: it only
    // rises.
    let last_ms = cluster.layout.last_ms();
    if not_before_ms >= last_ms {
        return Err(LeaseRefusal::NotBeforeTooLate { not_before_ms, last_ms });
    }
    Ok(ClusterRecord { generation, not_before_ms, ..cluster.clone() })
}

/// What a contender can do with the codes that it sees.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Choice {
    /// Acquire this code.
    Acquire {
        /// The code.
        code: u32,
    },
    /// Free this code, which is past its quarantine.
    Free {
        /// The code.
        code: u32,
    },
    /// Expire this code, whose holder was silent for a whole TTL, and take it.
    Expire {
        /// The code.
        code: u32,
    },
    /// Nothing now.
    Wait(NoneLeft),
}

/// That no code can be had, and when one can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NoneLeft {
    /// How many codes there are.
    pub codes: u32,
    /// How many of them are held.
    pub active: u32,
    /// Milliseconds until the next code that nobody holds can be used; `None` where all are held, or have ended.
    pub wait_ms: Option<u64>,
    /// The layout's last millisecond, where that is what forbids a grant.
    pub ended_last_ms: Option<u64>,
}

impl fmt::Display for NoneLeft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { codes, active, wait_ms, ended_last_ms } = self;
        if let Some(last_ms) = *ended_last_ms {
            return LeaseRefusal::LayoutEnded { last_ms }.fmt(f);
        }
        write!(f, "none of the region's {codes} codes can be used now ({active} are held)")?;
        match wait_ms {
            Some(wait_ms) => write!(f, ": the next one can in {}", Length(*wait_ms)),
            None => f.write_str(": stop a worker, or cut over to a layout with more"),
        }
    }
}

impl std::error::Error for NoneLeft {}

/// Milliseconds as people say them: to the millisecond below 10 s, else in the two largest units, rounded up.
struct Length(u64);

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.div_ceil(1_000);
        let minutes = seconds.div_ceil(60);
        let hours = minutes.div_ceil(60);
        if self.0 < 10_000 {
            write!(f, "{} ms", self.0)
        } else if seconds < 60 {
            write!(f, "{seconds} s")
        } else if seconds < 3_600 {
            write!(f, "{} min {} s", seconds / 60, seconds % 60)
        } else if minutes < 24 * 60 {
            write!(f, "{} h {} min", minutes / 60, minutes % 60)
        } else {
            write!(f, "{} d {} h", hours / 24, hours % 24)
        }
    }
}

/// Chooses a code: among those that can mint now the highest `end_ms`, so that one bad clock spoils one code, not all.
///
/// `tries` is how often the caller has lost a race since it last had a code: with each, twice as many of the best are
/// drawn from by `nonce`, so that a fleet that starts at once spreads. Equals are drawn from always. `watched` says
/// for how long a code's holder was silent.
pub fn choose(
    codes: &[(u32, Stored<CodeRecord>)],
    cluster: &ClusterRecord,
    bid: &Bid<'_>,
    now: &Now,
    watched: impl Fn(u32, &CodeRecord) -> u64,
    tries: u32,
    nonce: u128,
) -> Choice {
    let mut usable: Vec<(u64, u32)> = Vec::new();
    let mut freeable = None;
    let mut silent = None;
    let mut active = 0;
    let mut wait_ms: Option<u64> = None;
    let mut ended_last_ms = None;
    // A cut-over may have left codes behind that this layout has no room for.
    let fitting = || codes.iter().filter(|(code, _)| *code < cluster.codes());
    for (code, Stored { record, .. }) in fitting() {
        match acquire(record, cluster, bid, now, nonce) {
            Ok(_) => usable.push((next_floor_ms(record, cluster), *code)),
            Err(LeaseRefusal::NotFree { state: State::Active, .. }) => {
                active += 1;
                if silent.is_none() && watched(*code, record) >= u64::from(record.ttl_ms) {
                    silent = Some(*code);
                }
            }
            Err(LeaseRefusal::NotFree { .. }) => match free(record, now, nonce) {
                Ok(freed) => match acquire(&freed, cluster, bid, now, nonce) {
                    Ok(_) => freeable = freeable.or(Some(*code)),
                    Err(refusal) => wait_ms = least(wait_ms, refusal.wait_ms()),
                },
                Err(refusal) => wait_ms = least(wait_ms, refusal.wait_ms()),
            },
            Err(LeaseRefusal::LayoutEnded { last_ms }) => ended_last_ms = Some(last_ms),
            Err(refusal) => wait_ms = least(wait_ms, refusal.wait_ms()),
        }
    }
    usable.sort_unstable_by_key(|&(floor_ms, code)| (std::cmp::Reverse(floor_ms), code));
    if let Some(&(best_ms, _)) = usable.first() {
        let equals = usable.iter().take_while(|&&(floor_ms, _)| floor_ms == best_ms).count();
        let drawn = equals.max(1 << tries.min(16)).min(usable.len());
        let at = nonce % (drawn as u128);
        if let Some(&(_, code)) = usize::try_from(at).ok().and_then(|at| usable.get(at)) {
            return Choice::Acquire { code };
        }
    }
    match (freeable, silent) {
        (Some(code), _) => Choice::Free { code },
        (None, Some(code)) => Choice::Expire { code },
        (None, None) => {
            let codes = u32::try_from(fitting().count()).unwrap_or(u32::MAX);
            Choice::Wait(NoneLeft { codes, active, wait_ms, ended_last_ms })
        }
    }
}

fn least(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
