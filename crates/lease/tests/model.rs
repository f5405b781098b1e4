//! Arbitrary histories against a naive model: what grants of one code may have stamped never overlaps.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // It is all test.

use std::collections::BTreeMap;

use proptest::prelude::*;
use snowmint_core::Layout;
use snowmint_lease::protocol::{Bid, Holder, acquire, expire_alone, fence, free, recover, release, renew};
use snowmint_lease::{
    ClusterRecord, CodeRecord, Event, Keeper, KeeperConfig, MemoryStore, Now, Owner, Reply, Request,
    RequestId, Stopped, Store, StoreError, Then, init, perform, store,
};

const T: u64 = 1_750_000_000_000;

fn layout() -> Layout {
    // Two codes, so that histories meet.
    "reserved:1 timestamp:41 region:2 worker:1 sequence:19 epoch-ms:1735689600000 tick-ns:1000000"
        .parse()
        .unwrap()
}

/// What one grant may have stamped: `(floor, used]`.
#[derive(Clone, Debug)]
#[allow(clippy::struct_field_names)] // `used_ms` is what it is.
struct Used {
    code: u32,
    floor_ms: u64,
    used_ms: u64,
}

fn assert_disjoint<'a>(grants: impl IntoIterator<Item = &'a Used>) -> Result<(), TestCaseError> {
    let mut by_code: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
    for used in grants {
        if used.used_ms > used.floor_ms {
            by_code.entry(used.code).or_default().push((used.floor_ms, used.used_ms));
        }
    }
    for (code, mut ranges) in by_code {
        ranges.sort_unstable();
        for pair in ranges.windows(2) {
            prop_assert!(pair[0].1 <= pair[1].0, "code {}: {:?} and {:?} overlap", code, pair[0], pair[1]);
        }
    }
    Ok(())
}

