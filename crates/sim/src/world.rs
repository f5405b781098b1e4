//! The world: an ordered list of things to come, and what each does.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::num::NonZeroU32;
use std::rc::Rc;

use snowmint_core::mutation::{self, Mutation};
use snowmint_core::{AtomicGenerator, Bounds, Grant, Id, Layout, MintError, Minter, Refusal, Run};
use snowmint_lease::agreement::FRESH_PEERS_MIN;
use snowmint_lease::{
    ClusterRecord, CodeRecord, Event, Keeper, KeeperConfig, MemoryBackup, MemoryStore, Notice, Now, Owner,
    Phase, Reply, Request, RequestId, State, Stopped, Store, StoreError, Stored, Then, perform, store,
};

use crate::host::{Desk, Disk, Form, Host, HostPorts, Instance, LastSwap, Process, Right, Told};
use crate::ledger::{Ledger, Mint};
use crate::scenario::{BEGIN_MS, Clocks};
use crate::{Fault, Rng, Rule, Scenario, Shape, Summary, Violation, WallClock};

/// A clock that is further ahead than any other fault sets one.
const HOURS_AHEAD_MS: u64 = 6 * 3_600_000;

/// How many backups a region keeps.
const BACKUPS_MAX: usize = 3;

/// One line of the time line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// When, in microseconds of true time since the world began.
    pub at_us: u64,
    /// Whom it happened to.
    pub who: String,
    /// What happened.
    pub text: String,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>7}.{:03} ms  {:<10} {}", self.at_us / 1_000, self.at_us % 1_000, self.who, self.text)
    }
}

/// A machine at one moment: to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its region.
    pub region: u32,
    /// What its wall clock shows, in Unix milliseconds.
    pub wall_ms: u64,
    /// Whether it has a process that does not stand still.
    pub is_running: bool,
    /// What its keeper is doing, if it leases.
    pub phase: Option<Phase>,
    /// The code that it mints with.
    pub code: Option<u32>,
}

/// A call that was held up between the check of its bounds and what it does by them.
#[derive(Clone, Debug)]
struct Flight {
    instance: Rc<Instance>,
    now_ms: u64,
    bounds: Bounds,
    want: NonZeroU32,
    /// An ID that is observed by the same old bounds first.
    observe: Option<Id>,
}

#[derive(Clone, Debug)]
enum Coming {
    Wake { host: usize, life: u32 },
    Arrive { host: usize, life: u32, id: RequestId, request: Box<Request> },
    Reply { host: usize, life: u32, id: RequestId, reply: Box<Reply> },
    Mint { host: usize, life: u32 },
    Issue { host: usize, life: u32, flight: Box<Flight> },
    Synced { host: usize, until_ms: u64 },
    Begin { host: usize },
    Fault,
    Repair { region: usize },
    Plan { region: usize },
    Scan { region: usize },
    Open { region: usize },
}

impl Coming {
    /// The process that it is for, which may stand still.
    const fn host(&self) -> Option<usize> {
        match self {
            Self::Wake { host, .. }
            | Self::Reply { host, .. }
            | Self::Mint { host, .. }
            | Self::Issue { host, .. } => Some(*host),
            _ => None,
        }
    }
}

/// First what comes first; of what comes at once, what was planned first.
struct Planned {
    at_us: u64,
    order: u64,
    coming: Coming,
}

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Planned {}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Planned {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at_us, other.order).cmp(&(self.at_us, self.order))
    }
}

/// A region: its store, and what befalls it.
struct Region {
    number: u32,
    store: MemoryStore,
    backups: Vec<MemoryBackup>,
    /// The generation that an operator knows of, whatever a backup says.
    generation: u16,
    error: Option<(u64, StoreError)>,
    cut_until_us: u64,
}

/// A simulated world. [`World::step`] does the next thing; nothing happens by itself, and no time passes but its own.
pub struct World {
    scenario: Scenario,
    rng: Rng,
    now_us: u64,
    order: u64,
    planned: BinaryHeap<Planned>,
    regions: Vec<Region>,
    hosts: Vec<Host>,
    ledger: Ledger,
    lines: Option<Vec<Line>>,
}

impl World {
    /// The world of a scenario, at its beginning.
    pub fn new(scenario: Scenario) -> Self {
        let rng = Rng::new(scenario.seed);
        let mut world = Self {
            scenario,
            rng,
            now_us: 0,
            order: 0,
            planned: BinaryHeap::new(),
            regions: Vec::new(),
            hosts: Vec::new(),
            ledger: Ledger::default(),
            lines: None,
        };
        world.ledger.summary.worlds = 1;
        world.ledger.has_cutover = world.scenario.next_layout.is_some();
        for region in 0..world.scenario.regions {
            world.found(region);
        }
        for region in 0..world.scenario.regions {
            for number in 0..world.scenario.leased {
                world.settle(region, format!("r{region}w{number}"), None);
            }
        }
        for code in 0..world.scenario.fixed {
            let disk = Disk { is_slow: world.rng.chance(500), ..Disk::default() };
            world.settle(world.scenario.regions, format!("fixed{code}"), Some((code, Rc::new(disk))));
        }
        if world.scenario.fault_every_ms > 0 {
            world.plan_fault();
        }
        if world.scenario.next_layout.is_some() {
            for region in 0..world.regions.len() {
                let at_us = world.run_us() * 2 / 5;
                world.plan(at_us, Coming::Plan { region });
            }
        }
        world
    }

    /// From now on keeps a time line, to be taken by [`World::take_lines`].
    pub fn record(&mut self) {
        self.lines.get_or_insert_default();
    }

    /// From now on stops for this rule alone: to see, with a rule of the system broken, what comes of it.
    pub fn heed(&mut self, rule: Rule) {
        self.ledger.heeded = Some(rule);
    }

