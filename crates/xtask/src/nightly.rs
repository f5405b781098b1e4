//! What takes a nightly toolchain: Miri and fuzzing. Where there is none, they are skipped with a word on how to get it.

use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

use crate::cargo::{Workspace, find, run};
use crate::steps::Outcome;

/// Core's tests that run under Miri: the cursor's rules, by value and shared by threads. Others take it hours.
const MIRI_TESTS: &[&[&str]] = &[&["--test", "properties"], &["--test", "faults", "--", "f7", "f19"]];

const GET: &str = "rustup toolchain install nightly --component miri,rust-src";

/// The fuzzing workspace's targets.
const TARGETS: &[&str] = &["text", "layout", "decode", "records", "leases"];

/// Core under Miri: undefined behaviour, and wrong orders that the processor would hide.
pub(crate) fn miri(workspace: &Workspace) -> Result<Outcome> {
    if !has(&["miri", "--version"]) {
        return Ok(Outcome::Skipped(format!("no nightly toolchain with Miri: {GET}")));
    }
    for filter in MIRI_TESTS {
        let mut miri = nightly(workspace);
        // Proptest looks for a file of former failures.
        miri.env("MIRIFLAGS", "-Zmiri-disable-isolation");
        run(miri.args(["miri", "test", "--quiet", "--locked", "--package", "snowmint-core"]).args(*filter))?;
    }
    Ok(Outcome::Done)
}

/// Every target for so long.
pub(crate) fn fuzz(workspace: &Workspace, seconds: u64) -> Result<()> {
    ensure!(has(&["--version"]), "fuzzing takes a nightly toolchain: {GET}");
    ensure!(find("cargo-fuzz").is_some(), "fuzzing takes cargo-fuzz: cargo install cargo-fuzz --locked");
    for target in TARGETS {
        let mut fuzz = nightly(workspace);
        // What is found is kept beside the seeds, not among them: those are in the repository, and few.
        let found = workspace.target.join("fuzz-corpus").join(target);
        std::fs::create_dir_all(&found)?;
        fuzz.args(["fuzz", "run", "--sanitizer", "none", target]);
        fuzz.arg(found).arg(workspace.root.join("fuzz").join("corpus").join(target));
        run(fuzz.arg("--").arg(format!("-max_total_time={seconds}")))?;
    }
    Ok(())
}

fn nightly(workspace: &Workspace) -> Command {
    // The toolchain that runs us must not choose for rustup.
    let mut cargo = Command::new("cargo");
    cargo.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").arg("+nightly").current_dir(&workspace.root);
    cargo
}

fn has(args: &[&str]) -> bool {
    let mut cargo = Command::new("cargo");
    cargo.env_remove("RUSTUP_TOOLCHAIN").arg("+nightly").args(args);
    cargo.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
