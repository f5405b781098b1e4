//! What takes a nightly toolchain: Miri and fuzzing. Where there is none, they are skipped with a word on how to get it.

use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

use crate::cargo::{Workspace, find, run};
use crate::debian;
use crate::steps::Outcome;

/// Core's tests that run under Miri: the cursor's rules, by value and shared by threads. Others take it hours.
const MIRI_TESTS: &[&[&str]] = &[&["--test", "properties"], &["--test", "faults", "--", "f7", "f19"]];

const GET: &str = "rustup toolchain install nightly --component miri,rust-src";

const GET_FUZZ: &str = "cargo install cargo-fuzz --locked";

/// The fuzzing workspace's targets.
const TARGETS: &[&str] = &["text", "layout", "layout_toml", "decode", "records", "leases"];

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

/// Every target for so long, and the component under a hostile host. Skipped where something is missing that is not ours
/// to install.
pub(crate) fn fuzz(workspace: &Workspace, seconds: u64) -> Result<Outcome> {
    if !has(&["--version"]) {
        return Ok(Outcome::Skipped(format!("no nightly toolchain: {GET}")));
    }
    let tools = workspace.target.join("tools");
    let own = tools.join("bin");
    if find("cargo-fuzz").is_none() && !own.join("cargo-fuzz").is_file() {
        if !debian::may_install()? {
            return Ok(Outcome::Skipped(format!("no cargo-fuzz: {GET_FUZZ}")));
        }
        run(workspace.cargo().args(["install", "cargo-fuzz", "--locked", "--quiet", "--root"]).arg(&tools))?;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::env::split_paths(&path).chain([own]))?;
    // All are built first, so that they can run at once, two at a time.
    let fuzz = |verb: &str| {
        let mut fuzz = nightly(workspace);
        fuzz.env("PATH", &path).args(["fuzz", verb, "--sanitizer", "none"]);
        fuzz
    };
    run(&mut fuzz("build"))?;
    for targets in TARGETS.chunks(2) {
        let mut running = Vec::new();
        for target in targets {
            // What is found is kept beside the seeds, not among them: those are in the repository, and few.
            let found = workspace.target.join("fuzz-corpus").join(target);
            std::fs::create_dir_all(&found)?;
            let mut fuzz = fuzz("run");
            fuzz.arg(target).arg(found).arg(workspace.root.join("fuzz").join("corpus").join(target));
            fuzz.arg("--").arg(format!("-max_total_time={seconds}"));
            running.push((target, fuzz.spawn()?));
        }
        for (target, mut child) in running {
            ensure!(child.wait()?.success(), "fuzzing {target} found something: see above");
        }
    }
    run(workspace
        .cargo()
        .args(["test", "--locked", "--package", "snowmint", "--test", "hostile", "--", "--nocapture"])
        .env("SNOWMINT_FUZZ_SECONDS", seconds.to_string()))?;
    Ok(Outcome::Note(format!("{} targets, {seconds} s each", TARGETS.len() + 1)))
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
