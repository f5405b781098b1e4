//! A small world to watch: a few workers as lanes, faults by hand, and a naive Snowflake beside under the same faults.
//!
//! The keepers, the protocol, the records, the generators and their ports are the real ones. What is made up is what a
//! [`crate::World`] makes up, too: clocks, a network, when a process stands still. Here nobody is malicious and nothing
//! happens by chance but the time that messages take, so that each fault can be seen by itself.
//!
//! ```
//! use snowmint_sim::lanes::{LaneFault, Lanes};
//!
//! let mut lanes = Lanes::new(7);
//! lanes.advance(2_000);
//! lanes.inject(LaneFault::Back2000, 0);
//! lanes.advance(4_000);
//! assert_eq!(lanes.duplicates(), 0);
//! assert!(lanes.naive_duplicates() > 1_000);
//! ```

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use snowmint_core::{
    Field, Id, Layout, LayoutError, MintError, Minter, NS_PER_MS, Node, Policy, Refusal, Role, Run,
};
use snowmint_lease::exchange::is_worth_another_code;
use snowmint_lease::protocol::{self, ttl_ms};
use snowmint_lease::{
    ClusterRecord, Event, Hindrance, Keeper, KeeperConfig, MemoryBackup, MemoryStore, Notice, Now, Owner,
    Reply, Request, RequestId, Stopped, Store, StoreError, Then, perform, store,
};

use crate::host::{Desk, HostPorts, Right};
use crate::{BEGIN_MS, Rng, Spans};

/// How long a world lasts, in milliseconds of shown time: what it remembers of every ID stays small.
pub const LANES_MS_MAX: u64 = 300_000;

/// The leases' window in milliseconds.
pub const LANES_WINDOW_MS: u32 = 2_000;

/// How many IDs a tick of the lanes' layout holds.
pub const LANES_IDS_PER_TICK: u64 = 4_096;

/// A step of the world, in microseconds: half a millisecond, so that a clock can be set within one.
const STEP_US: u64 = 500;

/// IDs that each worker is asked for in a step, without a burst and within one.
const WANT: u32 = 2;
const WANT_IN_BURST: u32 = 5_000;

/// When what a fault does ends, in milliseconds after it.
const FROZEN_MS: u64 = 2_000;
const AHEAD_MS: u64 = 2_000;
const PAUSED_MS: u64 = 6_000;
const CUT_MS: u64 = 5_000;
const LOST_MS: u64 = 3_000;
const BURST_MS: u64 = 40;
const KILLED_MS: u64 = 200;
/// How slow the clock of a machine is that was begun again, and for how long.
const SLOW_MS: i64 = 500;
const SLOW_FOR_MS: u64 = 2_500;
const HOURS_8_MS: u64 = 8 * 3_600_000;
/// After a clock was eight hours ahead and is right again: all ends, and begins again before the hours are over.
const NIGHT_AFTER_MS: u64 = 4_000;
const MORNING_BEFORE_MS: u64 = 300;

/// How long what came of a fault is looked at, in milliseconds.
const EPISODE_MS: u64 = 12_000;

/// How many lines the log keeps.
const LOG_MAX: usize = 400;

/// The naive workers' leases: the same time to live, renewed as often, polled for more often.
const NAIVE_RENEW_MS: u64 = LANES_WINDOW_MS as u64 / 3;
const NAIVE_POLL_MS: u64 = 50;

/// A fault that can be brought about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LaneFault {
    /// The worker's clock stands still.
    Freeze,
    /// It is set back by a millisecond.
    Back1,
    /// By five.
    Back5,
    /// By two thousand.
    Back2000,
    /// It is set eight hours ahead, found out, and set right; then a night goes by.
    Ahead8h,
    /// The worker is asked for more than a tick holds.
    Exhaust,
    /// Its lease is counted as expired while it lives.
    Expire,
    /// Its process stands still for longer than its lease lives.
    Pause,
    /// Its process is killed and begins again, on a clock that is slow.
    Kill,
    /// Its region is cut off from its store.
    Cut,
    /// Its region's store is lost, and put back from a backup.
    Lose,
}

impl LaneFault {
    /// Every fault, in the order in which the page offers them.
    pub const ALL: [Self; 11] = [
        Self::Freeze,
        Self::Back1,
        Self::Back5,
        Self::Back2000,
        Self::Ahead8h,
        Self::Exhaust,
        Self::Expire,
        Self::Pause,
        Self::Kill,
        Self::Cut,
        Self::Lose,
    ];

