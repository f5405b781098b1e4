//! The simulator's command line: `cargo xtask sim` runs it.
//!
//! Here, and only here, time is real: to show how fast worlds go by.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use snowmint_core::mutation::Mutation;
use snowmint_sim::{Scenario, Summary, Violation, World, run};

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Order {
    /// One seed, with its time line.
    seed: Option<u64>,
    /// So many seeds.
    seeds: u64,
    /// From this one on.
    from: u64,
    /// Instead of a number of seeds: so long.
    hours: Option<f64>,
    /// With this rule broken.
    mutation: Option<Mutation>,
}

const USAGE: &str = "usage: snowmint-sim [--seed N | --seeds COUNT | --hours H] [--from N] [--mutation NAME]";

fn order(mut args: impl Iterator<Item = String>) -> Result<Order, String> {
    let mut order = Order { seed: None, seeds: 2_000, from: 0, hours: None, mutation: None };
    while let Some(flag) = args.next() {
        let value = args.next().ok_or_else(|| format!("{flag} needs a value\n{USAGE}"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{flag}: {value} is no number"));
        match flag.as_str() {
            "--seed" => order.seed = Some(number()?),
            "--seeds" => order.seeds = number()?,
            "--from" => order.from = number()?,
            "--hours" => {
                let hours = value.parse::<f64>().ok().filter(|hours| hours.is_finite() && *hours > 0.0);
                order.hours = Some(hours.ok_or_else(|| format!("--hours: {value} is no length"))?);
            }
            "--mutation" => {
                let found = Mutation::ALL.into_iter().find(|it| it.name() == value);
                order.mutation = Some(found.ok_or_else(|| {
                    let names: Vec<_> = Mutation::ALL.iter().map(|it| it.name()).collect();
                    format!("--mutation: {value} is none of {}", names.join(", "))
                })?);
            }
            _ => return Err(format!("{flag} is not known\n{USAGE}")),
        }
    }
    Ok(order)
}

fn main() -> ExitCode {
    let order = match order(std::env::args().skip(1)) {
        Ok(order) => order,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    if order.mutation.is_some() && !cfg!(snowmint_mutations) {
        eprintln!(
            "error: no rule can be broken in this build; `cargo xtask sim --mutation NAME` makes one that can"
        );
        return ExitCode::from(2);
    }
    let violation = match order.seed {
        Some(seed) => tell(seed, order.mutation),
        None => many(&order),
    };
    if violation.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Breaks a rule on this thread.
fn mutate(mutation: Option<Mutation>) {
    #[cfg(snowmint_mutations)]
    snowmint_core::mutation::set(mutation);
    let _ = mutation;
}

/// One seed, with its time line.
fn tell(seed: u64, mutation: Option<Mutation>) -> Option<Violation> {
    mutate(mutation);
    let mut world = World::new(Scenario::from_seed(seed));
    println!("{:#?}", world.scenario());
    world.record();
    let mut goes_on = true;
    while goes_on {
        goes_on = world.step();
        for line in world.take_lines() {
            println!("{line}");
        }
    }
    if let Some(violation) = world.violation() {
        println!("BROKEN: {violation}");
    }
    println!("seed {seed}: {}", world.summary());
    world.violation().cloned()
}

/// Many seeds, on every processor.
fn many(order: &Order) -> Option<Violation> {
    let begun = Instant::now();
    let until = order.hours.map(|hours| begun + Duration::from_secs_f64(hours * 3_600.0));
    let next = AtomicU64::new(order.from);
    let is_over = AtomicBool::new(false);
    let total = Mutex::new(Summary::default());
    let broken = Mutex::new(None);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                mutate(order.mutation);
                while !is_over.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let is_done = match until {
                        Some(until) => Instant::now() >= until,
                        None => seed - order.from >= order.seeds,
                    };
                    if is_done {
                        break;
                    }
                    let (summary, violation) = run(Scenario::from_seed(seed));
                    total.lock().unwrap_or_else(PoisonError::into_inner).add(&summary);
                    if let Some(violation) = violation {
                        is_over.store(true, Ordering::Relaxed);
                        let mut broken = broken.lock().unwrap_or_else(PoisonError::into_inner);
                        // The lowest seed of those that were under way.
                        if broken.as_ref().is_none_or(|(other, _)| seed < *other) {
                            *broken = Some((seed, violation));
                        }
                    }
                }
            });
        }
    });
    let broken = broken.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some((seed, violation)) = &broken {
        let mutation = order.mutation.map(|it| format!(" --mutation {}", it.name())).unwrap_or_default();
        println!("BROKEN by seed {seed}: {violation}");
        println!("to see it: cargo xtask sim --seed {seed}{mutation}");
    }
    let total = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{:.1} s: {total}", begun.elapsed().as_secs_f64());
    broken.map(|(_, violation)| violation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_understood_or_refused() {
        // Shows each flag, and a few that are wrong.
        let parse = |line: &str| order(line.split_whitespace().map(String::from));
        assert_eq!(parse("--seed 7").unwrap().seed, Some(7));
        assert_eq!(parse("--seeds 9 --from 3").map(|it| (it.seeds, it.from)), Ok((9, 3)));
        assert_eq!(parse("--hours 0.5").unwrap().hours, Some(0.5));
        assert_eq!(parse("--mutation no-floor").unwrap().mutation, Some(Mutation::NoFloor));
        for wrong in ["--seed", "--seed x", "--hours -1", "--mutation none", "--what 1"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
