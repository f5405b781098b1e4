//! Licences, bans, sources and advisories, by cargo-deny and its `deny.toml`.

use std::ffi::OsString;
use std::process::Command;

use anyhow::Result;

use crate::cargo::{Workspace, find, run};
use crate::steps::{Outcome, Steps};

/// Built where it is missing, once.
const VERSION: &str = "0.20.2";

pub(super) fn check(workspace: &Workspace, steps: &mut Steps) {
    let mut program = OsString::new();
    let is_here = steps.step("cargo-deny", || {
        program = installed(workspace)?;
        Ok(Outcome::Done)
    });
    if !is_here {
        return;
    }
    let deny = || {
        let mut command = Command::new(&program);
        command.current_dir(&workspace.root);
        command
    };
    steps.step("licences, bans, sources", || {
        run(deny().args(["--locked", "check", "--hide-inclusion-graph", "bans", "licenses", "sources"]))?;
        Ok(Outcome::Done)
    });
    steps.step("advisories", || {
        // The list of advisories is a repository, which not every machine can reach.
        if let Err(error) = run(deny().args(["fetch", "db"])) {
            return Ok(Outcome::Skipped(format!("the advisories could not be fetched: {error:#}")));
        }
        run(deny().args(["--locked", "check", "--disable-fetch", "advisories"]))?;
        Ok(Outcome::Done)
    });
}

/// Where cargo-deny is. One that the machine has is taken; else it is put in the target folder, where it is in
/// nobody's way.
fn installed(workspace: &Workspace) -> Result<OsString> {
    if let Some(path) = find("cargo-deny") {
        return Ok(path.into());
    }
    let tools = workspace.target.join("tools");
    let program = tools.join("bin").join(format!("cargo-deny{}", std::env::consts::EXE_SUFFIX));
    if !program.is_file() {
        // Not optimised, it is built in less than half the time, and still done with us within a second.
        let mut install = workspace.cargo();
        install.env("CARGO_PROFILE_DEV_DEBUG", "false");
        install.args(["install", "--debug", "--locked", "--version", VERSION, "cargo-deny", "--root"]);
        run(install.arg(&tools))?;
    }
    Ok(program.into())
}