    /// The lines of the time line since they were last taken.
    pub fn take_lines(&mut self) -> Vec<Line> {
        self.lines.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The scenario.
    pub const fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// Microseconds of true time since the world began.
    pub const fn now_us(&self) -> u64 {
        self.now_us
    }

    /// What came of it so far.
    pub const fn summary(&self) -> &Summary {
        &self.ledger.summary
    }

    /// The rule that was broken, if one was.
    pub const fn violation(&self) -> Option<&Violation> {
        self.ledger.violation.as_ref()
    }

    /// Does the next thing. `false`: the world is over, or a rule was broken.
    pub fn step(&mut self) -> bool {
        if self.ledger.violation.is_some() {
            return false;
        }
        let Some(Planned { at_us, coming, .. }) = self.planned.pop() else { return false };
        if at_us >= self.run_us() {
            self.ledger.summary.simulated_ms = self.scenario.run_ms;
            return false;
        }
        self.now_us = at_us;
        self.ledger.summary.events += 1;
        self.ledger.summary.simulated_ms = at_us / 1_000;
        let paused_until_us =
            coming.host().and_then(|host| self.hosts.get(host)).map_or(0, |host| host.paused_until_us);
        if paused_until_us > at_us {
            self.plan(paused_until_us, coming);
        } else {
            self.happen(coming);
        }
        true
    }

    /// Does all that is to come before this moment, in milliseconds since the world began.
    pub fn run_until(&mut self, until_ms: u64) {
        while self.planned.peek().is_some_and(|next| next.at_us < until_ms * 1_000) && self.step() {}
    }

    /// Does all that is left to do.
    pub fn run(&mut self) {
        while self.step() {}
    }

    /// Cuts a region off its lease store, from now on for this long.
    pub fn cut_region(&mut self, region: u32, for_ms: u64) {
        let until_us = self.now_us + for_ms * 1_000;
        if let Some(region) = self.regions.iter_mut().find(|it| it.number == region) {
            region.cut_until_us = until_us;
        }
    }

    /// From now on counts every refusal but a full tick to a region's workers as a fault ([`Rule::Available`]).
    pub fn must_mint(&mut self, region: u32) {
        self.set_must_mint(region, true);
    }

    /// From now on counts no refusal as a fault.
    pub fn may_refuse(&mut self, region: u32) {
        self.set_must_mint(region, false);
    }

    fn set_must_mint(&mut self, region: u32, must_mint: bool) {
        for host in self.hosts.iter_mut().filter(|host| host.region == region) {
            host.must_mint = must_mint;
        }
    }

    /// Every machine, as it is now. A clone is one more.
    pub fn machines(&self) -> impl Iterator<Item = Machine<'_>> {
        self.hosts.iter().map(|host| {
            let process = host.process.as_ref();
            let phase = process.and_then(|process| match &process.desk.right {
                Right::Leased(keeper) => Some(keeper.borrow().phase(host.boot_ms(self.now_us))),
                Right::Fixed(_) => None,
            });
            Machine {
                name: &host.name,
                region: host.region,
                wall_ms: host.clock.now_ms(self.now_us),
                is_running: process.is_some() && host.paused_until_us <= self.now_us,
                phase,
                code: process.and_then(|process| Some(process.instance.as_ref()?.code)),
            }
        })
    }

    /// How many codes of a region any grant may stamp above this Unix millisecond with.
    pub fn codes_above(&self, region: u32, ms: u64) -> usize {
        self.ledger.codes_above(region, ms)
    }

    /// How far any grant of a region reaches, in Unix milliseconds.
    pub fn reach_ms(&self, region: u32) -> u64 {
        self.ledger.reach_ms(region)
    }

    const fn run_us(&self) -> u64 {
        self.scenario.run_ms * 1_000
    }

    fn plan(&mut self, at_us: u64, coming: Coming) {
        self.order += 1;
        self.planned.push(Planned { at_us, order: self.order, coming });
    }

