//! Who issued what, as only the world can know it, and the invariants over it.

use std::collections::BTreeMap;
use std::fmt;

use snowmint_core::{Layout, Refusal, Role, Run};
use snowmint_lease::{CodeRecord, State};

use crate::Spans;

/// What must never happen. Each is checked at the moment at which it would.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// No ID is issued twice.
    Unique,
    /// A grant begins at or above the end of every grant of its code before.
    DisjointGrants,
    /// An end never falls, but by a clean release to what was reserved.
    EndNeverFalls,
    /// Every ID lies above the floor of its own grant.
    AboveFloor,
    /// Every ID, and every ceiling that is told, lies at or below an end that the store has confirmed for its grant.
    ConfirmedEnd,
    /// One grant, one generator.
    OneGenerator,
    /// Nothing is minted while the clock's error is above the limit.
    ClockBound,
    /// A definite error of the store ends a grant at once.
    StoreErrorEnds,
    /// A newer generation ends a grant as soon as its holder reads of it.
    GenerationEnds,
    /// A ceiling is 0 once a window has passed since the last confirmed swap.
    Window,
    /// Nothing is minted by a generator that was stopped.
    Stopped,
    /// A generator's IDs ascend.
    Ascending,
    /// After `observe(x)` every ID is greater than x; a refused one changes nothing.
    Observed,
    /// No ID is further ahead of the clock than the lead.
    Lead,
    /// After a cut-over no ID of the old layout lies above its planned end, nor any of the new one below.
    CutOver,
    /// A clock that is hours ahead raises no end once three or more peers, whose clocks are right, have renewed between its
    /// keeper's scans.
    Agreement,
    /// Where nothing is wrong, IDs are had.
    Available,
}

impl Rule {
    /// The rule's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unique => "unique",
            Self::DisjointGrants => "disjoint grants",
            Self::EndNeverFalls => "end never falls",
            Self::AboveFloor => "above the floor",
            Self::ConfirmedEnd => "confirmed end",
            Self::OneGenerator => "one grant, one generator",
            Self::ClockBound => "clock bound",
            Self::StoreErrorEnds => "store error ends",
            Self::GenerationEnds => "generation ends",
            Self::Window => "window",
            Self::Stopped => "stopped",
            Self::Ascending => "ascending",
            Self::Observed => "observed",
            Self::Lead => "lead",
            Self::CutOver => "cut-over",
            Self::Agreement => "agreement",
            Self::Available => "available",
        }
    }
}

/// A rule was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// When, in microseconds of true time.
    pub at_us: u64,
    /// How.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} us: {}", self.rule.name(), self.at_us, self.text)
    }
}

/// What came of a run, or of several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Runs of the world that this sums up.
    pub worlds: u64,
    /// Simulated time, in milliseconds.
    pub simulated_ms: u64,
    /// Events that were carried out.
    pub events: u64,
    /// Faults that befell somebody.
    pub faults: u64,
    /// IDs that were issued.
    pub ids: u64,
    /// Those of them that somebody else had issued.
    pub duplicates: u64,
    /// IDs of cloned processes inside a window that was confirmed before the clone: not promised, not compared.
    pub excused: u64,
    /// Grants.
    pub grants: u64,
    /// Observes that were accepted.
    pub observed: u64,
    /// Refusals by reason.
    pub refusals: BTreeMap<&'static str, u64>,
}