    /// The fault's name in an address.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Freeze => "freeze",
            Self::Back1 => "back-1",
            Self::Back5 => "back-5",
            Self::Back2000 => "back-2000",
            Self::Ahead8h => "ahead-8h",
            Self::Exhaust => "exhaust",
            Self::Expire => "expire",
            Self::Pause => "pause",
            Self::Kill => "kill",
            Self::Cut => "cut",
            Self::Lose => "lose",
        }
    }

    /// The fault with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fault| fault.name() == name)
    }

    /// The fault in a few words.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Freeze => "Freeze the clock",
            Self::Back1 => "Clock −1 ms",
            Self::Back5 => "Clock −5 ms",
            Self::Back2000 => "Clock −2,000 ms",
            Self::Ahead8h => "Clock +8 h",
            Self::Exhaust => "Exhaust the tick",
            Self::Expire => "Expire the lease",
            Self::Pause => "Pause, then resume",
            Self::Kill => "Kill and restart",
            Self::Cut => "Cut the region",
            Self::Lose => "Lose the store",
        }
    }

    /// What the design says will come of it.
    pub const fn prediction(self) -> &'static str {
        match self {
            Self::Freeze => {
                "Mints the 4,096 IDs of the frozen millisecond, then refuses (exhausted) until the clock moves."
            }
            Self::Back1 => "Refuses for 1 ms (clock-rolled-back), then goes on where it was.",
            Self::Back5 => "Refuses for 5 ms (clock-rolled-back), then goes on where it was.",
            Self::Back2000 => "Refuses for 2 s (clock-rolled-back), then goes on where it was.",
            Self::Ahead8h => {
                "Refuses above its ceiling until the lease follows the clock. Set right, it gives the code back: nobody \
                 mints with it until those 8 h have passed."
            }
            Self::Exhaust => "Mints 4,096 IDs a millisecond and refuses the rest (exhausted).",
            Self::Expire => {
                "Goes on at most to its confirmed end. Whoever takes the code begins above that end."
            }
            Self::Pause => {
                "The spare takes the code after the lease's time to live, above its end. The sleeper wakes up to a \
                 ceiling of 0 (lease-lost)."
            }
            Self::Kill => {
                "The new process remembers nothing and need not: its code is granted again only above the old end."
            }
            Self::Cut => {
                "Both workers go on to their confirmed ends, then refuse (lease-lost). The other region notices nothing."
            }
            Self::Lose => {
                "Stops at the next renewal. The operator recovers under a higher generation; IDs begin above everything \
                 granted before."
            }
        }
    }

    /// What a naive Snowflake will do.
    pub const fn naive_prediction(self) -> &'static str {
        match self {
            Self::Freeze => "Its sequence wraps, and the millisecond's IDs are made again.",
            Self::Back1 | Self::Back5 | Self::Back2000 => {
                "Lives the same milliseconds again, from sequence 0: every ID of them twice."
            }
            Self::Ahead8h => "Eight hours later it reaches the milliseconds that it already used.",
            Self::Exhaust => "Its sequence wraps within the millisecond.",
            Self::Expire | Self::Lose => "The spare is given the same worker number while its owner goes on.",
            Self::Pause => "Wakes up and goes on with a number that is the spare's by now.",
            Self::Kill => "Begins again on a slow clock, in milliseconds that it already used.",
            Self::Cut => "Goes on for all of the cut; the spare gets its number before it finds out.",
        }
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneLine {
    /// When, in microseconds of shown time.
    pub at_us: u64,
    /// To which lane; `None`: to all.
    pub lane: Option<usize>,
    /// Whether it is the naive worker's doing.
    pub is_naive: bool,
    /// What happened.
    pub text: String,
}

/// What came of a fault so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Episode {
    /// The fault.
    pub fault: LaneFault,
    /// The lane that it befell.
    pub lane: usize,
    /// When, in microseconds of shown time.
    pub at_us: u64,
    /// Duplicates that Snowmint made since.
    pub duplicates: u64,
    /// Duplicates that the naive workers made since.
    pub naive_duplicates: u64,
    /// For how many microseconds each reason was refused for, by the workers that minted when it began.
    pub refused_us: BTreeMap<&'static str, u64>,
    /// Whether all those workers' codes are minted with again.
    pub is_recovered: bool,
}

/// A lane at one moment: to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneView<'a> {
    /// The worker's name.
    pub name: &'a str,
    /// Its region.
    pub region: u32,
    /// What its wall clock shows, in Unix milliseconds.
    pub wall_ms: u64,
    /// How far that is off, in milliseconds.
    pub off_ms: i64,
    /// Whether it has a process.
    pub is_alive: bool,
    /// Whether its process stands still.
    pub is_paused: bool,
    /// Whether its region is cut off.
    pub is_cut: bool,
    /// What its keeper does.
    pub phase: Option<&'static str>,
    /// The code that it holds.
    pub code: Option<u32>,
    /// Milliseconds until its lease's deadline; 0 where it holds none.
    pub lease_ms: u64,
    /// The last ID that it made.
    pub last_id: Option<Id>,
    /// The time of that ID, in Unix milliseconds.
    pub id_ms: Option<u64>,
    /// How many IDs of that tick are used.
    pub used: u64,
    /// How many IDs it made.
    pub ids: u64,
    /// Why it refuses, if it does.
    pub refusal: Option<&'static str>,
    /// The naive worker's number.
    pub naive_code: Option<u32>,
    /// The time of the naive worker's last ID.
    pub naive_id_ms: Option<u64>,
    /// How many IDs the naive worker made.
    pub naive_ids: u64,
    /// How many of them had been made before.
    pub naive_duplicates: u64,
}

/// What is to be undone later, or done at a moment of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Shift { lane: usize, by_ms: i64 },
    SetRight { lane: usize },
    Resume { lane: usize },
    Begin { lane: usize },
    EndBurst { lane: usize },
    Heal { region: usize },
    Restore { region: usize },
    Night { morning_us: u64 },
}

/// A request or a reply on its way, by true time.
struct Message {
    at_us: u64,
    lane: usize,
    life: u32,
    id: RequestId,
    what: What,
}

enum What {
    Request(Box<Request>),
    Reply(Box<Reply>),
}

struct Process {
    desk: Rc<Desk>,
    minter: Option<Minter<HostPorts>>,
    ticket: u64,
}

