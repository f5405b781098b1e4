//! What must hold beside the tests.

mod absences;
mod arrows;
mod deny;
mod deployed;

use anyhow::{Result, ensure};

use crate::cargo::{COMPONENT, WASM, Workspace, ensure_target, run};
use crate::component::component;
use crate::debian;
use crate::steps::{Outcome, Steps};

/// Crates that are checked with no feature, with each alone, and with all.
///
/// The loop is ours, not cargo-hack's: cargo tells the features, so there is nothing to install.
const EACH_FEATURE: &[&str] = &["snowmint-core", "snowmint-lease"];

/// What a test's helpers may do beside tests themselves, which clippy.toml speaks of: they fail by panicking.
const ALLOWED_IN_TESTS: &[&str] = &[
    "clippy::expect_used",
    "clippy::indexing_slicing",
    "clippy::panic",
    "clippy::too_many_lines",
    "clippy::unwrap_used",
    "missing_docs",
    "unreachable_pub",
];

pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let mut steps = Steps::new("check");
    steps.step("formatting", || formatting(workspace));
    steps.step("arrows between crates", || arrows::check(&workspace.packages).map(|()| Outcome::Done));
    steps.step("what must be absent", || absences::check(workspace).map(|()| Outcome::Done));
    deployed::check(workspace, &mut steps);
    steps.step("programs for the build", || {
        let missing = debian::ensure(debian::BUILD_NEEDS)?;
        ensure!(missing.is_empty(), "{}", debian::advice(&missing));
        Ok(Outcome::Done)
    });
    steps.step("each feature alone", || each_feature(workspace));
    // The host carries the component within it: without one, there is no telling what else is wrong with the host.
    if steps.step("component", || Ok(Outcome::Note(format!("{} bytes", component(workspace)?)))) {
        lints(workspace, &mut steps);
        steps.step("documentation", || documentation(workspace));
    }
    deny::check(workspace, &mut steps);
    steps.finish()
}

fn formatting(workspace: &Workspace) -> Result<Outcome> {
    run(workspace.cargo().args(["fmt", "--all", "--check"]))?;
    if let Some(manifest) = benches(workspace) {
        run(workspace.cargo().args(["fmt", "--all", "--check", "--manifest-path"]).arg(manifest))?;
    }
    Ok(Outcome::Done)
}

fn each_feature(workspace: &Workspace) -> Result<Outcome> {
    for name in EACH_FEATURE {
        let features = workspace.package(name).map(|package| package.features.keys()).into_iter().flatten();
        let each =
            features.filter(|feature| *feature != "default").map(|feature| vec!["--features", feature]);
        for combination in [vec![]].into_iter().chain(each).chain([vec!["--all-features"]]) {
            let mut clippy = workspace.cargo();
            clippy.args([
                "clippy",
                "--quiet",
                "--locked",
                "--package",
                name,
                "--lib",
                "--no-default-features",
            ]);
            run(clippy.args(combination).args(["--", "-D", "warnings"]))?;
        }
    }
    Ok(Outcome::Done)
}

fn lints(workspace: &Workspace, steps: &mut Steps) {
    const DENY: [&str; 3] = ["--", "-D", "warnings"];
    let in_tests = || ALLOWED_IN_TESTS.iter().flat_map(|lint| ["-A", lint]);
    let clippy = || {
        let mut command = workspace.cargo();
        command.args(["clippy", "--locked", "--keep-going"]);
        command
    };
    steps.step("lints of what ships", || {
        run(clippy().args(Workspace::natively()).args(["--lib", "--bins"]).args(DENY)).map(|()| Outcome::Done)
    });
    steps.step("lints of the guest", || {
        ensure_target(WASM)?;
        run(clippy().args(["--package", COMPONENT, "--target", WASM]).args(DENY)).map(|()| Outcome::Done)
    });
    steps.step("lints of tests", || {
        run(clippy().args(Workspace::natively()).arg("--all-targets").args(DENY).args(in_tests()))?;
        Ok(Outcome::Done)
    });
    if let Some(manifest) = benches(workspace) {
        steps.step("lints of benchmarks", || {
            // In the workspace's own target folder, where the host finds the component.
            let mut clippy = clippy();
            clippy.arg("--manifest-path").arg(manifest).arg("--target-dir").arg(&workspace.target);
            run(clippy.arg("--all-targets").args(DENY).args(in_tests())).map(|()| Outcome::Done)
        });
    }
}

fn documentation(workspace: &Workspace) -> Result<Outcome> {
    let doc = || {
        let mut command = workspace.cargo();
        command.env("RUSTDOCFLAGS", "-D warnings").args(["doc", "--no-deps", "--locked"]);
        command
    };
    run(doc().args(Workspace::natively()))?;
    run(doc().args(["--package", COMPONENT, "--target", WASM]))?;
    Ok(Outcome::Done)
}

/// The benchmarks' manifest, if this tree has benchmarks.
fn benches(workspace: &Workspace) -> Option<std::path::PathBuf> {
    let manifest = workspace.root.join("benches").join("Cargo.toml");
    manifest.is_file().then_some(manifest)
}
