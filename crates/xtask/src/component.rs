//! The guest, from Rust to a component that a host can load.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use wasm_encoder::{ComponentSection, ComponentSectionId, RawSection};
use wasmparser::{Encoding, Parser, Payload, Validator, WasmFeatures};
use wit_component::ComponentEncoder;

use crate::cargo::{COMPONENT, WASM, Workspace, ensure_target, run};

/// All that the component may ask of a host, and must.
const IMPORTS: &[&str] =
    &["snowmint:id/clock@0.1.0", "snowmint:id/high-water-mark@0.1.0", "snowmint:id/lease@0.1.0"];
/// All that it offers.
const EXPORTS: &[&str] = &["snowmint:id/codec@0.1.0", "snowmint:id/generator@0.1.0"];
const BYTES_MAX: usize = 32 * 1024;

/// Builds the component and writes it to where the host's build looks for it. Returns its size in bytes.
pub(crate) fn component(workspace: &Workspace) -> Result<usize> {
    let module = module(workspace)?;
    let component = strip(&encode(&module)?)?;
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
    Ok(component.len())
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

/// The component without custom sections (names, producers), at any depth: no host reads them, and every instance that
/// is sent somewhere carries them.
fn strip(component: &[u8]) -> Result<Vec<u8>> {
    /// What is written of a component or module that is not yet at its end.
    struct Open {
        section: u8,
        bytes: Vec<u8>,
    }
    let mut open: Vec<Open> = Vec::new();
    // The outermost is no section of anything.
    let mut section = 0;
    for payload in Parser::new(0).parse_all(component) {
        let payload = payload?;
        match &payload {
            Payload::ModuleSection { .. } => section = ComponentSectionId::CoreModule as u8,
            Payload::ComponentSection { .. } => section = ComponentSectionId::Component as u8,
            Payload::Version { range, .. } => {
                let header = component.get(range.clone()).context("a header lies outside its component")?;
                open.push(Open { section, bytes: header.to_vec() });
            }
            Payload::End(_) => {
                let done = open.pop().context("a component has more ends than beginnings")?;
                let Some(outer) = open.last_mut() else { return Ok(done.bytes) };
                RawSection { id: done.section, data: &done.bytes }.append_to_component(&mut outer.bytes);
            }
            Payload::CustomSection(_) => {}
            _ => {
                // What has no section of its own, such as each function's body, lies within one that was copied.
                if let Some((id, range)) = payload.as_section() {
                    let data = component.get(range).context("a section lies outside its component")?;
                    let inner = open.last_mut().context("a section stands before any header")?;
                    RawSection { id, data }.append_to_component(&mut inner.bytes);
                }
            }
        }
    }
    bail!("the component has no end")
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

    /// Custom sections go, at any depth; all else stays as it was.
    #[test]
    fn custom_sections_are_stripped() {
        let text = |custom: &str| {
            format!(
                "(component (core module (memory 1) (func (result i32) i32.const 7) {custom}) \
                 (component (core module {custom})) (import \"a:b/c@1.0.0\" (instance)))"
            )
        };
        let bare = wat::parse_str(text("")).unwrap();
        let full = wat::parse_str(text("(@custom \"producers\" \"somebody\")")).unwrap();
        assert!(full.len() > bare.len());
        assert_eq!(strip(&full).unwrap(), bare);
        assert!(strip(b"\0asm").is_err());
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
    fn a_path_of_this_machine_is_refused() {
        let folders = [PathBuf::from("/somewhere/snowmint")];
        assert!(check_is_of_no_machine(b"..core/src/generator.rs..", &folders).is_ok());
        assert!(check_is_of_no_machine(b"../somewhere/snowmint/crates..", &folders).is_err());
    }
}
