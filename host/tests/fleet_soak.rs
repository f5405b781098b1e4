//! A fleet under faults drawn at random, for minutes: whatever comes together, no promise is broken.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `SNOWMINT_SEED` | draws the same faults again; when each of them meets what is for the machine to say | random, and printed |
//! | `SNOWMINT_SOAK_S` | for how many seconds | 120; with `SNOWMINT_TEST_LONG` 600 |

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // It is all test.

#[allow(unused_imports)] // Each test uses a part of it.
mod fleet;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fleet::etcd::proxy::{Proxy, Wire};
use fleet::{Fleet, Log, Orders, boot_ms, now, wait_until};
use snowmint::fresh_nonce;
use snowmint_lease_etcd::{EtcdConfig, EtcdStore};

const WINDOW_MS: u32 = 2_000;
const MEMBERS: usize = 3;
/// One more than there are codes, so that there is always somebody who wants one.
const WORKERS: usize = 5;
const WORKER_BITS: u32 = 2;

/// What can be done to a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    FreezeWorker,
    KillWorker,
    StopWorker,
    KillMember,
    FreezeMember,
    FreezeLeader,
    LoseQuorum,
    CutWire,
    CutOff,
    SwallowReplies,
    Fence,
    Free,
    Gc,
}

const FAULTS: &[Fault] = &[
    Fault::FreezeWorker,
    Fault::KillWorker,
    Fault::StopWorker,
    Fault::KillMember,
    Fault::FreezeMember,
    Fault::FreezeLeader,
    Fault::LoseQuorum,
    Fault::CutWire,
    Fault::CutOff,
    Fault::SwallowReplies,
    Fault::Fence,
    Fault::Free,
    Fault::Gc,
];

/// What ends a fault.
#[derive(Clone, Copy, Debug)]
enum Cure {
    Thaw { slot: usize },
    Spawn { slot: usize },
    Run { member: usize },
    Continue { member: usize },
    Whole { slot: usize },
}

/// Numbers from a seed, by `SplitMix64`.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end).unwrap()).unwrap()
    }

    fn ms(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.next() % (to - from))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Well,
    Frozen,
    Dead,
}

/// A worker's place: its process now, and its own wires to the members.
struct Slot {
    orders: Orders,
    wires: Vec<Proxy>,
    is_whole: bool,
    at: usize,
    lives: u32,
    state: State,
}

struct Soak {
    fleet: Fleet,
    slots: Vec<Slot>,
    members: [State; MEMBERS],
    operator: EtcdStore,
    cures: Vec<(Instant, Cure)>,
    started: Instant,
    /// How often each fault was done, and how often it found nothing to be done to, or no store.
    done: BTreeMap<Fault, (u32, u32)>,
    not_begun: Vec<String>,
}

impl Soak {
    fn start() -> Option<Self> {
        let mut fleet = Fleet::start(MEMBERS, WORKER_BITS, WINDOW_MS)?;
        let slots = (0..WORKERS)
            .map(|slot| {
                let wires: Vec<_> = (0..MEMBERS).map(|at| Proxy::start(fleet.etcd.port(at))).collect();
                let endpoints = wires.iter().map(Proxy::url).collect();
                let orders = Orders { endpoints, ..fleet.orders(&format!("slot-{slot}")) };
                let at = fleet.spawn(&orders);
                Slot { orders, wires, is_whole: true, at, lives: 1, state: State::Well }
            })
            .collect();
        // Nobody waits for an operator here: the cures are due meanwhile.
        let times = EtcdConfig { request_ms_max: 600, call_ms_max: 1_500, ..fleet.config.clone() };
        let operator = EtcdStore::new(times).unwrap();
        Some(Self {
            fleet,
            slots,
            members: [State::Well; MEMBERS],
            operator,
            cures: Vec::new(),
            started: Instant::now(),
            done: BTreeMap::new(),
            not_begun: Vec::new(),
        })
    }

    fn say(&self, what: &str) {
        println!("{:>8.3} {what}", self.started.elapsed().as_secs_f64());
    }

    fn spawn(&mut self, slot: usize) {
        let place = &mut self.slots[slot];
        place.lives += 1;
        place.orders.owner = format!("slot-{slot}-life-{}", place.lives);
        place.at = self.fleet.spawn(&place.orders);
        place.state = State::Well;
    }