/// One operation on one record, with how far the clock moved before it.
#[derive(Clone, Debug)]
enum Op {
    Acquire { lead_ms: u32 },
    Renew { window_ms: u32, is_stale: bool },
    Release { last_ms: u64, is_stale: bool },
    Expire { quarantine_ms: u64 },
    Fence { quarantine_ms: u64 },
    Free,
    Recover { ahead_ms: u64 },
    CutOver { ahead_ms: u64 },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0_u32..3_000).prop_map(|lead_ms| Op::Acquire { lead_ms }),
        4 => (0_u32..2_000, any::<bool>()).prop_map(|(window_ms, is_stale)| Op::Renew { window_ms, is_stale }),
        2 => (0_u64..5_000, any::<bool>()).prop_map(|(last_ms, is_stale)| Op::Release { last_ms, is_stale }),
        1 => (0_u64..100).prop_map(|quarantine_ms| Op::Expire { quarantine_ms }),
        1 => (0_u64..100).prop_map(|quarantine_ms| Op::Fence { quarantine_ms }),
        2 => Just(Op::Free),
        1 => (0_u64..2_000).prop_map(|ahead_ms| Op::Recover { ahead_ms }),
        1 => (0_u64..9_000).prop_map(|ahead_ms| Op::CutOver { ahead_ms }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn whatever_is_done_to_a_record_its_grants_never_overlap(
        history in prop::collection::vec((op(), -3_000_i64..3_000), 1..60),
    ) {
        // Shows, over arbitrary operations under a clock that jumps both ways: ranges of grants are disjoint, the end
        // falls only by a release, terms only rise, an end never passes a planned cut-over, and every record is valid
        // and has one encoding.
        let owner = Owner::new("me").unwrap();
        let mut cluster = ClusterRecord::new(1, layout(), 0).unwrap();
        let mut record = CodeRecord::UNUSED;
        let mut now = Now { boot_ms: 0, wall_ms: T, clock_error_ms: 3 };
        let mut grants: Vec<Used> = Vec::new();
        let mut holder = None;
        let mut stale = Holder { term: 0, nonce: 0 };
        for (nonce, (op, moved_ms)) in (1..).zip(history) {
            now.wall_ms = now.wall_ms.saturating_add_signed(moved_ms);
            let before = record.clone();
            let mut is_release = false;
            match op {
                Op::Acquire { lead_ms } => {
                    let bid = Bid { owner: &owner, window_ms: 1_000, lead_ms };
                    if let Ok(taken) = acquire(&record, &cluster, &bid, &now, nonce) {
                        grants.push(Used { code: 0, floor_ms: taken.floor_ms, used_ms: taken.end_ms });
                        holder = Some(Holder { term: taken.term, nonce });
                        record = taken;
                    }
                }
                Op::Renew { window_ms, is_stale } => {
                    let by = if is_stale { Some(stale) } else { holder };
                    let Some(by) = by else { continue };
                    if let Ok(renewed) = renew(&record, &cluster, by, window_ms.into(), &now, nonce) {
                        prop_assert!(!is_stale, "renewed by another nonce");
                        grants.last_mut().unwrap().used_ms = renewed.end_ms;
                        stale = by;
                        holder = Some(Holder { nonce, ..by });
                        record = renewed;
                    }
                }
                Op::Release { last_ms, is_stale } => {
                    let by = if is_stale { Some(stale) } else { holder };
                    let Some(by) = by else { continue };
                    let last_ms = record.floor_ms + last_ms;
                    if let Ok(released) = release(&record, by, last_ms, &now, nonce) {
                        prop_assert!(!is_stale, "released by another nonce");
                        let used = grants.last_mut().unwrap();
                        used.used_ms = last_ms.min(used.used_ms);
                        is_release = true;
                        holder = None;
                        record = released;
                    }
                }
                Op::Expire { quarantine_ms } => {
                    record = expire_alone(&record, quarantine_ms, &now, nonce).unwrap_or(record);
                }
                Op::Fence { quarantine_ms } => record = fence(&record, quarantine_ms, &now, nonce),
                Op::Free => record = free(&record, &now, nonce).unwrap_or(record),
                Op::Recover { ahead_ms } => {
                    cluster = recover(&cluster, now.wall_ms + ahead_ms, 1_000, &now).unwrap();
                }
                Op::CutOver { ahead_ms } => {
                    // An operator plans it above every end, else raises it.
                    cluster.cutover_last_ms = Some((now.wall_ms + ahead_ms).max(record.end_ms));
                }
            }
            prop_assert!(record.is_valid());
            prop_assert!(record.term >= before.term);
            prop_assert!(record.end_ms >= before.end_ms || is_release, "the end fell");
            prop_assert!(record.end_ms <= cluster.last_ms());
            prop_assert_eq!(CodeRecord::decode(&record.encode()), Ok(record.clone()));
        }
        assert_disjoint(&grants)?;
    }
}

/// What befalls a fleet.
#[derive(Clone, Debug)]
enum Fate {
    /// The store carries out a request that is under way.
    Deliver {
        at: usize,
    },
    /// A request, or a reply, is lost.
    Lose {
        at: usize,
    },
    /// A reply reaches its keeper, once or twice.
    Reply {
        at: usize,
        is_doubled: bool,
    },
    /// A keeper is told the time; those that are not told are paused.
    Wake {
        worker: usize,
    },
    /// Time passes for all.
    Pass {
        ms: u64,
    },
    /// One wall clock jumps.
    Jump {
        worker: usize,
        ms: i64,
    },
    /// A worker dies, and another takes its place.
    Crash {
        worker: usize,
    },
    /// A worker stops its generator, and gives its code back.
    Release {
        worker: usize,
        then: Then,
        part: u64,
    },
    Fence {
        code: u32,
    },
    Gc,
    Recover,
}

