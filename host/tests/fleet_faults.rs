//! A fleet over a real etcd, and everything that goes wrong with it: members, wires, disks, clocks, processes, operators.
//!
//! Each fault ends in the same check of all that every process told, see `fleet::collector::violations`: no ID twice,
//! none above a confirmed end, none after the deadline.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // It is all test.

mod fleet;

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use etcd_client::{AlarmAction, AlarmOptions, AlarmType, DeleteOptions};
use fleet::collector::{violations, violations_of_records};
use fleet::etcd::Cluster;
use fleet::etcd::proxy::{Proxy, Wire};
use fleet::{Collector, Fleet, Line, Log, Orders, boot_ms, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use snowmint_lease::{CodeRecord, State, Store, StoreError, Stored};
use snowmint_lease_etcd::{EtcdConfig, EtcdStore, Recovery};

/// Short, so that the tests are; long enough for an etcd on a busy machine to be asked three times.
const WINDOW_MS: u32 = 2_000;

#[test]
fn the_collector_sees_what_must_not_be() {
    // Shows that each kind of violation is found, alone, and that what is allowed next to it is not.
    const T: u64 = fleet::etcd::T;
    let layout = fleet::etcd::layout(3);
    let id = |ms: u64, worker: u32, sequence: u64| {
        let node = layout.node(0, worker).unwrap();
        layout.compose(ms - layout.epoch_unix_ms(), node, sequence).unwrap().get()
    };
    let swap =
        |nonce, term, (floor_ms, end_ms), (sent_boot_ms, replied_boot_ms), error: Option<&str>| Line::Swap {
            code: 5,
            term,
            floor_ms,
            end_ms,
            is_active: true,
            nonce,
            sent_boot_ms,
            replied_boot_ms,
            error: error.map(Into::into),
        };
    let run = |first, count, before_ms, after_ms| Line::Run(first, 1, count, before_ms, after_ms, 0);
    // Granted at 1000 up to T + 1000, with a window of 1000; renewed at 1300, known at 1310.
    let lawful = [
        swap(1, 1, (T, T + 1_000), (1_000, 1_010), None),
        run(id(T + 1, 5, 0), 10, 1_020, 1_021),
        run(id(T + 1, 5, 10), 10, 1_021, 1_021),
        swap(2, 1, (T, T + 1_300), (1_300, 1_310), None),
        run(id(T + 1_300, 5, 0), 4_096, 2_300, 2_301),
        // Not confirmed until it is read.
        swap(3, 1, (T, T + 2_000), (2_000, 2_200), Some("no reply")),
        Line::Read { code: 5, nonce: 3, replied_boot_ms: 2_500 },
        run(id(T + 2_000, 5, 0), 1, 2_900, 2_950),
        // Another grant.
        swap(4, 3, (T + 2_000, T + 9_000), (8_000, 8_010), None),
        run(id(T + 2_001, 5, 0), 1, 8_020, 8_020),
    ];
    let check = |lines: &[Line], expected: &str| {
        let orders =
            |owner| Orders::new(&EtcdConfig::new(vec![String::from("http://a")], 0), layout, owner, 1_000);
        let (mut a, mut b) = (Log::new(&orders("a")), Log::new(&orders("b")));
        lawful.iter().cloned().for_each(|line| a.take(line));
        lines.iter().cloned().for_each(|line| b.take(line));
        let found = violations(&[a, b]);
        let is_found = if expected.is_empty() {
            found.is_empty()
        } else {
            found.len() == 1 && found[0].contains(expected)
        };
        assert!(is_found, "{expected:?}: {found:?}");
    };
    let granted = swap(9, 2, (T + 1_300, T + 1_400), (5_000, 5_010), None);
    let with = |line: Line| [granted.clone(), line];
    check(&[], "");
    check(&with(run(id(T + 1_400, 5, 0), 1, 6_000, 6_000)), "");
    // One of the 4,096, and the last of the ten.
    check(
        &[swap(9, 2, (T, T + 1_400), (5_000, 5_010), None), run(id(T + 1_300, 5, 4_095), 1, 5_020, 5_020)],
        "twice",
    );
    check(
        &[swap(9, 2, (T, T + 1_400), (5_000, 5_010), None), run(id(T + 1, 5, 19), 1, 5_020, 5_020)],
        "twice",
    );
    check(&with(run(id(T + 1_401, 5, 0), 1, 5_020, 5_020)), "above the end");
    check(&with(run(id(T + 1_299, 5, 0), 1, 5_020, 5_020)), "by no grant");
    check(&with(run(id(T + 1_400, 4, 0), 1, 5_020, 5_020)), "by no grant");
    // Handed out before the grant was known.
    check(&with(run(id(T + 1_400, 5, 0), 1, 5_000, 5_009)), "by no grant");
    // The deadline is 6000; in 6001 the lease must have been asked about again.
    check(&with(run(id(T + 1_400, 5, 0), 1, 6_001, 6_001)), "late");
    check(&with(run(id(T + 1_399, 5, (1 << 17) - 5), 10, 5_020, 5_020)), "not of one tick");
    // A renewal that nobody confirmed raises neither the end nor the deadline.
    let unconfirmed = swap(10, 2, (T + 1_300, T + 2_000), (5_500, 5_600), Some("no reply"));
    check(
        &[granted.clone(), unconfirmed.clone(), run(id(T + 1_401, 5, 0), 1, 5_700, 5_700)],
        "above the end",
    );
    check(&[granted.clone(), unconfirmed, run(id(T + 1_400, 5, 0), 1, 6_100, 6_100)], "late");

    let mut log = Log::new(&Orders::new(&EtcdConfig::new(Vec::new(), 0), layout, "a", 1_000));
    log.take(run(id(T + 7, 5, 0), 1, 0, 0));
    let record = |end_ms| CodeRecord { end_ms, ..CodeRecord::UNUSED };
    let stored = |end_ms| Stored { record: record(end_ms), revision: snowmint_lease::Revision::new(1) };
    assert!(violations_of_records(&[log.clone()], 0, &[(5, stored(T + 7))]).is_empty());
    assert_eq!(violations_of_records(&[log.clone()], 0, &[(5, stored(T + 6))]).len(), 1);
    assert_eq!(violations_of_records(&[log], 0, &[(4, stored(T + 7))]).len(), 1);
}

#[test]
fn a_fleet_mints_and_gives_its_codes_back() {
    // Shows that without any fault nothing is refused, and that a stop frees the code for the very next worker.
    let Some(mut fleet) = Fleet::start(3, 1, WINDOW_MS) else { return };
    let workers = fleet.mint(2);
    let since_ms = boot_ms();
    for &at in &workers {
        fleet.wait(at, "it renews", |log| log.notices_of("renewed").count() >= 3);
        fleet.wait_minted_since(at, since_ms);
    }
    assert!(fleet.stop(workers[0]));
    let next = fleet.mint(1)[0];
    assert_eq!(fleet.log(next, Log::code), fleet.log(workers[0], Log::code));
    assert!(fleet.collector.look(|logs| logs.iter().all(|log| log.refusals.is_empty())));
    fleet.finish();
}

#[test]
fn the_collector_sees_two_stores_and_a_process_that_mints_too_long() {
    // Shows that two stores of one region, which are two sources of the same IDs, are seen; and so is a process that goes
    // on past its deadline, because its own clocks go at half their speed.
    let collector = Collector::default();
    let mut stores = Vec::new();
    for _ in 0..2 {
        let Some(etcd) = Cluster::start(1) else { return };
        stores.push(Fleet::found(etcd, 0, 1, WINDOW_MS, collector.clone()));
    }
    for fleet in &mut stores {
        // With two of two codes in each, one is the other's.
        fleet.mint(2);
    }
    wait_until("an ID comes twice", || {
        collector.look(|logs| violations(logs).iter().any(|found| found.starts_with("twice")))
    });

    let mut fleet = stores.swap_remove(0);
    fleet.end_all();
    let slow = fleet.spawn(&Orders { has_slow_clocks: true, ..fleet.orders("slow") });
    fleet.wait_minted(slow);
    fleet.etcd.kill(0);
    fleet.wait_refused(slow);
    let found = fleet.log(slow, |log| violations(std::slice::from_ref(log)));
    assert!(!found.is_empty() && found.iter().all(|found| found.starts_with("slow: late")), "{found:?}");
}

/// Long forms take the default window of a fleet, and real times.
fn is_long() -> bool {
    std::env::var_os("SNOWMINT_TEST_LONG").is_some()
}

/// No grant was lost, and each worker has the one code that it had from the start.
fn none_was_lost(fleet: &Fleet, workers: &[usize]) {
    for &at in workers {
        fleet.log(at, |log| {
            assert_eq!(log.notices_of("lost").count(), 0, "{}", log.tail());
            assert_eq!(log.notices_of("granted").count(), 1, "{}", log.tail());
        });
    }
}

/// Minting went on for as long as was confirmed, and not longer (which the check of all runs sees).
fn minted_to_the_deadline(fleet: &Fleet, workers: &[usize]) {
    for &at in workers {
        fleet.wait_refused(at);
        let (last_ms, deadline_ms) =
            fleet.log(at, |log| (log.runs.last().unwrap().after_boot_ms, log.deadline_boot_ms()));
        println!("worker {at} minted until {} ms before its deadline", deadline_ms.saturating_sub(last_ms));
        assert!(last_ms + u64::from(fleet.window_ms) / 2 > deadline_ms, "{}", fleet.log(at, Log::tail));
    }
}

#[test]
fn f11_f12_a_frozen_owner_is_expired_and_starts_anew_when_it_wakes() {
    // Shows, with both codes held: the owner is stopped beyond its TTL, a contender expires it and takes its code; awake,
    // the old owner's renewal conflicts and it mints nothing more by the old grant (F11). Once the contender has given
    // the code back, the same process has it again, by a new grant that begins above all that was stamped (F12).
    let Some(mut fleet) = Fleet::start(3, 1, WINDOW_MS) else { return };
    let workers = fleet.mint(2);
    let owner = workers[0];
    let code = fleet.log(owner, Log::code);
    let contender = fleet.spawn(&fleet.orders("contender"));
    fleet.wait(contender, "it finds no code", |log| log.notices_of("hindered").count() > 0);
    fleet.freeze(owner);
    let frozen_ms = boot_ms();
    fleet.wait_minted(contender);
    println!("expired and taken {} ms after the owner was frozen", boot_ms() - frozen_ms);
    assert!(boot_ms() - frozen_ms >= u64::from(WINDOW_MS), "it was taken from a live owner");
    assert_eq!(fleet.log(contender, Log::code), code);

    let thawed_ms = boot_ms();
    fleet.thaw(owner);
    fleet.wait(owner, "it loses its grant", |log| log.notices_of("lost").count() == 1);
    fleet.wait(owner, "it finds no other code", |log| {
        log.notices_of("hindered").any(|told| told.text.contains("NoneLeft"))
    });
    fleet.log(owner, |log| {
        let lost = log.notices_of("lost").next().unwrap();
        assert!(lost.text.contains("Superseded"), "{}", lost.text);
        assert_eq!(log.first_run_since(thawed_ms), None, "{}", log.tail());
        assert_eq!(log.reasons_since(thawed_ms), ["lease-lost"]);
    });

    assert!(fleet.stop(contender));
    fleet.check_resumed(&[owner], boot_ms());
    assert_eq!(fleet.log(owner, Log::code), code);
    let others_ms = fleet.log(contender, |log| log.stamped_ms(code));
    let grants = fleet.log(owner, Log::grants);
    let [(_, term, ..), (_, next_term, next_floor_ms, _)] = grants[..] else { panic!("{grants:?}") };
    assert!(next_term > term + 1 && next_floor_ms >= others_ms);
    assert!(fleet.log(workers[1], |log| log.refusals.is_empty()));
    fleet.finish();
}

#[test]
fn a_minter_is_killed_and_its_code_is_had_again_within_a_ttl() {
    // Shows that `kill -9` costs a code one TTL and no more, and costs the other workers nothing.
    let Some(mut fleet) = Fleet::start(3, 1, WINDOW_MS) else { return };
    let workers = fleet.mint(2);
    let contender = fleet.spawn(&fleet.orders("contender"));
    fleet.wait(contender, "it finds no code", |log| log.notices_of("hindered").count() > 0);
    let code = fleet.log(workers[0], Log::code);
    fleet.kill(workers[0]);
    fleet.check_resumed(&[contender], boot_ms());
    assert_eq!(fleet.log(contender, Log::code), code);
    assert!(fleet.log(workers[1], |log| log.refusals.is_empty()));
    fleet.finish();
}

#[test]
fn members_are_killed_and_frozen_one_at_a_time() {
    // Shows that the loss of any one member (kill -9, the leader or not; the leader frozen and thawed) loses no grant,
    // and that all mint on within a TTL.
    let Some(mut fleet) = Fleet::start(3, 3, WINDOW_MS) else { return };
    let workers = fleet.mint(3);
    for kills_the_leader in [false, true] {
        let leader = fleet.etcd.leader(0);
        let victim = if kills_the_leader { leader } else { (leader + 1) % 3 };
        fleet.etcd.kill(victim);
        let killed_ms = boot_ms();
        fleet.etcd.wait_for((victim + 1) % 3);
        fleet.check_resumed(&workers, boot_ms());
        for &at in &workers {
            fleet.wait(at, "it renews without that member", |log| {
                log.notices
                    .iter()
                    .any(|told| matches!(&*told.kind, "renewed" | "resumed") && told.boot_ms > killed_ms)
            });
        }
        fleet.etcd.run(victim);
        fleet.etcd.wait_for(victim);
    }
    let leader = fleet.etcd.leader(0);
    fleet.etcd.stop(leader);
    fleet.etcd.wait_for((leader + 1) % 3);
    fleet.check_resumed(&workers, boot_ms());
    fleet.etcd.cont(leader);
    fleet.etcd.wait_for(leader);
    fleet.check_resumed(&workers, boot_ms());
    none_was_lost(&fleet, &workers);
    fleet.finish();
}

#[test]
fn an_outage_longer_than_a_ttl_expires_nobody_who_was_alive() {
    // Shows that without a quorum minting goes on to what is confirmed and is then refused; and that after an outage that
    // is longer than a TTL all go on by the grants that they had, though a contender waited for a code all the time.
    // SNOWMINT_TEST_LONG: the default window of 10 s, and 20 s without etcd, with a TTL of 15 s.
    let (window_ms, outage_ms) =
        if is_long() { (10_000, 20_000) } else { (WINDOW_MS, 2 * u64::from(WINDOW_MS)) };
    let Some(mut fleet) = Fleet::start(3, 1, window_ms) else { return };
    let workers = fleet.mint(2);
    let contender = fleet.spawn(&Orders { acquire_wait_ms: 300_000, ..fleet.orders("contender") });
    fleet.wait(contender, "it finds no code", |log| log.notices_of("hindered").count() > 0);
    let leader = fleet.etcd.leader(0);
    fleet.etcd.kill(leader);
    fleet.etcd.kill((leader + 1) % 3);
    let out_ms = boot_ms();
    minted_to_the_deadline(&fleet, &workers);
    for &at in &workers {
        assert!(fleet.log(at, |log| log.runs.last().unwrap().after_boot_ms) > out_ms);
        let reasons = fleet.log(at, |log| log.reasons_since(out_ms).join(" "));
        assert!(["ceiling", "lease-lost", "ceiling lease-lost"].contains(&&*reasons), "{reasons}");
    }
    std::thread::sleep(Duration::from_millis((out_ms + outage_ms).saturating_sub(boot_ms())));
    fleet.etcd.run(leader);
    fleet.etcd.run((leader + 1) % 3);
    fleet.etcd.wait_for(leader);
    fleet.check_resumed(&workers, boot_ms());
    // For a whole TTL more: the contender has not counted the outage.
    let until_ms = boot_ms() + u64::from(window_ms) * 2;
    for &at in &workers {
        fleet.wait_minted_since(at, until_ms);
        assert!(fleet.log(at, |log| log.notices_of("resumed").count()) > 0);
    }
    none_was_lost(&fleet, &workers);
    assert!(fleet.log(contender, |log| log.runs.is_empty()));
    fleet.finish();
}

/// Wires to each member, and orders to go by them.
fn wired(fleet: &Fleet, owner: &str) -> (Vec<Proxy>, Orders) {
    let members = 0..fleet.config.endpoints.len();
    let wires: Vec<_> = members.map(|at| Proxy::start(fleet.etcd.port(at))).collect();
    let endpoints = wires.iter().map(Proxy::url).collect();
    (wires, Orders { endpoints, ..fleet.orders(owner) })
}

fn set(wires: &[Proxy], wire: Wire) {
    for proxy in wires {
        proxy.set(wire);
    }
}

#[test]
fn a_worker_that_is_cut_off_from_all_members_stops_and_goes_on() {
    // Shows that one worker that reaches no member mints to what is confirmed, refuses, and goes on by the same grant
    // when the wire is whole; and that the others notice nothing.
    let Some(mut fleet) = Fleet::start(3, 3, WINDOW_MS) else { return };
    let others = fleet.mint(2);
    let (wires, orders) = wired(&fleet, "cut-off");
    let cut_off = fleet.spawn(&orders);
    fleet.wait_minted(cut_off);
    for wire in [Wire::Cut, Wire::NoReplies] {
        set(&wires, wire);
        minted_to_the_deadline(&fleet, &[cut_off]);
        let refused_ms = boot_ms();
        // Longer than a TTL.
        fleet.wait_minted_since(others[0], refused_ms + u64::from(WINDOW_MS));
        set(&wires, Wire::Whole);
        let whole_ms = boot_ms();
        assert_eq!(fleet.log(cut_off, |log| log.first_run_since(refused_ms)), None);
        fleet.check_resumed(&[cut_off], whole_ms);
    }
    none_was_lost(&fleet, &[cut_off]);
    none_was_lost(&fleet, &others);
    for at in others {
        assert!(fleet.log(at, |log| log.refusals.is_empty()));
    }
    fleet.finish();
}

#[test]
fn a_lost_reply_to_a_renewal_costs_nothing() {
    // Shows that a renewal that etcd has carried out, and whose reply is lost, is found in the record: no grant is lost,
    // and within the window nothing is refused.
    let Some(mut fleet) = Fleet::start(3, 3, WINDOW_MS) else { return };
    let (wires, orders) = wired(&fleet, "a");
    // A scan whose reply is lost would keep the renewal back.
    let worker = fleet.spawn(&Orders { compares_clocks: false, ..orders });
    fleet.wait_minted(worker);
    let code = fleet.log(worker, Log::code);
    let store = fleet.store();
    let count = |kind| fleet.log(worker, |log| log.notices_of(kind).count());
    let mut lost = 0;
    // A renewal may be answered just before the wire is cut.
    for _ in 0..20 {
        let renewed = count("renewed");
        fleet.wait(worker, "it renews", |log| log.notices_of("renewed").count() > renewed);
        let before = store.read(code).unwrap();
        set(&wires, Wire::NoReplies);
        wait_until("etcd has carried a renewal out", || {
            store.read(code).unwrap().revision != before.revision
        });
        set(&wires, Wire::Whole);
        let (renewed, unconfirmed) = (count("renewed"), count("unconfirmed"));
        wait_until("it knows more", || count("renewed") > renewed + 1 || count("unconfirmed") > unconfirmed);
        lost = count("unconfirmed");
        if lost >= 5 {
            break;
        }
    }
    println!("{lost} replies were lost");
    assert!(lost >= 5);
    fleet.wait_minted_since(worker, boot_ms() + u64::from(WINDOW_MS));
    none_was_lost(&fleet, &[worker]);
    assert!(fleet.log(worker, |log| log.refusals.is_empty()), "{}", fleet.log(worker, Log::tail));
    fleet.finish();
}

#[test]
fn a_lost_reply_to_an_acquire_costs_no_code() {
    // Shows that a claim that etcd has carried out, and whose reply is lost, is found in the record and used: the region's
    // only free code is not left to expire.
    let Some(mut fleet) = Fleet::start(3, 1, WINDOW_MS) else { return };
    let other = fleet.mint(1)[0];
    let (wires, orders) = wired(&fleet, "a");
    let worker = fleet.spawn(&Orders { asks_before_first_swap: true, ..orders });
    fleet.wait(worker, "it has chosen a code", |log| log.asks_to_swap);
    set(&wires, Wire::NoReplies);
    fleet.go(worker);
    let store = fleet.store();
    let is_held = |(_, stored): &(u32, Stored<CodeRecord>)| stored.record.state == State::Active;
    wait_until("etcd has carried the claim out", || store.scan().unwrap().iter().all(is_held));
    // The member that was asked may answer later than another one that was read from.
    fleet.wait(worker, "it is without a reply", |log| !log.failed.is_empty());
    set(&wires, Wire::Whole);
    let whole_ms = boot_ms();
    fleet.check_resumed(&[worker], whole_ms);
    fleet.log(worker, |log| {
        assert_eq!(log.failed.len(), 1, "{:?}", log.failed);
        let grants = log.grants();
        assert!(matches!(grants[..], [(_, 1, ..)]), "the code was taken twice: {grants:?}");
    });
    none_was_lost(&fleet, &[worker, other]);
    fleet.finish();
}

/// A wall clock for one process, that can be stepped while it runs.
struct FakeClock {
    library: PathBuf,
    directory: tempfile::TempDir,
}

impl FakeClock {
    /// `None`, with a word, where there is no libfaketime.
    fn new(step: &str) -> Option<Self> {
        fleet::etcd::program("faketime", "faketime", "a fleet's clocks that step")?;
        // Debian keeps it in the architecture's own folder.
        let folders = std::fs::read_dir("/usr/lib").unwrap().map(|entry| entry.unwrap().path());
        let mut libraries = folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1"));
        let library = libraries.find(|library| library.is_file()).expect("faketime without its library");
        let clock = Self { library, directory: tempfile::tempdir().unwrap() };
        clock.step(step);
        Some(clock)
    }

    /// How far the wall clock is off: a sign, a number, and `s` (nothing for seconds), `m`, `h` or `d`.
    fn step(&self, step: &str) {
        let next = self.directory.path().join("next");
        std::fs::write(&next, step).unwrap();
        std::fs::rename(next, self.directory.path().join("step")).unwrap();
    }

    fn environment(&self) -> Vec<(&'static str, OsString)> {
        vec![
            ("LD_PRELOAD", self.library.clone().into()),
            ("FAKETIME_TIMESTAMP_FILE", self.directory.path().join("step").into()),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("DONT_FAKE_MONOTONIC", "1".into()),
        ]
    }
}

/// Waits until a worker has told that its wall clock is off by so much, and checks that its boot-time clock is not.
fn wait_stepped(fleet: &Fleet, at: usize, by_ms: i64) {
    let ahead_ms = (fleet::wall_ms() - boot_ms()).saturating_add_signed(by_ms);
    fleet.wait(at, "its wall clock is stepped", |log| {
        log.ahead_ms.last().is_some_and(|told_ms| told_ms.abs_diff(ahead_ms) < 1_000)
    });
    fleet.wait_minted_or_refused(at);
    let (began_ms, last_ms) =
        fleet.log(at, |log| (log.began.unwrap().0, log.runs.last().unwrap().after_boot_ms));
    assert!(began_ms <= last_ms && last_ms <= boot_ms());
}

#[test]
fn f15_a_clock_8_h_ahead_spoils_one_code_at_most() {
    // Shows a worker whose wall clock jumps 8 h ahead and back again: at most one code bears that time, the others mint
    // on and notice nothing, and the worker itself mints again with another code.
    let Some(clock) = FakeClock::new("+0") else { return };
    let Some(mut fleet) = Fleet::start(3, 3, WINDOW_MS) else { return };
    let others = fleet.mint(3);
    let worker = fleet.spawn_with(&fleet.orders("8-h-ahead"), &clock.environment());
    fleet.wait_minted(worker);
    let hours_8_ms = 8 * 3_600_000;
    clock.step("+8h");
    wait_stepped(&fleet, worker, hours_8_ms);
    let stepped_ms = boot_ms();
    for &at in &others {
        fleet.wait_minted_since(at, stepped_ms + 2 * u64::from(WINDOW_MS));
    }
    clock.step("+0");
    wait_stepped(&fleet, worker, 0);
    let back_ms = boot_ms();
    fleet.wait_minted_since(worker, back_ms);
    for &at in &others {
        fleet.wait_minted_since(at, back_ms + u64::from(WINDOW_MS));
        assert!(fleet.log(at, |log| log.refusals.is_empty()), "{}", fleet.log(at, Log::tail));
    }
    let now_ms = fleet::wall_ms();
    let is_spoiled = |(_, stored): &&(u32, Stored<CodeRecord>)| stored.record.end_ms > now_ms + 3_600_000;
    let spoiled = fleet.records().iter().filter(is_spoiled).count();
    println!("{spoiled} codes lie 8 h ahead");
    assert!(spoiled <= 1);
    fleet.finish();
}

#[test]
fn f2_a_clock_that_steps_back_repeats_nothing() {
    // Shows a wall clock that steps back by 2 s, which is refused until it is over, and by 1 h, after which another code
    // is taken; then `kill -9`, and a new life an hour behind: no ID twice.
    let Some(clock) = FakeClock::new("+0") else { return };
    let Some(mut fleet) = Fleet::start(3, 3, WINDOW_MS) else { return };
    let other = fleet.mint(1)[0];
    let worker = fleet.spawn_with(&fleet.orders("behind"), &clock.environment());
    fleet.wait_minted(worker);
    let code = fleet.log(worker, Log::code);
    clock.step("-2");
    let stepped_ms = boot_ms();
    wait_stepped(&fleet, worker, -2_000);
    let took = fleet.wait_minted_since(worker, boot_ms());
    println!("2 s back: minted again after {took:?}");
    fleet.log(worker, |log| {
        assert!(log.reasons_since(stepped_ms).contains(&"clock-rolled-back"), "{}", log.tail());
        assert_eq!(log.code(), code);
    });

    clock.step("-1h");
    wait_stepped(&fleet, worker, -3_600_000);
    let took = fleet.wait_minted_since(worker, boot_ms());
    println!("1 h back: minted again after {took:?}");
    assert_ne!(fleet.log(worker, Log::code), code);
    fleet.kill(worker);
    let next = fleet.spawn_with(&fleet.orders("behind"), &clock.environment());
    fleet.wait_minted(next);
    assert!(fleet.log(other, |log| log.refusals.is_empty()));
    fleet.finish();
}

/// Gets in the way of a process's system calls, until it is dropped.
struct Strace {
    child: Child,
    output: tempfile::NamedTempFile,
}

impl Strace {
    /// `None`, with a word, where there is no strace, or where this system does not let it in.
    fn attach(pid: u32, args: &[String]) -> Option<Self> {
        let program = fleet::etcd::program("strace", "strace", "a fleet's slow, full and broken disks")?;
        let output = tempfile::NamedTempFile::new().unwrap();
        let mut child = Command::new(program)
            .args(["--follow-forks", "--output"])
            .arg(output.path())
            .args(args)
            .args(["--attach", &pid.to_string()])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        while lines.read_line(&mut said).unwrap() > 0 && !said.contains("attached") {}
        let is_attached = said.contains("attached");
        // It goes on to tell of each thread.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        let strace = Self { child, output };
        if is_attached {
            return Some(strace);
        }
        assert!(said.contains("not permitted"), "{said}");
        eprintln!(
            "SKIPPED: strace may not attach to a process here; slow, full and broken disks are not tested"
        );
        None
    }

    /// How many calls it got in the way of.
    fn count(&self, what: &str) -> usize {
        std::fs::read_to_string(self.output.path()).unwrap().matches(what).count()
    }
}

impl Drop for Strace {
    fn drop(&mut self) {
        // Asked nicely, it lets its process go on.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// In the way of all members alike.
fn attach_to_all(fleet: &Fleet, args: impl Fn(usize) -> Vec<String>) -> Option<Vec<Strace>> {
    (0..fleet.config.endpoints.len()).map(|at| Strace::attach(fleet.etcd.pid(at), &args(at))).collect()
}

#[test]
fn f13_a_sync_of_4_s_on_every_member_stops_minting_at_the_confirmed_end() {
    // Shows that while each fdatasync of every member takes 4 s, longer than a TTL, minting goes on to what is confirmed,
    // is refused, and goes on by the same grants once the disks are themselves again.
    let Some(mut fleet) = Fleet::start(3, 3, WINDOW_MS) else { return };
    let workers = fleet.mint(2);
    let delay = |_| vec![String::from("--inject=fdatasync:delay_enter=4000000")];
    let Some(slow) = attach_to_all(&fleet, delay) else { return };
    minted_to_the_deadline(&fleet, &workers);
    // For two such syncs more.
    std::thread::sleep(Duration::from_secs(8));
    let delayed: usize = slow.iter().map(|strace| strace.count("(DELAYED)")).sum();
    println!("{delayed} syncs took 4 s");
    assert!(delayed > 0);
    drop(slow);
    (0..3).for_each(|at| fleet.etcd.wait_for(at));
    fleet.check_resumed(&workers, boot_ms());
    none_was_lost(&fleet, &workers);
    fleet.finish();
}

#[test]
fn f13_a_disk_that_fails_is_the_loss_of_a_member() {
    // Shows that the leader's fdatasync fails (EIO), etcd ends by itself, and the fleet goes on without it.
    let Some(mut fleet) = Fleet::start(3, 3, WINDOW_MS) else { return };
    let workers = fleet.mint(2);
    let leader = fleet.etcd.leader(0);
    let args = [String::from("--inject=fdatasync:error=EIO")];
    let Some(broken) = Strace::attach(fleet.etcd.pid(leader), &args) else { return };
    let log = fleet.etcd.wait_ended(leader);
    assert!(log.contains("input/output error"), "{log}");
    assert!(broken.count("(INJECTED)") > 0);
    fleet.etcd.wait_for((leader + 1) % 3);
    fleet.check_resumed(&workers, boot_ms());
    fleet.etcd.run(leader);
    fleet.etcd.wait_for(leader);
    fleet.check_resumed(&workers, boot_ms());
    none_was_lost(&fleet, &workers);
    fleet.finish();
}

#[test]
fn full_disks_end_every_member_and_the_fleet_goes_on_when_they_are_back() {
    // Shows that writing the log fails on every member (ENOSPC), which ends them all; minting goes on to what is
    // confirmed, is refused, and goes on by the same grants once the members run again.
    let Some(mut fleet) = Fleet::start(3, 3, WINDOW_MS) else { return };
    let workers = fleet.mint(2);
    let log_of = |at| {
        let logs = std::fs::read_dir(fleet.etcd.data_dir(at).join("member/wal")).unwrap();
        let logs = logs.map(|entry| entry.unwrap().path());
        logs.filter(|path| path.extension().is_some_and(|end| end == "wal")).max().unwrap()
    };
    let full = |at| {
        vec![
            String::from("--inject=write:error=ENOSPC"),
            String::from("--trace-path"),
            log_of(at).to_str().unwrap().to_owned(),
        ]
    };
    let Some(full) = attach_to_all(&fleet, full) else { return };
    for at in 0..3 {
        let log = fleet.etcd.wait_ended(at);
        assert!(log.contains("no space left on device"), "{log}");
    }
    drop(full);
    minted_to_the_deadline(&fleet, &workers);
    (0..3).for_each(|at| fleet.etcd.run(at));
    (0..3).for_each(|at| fleet.etcd.wait_for(at));
    fleet.check_resumed(&workers, boot_ms());
    none_was_lost(&fleet, &workers);
    fleet.finish();
}

#[test]
fn an_etcd_without_space_stops_the_fleet_at_once() {
    // Shows that etcd's own alarm (NOSPACE) ends every grant, with the store's reason, and that the fleet goes on by other
    // codes once it is disarmed.
    let Some(mut fleet) = Fleet::start(3, 3, WINDOW_MS) else { return };
    let workers = fleet.mint(2);
    let alarm = |action| {
        fleet.etcd.admin(0, async |client| {
            let member = client.status().await?.header().unwrap().member_id();
            let mut options = AlarmOptions::new();
            options.with_member(member);
            client.alarm(action, AlarmType::Nospace, Some(options)).await
        })
    };
    alarm(AlarmAction::Activate);
    for &at in &workers {
        fleet.wait(at, "it loses its grant", |log| {
            log.notices_of("lost").any(|told| told.text.contains("Full"))
        });
        fleet.wait_refused(at);
    }
    alarm(AlarmAction::Deactivate);
    fleet.check_resumed(&workers, boot_ms());
    fleet.finish();
}

#[test]
fn an_old_backup_under_a_running_fleet_is_refused_until_it_is_recovered() {
    // Shows that members whose data is put back from before stop every worker, for longer than a TTL; that nothing but a
    // recovery, which raises the generation, lets them mint again; and that no ID comes twice though the codes' records
    // have forgotten all that was minted.
    let Some(mut fleet) = Fleet::start(3, 1, WINDOW_MS) else { return };
    let everywhere = |fleet: &mut Fleet, between: &dyn Fn(&std::path::Path, &std::path::Path)| {
        (0..3).for_each(|at| fleet.etcd.kill(at));
        for at in 0..3 {
            let data = fleet.etcd.data_dir(at);
            between(&data, &data.with_extension("backup"));
        }
        (0..3).for_each(|at| fleet.etcd.run(at));
        (0..3).for_each(|at| fleet.etcd.wait_for(at));
    };
    everywhere(&mut fleet, &|data, backup| fleet::etcd::copy_dir(data, backup));
    let workers = fleet.mint(2);
    let since_ms = boot_ms();
    for &at in &workers {
        fleet.wait_minted_since(at, since_ms + u64::from(WINDOW_MS));
    }
    everywhere(&mut fleet, &|data, backup| {
        std::fs::remove_dir_all(data).unwrap();
        std::fs::rename(backup, data).unwrap();
    });
    for &at in &workers {
        fleet.wait(at, "it notices", |log| log.notices_of("lost").any(|told| told.text.contains("Copied")));
    }
    let refused_ms = boot_ms();
    std::thread::sleep(2 * fleet.window());
    let stamped_ms = fleet
        .collector
        .look(|logs| logs.iter().flat_map(|log| [0, 1].map(|code| log.stamped_ms(code))).max().unwrap());
    for &at in &workers {
        assert_eq!(fleet.log(at, |log| log.first_run_since(refused_ms)), None);
    }
    let cluster = fleet.store().cluster().unwrap().record;
    assert!(
        fleet.records().iter().all(|(_, stored)| stored.record.end_ms < stamped_ms),
        "it is no old backup"
    );
    let recovery = Recovery { cluster, not_before_ms: stamped_ms, window_ms: WINDOW_MS };
    EtcdStore::recover(fleet.config.clone(), &recovery, &fleet::now()).unwrap();
    // None begins within a window of the recovery.
    fleet.check_resumed(&workers, boot_ms() + u64::from(WINDOW_MS));
    fleet.finish_without_records();
}

#[test]
fn f14_records_that_an_operator_deletes() {
    // F14: shows, for a code's record, the cluster's, and all of them, deleted under running workers: those whom it concerns
    // stop, for longer than a TTL; who starts is refused with a reason that names the loss; after an explicit recovery
    // all mint, and no ID comes twice.
    #[derive(PartialEq)]
    enum Deleted {
        Code,
        Cluster,
        Everything,
        EverythingAndFoundedAnew,
    }
    let Some(etcd) = Cluster::start(3) else { return };
    let mut etcd = Some(etcd);
    for (deleted, reason) in [
        (Deleted::Code, "the record of code"),
        (Deleted::Cluster, "the cluster record"),
        (Deleted::Everything, "there is no lease store at"),
        (Deleted::EverythingAndFoundedAnew, "there is no lease store at"),
    ] {
        let mut fleet = Fleet::found(etcd.take().unwrap(), 0, 1, WINDOW_MS, Collector::default());
        let workers = fleet.mint(2);
        let cluster = fleet.store().cluster().unwrap().record;
        let code = fleet.log(workers[0], Log::code);
        let root = format!("{}/0/", fleet.config.prefix);
        let key = match deleted {
            Deleted::Code => format!("{root}code/{code:05}"),
            Deleted::Cluster => format!("{root}cluster"),
            Deleted::Everything | Deleted::EverythingAndFoundedAnew => root.clone(),
        };
        let options = (key == root).then(|| DeleteOptions::new().with_prefix());
        fleet.etcd.admin(0, async |client| client.delete(key, options).await);
        let hit = if deleted == Deleted::Code { &workers[..1] } else { &workers[..] };
        for &at in hit {
            fleet.wait(at, "it loses its grant", |log| log.notices_of("lost").count() == 1);
            fleet.wait_refused(at);
        }
        let refused_ms = boot_ms();
        let starter = fleet.spawn(&fleet.orders("starts"));
        fleet.wait_ended(starter);
        let error = fleet.log(starter, |log| log.not_begun.clone()).unwrap();
        println!("a start is refused: {error}");
        assert!(error.contains(reason), "{error}");
        std::thread::sleep(2 * fleet.window());
        for &at in hit {
            fleet.log(at, |log| assert_eq!(log.first_run_since(refused_ms), None, "{}", log.tail()));
        }
        // The one whose record is whole was not disturbed.
        let spared = if hit.len() == 1 { &workers[1..] } else { &[] };
        assert!(spared.iter().all(|&at| fleet.log(at, |log| log.refusals.is_empty())));

        let stamped_ms = fleet
            .collector
            .look(|logs| logs.iter().flat_map(|log| [0, 1].map(|code| log.stamped_ms(code))).max().unwrap());
        if deleted == Deleted::EverythingAndFoundedAnew {
            // As the command does it for an operator who takes the store for one that never was.
            let found = snowmint_lease::protocol::found(&cluster, WINDOW_MS, &fleet::now()).unwrap();
            snowmint_lease::init(&fleet.store(), &found).unwrap();
        } else {
            // Who is still at work stamps on until it reads of the recovery.
            let not_before_ms = stamped_ms.max(fleet::wall_ms()) + u64::from(WINDOW_MS);
            let recovery = Recovery { cluster, not_before_ms, window_ms: WINDOW_MS };
            EtcdStore::recover(fleet.config.clone(), &recovery, &fleet::now()).unwrap();
        }
        // Of the two codes, one may be held by a grant of before, which is expired first.
        let over_ms = boot_ms() + 3 * u64::from(WINDOW_MS);
        fleet.check_resumed(&workers, over_ms);
        etcd = Some(fleet.finish_and_keep_etcd());
    }
}

#[test]
fn f3_a_start_without_a_store_mints_nothing_and_names_it() {
    // Shows that where no member can be reached no ID is minted, and that the error names where the store should be.
    let Some(mut fleet) = Fleet::start(1, 1, WINDOW_MS) else { return };
    let listeners: Vec<_> = (0..3).map(|_| TcpListener::bind(("127.0.0.1", 0)).unwrap()).collect();
    let endpoints: Vec<_> =
        listeners.iter().map(|listener| format!("http://{}", listener.local_addr().unwrap())).collect();
    drop(listeners);
    let orders = Orders { endpoints: endpoints.clone(), acquire_wait_ms: 2_000, ..fleet.orders("a") };
    for _ in 0..3 {
        let worker = fleet.spawn(&orders);
        fleet.wait_ended(worker);
        fleet.log(worker, |log| {
            let error = log.not_begun.clone().unwrap();
            println!("{error}");
            assert!(endpoints.iter().any(|endpoint| error.contains(endpoint)), "{error}");
            assert!(log.runs.is_empty() && log.grants().is_empty());
        });
    }
    fleet.finish();
}

#[test]
fn f5_two_processes_of_one_name_have_two_codes() {
    // Shows that nothing is derived from a name: of three processes of one name two have a code each, and the third waits
    // though "its own name" holds both.
    let Some(mut fleet) = Fleet::start(1, 1, WINDOW_MS) else { return };
    let orders = fleet.orders("10.0.0.7");
    let workers = [fleet.spawn(&orders), fleet.spawn(&orders)];
    for at in workers {
        fleet.wait_minted(at);
    }
    assert_ne!(fleet.log(workers[0], Log::code), fleet.log(workers[1], Log::code));
    let third = fleet.spawn(&Orders { acquire_wait_ms: 2 * u64::from(WINDOW_MS), ..orders });
    fleet.wait_ended(third);
    let error = fleet.log(third, |log| log.not_begun.clone()).unwrap();
    assert!(error.contains("none of the region's 2 codes"), "{error}");
    none_was_lost(&fleet, &workers);
    fleet.finish();
}

#[test]
fn a_region_that_loses_its_etcd_stops_alone() {
    // Shows four regions with a cluster each: one loses its etcd, mints to what is confirmed, stops, and goes on when it
    // is back; the other three refuse nothing. No ID of any of them comes twice.
    let collector = Collector::default();
    let mut regions = Vec::new();
    for region in 0..4 {
        let Some(etcd) = Cluster::start(1) else { return };
        regions.push(Fleet::found(etcd, region, 3, WINDOW_MS, collector.clone()));
    }
    let workers: Vec<_> = regions.iter_mut().map(|fleet| fleet.mint(2)).collect();
    regions[2].etcd.kill(0);
    minted_to_the_deadline(&regions[2], &workers[2]);
    let refused_ms = boot_ms();
    for region in [0, 1, 3] {
        for &at in &workers[region] {
            regions[region].wait_minted_since(at, refused_ms + 2 * u64::from(WINDOW_MS));
            regions[region].log(at, |log| assert!(log.refusals.is_empty(), "{}", log.tail()));
        }
    }
    regions[2].etcd.run(0);
    regions[2].etcd.wait_for(0);
    regions[2].check_resumed(&workers[2], boot_ms());
    for (fleet, workers) in regions.iter().zip(&workers) {
        none_was_lost(fleet, workers);
    }
    regions.into_iter().for_each(Fleet::finish);
}

#[test]
fn members_that_are_cut_off_from_each_other() {
    // Shows, with workers that reach every member: a leader without followers costs no grant, and where no member reaches
    // another, minting goes on to what is confirmed, is refused, and goes on by the same grants when they meet again.
    let Some(etcd) = Cluster::start_apart(3) else { return };
    let mut fleet = Fleet::found(etcd, 0, 3, WINDOW_MS, Collector::default());
    let workers = fleet.mint(3);
    let leader = fleet.etcd.leader(0);
    let [one, other] = [(leader + 1) % 3, (leader + 2) % 3];
    fleet.etcd.cut(leader, one);
    fleet.etcd.cut(leader, other);
    let cut_ms = boot_ms();
    fleet.etcd.wait_for(one);
    fleet.check_resumed(&workers, boot_ms());
    for &at in &workers {
        fleet.wait(at, "it renews without that leader", |log| {
            log.notices.iter().any(|told| {
                matches!(&*told.kind, "renewed" | "resumed") && told.boot_ms > cut_ms + u64::from(WINDOW_MS)
            })
        });
    }
    fleet.etcd.cut(one, other);
    minted_to_the_deadline(&fleet, &workers);
    std::thread::sleep(2 * fleet.window());
    for (one, other) in [(leader, one), (leader, other), (one, other)] {
        fleet.etcd.heal(one, other);
    }
    (0..3).for_each(|at| fleet.etcd.wait_for(at));
    fleet.check_resumed(&workers, boot_ms());
    none_was_lost(&fleet, &workers);
    fleet.finish();
}

/// A small generator of random numbers, whose seed is told.
struct Random(u64);

impl Random {
    /// From `SNOWMINT_SEED`, or another each time.
    fn new() -> Self {
        let given = std::env::var("SNOWMINT_SEED").ok().map(|seed| seed.parse().unwrap());
        let seed = given.unwrap_or_else(|| u64::try_from(snowmint::fresh_nonce() >> 96).unwrap());
        println!("SNOWMINT_SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, end: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % u64::try_from(end).unwrap()).unwrap()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Health {
    Well,
    Frozen,
    Dead,
}

/// A fleet in a storm, and what is wrong with each part of it.
struct Storm {
    fleet: Fleet,
    random: Random,
    members: [Health; 3],
    workers: Vec<(usize, Health)>,
    /// Two sets of wires; each worker goes by one of them.
    wires: [(Vec<Proxy>, Orders); 2],
    clock: Option<FakeClock>,
}

impl Storm {
    fn spawn(&mut self) -> usize {
        let (_, orders) = &self.wires[self.random.below(2)];
        // Half of them by a clock that is stepped, where there is one.
        let is_odd = self.random.below(2) == 1;
        let clock = self.clock.as_ref().filter(|_| is_odd);
        let environment = clock.map(FakeClock::environment).unwrap_or_default();
        let owner = format!("{}{}", if clock.is_some() { "stepped-" } else { "steady-" }, self.workers.len());
        self.fleet.spawn_with(&Orders { owner, ..orders.clone() }, &environment)
    }

    fn member(&mut self, at: usize, health: Health) {
        match (self.members[at], health) {
            (Health::Well, Health::Frozen) => self.fleet.etcd.stop(at),
            (Health::Frozen, Health::Well) => self.fleet.etcd.cont(at),
            (Health::Dead, Health::Well) => self.fleet.etcd.run(at),
            (Health::Well | Health::Frozen, Health::Dead) => self.fleet.etcd.kill(at),
            _ => return,
        }
        self.members[at] = health;
    }

    /// One more thing goes wrong, or right.
    fn rage(&mut self) {
        let at = self.random.below(self.workers.len());
        let (worker, health) = self.workers[at];
        let what = match self.random.below(14) {
            0..=2 if health == Health::Frozen => {
                self.fleet.thaw(worker);
                self.workers[at].1 = Health::Well;
                format!("worker {worker} thaws")
            }
            0..=2 => {
                self.fleet.freeze(worker);
                self.workers[at].1 = Health::Frozen;
                format!("worker {worker} freezes")
            }
            3 => {
                self.fleet.kill(worker);
                let next = self.spawn();
                self.workers[at] = (next, Health::Well);
                format!("worker {worker} is killed, {next} begins")
            }
            4 if health == Health::Well => {
                self.fleet.tell_to_stop(worker);
                let next = self.spawn();
                self.workers[at] = (next, Health::Well);
                format!("worker {worker} is told to stop, {next} begins")
            }
            5..=8 => {
                let member = self.random.below(3);
                // Well more often than not, or nothing would ever be had.
                let health = [Health::Frozen, Health::Dead, Health::Well, Health::Well, Health::Well];
                let health = health[self.random.below(health.len())];
                self.member(member, health);
                format!("member {member}: {health:?}")
            }
            9 | 10 => {
                let wire = [Wire::Whole, Wire::Whole, Wire::NoReplies, Wire::Cut][self.random.below(4)];
                let side = self.random.below(2);
                set(&self.wires[side].0, wire);
                format!("wires {side}: {wire:?}")
            }
            11 if self.clock.is_some() => {
                let step = ["+0", "+8", "-8", "+2", "-1"][self.random.below(5)];
                self.clock.as_ref().unwrap().step(step);
                format!("clocks: {step}")
            }
            12 => {
                let code = u32::try_from(self.random.below(8)).unwrap();
                let nonce = snowmint::fresh_nonce();
                let fenced = self.operator(|store| {
                    snowmint_lease::store::fence(store, code, 1_000, &fleet::now(), nonce).map(drop)
                });
                format!("code {code} is fenced: {fenced:?}")
            }
            13 if self.random.below(4) == 0 => {
                let stamped_ms = self.fleet.collector.look(|logs| {
                    logs.iter().flat_map(|log| (0..8).map(|code| log.stamped_ms(code))).max().unwrap()
                });
                let not_before_ms = stamped_ms.max(fleet::wall_ms()) + u64::from(WINDOW_MS);
                let recovered = self.operator(|store| {
                    snowmint_lease::store::recover(store, not_before_ms, WINDOW_MS, &fleet::now()).map(drop)
                });
                format!("recovery: {recovered:?}")
            }
            _ => return,
        };
        println!("{} {what}", boot_ms());
    }

    /// What an operator tries, whatever comes of it.
    fn operator(&self, act: impl FnOnce(&EtcdStore) -> Result<(), StoreError>) -> Result<(), &'static str> {
        let config = EtcdConfig { request_ms_max: 500, call_ms_max: 1_000, ..self.fleet.config.clone() };
        EtcdStore::connect(config).and_then(|store| act(&store)).map_err(|error| error.reason())
    }

    /// Everything is set right.
    fn calm(&mut self) {
        if let Some(clock) = &self.clock {
            clock.step("+0");
        }
        self.wires.iter().for_each(|(wires, _)| set(wires, Wire::Whole));
        (0..3).for_each(|at| self.member(at, Health::Well));
        for (worker, health) in &mut self.workers {
            if *health == Health::Frozen {
                self.fleet.thaw(*worker);
                *health = Health::Well;
            }
        }
        (0..3).for_each(|at| self.fleet.etcd.wait_for(at));
    }
}

#[test]
fn a_storm_of_faults() {
    // Shows that of everything above at random and at once (workers and members frozen, killed and stopped, wires cut,
    // clocks stepped by seconds, codes fenced, generations raised) no ID comes twice, none lies above a confirmed end and
    // none is late; and that all mint again once it is over. SNOWMINT_TEST_LONG: 200 s of it.
    let Some(fleet) = Fleet::start(3, 3, WINDOW_MS) else { return };
    let wires = [wired(&fleet, ""), wired(&fleet, "")];
    let clock = FakeClock::new("+0");
    let mut storm =
        Storm { fleet, random: Random::new(), members: [Health::Well; 3], workers: Vec::new(), wires, clock };
    for _ in 0..5 {
        let worker = storm.spawn();
        storm.workers.push((worker, Health::Well));
    }
    let workers = |storm: &Storm| storm.workers.iter().map(|(at, _)| *at).collect::<Vec<_>>();
    for at in workers(&storm) {
        storm.fleet.wait_minted(at);
    }
    let until_ms = boot_ms() + if is_long() { 200_000 } else { 20_000 };
    while boot_ms() < until_ms {
        storm.rage();
        std::thread::sleep(Duration::from_millis(50 + u64::try_from(storm.random.below(500)).unwrap()));
    }
    storm.calm();
    let calm_ms = boot_ms();
    for at in workers(&storm) {
        println!("worker {at} mints again {:?} after the storm", storm.fleet.wait_minted_since(at, calm_ms));
    }
    storm.fleet.finish();
}