    /// Does everything that is due. A process that got no code in a minute of waiting is followed by another.
    fn cure(&mut self, until: Instant) {
        let due: Vec<_> = self.cures.extract_if(.., |(at, _)| *at <= until).collect();
        for (_, cure) in due {
            self.say(&format!("  {cure:?}"));
            match cure {
                Cure::Thaw { slot } => {
                    self.fleet.thaw(self.slots[slot].at);
                    self.slots[slot].state = State::Well;
                }
                Cure::Spawn { slot } => self.spawn(slot),
                Cure::Run { member } => {
                    self.fleet.etcd.run(member);
                    self.members[member] = State::Well;
                }
                Cure::Continue { member } => {
                    self.fleet.etcd.cont(member);
                    self.members[member] = State::Well;
                }
                Cure::Whole { slot } => {
                    self.slots[slot].wires.iter().for_each(|wire| wire.set(Wire::Whole));
                    self.slots[slot].is_whole = true;
                }
            }
        }
        for slot in 0..WORKERS {
            let at = self.slots[slot].at;
            if self.slots[slot].state == State::Well
                && let Some(error) = self.fleet.log(at, |log| log.not_begun.clone())
            {
                self.say(&format!("  slot {slot} got no code: {error}"));
                self.not_begun.push(error);
                self.fleet.wait_ended(at);
                self.spawn(slot);
            }
        }
    }

    fn freeze_member(&mut self, member: usize, over: Instant) -> bool {
        if self.members[member] != State::Well {
            return false;
        }
        self.fleet.etcd.stop(member);
        self.members[member] = State::Frozen;
        self.cures.push((over, Cure::Continue { member }));
        true
    }

    fn leader(&self) -> Option<usize> {
        let well = (0..MEMBERS).filter(|&at| self.members[at] == State::Well);
        well.into_iter().find(|&at| {
            let status = self.fleet.etcd.try_admin(at, async |client| client.status().await);
            status.is_ok_and(|status| status.header().unwrap().member_id() == status.leader())
        })
    }

    /// Does it, if there is something that it can be done to.
    fn harm(&mut self, fault: Fault, draws: &mut Draws) -> bool {
        // All of them, whatever is needed: the next fault is then the same, whatever this one meets.
        let (slot, member, code) =
            (draws.below(WORKERS), draws.below(MEMBERS), draws.below(1 << WORKER_BITS));
        let (length, moment) = (draws.ms(200, 5_000), draws.ms(0, 1_000));
        let code = u32::try_from(code).unwrap();
        let over = Instant::now() + length;
        let is_well = self.slots[slot].state == State::Well;
        let at = self.slots[slot].at;
        match fault {
            Fault::FreezeWorker if is_well => {
                self.fleet.freeze(at);
                self.slots[slot].state = State::Frozen;
                self.cures.push((over, Cure::Thaw { slot }));
                true
            }
            Fault::KillWorker if is_well => {
                self.fleet.kill(at);
                self.slots[slot].state = State::Dead;
                self.cures.push((Instant::now() + moment, Cure::Spawn { slot }));
                true
            }
            // One that still waits for a code hears nothing.
            Fault::StopWorker if is_well && self.fleet.log(at, |log| log.began.is_some()) => {
                let is_released = self.fleet.stop(at);
                self.say(&format!("  slot {slot} gave its code back: {is_released}"));
                self.spawn(slot);
                true
            }
            Fault::KillMember if self.members[member] == State::Well => {
                self.fleet.etcd.kill(member);
                self.members[member] = State::Dead;
                self.cures.push((over, Cure::Run { member }));
                true
            }
            Fault::FreezeMember => self.freeze_member(member, over),
            Fault::FreezeLeader => self.leader().is_some_and(|leader| self.freeze_member(leader, over)),
            Fault::LoseQuorum => {
                let others = [(member + 1) % MEMBERS, (member + 2) % MEMBERS];
                others.map(|at| self.freeze_member(at, over)) == [true; 2]
            }
            Fault::CutWire | Fault::CutOff | Fault::SwallowReplies if self.slots[slot].is_whole => {
                let place = &mut self.slots[slot];
                place.is_whole = false;
                for (at, wire) in place.wires.iter().enumerate() {
                    match fault {
                        Fault::CutWire if at != member => {}
                        Fault::SwallowReplies => wire.set(Wire::NoReplies),
                        _ => wire.set(Wire::Cut),
                    }
                }
                self.cures.push((over, Cure::Whole { slot }));
                true
            }
            Fault::Fence => {
                let quarantine_ms = u64::try_from(length.as_millis()).unwrap() / 2;
                let fenced =
                    snowmint_lease::store::fence(&self.operator, code, quarantine_ms, &now(), fresh_nonce());
                self.note(code, &fenced.map(|record| record.state))
            }
            Fault::Free => {
                let freed = snowmint_lease::store::free(&self.operator, code, &now(), fresh_nonce());
                self.note(code, &freed.map(|freed| freed.map(|record| record.state)))
            }
            Fault::Gc => {
                let freed = snowmint_lease::store::gc(&self.operator, &now(), &mut fresh_nonce);
                self.note(code, &freed)
            }
            _ => false,
        }
    }

