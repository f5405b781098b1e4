//! The state of the model, and every step from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use snowmint_core::Layout;
use snowmint_core::mutation::{self, Mutation};
use snowmint_lease::keeper::{Name, SETTLED_BOOT_MS};
use snowmint_lease::{
    ClusterRecord, CodeRecord, Event, Hindrance, Keeper, KeeperConfig, Loss, Notice, Now, Owner as OwnerName,
    Phase, Reply, Request, RequestId, Revision, State, Stopped, StoreError, Stored, Then, perform, protocol,
    store,
};

use crate::owner::{Flight, Known, Load, Minting, Names, Owner, Ticks, above, rename_request, rename_stored};
use crate::store::{Codes, Kept, ModelStore, revision_of};
use crate::{Always, Bounds, Sometimes, TICK_MS, WRONG_TICK};

/// The window: the shortest that a keeper takes.
const WINDOW_MS: u32 = snowmint_lease::WINDOW_MS_MIN;

/// One step of a boot-time clock: a third of the window, which is a keeper's own rhythm.
const BOOT_STEP_MS: u64 = WINDOW_MS as u64 / 3;

/// How many such steps the window has.
pub(crate) const BOOT_STEPS: u8 = 3;

/// How far a cut-over has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Cutover {
    None,
    Planned,
    /// Nothing of the old layout may lie above this tick, and nothing of the next at or below.
    Open(u64),
}

/// What may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Left {
    crashes: u8,
    fences: u8,
    restores: u8,
    deletions: u8,
    errors: u8,
}

/// A state: the store, the owners, and what may have been stamped.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    kept: Kept,
    backup: Option<Codes>,
    /// In the order of their hashes: owners are alike, so that only what they are in matters, not who.
    owners: Vec<Arc<Known>>,
    /// Swaps whose process is gone.
    orphans: Vec<Request>,
    /// Ticks that may have been stamped with each code.
    stamped: Vec<Ticks>,
    /// Which grants of each code were handed out, by generation and term.
    taken: Vec<u32>,
    /// The highest end that was ever confirmed: what an operator gives a recovery as `--not-before`.
    end_max_ms: u64,
    cutover: Cutover,
    left: Left,
    /// Which properties this or an earlier step has broken.
    broken: u16,
}

impl World {
    pub(crate) const fn is_whole(&self, property: Always) -> bool {
        self.broken & (1 << property as u16) == 0
    }

    pub(crate) const fn is_unbroken(&self) -> bool {
        self.broken == 0
    }

    /// Whether all that may have been stamped lies where no later grant begins.
    pub(crate) fn is_covered(&self) -> bool {
        self.kept.codes.iter().zip(&self.stamped).all(|(code, &stamped)| match code {
            Some(stored) => {
                let covered_ms = stored.record.end_ms.max(self.kept.cluster.record.not_before_ms);
                above(stamped, covered_ms / TICK_MS) == 0
            }
            None => true,
        })
    }

    pub(crate) fn is_within(&self, bounds: &Bounds) -> bool {
        self.kept.codes.iter().flatten().all(|stored| stored.record.term <= bounds.terms)
    }

    fn break_if(&mut self, is_broken: bool, property: Always) {
        self.broken |= u16::from(is_broken) << property as u16;
    }

    fn names(&self, without: Option<usize>) -> Names {
        let mut names = Names::default();
        let backup = self.backup.iter().flatten();
        self.kept.codes.iter().chain(backup).flatten().for_each(|stored| names.add_stored(stored));
        names.add(Name::Cluster(self.kept.cluster.revision));
        self.orphans.iter().for_each(|request| names.add_request(request));
        let others = self.owners.iter().enumerate().filter(|(at, _)| Some(*at) != without);
        others.for_each(|(_, known)| names.add_all(known.names));
        names
    }

    fn put(&mut self, at: usize, owner: Owner) {
        if let Some(place) = self.owners.get_mut(at) {
            *place = Arc::new(Known::new(owner));
        }
        self.owners.sort_by_key(|known| known.key());
    }

    /// Numbers nonces and revisions in the order in which they are met: what they are called makes no state.
    fn settle(&mut self) {
        if mutation::active(Mutation::NoncePerProcess) {
            // There a revision is told apart from the nonce.
            return;
        }
        let mut numbers = [0_u8; 64];
        let mut last = 0_u8;
        let mut meet = |name: u128| {
            let place = usize::try_from(name).ok().and_then(|name| numbers.get_mut(name));
            if let Some(place) = place.filter(|place| name != 0 && **place == 0) {
                last += 1;
                *place = last;
            }
        };
        for stored in self.kept.codes.iter().chain(self.backup.iter().flatten()).flatten() {
            meet(stored.record.nonce);
            meet(stored.revision.get().into());
        }
        self.owners.iter().flat_map(|known| &known.met).for_each(|&name| meet(name));
        for request in &self.orphans {
            if let Request::Swap { expected, record, .. } = request {
                meet(expected.get().into());
                meet(record.nonce);
            }
        }
        let number = |name: u128| {
            let number = usize::try_from(name).ok().and_then(|name| numbers.get(name));
            number.map_or(name, |&number| u128::from(number))
        };
        if numbers.iter().zip(0..).all(|(&number, name)| number == 0 || number == name) {
            return;
        }
        let backup = self.backup.iter_mut().flatten();
        for stored in self.kept.codes.iter_mut().chain(backup).flatten() {
            let mut renamed = (**stored).clone();
            rename_stored(&mut renamed, &number);
            *stored = Arc::new(renamed);
        }
        for known in &mut self.owners {
            let mut renamed = known.owner.clone();
            renamed.rename(&number);
            *known = Arc::new(Known::new(renamed));
        }
        self.owners.sort_by_key(|known| known.key());
        self.orphans.iter_mut().for_each(|request| rename_request(request, &number));
    }