struct Lane {
    name: &'static str,
    region: usize,
    boot_us: u64,
    off_ms: i64,
    /// What the clock shows while it stands still.
    frozen_ms: Option<u64>,
    is_paused: bool,
    life: u32,
    process: Option<Process>,
    want: u32,
    last_id: Option<Id>,
    ids: u64,
    refusal: Option<(&'static str, u64)>,
    naive: Naive,
}

/// A Snowflake as it is often written: it trusts its clock, its memory, and that its number is its own.
#[derive(Default)]
struct Naive {
    code: Option<u32>,
    last_ms: Option<u64>,
    sequence: u64,
    /// When it next renews its number, or asks for one, by true time.
    ask_us: u64,
    ids: u64,
    duplicates: u64,
    is_duplicating: bool,
}

struct Region {
    store: MemoryStore,
    backup: MemoryBackup,
    generation: u16,
    /// The highest end that the store ever confirmed, as an operator's monitoring keeps it.
    reach_ms: u64,
    is_cut: bool,
    is_lost: bool,
    /// Who holds each number of the naive workers, until when by true time.
    numbers: [Option<(usize, u64)>; CODES],
}

/// Worker codes of a region: one fewer than its workers, so that one waits.
const CODES: usize = 2;

/// The lanes with their regions: two that mint and one that waits, and one elsewhere that is never touched.
const LANES: [(&str, usize); 4] = [("alpha", 0), ("bravo", 0), ("spare", 0), ("delta", 1)];

/// The world. [`Lanes::advance`] lets time pass; nothing happens by itself.
#[allow(clippy::struct_field_names)] // Lanes has lanes.
pub struct Lanes {
    rng: Rng,
    layout: Layout,
    /// Microseconds that were shown, and that went by unseen.
    shown_us: u64,
    unseen_us: u64,
    lanes: Vec<Lane>,
    regions: Vec<Region>,
    messages: Vec<Message>,
    effects: Vec<(u64, Effect)>,
    issued: BTreeMap<u64, Spans>,
    naive_issued: BTreeMap<u64, Spans>,
    duplicates: u64,
    lines: Vec<LaneLine>,
    episodes: Vec<Episode>,
    /// How many lanes minted when the last fault came, and the duplicates until then.
    watched: usize,
    before: (u64, u64),
}

impl Lanes {
    /// The world of a seed, at its beginning.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let layout = lanes_layout().unwrap_or(Layout::SNOWMINT);
        let regions = (0..2).map(|number| {
            let store = MemoryStore::new();
            if let Ok(cluster) = ClusterRecord::new(rng.nonce(), layout, number) {
                // A store in memory that is empty cannot refuse.
                let _ = store::init(&store, &cluster);
            }
            let backup = store.backup();
            Region {
                store,
                backup,
                generation: 1,
                reach_ms: 0,
                is_cut: false,
                is_lost: false,
                numbers: [None; CODES],
            }
        });
        let regions = regions.collect();
        let lanes = LANES.map(|(name, region)| Lane {
            name,
            region,
            boot_us: rng.below(1 << 40),
            off_ms: 0,
            frozen_ms: None,
            is_paused: false,
            life: 0,
            process: None,
            want: WANT,
            last_id: None,
            ids: 0,
            refusal: None,
            naive: Naive::default(),
        });
        let mut world = Self {
            rng,
            layout,
            shown_us: 0,
            unseen_us: 0,
            lanes: lanes.into(),
            regions,
            messages: Vec::new(),
            effects: Vec::new(),
            issued: BTreeMap::new(),
            naive_issued: BTreeMap::new(),
            duplicates: 0,
            lines: Vec::new(),
            episodes: Vec::new(),
            watched: 0,
            before: (0, 0),
        };
        // One after the other, so that the last of a region is the one that waits.
        for lane in 0..world.lanes.len() {
            world.effects.push((lane as u64 * 30_000, Effect::Begin { lane }));
        }
        world
    }

    /// The layout that is minted by: 2 regions, 2 workers each, 4,096 IDs a millisecond.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Microseconds that were shown since the world began.
    pub const fn now_us(&self) -> u64 {
        self.shown_us
    }

    /// The true time in Unix milliseconds.
    pub const fn true_ms(&self) -> u64 {
        BEGIN_MS + self.true_us() / 1_000
    }

