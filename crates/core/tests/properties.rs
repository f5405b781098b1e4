//! What holds for every history of clocks, bounds, observes, stops, crashes and hand-overs: checked against a naive
//! set of everything that was ever minted.
#![allow(clippy::unwrap_used, clippy::expect_used)] // It is all test.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use snowmint_core::{
    AtomicGenerator, Bounds, Field, Generator, Grant, Id, Layout, NS_PER_MS, ObserveError, Policy, Refusal,
    Role, Run,
};

/// Where the small clocks of these tests begin; an epoch so near that every edge is within reach.
const EPOCH_MS: u64 = 1_000;

/// Something that happens to a node.
#[derive(Clone, Debug)]
enum Event {
    /// The clock reads so many milliseconds past the epoch, or before it.
    Clock(i64),
    /// The lease reaches so far past its floor.
    Ceiling(u64),
    /// The lease is lost.
    Lost,
    /// The mark reaches so far past the epoch.
    Mark(u64),
    /// Ask for so many.
    Mint(u32),
    /// Ask for so many within a checked tick.
    MintChecked(u32),
    /// Observe an ID: ticks from now, which worker, which sequence.
    Observe(i64, u32, u64),
    /// Stop cleanly: the next grant begins above what was reserved.
    HandOver,
    /// Crash: the next grant begins above the highest ceiling that was ever confirmed.
    Crash,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (-30_i64..400).prop_map(Event::Clock),
        2 => (0_u64..300).prop_map(Event::Ceiling),
        1 => Just(Event::Lost),
        2 => (0_u64..500).prop_map(Event::Mark),
        6 => (1_u32..40).prop_map(Event::Mint),
        4 => (1_u32..40).prop_map(Event::MintChecked),
        3 => ((-8_i64..8), 0_u32..4, 0_u64..16).prop_map(|(tick, worker, seq)| Event::Observe(tick, worker, seq)),
        1 => Just(Event::HandOver),
        1 => Just(Event::Crash),
    ];
    prop::collection::vec(event, 1..120)
}

/// Layouts of every order of fields, with a short timestamp so that its end is reached too, and every tick length.
fn layouts() -> impl Strategy<Value = Layout> {
    let order = Just(vec![Role::Timestamp, Role::Sequence, Role::Worker, Role::Region]).prop_shuffle();
    let tick_ms = prop::sample::select(vec![1_u64, 10, 256, 1_000]);
    let timestamp_bits = prop::sample::select(vec![5_u8, 8, 40]);
    let sequence_bits = prop::sample::select(vec![1_u8, 3, 4]);
    (order, tick_ms, timestamp_bits, sequence_bits, any::<bool>()).prop_map(
        |(order, tick_ms, timestamp_bits, sequence_bits, reserved_first)| {
            let mut fields = vec![];
            let reserved = 64 - timestamp_bits - sequence_bits - 2 - 1;
            if reserved_first {
                fields.push(Field::new(Role::Reserved, reserved));
            }
            for role in order {
                fields.push(Field::new(
                    role,
                    match role {
                        Role::Timestamp => timestamp_bits,
                        Role::Sequence => sequence_bits,
                        Role::Worker => 2,
                        _ => 1,
                    },
                ));
            }
            if !reserved_first {
                fields.push(Field::new(Role::Reserved, reserved));
            }
            Layout::new(&fields, EPOCH_MS, tick_ms * NS_PER_MS).unwrap()
        },
    )
}

fn policies() -> impl Strategy<Value = Policy> {
    (prop::sample::select(vec![0_u32, 1, 20, 1_000]), 0_u32..1_000).prop_map(|(lead_ms, ahead)| Policy {
        lead_ms,
        observe_ahead_ms_max: if lead_ms == 0 { 0 } else { ahead % lead_ms },
        ..Policy::CLASSIC
    })
}

/// One node, its successive grants, and all that they minted.
struct History {
    layout: Layout,
    policy: Policy,
    generator: Generator,
    /// Between grants nothing else is kept but this: the last millisecond that any grant so far may have stamped.
    end_ms: u64,
    grants: u64,
    now_ms: u64,
    bounds: Bounds,
    seen: HashSet<Id>,
    /// The last ID of this grant, and the greatest that it observed.
    last: Option<Id>,
    observed: Option<Id>,
}