impl Summary {
    /// Adds another summary to this one.
    pub fn add(&mut self, other: &Self) {
        self.worlds += other.worlds;
        self.simulated_ms += other.simulated_ms;
        self.events += other.events;
        self.faults += other.faults;
        self.ids += other.ids;
        self.duplicates += other.duplicates;
        self.excused += other.excused;
        self.grants += other.grants;
        self.observed += other.observed;
        for (reason, count) in &other.refusals {
            *self.refusals.entry(reason).or_default() += count;
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} IDs, {} duplicates, {} grants, {} observed, {} excused; {} worlds, {} ms simulated, {} events, {} \
             faults; refused:",
            self.ids,
            self.duplicates,
            self.grants,
            self.observed,
            self.excused,
            self.worlds,
            self.simulated_ms,
            self.events,
            self.faults
        )?;
        if self.refusals.is_empty() {
            return f.write_str(" none");
        }
        for (at, (reason, count)) in self.refusals.iter().enumerate() {
            write!(f, "{} {reason} {count}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// What is known of a grant.
#[derive(Clone, Debug, Default)]
struct GrantFacts {
    floor_ms: u64,
    confirmed_end_ms: u64,
    confirmed_at_us: u64,
    window_us: u64,
    /// The last millisecond of the last tick that was minted.
    minted_ms: u64,
    is_taken: bool,
    is_cloned: bool,
    /// Why its ceiling must be 0 from now on.
    over: Option<Rule>,
}

/// What is known of a code.
#[derive(Clone, Debug, Default)]
struct CodeFacts {
    spans: Spans,
    /// The last millisecond that any grant so far may stamp.
    reach_ms: u64,
    /// Ranges `(from, to]` of milliseconds in which a cloned process was confirmed: nothing is promised there.
    excused: Vec<(u64, u64)>,
}

/// A generator, by its number in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GeneratorId(usize);

#[derive(Clone, Debug)]
struct GeneratorFacts {
    layout: Layout,
    width: u32,
    lead_ms: u64,
    clock_error_ms_max: u32,
    code_at: usize,
    region: u32,
    ticket: u64,
    floor_ms: u64,
    last_id: Option<u64>,
    observed: Option<u64>,
    /// First cursor after the last run, as (millisecond of its tick, sequence); for a clone to begin at.
    next: Option<(u64, u64)>,
    is_stopped: bool,
    is_fixed: bool,
}

/// One mint, as the world saw it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mint {
    pub(crate) at_us: u64,
    pub(crate) now_ms: u64,
    /// The clock's error that it went by; 0 where it was not asked for again within a tick.
    pub(crate) clock_error_ms: u32,
}

/// The world's own book-keeping.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) summary: Summary,
    pub(crate) violation: Option<Violation>,
    /// The only rule to stop for, if there is one.
    pub(crate) heeded: Option<Rule>,
    grants: BTreeMap<(u32, u64), GrantFacts>,
    code_index: BTreeMap<(usize, u32, u32), usize>,
    codes: Vec<CodeFacts>,
    generators: Vec<GeneratorFacts>,
    layouts: Vec<Layout>,
    /// By region: the planned end of the first layout, once another is opened.
    pub(crate) has_cutover: bool,
    cutovers: BTreeMap<u32, u64>,
    /// By region: the greatest ID of the first layout.
    max_id_before: BTreeMap<u32, u64>,
}

impl Ledger {
    pub(crate) fn violate(&mut self, rule: Rule, at_us: u64, text: impl FnOnce() -> String) {
        if self.violation.is_none() && self.heeded.is_none_or(|heeded| heeded == rule) {
            self.violation = Some(Violation { rule, at_us, text: text() });
        }
    }

    fn layout_at(&mut self, layout: &Layout) -> usize {
        self.layouts.iter().position(|it| it == layout).unwrap_or_else(|| {
            self.layouts.push(*layout);
            self.layouts.len() - 1
        })
    }

    fn code(&mut self, layout: &Layout, region: u32, code: u32) -> usize {
        let key = (self.layout_at(layout), region, code);
        let at = *self.code_index.entry(key).or_insert(self.codes.len());
        if at == self.codes.len() {
            self.codes.push(CodeFacts::default());
        }
        at
    }

    /// The last millisecond that anybody of a region may ever have been granted.
    pub(crate) fn reach_ms(&self, region: u32) -> u64 {
        let of_region = self.code_index.iter().filter(|((_, at, _), _)| *at == region);
        of_region.filter_map(|(_, &at)| self.codes.get(at)).map(|code| code.reach_ms).max().unwrap_or(0)
    }