fn fate() -> impl Strategy<Value = Fate> {
    let worker = || 0_usize..WORKERS;
    prop_oneof![
        12 => (0_usize..8).prop_map(|at| Fate::Deliver { at }),
        2 => (0_usize..8).prop_map(|at| Fate::Lose { at }),
        12 => ((0_usize..8), prop::bool::weighted(0.2)).prop_map(|(at, is_doubled)| Fate::Reply { at, is_doubled }),
        12 => worker().prop_map(|worker| Fate::Wake { worker }),
        8 => (1_u64..600).prop_map(|ms| Fate::Pass { ms }),
        1 => (worker(), -5_000_i64..5_000).prop_map(|(worker, ms)| Fate::Jump { worker, ms }),
        1 => worker().prop_map(|worker| Fate::Crash { worker }),
        2 => (worker(), any::<bool>(), 0_u64..=100).prop_map(|(worker, again, part)| Fate::Release {
            worker,
            then: if again { Then::Acquire } else { Then::End },
            part,
        }),
        1 => (0_u32..2).prop_map(|code| Fate::Fence { code }),
        1 => Just(Fate::Gc),
        1 => Just(Fate::Recover),
    ]
}

const WORKERS: usize = 3;

struct Worker {
    keeper: Keeper,
    skew_ms: i64,
    taken: Option<u64>,
}

struct Fleet {
    store: MemoryStore,
    boot_ms: u64,
    nonce: u128,
    workers: Vec<Worker>,
    /// Which life of a worker asked.
    lives: Vec<u32>,
    requests: Vec<(usize, u32, RequestId, Request)>,
    replies: Vec<(usize, u32, RequestId, Reply)>,
    grants: BTreeMap<u64, Used>,
    confirmed: u32,
}

impl Fleet {
    fn new() -> Self {
        let store = MemoryStore::new();
        init(&store, &ClusterRecord::new(1, layout(), 0).unwrap()).unwrap();
        let workers = (0..WORKERS).map(|_| worker()).collect();
        Self {
            store,
            boot_ms: 1_000,
            nonce: 0,
            workers,
            lives: vec![0; WORKERS],
            requests: Vec::new(),
            replies: Vec::new(),
            grants: BTreeMap::new(),
            confirmed: 0,
        }
    }

    fn now(&self, worker: usize) -> Now {
        let wall_ms = (T + self.boot_ms).saturating_add_signed(self.workers[worker].skew_ms);
        Now { boot_ms: self.boot_ms, wall_ms, clock_error_ms: 5 }
    }

    fn draw(&mut self) -> u128 {
        self.nonce += 1;
        self.nonce
    }

    fn tell(&mut self, at: usize, event: Event) -> Result<(), TestCaseError> {
        let (now, nonce) = (self.now(at), self.draw());
        let worker = &mut self.workers[at];
        let output = worker.keeper.handle(event, &now, nonce);
        if let Some((id, request)) = output.request {
            self.requests.push((at, self.lives[at], id, request));
        }
        if let Some(grant) = worker.keeper.take_grant(now.boot_ms) {
            let (code, floor_ms) = (grant.node().worker(), grant.floor_ms());
            let used = Used { code, floor_ms, used_ms: floor_ms };
            prop_assert!(self.grants.insert(grant.ticket(), used).is_none(), "a ticket came back");
            worker.taken = Some(grant.ticket());
            self.confirmed += 1;
        }
        // The worst worker mints at once whatever it may, ahead of every clock.
        if let Some(view) = worker.keeper.view()
            && worker.taken == Some(view.ticket)
        {
            let used = self.grants.get_mut(&view.ticket).unwrap();
            prop_assert!(view.end_ms >= used.used_ms, "a ceiling fell");
            used.used_ms = view.end_ms;
        }
        Ok(())
    }

