//! The generator: one cursor, and every rule as a bound on the tick of what comes next.

use core::fmt;
use core::num::NonZeroU32;

use crate::layout::{SPREAD_BITS, low_mask};
use crate::mutation::{self, Mutation};
use crate::{ConfigError, Id, Layout, Node, Policy, Refusal, Run};

/// The cursor of a generator that was stopped. Live cursors lie in tick 1 or later, so they are never 0.
const CLOSED: u64 = 0;

/// The cursor of a generator that has issued the last cursor that 64 bits can hold, which only a layout whose
/// timestamp and sequence fill all 64 can reach. It lies in tick 0, so no live cursor equals it.
const ENDED: u64 = 1;

/// The right to mint for one node from a floor on, handed out once.
///
/// Deliberately not `Clone`: a generator takes it by value, so one grant makes one generator.
#[derive(Debug, PartialEq, Eq)]
pub struct Grant {
    node: Node,
    ticket: u64,
    floor_ms: u64,
}

impl Grant {
    /// A grant for `node`. `ticket` names it at the lease port and is never reused; `floor_ms` is the last Unix
    /// millisecond that somebody else may have stamped with this node (0: nobody has).
    ///
    /// Whoever calls this twice for one grant of a lease makes duplicates: it is for the side that grants.
    pub const fn new(node: Node, ticket: u64, floor_ms: u64) -> Self {
        Self { node, ticket, floor_ms }
    }

    /// The same grant, beginning above a recovered high-water mark too (`None`: nothing was ever reserved).
    #[must_use]
    pub fn above(self, mark_ms: Option<u64>) -> Self {
        if mutation::active(Mutation::RestartWithoutMark) {
            return self;
        }
        Self { floor_ms: self.floor_ms.max(mark_ms.unwrap_or(0)), ..self }
    }

    /// The node to mint for.
    pub const fn node(&self) -> Node {
        self.node
    }

    /// What the lease port calls the grant.
    pub const fn ticket(&self) -> u64 {
        self.ticket
    }

    /// The last Unix millisecond that somebody else may have stamped.
    pub const fn floor_ms(&self) -> u64 {
        self.floor_ms
    }
}

/// What bounds a mint besides the clock's reading, as the ports told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The last Unix millisecond that the grant may stamp. 0: ownership cannot be proven.
    pub ceiling_ms: u64,
    /// The last Unix millisecond that is durable as "may have been issued".
    pub mark_ms: u64,
    /// The clock's error bound in milliseconds; `u32::MAX` when it is unknown.
    pub clock_error_ms: u32,
}

impl Bounds {
    /// No bound but the clock: for tests and simulations of one generator without a lease.
    pub const OPEN: Self = Self { ceiling_ms: u64::MAX, mark_ms: u64::MAX, clock_error_ms: 0 };
}

/// A part of the cursor line that was issued: cursors from `start` on, `count` of them, all of one tick.
#[derive(Clone, Copy)]
struct Issue {
    start: u64,
    count: u32,
    /// The cursor that is next.
    next: u64,
}

/// Everything about a generator that never changes. Both forms of generator decide by it.
#[derive(Debug)]
struct Rules {
    layout: Layout,
    grant: Grant,
    node_bits: u64,
    floor_tick: u64,
    lead_ticks: u64,
    observe_ahead_ticks: u64,
    policy: Policy,
}

impl Rules {
    fn new(layout: Layout, grant: Grant, policy: Policy) -> Result<Self, ConfigError> {
        layout.check_mints()?;
        // The grant may have been made for another layout.
        layout.node(grant.node.region, grant.node.worker)?;
        policy.check(&layout)?;
        Ok(Self {
            layout,
            node_bits: layout.node_bits(grant.node),
            floor_tick: layout.tick_of_ms(grant.floor_ms),
            grant,
            lead_ticks: u64::from(policy.lead_ms) / layout.tick_ms(),
            observe_ahead_ticks: u64::from(policy.observe_ahead_ms_max) / layout.tick_ms(),
            policy,
        })
    }

    const fn sequence_bits(&self) -> u32 {
        self.layout.sequence.bits as u32
    }

    const fn tick_of_cursor(&self, cursor: u64) -> u64 {
        cursor >> self.sequence_bits()
    }