impl History {
    fn new(layout: Layout, policy: Policy) -> Self {
        let node = layout.node(1, 2).unwrap();
        let generator = Generator::new(layout, Grant::new(node, 0, 0), policy).unwrap();
        let bounds = Bounds { ceiling_ms: EPOCH_MS + 50, mark_ms: u64::MAX, clock_error_ms: 0 };
        Self {
            layout,
            policy,
            generator,
            end_ms: bounds.ceiling_ms,
            grants: 0,
            now_ms: EPOCH_MS + 10,
            bounds,
            seen: HashSet::new(),
            last: None,
            observed: None,
        }
    }

    fn tick(&self, ms: u64) -> u64 {
        ms.saturating_sub(EPOCH_MS) / (self.layout.tick_ns() / NS_PER_MS)
    }

    fn next_grant(&mut self, floor_ms: u64) {
        self.grants += 1;
        let grant = Grant::new(self.layout.node(1, 2).unwrap(), self.grants, floor_ms);
        self.generator = Generator::new(self.layout, grant, self.policy).unwrap();
        self.end_ms = floor_ms;
        self.confirm(floor_ms + 50);
        (self.last, self.observed) = (None, None);
    }

    /// A ceiling that the store has confirmed; it never falls.
    fn confirm(&mut self, ceiling_ms: u64) {
        self.end_ms = self.end_ms.max(ceiling_ms);
        self.bounds.ceiling_ms = self.end_ms;
    }

    fn keep(&mut self, run: Run) {
        let lead = u64::from(self.policy.lead_ms) / (self.layout.tick_ns() / NS_PER_MS);
        assert_eq!(
            run.stride(),
            1 << self.layout.compose(1, self.generator.node(), 1).map_or(0, |id| {
                let one = self.layout.compose(1, self.generator.node(), 0).unwrap();
                (id.get() - one.get()).trailing_zeros()
            })
        );
        for id in run {
            assert!(self.seen.insert(id), "{id} twice, under {}", self.layout);
            let parts = self.layout.decode(id);
            assert_eq!((parts.region, parts.worker, parts.reserved), (1, 2, false));
            assert!(parts.tick > 0, "tick 0");
            assert!(parts.tick <= self.tick(self.now_ms) + lead, "ahead of the wall by more than the lead");
            assert!(parts.tick <= self.tick(self.end_ms), "above the confirmed end");
            assert!(parts.tick <= self.tick(self.bounds.mark_ms), "above the mark");
            // Order within a generator is the cursor's, whatever the order of fields.
            let cursor = |id| {
                let parts = self.layout.decode(id);
                (parts.tick, parts.sequence)
            };
            assert!(self.last.is_none_or(|last| cursor(last) < cursor(id)), "order fell");
            assert!(self.observed.is_none_or(|observed| observed < id), "not above what was observed");
            self.last = Some(id);
        }
    }

    fn step(&mut self, event: &Event) {
        match *event {
            Event::Clock(ms) => self.now_ms = EPOCH_MS.saturating_add_signed(ms),
            Event::Ceiling(ms) => self.confirm(self.end_ms.min(self.now_ms) + ms),
            Event::Lost => self.bounds.ceiling_ms = 0,
            Event::Mark(ms) => self.bounds.mark_ms = EPOCH_MS + ms,
            Event::Mint(want) => {
                let want = NonZeroU32::new(want).unwrap();
                match self.generator.mint(self.now_ms, &self.bounds, want) {
                    Ok(run) => self.keep(run),
                    // Asking again changes nothing.
                    Err(refusal) => {
                        let again = self.generator.mint(self.now_ms, &self.bounds, want);
                        assert_eq!(again, Err(refusal));
                    }
                }
            }
            Event::MintChecked(want) => {
                // Bounds may have changed since the check, which stands for the tick: only what was confirmed then
                // is used, so the mark is compared by the next full mint.
                let mark_ms = std::mem::replace(&mut self.bounds.mark_ms, u64::MAX);
                if let Some(run) = self.generator.mint_checked(self.now_ms, NonZeroU32::new(want).unwrap()) {
                    self.keep(run);
                }
                self.bounds.mark_ms = mark_ms;
            }
            Event::Observe(ticks, worker, sequence) => self.observe(ticks, worker, sequence),
            Event::HandOver => {
                let last_ms = self.generator.stop().expect("each generator is stopped once");
                assert_eq!(
                    self.generator.mint(self.now_ms, &Bounds::OPEN, NonZeroU32::MIN),
                    Err(Refusal::Stopped)
                );
                self.next_grant(last_ms);
            }
            Event::Crash => self.next_grant(self.end_ms),
        }
    }

