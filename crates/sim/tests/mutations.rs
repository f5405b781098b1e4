//! Every rule that is broken is caught. Only in a build that can break one: `cargo xtask test` makes it.
#![cfg(snowmint_mutations)]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // It is all test.

use snowmint_core::mutation::{self, Mutation};
use snowmint_sim::{Rule, Scenario, Summary, Violation, World};

/// How many seeds a mutation has until it must be caught.
const SEEDS_MAX: u64 = 500;

/// The first seed by which a rule is seen to be broken (only `heeded`, if given), with all that was done until then.
fn caught(mutation: Mutation, heeded: Option<Rule>) -> Option<(u64, Violation, Summary)> {
    mutation::set(Some(mutation));
    let mut total = Summary::default();
    let found = (0..SEEDS_MAX).find_map(|seed| {
        let mut world = World::new(Scenario::from_seed(seed));
        if let Some(rule) = heeded {
            world.heed(rule);
        }
        world.run();
        total.add(world.summary());
        Some((seed, world.violation()?.clone()))
    });
    mutation::set(None);
    found.map(|(seed, violation)| (seed, violation, total))
}

#[test]
fn every_mutation_is_caught_and_the_worlds_are_fine_without() {
    // Shows, for each rule that can be broken, by which seed, after how many events and IDs and by which check it is
    // caught, and whether the worlds also came to a duplicate by it, with every other check left out.
    let mut missed = Vec::new();
    println!(
        "{:<28} {:<24} {:>5} {:>9} {:>11}  a duplicate by seed",
        "mutation", "caught by", "seed", "events", "IDs"
    );
    for mutation in Mutation::ALL {
        let name = mutation.name();
        let Some((seed, violation, total)) = caught(mutation, None) else {
            println!("{name:<28} MISSED in {SEEDS_MAX} seeds");
            missed.push(name);
            continue;
        };
        let duplicate = caught(mutation, Some(Rule::Unique))
            .map_or_else(|| String::from("none"), |(seed, ..)| seed.to_string());
        let (rule, events, ids) = (violation.rule.name(), total.events, total.ids);
        println!("{name:<28} {rule:<24} {seed:>5} {events:>9} {ids:>11}  {duplicate}");
    }
    assert!(missed.is_empty(), "not caught: {missed:?}");
    for seed in 0..100 {
        let (_, violation) = snowmint_sim::run(Scenario::from_seed(seed));
        assert_eq!(violation, None, "seed {seed}, with no rule broken");
    }
}
