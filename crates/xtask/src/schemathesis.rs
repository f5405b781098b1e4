//! Schemathesis, which asks a service everything that its contract allows and much that it does not. From PyPI.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::cargo::{Workspace, find, run};
use crate::debian;

/// One release, so that a finding is the service's and not a new checker's.
const REQUIREMENT: &str = "schemathesis==4.32.5";

/// How to get it, for who reads that it was skipped.
pub(crate) const GET: &str =
    "no schemathesis: python3 -m venv target/tools/schemathesis, and pip install schemathesis in it";

/// The variable that names the program to the service's tests. Without it they pass over what needs it.
pub(crate) const PROGRAM: &str = "SNOWMINT_TEST_SCHEMATHESIS";

/// Where it is, after it was installed into the target folder where that is ours to do (as root, or in CI). `None`: it is
/// nowhere.
pub(crate) fn ensure(workspace: &Workspace) -> Result<Option<PathBuf>> {
    let place = workspace.target.join("tools").join("schemathesis");
    let program = place.join("bin").join("schemathesis");
    if program.is_file() {
        return Ok(Some(program));
    }
    if find("python3").is_none() || !debian::may_install()? {
        return Ok(None);
    }
    run(Command::new("python3").args(["-m", "venv"]).arg(&place))?;
    run(Command::new(place.join("bin").join("pip")).args(["install", "--quiet", REQUIREMENT]))?;
    Ok(Some(program))
}
