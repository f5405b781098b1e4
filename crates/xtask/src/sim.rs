//! The simulator, and the one build in which a rule can be broken.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use anyhow::Result;
use clap::Args;

use crate::cargo::{Workspace, run};
use crate::steps::Outcome;

const SIMULATOR: &str = "snowmint-sim";

/// How rustc is told to make that build. No manifest, configuration or build script may.
const MUTATIONS: &str = "--cfg snowmint_mutations";

/// What is asked of the simulator.
#[derive(Args, Debug)]
#[group(multiple = true)]
pub(crate) struct Sim {
    /// Runs one seed, and prints its time line
    #[arg(long, value_name = "N", conflicts_with_all = ["seeds", "hours", "from"])]
    seed: Option<u64>,
    /// Runs so many seeds [default: 2000]
    #[arg(long, value_name = "COUNT", conflicts_with = "hours")]
    seeds: Option<u64>,
    /// Runs seeds for so long
    #[arg(long, value_name = "H")]
    hours: Option<f64>,
    /// The first seed
    #[arg(long, value_name = "N")]
    from: Option<u64>,
    /// Breaks a rule, to see it caught: a name of crates/core/src/mutation.rs
    #[arg(long, value_name = "NAME")]
    mutation: Option<String>,
}

impl Sim {
    fn args(&self) -> Vec<OsString> {
        let numbers = [("--seed", self.seed), ("--seeds", self.seeds), ("--from", self.from)];
        let numbers = numbers.into_iter().filter_map(|(flag, number)| Some((flag, number?.to_string())));
        let hours = self.hours.map(|hours| ("--hours", hours.to_string()));
        let mutation = self.mutation.clone().map(|name| ("--mutation", name));
        let all = numbers.chain(hours).chain(mutation);
        all.flat_map(|(flag, value)| [OsString::from(flag), OsString::from(value)]).collect()
    }
}

/// Builds the simulator and runs it; its exit code becomes ours.
pub(crate) fn sim(workspace: &Workspace, sim: &Sim) -> Result<ExitCode> {
    let mut cargo = if sim.mutation.is_some() { mutated(workspace) } else { workspace.cargo() };
    cargo.arg("run");
    if sim.mutation.is_some() {
        cargo.args(target(workspace));
    }
    cargo.args(["--quiet", "--release", "--locked", "--package", SIMULATOR, "--"]).args(sim.args());
    let status = cargo.status()?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Every rule, broken in turn: the simulator must see it.
pub(crate) fn mutations(workspace: &Workspace) -> Result<Outcome> {
    if workspace.package(SIMULATOR).is_none() {
        return Ok(Outcome::Skipped(format!("the workspace has no {SIMULATOR}")));
    }
    let mut cargo = mutated(workspace);
    cargo.arg("test").args(target(workspace));
    run(cargo.args(["--locked", "--package", SIMULATOR, "--test", "mutations", "--", "--nocapture"]))?;
    Ok(Outcome::Note(String::from("each was caught; the table above says by what, after how much")))
}

/// Cargo, for a build in which a rule can be broken.
pub(crate) fn mutated(workspace: &Workspace) -> Command {
    let mut cargo = workspace.cargo();
    // It stands above RUSTFLAGS where it is set.
    cargo.env_remove("CARGO_ENCODED_RUSTFLAGS");
    cargo.env("RUSTFLAGS", MUTATIONS);
    cargo
}

/// That build's own target folder, so that no other build is made anew for it.
pub(crate) fn target(workspace: &Workspace) -> [OsString; 2] {
    ["--target-dir".into(), workspace.target.join("mutations").into()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        sim: Sim,
    }

    #[test]
    fn what_is_asked_is_passed_on_and_what_makes_no_sense_is_refused() {
        // Shows each flag, and pairs that exclude each other.
        fn row(line: &str, expected: Option<&str>) {
            let parsed = Line::try_parse_from(["sim"].into_iter().chain(line.split_whitespace()));
            let told = parsed.ok().map(|line| {
                let args: Vec<_> =
                    line.sim.args().iter().map(|it| it.to_string_lossy().into_owned()).collect();
                args.join(" ")
            });
            assert_eq!(told.as_deref(), expected, "{line}");
        }
        row("", Some(""));
        row("--seed 7 --mutation no-floor", Some("--seed 7 --mutation no-floor"));
        row("--seeds 9 --from 3", Some("--seeds 9 --from 3"));
        row("--hours 0.5", Some("--hours 0.5"));
        row("--seed 7 --seeds 9", None);
        row("--seeds 7 --hours 9", None);
        row("--seed x", None);
    }
}