    /// The first cursor of a tick; [`ENDED`] past the last tick, also where the shift would overflow.
    const fn first_cursor_of_tick(&self, tick: u64) -> u64 {
        if tick > self.layout.last_tick() { ENDED } else { tick << self.sequence_bits() }
    }

    /// The first cursor above the floor. Tick 0 is never minted: the floor's tick is at least 0.
    fn first_cursor(&self) -> u64 {
        if mutation::active(Mutation::NoFloor) {
            return self.first_cursor_of_tick(1);
        }
        if mutation::active(Mutation::FloorInclusive) {
            return self.first_cursor_of_tick(self.floor_tick.max(1));
        }
        self.first_cursor_of_tick(self.floor_tick.saturating_add(1))
    }

    const fn id_of_cursor(&self, cursor: u64) -> Id {
        let sequence = cursor & low_mask(self.sequence_bits());
        let tick = self.tick_of_cursor(cursor);
        Id::new(self.layout.timestamp.put(tick) | self.layout.sequence.put(sequence) | self.node_bits)
    }

    fn run_of(&self, issue: Issue) -> Run {
        Run::of_tick(self.id_of_cursor(issue.start), 1 << self.layout.sequence.shift, issue.count)
    }

    /// The last tick that a ceiling or a mark allows.
    fn tick_of_bound(&self, bound_ms: u64) -> u64 {
        let tick = self.layout.tick_of_ms(bound_ms);
        if mutation::active(Mutation::TicksRoundedUp) && self.layout.first_ms_of_tick(tick) < bound_ms {
            return tick + 1;
        }
        tick
    }

    const fn ended(&self) -> Refusal {
        Refusal::LayoutEnded { last_ms: self.layout.last_ms() }
    }

    /// A cursor that can be counted on from, or why there is none.
    const fn live(&self, next: u64) -> Result<u64, Refusal> {
        match next {
            CLOSED => Err(Refusal::Stopped),
            ENDED => Err(self.ended()),
            next => Ok(next),
        }
    }

    /// Where minting goes on from a live cursor at tick `now`, which is not past the last: never repeat, never lag
    /// the clock.
    const fn start(&self, next: u64, now: u64) -> u64 {
        let fresh = self.first_cursor_of_tick(now);
        if next >= fresh {
            next
        } else if self.policy.spread {
            fresh | (next & low_mask(SPREAD_BITS))
        } else {
            fresh
        }
    }

    /// Takes up to `want` cursors from `start` on, within its tick.
    #[allow(clippy::cast_possible_truncation)] // At most 2^31: a sequence has 31 bits or fewer.
    fn issue(&self, start: u64, want: NonZeroU32) -> Issue {
        let left = low_mask(self.sequence_bits()) - (start & low_mask(self.sequence_bits())) + 1;
        let count = if u64::from(want.get()) < left { want.get() } else { left as u32 };
        let next = match start.checked_add(u64::from(count)) {
            Some(next) => next,
            None => ENDED,
        };
        if mutation::active(Mutation::WrapOnExhaustion) && u64::from(count) == left {
            return Issue { start, count, next: start & !low_mask(self.sequence_bits()) };
        }
        Issue { start, count, next }
    }