    fn observe(&mut self, ticks: i64, worker: u32, sequence: u64) {
        let tick = self.tick(self.now_ms).saturating_add_signed(ticks).min(self.layout.last_tick());
        let node = self.layout.node(1, worker).unwrap();
        let sequence = sequence.min(self.layout.ids_per_tick() - 1);
        let id = self.layout.compose(tick, node, sequence).unwrap();
        match self.generator.observe(id, self.now_ms, self.bounds.ceiling_ms) {
            Ok(()) => {
                assert!(tick <= self.tick(self.now_ms) + u64::from(self.policy.observe_ahead_ms_max));
                self.observed = self.observed.max(Some(id));
                // Once more, and something older: no change.
                let reserved = self.generator.last_reserved_ms();
                assert_eq!(self.generator.observe(id, self.now_ms, self.bounds.ceiling_ms), Ok(()));
                assert_eq!(self.generator.last_reserved_ms(), reserved);
            }
            Err(ObserveError::NotIssued) => {
                assert_eq!(worker, 2);
                assert!(!self.seen.contains(&id) || self.last.is_none(), "an issued ID is no twin");
            }
            Err(_) => {}
        }
    }
}

/// Under Miri a case takes a thousand times as long.
const CASES: u32 = if cfg!(miri) { 3 } else { 2_000 };

