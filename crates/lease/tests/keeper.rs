//! The keeper, told event by event: every row of its table, and every way in which a reply can go wrong.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // It is all test.

use std::num::NonZeroU32;

use snowmint_core::{Bounds, Generator, Layout, Policy, Refusal};
use snowmint_lease::protocol::{Bid, Holder};
use snowmint_lease::store::{self, expire_all};
use snowmint_lease::{
    ClusterRecord, CodeRecord, DecodeError, Event, Hindrance, Keeper, KeeperConfig, KeeperConfigError, Loss,
    MemoryStore, Notice, Now, Output, Owner, Phase, Reply, Request, RequestId, State, Stopped, Store,
    StoreError, Subject, Then, init, perform, protocol, step,
};

/// The wall clock at boot.
const T: u64 = 1_750_000_000_000;
/// When every test begins, by the boot-time clock.
const START_MS: u64 = 1_000;

fn layout() -> Layout {
    // Four codes.
    "reserved:1 timestamp:41 region:2 worker:2 sequence:18 epoch-ms:1735689600000 tick-ns:1000000"
        .parse()
        .unwrap()
}

fn cluster() -> ClusterRecord {
    ClusterRecord::new(1, layout(), 0).unwrap()
}

fn founded() -> MemoryStore {
    let store = MemoryStore::new();
    init(&store, &cluster()).unwrap();
    store
}

fn unreachable() -> Reply {
    Reply::Failed(StoreError::Unreachable { detail: String::from("no route") })
}

fn ticket_of(keeper: &Keeper) -> u64 {
    keeper.view().unwrap().ticket
}

/// A keeper, its clocks, and what it last asked.
struct Rig {
    keeper: Keeper,
    boot_ms: u64,
    clock_error_ms: u32,
    /// How far ahead the wall clock is.
    ahead_ms: u64,
    nonce: u128,
    asked: Option<(RequestId, Request)>,
    notices: Vec<Notice>,
}

impl Rig {
    fn new(seed: u128) -> Self {
        Self::with(KeeperConfig::embedded(layout(), 0, Owner::new("me").unwrap()), seed)
    }

    fn with(config: KeeperConfig, seed: u128) -> Self {
        let keeper = Keeper::new(config).unwrap();
        Self {
            keeper,
            boot_ms: START_MS,
            clock_error_ms: 1,
            ahead_ms: 0,
            nonce: seed << 64,
            asked: None,
            notices: Vec::new(),
        }
    }

    fn now(&self) -> Now {
        let wall_ms = T + self.boot_ms + self.ahead_ms;
        Now { boot_ms: self.boot_ms, wall_ms, clock_error_ms: self.clock_error_ms }
    }

    /// Tells one event, and keeps the request for the test to carry out, or not.
    fn tell(&mut self, event: Event) -> &mut Self {
        self.nonce += 1;
        let Output { request, notices } = self.keeper.handle(event, &self.now(), self.nonce);
        if request.is_some() {
            self.asked = request;
        }
        self.notices.extend(notices);
        self
    }

    fn at(&mut self, boot_ms: u64) -> &mut Self {
        self.boot_ms = boot_ms;
        self.tell(Event::Time)
    }

    /// Moves the clock to when the keeper wants to be told, and tells it.
    fn wake(&mut self) -> &mut Self {
        self.at(self.keeper.next_wake_boot_ms())
    }

    fn request(&self) -> &Request {
        &self.asked.as_ref().expect("nothing was asked").1
    }

    /// The store carries out what was asked, and its reply arrives.
    fn answer(&mut self, store: &dyn Store) -> &mut Self {
        let (id, reply) = self.carry_out(store);
        self.tell(Event::Reply { id, reply })
    }

    /// The store carries out what was asked; its reply is the test's to deliver, late or never.
    fn carry_out(&mut self, store: &dyn Store) -> (RequestId, Reply) {
        let (id, request) = self.asked.take().expect("nothing was asked");
        (id, perform(store, &request))
    }

    /// A reply arrives that the test made up.
    fn reply(&mut self, reply: Reply) -> &mut Self {
        let (id, _) = self.asked.take().expect("nothing was asked");
        self.tell(Event::Reply { id, reply })
    }

    /// Answers everything that is asked now.
    fn settle(&mut self, store: &dyn Store) -> &mut Self {
        while self.asked.is_some() {
            self.answer(store);
        }
        self
    }

    /// Answers until the next swap is asked, which is left to the test.
    fn settle_to_swap(&mut self, store: &dyn Store) -> &mut Self {
        while !matches!(self.request(), Request::Swap { .. }) {
            self.answer(store);
        }
        self
    }

    /// Brings a keeper to hold a code, and returns the ticket of its grant, which is taken.
    fn hold(&mut self, store: &dyn Store) -> u64 {
        self.at(self.boot_ms).settle(store);
        let ticket = self.keeper.take_grant(self.boot_ms).unwrap().ticket();
        self.notices.clear();
        ticket
    }

    fn ceiling_ms(&self, ticket: u64) -> u64 {
        self.keeper.ceiling_ms(ticket, self.boot_ms)
    }

    fn losses(&self) -> Vec<&Loss> {
        let mut losses = Vec::new();
        for notice in &self.notices {
            if let Notice::Lost { loss, .. } = notice {
                losses.push(loss);
            }
        }
        losses
    }
}

#[test]
fn it_acquires_renews_every_third_of_the_window_and_counts_the_deadline_from_before_the_sending() {
    // Shows the way of a grant when all goes well, with a store that takes 50 ms for each reply.
    let store = founded();
    let mut rig = Rig::new(1);
    assert_eq!(rig.keeper.phase(START_MS), Phase::Seeking);
    rig.at(START_MS).settle_to_swap(&store);
    assert_eq!(rig.keeper.phase(START_MS), Phase::Acquiring);
    let (id, reply) = rig.carry_out(&store);
    rig.boot_ms += 50;
    rig.tell(Event::Reply { id, reply });
    let ticket = ticket_of(&rig.keeper);
    let view = rig.keeper.view().unwrap();
    assert_eq!((view.floor_ms, view.end_ms, view.deadline_boot_ms), (0, T + 2_000, 2_000));
    assert_eq!(rig.keeper.next_wake_boot_ms(), START_MS + 333);
    assert_eq!(rig.keeper.phase(1_999), Phase::Held);
    assert_eq!(rig.keeper.phase(2_000), Phase::Lapsed);

    let (mut sent_ms, before_ms) = (1_333, T + 2_000);
    rig.at(sent_ms);
    // A request under way raises nothing.
    assert_eq!(rig.ceiling_ms(ticket), before_ms);
    for _ in 0..10 {
        let (id, reply) = rig.carry_out(&store);
        rig.boot_ms += 50;
        rig.tell(Event::Reply { id, reply });
        let view = rig.keeper.view().unwrap();
        assert_eq!((view.end_ms, view.deadline_boot_ms), (T + sent_ms + 1_000, sent_ms + 1_000));
        sent_ms += 333;
        assert_eq!(rig.keeper.next_wake_boot_ms(), sent_ms);
        rig.at(sent_ms);
    }
}

