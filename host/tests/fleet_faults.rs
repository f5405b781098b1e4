//! A fleet over a real etcd, and everything that goes wrong with it: members, wires, disks, clocks, processes, operators.
//!
//! Each fault ends in the same check of all that every process told, see `fleet::collector::violations`: no ID twice,
//! none above a confirmed end, none after the deadline.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // It is all test.

mod fleet;

use fleet::collector::{violations, violations_of_records};
use fleet::{Fleet, Line, Log, Orders, boot_ms};
use snowmint_lease_etcd::EtcdConfig;

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
    let record = |end_ms| snowmint_lease::CodeRecord { end_ms, ..snowmint_lease::CodeRecord::UNUSED };
    let stored = |end_ms| snowmint_lease::Stored {
        record: record(end_ms),
        revision: snowmint_lease::Revision::new(1),
    };
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
    std::thread::sleep(std::time::Duration::from_millis((out_ms + outage_ms).saturating_sub(boot_ms())));
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
