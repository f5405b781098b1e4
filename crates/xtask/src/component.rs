//! The guest, from Rust to a component that a host can load.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use wasmparser::{Encoding, Parser, Payload, Validator, WasmFeatures};
use wit_component::ComponentEncoder;

use crate::cargo::{COMPONENT, WASM, Workspace, ensure_target, run};

/// All that the component may ask of a host, and must.
const IMPORTS: &[&str] =
    &["snowmint:id/clock@0.1.0", "snowmint:id/high-water-mark@0.1.0", "snowmint:id/lease@0.1.0"];
/// All that it offers.
const EXPORTS: &[&str] = &["snowmint:id/generator@0.1.0"];
const BYTES_MAX: usize = 32 * 1024;

/// What [`component`] built.
pub(crate) struct Built {
    pub(crate) path: PathBuf,
    pub(crate) bytes: usize,
}

/// Builds the component and writes it to where the host's build looks for it.
pub(crate) fn component(workspace: &Workspace) -> Result<Built> {
    let module = module(workspace)?;
    let component = without_custom_sections(&encode(&module)?)?;
    Validator::new_with_features(WasmFeatures::default())
        .validate_all(&component)
        .context("the encoded component is not valid")?;
    face(&component)?.check()?;
    check_size(component.len())?;
    check_is_of_no_machine(&component, &machine(workspace))?;

    let path = workspace.component();
    // Bytes that did not change are left alone: the host would be built anew for nothing.
    let is_new = fs::read(&path).ok().as_ref() != Some(&component);
    if is_new {
        path.parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::write(&path, &component))
            .with_context(|| format!("could not write {}", path.display()))?;
    }
    let shown = path.strip_prefix(&workspace.root).unwrap_or(&path).display();
    let state = if is_new { "written" } else { "unchanged" };
    eprintln!("{shown}: {} of at most {BYTES_MAX} bytes, {state}", component.len());
    Ok(Built { path, bytes: component.len() })
}

/// The guest's core module.
fn module(workspace: &Workspace) -> Result<Vec<u8>> {
    ensure_target(WASM)?;
    run(workspace.cargo().args([
        "build",
        "--package",
        COMPONENT,
        "--profile",
        "component",
        "--target",
        WASM,
        "--locked",
    ]))?;
    let path = workspace.target.join(WASM).join("component").join("snowmint_component.wasm");
    fs::read(&path).with_context(|| format!("the guest was built, but {} cannot be read", path.display()))
}

fn encode(module: &[u8]) -> Result<Vec<u8>> {
    ComponentEncoder::default()
        .module(module)
        .and_then(|encoder| encoder.validate(true).encode())
        .context("the guest's module is no component: does it export what world `snowmint` asks for?")
}

