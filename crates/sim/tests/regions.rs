//! A fleet over four regions that cannot reach each other for four hours.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // It is all test.

use snowmint_sim::{Clocks, Load, Scenario, Shape, Summary, World};

const HOUR_MS: u64 = 3_600_000;
/// A fleet's window.
const WINDOW_MS: u32 = 10_000;

fn scenario(seed: u64, regions: u32, leased: u32, run_ms: u64, load: Load) -> Scenario {
    Scenario {
        regions,
        leased,
        run_ms,
        load,
        window_ms: WINDOW_MS,
        clocks: Clocks::All(Shape::Steady),
        // As a fleet does: it refuses nobody whose clock is right.
        compares_clocks: true,
        ..Scenario::quiet(seed)
    }
}

/// The summary of a world in which no rule was broken.
fn fine(world: &World) -> Summary {
    let seed = world.scenario().seed;
    assert_eq!(world.violation(), None, "seed {seed}: {:?}", world.scenario());
    assert_eq!(world.summary().duplicates, 0);
    world.summary().clone()
}

#[test]
fn saturated_workers_go_on_through_a_cut_of_four_hours_at_12_million_ids_a_second() {
    // Shows a region whose own lease service is up: three workers mint all that the layout holds, 4,096 a millisecond
    // each, through four hours without the other regions, refused by nothing but full milliseconds. Stores are per
    // region: nothing in it ever waits for another region, which is why the cut is nothing but its length.
    let load = Load { every_us: 1_000, runs: 1, ids_max: 4_096, is_even: true };
    let warm_ms = 20_000;
    let run_ms = warm_ms + 4 * HOUR_MS;
    let mut world = World::new(scenario(4, 1, 3, run_ms, load));
    world.run_until(warm_ms);
    world.must_mint(0);
    let before = fine(&world).ids;
    world.run();
    let summary = fine(&world);
    println!("{summary}");
    let per_second = (summary.ids - before) / (4 * HOUR_MS / 1_000);
    assert!(per_second >= 12_000_000, "{per_second} IDs a second");
}

#[test]
fn eight_hundred_workers_at_8_million_ids_a_second_and_one_region_without_its_lease_service() {
    // Shows a minute of the cut over the whole fleet: 4 regions of 200 workers, 10,000 IDs a second each. Three
    // regions are never refused anything. The fourth cannot reach its own lease service: it goes on inside the window
    // that was confirmed, and mints nothing past it.
    let load = Load { every_us: 10_000, runs: 1, ids_max: 100, is_even: true };
    let warm_ms = 30_000;
    let mut world = World::new(scenario(5, 4, 200, warm_ms + 60_000, load));
    world.run_until(warm_ms);
    for region in 0..3 {
        world.must_mint(region);
    }
    let reach_ms = world.reach_ms(3);
    world.cut_region(3, 60_000);
    let mut ids = fine(&world).ids;
    let mut per_second = Vec::new();
    for second in 1..=60 {
        world.run_until(warm_ms + second * 1_000);
        let now = fine(&world).ids;
        per_second.push(now - ids);
        ids = now;
    }
    assert_eq!(world.reach_ms(3), reach_ms, "a region without its store was granted more");
    let whole = 200 * 4 * 10_000;
    // A renewal is sent every third of the window: what is confirmed lasts for two thirds of it at least.
    assert!(per_second[..6].iter().all(|&ids| ids == whole), "inside the window: {per_second:?}");
    assert!(per_second[10..].iter().all(|&ids| ids == whole / 4 * 3), "past the window: {per_second:?}");
    let summary = fine(&world);
    println!("{summary}");
    assert!(summary.refusals["lease-lost"] > 0);
}

#[test]
fn an_isolated_lease_service_is_missed_only_after_its_window_and_all_recovers() {
    // Shows one worker without its store: it mints on inside the confirmed window, is refused (lease lost, not an
    // error of its own) after it, and goes on by itself once the store is back.
    let load = Load { every_us: 1_000, runs: 1, ids_max: 10, is_even: true };
    let mut world = World::new(Scenario { window_ms: 1_000, ..scenario(6, 1, 1, 20_000, load) });
    world.run_until(5_000);
    world.must_mint(0);
    world.cut_region(0, 5_000);
    let begin = fine(&world).ids;
    world.run_until(5_600);
    assert_eq!(fine(&world).ids - begin, 6_000, "inside the window");
    world.may_refuse(0);
    world.run_until(6_001);
    let past = fine(&world).ids;
    world.run_until(9_999);
    assert_eq!(fine(&world).ids, past, "past the window");
    assert!(world.summary().refusals["lease-lost"] > 3_000);
    world.run_until(11_500);
    world.must_mint(0);
    let back = fine(&world).ids;
    assert!(back > past);
    world.run();
    assert!(fine(&world).ids >= back + 80_000);
}