#[test]
fn f6_a_grant_is_handed_out_once() {
    // F6: shows that a second generator for one grant has no grant to be made of, and that other tickets have no
    // ceiling.
    let store = founded();
    let mut rig = Rig::new(1);
    assert_eq!(rig.keeper.take_grant(START_MS), None);
    rig.at(START_MS).settle(&store);
    let grant = rig.keeper.take_grant(START_MS).unwrap();
    assert_eq!(rig.keeper.take_grant(START_MS), None);
    rig.at(1_333).settle(&store);
    assert_eq!(rig.keeper.take_grant(1_333), None);
    for other in [0, grant.ticket() - 1, grant.ticket() + 1, u64::MAX] {
        assert_eq!(rig.ceiling_ms(other), 0);
    }
}

#[test]
fn f6_a_grant_is_not_handed_out_past_its_deadline() {
    // Shows that a grant which nobody took in time waits for the next confirmation.
    let store = founded();
    let mut rig = Rig::new(1);
    rig.at(START_MS).settle(&store);
    assert_eq!(rig.keeper.take_grant(2_000), None);
    rig.at(2_000).settle(&store);
    assert!(rig.keeper.take_grant(2_000).is_some());
}

#[test]
fn an_unreachable_store_stops_minting_at_the_confirmed_end_and_not_before() {
    // Shows the isolated worker: it goes on inside its window, fails closed after it, and resumes by itself with the
    // same grant when the store is back and the record is still its own.
    let store = founded();
    let mut rig = Rig::new(1);
    let ticket = rig.hold(&store);
    rig.at(1_333);
    for boot_ms in (1_333..2_000).step_by(20) {
        rig.at(boot_ms);
        if rig.asked.is_some() {
            rig.reply(unreachable());
        }
        assert_eq!(
            (rig.ceiling_ms(ticket), rig.keeper.phase(boot_ms)),
            (T + 2_000, Phase::Held),
            "{boot_ms}"
        );
    }
    assert!(rig.notices.iter().any(|it| matches!(it, Notice::Unconfirmed { .. })));
    for boot_ms in (2_000..20_000).step_by(100) {
        rig.at(boot_ms);
        if rig.asked.is_some() {
            rig.reply(unreachable());
        }
        assert_eq!((rig.ceiling_ms(ticket), rig.keeper.phase(boot_ms)), (0, Phase::Lapsed), "{boot_ms}");
    }
    assert_eq!(rig.notices.iter().filter(|it| matches!(it, Notice::Lapsed { .. })).count(), 1);
    assert!(matches!(rig.keeper.hindrance(), Some(Hindrance::Store(StoreError::Unreachable { .. }))));
    rig.at(20_000).settle(&store);
    assert_eq!(rig.ceiling_ms(ticket), T + 21_000);
    assert_eq!(rig.notices.last(), Some(&Notice::Resumed { ticket, end_ms: T + 21_000 }));
    assert_eq!((rig.losses().len(), rig.keeper.hindrance()), (0, None));
}

#[test]
fn a_reply_that_never_comes_is_as_unreachable() {
    // Shows that silence is noticed in time for a second try before the deadline.
    let store = founded();
    let mut rig = Rig::new(1);
    let ticket = rig.hold(&store);
    rig.at(1_333);
    rig.asked = None; // Lost on the way.
    let due_ms = rig.keeper.next_wake_boot_ms();
    rig.at(due_ms).wake().settle(&store);
    assert!(rig.boot_ms < 2_000, "{}", rig.boot_ms);
    assert_eq!(rig.ceiling_ms(ticket), T + rig.boot_ms + 1_000);
}

#[test]
fn a_lost_reply_to_a_renewal_is_found_in_the_record() {
    // Shows that a renewal which arrived, and whose reply did not, is known by its nonce, with the end that the record
    // has and the deadline of its own sending.
    let store = founded();
    let mut rig = Rig::new(1);
    let ticket = rig.hold(&store);
    rig.at(1_333);
    let _ = rig.carry_out(&store);
    rig.at(1_666).wake();
    assert_eq!(*rig.request(), Request::Read { code: rig.keeper.view().unwrap().code });
    rig.answer(&store);
    let view = rig.keeper.view().unwrap();
    assert_eq!((view.end_ms, view.deadline_boot_ms), (T + 2_333, 2_333));
    rig.settle(&store);
    assert_eq!((rig.ceiling_ms(ticket), rig.losses().len()), (T + rig.boot_ms + 1_000, 0));
}

#[test]
fn a_renewal_that_arrives_after_it_was_given_up_is_still_the_grants_own() {
    // Shows the renewal that lands late, between the read that missed it and the next renewal: that one conflicts, the
    // record bears a nonce that this grant sent, and the grant goes on from the record.
    let store = founded();
    let mut rig = Rig::new(1);
    let ticket = rig.hold(&store);
    rig.at(1_333);
    let (late_id, late) = rig.asked.take().unwrap();
    rig.at(1_666).wake().answer(&store);
    assert!(matches!(rig.request(), Request::Swap { .. }), "not sent again after the read");
    let late_reply = perform(&store, &late); // It lands.
    rig.answer(&store); // And the second conflicts.
    assert!(matches!(rig.request(), Request::Read { .. }));
    rig.tell(Event::Reply { id: late_id, reply: late_reply }); // Too late to say anything.
    assert!(matches!(rig.request(), Request::Read { .. }));
    rig.settle(&store);
    assert_eq!((rig.ceiling_ms(ticket), rig.losses().len()), (T + rig.boot_ms + 1_000, 0));
}