    /// How many codes of a region may be stamped above this millisecond.
    pub(crate) fn codes_above(&self, region: u32, ms: u64) -> usize {
        let of_region = self.code_index.iter().filter(|((_, at, _), _)| *at == region);
        of_region.filter_map(|(_, &at)| self.codes.get(at)).filter(|code| code.reach_ms > ms).count()
    }

    /// A swap was carried out by a store: `before` was replaced by `after`.
    #[allow(clippy::too_many_arguments)] // Each is one thing that the store knows.
    pub(crate) fn swapped(
        &mut self,
        at_us: u64,
        layout: &Layout,
        (region, code): (u32, u32),
        ticket: u64,
        window_ms: u32,
        before: &CodeRecord,
        after: &CodeRecord,
    ) {
        let at = self.code(layout, region, code);
        let Some(facts) = self.codes.get_mut(at) else { return };
        let reach_ms = facts.reach_ms;
        let is_excused = |ms: u64| facts.excused.iter().any(|&(from, to)| from <= ms && ms <= to);
        let is_grant = after.state == State::Active && after.term > before.term;
        let is_release = after.state == State::Free && before.state == State::Active;
        if is_grant {
            self.summary.grants += 1;
            if after.floor_ms < reach_ms && !is_excused(reach_ms) {
                self.violate(Rule::DisjointGrants, at_us, || {
                    format!(
                        "code {code} of region {region} is granted from {} on, but may be stamped up to {reach_ms}",
                        after.floor_ms
                    )
                });
            }
        }
        let key = (region, ticket);
        if after.state == State::Active {
            let grant = self.grants.entry(key).or_default();
            grant.floor_ms = after.floor_ms;
            grant.confirmed_end_ms = grant.confirmed_end_ms.max(after.end_ms);
            grant.confirmed_at_us = at_us;
            grant.window_us = u64::from(window_ms) * 1_000;
        }
        let grant = self.grants.get(&key).cloned().unwrap_or_default();
        if after.term < before.term {
            self.violate(Rule::EndNeverFalls, at_us, || {
                format!("code {code}: the term fell from {} to {}", before.term, after.term)
            });
        }
        if after.end_ms < before.end_ms {
            let least_ms = grant.minted_ms.max(before.floor_ms);
            let is_clean = is_release && (after.end_ms >= least_ms || grant.is_cloned);
            if !is_clean {
                self.violate(Rule::EndNeverFalls, at_us, || {
                    format!(
                        "code {code}: the end fell from {} to {} ({} to {}); minted up to {}",
                        before.end_ms, after.end_ms, before.state, after.state, grant.minted_ms
                    )
                });
            }
        }
        if let Some(facts) = self.codes.get_mut(at) {
            facts.reach_ms = if is_release { after.end_ms } else { facts.reach_ms.max(after.end_ms) };
        }
    }

    /// The keeper handed a grant out.
    pub(crate) fn taken(&mut self, at_us: u64, region: u32, ticket: u64) {
        let grant = self.grants.entry((region, ticket)).or_default();
        let is_second = grant.is_taken && !grant.is_cloned;
        grant.is_taken = true;
        if is_second {
            self.violate(Rule::OneGenerator, at_us, || format!("ticket {ticket:x} was handed out twice"));
        }
    }

    /// A process that holds, or asks for, a code was cloned with its memory: what it has confirmed, or is about to,
    /// is held twice up to `end_ms`.
    pub(crate) fn cloned(&mut self, layout: &Layout, region: u32, code: u32, ticket: u64, end_ms: u64) {
        let grant = self.grants.entry((region, ticket)).or_default();
        grant.is_cloned = true;
        let from_ms = grant.floor_ms;
        let at = self.code(layout, region, code);
        if let Some(facts) = self.codes.get_mut(at) {
            facts.excused.push((from_ms, end_ms));
        }
    }

