//! The main job: build everything, then mint.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use crate::cargo::{Workspace, run as run_visibly};
use crate::component::component;
use crate::debian;

/// `snowmint mint` with these arguments. An embedded store that does not exist yet is made, so that the first command of a
/// newcomer works; one that exists is not touched by `--init`.
pub(crate) fn mint(workspace: &Workspace, args: &[OsString]) -> Result<ExitCode> {
    let mut all: Vec<OsString> = vec!["mint".into()];
    if args.is_empty() {
        all.extend(["-n".into(), "10".into()]);
    }
    all.extend_from_slice(args);
    let is_told = |arg: &OsString| arg == "--init" || arg.to_string_lossy().contains("etcd:");
    if !args.iter().any(is_told) {
        all.push("--init".into());
    }
    run(workspace, &all)
}

/// `snowmint` with these arguments; its exit code becomes ours.
pub(crate) fn run(workspace: &Workspace, args: &[OsString]) -> Result<ExitCode> {
    ensure!(workspace.package("snowmint").is_some(), "the workspace has no package `snowmint`");
    component(workspace)?;
    let mut build = workspace.cargo();
    build.args(["build", "--release", "--locked", "--package", "snowmint"]);
    let missing = debian::ensure(debian::BUILD_NEEDS)?;
    if !missing.is_empty() {
        eprintln!("{}", debian::advice(&missing));
        build.arg("--no-default-features");
    }
    run_visibly(&mut build)?;
    let program = workspace.target.join("release").join(format!("snowmint{}", std::env::consts::EXE_SUFFIX));
    let status = Command::new(&program)
        .args(args)
        .status()
        .with_context(|| format!("{} was built but could not be started", program.display()))?;
    // No code: a signal ended it.
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}