#[test]
fn f11_a_holder_that_wakes_up_after_another_took_its_code_stays_below_its_own_ceiling() {
    // F11: shows the paused owner: its code expires and is granted to another; awake again it mints nothing above its
    // old ceiling, its renewal conflicts, the foreign nonce is final, and the ranges are disjoint.
    let store = founded();
    let mut paused = Rig::new(1);
    let ticket = paused.hold(&store);
    let code = paused.keeper.view().unwrap().code;
    let old_ceiling_ms = paused.ceiling_ms(ticket);

    // The others are taken, so that the contender must wait for this one.
    let mut others: Vec<_> = (2..5).map(Rig::new).collect();
    for other in &mut others {
        other.hold(&store);
    }
    let mut contender = Rig::new(9);
    let grant = loop {
        let due_ms = contender.keeper.next_wake_boot_ms().max(contender.boot_ms);
        contender.at(due_ms).settle(&store);
        for other in &mut others {
            other.at(contender.boot_ms).settle(&store);
        }
        if let Some(grant) = contender.keeper.take_grant(contender.boot_ms) {
            break grant;
        }
        assert!(contender.boot_ms < 10_000);
    };
    assert!(contender.boot_ms >= START_MS + 1_500, "expired before a whole TTL");
    assert_eq!(grant.node().worker(), code);
    assert_eq!(grant.floor_ms(), old_ceiling_ms);

    paused.boot_ms = contender.boot_ms;
    assert_eq!(paused.ceiling_ms(ticket), 0, "past its deadline, before it is told anything");
    paused.tell(Event::Time);
    paused.answer(&store).answer(&store);
    assert_eq!(paused.losses(), [&Loss::Superseded { state: State::Active, term: 2 }]);
    assert_eq!(paused.ceiling_ms(ticket), 0);
    assert_ne!(grant.ticket(), ticket);
}

#[test]
fn f12_the_same_code_again_in_the_same_process_begins_from_the_new_grant() {
    // F12: shows that a keeper which loses its code and gets it back has another ticket and a floor above its old end,
    // and that the old ticket stays dead.
    let store = founded();
    let mut rig = Rig::new(1);
    let old = rig.hold(&store);
    let code = rig.keeper.view().unwrap().code;
    let old_end_ms = rig.keeper.view().unwrap().end_ms;
    store::fence(&store, code, 0, &rig.now(), 1 << 100).unwrap();
    rig.at(1_333).answer(&store).answer(&store);
    assert_eq!(rig.losses(), [&Loss::Superseded { state: State::Fenced, term: 2 }]);
    rig.settle(&store);
    let other = rig.keeper.view().unwrap();
    assert_ne!(other.code, code);

    // Later it gives that one back, and the fenced one is the best that is left.
    rig.boot_ms = 5_000;
    store::gc(&store, &rig.now(), &mut || 2 << 100).unwrap();
    let taken = rig.keeper.view().unwrap();
    rig.tell(Event::Release { stopped: None, then: Then::Acquire }).settle(&store);
    let grant = rig.keeper.take_grant(rig.boot_ms).unwrap();
    assert_eq!(grant.node().worker(), code);
    assert!(grant.floor_ms() >= old_end_ms);
    assert!(![old, taken.ticket].contains(&grant.ticket()));
    assert_eq!((rig.ceiling_ms(old), rig.ceiling_ms(grant.ticket())), (0, T + 6_000));
}

#[test]
fn f2_a_restart_with_the_clock_set_back_waits_for_the_end_of_the_life_before() {
    // F2: shows that after a kill the next process, with the wall clock 1 h behind, gets no code that was used up to a
    // later time until its clock is past it; with codes that were not, it mints with one of those.
    let store = founded();
    let mut before = Rig::new(1);
    before.boot_ms = 3_600_000;
    before.hold(&store);
    let used = before.keeper.view().unwrap();
    expire_all(&store, &before.now(), 0, &mut || 1 << 100).unwrap();

    let mut after = Rig::new(2);
    after.at(START_MS).settle(&store);
    assert_ne!(after.keeper.view().unwrap().code, used.code);

    // All codes used up to then.
    let store = founded();
    let mut lives: Vec<_> = (10..14).map(Rig::new).collect();
    for life in &mut lives {
        life.boot_ms = 3_600_000;
        life.hold(&store);
    }
    let mut nonce = 1 << 100;
    let draw = &mut || {
        nonce += 1;
        nonce
    };
    expire_all(&store, &before.now(), 0, draw).unwrap();
    let mut after = Rig::new(3);
    after.at(START_MS).settle(&store);
    let Some(Hindrance::NoneLeft(left)) = after.keeper.hindrance() else { panic!("{:?}", after.keeper) };
    assert_eq!(left.wait_ms, Some(3_600_001), "3,601,000 - 1,000 and one more");
    after.at(3_601_000).settle(&store);
    assert_eq!(after.keeper.take_grant(after.boot_ms), None);
    after.at(3_601_001).settle(&store);
    assert_eq!(after.keeper.take_grant(after.boot_ms).unwrap().floor_ms(), T + 3_601_000);
}

#[test]
fn f10_a_frozen_clock_ends_in_a_refusal_and_never_in_a_loop() {
    // F10's kind: shows that a keeper whose clocks stand still asks a bounded number of times, waits, and goes on
    // holding what it has.
    let store = founded();
    let mut rig = Rig::new(1);
    let ticket = rig.hold(&store);
    for _ in 0..1_000 {
        rig.tell(Event::Time);
        assert_eq!(rig.asked, None);
    }
    assert_eq!(rig.ceiling_ms(ticket), T + 2_000);

    for others in 2..5 {
        Rig::new(others).hold(&store);
    }
    let mut waiting = Rig::new(9);
    waiting.at(START_MS).settle(&store);
    for _ in 0..1_000 {
        waiting.tell(Event::Time);
        assert_eq!(waiting.asked, None);
    }
    assert!(waiting.keeper.next_wake_boot_ms() > START_MS);
}

#[test]
fn every_definite_error_stops_minting_at_once() {
    // Shows, for each error that is neither an answer nor transient, whichever request meets it: ceiling 0, the grant
    // is over, and the reason is told. F14 among them: a record that was deleted.
    let text = || String::from("detail");
    for error in [
        StoreError::Missing { subject: Subject::Code(0) },
        StoreError::Missing { subject: Subject::Cluster },
        StoreError::Gone { place: text() },
        StoreError::from_decode(Subject::Code(0), DecodeError::Trailing { bytes: 1 }),
        StoreError::Unreadable { detail: text() },
        StoreError::WrongVersion { found: 2, expected: 1 },
        StoreError::WrongLayout { stored: text(), configured: text() },
        StoreError::WrongRegion { stored: 1, configured: 0 },
        StoreError::NotInitialised { place: text() },
        StoreError::AlreadyInitialised { place: text() },
        StoreError::InUse { by: text() },
        StoreError::NoLocks { place: text() },
        StoreError::Copied { detail: text() },
        StoreError::Forked,
        StoreError::ReadOnly { detail: text() },
        StoreError::Full { detail: text() },
        StoreError::Io { detail: text() },
    ] {
        for to_read in [false, true] {
            let store = founded();
            let mut rig = Rig::new(1);
            let ticket = rig.hold(&store);
            rig.at(1_333);
            if to_read {
                rig.reply(unreachable()).wake();
                assert!(matches!(rig.request(), Request::Read { .. }));
            }
            assert_eq!(rig.ceiling_ms(ticket), T + 2_000);
            rig.reply(Reply::Failed(error.clone()));
            assert_eq!(rig.losses(), [&Loss::Store(error.clone())]);
            assert_eq!((rig.ceiling_ms(ticket), rig.keeper.view()), (0, None));
            assert_eq!(rig.keeper.hindrance(), Some(&Hindrance::Store(error.clone())));
            assert_eq!(rig.asked, None, "a broken store is not asked again at once");
            // Once the store is sound again there is another grant, and the old ticket stays dead.
            rig.wake().settle(&store);
            assert_ne!(ticket_of(&rig.keeper), ticket);
            assert_eq!(rig.ceiling_ms(ticket), 0);
        }
    }
}