    /// The one comparison: what is issued next from `next` at `now_ms`, or the first bound that forbids it.
    fn decide(&self, next: u64, now_ms: u64, bounds: &Bounds, want: NonZeroU32) -> Result<Issue, Refusal> {
        let layout = &self.layout;
        let next = self.live(next)?;
        let now = layout.tick_of_ms(now_ms);
        // Ticks are compared before anything is shifted: the last tick of 48 + 16 bits would overflow.
        if now > layout.last_tick() {
            return Err(self.ended());
        }
        let start = self.start(next, now);
        let tick = self.tick_of_cursor(start);
        if tick > layout.last_tick() {
            return Err(self.ended());
        }
        if bounds.ceiling_ms == 0 {
            return Err(Refusal::LeaseLost);
        }
        let reach = now.saturating_add(self.lead_ticks);
        if now == 0 || (tick > reach && now <= self.floor_tick) {
            return Err(Refusal::BelowFloor {
                floor_ms: self.grant.floor_ms.max(layout.epoch_unix_ms()),
                wait_ms: self.wait_until_reached_ms(tick, now_ms),
            });
        }
        if tick > self.tick_of_bound(bounds.ceiling_ms) {
            return Err(Refusal::Ceiling { ceiling_ms: bounds.ceiling_ms });
        }
        if tick > self.tick_of_bound(bounds.mark_ms) {
            return Err(Refusal::Mark { mark_ms: bounds.mark_ms });
        }
        if bounds.clock_error_ms > self.policy.clock_error_ms_max {
            return Err(Refusal::ClockUncertain {
                error_bound_ms: bounds.clock_error_ms,
                error_ms_max: self.policy.clock_error_ms_max,
            });
        }
        if tick > reach {
            let last_tick = self.tick_of_cursor(next - 1);
            let wait_ms = self.wait_until_reached_ms(tick, now_ms);
            return Err(if last_tick > reach {
                let by_ms = self.wait_until_reached_ms(last_tick, now_ms);
                Refusal::ClockRolledBack { by_ms, wait_ms }
            } else {
                Refusal::Exhausted { wait_ms }
            });
        }
        Ok(self.issue(start, want))
    }

    /// Milliseconds from `now_ms` until the clock, with the lead, reaches `tick` and is past the epoch.
    fn wait_until_reached_ms(&self, tick: u64, now_ms: u64) -> u64 {
        let tick = tick.saturating_sub(self.lead_ticks).max(1);
        self.layout.first_ms_of_tick(tick).saturating_sub(now_ms)
    }

    /// The lowest cursor from which every ID is greater than `id`: the first of its own cursor, the one after, and
    /// the start of its next tick. [`ENDED`] if the layout ends before.
    fn cursor_above(&self, id: Id) -> u64 {
        let parts = self.layout.decode(id);
        if parts.tick == 0 {
            // Never minted: its cursors are no live ones, and 0 and 1 mean something else.
            return self.first_cursor_of_tick(1);
        }
        let cursor = (parts.tick << self.sequence_bits()) | parts.sequence;
        [Some(cursor), cursor.checked_add(1)]
            .into_iter()
            .flatten()
            .find(|&cursor| self.tick_of_cursor(cursor) == parts.tick && self.id_of_cursor(cursor) > id)
            .unwrap_or_else(|| self.first_cursor_of_tick(parts.tick + 1))
    }

    /// The cursor after observing `id`, or why it is not to be observed. Checks everything before it answers.
    fn decide_observe(&self, next: u64, id: Id, now_ms: u64, ceiling_ms: u64) -> Result<u64, ObserveError> {
        if next == CLOSED && !mutation::active(Mutation::StopUndone) {
            return Err(ObserveError::Stopped);
        }
        let layout = &self.layout;
        if !layout.is_time_ordered() {
            return Err(ObserveError::LayoutUnordered);
        }
        let parts = layout.decode(id);
        if parts.reserved {
            return Err(ObserveError::NotOfLayout);
        }
        let cursor = (parts.tick << self.sequence_bits()) | parts.sequence;
        let own = parts.region == u64::from(self.grant.node.region)
            && parts.worker == u64::from(self.grant.node.worker);
        if own && next != ENDED && cursor >= next {
            return Err(ObserveError::NotIssued);
        }
        if ceiling_ms == 0 || parts.tick > layout.tick_of_ms(ceiling_ms) {
            return Err(ObserveError::AboveCeiling { ceiling_ms });
        }
        if parts.tick > layout.tick_of_ms(now_ms).saturating_add(self.observe_ahead_ticks) {
            let tick = parts.tick.saturating_sub(self.observe_ahead_ticks);
            return Err(ObserveError::TooFarAhead {
                wait_ms: layout.first_ms_of_tick(tick).saturating_sub(now_ms),
            });
        }
        let above = self.cursor_above(id);
        Ok(if above == ENDED || next == ENDED { ENDED } else { above.max(next) })
    }