/// IDs of each thread.
const IDS_OF_THREAD: usize = if cfg!(miri) { 300 } else { 200_000 };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    /// No ID twice, none ahead of the wall by more than the lead, none above what was confirmed, order never falls,
    /// and after an observe everything is greater: whatever happens, in whatever layout.
    #[test]
    fn the_cursor_never_repeats(layout in layouts(), policy in policies(), events in events()) {
        let mut history = History::new(layout, policy);
        for event in &events {
            history.step(event);
        }
    }

    /// The order in which IDs are observed does not matter.
    #[test]
    fn observes_commute(
        layout in layouts(),
        policy in policies(),
        observed in prop::collection::vec((-8_i64..8, 0_u32..4, 0_u64..16), 1..8),
        swap in any::<prop::sample::Index>(),
    ) {
        let mut one = History::new(layout, policy);
        let mut other = History::new(layout, policy);
        let mut turned = observed.clone();
        turned.reverse();
        let at = swap.index(turned.len());
        turned.swap(0, at);
        for &(ticks, worker, sequence) in observed.iter().filter(|(_, worker, _)| *worker != 2) {
            one.observe(ticks, worker, sequence);
        }
        for &(ticks, worker, sequence) in turned.iter().filter(|(_, worker, _)| *worker != 2) {
            other.observe(ticks, worker, sequence);
        }
        one.now_ms += 100_000;
        other.now_ms += 100_000;
        one.confirm(u64::MAX);
        other.confirm(u64::MAX);
        let want = NonZeroU32::new(3).unwrap();
        prop_assert_eq!(
            one.generator.mint(one.now_ms, &one.bounds, want),
            other.generator.mint(other.now_ms, &other.bounds, want)
        );
    }

    /// The shared form decides as the single one does, call for call.
    #[test]
    fn the_shared_form_agrees(layout in layouts(), policy in policies(), events in events()) {
        let node = layout.node(1, 2).unwrap();
        let mut single = Generator::new(layout, Grant::new(node, 0, 0), policy).unwrap();
        let shared = AtomicGenerator::new(layout, Grant::new(node, 0, 0), policy).unwrap();
        let mut now_ms = EPOCH_MS + 10;
        let mut bounds = Bounds { ceiling_ms: EPOCH_MS + 50, ..Bounds::OPEN };
        for event in events {
            match event {
                Event::Clock(ms) => now_ms = EPOCH_MS.saturating_add_signed(ms),
                Event::Ceiling(ms) => bounds.ceiling_ms = EPOCH_MS + ms,
                Event::Lost => bounds.ceiling_ms = 0,
                Event::Mark(ms) => bounds.mark_ms = EPOCH_MS + ms,
                Event::Mint(want) | Event::MintChecked(want) => {
                    let want = NonZeroU32::new(want).unwrap();
                    prop_assert_eq!(single.mint(now_ms, &bounds, want), shared.mint(now_ms, &bounds, want));
                }
                Event::Observe(ticks, worker, sequence) => {
                    let tick = (now_ms.saturating_sub(EPOCH_MS)).saturating_add_signed(ticks).min(layout.last_tick());
                    let node = layout.node(1, worker).unwrap();
                    let id = layout.compose(tick, node, sequence.min(layout.ids_per_tick() - 1)).unwrap();
                    prop_assert_eq!(
                        single.observe(id, now_ms, bounds.ceiling_ms),
                        shared.observe(id, now_ms, bounds.ceiling_ms)
                    );
                }
                Event::HandOver | Event::Crash => {}
            }
        }
        prop_assert_eq!(single.stop(), shared.stop());
        prop_assert_eq!(shared.stop(), None);
    }

    /// A run is three numbers and gives exactly its IDs, however it is split; what would overflow or repeat is none.
    #[test]
    fn runs_are_arithmetic(first in any::<u64>(), stride in 0_u64..1_000_000, count in 1_u32..1_000, at in 0_u32..1_100) {
        let count_nonzero = NonZeroU32::new(count).unwrap();
        let fits = first.checked_add(stride * u64::from(count - 1)).is_some() && (stride > 0 || count == 1);
        let run = Run::new(Id::new(first), stride, count_nonzero);
        prop_assert_eq!(run.is_some(), fits);
        if let Some(mut run) = run {
            let last = run.last();
            let front = run.split_off_front(at);
            let ids: Vec<u64> = front.into_iter().chain(run).map(u64::from).collect();
            let expected: Vec<u64> = (0..u64::from(count)).map(|step| first + stride * step).collect();
            prop_assert_eq!(ids.last().copied().map(Id::new), last);
            prop_assert_eq!(ids, expected);
        }
    }

    /// What is composed decodes to what it was composed of, in every order of fields; the canonical text is the
    /// layout.
    #[test]
    fn compose_and_decode_are_inverse(
        layout in layouts(), tick in any::<u64>(), region in 0_u32..2, worker in 0_u32..4, sequence in any::<u64>(),
    ) {
        let tick = tick % (layout.last_tick() + 1);
        let sequence = sequence % layout.ids_per_tick();
        let id = layout.compose(tick, layout.node(region, worker).unwrap(), sequence).unwrap();
        let parts = layout.decode(id);
        prop_assert_eq!((parts.tick, parts.sequence), (tick, sequence));
        prop_assert_eq!((parts.region, parts.worker, parts.reserved), (region.into(), worker.into(), false));
        prop_assert_eq!(layout.to_string().parse::<Layout>(), Ok(layout));
    }
}

/// Threads over one cursor: every ID comes once, and every ID up to the last comes.
#[test]
fn threads_share_a_cursor_without_a_gap_or_a_repeat() {
    let layout = Layout::SNOWMINT;
    let grant = Grant::new(layout.node(0, 0).unwrap(), 1, 0);
    let generator = AtomicGenerator::new(layout, grant, Policy::CLASSIC).unwrap();
    let clock = AtomicU64::new(1_750_000_000_000);
    let ids: Vec<Id> = std::thread::scope(|scope| {
        let minters: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut ids = vec![];
                    while ids.len() < IDS_OF_THREAD {
                        let now_ms = clock.load(Ordering::Acquire);
                        match generator.mint(now_ms, &Bounds::OPEN, NonZeroU32::new(7).unwrap()) {
                            Ok(run) => ids.extend(run),
                            // Whoever finds the tick full moves time on.
                            Err(Refusal::Exhausted { .. }) => {
                                clock.fetch_max(now_ms + 1, Ordering::AcqRel);
                            }
                            Err(refusal) => {
                                // Another thread has moved time on since this one read it.
                                assert!(matches!(refusal, Refusal::ClockRolledBack { .. }), "{refusal}");
                            }
                        }
                    }
                    ids
                })
            })
            .collect();
        minters.into_iter().flat_map(|minter| minter.join().unwrap()).collect()
    });
    let count = ids.len();
    let distinct: HashSet<Id> = ids.iter().copied().collect();
    assert_eq!(distinct.len(), count);
    assert!(generator.stop().is_some());
}
