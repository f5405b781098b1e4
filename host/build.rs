//! Finds the component, which is an artifact: the host never depends on the guest as a crate.

use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-env-changed=SNOWMINT_COMPONENT");
    let path = std::env::var_os("SNOWMINT_COMPONENT").map_or_else(built_component, PathBuf::from);
    println!("cargo::rerun-if-changed={}", path.display());
    if path.is_file() {
        println!("cargo::rustc-env=SNOWMINT_COMPONENT={}", path.display());
    } else {
        println!(
            "cargo::error=the component {} is missing: run `cargo xtask component` first, or name one in \
             SNOWMINT_COMPONENT",
            path.display()
        );
    }
}

/// Where `cargo xtask component` puts it: beside the build's own output. A build script runs in
/// `<target>/<profile>/build/<package>/out`, or one level deeper when cross-compiling.
fn built_component() -> PathBuf {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    let target = out.ancestors().find(|directory| directory.join("CACHEDIR.TAG").is_file());
    target.unwrap_or(&out).join("component").join("snowmint.wasm")
}