    /// The last Unix millisecond that may have been stamped by a generator whose cursor is `next`.
    fn last_reserved_ms(&self, next: u64) -> u64 {
        let tick =
            if next == ENDED { self.layout.last_tick() } else { self.tick_of_cursor(next.saturating_sub(1)) };
        if tick <= self.floor_tick && mutation::active(Mutation::ReleaseBelowFloor) {
            return 0;
        }
        if tick <= self.floor_tick { self.grant.floor_ms } else { self.layout.last_ms_of_tick(tick) }
    }
}

/// Mints IDs for one grant, for one thread at a time. Its whole state is one cursor.
///
/// Not `Clone`, and made from a [`Grant`], which it takes: two generators for one grant cannot be written down.
///
/// | call | reads | for |
/// |---|---|---|
/// | [`Generator::mint`] | clock, error bound, ceiling, mark, all as arguments | every mint |
/// | [`Generator::mint_checked`] | the clock only | more of a tick whose bounds were checked |
///
/// ```
/// use core::num::NonZeroU32;
/// use snowmint_core::{Bounds, Generator, Grant, Layout, Policy, Refusal};
///
/// let layout = Layout::SNOWMINT;
/// let grant = Grant::new(layout.node(1, 17)?, 1, 0);
/// let mut generator = Generator::new(layout, grant, Policy::CLASSIC)?;
///
/// let now_ms = 1_750_000_000_000;
/// let want = NonZeroU32::new(5_000).unwrap();
/// let run = generator.mint(now_ms, &Bounds::OPEN, want)?;
/// assert_eq!(run.count(), 4_096); // All that the millisecond holds.
/// let refusal = generator.mint(now_ms, &Bounds::OPEN, want);
/// assert_eq!(refusal, Err(Refusal::Exhausted { wait_ms: 1 }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Generator {
    rules: Rules,
    next: u64,
    /// The tick of the clock at which every bound was last checked, and the last tick that they allow. 0 and 0:
    /// nothing is checked.
    checked_tick: u64,
    checked_bound: u64,
    suspects: u64,
}

impl Generator {
    /// A generator for `grant`, beginning above its floor.
    pub fn new(layout: Layout, grant: Grant, policy: Policy) -> Result<Self, ConfigError> {
        let rules = Rules::new(layout, grant, policy)?;
        let next = rules.first_cursor();
        Ok(Self { rules, next, checked_tick: 0, checked_bound: 0, suspects: 0 })
    }

    /// Mints a run of up to `want` IDs of one tick at `now_ms` (Unix milliseconds), under `bounds`.
    pub fn mint(&mut self, now_ms: u64, bounds: &Bounds, want: NonZeroU32) -> Result<Run, Refusal> {
        let issue = match self.rules.decide(self.next, now_ms, bounds, want) {
            Ok(issue) => issue,
            Err(refusal) => {
                self.forget_check();
                return Err(refusal);
            }
        };
        let layout = &self.rules.layout;
        self.checked_tick = layout.tick_of_ms(now_ms);
        self.checked_bound = self
            .checked_tick
            .saturating_add(self.rules.lead_ticks)
            .min(self.rules.tick_of_bound(bounds.ceiling_ms))
            .min(self.rules.tick_of_bound(bounds.mark_ms))
            .min(layout.last_tick());
        self.next = issue.next;
        Ok(self.rules.run_of(issue))
    }

    /// Mints within the tick of the last [`Generator::mint`], whose bounds still stand. `None`: the clock has moved
    /// on (or back), or the bounds would be passed; read them and call [`Generator::mint`].
    pub fn mint_checked(&mut self, now_ms: u64, want: NonZeroU32) -> Option<Run> {
        let now = self.rules.layout.tick_of_ms(now_ms);
        if now != self.checked_tick || now == 0 {
            return None;
        }
        let start = self.rules.start(self.rules.live(self.next).ok()?, now);
        if self.rules.tick_of_cursor(start) > self.checked_bound {
            return None;
        }
        let issue = self.rules.issue(start, want);
        self.next = issue.next;
        Some(self.rules.run_of(issue))
    }