    #[allow(clippy::needless_pass_by_value)] // A fate befalls once.
    fn befall(&mut self, fate: Fate) -> Result<(), TestCaseError> {
        match fate {
            Fate::Deliver { at } if at < self.requests.len() => {
                let (worker, life, id, request) = self.requests.remove(at);
                let reply = perform(&self.store, &request);
                self.replies.push((worker, life, id, reply));
            }
            Fate::Lose { at } if at < self.requests.len() => drop(self.requests.remove(at)),
            Fate::Lose { at } if at < self.replies.len() => {
                let unreachable = StoreError::Unreachable { detail: String::from("lost") };
                self.replies[at].3 = Reply::Failed(unreachable);
            }
            Fate::Reply { at, is_doubled } if at < self.replies.len() => {
                let reply = self.replies.remove(at);
                if is_doubled {
                    self.replies.push(reply.clone());
                }
                let (worker, life, id, reply) = reply;
                if life == self.lives[worker] {
                    self.tell(worker, Event::Reply { id, reply })?;
                }
            }
            Fate::Wake { worker } => self.tell(worker, Event::Time)?,
            Fate::Pass { ms } => self.boot_ms += ms,
            Fate::Jump { worker, ms } => self.workers[worker].skew_ms += ms,
            Fate::Crash { worker: at } => {
                self.workers[at] = Worker { skew_ms: self.workers[at].skew_ms, ..worker() };
                self.lives[at] += 1;
            }
            Fate::Release { worker, then, part } => {
                let stopped = self.workers[worker].taken.map(|ticket| {
                    // Stopped, having reserved only a part of what it might have.
                    let used = self.grants.get_mut(&ticket).unwrap();
                    let is_held =
                        self.workers[worker].keeper.view().is_some_and(|view| view.ticket == ticket);
                    if is_held {
                        used.used_ms = used.floor_ms + (used.used_ms - used.floor_ms) * part / 100;
                    }
                    Stopped { ticket, last_reserved_ms: used.used_ms }
                });
                self.workers[worker].taken = None;
                self.tell(worker, Event::Release { stopped, then })?;
                if then == Then::End {
                    // Drained, or not, before the process goes.
                    self.workers[worker].taken = None;
                }
            }
            Fate::Fence { code } => {
                let (now, nonce) = (self.now(0), self.draw());
                store::fence(&self.store, code, 100, &now, nonce).unwrap();
            }
            Fate::Gc => {
                let now = self.now(0);
                let mut nonce = self.draw() << 64;
                let mut draw = || {
                    nonce += 1;
                    nonce
                };
                store::gc(&self.store, &now, &mut draw).unwrap();
            }
            Fate::Recover => {
                let now = self.now(0);
                store::recover(&self.store, now.wall_ms, 1_000, &now).unwrap().unwrap();
            }
            Fate::Deliver { .. } | Fate::Lose { .. } | Fate::Reply { .. } => {}
        }
        Ok(())
    }
}

fn worker() -> Worker {
    let config = KeeperConfig::embedded(layout(), 0, Owner::new("worker").unwrap());
    Worker { keeper: Keeper::new(config).unwrap(), skew_ms: 0, taken: None }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn whatever_befalls_a_fleet_its_grants_never_overlap(
        fates in prop::collection::vec(fate(), 50..400),
    ) {
        // Shows, for three keepers that fight over two codes through a network that delays, loses, doubles and
        // reorders, with pauses, crashes, jumping wall clocks, fences and recoveries: no two grants may have stamped
        // the same millisecond of a code, though each mints whatever it is allowed at once, and no ticket comes back.
        let mut fleet = Fleet::new();
        for fate in fates {
            fleet.befall(fate)?;
            assert_disjoint(fleet.grants.values())?;
        }
        // And what the records say covers all of it.
        for (code, stored) in fleet.store.scan().unwrap() {
            for used in fleet.grants.values().filter(|used| used.code == code) {
                prop_assert!(used.used_ms <= stored.record.end_ms);
            }
        }
    }
}

#[test]
fn the_fleet_of_the_model_is_granted_codes_at_all() {
    // Shows that the model is not empty: in a plain history, keepers are granted codes and mint.
    let mut fleet = Fleet::new();
    for round in 0..200 {
        for worker in 0..WORKERS {
            fleet.befall(Fate::Wake { worker }).unwrap();
            fleet.befall(Fate::Deliver { at: 0 }).unwrap();
            fleet.befall(Fate::Reply { at: 0, is_doubled: false }).unwrap();
        }
        fleet.befall(Fate::Pass { ms: 50 }).unwrap();
        if round % 50 == 49 {
            fleet.befall(Fate::Crash { worker: round % WORKERS }).unwrap();
        }
    }
    assert!(fleet.confirmed >= 4, "{}", fleet.confirmed);
    assert!(fleet.grants.values().any(|used| used.used_ms > used.floor_ms));
}
