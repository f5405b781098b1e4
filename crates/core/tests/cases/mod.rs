//! The table of cases that every face of the generator must answer alike: core itself, and the component in a
//! runtime. A face is whatever implements [`Face`]; [`check_all`] runs every row against it.
//!
//! Included by path from the tests of both crates, so that there is one table.

// Each test that includes this uses what it needs; a failing row ends the test.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::too_many_lines
)]

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};

use snowmint_core::{
    ConfigError, Field, FieldError, Grant, HYBRID_LEAD_MS, Id, Layout, LayoutError, LeaseError, MarkError,
    MintError, NS_PER_MS, Node, ObserveError, Policy, PolicyError, PolicyLength, Ports, Refusal, Role, Run,
    StartError,
};

/// 2025-06-15T15:06:40Z, an ordinary moment of the presets.
pub const T: u64 = 1_750_000_000_000;

/// A world that a script moves: ports that answer what they were last told.
#[derive(Clone, Debug)]
pub struct World(Arc<Mutex<State>>);

#[derive(Debug)]
pub struct State {
    pub now_ms: u64,
    pub error_bound_ms: u32,
    /// Handed out once.
    pub grant: Result<Grant, LeaseError>,
    pub ticket: u64,
    pub ceiling_ms: u64,
    pub recovered: Result<Option<u64>, MarkError>,
    /// The last mark that this world lets become durable.
    pub mark_ms_max: u64,
    /// How often each port was asked: clock, error bound, ceiling, mark.
    pub asked: [u32; 4],
}

impl World {
    pub fn new(node: Node, floor_ms: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            now_ms: T,
            error_bound_ms: 0,
            grant: Ok(Grant::new(node, 7, floor_ms)),
            ticket: 7,
            ceiling_ms: u64::MAX,
            recovered: Ok(None),
            mark_ms_max: u64::MAX,
            asked: [0; 4],
        })))
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn ask(&self, port: usize) -> MutexGuard<'_, State> {
        let mut state = self.state();
        state.asked[port] += 1;
        state
    }
}

impl Ports for World {
    fn now_ms(&mut self) -> u64 {
        self.ask(0).now_ms
    }

    fn error_bound_ms(&mut self) -> u32 {
        self.ask(1).error_bound_ms
    }

    fn take(&mut self) -> Result<Grant, LeaseError> {
        std::mem::replace(&mut self.state().grant, Err(LeaseError::AlreadyTaken))
    }

    fn ceiling_ms(&mut self, ticket: u64) -> u64 {
        let state = self.ask(2);
        if ticket == state.ticket { state.ceiling_ms } else { 0 }
    }

    fn recover(&mut self, ticket: u64) -> Result<Option<u64>, MarkError> {
        let state = self.state();
        if ticket == state.ticket { state.recovered } else { Err(MarkError::UnknownTicket) }
    }

    fn reserve(&mut self, _ticket: u64, until_ms: u64) -> u64 {
        let state = self.ask(3);
        until_ms.min(state.mark_ms_max)
    }
}

/// One generator behind some face.
pub trait Face {
    fn mint(&mut self, max: u32) -> Result<Run, MintError>;
    fn observe(&mut self, id: Id) -> Result<(), ObserveError>;
    fn stop(&mut self) -> Option<u64>;
}

/// Starts a generator on a world.
pub type Start = dyn Fn(&Layout, &Policy, World) -> Result<Box<dyn Face>, StartError>;

/// What a script does next.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The clock reads this.
    At(u64),
    /// The clock's error bound is this.
    ErrorBound(u32),
    /// The lease reaches to this.
    Ceiling(u64),
    /// Marks become durable up to this.
    MarkMax(u64),
    /// Ask for so many at once; so many come.
    Mint(u32, u32),
    /// Ask for one, so many times; each comes.
    Each(u32),
    /// Ask for one; this refusal comes, and waiting 5 ms is worth it or not.
    Refused(Refusal, bool),
    /// Ask for none.
    Zero,
    /// Observe an ID at this millisecond of another node, with this sequence.
    Observe(u64, u64),
    /// Observe it; this comes of it.
    ObserveRefused(u64, u64, ObserveError),
    /// Stop; this is the last millisecond reserved.
    Stop(Option<u64>),
}

use Step::{At, Ceiling, Each, ErrorBound, MarkMax, Mint, Observe, ObserveRefused, Refused, Stop, Zero};

const SPREAD: Policy = Policy { spread: true, ..Policy::CLASSIC };