    /// Makes every later ID greater than `id`, which somebody else minted: causality across generators.
    ///
    /// Refused, with the state untouched, where the layout cannot promise it or the ID is not to be believed.
    /// Idempotent, and the order of several does not matter.
    pub fn observe(&mut self, id: Id, now_ms: u64, ceiling_ms: u64) -> Result<(), ObserveError> {
        match self.rules.decide_observe(self.next, id, now_ms, ceiling_ms) {
            Ok(next) => {
                self.next = next;
                Ok(())
            }
            Err(error) => {
                if mutation::active(Mutation::ObserveCheckedLate) && self.next != CLOSED {
                    self.next = self.rules.cursor_above(id).max(self.next);
                }
                self.suspects = self.suspects.saturating_add(u64::from(error.is_suspect()));
                Err(error)
            }
        }
    }

    /// Ends the generator. Returns the last Unix millisecond that it may have stamped, which is its floor if it
    /// minted nothing; `None` if it was stopped before. Nothing can be minted afterwards, ever.
    pub fn stop(&mut self) -> Option<u64> {
        self.forget_check();
        if mutation::active(Mutation::StopAsFlag) {
            return self.last_reserved_ms();
        }
        match core::mem::replace(&mut self.next, CLOSED) {
            CLOSED => None,
            next => Some(self.rules.last_reserved_ms(next)),
        }
    }

    /// The last Unix millisecond that may have been stamped so far; `None` once stopped.
    pub fn last_reserved_ms(&self) -> Option<u64> {
        (self.next != CLOSED).then(|| self.rules.last_reserved_ms(self.next))
    }

    /// How many observed IDs were refused because they could not exist: a twin on the same node, or a number that
    /// was rounded on its way. Worth an alarm.
    pub fn suspects(&self) -> u64 {
        self.suspects
    }

    /// The layout minted by.
    pub fn layout(&self) -> &Layout {
        &self.rules.layout
    }

    /// The node minted for.
    pub fn node(&self) -> Node {
        self.rules.grant.node
    }

    /// The grant's ticket.
    pub fn ticket(&self) -> u64 {
        self.rules.grant.ticket
    }

    /// The policy followed.
    pub fn policy(&self) -> &Policy {
        &self.rules.policy
    }

    fn forget_check(&mut self) {
        self.checked_tick = 0;
        self.checked_bound = 0;
    }
}

/// One cursor that threads share. Implemented for `AtomicU64`; a model checker brings its own.
pub trait CursorCell {
    /// A cell that holds `cursor`.
    fn new(cursor: u64) -> Self;

    /// The cursor. MUST see what the same thread last wrote (acquire).
    fn load(&self) -> u64;

    /// Puts `new` in place of `current`, atomically; `Err` with the cursor found if it is another (acquire and
    /// release).
    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64>;

    /// Puts `cursor` in place of whatever is there and returns that, atomically (acquire and release).
    fn swap(&self, cursor: u64) -> u64;
}

#[cfg(target_has_atomic = "64")]
impl CursorCell for core::sync::atomic::AtomicU64 {
    fn new(cursor: u64) -> Self {
        Self::new(cursor)
    }

    fn load(&self) -> u64 {
        self.load(core::sync::atomic::Ordering::Acquire)
    }

    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        use core::sync::atomic::Ordering::{AcqRel, Acquire};
        self.compare_exchange_weak(current, new, AcqRel, Acquire)
    }

    fn swap(&self, cursor: u64) -> u64 {
        self.swap(cursor, core::sync::atomic::Ordering::AcqRel)
    }
}

/// [`Generator`] for many threads at once: the same rules over one shared cursor, without a lock.
///
/// There is no `mint_checked`: a native caller passes the bounds for the price of three loads. Refused observes are
/// for the caller to count.
#[derive(Debug)]
pub struct SharedGenerator<C> {
    rules: Rules,
    next: C,
}

/// A [`SharedGenerator`] over the processor's own 64-bit atomics.
#[cfg(target_has_atomic = "64")]
pub type AtomicGenerator = SharedGenerator<core::sync::atomic::AtomicU64>;

impl<C: CursorCell> SharedGenerator<C> {
    /// A generator for `grant`, beginning above its floor.
    pub fn new(layout: Layout, grant: Grant, policy: Policy) -> Result<Self, ConfigError> {
        let rules = Rules::new(layout, grant, policy)?;
        let next = C::new(rules.first_cursor());
        Ok(Self { rules, next })
    }