/// Leaves out the outermost names and the list of tools: no host reads them.
fn without_custom_sections(component: &[u8]) -> Result<Vec<u8>> {
    const PREAMBLE: usize = 8;
    const CUSTOM: u8 = 0;
    let mut kept = component.get(..PREAMBLE).context("the component is cut off")?.to_vec();
    let (mut depth, mut end) = (0_u32, PREAMBLE);
    for payload in Parser::new(0).parse_all(component) {
        let payload = payload?;
        match payload {
            Payload::Version { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            _ if depth == 1 => {
                if let Some((id, content)) = payload.as_section() {
                    // From the end of the section before, so that this one's own header comes along.
                    if id != CUSTOM {
                        kept.extend_from_slice(
                            component.get(end..content.end).context("overlapping sections")?,
                        );
                    }
                    end = content.end;
                }
            }
            _ => {}
        }
    }
    Ok(kept)
}

/// What a component asks for and offers, by name, in order.
#[derive(Debug, PartialEq, Eq)]
struct Face {
    imports: Vec<String>,
    exports: Vec<String>,
}

impl Face {
    fn check(&self) -> Result<()> {
        for (verb, found, wanted) in [("import", &self.imports, IMPORTS), ("export", &self.exports, EXPORTS)]
        {
            let missing: Vec<_> = wanted.iter().filter(|name| !found.iter().any(|it| it == *name)).collect();
            let surplus: Vec<_> = found.iter().filter(|name| !wanted.contains(&name.as_str())).collect();
            ensure!(
                missing.is_empty() && surplus.is_empty(),
                "the component must {verb} {wanted:?} and nothing else: missing {missing:?}, surplus {surplus:?}"
            );
        }
        Ok(())
    }
}

/// Reads the outermost component's imports and exports; what lies nested within it is its own affair.
fn face(component: &[u8]) -> Result<Face> {
    let mut face = Face { imports: Vec::new(), exports: Vec::new() };
    let mut depth = 0_u32;
    for payload in Parser::new(0).parse_all(component) {
        match payload? {
            Payload::Version { encoding, .. } => {
                depth += 1;
                ensure!(depth > 1 || encoding == Encoding::Component, "a core module, not a component");
            }
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(imports) if depth == 1 => {
                for import in imports {
                    face.imports.push(import?.name.name.to_owned());
                }
            }
            Payload::ComponentExportSection(exports) if depth == 1 => {
                for export in exports {
                    face.exports.push(export?.name.name.to_owned());
                }
            }
            _ => {}
        }
    }
    face.imports.sort();
    face.exports.sort();
    Ok(face)
}

fn check_size(bytes: usize) -> Result<()> {
    ensure!(bytes <= BYTES_MAX, "the component has {bytes} bytes, {} too many", bytes - BYTES_MAX);
    Ok(())
}

/// Folders of this machine, which would make the same source another component elsewhere.
fn machine(workspace: &Workspace) -> Vec<PathBuf> {
    let home = std::env::home_dir().filter(|home| home != Path::new("/") && !home.as_os_str().is_empty());
    home.into_iter().chain([workspace.root.clone()]).collect()
}

fn check_is_of_no_machine(component: &[u8], folders: &[PathBuf]) -> Result<()> {
    for folder in folders {
        let folder = folder.as_os_str().as_encoded_bytes();
        ensure!(
            !component.windows(folder.len()).any(|window| window == folder),
            "the component holds the path {}: what panics in the guest carries its place in the source",
            String::from_utf8_lossy(folder)
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    /// A component that imports and exports empty instances of these names, with a nested one that does so too.
    fn with(imports: &[&str], exports: &[&str]) -> Vec<u8> {
        let mut text = String::from(
            "(component (component (import \"nested:its/own@1.0.0\" (instance))) (instance $it)",
        );
        for name in imports {
            write!(text, " (import {name:?} (instance))").unwrap();
        }
        for name in exports {
            write!(text, " (export {name:?} (instance $it))").unwrap();
        }
        text.push(')');
        wat::parse_str(text).expect("well-formed text")
    }

    #[test]
    fn just_the_wanted_face_passes() {
        check_is_fine(IMPORTS, EXPORTS);
        let mut turned = IMPORTS.to_vec();
        turned.reverse();
        check_is_fine(&turned, EXPORTS);
    }

    fn check_is_fine(imports: &[&str], exports: &[&str]) {
        face(&with(imports, exports)).unwrap().check().unwrap();
    }

    #[test]
    fn a_face_with_more_less_or_another_version_is_refused() {
        fn check(imports: &[&str], exports: &[&str], told: &str) {
            let error = face(&with(imports, exports)).unwrap().check().unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
        let wasi = [IMPORTS, &["wasi:clocks/wall-clock@0.2.0"]].concat();
        let codec = [EXPORTS, &["snowmint:id/other@0.1.0"]].concat();
        let newer = ["snowmint:id/clock@0.2.0", IMPORTS[1], IMPORTS[2]];
        check(&wasi, EXPORTS, "missing [], surplus [\"wasi:clocks/wall-clock@0.2.0\"]");
        check(&IMPORTS[1..], EXPORTS, "missing [\"snowmint:id/clock@0.1.0\"], surplus []");
        check(
            &newer,
            EXPORTS,
            "missing [\"snowmint:id/clock@0.1.0\"], surplus [\"snowmint:id/clock@0.2.0\"]",
        );
        check(IMPORTS, &[], "must export");
        check(IMPORTS, &codec, "surplus [\"snowmint:id/other@0.1.0\"]");
    }

    #[test]
    fn what_is_no_component_is_refused() {
        let module = wat::parse_str("(module)").unwrap();
        assert!(face(&module).is_err());
        assert!(face(b"text").is_err());
        // A component asks for a whole world, which a plain module does not describe.
        assert!(encode(b"text").is_err());
    }

    #[test]
    fn a_component_a_byte_too_large_is_refused() {
        assert!(check_size(BYTES_MAX).is_ok());
        assert!(check_size(BYTES_MAX + 1).is_err());
    }
    #[test]
    fn names_and_tools_are_left_out_and_nothing_else() {
        let custom = "(@custom \"component-name\" \"x\")";
        let full = wat::parse_str(format!(
            "(component {custom} (core module (@custom \"kept\" \"y\") (func)) (import \"a:b/c@1.0.0\" (instance)) \
             {custom})"
        ))
        .unwrap();
        let bare = without_custom_sections(&full).unwrap();
        let wanted = wat::parse_str(
            "(component (core module (@custom \"kept\" \"y\") (func)) (import \"a:b/c@1.0.0\" (instance)))",
        )
        .unwrap();
        assert_eq!(bare, wanted);
        assert!(full.len() > bare.len());
        assert!(without_custom_sections(b"\0asm").is_err());
    }

    #[test]
    fn a_path_of_this_machine_is_refused() {
        let folders = [PathBuf::from("/somewhere/snowmint")];
        assert!(check_is_of_no_machine(b"..core/src/generator.rs..", &folders).is_ok());
        assert!(check_is_of_no_machine(b"../somewhere/snowmint/crates..", &folders).is_err());
    }
}
