//! Benchmarks: a workspace of their own, so that the peers they compare with stay out of our lock file.

use std::ffi::OsString;

use anyhow::{Result, ensure};

use crate::cargo::{Workspace, run};
use crate::component::component;

pub(crate) fn bench(workspace: &Workspace, args: &[OsString]) -> Result<()> {
    let manifest = workspace.root.join("benches").join("Cargo.toml");
    ensure!(manifest.is_file(), "there are no benchmarks: {} is missing", manifest.display());
    let component = component(workspace)?;
    // Their target folder is another one than that in which the host would look.
    run(workspace
        .cargo()
        .env("SNOWMINT_COMPONENT", component)
        .args(["bench", "--manifest-path"])
        .arg(manifest)
        .arg("--")
        .args(args))
}