    fn record(&self, code: u32) -> Option<&CodeRecord> {
        self.kept.codes.get(code as usize)?.as_ref().map(|stored| &stored.record)
    }

    /// Judges what a swap has done to a code's record.
    fn judge_write(&mut self, code: u32, before: Option<&CodeRecord>) {
        let (Some(before), Some(after)) = (before, self.record(code).cloned()) else { return };
        self.end_max_ms = self.end_max_ms.max(after.end_ms);
        self.break_if(!after.is_valid() || after.term < before.term, Always::ValidRecords);
        if after.end_ms < before.end_ms {
            let stamped = self.stamped.get(code as usize).copied().unwrap_or(Ticks::MAX);
            let is_release = before.state == State::Active && after.state == State::Free;
            let is_covering = above(stamped, after.end_ms / TICK_MS) == 0;
            self.break_if(!(is_release && is_covering), Always::EndNeverFalls);
        }
    }
}

/// A step, for people to read in a counterexample. Owners are numbered by where they stand in the state before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // They are only ever printed.
pub enum What {
    Begin,
    /// A request reaches the store, and its answer is on the way.
    Apply {
        owner: usize,
        flight: usize,
    },
    ApplyOrphan,
    /// An answer reaches the keeper, whose wall clock then shows this tick (0: a clock that is not believed).
    Deliver {
        owner: usize,
        tick: u64,
    },
    /// The same, after a third of the window in which the process slept.
    DeliverAfterPause {
        owner: usize,
        tick: u64,
    },
    /// The store says that it failed.
    Fail {
        owner: usize,
        is_applied: bool,
    },
    /// A third of the window passes on the boot-time clock.
    Pass {
        owner: usize,
        tick: u64,
    },
    /// The generator is stopped, having stamped up to this tick, and the code is given back.
    Release {
        owner: usize,
        last: Option<u64>,
    },
    /// The process was asked to end before it had a code.
    End {
        owner: usize,
    },
    Crash {
        owner: usize,
    },
    ExpireAlone {
        code: u32,
    },
    Fence {
        code: u32,
    },
    Gc,
    Delete {
        code: u32,
    },
    Backup,
    Restore,
    Plan {
        tick: u64,
    },
    Scan,
    Open,
    /// The three peers renew.
    PeersRenew,
}

/// Another host's code, as that keeps it: its clock shows tick 1.
#[allow(clippy::unwrap_used)] // Constants.
fn peer(name: &str) -> Stored<CodeRecord> {
    let record = CodeRecord {
        state: State::Active,
        term: 1,
        owner: Some(OwnerName::new(name).unwrap()),
        end_ms: 2 * TICK_MS,
        stamp_ms: TICK_MS,
        ttl_ms: protocol::ttl_ms(WINDOW_MS),
        ..CodeRecord::UNUSED
    };
    Stored { record, revision: Revision::new(1) }
}

/// A step with where it leads.
#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    pub(crate) what: What,
    pub(crate) next: World,
}

/// The rules of one exploration.
pub(crate) struct Rules {
    pub(crate) bounds: Bounds,
    pub(crate) layout: Layout,
    /// What is cut over to.
    next_layout: Layout,
    /// What a wall clock may show; 0 is one that is not believed.
    clocks: Vec<u64>,
    pub(crate) seen: [AtomicU64; Sometimes::COUNT],
}

/// An event with what surrounds it.
struct Telling {
    what: fn(usize, u64) -> What,
    event: Event,
    boot_ms: u64,
    is_from_read: bool,
    is_from_scan: bool,
    is_hard_error: bool,
}

impl Rules {
    pub(crate) fn new(bounds: Bounds) -> Self {
        let (fields, next) = match (bounds.peers, bounds.codes) {
            // Four codes, of which three are the peers'.
            (true, _) => ("region:2 worker:2 sequence:18", "region:3 worker:2 sequence:17"),
            (false, 1) => ("region:2 sequence:20", "region:3 sequence:19"),
            (false, _) => ("region:2 worker:1 sequence:19", "region:3 worker:1 sequence:18"),
        };
        #[allow(clippy::unwrap_used)] // Constants, all of which the tests use.
        let layout = |fields: &str| {
            format!("reserved:1 timestamp:41 {fields} epoch-ms:0 tick-ns:1000000").parse().unwrap()
        };
        let (layout, next_layout) = (layout(fields), layout(next));
        let clocks = if bounds.peers {
            vec![1, WRONG_TICK]
        } else {
            (u64::from(!bounds.doubt)..=bounds.ticks).collect()
        };
        Self { bounds, layout, next_layout, clocks, seen: [const { AtomicU64::new(0) }; Sometimes::COUNT] }
    }