#[test]
fn f14_a_record_that_is_deleted_stops_its_holder_and_whoever_starts() {
    // F14: shows that the running holder fails closed at its next renewal, and that a keeper that starts refuses the
    // whole store: what is absent is damaged, not unused.
    for delete_cluster in [false, true] {
        let store = founded();
        let mut rig = Rig::new(1);
        let ticket = rig.hold(&store);
        let code = rig.keeper.view().unwrap().code;
        let subject = if delete_cluster {
            store.delete_cluster();
            Subject::Cluster
        } else {
            store.delete_code(code);
            Subject::Code(code)
        };
        rig.at(1_333).settle(&store);
        assert_eq!(rig.losses(), [&Loss::Store(StoreError::Missing { subject })]);
        assert_eq!(rig.ceiling_ms(ticket), 0);

        let mut next = Rig::new(2);
        next.at(START_MS).settle(&store);
        assert_eq!(next.keeper.hindrance(), Some(&Hindrance::Store(StoreError::Missing { subject })));
        assert_eq!(next.keeper.take_grant(START_MS), None);
        if delete_cluster {
            assert_eq!(init(&store, &cluster()), Err(StoreError::Missing { subject }));
        }
    }
}

#[test]
fn damaged_records_are_refused() {
    // Shows that one damaged record keeps a keeper from starting, and names itself.
    let store = founded();
    store.damage_code(3, b"SNML");
    let mut rig = Rig::new(1);
    rig.at(START_MS).settle(&store);
    let Some(Hindrance::Store(error)) = rig.keeper.hindrance() else { panic!("{:?}", rig.keeper) };
    assert_eq!(error.reason(), "damaged");
    assert!(error.to_string().contains("code 3"), "{error}");
}

#[test]
fn f3_nothing_is_granted_while_the_store_is_unreachable() {
    // F3: shows that a start without the store grants nothing, says why, and asks again at its own pace.
    let mut rig = Rig::new(1);
    rig.at(START_MS);
    for _ in 0..100 {
        rig.reply(unreachable());
        assert_eq!((rig.keeper.take_grant(rig.boot_ms), rig.asked.clone()), (None, None));
        let wake_ms = rig.keeper.next_wake_boot_ms();
        assert!(wake_ms > rig.boot_ms);
        rig.at(wake_ms);
    }
    assert!(matches!(rig.keeper.hindrance(), Some(Hindrance::Store(StoreError::Unreachable { .. }))));
    assert_eq!(rig.notices.len(), 1, "one notice for one reason");
}

#[test]
fn a_lost_reply_to_an_acquire_is_found_in_the_record() {
    // Shows that an acquire which arrived, and whose reply did not, costs no code: the read finds the nonce, and the
    // deadline counts from the sending of the acquire.
    let store = founded();
    let mut rig = Rig::new(1);
    rig.at(START_MS).settle_to_swap(&store);
    let _ = rig.carry_out(&store);
    rig.at(1_333).wake();
    rig.answer(&store);
    let view = rig.keeper.view().unwrap();
    assert_eq!((view.term, view.end_ms, view.deadline_boot_ms), (1, T + 2_000, 2_000));
    assert!(rig.keeper.take_grant(rig.boot_ms).is_some());
}

#[test]
fn a_late_reply_to_an_abandoned_acquire_is_never_adopted() {
    // Shows the acquire that is given up after its window, lands and is confirmed while the keeper seeks, and again
    // after it has another code: neither gives it a grant.
    let store = founded();
    let mut rig = Rig::new(1);
    rig.at(START_MS).settle_to_swap(&store);
    let (late_id, late) = rig.asked.take().unwrap();
    let Request::Swap { code: late_code, .. } = late else { panic!() };
    while rig.boot_ms < 2_100 {
        rig.wake();
        if rig.asked.is_some() {
            rig.reply(unreachable());
        }
    }
    assert_eq!(rig.keeper.phase(rig.boot_ms), Phase::Seeking);
    let late_reply = perform(&store, &late);
    assert!(matches!(late_reply, Reply::Swapped(_)));
    rig.tell(Event::Reply { id: late_id, reply: late_reply.clone() });
    assert_eq!(rig.keeper.view(), None);
    rig.wake().settle(&store);
    let view = rig.keeper.view().unwrap();
    assert_ne!(view.code, late_code);
    rig.tell(Event::Reply { id: late_id, reply: late_reply });
    assert_eq!(rig.keeper.view(), Some(view));
}

#[test]
fn an_acquire_that_lands_after_the_read_that_missed_it_is_not_adopted() {
    // Shows that the read decides: the claim is over, and the code that was taken in vain expires like any other.
    let store = founded();
    let mut rig = Rig::new(1);
    rig.at(START_MS).settle_to_swap(&store);
    let (_, late) = rig.asked.take().unwrap();
    rig.at(1_333).wake().answer(&store);
    assert!(matches!(perform(&store, &late), Reply::Swapped(_)));
    rig.settle(&store);
    let Request::Swap { code, .. } = late else { panic!() };
    assert_ne!(rig.keeper.view().unwrap().code, code);
}

#[test]
fn a_claim_that_another_won_is_not_adopted() {
    // Shows the acquire that never arrived, while another keeper took the same code: the read shows an active record
    // of the very term that was hoped for, and the foreign nonce tells.
    let store = founded();
    let mut rig = Rig::new(1);
    rig.at(START_MS).settle_to_swap(&store);
    let (_, Request::Swap { code, record, .. }) = rig.asked.take().unwrap() else { panic!() };
    let stored = store.read(code).unwrap();
    let other = CodeRecord { nonce: 1 << 100, ..record };
    store.swap(code, stored.revision, store.cluster().unwrap().revision, &other).unwrap();
    rig.wake().wake().answer(&store);
    assert_eq!((rig.keeper.view(), rig.keeper.phase(rig.boot_ms)), (None, Phase::Seeking));
    rig.settle(&store);
    assert_ne!(rig.keeper.view().unwrap().code, code);
}

