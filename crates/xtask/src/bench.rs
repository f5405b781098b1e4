//! Benchmarks: a workspace of their own, so that the peers they compare with stay out of our lock file.

use std::ffi::OsString;

use anyhow::{Result, ensure};

use crate::cargo::{Workspace, run};
use crate::component::component;

pub(crate) fn bench(workspace: &Workspace, args: &[OsString]) -> Result<()> {
    let manifest = workspace.root.join("benches").join("Cargo.toml");
    ensure!(manifest.is_file(), "there are no benchmarks: {} is missing", manifest.display());
    let component = component(workspace)?.path;
    // The command as it is released, which some of them run.
    run(workspace.cargo().args(["build", "--release", "--locked", "--package", "snowmint"]))?;
    // In the workspace's own target folder, so that what both need is compiled once.
    run(workspace
        .cargo()
        .env("SNOWMINT_COMPONENT", component)
        .args(["bench", "--locked", "--manifest-path"])
        .arg(manifest)
        .arg("--target-dir")
        .arg(&workspace.target)
        .args(args))
}