    /// See [`Generator::mint`]. Threads that race for a tick share it: each gets IDs of its own.
    pub fn mint(&self, now_ms: u64, bounds: &Bounds, want: NonZeroU32) -> Result<Run, Refusal> {
        let mut next = self.next.load();
        loop {
            let issue = self.rules.decide(next, now_ms, bounds, want)?;
            match self.next.compare_exchange(next, issue.next) {
                Ok(_) => return Ok(self.rules.run_of(issue)),
                Err(found) => next = found,
            }
        }
    }

    /// See [`Generator::observe`]. What is minted after this returns, on any thread that knows of it, is greater.
    pub fn observe(&self, id: Id, now_ms: u64, ceiling_ms: u64) -> Result<(), ObserveError> {
        let mut next = self.next.load();
        loop {
            let observed = self.rules.decide_observe(next, id, now_ms, ceiling_ms)?;
            match self.next.compare_exchange(next, observed) {
                Ok(_) => return Ok(()),
                Err(found) => next = found,
            }
        }
    }

    /// See [`Generator::stop`]. No thread can issue after it: the cursor itself says so, not a flag beside it.
    pub fn stop(&self) -> Option<u64> {
        if mutation::active(Mutation::StopAsFlag) {
            return Some(self.rules.last_reserved_ms(self.next.load()));
        }
        match self.next.swap(CLOSED) {
            CLOSED => None,
            next => Some(self.rules.last_reserved_ms(next)),
        }
    }

    /// The node minted for.
    pub fn node(&self) -> Node {
        self.rules.grant.node
    }

    /// The grant's ticket.
    pub fn ticket(&self) -> u64 {
        self.rules.grant.ticket
    }
}

/// Why an ID was not observed. The generator is as it was: what a client sends never stops it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObserveError {
    /// The generator was stopped.
    Stopped,
    /// IDs of this layout are not in order of time: something that differs stands above the timestamp.
    LayoutUnordered,
    /// A reserved bit is set: the ID is not of this layout.
    NotOfLayout,
    /// The ID bears this generator's own node and was not issued: a twin, or a number rounded on its way.
    NotIssued,
    /// The ID lies above the lease's ceiling, where this generator may not follow.
    AboveCeiling {
        /// The last Unix millisecond that may be stamped; 0 if the lease is lost.
        ceiling_ms: u64,
    },
    /// The ID is further ahead of the clock than the policy lets an observed ID be.
    TooFarAhead {
        /// Milliseconds until it can be observed.
        wait_ms: u64,
    },
}

impl ObserveError {
    /// Whether such an ID should not exist, so that somebody ought to look: counted by
    /// [`Generator::suspects`].
    pub const fn is_suspect(self) -> bool {
        match self {
            Self::NotIssued => true,
            // With the lease lost nothing is below the ceiling; that says nothing of the ID.
            Self::AboveCeiling { ceiling_ms } => ceiling_ms > 0,
            _ => false,
        }
    }
}

impl fmt::Display for ObserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Stopped => f.write_str("the generator was stopped; a new grant makes a new one"),
            Self::LayoutUnordered => f.write_str(
                "IDs of this layout are not in order of time; use a layout with nothing but reserved bits above the \
                 timestamp, such as `hybrid`",
            ),
            Self::NotOfLayout => {
                f.write_str("a reserved bit is set: this is no ID of the layout; check where it comes from")
            }
            Self::NotIssued => f.write_str(
                "the ID bears this worker's own code but was never issued: another worker uses the same code, or the \
                 number was rounded (JSON numbers above 2^53 are)",
            ),
            Self::AboveCeiling { ceiling_ms: 0 } => {
                f.write_str("the lease is lost, so that no ID can be observed until it is confirmed again")
            }
            Self::AboveCeiling { ceiling_ms } => write!(
                f,
                "the ID lies above the lease's ceiling {ceiling_ms} (Unix ms); the clock that made it is ahead, or \
                 the number was rounded"
            ),
            Self::TooFarAhead { wait_ms } => write!(
                f,
                "the ID is further ahead of the clock than the policy allows: {wait_ms} ms to wait, or raise the lead \
                 and the observe limit"
            ),
        }
    }
}

impl core::error::Error for ObserveError {}