#[test]
fn a_twin_of_the_same_grant_is_found_out() {
    // Shows a machine that was cloned with its grant: the twin renews at the same term, and the nonce, which is none of
    // this grant's, is final for whoever comes second.
    let store = founded();
    let mut rig = Rig::new(1);
    let ticket = rig.hold(&store);
    let code = rig.keeper.view().unwrap().code;
    let stored = store.read(code).unwrap();
    let twin = CodeRecord { nonce: 1 << 100, end_ms: T + 2_100, ..stored.record };
    store.swap(code, stored.revision, store.cluster().unwrap().revision, &twin).unwrap();
    rig.at(1_333).answer(&store).answer(&store);
    assert_eq!(rig.losses(), [&Loss::Superseded { state: State::Active, term: 1 }]);
    assert_eq!(rig.ceiling_ms(ticket), 0);
}

#[test]
fn a_lost_race_is_run_again_at_once() {
    // Shows two keepers after the same best code: one gets it, the other its next best.
    let store = founded();
    let mut last = Rig::new(1);
    let ticket = last.hold(&store);
    let best = last.keeper.view().unwrap().code;
    let stopped = Some(Stopped { ticket, last_reserved_ms: T + 999 });
    last.tell(Event::Release { stopped, then: Then::End }).settle(&store);
    let (mut one, mut other) = (Rig::new(2), Rig::new(3));
    one.at(1_100).settle_to_swap(&store);
    other.at(1_100).settle_to_swap(&store);
    for rig in [&one, &other] {
        assert!(matches!(rig.request(), Request::Swap { code, .. } if *code == best));
    }
    other.settle(&store);
    one.settle(&store);
    assert_eq!(other.keeper.view().unwrap().code, best);
    assert_ne!(one.keeper.view().unwrap().code, best);
}

#[test]
fn a_changed_cluster_record_is_read_before_the_next_renewal() {
    // Shows a cut-over that is planned under a holder: the renewal is refused, the record read, and the end clamped;
    // and a store of another generation, layout or region: the grant is over.
    let other = ClusterRecord::new(1, Layout::SNOWMINT, 0).unwrap();
    let moved = ClusterRecord::new(1, layout(), 1).unwrap();
    let replaced = ClusterRecord { uuid: 2, ..cluster() };
    let recovered = ClusterRecord { generation: 2, ..cluster() };
    let planned = ClusterRecord { cutover_last_ms: Some(T + 2_100), ..cluster() };
    for (record, expected) in [
        (planned, Ok(T + 2_100)),
        (recovered, Err("wrong-generation")),
        (replaced, Err("wrong-generation")),
        (other, Err("wrong-layout")),
        (moved, Err("wrong-region")),
    ] {
        let store = founded();
        let mut rig = Rig::new(1);
        let ticket = rig.hold(&store);
        store.swap_cluster(store.cluster().unwrap().revision, &record).unwrap();
        rig.at(1_333).answer(&store);
        assert_eq!((rig.request(), rig.ceiling_ms(ticket)), (&Request::Cluster, T + 2_000));
        rig.answer(&store);
        match expected {
            Ok(end_ms) => {
                rig.settle(&store);
                assert_eq!(rig.ceiling_ms(ticket), end_ms);
                rig.at(1_900).settle(&store);
                assert_eq!(rig.ceiling_ms(ticket), end_ms, "raised above the cut-over");
            }
            Err(reason) => {
                let losses = rig.losses();
                let [Loss::Store(error)] = &losses[..] else { panic!("{losses:?}") };
                assert_eq!((error.reason(), rig.ceiling_ms(ticket)), (reason, 0));
            }
        }
    }
}

#[test]
fn release_comes_after_stop_and_lowers_the_end() {
    // Shows what the record says after a release, whatever the host knows of its generator: F4's clean stop.
    let taken = T + 1_200;
    for (is_taken, stopped, end_ms) in [
        (true, Some((0, taken)), taken),
        (false, None, 0),
        (false, Some((0, taken)), 0),
        // A host that lost count: the end stays as it was granted.
        (true, None, T + 2_000),
        (true, Some((1, taken)), T + 2_000),
    ] {
        let store = founded();
        let mut rig = Rig::new(1);
        rig.at(START_MS).settle(&store);
        let ticket = ticket_of(&rig.keeper);
        let code = rig.keeper.view().unwrap().code;
        if is_taken {
            rig.keeper.take_grant(START_MS).unwrap();
        }
        rig.boot_ms = 1_200;
        let stopped =
            stopped.map(|(off, last_reserved_ms)| Stopped { ticket: ticket + off, last_reserved_ms });
        rig.tell(Event::Release { stopped, then: Then::End });
        assert_eq!((rig.ceiling_ms(ticket), rig.keeper.phase(1_200)), (0, Phase::Releasing));
        rig.settle(&store);
        assert_eq!(rig.notices.last(), Some(&Notice::Released { ticket, end_ms }));
        assert_eq!((rig.keeper.phase(1_200), rig.keeper.next_wake_boot_ms()), (Phase::Ended, u64::MAX));
        let record = store.read(code).unwrap().record;
        assert_eq!((record.state, record.end_ms), (State::Free, end_ms));
        rig.tell(Event::Time);
        assert_eq!(rig.asked, None);
    }
}

#[test]
fn a_release_is_sent_until_it_is_known() {
    // Shows a release during a renewal, a lost reply to a release, and a store that stays away: it ends all the same.
    let store = founded();
    let mut rig = Rig::new(1);
    let ticket = rig.hold(&store);
    rig.at(1_333);
    let renewal = rig.asked.take().unwrap().1;
    let stopped = Some(Stopped { ticket, last_reserved_ms: T + 1_300 });
    rig.tell(Event::Release { stopped, then: Then::End });
    rig.answer(&store); // A read: the renewal has not landed yet.
    perform(&store, &renewal); // Now it does,
    rig.answer(&store); // the release conflicts,
    rig.answer(&store); // the read shows an own nonce,
    let _ = rig.carry_out(&store); // and the second release lands, but its reply is lost.
    rig.wake().wake().settle(&store);
    assert_eq!(rig.notices.last(), Some(&Notice::Released { ticket, end_ms: T + 1_300 }));
    assert_eq!(rig.keeper.phase(rig.boot_ms), Phase::Ended);

    let mut rig = Rig::new(2);
    let ticket = rig.hold(&store);
    rig.tell(Event::Release { stopped: None, then: Then::End });
    while rig.keeper.phase(rig.boot_ms) != Phase::Ended {
        if rig.asked.is_some() {
            rig.reply(unreachable());
        }
        let wake_ms = rig.keeper.next_wake_boot_ms();
        if wake_ms < u64::MAX {
            rig.at(wake_ms);
        }
        assert!(rig.boot_ms < 5_000, "never gives up");
    }
    assert_eq!(rig.notices.last(), Some(&Notice::Unreleased { ticket }));
}