    /// IDs that Snowmint issued. Each was compared with all before.
    pub fn ids(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.ids).sum()
    }

    /// How many of them had been issued before.
    pub const fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// IDs that the naive workers issued.
    pub fn naive_ids(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.naive.ids).sum()
    }

    /// How many of them had been issued before.
    pub fn naive_duplicates(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.naive.duplicates).sum()
    }

    /// Whether the world has shown all that it shows.
    pub const fn is_over(&self) -> bool {
        self.shown_us >= LANES_MS_MAX * 1_000
    }

    /// What came of each fault, in order.
    pub fn episodes(&self) -> &[Episode] {
        &self.episodes
    }

    /// The lines of the log since they were last taken.
    pub fn take_lines(&mut self) -> Vec<LaneLine> {
        std::mem::take(&mut self.lines)
    }

    /// Lets time pass, up to [`LANES_MS_MAX`] in all.
    pub fn advance(&mut self, ms: u64) {
        self.advance_us(ms.saturating_mul(1_000));
    }

    /// Lets so many microseconds pass, rounded up to steps of half a millisecond.
    pub fn advance_us(&mut self, us: u64) {
        for _ in 0..us.div_ceil(STEP_US) {
            if self.is_over() {
                break;
            }
            self.step();
        }
    }

    /// Every lane, as it is now.
    pub fn views(&self) -> impl Iterator<Item = LaneView<'_>> {
        self.lanes.iter().map(|lane| self.view(lane))
    }

    fn view<'a>(&self, lane: &'a Lane) -> LaneView<'a> {
        let now = self.now_of(lane);
        let keeper = lane.process.as_ref().and_then(|process| match &process.desk.right {
            Right::Leased(keeper) => Some(keeper.borrow()),
            Right::Fixed(_) => None,
        });
        let held = keeper.as_ref().and_then(|keeper| keeper.view());
        LaneView {
            name: lane.name,
            region: u32::try_from(lane.region).unwrap_or(0),
            wall_ms: now.wall_ms,
            off_ms: now.wall_ms.cast_signed() - self.true_ms().cast_signed(),
            is_alive: lane.process.is_some(),
            is_paused: lane.is_paused,
            is_cut: self.regions.get(lane.region).is_some_and(|region| region.is_cut),
            phase: keeper.as_ref().map(|keeper| keeper.phase(now.boot_ms).name()),
            code: held.map(|held| held.code),
            lease_ms: held.map_or(0, |held| held.deadline_boot_ms.saturating_sub(now.boot_ms)),
            last_id: lane.last_id,
            id_ms: lane.last_id.map(|id| self.layout.time_of(id).unix_ms()),
            used: lane.last_id.map_or(0, |id| self.layout.decode(id).sequence + 1),
            ids: lane.ids,
            refusal: lane.refusal.map(|(reason, _)| reason),
            naive_code: lane.naive.code,
            naive_id_ms: lane.naive.last_ms,
            naive_ids: lane.naive.ids,
            naive_duplicates: lane.naive.duplicates,
        }
    }

    /// Brings a fault about, now; lanes that there are not are those of the first.
    pub fn inject(&mut self, fault: LaneFault, lane: usize) {
        let lane = if lane < self.lanes.len() { lane } else { 0 };
        let region = self.lanes.get(lane).map_or(0, |lane| lane.region);
        self.watched = self.minting();
        self.before = (self.duplicates, self.naive_duplicates());
        self.note(Some(lane), false, fault.title().to_owned());
        let shown_us = self.shown_us;
        let after = |ms: u64| shown_us + ms * 1_000;
        let mut effects = Vec::new();
        // Within a millisecond: after its first IDs, and before its last.
        let within_us = self.shown_us.next_multiple_of(1_000) + STEP_US;
        match fault {
            LaneFault::Freeze => {
                let wall_ms = self.lanes.get(lane).map(|lane| self.now_of(lane).wall_ms);
                if let Some(lane) = self.lanes.get_mut(lane) {
                    lane.frozen_ms = wall_ms;
                }
                effects.push((after(FROZEN_MS), Effect::SetRight { lane }));
            }
            LaneFault::Back1 => effects.push((within_us, Effect::Shift { lane, by_ms: -1 })),
            LaneFault::Back5 => effects.push((within_us, Effect::Shift { lane, by_ms: -5 })),
            LaneFault::Back2000 => effects.push((within_us, Effect::Shift { lane, by_ms: -2_000 })),
            LaneFault::Ahead8h => {
                effects.push((within_us, Effect::Shift { lane, by_ms: HOURS_8_MS.cast_signed() }));
                effects.push((after(AHEAD_MS), Effect::SetRight { lane }));
                let morning_us = self.true_us() + (HOURS_8_MS - MORNING_BEFORE_MS) * 1_000;
                effects.push((after(NIGHT_AFTER_MS), Effect::Night { morning_us }));
            }
            LaneFault::Exhaust => {
                effects.push((after(BURST_MS), Effect::EndBurst { lane }));
                if let Some(lane) = self.lanes.get_mut(lane) {
                    lane.want = WANT_IN_BURST;
                }
            }
            LaneFault::Expire => self.expire(lane),
            LaneFault::Pause => {
                if let Some(lane) = self.lanes.get_mut(lane) {
                    lane.is_paused = true;
                }
                effects.push((after(PAUSED_MS), Effect::Resume { lane }));
            }
            LaneFault::Kill => {
                self.end(lane);
                if let Some(lane) = self.lanes.get_mut(lane) {
                    lane.off_ms -= SLOW_MS;
                }
                effects.push((after(KILLED_MS), Effect::Begin { lane }));
                effects.push((after(SLOW_FOR_MS), Effect::SetRight { lane }));
            }
            LaneFault::Cut => {
                if let Some(region) = self.regions.get_mut(region) {
                    region.is_cut = true;
                }
                effects.push((after(CUT_MS), Effect::Heal { region }));
            }
            LaneFault::Lose => {
                if let Some(region) = self.regions.get_mut(region) {
                    region.is_lost = true;
                    // The naive workers' numbers are in a cache that comes back empty.
                    region.numbers = [None; CODES];
                }
                self.delay_naive(region);
                effects.push((after(LOST_MS), Effect::Restore { region }));
            }
        }
        self.effects.append(&mut effects);
        self.episodes.push(Episode {
            fault,
            lane,
            at_us: self.shown_us,
            duplicates: 0,
            naive_duplicates: 0,
            refused_us: BTreeMap::new(),
            is_recovered: false,
        });
    }

    const fn true_us(&self) -> u64 {
        self.shown_us + self.unseen_us
    }

    /// How many lanes mint.
    fn minting(&self) -> usize {
        self.lanes.iter().filter(|lane| lane.mints()).count()
    }

    fn now_of(&self, lane: &Lane) -> Now {
        let right_ms = self.true_ms().cast_signed();
        let wall_ms =
            lane.frozen_ms.unwrap_or_else(|| right_ms.saturating_add(lane.off_ms).max(0).cast_unsigned());
        Now { boot_ms: (lane.boot_us + self.true_us()) / 1_000, wall_ms, clock_error_ms: CLOCK_ERROR_MS }
    }

    fn note(&mut self, lane: Option<usize>, is_naive: bool, text: String) {
        if self.lines.len() < LOG_MAX {
            self.lines.push(LaneLine { at_us: self.shown_us, lane, is_naive, text });
        }
    }

    // A step.

    fn step(&mut self) {
        while let Some(at) = self.effects.iter().position(|(at_us, _)| *at_us <= self.shown_us) {
            let (_, effect) = self.effects.remove(at);
            self.undo(effect);
        }
        let now_us = self.true_us();
        while let Some(at) =
            self.messages.iter().position(|message| message.at_us <= now_us && self.hears(message))
        {
            let message = self.messages.remove(at);
            self.deliver(message);
        }
        for at in 0..self.lanes.len() {
            self.wake(at);
            self.serve(at);
            self.serve_naive(at);
        }
        self.shown_us += STEP_US;
        self.look();
    }

    /// What came of the last fault, so far.
    fn look(&mut self) {
        let (is_recovered, naive_duplicates) = (self.minting() >= self.watched, self.naive_duplicates());
        let reasons: Vec<&'static str> = self
            .lanes
            .iter()
            .filter(|lane| lane.is_served())
            .filter_map(|lane| Some(lane.refusal?.0))
            .collect();
        let Some(episode) = self.episodes.last_mut() else { return };
        if self.shown_us > episode.at_us + EPISODE_MS * 1_000 {
            return;
        }
        episode.duplicates = self.duplicates - self.before.0;
        episode.naive_duplicates = naive_duplicates - self.before.1;
        episode.is_recovered = is_recovered;
        for reason in reasons {
            *episode.refused_us.entry(reason).or_default() += STEP_US;
        }
    }

    fn undo(&mut self, effect: Effect) {
        match effect {
            Effect::Shift { lane, by_ms } => {
                if let Some(lane) = self.lanes.get_mut(lane) {
                    lane.off_ms = lane.off_ms.saturating_add(by_ms);
                }
            }
            Effect::SetRight { lane: at } => {
                if let Some(lane) = self.lanes.get_mut(at) {
                    (lane.off_ms, lane.frozen_ms) = (0, None);
                    self.note(Some(at), false, String::from("its clock is set right"));
                }
            }
            Effect::Resume { lane: at } => {
                let now_us = self.true_us();
                if let Some(lane) = self.lanes.get_mut(at) {
                    lane.is_paused = false;
                    // Its timer has just been set.
                    lane.naive.ask_us = now_us + NAIVE_RENEW_MS * 1_000;
                    self.note(Some(at), false, String::from("its process goes on"));
                }
            }
            Effect::Begin { lane } => self.begin(lane),
            Effect::EndBurst { lane } => {
                if let Some(lane) = self.lanes.get_mut(lane) {
                    lane.want = WANT;
                }
            }
            Effect::Heal { region } => {
                if let Some(region) = self.regions.get_mut(region) {
                    region.is_cut = false;
                }
                self.delay_naive(region);
                self.note(None, false, String::from("the region reaches its store again"));
            }
            Effect::Restore { region } => self.restore(region),
            Effect::Night { morning_us } => {
                self.unseen_us += morning_us.saturating_sub(self.true_us());
                for lane in 0..self.lanes.len() {
                    self.end(lane);
                    self.effects.push((self.shown_us + lane as u64 * 30_000, Effect::Begin { lane }));
                }
                self.note(
                    None,
                    false,
                    String::from("all is shut down for the night; 8 h later it begins again"),
                );
            }
        }
    }

    fn begin(&mut self, at: usize) {
        let now_us = self.true_us();
        let Some(lane) = self.lanes.get_mut(at) else { return };
        let region = u32::try_from(lane.region).unwrap_or(0);
        let Ok(owner) = Owner::new(lane.name) else { return };
        let config =
            KeeperConfig { window_ms: LANES_WINDOW_MS, ..KeeperConfig::embedded(self.layout, region, owner) };
        let Ok(keeper) = Keeper::new(config) else { return };
        let desk = Desk {
            right: Right::Leased(Box::new(RefCell::new(keeper))),
            now_ms: Cell::new(0),
            clock_error_ms: Cell::new(CLOCK_ERROR_MS),
            boot_ms: Cell::new(0),
            told_error_ms: Cell::new(None),
        };
        lane.life += 1;
        lane.process = Some(Process { desk: Rc::new(desk), minter: None, ticket: 0 });
        lane.naive.ask_us = now_us;
        self.note(Some(at), false, String::from("its process begins"));
        self.tell(at, Event::Time);
    }

    /// A process ends at once. What it had in memory is gone, and its lease stays as it is.
    fn end(&mut self, at: usize) {
        if let Some(lane) = self.lanes.get_mut(at) {
            lane.process = None;
            lane.is_paused = false;
            lane.want = WANT;
            lane.refusal = None;
            let Naive { ids, duplicates, .. } = lane.naive;
            lane.naive = Naive { ids, duplicates, ..Naive::default() };
        }
    }

    /// Somebody counts a lease as expired, on bad evidence.
    fn expire(&mut self, at: usize) {
        let Some(lane) = self.lanes.get(at) else { return };
        let now = self.now_of(lane);
        let Some(held) = lane.process.as_ref().and_then(Process::view) else { return };
        let nonce = self.rng.nonce();
        let Some(region) = self.regions.get_mut(lane.region) else { return };
        if let (Ok(cluster), Ok(stored)) = (region.store.cluster(), region.store.read(held.code))
            && let Ok(record) = protocol::expire_alone(&stored.record, 0, &now, nonce)
        {
            // Nobody else writes between the two.
            let _ = region.store.swap(held.code, stored.revision, cluster.revision, &record);
        }
        if let Some(number) =
            region.numbers.iter_mut().find(|number| number.is_some_and(|(owner, _)| owner == at))
        {
            *number = None;
        }
        let region = lane.region;
        self.delay_naive(region);
    }

    fn restore(&mut self, at: usize) {
        let now = Now { boot_ms: 0, wall_ms: self.true_ms(), clock_error_ms: CLOCK_ERROR_MS };
        let Some(region) = self.regions.get_mut(at) else { return };
        region.store.restore(&region.backup);
        region.is_lost = false;
        // Above everything that was granted: a clock that was ahead has granted far ahead.
        let not_before_ms = region.reach_ms.max(now.wall_ms + u64::from(LANES_WINDOW_MS));
        let recovered =
            store::recover_after(&region.store, region.generation, not_before_ms, LANES_WINDOW_MS, &now);
        if let Ok(Ok(cluster)) = recovered {
            region.generation = cluster.generation;
            let text =
                format!("the store is recovered from a backup, under generation {}", cluster.generation);
            self.note(None, false, text);
        }
    }

    /// Connections of a region's naive workers come back after a while; whoever polls is first.
    fn delay_naive(&mut self, region: usize) {
        let now_us = self.true_us();
        for lane in self.lanes.iter_mut().filter(|lane| lane.region == region && lane.naive.code.is_some()) {
            lane.naive.ask_us = now_us + self.rng.between(300, 600) * 1_000;
        }
    }

    // The keeper.

    fn wake(&mut self, at: usize) {
        let Some(lane) = self.lanes.get(at).filter(|lane| !lane.is_paused) else { return };
        let boot_ms = self.now_of(lane).boot_ms;
        let wakes = lane.process.as_ref().is_some_and(|process| match &process.desk.right {
            Right::Leased(keeper) => keeper.borrow().next_wake_boot_ms() <= boot_ms,
            Right::Fixed(_) => false,
        });
        if wakes {
            self.tell(at, Event::Time);
        }
    }

    fn tell(&mut self, at: usize, event: Event) {
        let nonce = self.rng.nonce();
        let way_us = self.way_us();
        let Some(lane) = self.lanes.get(at) else { return };
        let (now, life) = (self.now_of(lane), lane.life);
        let Some(process) = &lane.process else { return };
        let Right::Leased(keeper) = &process.desk.right else { return };
        let output = keeper.borrow_mut().handle(event, &now, nonce);
        for notice in &output.notices {
            if let Some(text) = told(notice) {
                self.note(Some(at), false, text);
            }
        }
        if let Some((id, request)) = output.request {
            let what = What::Request(Box::new(request));
            self.messages.push(Message { at_us: self.true_us() + way_us, lane: at, life, id, what });
        }
    }

    fn way_us(&mut self) -> u64 {
        self.rng.between(1_000, 4_000)
    }

    /// Whether a message can be delivered now: a process that stands still hears nothing.
    fn hears(&self, message: &Message) -> bool {
        match message.what {
            What::Request(_) => true,
            What::Reply(_) => self.lanes.get(message.lane).is_none_or(|lane| !lane.is_paused),
        }
    }

    fn deliver(&mut self, message: Message) {
        let Message { lane: at, life, id, what, .. } = message;
        let Some(number) = self.lanes.get(at).map(|lane| lane.region) else { return };
        match what {
            What::Request(request) => {
                let way_us = self.way_us();
                let Some(region) = self.regions.get_mut(number).filter(|region| !region.is_cut) else {
                    return;
                };
                let reply = if region.is_lost {
                    Reply::Failed(StoreError::Gone { place: String::from("the region's store") })
                } else {
                    perform(&region.store, &request)
                };
                if let (Request::Swap { record, .. }, Reply::Swapped(_)) = (&*request, &reply) {
                    region.reach_ms = region.reach_ms.max(record.end_ms);
                }
                let what = What::Reply(Box::new(reply));
                self.messages.push(Message { at_us: self.true_us() + way_us, lane: at, life, id, what });
            }
            What::Reply(reply) => {
                let is_cut = self.regions.get(number).is_none_or(|region| region.is_cut);
                let lives =
                    self.lanes.get(at).is_some_and(|lane| lane.life == life && lane.process.is_some());
                if lives && !is_cut {
                    self.tell(at, Event::Reply { id, reply: *reply });
                }
            }
        }
    }

    // The generator.

    /// A worker is asked for IDs.
    fn serve(&mut self, at: usize) {
        let Some(lane) = self.lanes.get(at).filter(|lane| lane.is_served()) else { return };
        let now = self.now_of(lane);
        let mut left = lane.want;
        while left > 0 {
            match self.mint(at, &now, left) {
                Ok(run) => {
                    left = left.saturating_sub(run.count());
                    self.issued(at, &run);
                    self.refuses(at, None);
                }
                Err(reason) => {
                    self.refuses(at, Some(reason));
                    break;
                }
            }
        }
    }

    fn mint(&mut self, at: usize, now: &Now, want: u32) -> Result<Run, &'static str> {
        let layout = self.layout;
        let process = self.lanes.get_mut(at).and_then(|lane| lane.process.as_mut()).ok_or("no-process")?;
        process.desk.now_ms.set(now.wall_ms);
        process.desk.boot_ms.set(now.boot_ms);
        if process.minter.is_none() {
            process.start(&layout, now)?;
        }
        let minter = process.minter.as_mut().ok_or("no-grant")?;
        let refusal = match minter.mint(want) {
            Ok(run) => return Ok(run),
            Err(MintError::Refused(refusal)) => refusal,
            // It was not asked for none.
            Err(MintError::ZeroCount) => return Err("zero-count"),
        };
        if refusal == Refusal::LeaseLost && process.start(&layout, now).is_ok() {
            // A new grant is a new generator: it is asked in the next step.
            return Err(refusal.reason());
        }
        let Some(minter) = process.minter.as_mut() else { return Err(refusal.reason()) };
        if is_worth_another_code(refusal, LANES_WINDOW_MS) {
            let stopped =
                minter.stop().map(|last_reserved_ms| Stopped { ticket: process.ticket, last_reserved_ms });
            process.minter = None;
            self.tell(at, Event::Release { stopped, then: Then::Acquire });
        }
        Err(refusal.reason())
    }

    /// Compares a run with every ID before it.
    fn issued(&mut self, at: usize, run: &Run) {
        let Some(last) = run.last() else { return };
        let node = self.node_of(run.first());
        let again = self.issued.entry(node).or_default().insert(run.first().get(), u64::from(run.count()));
        self.duplicates += again;
        if let Some(lane) = self.lanes.get_mut(at) {
            lane.ids += u64::from(run.count());
            lane.last_id = Some(last);
        }
    }

    fn node_of(&self, id: Id) -> u64 {
        let parts = self.layout.decode(id);
        (parts.region << 32) | parts.worker
    }

    /// Whether a worker mints or refuses has changed: that is told, not each call.
    fn refuses(&mut self, at: usize, reason: Option<&'static str>) {
        let now_us = self.shown_us;
        let Some(lane) = self.lanes.get_mut(at) else { return };
        let before = lane.refusal;
        if before.map(|(reason, _)| reason) == reason {
            return;
        }
        lane.refusal = reason.map(|reason| (reason, now_us));
        let text = match (before, reason) {
            (_, Some(reason)) => format!("refuses: {reason}"),
            (Some((_, since_us)), None) => format!("mints again after {}", milliseconds(now_us - since_us)),
            (None, None) => return,
        };
        self.note(Some(at), false, text);
    }

    // The naive worker.

    fn serve_naive(&mut self, at: usize) {
        let now_us = self.true_us();
        let Some(lane) = self.lanes.get(at).filter(|lane| lane.is_served()) else { return };
        let (wall_ms, want) = (self.now_of(lane).wall_ms, u64::from(lane.want));
        if lane.naive.ask_us <= now_us {
            self.ask_naive(at, now_us);
        }
        let Some(lane) = self.lanes.get_mut(at) else { return };
        let Some(code) = lane.naive.code else { return };
        let region = u32::try_from(lane.region).unwrap_or(0);
        let mut left = want;
        let mut again = 0;
        while left > 0 {
            let naive = &mut lane.naive;
            // The fault of many: a clock that went back looks like a new millisecond.
            let sequence =
                if naive.last_ms == Some(wall_ms) { (naive.sequence + 1) % LANES_IDS_PER_TICK } else { 0 };
            let count = left.min(LANES_IDS_PER_TICK - sequence);
            let tick = wall_ms.saturating_sub(self.layout.epoch_unix_ms());
            let Ok(id) = self.layout.compose(tick, Node::new(region, code), sequence) else { return };
            let node = (u64::from(region) << 32) | u64::from(code);
            again += self.naive_issued.entry(node).or_default().insert(id.get(), count);
            naive.last_ms = Some(wall_ms);
            naive.sequence = sequence + count - 1;
            naive.ids += count;
            left -= count;
        }
        lane.naive.duplicates += again;
        let is_duplicating = again > 0;
        if lane.naive.is_duplicating != is_duplicating {
            lane.naive.is_duplicating = is_duplicating;
            let text = if is_duplicating { "makes duplicates" } else { "makes new IDs again" };
            self.note(Some(at), true, text.to_owned());
        }
    }

    /// Renews its number, or takes one that nobody seems to hold.
    fn ask_naive(&mut self, at: usize, now_us: u64) {
        let Some(lane) = self.lanes.get_mut(at) else { return };
        let Some(region) = self.regions.get_mut(lane.region) else { return };
        let until_us = now_us + u64::from(ttl_ms(LANES_WINDOW_MS)) * 1_000;
        let held = lane.naive.code;
        if region.is_cut {
            // It tries again later, and mints on.
            let wait_ms = if held.is_some() { NAIVE_RENEW_MS } else { NAIVE_POLL_MS };
            lane.naive.ask_us = now_us + wait_ms * 1_000;
            return;
        }
        let place = held.and_then(|code| region.numbers.get_mut(usize::try_from(code).ok()?));
        if let Some(place) = place.filter(|place| place.is_none_or(|(owner, _)| owner == at)) {
            *place = Some((at, until_us));
            lane.naive.ask_us = now_us + NAIVE_RENEW_MS * 1_000;
            return;
        }
        let is_free = |number: &&mut Option<(usize, u64)>| {
            number.is_none_or(|(owner, until_us)| owner == at || until_us <= now_us)
        };
        let found = region.numbers.iter_mut().zip(0_u32..).find(|(number, _)| is_free(number));
        let code = found.map(|(number, code)| {
            *number = Some((at, until_us));
            code
        });
        lane.naive.code = code;
        lane.naive.ask_us = now_us + if code.is_some() { NAIVE_RENEW_MS } else { NAIVE_POLL_MS } * 1_000;
        let text = match (held, code) {
            (Some(_), _) => String::from("finds out that its worker number is another's"),
            (None, Some(code)) => format!("takes worker number {code}"),
            (None, None) => return,
        };
        self.note(Some(at), true, text);
    }
}

