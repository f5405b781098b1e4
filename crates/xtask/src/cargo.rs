//! Running cargo and other programs, and what cargo knows of the workspace.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

/// The guest: builds for [`WASM`] only, so commands for the whole workspace leave it out.
pub(crate) const COMPONENT: &str = "snowmint-component";
/// What the guest is built for.
pub(crate) const WASM: &str = "wasm32-unknown-unknown";
/// A target without an operating system, which core must build for.
pub(crate) const BARE: &str = "thumbv7em-none-eabi";

/// The workspace, as `cargo metadata` tells it.
#[derive(Deserialize)]
pub(crate) struct Workspace {
    #[serde(rename = "workspace_root")]
    pub(crate) root: PathBuf,
    /// Follows `CARGO_TARGET_DIR` and cargo's configuration.
    #[serde(rename = "target_directory")]
    pub(crate) target: PathBuf,
    /// The workspace's own packages, no others.
    pub(crate) packages: Vec<Package>,
}

/// One package of the workspace.
#[derive(Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) manifest_path: PathBuf,
    #[serde(default)]
    pub(crate) dependencies: Vec<Dependency>,
    #[serde(default)]
    pub(crate) features: BTreeMap<String, Vec<String>>,
}

/// What a package says that it needs.
#[derive(Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// None for a normal dependency, else `build` or `dev`.
    pub(crate) kind: Option<String>,
    pub(crate) rename: Option<String>,
    pub(crate) optional: bool,
}

impl Workspace {
    /// Asks cargo about the workspace around the current folder.
    pub(crate) fn load() -> Result<Self> {
        let json = output(cargo().args(["metadata", "--no-deps", "--format-version", "1"]))?;
        serde_json::from_str(&json)
            .context("cargo metadata answered in a form that this version does not know")
    }

    pub(crate) fn package(&self, name: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.name == name)
    }

    /// Where the built component lies.
    pub(crate) fn component(&self) -> PathBuf {
        self.target.join("component").join("snowmint.wasm")
    }

    /// Cargo, run at the root.
    pub(crate) fn cargo(&self) -> Command {
        let mut command = cargo();
        command.current_dir(&self.root);
        command
    }

    /// Everything but the guest, for commands that build for this machine. With all features, which add and never
    /// alter: what is behind one is tested, linted and documented too.
    pub(crate) fn natively() -> [&'static str; 4] {
        ["--workspace", "--all-features", "--exclude", COMPONENT]
    }
}

impl Package {
    pub(crate) fn folder(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(Path::new("."))
    }
}

/// Adds a compilation target to the toolchain where it is missing.
pub(crate) fn ensure_target(target: &str) -> Result<()> {
    let library = output(Command::new("rustc").args(["--print", "target-libdir", "--target", target]))?;
    if Path::new(library.trim()).is_dir() {
        return Ok(());
    }
    ensure!(
        find("rustup").is_some(),
        "this Rust toolchain has no standard library for {target}, and rustup is not here to add it: install \
         rustup, or use any toolchain that has that target"
    );
    run(Command::new("rustup").args(["target", "add", target])).with_context(|| {
        format!("could not add {target} to the toolchain: any toolchain that has that target works")
    })
}

/// Runs a program in view of the user; anything but success is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    eprintln!("$ {}", shown(command));
    let status = command.status().with_context(|| not_started(command))?;
    ensure!(status.success(), "`{}` ended with {status}", shown(command));
    Ok(())
}

/// Runs a program and takes its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| not_started(command))?;
    if !output.status.success() {
        bail!("`{}` ended with {}", shown(command), output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{}` printed no text", shown(command)))
}

/// Where a program is, looked up as a shell would.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// Cargo as it would run from a shell: what `cargo run` tells this program about itself would make build scripts
/// that look at it run again, here and then in the next shell.
fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_")
            || name.starts_with("CARGO_MANIFEST_")
            || ["CARGO_BIN_NAME", "CARGO_CRATE_NAME", "CARGO_PRIMARY_PACKAGE"].contains(&&*name)
        {
            command.env_remove(&*name);
        }
    }
    command
}

fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words: Vec<_> =
        std::iter::once(program).chain(command.get_args()).map(OsStr::to_string_lossy).collect();
    words.join(" ")
}

fn not_started(command: &Command) -> String {
    format!("`{}` could not be started: is it installed?", shown(command))
}