#[test]
fn a_keeper_that_is_told_to_end_before_it_has_a_code_leaves_none_behind() {
    // Shows the end while seeking, and while a claim is under way: what was granted is given back untouched.
    let store = founded();
    let mut rig = Rig::new(1);
    rig.at(START_MS).tell(Event::Release { stopped: None, then: Then::End });
    assert_eq!(rig.keeper.phase(START_MS), Phase::Ended);

    let mut rig = Rig::new(2);
    rig.at(START_MS)
        .settle_to_swap(&store)
        .tell(Event::Release { stopped: None, then: Then::End })
        .settle(&store);
    assert_eq!(rig.keeper.phase(START_MS), Phase::Ended);
    for (_, stored) in store.scan().unwrap() {
        assert_eq!((stored.record.state, stored.record.end_ms), (State::Free, 0));
    }
}

#[test]
fn f15_a_clock_that_is_not_believed_raises_no_end() {
    // F15: shows that a renewal under a clock whose error is above the limit keeps the code and not more, that nothing
    // is acquired by such a clock, and that both go on once it is believed again.
    let store = founded();
    let mut rig = Rig::new(1);
    let ticket = rig.hold(&store);
    let code = rig.keeper.view().unwrap().code;
    rig.boot_ms = 1_333;
    rig.clock_error_ms = u32::MAX;
    let eight_hours_fast = Now { wall_ms: T + 28_800_000, ..rig.now() };
    let output = rig.keeper.handle(Event::Time, &eight_hours_fast, 1 << 100);
    rig.asked = output.request;
    rig.settle(&store);
    let record = store.read(code).unwrap().record;
    assert_eq!((record.end_ms, record.nonce), (T + 2_000, 1 << 100), "it beats, and does not reach further");
    assert_eq!(rig.ceiling_ms(ticket), T + 2_000);

    let mut other = Rig::new(2);
    other.clock_error_ms = 11;
    other.at(START_MS);
    assert_eq!(other.asked, None);
    assert_eq!(other.keeper.hindrance(), Some(&Hindrance::Clock { clock_error_ms: 11 }));
    other.clock_error_ms = 10;
    other.wake().settle(&store);
    assert!(other.keeper.view().is_some());
    rig.clock_error_ms = 1;
    rig.at(1_700).settle(&store);
    assert_eq!(rig.ceiling_ms(ticket), T + 2_700);
}

#[test]
fn f4_five_thousand_lives_of_one_region_use_up_no_code() {
    // F4: shows that clean stops give a code back at once, crashed ones after a TTL, over 5,000 lives and four codes.
    let store = founded();
    let mut boot_ms = START_MS;
    for life in 0..5_000_u64 {
        let mut rig = Rig::new(u128::from(life) + 1);
        rig.boot_ms = boot_ms;
        let (ticket, mut waited) = loop {
            rig.at(rig.boot_ms).settle(&store);
            if let Some(grant) = rig.keeper.take_grant(rig.boot_ms) {
                break (grant.ticket(), rig.boot_ms - boot_ms);
            }
            rig.boot_ms = rig.keeper.next_wake_boot_ms();
            assert!(rig.boot_ms - boot_ms <= 3_000, "life {life} waits too long");
        };
        boot_ms = rig.boot_ms + 1;
        if life % 7 == 0 {
            waited = 0; // A crash: the code is left to expire.
        } else {
            let stopped = Some(Stopped { ticket, last_reserved_ms: T + rig.boot_ms });
            rig.tell(Event::Release { stopped, then: Then::End }).settle(&store);
        }
        assert!(waited <= 3_000);
    }
    let terms: u32 = store.scan().unwrap().iter().map(|(_, stored)| stored.record.term).sum();
    assert_eq!(terms, 5_000);
}

#[test]
fn a_generator_under_a_keeper_stops_with_it() {
    // Shows core and lease together: minting goes on to the confirmed end, is refused by name after, and the release
    // gives back what was not used.
    let store = founded();
    let mut rig = Rig::new(1);
    rig.at(START_MS).settle(&store);
    let grant = rig.keeper.take_grant(START_MS).unwrap();
    let ticket = grant.ticket();
    let mut generator = Generator::new(layout(), grant, Policy::CLASSIC).unwrap();
    let mut mint = |rig: &Rig| {
        let ceiling_ms = rig.ceiling_ms(ticket);
        let bounds = Bounds { ceiling_ms, mark_ms: ceiling_ms, clock_error_ms: 1 };
        generator.mint(T + rig.boot_ms, &bounds, NonZeroU32::MIN).map(|run| layout().decode(run.first()))
    };
    let parts = mint(&rig).unwrap();
    assert_eq!(parts.worker, u64::from(rig.keeper.view().unwrap().code));
    rig.boot_ms = 1_999;
    assert!(mint(&rig).is_ok());
    rig.boot_ms = 2_000;
    assert_eq!(mint(&rig), Err(Refusal::LeaseLost));
    let last_reserved_ms = generator.stop().unwrap();
    assert_eq!(last_reserved_ms, T + 1_999);
    let code = rig.keeper.view().unwrap().code;
    rig.tell(Event::Release { stopped: Some(Stopped { ticket, last_reserved_ms }), then: Then::End })
        .settle(&store);
    assert_eq!(store.read(code).unwrap().record.end_ms, T + 1_999);
}

#[test]
fn a_step_carries_out_what_is_asked_and_no_more_than_that() {
    // Shows the driver: from nothing to a grant in one call, and a bounded number of requests of a store that only
    // ever conflicts.
    struct Conflicting(MemoryStore);
    impl Store for Conflicting {
        fn cluster(&self) -> Result<snowmint_lease::Stored<ClusterRecord>, StoreError> {
            self.0.cluster()
        }
        fn read(&self, code: u32) -> Result<snowmint_lease::Stored<CodeRecord>, StoreError> {
            self.0.read(code)
        }
        fn scan(&self) -> Result<Vec<(u32, snowmint_lease::Stored<CodeRecord>)>, StoreError> {
            self.0.scan()
        }
        fn swap(
            &self,
            code: u32,
            _: snowmint_lease::Revision,
            _: snowmint_lease::Revision,
            _: &CodeRecord,
        ) -> Result<snowmint_lease::Revision, StoreError> {
            Err(StoreError::Conflict { code })
        }
        fn swap_cluster(
            &self,
            _: snowmint_lease::Revision,
            _: &ClusterRecord,
        ) -> Result<snowmint_lease::Revision, StoreError> {
            Err(StoreError::ClusterChanged)
        }
        fn create_codes(&self, _: &[(u32, CodeRecord)]) -> Result<(), StoreError> {
            Ok(())
        }
        fn create_cluster(&self, _: &ClusterRecord) -> Result<(), StoreError> {
            Ok(())
        }
    }
    let mut rig = Rig::new(1);
    let now = rig.now();
    let mut readings = 0;
    let mut clock = || {
        readings += 1;
        now
    };
    let mut nonce = 0;
    let mut draw = || {
        nonce += 1;
        nonce
    };
    let stepped = step(&mut rig.keeper, Event::Time, &Conflicting(founded()), &mut clock, &mut draw);
    assert!(stepped.next_wake_boot_ms > START_MS && readings <= 32);
    assert_eq!(rig.keeper.view(), None);
}

