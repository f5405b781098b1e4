//! The model checker: every state of a small fleet; and, in the one build where a rule can be broken, that it sees it.

use anyhow::Result;

use crate::cargo::{Workspace, run};
use crate::sim;
use crate::steps::Outcome;

const MODEL: &str = "snowmint-model";

/// Explores, in the short form or the long one.
pub(crate) fn model(workspace: &Workspace, long: bool) -> Result<()> {
    let mut cargo = workspace.cargo();
    cargo.args(["run", "--quiet", "--release", "--locked", "--package", MODEL, "--"]);
    run(cargo.args(long.then_some("--long")))
}

/// Every rule that the model is the place for, broken in turn.
pub(crate) fn mutations(workspace: &Workspace) -> Result<Outcome> {
    let mut cargo = sim::mutated(workspace);
    cargo.arg("run").args(sim::target(workspace));
    run(cargo.args(["--quiet", "--release", "--locked", "--package", MODEL, "--", "--mutations"]))?;
    // What takes the order of threads to be seen.
    let mut cargo = sim::mutated(workspace);
    cargo.arg("test").args(sim::target(workspace));
    run(cargo.args([
        "--quiet",
        "--locked",
        "--package",
        MODEL,
        "--test",
        "loom",
        "--",
        "caught",
        "--nocapture",
    ]))?;
    Ok(Outcome::Note(String::from("each was caught; the lines above say by what, after how many states")))
}