    fn note(&mut self, who: &str, text: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(Line { at_us: self.now_us, who: who.to_owned(), text: text() });
        }
    }

    fn note_host(&mut self, host: usize, text: impl FnOnce() -> String) {
        if self.lines.is_some() {
            let name = self.hosts.get(host).map(|host| host.name.clone()).unwrap_or_default();
            self.note(&name, text);
        }
    }

    // Founding.

    fn found(&mut self, number: u32) {
        let store = MemoryStore::new();
        if let Ok(cluster) = ClusterRecord::new(self.rng.nonce(), self.scenario.layout, number) {
            // A store in memory that is empty cannot refuse.
            let _ = store::init(&store, &cluster);
        }
        let backups = vec![store.backup()];
        self.regions.push(Region { number, store, backups, generation: 1, error: None, cut_until_us: 0 });
    }

    fn settle(&mut self, region: u32, name: String, fixed: Option<(u32, Rc<Disk>)>) {
        let run_us = self.run_us();
        let clock = match &self.scenario.clocks {
            Clocks::Random => WallClock::random(BEGIN_MS, run_us, &mut self.rng),
            Clocks::All(shape) => {
                WallClock { shape: shape.clone(), is_honest: false, ..WallClock::steady(BEGIN_MS) }
            }
            Clocks::OneSet(step) => {
                let is_first = fixed.is_none() && !self.hosts.iter().any(|host| host.region == region);
                let steps = if is_first { vec![*step] } else { Vec::new() };
                WallClock {
                    shape: Shape::Stepping { steps },
                    is_honest: false,
                    ..WallClock::steady(BEGIN_MS)
                }
            }
        };
        let host = Host {
            name,
            region,
            layout: self.scenario.layout,
            clock,
            boot_us: self.rng.below(1 << 40),
            fixed,
            life: 0,
            process: None,
            paused_until_us: 0,
            cut_until_us: 0,
            is_lazy: self.rng.chance(300),
            is_shared: self.rng.chance(500),
            must_mint: false,
        };
        self.hosts.push(host);
        let at_us = self.rng.below(u64::from(self.scenario.window_ms) * 500);
        self.plan(at_us, Coming::Begin { host: self.hosts.len() - 1 });
    }

    // What happens.

    fn happen(&mut self, coming: Coming) {
        match coming {
            Coming::Wake { host, life } if self.lives(host, life) => {
                if let Some(process) = self.process(host) {
                    process.wake_us = u64::MAX;
                }
                self.tell(host, Event::Time);
            }
            Coming::Arrive { host, life, id, request } => self.arrive(host, life, id, &request),
            Coming::Reply { host, life, id, reply } if self.lives(host, life) => self.reply(host, id, *reply),
            Coming::Mint { host, life } if self.lives(host, life) => self.serve(host),
            Coming::Issue { host, life, flight } if self.lives(host, life) => self.land(host, &flight),
            Coming::Synced { host, until_ms } => {
                if let Some((_, disk)) = self.hosts.get(host).and_then(|host| host.fixed.as_ref()) {
                    disk.durable_ms.set(disk.durable_ms.get().max(Some(until_ms)));
                }
            }
            Coming::Begin { host } => self.begin(host),
            Coming::Fault => {
                self.fault();
                self.plan_fault();
            }
            Coming::Repair { region } => self.restore(region),
            Coming::Plan { region } => self.plan_cutover(region),
            Coming::Scan { region } => self.scan_cutover(region),
            Coming::Open { region } => self.open_cutover(region),
            // Meant for a process that is gone.
            Coming::Wake { .. } | Coming::Reply { .. } | Coming::Mint { .. } | Coming::Issue { .. } => {}
        }
    }

    fn lives(&self, host: usize, life: u32) -> bool {
        self.hosts.get(host).is_some_and(|host| host.life == life && host.process.is_some())
    }

    fn process(&mut self, host: usize) -> Option<&mut Process> {
        self.hosts.get_mut(host)?.process.as_mut()
    }

    fn now_of(&self, host: usize) -> Now {
        let dead = Now { boot_ms: 0, wall_ms: 0, clock_error_ms: u32::MAX };
        self.hosts.get(host).map_or(dead, |host| host.now(self.now_us))
    }

    /// A process begins.
    fn begin(&mut self, at: usize) {
        let window_ms = self.scenario.window_ms;
        let lead_ms = self.scenario.policy.lead_ms;
        let clock_error_ms_max = self.scenario.policy.clock_error_ms_max;
        let nonce = self.rng.nonce();
        let Some(host) = self.hosts.get_mut(at) else { return };
        if host.process.is_some() {
            return;
        }
        let right = if let Some((_, disk)) = &host.fixed {
            Right::Fixed(Rc::clone(disk))
        } else {
            let Ok(owner) = Owner::new(host.name.clone()) else { return };
            let config = KeeperConfig {
                window_ms,
                lead_ms,
                clock_error_ms_max,
                compares_clocks: self.scenario.compares_clocks,
                ..KeeperConfig::embedded(host.layout, host.region, owner)
            };
            let Ok(keeper) = Keeper::new(config) else { return };
            Right::Leased(Box::new(RefCell::new(keeper)))
        };
        host.life += 1;
        let life = host.life;
        let desk = Desk {
            right,
            now_ms: Cell::new(0),
            clock_error_ms: Cell::new(0),
            boot_ms: Cell::new(0),
            told_error_ms: Cell::new(None),
        };
        host.process = Some(Process {
            layout: host.layout,
            desk: Rc::new(desk),
            instance: None,
            waiting: None,
            nonce,
            told: Vec::new(),
            last_swap: None,
            scanned: Vec::new(),
            generation: None,
            has_right_peers: false,
            standing: None,
            wake_us: u64::MAX,
            emitted_ms: None,
            run_ms: None,
        });
        let is_leased = host.fixed.is_none();
        self.note_host(at, || String::from("begins"));
        if is_leased {
            self.tell(at, Event::Time);
        }
        let delay_us = self.rng.below(self.scenario.load.every_us + 1);
        self.plan(self.now_us + delay_us, Coming::Mint { host: at, life });
    }

    /// A process ends, and another begins after a while.
    fn end(&mut self, at: usize, pause_us: u64) {
        if let Some(host) = self.hosts.get_mut(at) {
            host.process = None;
            host.paused_until_us = 0;
        }
        self.plan(self.now_us + pause_us, Coming::Begin { host: at });
    }

    // The keeper.

    fn tell(&mut self, at: usize, event: Event) {
        let now = self.now_of(at);
        let fresh = self.rng.nonce();
        let window_ms = u64::from(self.scenario.window_ms);
        let keeps_told = self.scenario.faults.contains(&Fault::Clone);
        let (Some(host), now_us) = (self.hosts.get_mut(at), self.now_us) else { return };
        let (is_lazy, life, boot_us) = (host.is_lazy, host.life, host.boot_us);
        let Some(process) = &mut host.process else { return };
        let nonce = if mutation::active(Mutation::NoncePerProcess) { process.nonce } else { fresh };
        if keeps_told {
            process.told.push(Told::Event(event.clone(), now, nonce));
        }
        match &event {
            // The keeper gives a request up by the same sum.
            Event::Time => {
                process.standing.take_if(|(_, sent_ms)| now.boot_ms >= *sent_ms + window_ms / 3);
            }
            Event::Reply { id, .. } => {
                process.standing.take_if(|(standing, _)| standing == id);
            }
            Event::Release { .. } => process.standing = None,
        }
        let desk = Rc::clone(&process.desk);
        let Right::Leased(keeper) = &desk.right else { return };
        let output = keeper.borrow_mut().handle(event, &now, nonce);
        if let Some((id, _)) = &output.request {
            process.standing = Some((*id, now.boot_ms));
        }
        let wake_boot_ms = keeper.borrow().next_wake_boot_ms();
        let wake_us = wake_boot_ms.saturating_mul(1_000).saturating_sub(boot_us).max(now_us);
        let wakes = wake_boot_ms != u64::MAX && wake_us < process.wake_us;
        if wakes {
            process.wake_us = wake_us;
        }
        for notice in &output.notices {
            self.note_host(at, || shown(notice));
        }
        if !is_lazy {
            self.take(at);
        }
        if wakes {
            self.plan(wake_us, Coming::Wake { host: at, life });
        }
        if let Some((id, request)) = output.request {
            self.send(at, id, request);
        }
        if keeper.borrow().phase(now.boot_ms) == Phase::Ended {
            self.note_host(at, || String::from("ends"));
            let pause_us = self.rng.skewed(0, 2 * window_ms * 1_000);
            self.end(at, pause_us);
        }
    }

    /// Takes the keeper's grant, if there is one.
    fn take(&mut self, at: usize) {
        let keeps_told = self.scenario.faults.contains(&Fault::Clone);
        let (Some(host), now_us) = (self.hosts.get_mut(at), self.now_us) else { return };
        let (boot_ms, region) = (host.boot_ms(now_us), host.region);
        let Some(process) = &mut host.process else { return };
        let Right::Leased(keeper) = &process.desk.right else { return };
        let Some(grant) = keeper.borrow_mut().take_grant(boot_ms) else { return };
        if keeps_told {
            process.told.push(Told::Take(boot_ms));
        }
        self.ledger.taken(now_us, region, grant.ticket());
        process.waiting = Some(grant);
    }

    fn send(&mut self, at: usize, id: RequestId, mut request: Request) {
        let mut held_up_us = 0;
        let (Some(host), now_us) = (self.hosts.get_mut(at), self.now_us) else { return };
        let (life, boot_ms) = (host.life, host.boot_ms(now_us));
        let Some(process) = &mut host.process else { return };
        let Right::Leased(keeper) = &process.desk.right else { return };
        if let Request::Swap { code, record, .. } = &mut request {
            let keeper = keeper.borrow();
            let is_acquire = keeper.phase(boot_ms) == Phase::Acquiring;
            if mutation::active(Mutation::ClockReadTwice) && is_acquire {
                // The end that is written comes from a second reading, after whatever held the process up.
                held_up_us = self.rng.below(1_000_000);
                let again_ms = host.clock.now_ms(now_us + held_up_us);
                record.end_ms = (again_ms + u64::from(self.scenario.window_ms)).max(record.floor_ms);
            }
            let held = keeper.view().map(|view| view.ticket);
            let ticket = match keeper.cluster() {
                Some(cluster) if held.is_none() => cluster.ticket(*code, record.term),
                _ => held.unwrap_or(0),
            };
            process.last_swap = Some(LastSwap { code: *code, ticket, end_ms: record.end_ms });
            let hours_ahead_ms = BEGIN_MS + now_us / 1_000 + HOURS_AHEAD_MS;
            let is_ahead = host.clock.now_ms(now_us) > hours_ahead_ms && record.end_ms > hours_ahead_ms;
            let end_before_ms = keeper.view().map_or(0, |view| view.end_ms);
            if is_ahead
                && record.state == State::Active
                && record.end_ms > end_before_ms
                && process.has_right_peers
            {
                self.ledger.violate(Rule::Agreement, now_us, || {
                    format!(
                        "{}: code {code} is raised to {} by a clock hours ahead",
                        host.name, record.end_ms
                    )
                });
            }
        }
        if self.lines.is_some() && matches!(request, Request::Swap { .. }) {
            let text = request_shown(&request);
            self.note_host(at, || format!("sends {text}"));
        }
        let Some(way_us) = self.way(at) else {
            self.note_host(at, || String::from("its request is lost"));
            return;
        };
        let at_us = self.now_us + held_up_us + way_us;
        self.plan(at_us, Coming::Arrive { host: at, life, id, request: Box::new(request) });
    }

    /// How long a message takes between a host and its store; `None`: for ever.
    fn way(&mut self, at: usize) -> Option<u64> {
        if self.is_cut(at) {
            return None;
        }
        let network = self.scenario.network;
        if self.rng.chance(network.lost_per_mille) {
            return None;
        }
        if self.rng.chance(network.late_per_mille) {
            return Some(self.rng.skewed(network.way_us_max, u64::from(self.scenario.window_ms) * 4_000));
        }
        Some(self.rng.between(network.way_us_min, network.way_us_max))
    }

    fn is_cut(&self, at: usize) -> bool {
        let Some(host) = self.hosts.get(at) else { return true };
        let region = self.regions.iter().find(|region| region.number == host.region);
        host.cut_until_us > self.now_us || region.is_none_or(|region| region.cut_until_us > self.now_us)
    }

    /// A request reaches the store, perhaps long after its sender is gone.
    fn arrive(&mut self, at: usize, life: u32, id: RequestId, request: &Request) {
        if self.is_cut(at) {
            return;
        }
        let (now_us, window_ms) = (self.now_us, self.scenario.window_ms);
        let Some(number) = self.hosts.get(at).map(|host| host.region) else { return };
        let Some(region) = self.regions.iter_mut().find(|region| region.number == number) else { return };
        let error = region.error.as_ref().filter(|(until_us, _)| *until_us > now_us);
        let reply = if let Some((_, error)) = error {
            Reply::Failed(error.clone())
        } else if let Request::Swap { code, record, .. } = request {
            let (before, cluster) = (region.store.read(*code), region.store.cluster());
            let reply = perform(&region.store, request);
            if let (Ok(before), Ok(cluster), Reply::Swapped(_)) = (before, cluster, &reply) {
                let (before, cluster) = (before.record, cluster.record);
                let ticket = cluster.ticket(*code, record.term);
                let place = (number, *code);
                self.ledger.swapped(now_us, &cluster.layout, place, ticket, window_ms, &before, record);
                self.note("store", || {
                    let owner = record.owner.as_ref().map_or("nobody", Owner::as_str);
                    format!(
                        "code {code} of region {number}: {} to {} at term {}, ({}, {}], {owner}",
                        before.state, record.state, record.term, record.floor_ms, record.end_ms
                    )
                });
            }
            reply
        } else {
            perform(&region.store, request)
        };
        let times = if self.rng.chance(self.scenario.network.doubled_per_mille) { 2 } else { 1 };
        for _ in 0..times {
            if let Some(way_us) = self.way(at) {
                let reply = Box::new(reply.clone());
                self.plan(now_us + way_us, Coming::Reply { host: at, life, id, reply });
            }
        }
    }

    fn reply(&mut self, at: usize, id: RequestId, reply: Reply) {
        // What is asked for cannot be looked at in the keeper; what must come of some replies can.
        let ends = match &reply {
            Reply::Failed(error) if is_definite(error) => Some(Rule::StoreErrorEnds),
            Reply::Cluster(_) => Some(Rule::GenerationEnds),
            _ => None,
        };
        let Some(host) = self.hosts.get_mut(at) else { return };
        let (boot_ms, region) = (host.boot_ms(self.now_us), host.region);
        let Some(process) = &host.process else { return };
        let desk = Rc::clone(&process.desk);
        let Right::Leased(keeper) = &desk.right else { return };
        let is_standing = process.standing.is_some_and(|(standing, _)| standing == id);
        let held = keeper.borrow().view();
        match &reply {
            Reply::Scan(codes) if is_standing => self.look_at_peers(at, codes),
            Reply::Cluster(stored) if is_standing => self.look_at_generation(at, stored.record.generation),
            _ => {}
        }
        let generation = match &reply {
            Reply::Cluster(stored) => Some(u64::from(stored.record.generation)),
            _ => None,
        };
        self.tell(at, Event::Reply { id, reply });
        if let (Some(rule), Some(view), true) = (ends, held, is_standing) {
            let is_newer = generation.is_some_and(|generation| generation != view.ticket >> 48);
            if rule == Rule::StoreErrorEnds || is_newer {
                self.ledger.over(region, view.ticket, rule);
                if keeper.borrow().ceiling_ms(view.ticket, boot_ms) > 0 {
                    self.ledger.violate(rule, self.now_us, || format!("ticket {:x} goes on", view.ticket));
                }
            }
        }
    }

    /// A store that was put back shows writes of long ago: what was scanned before tells nothing.
    fn look_at_generation(&mut self, at: usize, generation: u16) {
        let Some(process) = self.process(at) else { return };
        if process.generation.replace(generation).is_some_and(|before| before != generation) {
            process.scanned.clear();
            process.has_right_peers = false;
        }
    }

    /// What a scan tells of a keeper's peers, as only the world can judge it.
    fn look_at_peers(&mut self, at: usize, codes: &[(u32, Stored<CodeRecord>)]) {
        let clock_error_ms_max = self.scenario.policy.clock_error_ms_max;
        let is_compared = self.scenario.compares_clocks;
        let true_ms = BEGIN_MS + self.now_us / 1_000;
        let Some(process) = self.process(at) else { return };
        let Right::Leased(keeper) = &process.desk.right else { return };
        let own = keeper.borrow().config().owner.clone();
        let mut peers = BTreeMap::new();
        for (code, Stored { record, revision }) in codes {
            let is_fresh = process.scanned.iter().any(|(other, before)| other == code && before != revision);
            let is_known = record.clock_error_ms != u32::MAX && record.clock_error_ms <= clock_error_ms_max;
            if let Some(owner) = &record.owner
                && is_fresh
                && is_known
                && record.state == State::Active
                && *owner != own
            {
                let is_right = record.stamp_ms.abs_diff(true_ms) < HOURS_AHEAD_MS / 2;
                *peers.entry(owner.clone()).or_insert(true) &= is_right;
            }
        }
        let right = peers.values().filter(|is_right| **is_right).count();
        process.has_right_peers = is_compared && right >= FRESH_PEERS_MIN && right * 2 > peers.len();
        process.scanned = codes.iter().map(|(code, stored)| (*code, stored.revision)).collect();
    }

    // The generator.

    /// A worker is asked for IDs.
    fn serve(&mut self, at: usize) {
        let load = self.scenario.load;
        let runs = if load.is_even { load.runs } else { 1 + self.draw(load.runs) };
        for _ in 0..runs {
            let ids = if load.is_even { load.ids_max } else { 1 + self.draw(load.ids_max) };
            let Some(want) = NonZeroU32::new(ids) else { break };
            if let Err(reason) = self.mint(at, want) {
                let must_mint = self.hosts.get(at).is_some_and(|host| host.must_mint);
                if must_mint && reason != "exhausted" {
                    self.ledger.violate(Rule::Available, self.now_us, || format!("refused: {reason}"));
                }
                break;
            }
        }
        let sync_us = self.rng.skewed(100, 4_000_000);
        let Some(host) = self.hosts.get_mut(at) else { return };
        let life = host.life;
        if let Some(until_ms) = host.fixed.as_ref().and_then(|(_, disk)| disk.wanted_ms.take()) {
            self.plan(self.now_us + sync_us, Coming::Synced { host: at, until_ms });
        }
        self.plan(self.now_us + load.every_us, Coming::Mint { host: at, life });
    }

    fn draw(&mut self, end: u32) -> u32 {
        u32::try_from(self.rng.below(u64::from(end))).unwrap_or(0)
    }

    fn mint(&mut self, at: usize, want: NonZeroU32) -> Result<(), &'static str> {
        let Some(instance) = self.instance(at) else {
            self.ledger.refused_for("no-grant");
            return Err("no-grant");
        };
        let now = self.now_of(at);
        let bounds = self.bounds(at, &instance, &now);
        if self.rng.chance(self.scenario.observe_per_mille) {
            self.observe(at, &instance, &now, &bounds);
        }
        if self.rng.chance(self.scenario.held_up_per_mille) {
            let flight = Flight { instance, now_ms: now.wall_ms, bounds, want, observe: None };
            self.hold_up(at, flight);
            return Ok(());
        }
        let result = self.issue(at, &instance, now.wall_ms, &now, &bounds, want);
        if result == Err(Refusal::LeaseLost) {
            // A new grant is a new generator.
            if self.hosts.get(at).is_some_and(|host| host.is_lazy) {
                self.take(at);
            }
            if let Some(process) = self.process(at)
                && process.waiting.is_some()
            {
                process.instance = None;
            }
        }
        result.map_err(Refusal::reason)
    }

    /// A thread stands still between the check of its bounds and what it does by them.
    fn hold_up(&mut self, at: usize, flight: Flight) {
        let Some(life) = self.hosts.get(at).map(|host| host.life) else { return };
        let for_us = self.rng.skewed(1, u64::from(self.scenario.window_ms) * 8_000);
        self.plan(self.now_us + for_us, Coming::Issue { host: at, life, flight: Box::new(flight) });
    }

    /// It goes on.
    fn land(&mut self, at: usize, flight: &Flight) {
        let now = self.now_of(at);
        if let (Some(id), Form::Shared(generator)) = (flight.observe, &flight.instance.form)
            && generator.observe(id, flight.now_ms, flight.bounds.ceiling_ms).is_ok()
        {
            self.ledger.observed(flight.instance.id, id.get());
        }
        let result = self.issue(at, &flight.instance, flight.now_ms, &now, &flight.bounds, flight.want);
        self.note_host(at, || {
            let what = result.map_or_else(Refusal::reason, |()| "issued");
            format!("a thread goes on that read {} at its clock: {what}", flight.now_ms)
        });
    }

    /// What bounds a mint now. The ledger looks at the ceiling, whoever goes by it.
    fn bounds(&mut self, at: usize, instance: &Instance, now: &Now) -> Bounds {
        let open = Bounds { clock_error_ms: now.clock_error_ms, ..Bounds::OPEN };
        let Some(host) = self.hosts.get(at) else { return open };
        let Some(process) = &host.process else { return open };
        let Right::Leased(keeper) = &process.desk.right else { return open };
        let keeper = keeper.borrow();
        let ceiling_ms = keeper.ceiling_ms(instance.ticket, now.boot_ms);
        let mark_ms = keeper.view().map_or(0, |view| view.end_ms);
        if ceiling_ms > 0 {
            self.ledger.ceiling(self.now_us, host.region, instance.ticket, ceiling_ms);
        }
        Bounds { ceiling_ms, mark_ms, ..open }
    }

    fn issue(
        &mut self,
        at: usize,
        instance: &Instance,
        now_ms: u64,
        now: &Now,
        bounds: &Bounds,
        want: NonZeroU32,
    ) -> Result<(), Refusal> {
        let mut clock_error_ms = 0;
        let result = match &instance.form {
            Form::Shared(generator) => {
                clock_error_ms = bounds.clock_error_ms;
                generator.mint(now_ms, bounds, want)
            }
            Form::One(minter) => {
                let mut minter = minter.borrow_mut();
                let desk = Rc::clone(&minter.ports_mut().desk);
                desk.now_ms.set(now_ms);
                desk.clock_error_ms.set(now.clock_error_ms);
                desk.boot_ms.set(now.boot_ms);
                desk.told_error_ms.set(None);
                let result = minter.mint(want.get());
                clock_error_ms = desk.told_error_ms.get().unwrap_or(clock_error_ms);
                result.map_err(|error| match error {
                    MintError::Refused(refusal) => refusal,
                    // It was not asked for none.
                    MintError::ZeroCount => Refusal::Stopped,
                })
            }
        };
        match &result {
            Ok(run) => {
                let mint = Mint { at_us: self.now_us, now_ms, clock_error_ms };
                let stamp_ms = self.ledger.issued(instance.id, run, &mint);
                self.note_host(at, || run_shown(run, stamp_ms));
                if let Some(process) = self.process(at) {
                    process.emitted_ms = process.run_ms;
                    process.run_ms = Some(stamp_ms);
                }
            }
            Err(refusal) => {
                self.ledger.refused(refusal);
                self.note_host(at, || format!("refuses: {}", refusal.reason()));
            }
        }
        result.map(|_| ())
    }

    /// Makes an ID of somebody else, or a damaged one, a thing of the past.
    fn observe(&mut self, at: usize, instance: &Rc<Instance>, now: &Now, bounds: &Bounds) {
        let Some(id) = self.somebodys_id(at, instance) else { return };
        let id = Id::new(match self.rng.below(10) {
            // Rounded as JavaScript does, or of a clock that is ahead.
            0 => id.wrapping_add(self.rng.skewed(1, 1 << 40)) & (u64::MAX >> 1),
            1 => id & !0x3ff,
            _ => id,
        });
        match &instance.form {
            Form::Shared(generator) => {
                if generator.observe(id, now.wall_ms, bounds.ceiling_ms).is_ok() {
                    self.ledger.observed(instance.id, id.get());
                }
            }
            Form::One(minter) => {
                let mut minter = minter.borrow_mut();
                let desk = Rc::clone(&minter.ports_mut().desk);
                desk.now_ms.set(now.wall_ms);
                desk.boot_ms.set(now.boot_ms);
                let before = minter.generator().last_reserved_ms();
                match minter.observe(id) {
                    Ok(()) => self.ledger.observed(instance.id, id.get()),
                    Err(error) if minter.generator().last_reserved_ms() != before => {
                        self.ledger.violate(Rule::Observed, self.now_us, || {
                            format!("{id} was refused ({error}), and moved the cursor all the same")
                        });
                    }
                    Err(_) => {}
                }
            }
        }
    }

    fn somebodys_id(&mut self, at: usize, instance: &Rc<Instance>) -> Option<u64> {
        let other = usize::try_from(self.rng.below(self.hosts.len() as u64)).ok()?;
        let id = if other == at {
            instance.id
        } else {
            self.hosts.get(other)?.process.as_ref()?.instance.as_ref()?.id
        };
        self.ledger.last_id_of(id)
    }

    /// The generator to mint by, made where there is a grant for one.
    fn instance(&mut self, at: usize) -> Option<Rc<Instance>> {
        let host = self.hosts.get(at)?;
        let process = host.process.as_ref()?;
        if let Some(instance) = &process.instance {
            return Some(Rc::clone(instance));
        }
        if host.is_lazy {
            self.take(at);
        }
        let host = self.hosts.get_mut(at)?;
        let process = host.process.as_mut()?;
        let layout = process.layout;
        let grant = if let Some((code, _)) = &host.fixed {
            // Every life of a fixed node has the same right; the mark alone tells them apart.
            Grant::new(
                layout.node(host.region, *code).ok()?,
                u64::from(host.life) << 32 | u64::from(*code),
                0,
            )
        } else {
            process.waiting.take()?
        };
        let desk = Rc::clone(&process.desk);
        let is_shared = host.is_shared && host.fixed.is_none();
        let place = (host.region, grant.node().worker());
        let is_fixed = host.fixed.is_some();
        let instance = self.make(&desk, &layout, grant, place, is_shared, is_fixed)?;
        self.note_host(at, || {
            format!("a generator for code {}, ticket {:x}", instance.code, instance.ticket)
        });
        self.process(at)?.instance = Some(Rc::clone(&instance));
        Some(instance)
    }

    fn make(
        &mut self,
        desk: &Rc<Desk>,
        layout: &Layout,
        grant: Grant,
        place: (u32, u32),
        is_shared: bool,
        is_fixed: bool,
    ) -> Option<Rc<Instance>> {
        let policy = self.scenario.policy;
        let (ticket, floor_ms) = (grant.ticket(), grant.floor_ms());
        let id = self.ledger.begin(layout, place, ticket, floor_ms, &policy, is_fixed);
        let form = if is_shared {
            Form::Shared(Box::new(AtomicGenerator::new(*layout, grant, policy).ok()?))
        } else {
            let ports = HostPorts { desk: Rc::clone(desk), grant: Some(grant), ticket, floor_ms };
            Form::One(Box::new(RefCell::new(Minter::start(*layout, policy, ports).ok()?)))
        };
        Some(Rc::new(Instance { form, id, ticket, code: place.1, floor_ms }))
    }

    /// Stops the generator and gives the code back.
    fn release(&mut self, at: usize, then: Then) {
        let now = self.now_of(at);
        let Some(host) = self.hosts.get(at) else { return };
        if host.fixed.is_some() || host.paused_until_us > self.now_us {
            return;
        }
        let Some(process) = &host.process else { return };
        let Some(instance) = process.instance.clone() else {
            self.tell(at, Event::Release { stopped: None, then });
            return;
        };
        let emitted_ms = process.emitted_ms.unwrap_or(instance.floor_ms);
        if self.rng.chance(700) {
            // A thread that has checked its bounds before the stop, and goes on after it.
            let bounds = self.bounds(at, &instance, &now);
            let observe = self.somebodys_id(at, &instance).map(Id::new);
            let flight = Flight {
                instance: Rc::clone(&instance),
                now_ms: now.wall_ms,
                bounds,
                want: NonZeroU32::MIN,
                observe,
            };
            self.hold_up(at, flight);
        }
        let last_reserved_ms = match &instance.form {
            Form::Shared(generator) => generator.stop(),
            Form::One(minter) => minter.borrow_mut().stop(),
        };
        self.ledger.stopped(instance.id);
        let last_reserved_ms = if mutation::active(Mutation::ReleaseAtEmitted) {
            last_reserved_ms.map(|last_ms| last_ms.min(emitted_ms))
        } else {
            last_reserved_ms
        };
        if let Some(process) = self.process(at) {
            process.instance = None;
            process.emitted_ms = None;
            process.run_ms = None;
        }
        let ticket = instance.ticket;
        let stopped = last_reserved_ms.map(|last_reserved_ms| Stopped { ticket, last_reserved_ms });
        self.note_host(at, || format!("stops, having reserved up to {}", last_reserved_ms.unwrap_or(0)));
        self.tell(at, Event::Release { stopped, then });
    }

    // Faults.

    fn plan_fault(&mut self) {
        let at_us = self.now_us + 1 + self.rng.below(self.scenario.fault_every_ms * 2_000);
        self.plan(at_us, Coming::Fault);
    }

    fn fault(&mut self) {
        let Some(fault) = self.rng.pick(&self.scenario.faults).copied() else { return };
        let window_us = u64::from(self.scenario.window_ms) * 1_000;
        let Ok(at) = usize::try_from(self.rng.below(self.hosts.len() as u64)) else { return };
        let Ok(region) = usize::try_from(self.rng.below(self.regions.len() as u64)) else { return };
        self.ledger.summary.faults += 1;
        match fault {
            Fault::Pause => {
                // Up to several windows, seldom for an hour.
                let top_us = if self.rng.chance(50) { 3_600_000_000 } else { window_us * 6 };
                let for_us = self.rng.skewed(1_000, top_us);
                if let Some(host) = self.hosts.get_mut(at) {
                    host.paused_until_us = host.paused_until_us.max(self.now_us + for_us);
                }
                self.note_host(at, || format!("stands still for {} ms", for_us / 1_000));
            }
            Fault::Crash => {
                let pause_us = self.rng.skewed(1, window_us * 3);
                self.note_host(at, || String::from("crashes"));
                if self.hosts.get(at).is_some_and(|host| host.process.is_some()) {
                    self.end(at, pause_us);
                }
            }
            Fault::Release => {
                let then = if self.rng.chance(500) { Then::Acquire } else { Then::End };
                self.release(at, then);
            }
            Fault::Clone => self.clone_process(at),
            Fault::Cut => {
                let until_us = self.now_us + self.rng.skewed(1_000, window_us * 4);
                if self.rng.chance(500) {
                    if let Some(host) = self.hosts.get_mut(at) {
                        host.cut_until_us = until_us;
                    }
                    self.note_host(at, || format!("cannot reach its store until {until_us} us"));
                } else if let Some(region) = self.regions.get_mut(region) {
                    region.cut_until_us = until_us;
                    let number = region.number;
                    self.note("network", || format!("region {number} is cut off until {until_us} us"));
                }
            }
            Fault::StoreError => {
                let detail = String::from("injected");
                let error = match self.rng.below(4) {
                    0 => StoreError::Io { detail },
                    1 => StoreError::ReadOnly { detail },
                    _ => StoreError::Unreachable { detail },
                };
                let until_us = self.now_us + self.rng.skewed(1_000, window_us * 3);
                if let Some(region) = self.regions.get_mut(region) {
                    region.error = Some((until_us, error.clone()));
                    let number = region.number;
                    self.note("store", || format!("region {number} answers {error} until {until_us} us"));
                }
            }
            Fault::Backup => {
                if let Some(region) = self.regions.get_mut(region) {
                    region.backups.push(region.store.backup());
                    if region.backups.len() > BACKUPS_MAX {
                        region.backups.remove(0);
                    }
                }
                self.note("operator", || format!("makes a backup of region {region}"));
            }
            Fault::Restore => self.restore(region),
            Fault::Fence => self.fence(region),
            Fault::Tidy => self.tidy(region),
            Fault::Delete => {
                let code = self.rng.below(self.scenario.layout.workers_per_region());
                let after_us = self.rng.skewed(1_000, window_us * 3);
                let Ok(code) = u32::try_from(code) else { return };
                if let Some(region) = self.regions.get_mut(region) {
                    region.store.delete_code(code);
                }
                self.note("operator", || format!("deletes the record of code {code} of region {region}"));
                self.plan(self.now_us + after_us, Coming::Repair { region });
            }
        }
    }

    fn operators_now(&self) -> Now {
        Now { boot_ms: self.now_us / 1_000, wall_ms: BEGIN_MS + self.now_us / 1_000, clock_error_ms: 1 }
    }

    fn fence(&mut self, region: usize) {
        let now = self.operators_now();
        let quarantine_ms = self.rng.skewed(1, u64::from(self.scenario.window_ms));
        let nonce = self.rng.nonce();
        let Some(region) = self.regions.get(region) else { return };
        let Ok(cluster) = region.store.cluster() else { return };
        let code = self.rng.below(u64::from(cluster.record.codes()));
        let Ok(code) = u32::try_from(code) else { return };
        let Ok(before) = region.store.read(code) else { return };
        let number = region.number;
        if let Ok(after) = store::fence(&region.store, code, quarantine_ms, &now, nonce) {
            self.operated(number, code, &cluster.record, &before.record, &after);
            self.note("operator", || format!("fences code {code} of region {number}"));
        }
    }

    fn operated(
        &mut self,
        number: u32,
        code: u32,
        cluster: &ClusterRecord,
        before: &CodeRecord,
        after: &CodeRecord,
    ) {
        let ticket = cluster.ticket(code, after.term);
        let window_ms = self.scenario.window_ms;
        self.ledger.swapped(self.now_us, &cluster.layout, (number, code), ticket, window_ms, before, after);
    }

    fn tidy(&mut self, region: usize) {
        let now = self.operators_now();
        let Some(region) = self.regions.get(region) else { return };
        let number = region.number;
        let Ok(cluster) = region.store.cluster() else { return };
        let before = region.store.scan().unwrap_or_default();
        let rng = &mut self.rng;
        let freed = store::gc(&region.store, &now, &mut || rng.nonce()).unwrap_or_default();
        let after = region.store.scan().unwrap_or_default();
        for code in freed {
            let find = |scan: &[(u32, Stored<CodeRecord>)]| {
                scan.iter().find(|(other, _)| *other == code).map(|(_, stored)| stored.record.clone())
            };
            if let (Some(before), Some(after)) = (find(&before), find(&after)) {
                self.operated(number, code, &cluster.record, &before, &after);
            }
            self.note("operator", || format!("frees code {code} of region {number}"));
        }
    }

    /// Puts a store back from a backup and raises its generation, before any worker reaches it.
    fn restore(&mut self, at: usize) {
        let now = self.operators_now();
        let reach_ms = self.regions.get(at).map_or(0, |region| self.ledger.reach_ms(region.number));
        let window_ms = self.scenario.window_ms;
        let Some(region) = self.regions.get_mut(at) else { return };
        let Some(backup) = self.rng.pick(&region.backups) else { return };
        region.store.restore(backup);
        let number = region.number;
        // What it shows now differs from what was scanned, and nobody wrote it; nor does any swap land that was asked for by
        // such a scan.
        for process in self
            .hosts
            .iter_mut()
            .filter(|host| host.region == number)
            .filter_map(|host| host.process.as_mut())
        {
            process.scanned.clear();
            process.has_right_peers = false;
        }
        if mutation::active(Mutation::RestoreWithoutGeneration) {
            self.note("operator", || format!("puts a backup of region {number} back, and no more"));
            return;
        }
        // The backup may be older than the last recovery: the operator's notes know of that.
        let recovered = store::recover_after(&region.store, region.generation, reach_ms, window_ms, &now);
        let Ok(Ok(record)) = recovered else { return };
        region.generation = record.generation;
        self.note("operator", || {
            format!(
                "puts a backup of region {number} back: generation {}, nothing before {}",
                record.generation, record.not_before_ms
            )
        });
    }

    /// Copies a machine with the memory of its process.
    fn clone_process(&mut self, at: usize) {
        let now_us = self.now_us;
        let Some(host) = self.hosts.get(at) else { return };
        let (Some(process), None) = (&host.process, &host.fixed) else { return };
        let Right::Leased(keeper) = &process.desk.right else { return };
        // A generator over ports cannot be made at a cursor; the shared one can.
        let is_shared = |instance: &Rc<Instance>| matches!(instance.form, Form::Shared(_));
        if process.instance.as_ref().is_some_and(|instance| !is_shared(instance)) {
            return;
        }
        let Ok(mut twin) = Keeper::new(keeper.borrow().config().clone()) else { return };
        for told in &process.told {
            match told.clone() {
                Told::Event(event, now, nonce) => {
                    let _ = twin.handle(event, &now, nonce);
                }
                Told::Take(boot_ms) => {
                    let _ = twin.take_grant(boot_ms);
                }
            }
        }
        let (region, layout) = (host.region, process.layout);
        let held = twin.view().map(|view| (view.code, view.ticket, view.end_ms));
        let asked = process.last_swap.map(|swap| (swap.code, swap.ticket, swap.end_ms));
        for (code, ticket, end_ms) in held.into_iter().chain(asked) {
            self.ledger.cloned(&layout, region, code, ticket, end_ms);
        }
        let wake_us = twin.next_wake_boot_ms().saturating_mul(1_000).saturating_sub(host.boot_us).max(now_us);
        let desk = Rc::new(Desk {
            right: Right::Leased(Box::new(RefCell::new(twin))),
            now_ms: Cell::new(0),
            clock_error_ms: Cell::new(0),
            boot_ms: Cell::new(0),
            told_error_ms: Cell::new(None),
        });
        let waiting =
            process.waiting.as_ref().map(|grant| Grant::new(grant.node(), grant.ticket(), grant.floor_ms()));
        let (nonce, told, last_swap, standing) =
            (process.nonce, process.told.clone(), process.last_swap, process.standing);
        let (scanned, has_right_peers) = (process.scanned.clone(), process.has_right_peers);
        let generation = process.generation;
        let old = process.instance.clone();
        let clone = Host {
            name: format!("{}'", host.name),
            region,
            layout,
            clock: host.clock.clone(),
            boot_us: host.boot_us,
            fixed: None,
            life: host.life,
            process: None,
            paused_until_us: host.paused_until_us,
            cut_until_us: host.cut_until_us,
            is_lazy: host.is_lazy,
            is_shared: true,
            must_mint: false,
        };
        let life = clone.life;
        let instance = old.and_then(|old| self.clone_instance(&layout, region, &old));
        self.note_host(at, || String::from("is cloned with its memory"));
        self.hosts.push(clone);
        let twin_at = self.hosts.len() - 1;
        if let Some(host) = self.hosts.get_mut(twin_at) {
            host.process = Some(Process {
                layout,
                desk,
                instance,
                waiting,
                nonce,
                told,
                last_swap,
                scanned,
                generation,
                has_right_peers,
                standing,
                wake_us,
                emitted_ms: None,
                run_ms: None,
            });
        }
        self.plan(wake_us, Coming::Wake { host: twin_at, life });
        self.plan(now_us + self.scenario.load.every_us, Coming::Mint { host: twin_at, life });
    }

    /// A generator whose cursor stands where another's does.
    fn clone_instance(&mut self, layout: &Layout, region: u32, old: &Instance) -> Option<Rc<Instance>> {
        let policy = self.scenario.policy;
        let node = layout.node(region, old.code).ok()?;
        let id = self.ledger.begin(layout, (region, old.code), old.ticket, old.floor_ms, &policy, false);
        let generator = match self.ledger.next_of(old.id) {
            None => AtomicGenerator::new(*layout, Grant::new(node, old.ticket, old.floor_ms), policy).ok()?,
            Some((tick_ms, sequence)) => {
                let grant = Grant::new(node, old.ticket, (tick_ms - 1).max(old.floor_ms));
                let generator = AtomicGenerator::new(*layout, grant, policy).ok()?;
                if let Some(want) = u32::try_from(sequence).ok().and_then(NonZeroU32::new) {
                    let _ = generator.mint(tick_ms, &Bounds::OPEN, want);
                }
                generator
            }
        };
        let form = Form::Shared(Box::new(generator));
        Some(Rc::new(Instance { form, id, ticket: old.ticket, code: old.code, floor_ms: old.floor_ms }))
    }

    // A cut-over: plan, scan, open.

    fn plan_cutover(&mut self, at: usize) {
        let now = self.operators_now();
        let window_ms = u64::from(self.scenario.window_ms);
        let cutover_ms = now.wall_ms + 2 + self.rng.below(window_ms);
        let scan_us = self.now_us + self.rng.below(window_ms * 1_000);
        let (Some(next), Some(region)) = (self.scenario.next_layout, self.regions.get(at)) else { return };
        let number = region.number;
        if let Ok(Ok(planned)) = store::plan_cutover(&region.store, &next, cutover_ms, &now) {
            let last_ms = planned.last_ms();
            self.note("operator", || format!("plans the last millisecond of region {number}: {last_ms}"));
            self.plan(scan_us, Coming::Scan { region: at });
        }
    }

    fn scan_cutover(&mut self, at: usize) {
        let (Some(next), Some(region)) = (self.scenario.next_layout, self.regions.get(at)) else { return };
        let number = region.number;
        if let Ok(Ok(scanned)) = store::scan_cutover(&region.store, &next) {
            let last_ms = scanned.last_ms();
            self.note("operator", || format!("scans: the last millisecond of region {number} is {last_ms}"));
            let open_us = (last_ms.saturating_sub(BEGIN_MS) + 2) * 1_000;
            self.plan(open_us.max(self.now_us), Coming::Open { region: at });
        }
    }

    fn open_cutover(&mut self, at: usize) {
        let now = self.operators_now();
        let window_us = u64::from(self.scenario.window_ms) * 1_000;
        let (Some(layout), Some(region)) = (self.scenario.next_layout, self.regions.get(at)) else { return };
        let number = region.number;
        let Ok(Ok(opened)) = store::open_cutover(&region.store, &layout, &now) else { return };
        let Some(former) = opened.former.last() else { return };
        self.ledger.cut_over(number, former.last_ms);
        self.note("operator", || format!("opens the next layout in region {number}"));
        // The new version is rolled out, one machine after the other.
        for at in 0..self.hosts.len() {
            let pause_us = self.rng.below(window_us);
            if let Some(host) = self.hosts.get_mut(at)
                && host.region == number
            {
                host.layout = layout;
                if host.process.is_some() && self.rng.chance(700) {
                    self.end(at, pause_us);
                }
            }
        }
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World")
            .field("scenario", &self.scenario)
            .field("now_us", &self.now_us)
            .field("summary", self.summary())
            .finish_non_exhaustive()
    }
}