#[test]
fn a_configuration_out_of_range_makes_no_keeper() {
    // Shows the refusals of windows out of range, and of regions that do not fit the layout (F19).
    let config = |window_ms, region| KeeperConfig {
        window_ms,
        ..KeeperConfig::fleet(layout(), region, Owner::new("me").unwrap())
    };
    assert!(Keeper::new(config(30, 3)).is_ok());
    for window_ms in [0, 29, 3_600_001] {
        let error = Keeper::new(config(window_ms, 0)).unwrap_err();
        assert_eq!(error, KeeperConfigError::Window { window_ms });
    }
    assert!(matches!(Keeper::new(config(1_000, 4)), Err(KeeperConfigError::Cluster(_))));
}

const HOURS_8_MS: u64 = 28_800_000;

/// Other hosts, with a code each, which renew whenever the test says so, by clocks of their own.
struct PeerHosts {
    ahead_ms: [u64; 3],
    nonce: u128,
}

impl PeerHosts {
    fn new() -> Self {
        Self { ahead_ms: [0; 3], nonce: 1 << 120 }
    }

    /// The first `count` of them renew, or take their code: 3, 2 and 1.
    fn renew(&mut self, store: &dyn Store, boot_ms: u64, count: usize) {
        let cluster = store.cluster().unwrap();
        for (at, ahead_ms) in (0..).zip(self.ahead_ms).take(count) {
            let code = 3 - at;
            let stored = store.read(code).unwrap();
            let record = stored.record;
            self.nonce += 1;
            let now = Now { boot_ms: 0, wall_ms: T + boot_ms + ahead_ms, clock_error_ms: 1 };
            let owner = Owner::new(format!("peer-{at}/1")).unwrap();
            let next = if record.state == State::Active {
                let holder = Holder { term: record.term, nonce: record.nonce };
                protocol::renew(&record, &cluster.record, holder, 1_000, &now, self.nonce).unwrap()
            } else {
                let bid = Bid { owner: &owner, window_ms: 1_000, lead_ms: 0 };
                protocol::acquire(&record, &cluster.record, &bid, &now, self.nonce).unwrap()
            };
            store.swap(code, stored.revision, cluster.revision, &next).unwrap();
        }
    }
}

fn comparing(seed: u128) -> Rig {
    let owner = Owner::new("me/1").unwrap();
    let config = KeeperConfig { window_ms: 1_000, ..KeeperConfig::fleet(layout(), 0, owner) };
    Rig::with(config, seed)
}

/// Lives until `until_ms`, with `count` peers that renew just before whatever it does. Returns how often it scanned.
fn live(rig: &mut Rig, peers: &mut PeerHosts, count: usize, store: &dyn Store, until_ms: u64) -> u32 {
    let mut scans = 0;
    while rig.keeper.next_wake_boot_ms() < until_ms {
        let boot_ms = rig.boot_ms.max(rig.keeper.next_wake_boot_ms());
        peers.renew(store, boot_ms - 1, count);
        rig.at(boot_ms);
        while let Some((_, request)) = &rig.asked {
            scans += u32::from(matches!(request, Request::Scan));
            rig.answer(store);
        }
    }
    rig.boot_ms = until_ms;
    scans
}

fn outvoted(rig: &Rig) -> usize {
    let is_outvoted = |it: &&Notice| matches!(it, Notice::Hindered(Hindrance::Outvoted { peers: 3, odd: 3 }));
    rig.notices.iter().filter(is_outvoted).count()
}

#[test]
fn f15_a_clock_that_three_peers_disagree_with_raises_no_end_and_mints_nothing() {
    // F15: shows a holder whose clock is set 8 h ahead, or 8 h back, between two renewals, and says that it is sure: its
    // end stays where it was, the ceiling is 0 at once, it is said once, and the code is kept. Set right, it goes on by
    // itself, with the same grant.
    for (before_ms, after_ms) in [(0, HOURS_8_MS), (HOURS_8_MS, 0)] {
        let (store, mut peers, mut rig) = (founded(), PeerHosts::new(), comparing(1));
        peers.ahead_ms = [before_ms; 3];
        rig.ahead_ms = before_ms;
        live(&mut rig, &mut peers, 3, &store, 5_000);
        let ticket = ticket_of(&rig.keeper);
        let code = rig.keeper.view().unwrap().code;
        assert!(rig.keeper.take_grant(5_000).is_some() && rig.ceiling_ms(ticket) > 0);
        let record = store.read(code).unwrap().record;

        rig.ahead_ms = after_ms;
        live(&mut rig, &mut peers, 3, &store, 8_000);
        let after = store.read(code).unwrap().record;
        assert_eq!((after.end_ms, after.term, after.state), (record.end_ms, record.term, State::Active));
        assert_ne!(after.nonce, record.nonce, "it beats");
        assert_eq!((rig.ceiling_ms(ticket), rig.keeper.phase(8_000)), (0, Phase::Lapsed));
        assert_eq!(outvoted(&rig), 1, "{:?}", rig.notices);
        let hindrance = rig.keeper.hindrance().unwrap();
        assert_eq!(hindrance, &Hindrance::Outvoted { peers: 3, odd: 3 });
        assert!(hindrance.to_string().contains("synchronisation"), "{hindrance}");

        rig.ahead_ms = before_ms;
        live(&mut rig, &mut peers, 3, &store, 9_000);
        let resumed = |it: &&Notice| matches!(it, Notice::Resumed { ticket: of, .. } if *of == ticket);
        assert_eq!(rig.notices.iter().filter(resumed).count(), 1, "{:?}", rig.notices);
        assert!(rig.ceiling_ms(ticket) > T + before_ms + 9_000);
        assert_eq!((rig.losses().len(), rig.keeper.hindrance()), (0, None));
    }
}