    fn note(&self, sometimes: Sometimes) {
        if let Some(count) = self.seen.get(sometimes as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[allow(clippy::cast_possible_truncation)] // A few ticks.
    const fn lead_ms(&self) -> u32 {
        (self.bounds.lead * TICK_MS) as u32
    }

    #[allow(clippy::unwrap_used)] // Constants.
    fn process(&self, cutover: Cutover) -> Owner {
        // All owners have the same name: nothing is decided by it.
        let name = OwnerName::new("owner").unwrap();
        let layout = if matches!(cutover, Cutover::Open(_)) { self.next_layout } else { self.layout };
        let config = KeeperConfig {
            window_ms: WINDOW_MS,
            lead_ms: self.lead_ms(),
            quarantine_ms: self.bounds.quarantine * TICK_MS,
            compares_clocks: self.bounds.peers,
            ..KeeperConfig::embedded(layout, 0, name)
        };
        let mut keeper = Keeper::new(config).unwrap();
        keeper.settle(0, BOOT_STEP_MS, &|_| false);
        Owner::new(keeper)
    }

    #[allow(clippy::unwrap_used)] // Constants.
    pub(crate) fn first(&self) -> World {
        let bounds = &self.bounds;
        let cluster = ClusterRecord::new(1, self.layout, 0).unwrap();
        let unused = Stored { record: CodeRecord::UNUSED, revision: Revision::new(1) };
        let mut kept_codes = vec![Some(Arc::new(unused)); bounds.codes as usize];
        if bounds.peers {
            kept_codes.extend(["peer-a", "peer-b", "peer-c"].map(|name| Some(Arc::new(peer(name)))));
        }
        let codes = kept_codes.len();
        // All alike: one allocation, which a write parts.
        let process = Arc::new(Known::new(self.process(Cutover::None)));
        let owners = vec![process; bounds.owners];
        World {
            kept: Kept {
                cluster: Arc::new(Stored { record: cluster, revision: Revision::new(1) }),
                codes: kept_codes,
            },
            backup: None,
            owners,
            orphans: Vec::new(),
            stamped: vec![0; codes],
            taken: vec![0; codes],
            end_max_ms: 0,
            cutover: Cutover::None,
            left: Left {
                crashes: bounds.crashes,
                fences: bounds.fences,
                restores: bounds.restores,
                deletions: bounds.deletions,
                errors: bounds.errors,
            },
            broken: 0,
        }
    }

    /// Every step from a state.
    pub(crate) fn steps(&self, world: &World, out: &mut Vec<Action>) {
        for at in 0..world.owners.len() {
            // Owners that are alike do alike.
            if at == 0 || world.owners.get(at) != world.owners.get(at - 1) {
                self.steps_of_owner(world, at, out);
            }
        }
        self.steps_of_others(world, out);
        for action in out {
            action.next.settle();
        }
    }

    fn steps_of_owner(&self, world: &World, at: usize, out: &mut Vec<Action>) {
        let Some(known) = world.owners.get(at) else { return };
        let owner = &known.owner;
        let settled_ms = SETTLED_BOOT_MS;
        for (index, flight) in owner.flights.iter().enumerate() {
            let mut rest = owner.clone();
            rest.flights.remove(index);
            match &flight.load {
                Load::Ask(request @ Request::Swap { .. }) => {
                    self.apply(world, at, index, request, flight.is_current, &rest, out);
                    if flight.is_current && world.left.errors > 0 {
                        self.fail(world, at, &rest, false, settled_ms, out);
                    }
                }
                Load::Ask(request) if self.bounds.slow_reads => {
                    let reply = perform(&Self::store(world), request);
                    let mut next = world.clone();
                    rest.flights.insert(index, Flight { load: Load::Answer(reply), is_current: true });
                    next.put(at, rest);
                    out.push(Action { what: What::Apply { owner: at, flight: index }, next });
                }
                Load::Ask(request) => {
                    let reply = perform(&Self::store(world), request);
                    self.deliver(world, at, &rest, reply, flight.is_current, settled_ms, out);
                }
                Load::Answer(reply) => {
                    self.deliver(world, at, &rest, reply.clone(), flight.is_current, settled_ms, out);
                    let is_swapped = matches!(reply, Reply::Swapped(_));
                    if flight.is_current && is_swapped && world.left.errors > 0 {
                        self.fail(world, at, &rest, true, settled_ms, out);
                    }
                }
            }
        }
        // Nobody mints by the old layout any more: the next version begins.
        let is_former = matches!(world.cutover, Cutover::Open(_))
            && owner.keeper.config().layout == self.layout
            && owner.keeper.phase(settled_ms) == Phase::Seeking;
        if is_former {
            let mut next = world.clone();
            next.put(at, self.process(world.cutover));
            out.push(Action { what: What::Begin, next });
        }
        if owner.keeper.phase(settled_ms) == Phase::Ended {
            let mut next = world.clone();
            next.put(at, self.process(world.cutover));
            out.push(Action { what: What::Begin, next });
            return;
        }
        self.pass(world, at, owner, settled_ms, out);
        self.release(world, at, owner, settled_ms, out);
        if world.left.crashes > 0 {
            self.crash(world, at, owner, out);
        }
    }

    fn store(world: &World) -> ModelStore {
        let names = world.names(None);
        ModelStore::new(world.kept.clone(), names.fresh_revision(), names.fresh_cluster())
    }

    #[allow(clippy::too_many_arguments)] // One step, taken apart.
    fn apply(
        &self,
        world: &World,
        at: usize,
        index: usize,
        request: &Request,
        is_current: bool,
        rest: &Owner,
        out: &mut Vec<Action>,
    ) {
        let Request::Swap { code, record, .. } = request else { return };
        let store = Self::store(world);
        let reply = perform(&store, request);
        let mut next = World { kept: store.into_kept(), ..world.clone() };
        let mut owner = rest.clone();
        if matches!(reply, Reply::Swapped(_)) {
            let before = world.record(*code);
            next.judge_write(*code, before);
            if !is_current {
                self.note(Sometimes::LateRequestLands);
            }
            if record.state == State::Active {
                if before.is_some_and(|before| before.state == State::Active && before.term < record.term) {
                    self.note(Sometimes::ContenderExpires);
                }
                let same = |&&mut (of, term, _): &&mut (u32, u32, u64)| (of, term) == (*code, record.term);
                match owner.confirmed.iter_mut().find(same) {
                    Some((.., end_ms)) => *end_ms = record.end_ms.max(*end_ms),
                    None => owner.confirmed.push((*code, record.term, record.end_ms)),
                }
                owner.confirmed.sort_unstable();
            }
        }
        // A late refusal tells nobody anything.
        if is_current || matches!(reply, Reply::Swapped(_)) {
            owner.flights.insert(index, Flight { load: Load::Answer(reply), is_current });
        }
        next.put(at, owner);
        out.push(Action { what: What::Apply { owner: at, flight: index }, next });
    }

    #[allow(clippy::too_many_arguments)] // One step, taken apart.
    fn deliver(
        &self,
        world: &World,
        at: usize,
        rest: &Owner,
        reply: Reply,
        is_current: bool,
        settled_ms: u64,
        out: &mut Vec<Action>,
    ) {
        let id = if is_current { rest.keeper.asked_id() } else { Some(RequestId::STALE) };
        let Some(id) = id else { return };
        let is_from_read = matches!(reply, Reply::Read(_));
        let is_from_scan = matches!(reply, Reply::Scan(_));
        let mut told = rest.clone();
        if let Reply::Scan(codes) = &reply
            && self.bounds.peers
            && is_current
            && let Some((_, peer)) = codes.last()
        {
            told.is_told = told.saw_peers.is_some_and(|before| before != peer.revision);
            told.saw_peers = Some(peer.revision);
        }
        let rest = &told;
        let telling = |reply| Telling {
            what: |owner, tick| What::Deliver { owner, tick },
            event: Event::Reply { id, reply },
            boot_ms: settled_ms,
            is_from_read,
            is_from_scan,
            is_hard_error: false,
        };
        if let Reply::Scan(codes) = &reply
            && is_current
        {
            let mut impatient = rest.clone();
            // Peers are alive.
            let own = codes.iter().take(self.bounds.codes as usize);
            impatient.keeper.lose_patience(own.map(|(code, stored)| (*code, &stored.record)));
            if impatient.keeper != rest.keeper {
                self.tell(world, at, &impatient, &telling(reply.clone()), out);
            }
        }
        if is_current && matches!(reply, Reply::Swapped(_)) {
            // The process slept between the confirmation and its arrival.
            let mut later = rest.clone();
            later.grow_older();
            let telling = Telling {
                what: |owner, tick| What::DeliverAfterPause { owner, tick },
                boot_ms: settled_ms + BOOT_STEP_MS,
                ..telling(reply.clone())
            };
            self.tell(world, at, &later, &telling, out);
        }
        self.tell(world, at, rest, &telling(reply), out);
    }

    fn fail(
        &self,
        world: &World,
        at: usize,
        rest: &Owner,
        is_applied: bool,
        settled_ms: u64,
        out: &mut Vec<Action>,
    ) {
        let Some(id) = rest.keeper.asked_id() else { return };
        let mut next = world.clone();
        next.left.errors -= 1;
        let what: fn(usize, u64) -> What = if is_applied {
            |owner, _| What::Fail { owner, is_applied: true }
        } else {
            |owner, _| What::Fail { owner, is_applied: false }
        };
        let reply = Reply::Failed(StoreError::Io { detail: String::new() });
        let telling = Telling {
            what,
            event: Event::Reply { id, reply },
            boot_ms: settled_ms,
            is_from_read: false,
            is_from_scan: false,
            is_hard_error: true,
        };
        self.tell(&next, at, rest, &telling, out);
    }

    fn pass(&self, world: &World, at: usize, owner: &Owner, settled_ms: u64, out: &mut Vec<Action>) {
        let mut later = owner.clone();
        later.grow_older();
        let telling = Telling {
            what: |owner, tick| What::Pass { owner, tick },
            event: Event::Time,
            boot_ms: settled_ms + BOOT_STEP_MS,
            is_from_read: false,
            is_from_scan: false,
            is_hard_error: false,
        };
        self.tell(world, at, &later, &telling, out);
    }

    fn release(&self, world: &World, at: usize, owner: &Owner, settled_ms: u64, out: &mut Vec<Action>) {
        let mut tell = |world: &World, owner: &Owner, what, stopped, then| {
            let telling = Telling {
                what,
                event: Event::Release { stopped, then },
                boot_ms: settled_ms,
                is_from_read: false,
                is_from_scan: false,
                is_hard_error: false,
            };
            self.tell(world, at, owner, &telling, out);
        };
        let Some(held) = &owner.grant else {
            if matches!(owner.keeper.phase(settled_ms), Phase::Acquiring) && self.bounds.ends {
                tell(world, owner, |owner, _| What::End { owner }, None, Then::End);
            }
            return;
        };
        if owner.keeper.view().is_none_or(|view| view.ticket != held.ticket) {
            return;
        }
        let then = if self.bounds.ends { Then::End } else { Then::Acquire };
        // How far it went, nobody knows: all of it is kept.
        let mut stopped_owner = owner.clone();
        stopped_owner.grant = None;
        tell(world, &stopped_owner, |owner, _| What::Release { owner, last: None }, None, then);
        // It minted nothing, or up to any tick that it could.
        let lasts = (0..Ticks::BITS).filter(|tick| held.may & (1 << tick) != 0).map(u64::from);
        for last in std::iter::once(held.floor_ms / TICK_MS).chain(lasts) {
            let last_reserved_ms = last * TICK_MS;
            let mut next = world.clone();
            if !mutation::active(Mutation::ReleaseAtEmitted)
                && let Some(stamped) = next.stamped.get_mut(held.code as usize)
            {
                *stamped &= !above(held.may, last);
            }
            // Nothing that minted nothing is believed further down than the floor: the store clamps.
            let reported_ms = if last * TICK_MS == held.floor_ms { 0 } else { last_reserved_ms };
            let stopped = Some(Stopped { ticket: held.ticket, last_reserved_ms: reported_ms });
            tell(&next, &stopped_owner, |owner, _| What::Release { owner, last: Some(0) }, stopped, then);
        }
    }

    fn crash(&self, world: &World, at: usize, owner: &Owner, out: &mut Vec<Action>) {
        let mut next = world.clone();
        next.left.crashes -= 1;
        for flight in &owner.flights {
            if let Load::Ask(request @ Request::Swap { .. }) = &flight.load {
                next.orphans.push(request.clone());
                self.note(Sometimes::CrashInFlight);
            }
        }
        while next.orphans.len() > self.bounds.late {
            next.orphans.remove(0);
        }
        next.put(at, self.process(world.cutover));
        out.push(Action { what: What::Crash { owner: at }, next });
    }

    /// Tells a keeper an event, under every wall clock that makes a difference, and judges what it then says.
    fn tell(&self, world: &World, at: usize, owner: &Owner, telling: &Telling, out: &mut Vec<Action>) {
        let others = world.names(Some(at));
        let mut names = others;
        names.add_all(owner.names());
        let is_scan = matches!(telling.event, Event::Reply { reply: Reply::Scan(_), .. });
        let nonces = names.fresh_nonces();
        let nonces = if is_scan && self.bounds.codes > 1 { &nonces[..] } else { &nonces[..1] };
        let from = out.len();
        'all: for &fresh in nonces {
            for &tick in &self.clocks {
                let clock_error_ms = if tick == 0 { u32::MAX } else { 0 };
                let now = Now { boot_ms: telling.boot_ms, wall_ms: tick.max(1) * TICK_MS, clock_error_ms };
                let mut next = world.clone();
                let mut told = owner.clone();
                let nonce = if mutation::active(Mutation::NoncePerProcess) {
                    *told.nonce.get_or_insert(fresh)
                } else {
                    fresh
                };
                let output = told.keeper.handle(telling.event.clone(), &now, nonce);
                let is_decided_by_clock = is_scan
                    || matches!(&output.request, Some((_, Request::Swap { record, .. }))
                        if record.state == State::Active);
                self.judge_request(&mut next, owner, &told, &now, output.request.as_ref());
                self.after(&mut next, others, &mut told, telling, output.request, &output.notices);
                next.put(at, told);
                if !out.iter().skip(from).any(|action| action.next == next) {
                    out.push(Action { what: (telling.what)(at, tick), next });
                }
                // A doubtful clock decides by itself whether anything is asked.
                if !is_decided_by_clock && clock_error_ms == 0 {
                    break 'all;
                }
            }
        }
    }

    /// Judges what a keeper asks for by a clock.
    fn judge_request(
        &self,
        next: &mut World,
        before: &Owner,
        after: &Owner,
        now: &Now,
        request: Option<&(RequestId, Request)>,
    ) {
        let Some((_, Request::Swap { code, expected, record, .. })) = request else { return };
        if record.state != State::Active {
            return;
        }
        let held_ms = before.keeper.view().map_or(0, |view| view.end_ms);
        let is_wrong = self.bounds.peers && now.wall_ms == WRONG_TICK * TICK_MS;
        next.break_if(is_wrong && after.is_told && record.end_ms > held_ms, Always::NoEndByAnOutvotedClock);
        let stored = next.kept.codes.get(*code as usize).cloned().flatten();
        if let Some(stored) =
            stored.filter(|stored| stored.revision == *expected && record.term > stored.record.term)
        {
            let until_ms = stored.record.not_again_before_ms;
            next.break_if(until_ms > 0 && now.wall_ms <= until_ms, Always::QuarantineIsKept);
            if until_ms > 0 {
                self.note(Sometimes::GrantAfterAQuarantine);
            }
        }
    }

    fn after(
        &self,
        next: &mut World,
        others: Names,
        owner: &mut Owner,
        telling: &Telling,
        request: Option<(RequestId, Request)>,
        notices: &[Notice],
    ) {
        let boot_ms = telling.boot_ms;
        self.note_all(next, owner, telling, notices);
        if request.is_some() || owner.keeper.asked_id().is_none() {
            owner.flights.iter_mut().for_each(|flight| flight.is_current = false);
        }
        if let Some((_, mut request)) = request {
            if let Request::Swap { record, .. } = &mut request {
                record.stamp_ms = 0;
                let is_claim = owner.keeper.phase(boot_ms) == Phase::Acquiring;
                if is_claim && mutation::active(Mutation::ClockReadTwice) {
                    record.end_ms = record.floor_ms.max(record.end_ms - TICK_MS);
                }
                owner.sent.retain(|(nonce, _)| *nonce != record.nonce);
                owner.sent.push((record.nonce, 0));
            }
            owner.flights.push(Flight { load: Load::Ask(request), is_current: true });
        }
        // Of what comes too late, swaps and their confirmations matter; reads do not.
        owner.flights.retain(|flight| {
            let is_swap =
                matches!(flight.load, Load::Ask(Request::Swap { .. }) | Load::Answer(Reply::Swapped(_)));
            flight.is_current || is_swap
        });
        while owner.flights.iter().filter(|flight| !flight.is_current).count() > self.bounds.late {
            let oldest = owner.flights.iter().position(|flight| !flight.is_current);
            if let Some(oldest) = oldest {
                owner.flights.remove(oldest);
            }
        }
        self.take(next, owner, boot_ms);
        self.look(next, owner, telling);
        let mut alive = others;
        owner.flights.iter().for_each(|flight| alive.add_flight(flight));
        owner.keeper.settle(boot_ms, BOOT_STEP_MS, &|nonce| alive.has_nonce(nonce));
        let mut names = Names::default();
        owner.keeper.names(&mut |name| names.add(name));
        let is_over = owner.keeper.phase(SETTLED_BOOT_MS) == Phase::Releasing;
        owner.sent.retain(|(nonce, _)| !is_over && names.has_nonce(*nonce));
        let code = owner.keeper.code();
        let mintings = [owner.grant.clone(), owner.former.clone()];
        owner.confirmed.retain(|(of, term, _)| {
            let is_of = |minting: &Minting| (minting.code, minting.term) == (*of, *term);
            code == Some(*of) || mintings.iter().flatten().any(is_of)
        });
    }

    /// Takes a grant, if there is one, and looks whether it would be given again.
    fn take(&self, next: &mut World, owner: &mut Owner, boot_ms: u64) {
        let Some(grant) = owner.keeper.take_grant(boot_ms) else { return };
        next.break_if(owner.keeper.take_grant(boot_ms).is_some(), Always::OneGrantOneGenerator);
        let minting = Minting::new(&grant, owner.keeper.config().layout == self.next_layout);
        if minting.is_next {
            self.note(Sometimes::GrantAfterACutover);
        }
        if let Some(taken) = next.taken.get_mut(minting.code as usize) {
            let grant = 1 << ((u32::from(minting.generation) * 8 + minting.term) % u32::BITS);
            let is_again = *taken & grant != 0;
            *taken |= grant;
            next.break_if(is_again, Always::OneGrantOneGenerator);
        }
        if let Some(grant) = owner.grant.replace(minting) {
            owner.former = Some(grant);
        }
    }

    /// Lets every generator look at its ceiling: all that it allows may be stamped from now on.
    fn look(&self, next: &mut World, owner: &mut Owner, telling: &Telling) {
        let Owner { keeper, grant, former, sent, confirmed, .. } = owner;
        for minting in [grant, former].into_iter().flatten() {
            let ceiling_ms = keeper.ceiling_ms(minting.ticket, telling.boot_ms);
            if ceiling_ms == 0 {
                continue;
            }
            let is_confirmed = confirmed.iter().any(|&(code, term, end_ms)| {
                (code, term) == (minting.code, minting.term) && ceiling_ms <= end_ms
            });
            next.break_if(!is_confirmed, Always::OnlyConfirmedEnds);
            next.break_if(telling.is_hard_error, Always::NothingAfterAnError);
            let is_old = minting.generation < next.kept.cluster.record.generation
                && ceiling_ms > next.kept.cluster.record.not_before_ms;
            next.break_if(is_old, Always::NothingByAnOlderGeneration);
            let age = keeper.confirmed_nonce().and_then(|confirmed| {
                sent.iter().find(|(nonce, _)| *nonce == confirmed).map(|&(_, age)| age)
            });
            next.break_if(age.is_none_or(|age| age >= BOOT_STEPS), Always::DeadlineFromSending);
            if ceiling_ms <= minting.seen_ms {
                continue;
            }
            minting.seen_ms = ceiling_ms;
            let may = minting.ticks_under(self.layout, self.lead_ms(), ceiling_ms);
            if above(may, self.bounds.ticks + 1) != 0 {
                self.note(Sometimes::StampedAhead);
            }
            let fresh = may & !minting.may;
            minting.may |= fresh;
            let Some(stamped) = next.stamped.get_mut(minting.code as usize) else { continue };
            let is_twice = *stamped & fresh != 0;
            let before = *stamped;
            *stamped |= fresh;
            next.break_if(is_twice, Always::Unique);
            if before != 0 && fresh != 0 && minting.term > 1 {
                self.note(Sometimes::HandOver);
            }
            if let Cutover::Open(last) = next.cutover {
                let wrong = if minting.is_next { may & !above(may, last) } else { above(may, last) };
                next.break_if(wrong != 0, Always::NothingAboveACutover);
            }
        }
    }

    fn note_all(&self, next: &World, owner: &Owner, telling: &Telling, notices: &[Notice]) {
        for notice in notices {
            let sometimes = match notice {
                Notice::Granted { .. } if telling.is_from_read => Sometimes::LostAcquireIsFound,
                Notice::Renewed { .. } if telling.is_from_read => Sometimes::LostRenewalIsFound,
                Notice::Released { .. } if telling.is_from_read => Sometimes::LostReleaseIsFound,
                Notice::Released { ticket, end_ms } => {
                    let confirmed = owner
                        .confirmed
                        .iter()
                        .find(|(code, term, _)| next.kept.cluster.record.ticket(*code, *term) == *ticket);
                    if confirmed.is_none_or(|&(.., confirmed_ms)| *end_ms >= confirmed_ms) {
                        continue;
                    }
                    Sometimes::ReleaseLowersTheEnd
                }
                Notice::Lapsed { .. } => Sometimes::Lapse,
                // It was not lapsed, as nothing was confirmed just now.
                Notice::Resumed { .. } if telling.is_from_scan => Sometimes::AgreesAgain,
                Notice::Resumed { .. } => Sometimes::Resumption,
                Notice::Lost { loss: Loss::Superseded { .. }, .. } => Sometimes::Supersession,
                Notice::Lost { loss: Loss::Store(StoreError::WrongGeneration { .. }), .. } => {
                    Sometimes::OldGenerationEnds
                }
                Notice::Hindered(Hindrance::NoneLeft(_)) => Sometimes::NoneLeft,
                Notice::Hindered(Hindrance::Outvoted { .. }) => Sometimes::Outvoted,
                _ => continue,
            };
            self.note(sometimes);
        }
    }

    fn steps_of_others(&self, world: &World, out: &mut Vec<Action>) {
        for (index, request) in world.orphans.iter().enumerate() {
            let store = Self::store(world);
            let reply = perform(&store, request);
            let mut next = World { kept: store.into_kept(), ..world.clone() };
            next.orphans.remove(index);
            if let (Request::Swap { code, .. }, Reply::Swapped(_)) = (request, reply) {
                next.judge_write(*code, world.record(*code));
                self.note(Sometimes::OrphanLands);
            }
            out.push(Action { what: What::ApplyOrphan, next });
        }
        for code in 0..self.bounds.codes {
            self.steps_of_code(world, code, out);
        }
        self.gc(world, out);
        if self.bounds.peers {
            let mut next = world.clone();
            let revision = world.names(None).fresh_revision();
            for code in next.kept.codes.iter_mut().skip(self.bounds.codes as usize).flatten() {
                *code = Arc::new(Stored { record: code.record.clone(), revision });
            }
            out.push(Action { what: What::PeersRenew, next });
        }
        self.backup_and_restore(world, out);
        if self.bounds.cutover {
            self.cut_over(world, out);
        }
    }

    fn steps_of_code(&self, world: &World, code: u32, out: &mut Vec<Action>) {
        let Some(record) = world.record(code) else { return };
        // The clock of whoever does it cannot matter where there is no quarantine: the earliest.
        let ticks = if self.bounds.quarantine > 0 { self.bounds.ticks } else { 1 };
        let quarantine_ms = self.bounds.quarantine * TICK_MS;
        let [nonce, _] = world.names(None).fresh_nonces();
        for tick in 1..=ticks {
            let now = Now { boot_ms: 0, wall_ms: tick * TICK_MS, clock_error_ms: 0 };
            if let Ok(expired) = protocol::expire_alone(record, quarantine_ms, &now, nonce) {
                let what = What::ExpireAlone { code };
                Self::write(world, code, expired, what, |_| {}, out);
                if world
                    .owners
                    .iter()
                    .any(|known| known.owner.grant.as_ref().is_some_and(|it| it.code == code))
                {
                    self.note(Sometimes::LiveOwnerExpires);
                }
            }
            if world.left.fences > 0 {
                let fenced = protocol::fence(record, quarantine_ms, &now, nonce);
                Self::write(world, code, fenced, What::Fence { code }, |next| next.left.fences -= 1, out);
            }
        }
        if world.left.deletions > 0 {
            let mut next = world.clone();
            next.left.deletions -= 1;
            next.kept.codes.iter_mut().skip(code as usize).take(1).for_each(|place| *place = None);
            out.push(Action { what: What::Delete { code }, next });
        }
    }

    fn write(
        world: &World,
        code: u32,
        record: CodeRecord,
        what: What,
        also: fn(&mut World),
        out: &mut Vec<Action>,
    ) {
        let mut next = world.clone();
        let record = CodeRecord { stamp_ms: 0, ..record };
        let revision = revision_of(&record, world.names(None).fresh_revision());
        let stored = Some(Arc::new(Stored { record, revision }));
        next.kept.codes.iter_mut().skip(code as usize).take(1).for_each(|place| place.clone_from(&stored));
        next.judge_write(code, world.record(code));
        also(&mut next);
        out.push(Action { what, next });
    }

    fn gc(&self, world: &World, out: &mut Vec<Action>) {
        let is_over = |state| matches!(state, State::Expired | State::Fenced);
        if !world.kept.codes.iter().flatten().any(|stored| is_over(stored.record.state)) {
            return;
        }
        let store = Self::store(world);
        let now = Now { boot_ms: 0, wall_ms: (self.bounds.ticks + 1) * TICK_MS, clock_error_ms: 0 };
        let [one, other] = world.names(None).fresh_nonces();
        let mut nonces = [one, other].into_iter().cycle();
        if store::gc(&store, &now, &mut || nonces.next().unwrap_or(one)).is_ok_and(|freed| !freed.is_empty())
        {
            let mut next = World { kept: store.into_kept(), ..world.clone() };
            for code in 0..self.bounds.codes {
                next.judge_write(code, world.record(code));
            }
            self.note(Sometimes::Gc);
            out.push(Action { what: What::Gc, next });
        }
    }

    fn backup_and_restore(&self, world: &World, out: &mut Vec<Action>) {
        if world.left.restores == 0 {
            return;
        }
        let Some(backup) = &world.backup else {
            let next = World { backup: Some(world.kept.codes.clone()), ..world.clone() };
            out.push(Action { what: What::Backup, next });
            return;
        };
        let mut next = world.clone();
        next.kept.codes.clone_from(backup);
        next.backup = None;
        next.left.restores -= 1;
        if !mutation::active(Mutation::RestoreWithoutGeneration) {
            let store = Self::store(&next);
            let now = Now { boot_ms: 0, wall_ms: TICK_MS, clock_error_ms: 0 };
            let recovered = store::recover(&store, world.end_max_ms, WINDOW_MS, &now);
            if !matches!(recovered, Ok(Ok(_))) {
                return;
            }
            next.kept = store.into_kept();
        }
        self.note(Sometimes::Restore);
        out.push(Action { what: What::Restore, next });
    }

    /// The three acts of a cut-over, each a step, by the functions that an operator's command calls.
    fn cut_over(&self, world: &World, out: &mut Vec<Action>) {
        let at = |wall_ms| Now { boot_ms: 0, wall_ms, clock_error_ms: 0 };
        let mut act = |what, act: &dyn Fn(&ModelStore) -> Option<ClusterRecord>| {
            let store = Self::store(world);
            let record = act(&store)?;
            let mut next = World { kept: store.into_kept(), ..world.clone() };
            if let Some(former) = record.former.last() {
                let last = former.last_ms / TICK_MS;
                next.cutover = Cutover::Open(last);
                let is_late = world.stamped.iter().any(|&stamped| above(stamped, last) != 0);
                next.break_if(is_late, Always::NothingAboveACutover);
            } else {
                next.cutover = Cutover::Planned;
            }
            let is_raised = what == What::Scan && next.kept != world.kept;
            if next != *world {
                out.push(Action { what, next });
            }
            is_raised.then_some(())
        };
        match world.cutover {
            Cutover::None => {
                for tick in 1..=self.bounds.ticks {
                    let plan = |store: &ModelStore| {
                        let planned =
                            store::plan_cutover(store, &self.next_layout, tick * TICK_MS + 1, &at(0));
                        planned.ok()?.ok()
                    };
                    act(What::Plan { tick }, &plan);
                }
            }
            Cutover::Planned => {
                let scan = |store: &ModelStore| store::scan_cutover(store, &self.next_layout).ok()?.ok();
                if act(What::Scan, &scan).is_some() {
                    self.note(Sometimes::CutoverIsRaised);
                }
                // Whoever leaves the scan out is refused where it would have found anything.
                let now = at(u64::from(Ticks::BITS) * TICK_MS);
                act(What::Open, &|store| store::open_cutover(store, &self.next_layout, &now).ok()?.ok());
            }
            Cutover::Open(_) => {}
        }
    }
}