/// A rollback's refusal where the last tick is not full.
const fn rolled_back(by_ms: u64) -> Refusal {
    Refusal::ClockRolledBack { by_ms, wait_ms: by_ms }
}

/// 48 bits of time and 16 of sequence: the cursor fills all 64 bits.
pub fn full_width() -> Layout {
    Layout::new(&[Field::new(Role::Timestamp, 48), Field::new(Role::Sequence, 16)], 0, NS_PER_MS).unwrap()
}

/// The default layout with ticks of `tick_ms`.
pub fn with_tick(tick_ms: u64) -> Layout {
    let layout = Layout::SNOWMINT;
    Layout::new(layout.fields(), layout.epoch_unix_ms(), tick_ms * NS_PER_MS).unwrap()
}

struct Case {
    name: &'static str,
    layout: Layout,
    policy: Policy,
    floor_ms: u64,
    steps: Vec<Step>,
}

fn case(name: &'static str, layout: Layout, policy: Policy, floor_ms: u64, steps: &[Step]) -> Case {
    Case { name, layout, policy, floor_ms, steps: steps.to_vec() }
}

fn cases() -> Vec<Case> {
    let snowmint = Layout::SNOWMINT;
    let epoch = snowmint.epoch_unix_ms();
    let last = snowmint.last_ms();
    let full = full_width();
    let full_last = full.last_ms();
    let ended = Refusal::LayoutEnded { last_ms: last };
    let full_ended = Refusal::LayoutEnded { last_ms: full_last };
    let exhausted = Refusal::Exhausted { wait_ms: 1 };
    let classic = Policy::CLASSIC;
    let hybrid = Policy::HYBRID;
    vec![
        case(
            "frozen clock: 4,096 IDs of one millisecond in one run, then refused with the wait",
            snowmint,
            classic,
            0,
            &[Mint(4_096, 4_096), Refused(exhausted, true), Refused(exhausted, true), At(T + 1), Mint(1, 1)],
        ),
        case(
            "F10: frozen clock: 4,096 IDs one at a time, the 4,097th refused with the wait",
            snowmint,
            classic,
            0,
            &[Each(4_096), Refused(exhausted, true), At(T + 1), Each(4_096), Refused(exhausted, true)],
        ),
        case(
            "a run stays within its tick",
            snowmint,
            classic,
            0,
            &[Mint(4_000, 4_000), Mint(4_000, 96), Refused(exhausted, true)],
        ),
        case(
            "F16: any count is answered",
            snowmint,
            classic,
            0,
            &[Zero, Mint(u32::MAX, 4_096), Refused(exhausted, true), Zero],
        ),
        case(
            "F1: after a rollback the sequence goes on where it stopped",
            snowmint,
            classic,
            0,
            &[
                Each(3),
                At(T - 1),
                Refused(rolled_back(1), true),
                At(T),
                Mint(u32::MAX, 4_093),
                Refused(exhausted, true),
            ],
        ),
        case(
            "rollback by 5 ms is worth waiting out, also when the last tick is full",
            snowmint,
            classic,
            0,
            &[
                Mint(4_096, 4_096),
                At(T - 5),
                Refused(Refusal::ClockRolledBack { by_ms: 5, wait_ms: 6 }, true),
                At(T + 1),
                Each(1),
            ],
        ),
        case(
            "rollback by 6, 300, 900 and 2,000 ms is not worth waiting out, with no lead",
            snowmint,
            classic,
            0,
            &[
                Each(1),
                At(T - 6),
                Refused(rolled_back(6), false),
                At(T - 300),
                Refused(rolled_back(300), false),
                At(T - 900),
                Refused(rolled_back(900), false),
                At(T - 2_000),
                Refused(rolled_back(2_000), false),
                At(T),
                Each(1),
            ],
        ),
        case(
            "rollback by up to the lead is ridden out, beyond it refused",
            Layout::HYBRID,
            hybrid,
            0,
            &[
                Each(1),
                At(T - 1),
                Each(1),
                At(T - 5),
                Each(1),
                At(T - 300),
                Each(1),
                At(T - 900),
                Each(1),
                At(T - u64::from(HYBRID_LEAD_MS)),
                Each(1),
                At(T - u64::from(HYBRID_LEAD_MS) - 1),
                Refused(rolled_back(1), true),
                At(T - 2_000),
                Refused(rolled_back(1_000), false),
                At(T),
                Each(1),
            ],
        ),
        case(
            "a burst borrows ticks up to the lead, then is exhausted",
            snowmint,
            Policy { lead_ms: 2, ..classic },
            0,
            &[
                Mint(u32::MAX, 4_096),
                Mint(u32::MAX, 4_096),
                Mint(u32::MAX, 4_096),
                Refused(exhausted, true),
                At(T + 1),
                Mint(u32::MAX, 4_096),
                Refused(exhausted, true),
                // Behind by 1 past the lead, and one tick more because the last is full.
                At(T),
                Refused(Refusal::ClockRolledBack { by_ms: 1, wait_ms: 2 }, true),
            ],
        ),
        case(
            "F7: the last tick mints, the next is refused, and it mints again if the clock was only wrong",
            snowmint,
            classic,
            0,
            &[
                At(last + 1),
                Refused(ended, false),
                At(u64::MAX),
                Refused(ended, false),
                At(T),
                Each(1),
                At(last),
                Mint(4_095, 4_095),
                Each(1),
                Refused(ended, false),
                At(last + 1),
                Refused(ended, false),
                At(T),
                Refused(ended, false),
                Stop(Some(last)),
            ],
        ),
        case(
            "48 + 16 bits: the cursor of the last tick does not overflow",
            full,
            classic,
            0,
            &[
                At(full_last - 1),
                Mint(u32::MAX, 65_536),
                At(full_last + 1),
                Refused(full_ended, false),
                At(full_last),
                Mint(65_535, 65_535),
                Each(1),
                Refused(full_ended, false),
                At(T),
                Refused(full_ended, false),
                Stop(Some(full_last)),
                Stop(None),
                Refused(Refusal::Stopped, false),
            ],
        ),
        case(
            "tick 0 never mints, and a clock before the epoch is refused, with a lead too",
            snowmint,
            hybrid,
            0,
            &[
                At(0),
                Refused(Refusal::BelowFloor { floor_ms: epoch, wait_ms: epoch + 1 }, false),
                At(epoch - 1),
                Refused(Refusal::BelowFloor { floor_ms: epoch, wait_ms: 2 }, true),
                At(epoch),
                Refused(Refusal::BelowFloor { floor_ms: epoch, wait_ms: 1 }, true),
                At(epoch + 1),
                Each(1),
            ],
        ),
        case(
            "a floor is exclusive: nothing is minted until the clock is past it",
            snowmint,
            classic,
            T,
            &[
                At(T - 3_600_000),
                Refused(Refusal::BelowFloor { floor_ms: T, wait_ms: 3_600_001 }, false),
                At(T),
                Refused(Refusal::BelowFloor { floor_ms: T, wait_ms: 1 }, true),
                At(T + 1),
                Mint(u32::MAX, 4_096),
            ],
        ),
        case(
            "F2: a restart under a clock that is behind goes on above the floor, within the lead",
            Layout::HYBRID,
            hybrid,
            T,
            &[
                At(T - 1_000),
                Refused(Refusal::BelowFloor { floor_ms: T, wait_ms: 1 }, true),
                At(T - 999),
                Each(5),
                At(T - 3_600_000),
                Refused(Refusal::BelowFloor { floor_ms: T, wait_ms: 3_599_001 }, false),
            ],
        ),
        case(
            "a ceiling is inclusive, and 0 is a lost lease",
            snowmint,
            classic,
            0,
            &[
                Ceiling(T),
                Each(1),
                At(T + 1),
                Refused(Refusal::Ceiling { ceiling_ms: T }, true),
                Ceiling(T + 1),
                Each(1),
                At(T + 2),
                Ceiling(0),
                Refused(Refusal::LeaseLost, true),
                Ceiling(T + 2),
                Each(1),
            ],
        ),
        case(
            "a mark that does not become durable stops minting at the last that did",
            snowmint,
            classic,
            0,
            &[
                MarkMax(T + 10),
                Each(1),
                At(T + 10),
                Each(1),
                At(T + 11),
                Refused(Refusal::Mark { mark_ms: T + 10 }, true),
                MarkMax(T + 600),
                Each(1),
            ],
        ),
        case(
            "an error bound above the limit refuses, at the limit it does not; checked once a tick",
            snowmint,
            classic,
            0,
            &[
                ErrorBound(11),
                Refused(Refusal::ClockUncertain { error_bound_ms: 11, error_ms_max: 10 }, true),
                ErrorBound(u32::MAX),
                Refused(Refusal::ClockUncertain { error_bound_ms: u32::MAX, error_ms_max: 10 }, true),
                ErrorBound(10),
                Each(2),
                ErrorBound(11),
                Each(1),
                At(T + 1),
                Refused(Refusal::ClockUncertain { error_bound_ms: 11, error_ms_max: 10 }, true),
            ],
        ),
        case(
            "refusals are ordered: of several bounds the first is named",
            snowmint,
            classic,
            T,
            &[
                At(last + 1),
                Ceiling(0),
                MarkMax(0),
                ErrorBound(99),
                Refused(ended, false),
                At(T),
                Refused(Refusal::LeaseLost, true),
                Ceiling(T - 1),
                Refused(Refusal::BelowFloor { floor_ms: T, wait_ms: 1 }, true),
                At(T + 1),
                Refused(Refusal::Ceiling { ceiling_ms: T - 1 }, true),
                Ceiling(T + 1),
                // The mark begins at the floor's: nothing above it was ever durable.
                Refused(Refusal::Mark { mark_ms: 0 }, true),
                MarkMax(u64::MAX),
                Refused(Refusal::ClockUncertain { error_bound_ms: 99, error_ms_max: 10 }, true),
                ErrorBound(0),
                Mint(u32::MAX, 4_096),
                // The next tick lies above the ceiling, which is tried before the clock.
                Refused(Refusal::Ceiling { ceiling_ms: T + 1 }, true),
                Ceiling(u64::MAX),
                Refused(exhausted, true),
            ],
        ),
        case(
            "stop returns the last millisecond reserved, and nothing mints or observes after it",
            snowmint,
            classic,
            T - 10,
            &[
                Each(1),
                Stop(Some(T)),
                Refused(Refusal::Stopped, false),
                ObserveRefused(T, 0, ObserveError::Stopped),
                Stop(None),
            ],
        ),
        case(
            "stop before anything was minted returns the floor",
            snowmint,
            classic,
            T - 10,
            &[At(T - 20), Stop(Some(T - 10))],
        ),
        case(
            "ticks of 10 ms: the last millisecond reserved is that of the whole tick",
            with_tick(10),
            classic,
            0,
            &[At(T + 3), Each(1), Stop(Some(T + 9))],
        ),
        case(
            "ticks of 1,000 ms: exhausted until the tick's end, which is more than 5 ms away",
            with_tick(1_000),
            classic,
            0,
            &[
                At(T + 3),
                Mint(u32::MAX, 4_096),
                Refused(Refusal::Exhausted { wait_ms: 997 }, false),
                At(T + 999),
                Refused(exhausted, true),
                At(T + 1_000),
                Mint(u32::MAX, 4_096),
            ],
        ),
        case(
            "spread: a fresh tick starts at a varying sequence and still holds 4,033",
            snowmint,
            SPREAD,
            0,
            &[
                Each(1),
                At(T + 1),
                Mint(u32::MAX, 4_095),
                Refused(exhausted, true),
                At(T + 2),
                Each(63),
                At(T + 3),
                Mint(u32::MAX, 4_033),
                Refused(exhausted, true),
                // 100 is 36 in six bits.
                At(T + 4),
                Each(100),
                At(T + 5),
                Mint(u32::MAX, 4_060),
            ],
        ),
        case(
            "observe: everything later is greater; too far ahead or above the ceiling is refused, untouched",
            Layout::HYBRID,
            hybrid,
            0,
            &[
                Observe(T, 4_095),
                Each(1),
                Observe(T + 500, 0),
                Each(2),
                ObserveRefused(T + 501, 0, ObserveError::TooFarAhead { wait_ms: 1 }),
                Ceiling(T + 400),
                ObserveRefused(T + 450, 0, ObserveError::AboveCeiling { ceiling_ms: T + 400 }),
                // Bounds are read again with the next tick of the clock.
                Each(1),
                At(T + 1),
                Refused(Refusal::Ceiling { ceiling_ms: T + 400 }, true),
                Ceiling(u64::MAX),
                Each(1),
                Observe(T - 1_000, 3),
                Each(1),
            ],
        ),
        case(
            "observe with no lead: an ID of this millisecond moves on to the next, one ahead is refused",
            snowmint,
            classic,
            0,
            &[
                ObserveRefused(T + 1, 0, ObserveError::TooFarAhead { wait_ms: 1 }),
                Each(1),
                Observe(T, 9),
                Refused(exhausted, true),
                At(T + 1),
                Each(1),
            ],
        ),
        case(
            "observe is refused where order is not that of time",
            Layout::SHARDED,
            classic,
            0,
            &[ObserveRefused(T, 0, ObserveError::LayoutUnordered), Mint(u32::MAX, 256)],
        ),
    ]
}