#[test]
fn f15_nothing_is_taken_by_a_clock_that_three_peers_disagree_with_and_one_code_where_there_are_fewer() {
    // F15: shows who starts 8 h ahead: with three peers it takes no code, with two or none it takes one. It goes on
    // once its clock is right.
    for count in 0..=3 {
        let (store, mut peers, mut rig) = (founded(), PeerHosts::new(), comparing(1));
        peers.renew(&store, START_MS - 1, count);
        rig.ahead_ms = HOURS_8_MS;
        live(&mut rig, &mut peers, count, &store, 5_000);
        let spoilt = |store: &MemoryStore| {
            let codes = store.scan().unwrap();
            codes.iter().filter(|(_, stored)| stored.record.end_ms > T + HOURS_8_MS).count()
        };
        assert_eq!(spoilt(&store), usize::from(count < 3), "{count} peers");
        assert_eq!((rig.keeper.view().is_none(), outvoted(&rig)), (count == 3, usize::from(count == 3)));
        rig.ahead_ms = 0;
        live(&mut rig, &mut peers, count, &store, 8_000);
        assert!(rig.keeper.view().is_some_and(|view| !view.is_outvoted));
        assert_eq!(spoilt(&store), usize::from(count < 3), "{count} peers");
    }
}

#[test]
fn peers_are_heard_before_a_code_is_taken_and_waited_for_no_longer_than_they_take_to_renew() {
    // Shows how long a start takes: not at all without three other hosts; until they have renewed where there are as
    // many; and five twelfths of a window (1,000 ms) where they hold codes and are gone.
    for (count, renews, expected_ms) in [(0, true, 0), (2, true, 0), (3, true, 41), (3, false, 451)] {
        let (store, mut peers, mut rig) = (founded(), PeerHosts::new(), comparing(1));
        peers.renew(&store, START_MS - 1, count);
        let mut took_ms = None;
        for boot_ms in START_MS..3_000 {
            if renews {
                peers.renew(&store, boot_ms, count);
            }
            rig.at(boot_ms).settle(&store);
            if rig.keeper.view().is_some() {
                took_ms = Some(boot_ms - START_MS);
                break;
            }
        }
        assert_eq!(took_ms, Some(expected_ms), "{count} peers, {renews}");
    }
}

#[test]
fn comparing_clocks_costs_a_scan_for_every_third_renewal() {
    // Shows how often a holder scans in 30 s of a window of 1 s, which are 90 renewals: every third time with peers that
    // agree, each time while too few have a say, and never where the store is embedded.
    for (count, compares_clocks, scans) in [(3, true, 30), (2, true, 90), (3, false, 0)] {
        let (store, mut peers) = (founded(), PeerHosts::new());
        let owner = Owner::new("me/1").unwrap();
        let config = KeeperConfig { compares_clocks, ..KeeperConfig::embedded(layout(), 0, owner) };
        let mut rig = Rig::with(config, 1);
        live(&mut rig, &mut peers, count, &store, 3_000);
        let scanned = live(&mut rig, &mut peers, count, &store, 33_000);
        assert!(scanned.abs_diff(scans) <= 1, "{count} peers, {compares_clocks}: {scanned} scans");
        assert!(rig.keeper.view().unwrap().end_ms > T + 33_000);
    }
}

#[test]
fn a_lone_odd_peer_is_reported_once_until_it_agrees() {
    // Shows that one peer of three that is 8 h ahead stops nobody else, is told of once, and again after it was right.
    let (store, mut peers, mut rig) = (founded(), PeerHosts::new(), comparing(1));
    live(&mut rig, &mut peers, 3, &store, 5_000);
    let reports = |rig: &Rig| {
        let is_report = |it: &&Notice| **it == Notice::OddPeers { codes: vec![2], peers: 3 };
        rig.notices.iter().filter(is_report).count()
    };
    assert_eq!(reports(&rig), 0);
    for expected in 1..=2 {
        let boot_ms = rig.boot_ms;
        peers.ahead_ms[1] = HOURS_8_MS;
        live(&mut rig, &mut peers, 3, &store, boot_ms + 5_000);
        peers.ahead_ms[1] = 0;
        live(&mut rig, &mut peers, 3, &store, boot_ms + 10_000);
        assert_eq!((reports(&rig), rig.keeper.hindrance()), (expected, None), "{:?}", rig.notices);
    }
}

#[test]
fn another_codes_damaged_record_ends_nobodys_grant() {
    // Shows that a scan which meets damage of another code's record is told of once, and that its holder goes on; and
    // that damage of its own ends it.
    let (store, mut peers, mut rig) = (founded(), PeerHosts::new(), comparing(1));
    live(&mut rig, &mut peers, 2, &store, 3_000);
    let code = rig.keeper.view().unwrap().code;
    store.damage_code(u32::from(code == 0), b"not a record");
    live(&mut rig, &mut peers, 0, &store, 9_000);
    let unread = rig.notices.iter().filter(|it| matches!(it, Notice::Uncompared { .. })).count();
    assert_eq!((unread, rig.losses().len()), (1, 0), "{:?}", rig.notices);
    assert!(rig.keeper.view().unwrap().end_ms > T + 9_000);
    store.damage_code(code, b"not a record");
    live(&mut rig, &mut peers, 0, &store, 9_500);
    assert!(matches!(rig.losses()[..], [Loss::Store(StoreError::Damaged { .. })]), "{:?}", rig.notices);
}

#[test]
fn what_a_backup_brings_back_outvotes_nobody() {
    // Shows that peers' records of long ago, which a backup puts back and which so differ from what was seen last, have no
    // say after the recovery: whoever lost its grant by it takes another as soon as it can mint.
    let (store, mut peers, mut rig) = (founded(), PeerHosts::new(), comparing(1));
    live(&mut rig, &mut peers, 3, &store, 3_000);
    let backup = store.backup();
    live(&mut rig, &mut peers, 3, &store, 20_000);
    let ticket = ticket_of(&rig.keeper);
    store.restore(&backup);
    store::recover(&store, T + 22_000, 1_000, &rig.now()).unwrap().unwrap();
    rig.notices.clear();
    live(&mut rig, &mut peers, 0, &store, 26_000);
    assert!(rig.notices.iter().any(|it| matches!(it, Notice::Lost { .. })), "{:?}", rig.notices);
    let is_outvoted = |it: &Notice| matches!(it, Notice::Hindered(Hindrance::Outvoted { .. }));
    let first = rig.notices.iter().position(|it| matches!(it, Notice::Lost { .. })).unwrap();
    assert!(!rig.notices[first..].iter().any(is_outvoted), "{:?}", rig.notices);
    let view = rig.keeper.view().unwrap();
    assert!(view.ticket != ticket && view.end_ms > T + 25_000 && !view.is_outvoted);
}