    /// A generator was made.
    #[allow(clippy::too_many_arguments)] // Each is one thing that the host knows.
    pub(crate) fn begin(
        &mut self,
        layout: &Layout,
        (region, code): (u32, u32),
        ticket: u64,
        floor_ms: u64,
        policy: &snowmint_core::Policy,
        is_fixed: bool,
    ) -> GeneratorId {
        let code_at = self.code(layout, region, code);
        self.generators.push(GeneratorFacts {
            layout: *layout,
            width: layout.bits(Role::Sequence),
            lead_ms: u64::from(policy.lead_ms),
            clock_error_ms_max: policy.clock_error_ms_max,
            code_at,
            region,
            ticket,
            floor_ms,
            last_id: None,
            observed: None,
            next: None,
            is_stopped: false,
            is_fixed,
        });
        GeneratorId(self.generators.len() - 1)
    }

    /// Where a generator goes on: the millisecond of its next cursor's tick and the sequence in it.
    pub(crate) fn next_of(&self, generator: GeneratorId) -> Option<(u64, u64)> {
        self.generators.get(generator.0)?.next
    }

    /// The greatest ID of a generator so far.
    pub(crate) fn last_id_of(&self, generator: GeneratorId) -> Option<u64> {
        self.generators.get(generator.0)?.last_id
    }

    pub(crate) fn stopped(&mut self, generator: GeneratorId) {
        if let Some(facts) = self.generators.get_mut(generator.0) {
            facts.is_stopped = true;
        }
    }

    pub(crate) fn observed(&mut self, generator: GeneratorId, id: u64) {
        self.summary.observed += 1;
        if let Some(facts) = self.generators.get_mut(generator.0) {
            facts.observed = facts.observed.max(Some(id));
        }
    }

    /// A grant must not have a ceiling from now on.
    pub(crate) fn over(&mut self, region: u32, ticket: u64, rule: Rule) {
        self.grants.entry((region, ticket)).or_default().over.get_or_insert(rule);
    }

    /// A ceiling other than 0 was told for a grant.
    pub(crate) fn ceiling(&mut self, at_us: u64, region: u32, ticket: u64, ceiling_ms: u64) {
        let grant = self.grants.entry((region, ticket)).or_default();
        // One twin's keeper has read what the other's has not.
        let over = grant.over.filter(|_| !grant.is_cloned);
        let end_ms = grant.confirmed_end_ms;
        let until_us = grant.confirmed_at_us + grant.window_us;
        if let Some(rule) = over {
            self.violate(rule, at_us, || {
                format!("ticket {ticket:x} is over, and has a ceiling of {ceiling_ms}")
            });
        } else if ceiling_ms > end_ms {
            self.violate(Rule::ConfirmedEnd, at_us, || {
                format!("ticket {ticket:x} has a ceiling of {ceiling_ms}, but {end_ms} is confirmed")
            });
        } else if at_us >= until_us {
            self.violate(Rule::Window, at_us, || {
                format!("ticket {ticket:x} has a ceiling of {ceiling_ms}, but its window was over at {until_us} us")
            });
        }
    }

    pub(crate) fn refused(&mut self, refusal: &Refusal) {
        *self.summary.refusals.entry(refusal.reason()).or_default() += 1;
    }

    pub(crate) fn refused_for(&mut self, reason: &'static str) {
        *self.summary.refusals.entry(reason).or_default() += 1;
    }

    /// The second layout is open: the first one's IDs end at `last_ms`.
    pub(crate) fn cut_over(&mut self, region: u32, last_ms: u64) {
        self.cutovers.insert(region, last_ms);
    }

