//! Every test that can run on this machine.

use std::process::Command;

use anyhow::Result;

use crate::cargo::{BARE, Workspace, ensure_target, find, run};
use crate::component::component;
use crate::debian;
use crate::model;
use crate::nightly;
use crate::schemathesis;
use crate::sim;
use crate::steps::{Outcome, Steps};
use crate::web;

/// How long each fuzzing target runs, in seconds.
const FUZZ_S: u64 = 60;
const FUZZ_S_LONG: u64 = 600;

/// Crates that must build where there is no operating system.
const BARE_PACKAGES: &[&str] = &["snowmint-core"];

pub(crate) fn test(workspace: &Workspace, long: bool) -> Result<()> {
    let mut steps = Steps::new("test");
    let built = steps.step("component", || Ok(Outcome::Note(format!("{} bytes", component(workspace)?))));
    if !built {
        // The host carries the component within it: nothing that follows could be built.
        return steps.finish();
    }

    let mut missing = Vec::new();
    steps.step("programs for tests", || {
        missing = debian::ensure(debian::NEEDS)?;
        if missing.is_empty() { Ok(Outcome::Done) } else { Ok(Outcome::Skipped(debian::advice(&missing))) }
    });
    let mut checker = None;
    steps.step("schemathesis", || {
        checker = schemathesis::ensure(workspace)?;
        Ok(if checker.is_some() { Outcome::Done } else { Outcome::Skipped(schemathesis::GET.into()) })
    });
    let cargo = || {
        let mut command = workspace.cargo();
        if let Some(checker) = &checker {
            command.env(schemathesis::PROGRAM, checker);
        }
        if long {
            command.env("SNOWMINT_TEST_LONG", "1");
        }
        if !missing.is_empty() {
            command.env(debian::WITHOUT, debian::without(&missing));
        }
        command
    };

    steps.step("tests", || tests(cargo()));
    steps.step("documentation's examples", || {
        run(cargo().args(["test", "--doc", "--locked"]).args(Workspace::natively()))?;
        Ok(Outcome::Done)
    });
    // The page is built before its tests, so that a page that is too large is told where no browser is.
    if steps.step("the page", || Ok(Outcome::Note(web::build(workspace)?))) {
        steps.step("the page in a browser", || web::test(workspace));
    }
    steps.step("broken rules", || sim::mutations(workspace));
    steps.step("broken rules, in the model", || model::mutations(workspace));
    steps.step("core under Miri", || nightly::miri(workspace));
    steps.step("hostile bytes", || nightly::fuzz(workspace, if long { FUZZ_S_LONG } else { FUZZ_S }));
    steps.step("without an operating system", || {
        ensure_target(BARE)?;
        for package in BARE_PACKAGES {
            run(workspace.cargo().args([
                "build",
                "--lib",
                "--locked",
                "--target",
                BARE,
                "--package",
                package,
            ]))?;
        }
        Ok(Outcome::Done)
    });
    steps.finish()
}

/// By nextest where it is installed, which runs each test in a process of its own; by cargo itself elsewhere.
fn tests(mut cargo: Command) -> Result<Outcome> {
    if find("cargo-nextest").is_some() {
        cargo.args(["nextest", "run", "--locked", "--no-fail-fast"]);
    } else {
        cargo.args(["test", "--locked", "--no-fail-fast", "--lib", "--bins", "--tests", "--examples"]);
    }
    run(cargo.args(Workspace::natively()))?;
    Ok(Outcome::Done)
}
