//! What is shipped: the command as one static binary, and an image that holds nothing else.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::cargo::{Workspace, ensure_target, output, run};
use crate::component::component;
use crate::debian::{self, BUILDAH, MUSL_GCC, Need, PROTOC, READELF};

/// What the image is called.
const IMAGE: &str = "snowmint";

/// Builds the command for this machine's architecture, linked statically with musl. Returns where it lies:
/// `target/dist/snowmint`.
pub(crate) fn dist(workspace: &Workspace) -> Result<PathBuf> {
    have(&[PROTOC, MUSL_GCC, READELF])?;
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    ensure_target(&target)?;
    component(workspace)?;
    // The C and assembly of wasmtime's and ring's crates, which the cc crate compiles.
    let cc = format!("CC_{}", target.replace('-', "_"));
    let mut build = workspace.cargo();
    build.env(cc, "musl-gcc").env("CARGO_PROFILE_RELEASE_STRIP", "symbols");
    // The host looks for it beside what it is built into, which for another target is a folder of that target's.
    build.env("SNOWMINT_COMPONENT", workspace.component());
    run(build.args(["build", "--release", "--locked", "--package", "snowmint", "--target", &target]))?;

    let made = workspace.target.join(&target).join("release").join("snowmint");
    let headers = output(Command::new("readelf").args(["--wide", "--program-headers"]).arg(&made))?;
    ensure!(is_static(&headers), "{} asks for a loader, so it is not static", made.display());
    let shipped = folder(workspace)?.join("snowmint");
    fs::copy(&made, &shipped).with_context(|| format!("could not write {}", shipped.display()))?;
    let version = output(Command::new(&shipped).arg("--version"))?;
    eprintln!(
        "{}: {}, {} bytes, static",
        shown(workspace, &shipped),
        version.trim(),
        fs::metadata(&shipped)?.len()
    );
    Ok(shipped)
}

/// Builds the image of `deploy/container/Dockerfile`, runs it, and writes it to `target/dist/snowmint.oci.tar`.
pub(crate) fn image(workspace: &Workspace) -> Result<()> {
    have(&[BUILDAH])?;
    let binary = dist(workspace)?;
    let dist = folder(workspace)?;
    let context = dist.join("image");
    fs::create_dir_all(&context)?;
    fs::copy(&binary, context.join("snowmint"))?;

    // Images of its own, in the target folder; and neither a user namespace nor an overlay, which a builder that is
    // itself in a container seldom has.
    let buildah = |verb: &[&str]| {
        let mut buildah = Command::new("buildah");
        buildah.current_dir(&dist).arg("--storage-driver").arg("vfs");
        buildah
            .arg("--root")
            .arg(dist.join("storage"))
            .arg("--runroot")
            .arg(dist.join("storage-run"))
            .args(verb);
        buildah
    };
    let dockerfile = workspace.root.join("deploy").join("container").join("Dockerfile");
    let mut build = buildah(&["build", "--isolation", "chroot", "--tag", IMAGE, "--file"]);
    run(build.arg(dockerfile).arg(&context))?;

    let container = output(&mut buildah(&["from", "--pull-never", IMAGE]))?;
    let container = container.trim();
    let told =
        output(&mut buildah(&["run", "--isolation", "chroot", container, "--", "/snowmint", "--version"]));
    run(&mut buildah(&["rm", container]))?;
    let told = told.context("the image was built, and does not run")?;
    ensure!(told.starts_with("snowmint "), "the image was built, and says `{}`", told.trim());

    let archive = dist.join("snowmint.oci.tar");
    // Another image is not written over.
    if archive.is_file() {
        fs::remove_file(&archive)?;
    }
    run(buildah(&["push", IMAGE]).arg(format!("oci-archive:{}", archive.display())))?;
    eprintln!("{}: {}, {} bytes", shown(workspace, &archive), told.trim(), fs::metadata(&archive)?.len());
    Ok(())
}

fn have(needs: &'static [Need]) -> Result<()> {
    let missing = debian::ensure(needs)?;
    if missing.is_empty() { Ok(()) } else { bail!("{}", debian::advice(&missing)) }
}

fn folder(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.target.join("dist");
    fs::create_dir_all(&folder).with_context(|| format!("could not make {}", folder.display()))?;
    Ok(folder)
}

fn shown(workspace: &Workspace, path: &Path) -> String {
    path.strip_prefix(&workspace.root).unwrap_or(path).display().to_string()
}

/// Whether a program with these headers, as readelf writes them, runs without a loader and its libraries.
fn is_static(headers: &str) -> bool {
    headers.contains("LOAD") && !headers.contains("INTERP")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_asks_for_a_loader_is_not_static() {
        assert!(is_static("  LOAD  0x0\n  DYNAMIC 0x1\n"));
        assert!(!is_static("  INTERP 0x0\n  LOAD 0x0\n"));
        assert!(!is_static(""), "readelf told nothing");
    }
}