const fn is_definite(error: &StoreError) -> bool {
    !error.is_transient() && !matches!(error, StoreError::Conflict { .. } | StoreError::ClusterChanged)
}

fn run_shown(run: &Run, stamp_ms: u64) -> String {
    format!("mints {} from {} on, stamped {stamp_ms}", run.count(), run.first())
}

fn request_shown(request: &Request) -> String {
    match request {
        Request::Cluster => String::from("a read of the cluster record"),
        Request::Scan => String::from("a scan"),
        Request::Read { code } => format!("a read of code {code}"),
        Request::Swap { code, record, .. } => {
            let state = if record.state == State::Active { "held" } else { record.state.name() };
            format!("a swap of code {code}: {state} at term {} to {}", record.term, record.end_ms)
        }
    }
}

fn shown(notice: &Notice) -> String {
    match notice {
        Notice::Granted { ticket, code, floor_ms, end_ms } => {
            format!("is granted code {code}, ({floor_ms}, {end_ms}], ticket {ticket:x}")
        }
        Notice::Renewed { ticket, end_ms } => format!("has renewed ticket {ticket:x} to {end_ms}"),
        Notice::Unconfirmed { ticket, error } => format!("ticket {ticket:x} is unconfirmed: {error}"),
        Notice::Lapsed { ticket } => format!("ticket {ticket:x} lapses"),
        Notice::Resumed { ticket, end_ms } => format!("ticket {ticket:x} resumes to {end_ms}"),
        Notice::Lost { ticket, loss } => format!("ticket {ticket:x} is lost: {loss}"),
        Notice::Released { ticket, end_ms } => format!("ticket {ticket:x} is released at {end_ms}"),
        Notice::Unreleased { ticket } => format!("ticket {ticket:x} is not released; it will expire"),
        Notice::Hindered(hindrance) => format!("is hindered: {hindrance}"),
        Notice::OddPeers { codes, peers } => format!("finds the clocks of {codes:?} odd, of {peers} peers"),
        Notice::Uncompared { error } => format!("cannot compare clocks: {error}"),
    }
}