impl Lane {
    /// Whether it is asked for IDs: whoever has no process, or stands still, is not.
    const fn is_served(&self) -> bool {
        self.process.is_some() && !self.is_paused
    }

    fn mints(&self) -> bool {
        self.is_served()
            && self.refusal.is_none()
            && self.process.as_ref().is_some_and(|process| process.minter.is_some())
    }
}

impl Process {
    fn view(&self) -> Option<snowmint_lease::View> {
        match &self.desk.right {
            Right::Leased(keeper) => keeper.borrow().view(),
            Right::Fixed(_) => None,
        }
    }

    /// Takes the keeper's grant, and makes a generator of it.
    fn start(&mut self, layout: &Layout, now: &Now) -> Result<(), &'static str> {
        let Right::Leased(keeper) = &self.desk.right else { return Err("no-grant") };
        let grant = keeper.borrow_mut().take_grant(now.boot_ms).ok_or("no-grant")?;
        self.ticket = grant.ticket();
        let (ticket, floor_ms) = (grant.ticket(), grant.floor_ms());
        let ports = HostPorts { desk: Rc::clone(&self.desk), grant: Some(grant), ticket, floor_ms };
        self.minter = Minter::start(*layout, Policy::CLASSIC, ports).ok();
        Ok(())
    }
}