    /// A run was issued. Returns the millisecond that it is stamped with.
    #[allow(clippy::too_many_lines)] // One list of rules.
    pub(crate) fn issued(&mut self, generator: GeneratorId, run: &Run, mint: &Mint) -> u64 {
        let Some(facts) = self.generators.get_mut(generator.0) else { return 0 };
        let layout = &facts.layout;
        let first = run.first().get();
        let count = u64::from(run.count());
        let last = first + run.stride() * (count - 1);
        let parts = layout.decode(run.first());
        let tick_ms = layout.tick_ns() / 1_000_000;
        let tick_of = |ms: u64| ms.saturating_sub(layout.epoch_unix_ms()) / tick_ms;
        let stamp_ms = layout.epoch_unix_ms() + parts.tick * tick_ms;
        let width = facts.width;
        let cursor = (parts.tick << width) | parts.sequence;
        let (last_id, observed, is_stopped) = (facts.last_id, facts.observed, facts.is_stopped);
        let (region, ticket, floor_ms, is_fixed) =
            (facts.region, facts.ticket, facts.floor_ms, facts.is_fixed);
        let is_first_layout = self.layouts.first() == Some(layout);
        let (now_tick, floor_tick) = (tick_of(mint.now_ms), tick_of(floor_ms));
        let reach_tick = now_tick + facts.lead_ms / tick_ms;
        let stamp_last_ms = stamp_ms + tick_ms - 1;
        let clock_error_ms_max = facts.clock_error_ms_max;
        let code_at = facts.code_at;
        let end_sequence = parts.sequence + count;
        facts.next =
            Some(if end_sequence >> width == 0 { (stamp_ms, end_sequence) } else { (stamp_ms + tick_ms, 0) });
        facts.last_id = Some(last_id.map_or(last, |id| id.max(last)));
        let grant = self.grants.entry((region, ticket)).or_default();
        grant.minted_ms = grant.minted_ms.max(stamp_last_ms.min(grant.confirmed_end_ms));
        let end_tick = if is_fixed { u64::MAX } else { tick_of(grant.confirmed_end_ms) };
        let grant_end_ms = grant.confirmed_end_ms;

        let at_us = mint.at_us;
        if last_id.is_some_and(|id| first <= id) {
            self.violate(Rule::Ascending, at_us, || {
                format!("ticket {ticket:x}: {first} after {}", last_id.unwrap_or(0))
            });
        }
        if observed.is_some_and(|id| first <= id) {
            self.violate(Rule::Observed, at_us, || {
                format!("ticket {ticket:x}: {first} after {} was observed", observed.unwrap_or(0))
            });
        }
        if is_stopped {
            self.violate(Rule::Stopped, at_us, || format!("ticket {ticket:x}: {first} after a stop"));
        }
        if parts.tick <= floor_tick {
            self.violate(Rule::AboveFloor, at_us, || {
                format!("ticket {ticket:x}: stamped {stamp_ms}, not above the floor {floor_ms}")
            });
        }
        if parts.tick > end_tick {
            self.violate(Rule::ConfirmedEnd, at_us, || {
                format!("ticket {ticket:x}: stamped {stamp_ms}, but {grant_end_ms} is confirmed")
            });
        }
        if parts.tick > reach_tick {
            self.violate(Rule::Lead, at_us, || {
                format!("ticket {ticket:x}: stamped {stamp_ms} at {}", mint.now_ms)
            });
        }
        if mint.clock_error_ms > clock_error_ms_max {
            self.violate(Rule::ClockBound, at_us, || {
                format!("ticket {ticket:x}: the clock's error is {}", mint.clock_error_ms)
            });
        }
        if is_first_layout {
            if self.has_cutover {
                let max_id = self.max_id_before.entry(region).or_default();
                *max_id = last.max(*max_id);
            }
            if self.cutovers.get(&region).is_some_and(|&last_ms| stamp_ms > last_ms) {
                self.violate(Rule::CutOver, at_us, || {
                    format!("an ID of the old layout is stamped {stamp_ms}, above its planned end")
                });
            }
        } else if self.max_id_before.get(&region).is_some_and(|&max_id| first <= max_id) {
            self.violate(Rule::CutOver, at_us, || {
                format!("{first} of the new layout is below one of the old")
            });
        }

        self.summary.ids += count;
        let Some(code) = self.codes.get_mut(code_at) else { return stamp_ms };
        if !code.excused.is_empty()
            && code.excused.iter().any(|&(from, to)| from <= stamp_ms && stamp_ms <= to)
        {
            self.summary.excused += count;
            return stamp_ms;
        }
        let twice = code.spans.insert(cursor, count);
        if twice > 0 {
            self.summary.duplicates += twice;
            self.violate(Rule::Unique, at_us, || {
                format!("{twice} of {count} IDs from {first} on were issued before (stamped {stamp_ms}, ticket {ticket:x})")
            });
        }
        stamp_ms
    }
}