    /// What came of an operator's act. The store may well be away.
    fn note<T: std::fmt::Debug>(&self, code: u32, result: &Result<T, snowmint_lease::StoreError>) -> bool {
        self.say(&format!("  code {code}: {result:?}"));
        result.is_ok()
    }

    fn run(&mut self, seconds: u64, draws: &mut Draws) {
        let end = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < end {
            let fault = FAULTS[draws.below(FAULTS.len())];
            let pause = draws.ms(100, 900);
            let is_done = self.harm(fault, draws);
            self.say(&format!("{fault:?}{}", if is_done { "" } else { " (not done)" }));
            let (done, not) = self.done.entry(fault).or_default();
            *(if is_done { done } else { not }) += 1;
            std::thread::sleep(pause);
            self.cure(Instant::now());
        }
    }

    /// Everything is well again: as many as there are codes mint, within a time to live.
    fn recover(&mut self) {
        let last = self.cures.iter().map(|(at, _)| *at).max();
        self.cure(last.unwrap_or_else(Instant::now));
        (0..MEMBERS).for_each(|at| self.fleet.etcd.wait_for(at));
        // A code that was fenced last is out of its quarantine, which everybody hears of within a poll.
        std::thread::sleep(Duration::from_millis(2_500));
        let since_ms = boot_ms();
        let minting = |soak: &Self| {
            let has_minted =
                |slot: &&Slot| soak.fleet.log(slot.at, |log| log.first_run_since(since_ms).is_some());
            soak.slots.iter().filter(has_minted).count()
        };
        wait_until("as many workers mint as there are codes", || {
            self.cure(Instant::now());
            minting(self) >= 1 << WORKER_BITS
        });
        let took_ms = boot_ms() - since_ms;
        self.say(&format!("all codes are minted with, {took_ms} ms after everything was well again"));
        assert!(Duration::from_millis(took_ms) <= self.fleet.ttl() + fleet::SLACK);
    }

    fn report(&self) {
        for (fault, (done, not)) in &self.done {
            println!("{fault:?}: {done} times (and {not} times it could not be)");
        }
        let count =
            |logs: &[Log], kind: &str| logs.iter().map(|log| log.notices_of(kind).count()).sum::<usize>();
        self.fleet.collector.look(|logs| {
            let refusals: usize = logs.iter().map(|log| log.refusals.len()).sum();
            let [granted, lapsed, resumed, lost] =
                ["granted", "lapsed", "resumed", "lost"].map(|kind| count(logs, kind));
            println!(
                "{granted} grants, {lapsed} lapsed, {resumed} resumed, {lost} lost; minting was refused {refusals} times; {} \
                 processes got no code",
                self.not_begun.len()
            );
        });
        // Those that got no code were told why, and it is one of the reasons that there can be.
        for error in &self.not_begun {
            let is_known = ["none of the region's 4 codes", "does not answer", "did not answer in time"];
            assert!(is_known.iter().any(|words| error.contains(words)), "{error}");
        }
    }
}

fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

#[test]
fn a_soak_of_random_faults_breaks_no_promise() {
    // Shows that five workers over four codes, their members, their wires and an operator, all of them harmed at random
    // and together, never make an ID twice, above a confirmed end or after a deadline; and that as soon as nothing is
    // wrong any more, all codes are minted with.
    let long = std::env::var_os("SNOWMINT_TEST_LONG").is_some();
    let seconds = number_of("SNOWMINT_SOAK_S").unwrap_or(if long { 600 } else { 120 });
    let seed = number_of("SNOWMINT_SEED").unwrap_or_else(|| Draws(boot_ms()).next());
    println!("SNOWMINT_SEED={seed} SNOWMINT_SOAK_S={seconds}");
    let Some(mut soak) = Soak::start() else { return };
    soak.run(seconds, &mut Draws(seed));
    soak.recover();
    soak.report();
    if seconds >= 120 {
        for fault in FAULTS {
            assert!(soak.done.get(fault).is_some_and(|(done, _)| *done > 0), "{fault:?} was never done");
        }
    }
    println!("SNOWMINT_SEED={seed}");
    soak.fleet.finish();
}