/// A clock that knows no more than that it is right to 2 ms: it is not told of its faults.
const CLOCK_ERROR_MS: u32 = 2;

/// 1 reserved, 41 timestamp, 1 region, 1 worker, 8 reserved, 12 sequence: few codes, so that they are fought for.
fn lanes_layout() -> Result<Layout, LayoutError> {
    let fields = [
        Field::new(Role::Reserved, 1),
        Field::new(Role::Timestamp, 41),
        Field::new(Role::Region, 1),
        Field::new(Role::Worker, 1),
        Field::new(Role::Reserved, 8),
        Field::new(Role::Sequence, 12),
    ];
    Layout::new(&fields, Layout::SNOWMINT.epoch_unix_ms(), NS_PER_MS)
}

fn milliseconds(us: u64) -> String {
    if us.is_multiple_of(1_000) {
        format!("{} ms", us / 1_000)
    } else {
        format!("{}.{} ms", us / 1_000, us % 1_000 / 100)
    }
}

/// What a notice says, in a few words; nothing of renewals, which come all the time.
fn told(notice: &Notice) -> Option<String> {
    Some(match notice {
        Notice::Granted { code, .. } => format!("is granted code {code}"),
        Notice::Renewed { .. } => return None,
        Notice::Unconfirmed { error, .. } => format!("a renewal is not confirmed: {error}"),
        Notice::Lapsed { .. } => String::from("its lease lapses: the ceiling is 0"),
        Notice::Resumed { .. } => String::from("its lease is confirmed again"),
        Notice::Lost { loss, .. } => format!("its grant is over: {loss}"),
        Notice::Released { .. } => String::from("gives its code back"),
        Notice::Unreleased { .. } => String::from("cannot give its code back: it will expire"),
        Notice::Hindered(Hindrance::NoneLeft(_)) => String::from("waits for a code: all are held"),
        Notice::Hindered(hindrance) => format!("has no code: {hindrance}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(fault: LaneFault, seed: u64) -> Lanes {
        let mut lanes = Lanes::new(seed);
        lanes.advance(3_000);
        assert_eq!(lanes.minting(), 3, "two of a region mint, and one elsewhere");
        lanes.inject(fault, 0);
        lanes.advance(EPISODE_MS);
        lanes
    }

    /// Every fault makes naive workers repeat IDs, and Snowmint none; and those who minted mint again.
    #[test]
    fn every_fault_shows_the_difference() {
        for fault in LaneFault::ALL {
            for seed in 0..20 {
                let lanes = after(fault, seed);
                let episode = lanes.episodes().last().unwrap();
                let name = fault.name();
                assert_eq!(lanes.duplicates(), 0, "{name}, seed {seed}");
                assert_eq!(episode.duplicates, 0, "{name}, seed {seed}");
                assert!(episode.naive_duplicates > 0, "{name}, seed {seed}: {episode:?}");
                assert_eq!(
                    lanes.naive_duplicates(),
                    episode.naive_duplicates,
                    "{name}: none before the fault"
                );
                assert!(episode.is_recovered, "{name}, seed {seed}: {episode:?}");
            }
        }
    }

    /// What is predicted is what happens, by the reasons of the refusals.
    #[test]
    fn predictions_hold() {
        let check = |fault: LaneFault, reason: &str, at_least_ms: u64, at_most_ms: u64| {
            for seed in 0..20 {
                let lanes = after(fault, seed);
                let refused_us = &lanes.episodes().last().unwrap().refused_us;
                let us = refused_us.get(reason).copied().unwrap_or(0);
                let range = at_least_ms * 1_000..=at_most_ms * 1_000;
                assert!(range.contains(&us), "{}, seed {seed}: {refused_us:?}", fault.name());
            }
        };
        check(LaneFault::Freeze, "exhausted", 900, 1_000);
        check(LaneFault::Back1, "clock-rolled-back", 0, 1);
        check(LaneFault::Back5, "clock-rolled-back", 4, 6);
        check(LaneFault::Back2000, "clock-rolled-back", 1_990, 2_001);
        check(LaneFault::Ahead8h, "ceiling", 1, 800);
        check(LaneFault::Exhaust, "exhausted", 30, 50);
        check(LaneFault::Pause, "lease-lost", 1, 7_000);
        check(LaneFault::Cut, "lease-lost", 4_000, 9_000);
        check(LaneFault::Lose, "no-grant", 1_000, 30_000);
    }

    /// The same seed and the same faults at the same moments are the same world, however time is cut up.
    #[test]
    fn runs_can_be_had_again() {
        let run = |parts: u64| {
            let mut lanes = Lanes::new(11);
            let mut log = Vec::new();
            for (nth, fault) in LaneFault::ALL.into_iter().enumerate() {
                for _ in 0..parts {
                    lanes.advance(1_200 / parts);
                }
                lanes.inject(fault, nth % 3);
                log.extend(lanes.take_lines());
            }
            let views: Vec<String> = lanes.views().map(|view| format!("{view:?}")).collect();
            (lanes.ids(), lanes.naive_duplicates(), log, views)
        };
        assert_eq!(run(1), run(12));
        assert_ne!(run(1).0, 0);
    }

    /// Faults upon faults, at any moment, on any lane: never a duplicate, and never a panic.
    #[test]
    fn faults_upon_faults() {
        for seed in 0..60 {
            let mut rng = Rng::new(seed);
            let mut lanes = Lanes::new(seed);
            for _ in 0..40 {
                lanes.advance_us(rng.skewed(1, 2_000_000));
                let fault = *rng.pick(&LaneFault::ALL).unwrap();
                lanes.inject(fault, usize::try_from(rng.below(5)).unwrap());
            }
            lanes.advance(EPISODE_MS);
            assert_eq!(lanes.duplicates(), 0, "seed {seed}");
            assert!(lanes.ids() > 10_000, "seed {seed}");
        }
    }

    #[test]
    fn names_are_their_faults() {
        for fault in LaneFault::ALL {
            assert_eq!(LaneFault::from_name(fault.name()), Some(fault));
            assert!(!fault.title().is_empty() && !fault.prediction().is_empty());
            assert!(!fault.naive_prediction().is_empty());
        }
        assert_eq!(LaneFault::from_name(""), None);
    }

    /// A world ends, and stays as it was.
    #[test]
    fn a_world_ends() {
        let mut lanes = Lanes::new(1);
        lanes.advance(u64::MAX / 2_000);
        assert!(lanes.is_over());
        let ids = lanes.ids();
        lanes.advance(10);
        assert_eq!(lanes.ids(), ids);
        assert_eq!((lanes.duplicates(), lanes.naive_duplicates()), (0, 0));
    }
}