/// The node that the cases mint for, and a greater one whose IDs they observe.
fn nodes(layout: &Layout) -> (Node, Node) {
    let region = u32::try_from(layout.regions() - 1).unwrap();
    let worker = u32::try_from(layout.workers_per_region() - 1).unwrap();
    (Node::new(region, worker.saturating_sub(1)), Node::new(region, worker))
}

/// Runs every row of the table through a face, and checks of all that it minted that no ID comes twice, that none is
/// 0, and that none is lower than the one before where the layout keeps time above everything.
pub fn check_all(start: &Start) {
    for case in cases() {
        check(start, &case);
    }
    check_configurations(start);
    check_asked_once_a_tick(start);
}

fn check(start: &Start, case: &Case) {
    let Case { name, layout, policy, floor_ms, steps } = case;
    let (node, other) = nodes(layout);
    let world = World::new(node, *floor_ms);
    let mut face = start(layout, policy, world.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut seen = HashSet::new();
    let mut last = 0;
    let mut keep = |run: Run| {
        for id in run {
            assert!(seen.insert(id), "{name}: {id} twice");
            assert_ne!(id.get(), 0, "{name}");
            assert_eq!(layout.decode(id).worker, u64::from(node.worker()), "{name}");
            if layout.bits(Role::Shard) == 0 {
                assert!(id.get() > last, "{name}: {id} after {last}");
            }
            last = id.get();
        }
    };
    for (at, &step) in steps.iter().enumerate() {
        let context = || format!("{name}, step {at}: {step:?}");
        let id_at = |ms: u64, sequence| {
            let tick = (ms - layout.epoch_unix_ms()) / (layout.tick_ns() / NS_PER_MS);
            layout.compose(tick, other, sequence).unwrap()
        };
        match step {
            At(now_ms) => world.state().now_ms = now_ms,
            ErrorBound(error_bound_ms) => world.state().error_bound_ms = error_bound_ms,
            Ceiling(ceiling_ms) => world.state().ceiling_ms = ceiling_ms,
            MarkMax(mark_ms_max) => world.state().mark_ms_max = mark_ms_max,
            Mint(want, count) => {
                let run = face.mint(want).unwrap_or_else(|error| panic!("{}: {error:?}", context()));
                assert_eq!(run.count(), count, "{}", context());
                keep(run);
            }
            Each(count) => {
                for _ in 0..count {
                    keep(face.mint(1).unwrap_or_else(|error| panic!("{}: {error:?}", context())));
                }
            }
            Refused(refusal, worth_waiting) => {
                assert_eq!(face.mint(1), Err(MintError::Refused(refusal)), "{}", context());
                assert_eq!(refusal.is_worth_waiting(5), worth_waiting, "{}", context());
            }
            Zero => assert_eq!(face.mint(0), Err(MintError::ZeroCount), "{}", context()),
            Observe(ms, sequence) => {
                assert_eq!(face.observe(id_at(ms, sequence)), Ok(()), "{}", context());
                // Whatever comes now is greater.
                if let Ok(run) = face.mint(1) {
                    assert!(run.first() > id_at(ms, sequence), "{}", context());
                    keep(run);
                }
            }
            ObserveRefused(ms, sequence, error) => {
                assert_eq!(face.observe(id_at(ms, sequence)), Err(error), "{}", context());
            }
            Stop(last_ms) => assert_eq!(face.stop(), last_ms, "{}", context()),
        }
    }
}

/// Configurations that cannot be minted by: each is refused by name, and costs no grant.
fn check_configurations(start: &Start) {
    let snowmint = Layout::SNOWMINT;
    let classic = Policy::CLASSIC;
    let rows: &[(Layout, Policy, ConfigError)] = &[
        (
            Layout::for_decoding(
                &[Field::new(Role::Timestamp, 42), Field::new(Role::Worker, 22)],
                0,
                NS_PER_MS,
            )
            .unwrap(),
            classic,
            LayoutError::RoleMissing { role: Role::Sequence }.into(),
        ),
        (
            Layout::for_decoding(
                &[
                    Field::new(Role::Timestamp, 41),
                    Field::new(Role::Other, 11),
                    Field::new(Role::Sequence, 12),
                ],
                0,
                NS_PER_MS,
            )
            .unwrap(),
            classic,
            LayoutError::RoleNotMinted { role: Role::Other }.into(),
        ),
        (
            Layout::for_decoding(snowmint.fields(), 0, 10_000).unwrap(),
            classic,
            LayoutError::TickNotWholeMs { tick_ns: 10_000 }.into(),
        ),
        (
            snowmint,
            Policy { lead_ms: 3_600_001, ..classic },
            PolicyError::OutOfRange { length: PolicyLength::Lead, value_ms: 3_600_001, min_ms: 0 }.into(),
        ),
        (
            snowmint,
            Policy { wait_ms_max: u32::MAX, ..classic },
            PolicyError::OutOfRange { length: PolicyLength::Wait, value_ms: u32::MAX, min_ms: 0 }.into(),
        ),
        (
            snowmint,
            Policy { mark_window_ms: 0, ..classic },
            PolicyError::OutOfRange { length: PolicyLength::MarkWindow, value_ms: 0, min_ms: 1 }.into(),
        ),
        (
            snowmint,
            Policy { lead_ms: 10, observe_ahead_ms_max: 10, ..classic },
            PolicyError::ObserveAhead { ahead_ms: 10, lead_ms: 10 }.into(),
        ),
        (
            snowmint,
            Policy { observe_ahead_ms_max: 1, ..classic },
            PolicyError::ObserveAhead { ahead_ms: 1, lead_ms: 0 }.into(),
        ),
        (Layout::HYBRID, SPREAD, PolicyError::Spread.into()),
        (Layout::SHARDED, SPREAD, PolicyError::Spread.into()),
    ];
    for (layout, policy, error) in rows {
        let world = World::new(Node::new(0, 0), 0);
        let started = start(layout, policy, world.clone());
        assert_eq!(started.err(), Some(StartError::Config(*error)));
        assert!(world.state().grant.is_ok(), "{error}: the grant is still there");
    }

    // F16, F19: a node that does not fit the layout is refused with the range, never masked.
    for (region, worker, role, value, max) in [
        (4, 0, Role::Region, 4, 3),
        (0, 300, Role::Worker, 300, 255),
        (u32::MAX, 0, Role::Region, 0xffff_ffff, 3),
    ] {
        let world = World::new(Node::new(region, worker), 0);
        let error = ConfigError::Field(FieldError { role, value, max });
        assert_eq!(start(&snowmint, &classic, world).err(), Some(StartError::Config(error)));
    }

    // What the lease and the mark say comes through.
    for error in
        [LeaseError::Unavailable, LeaseError::NoCodeLeft { wait_ms: Some(9) }, LeaseError::AlreadyTaken]
    {
        let world = World::new(Node::new(0, 0), 0);
        world.state().grant = Err(error);
        assert_eq!(start(&snowmint, &classic, world).err(), Some(StartError::Lease(error)));
    }
    for error in [MarkError::Missing, MarkError::Damaged, MarkError::Unavailable, MarkError::UnknownTicket] {
        let world = World::new(Node::new(0, 0), 0);
        world.state().recovered = Err(error);
        assert_eq!(start(&snowmint, &classic, world).err(), Some(StartError::Mark(error)));
    }

    // F6: one grant, one generator: what was handed out is not handed out again.
    let world = World::new(Node::new(0, 0), 0);
    assert!(start(&snowmint, &classic, world.clone()).is_ok());
    assert_eq!(start(&snowmint, &classic, world).err(), Some(StartError::Lease(LeaseError::AlreadyTaken)));

    // A recovered mark above the grant's floor is the floor.
    let world = World::new(Node::new(0, 0), T - 100);
    world.state().recovered = Ok(Some(T));
    let mut face = start(&snowmint, &classic, world).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(face.mint(1), Err(MintError::Refused(Refusal::BelowFloor { floor_ms: T, wait_ms: 1 })));
}

/// Within a tick that was checked only the clock is read again; the other ports once a tick, and the mark only when
/// half of its window is used.
fn check_asked_once_a_tick(start: &Start) {
    let world = World::new(Node::new(1, 1), 0);
    let mut face =
        start(&Layout::SNOWMINT, &Policy::CLASSIC, world.clone()).unwrap_or_else(|error| panic!("{error}"));
    for _ in 0..100 {
        face.mint(1).unwrap();
    }
    assert_eq!(world.state().asked, [100, 1, 1, 1], "clock, error bound, ceiling, mark");
    for ms in 1..=600 {
        world.state().now_ms = T + ms;
        face.mint(2).unwrap();
    }
    // A window of 1,000 ms was reserved at T; less than half of it is left from T + 501 on.
    assert_eq!(world.state().asked, [700, 601, 601, 2], "clock, error bound, ceiling, mark");
}
