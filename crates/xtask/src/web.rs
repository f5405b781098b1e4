//! The playground: from Rust and static files to a folder that any static host serves, and a server for this machine.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use wasm_bindgen_cli_support::Bindgen;

use crate::cargo::{WASM, Workspace, ensure_target, find, output, run};
use crate::debian;
use crate::steps::Outcome;

const PACKAGE: &str = "snowmint-playground";

/// The modules that are made of it: the feature that makes each, and what it is called in the page.
const MODULES: [(&str, &str); 2] = [("read", "snowmint"), ("simulate", "simulator")];

/// Files that are loaded with a view of their own, not with the first.
const LATER: [&str; 8] = [
    "bench-worker.js",
    "bench.js",
    "layout.js",
    "service-worker.js",
    "simulate.js",
    "simulator.js",
    "simulator_bg.wasm",
    "others.js",
];

/// What a first visit may cost on its way to a browser, in bytes, compressed as static hosts do (gzip).
const FIRST_LOAD_BYTES_MAX: usize = 150 * 1024;
const MODULE_BYTES_MAX: usize = 90 * 1024;

/// Stands in the service worker's source for what it keeps.
const FILES_MARK: &str = "/* files */";
const VERSION_MARK: &str = "/* version */";

/// Where the page is served on this machine.
const ADDRESS: &str = "127.0.0.1:8930";

/// Builds the page into web/playground/dist. Returns what its size is, in words.
pub(crate) fn build(workspace: &Workspace) -> Result<String> {
    let mut files = bindings(workspace)?;
    let source = folder(workspace).join("src");
    for entry in fs::read_dir(&source).with_context(|| format!("{} cannot be read", source.display()))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).context("a file's name is no text")?;
        let bytes = fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        files.insert(name.to_owned(), bytes);
    }
    keep_offline(&mut files)?;
    check_text(&files)?;

    let size = |name: &String| files.get(name).map_or(0, |bytes| compressed(bytes));
    for module in files.keys().filter(|name| Path::new(name).extension().is_some_and(|it| it == "wasm")) {
        let size = size(module);
        ensure!(
            size <= MODULE_BYTES_MAX,
            "{module} has {size} bytes compressed; {MODULE_BYTES_MAX} is the most"
        );
    }
    let first: usize = files.keys().filter(|name| !LATER.contains(&name.as_str())).map(size).sum();
    let all: usize = files.keys().map(size).sum();
    ensure!(
        first <= FIRST_LOAD_BYTES_MAX,
        "a first visit costs {first} bytes compressed; {FIRST_LOAD_BYTES_MAX} is the most"
    );
    let dist = dist(workspace);
    if dist.is_dir() {
        fs::remove_dir_all(&dist).with_context(|| format!("{} cannot be emptied", dist.display()))?;
    }
    fs::create_dir_all(&dist)?;
    for (name, bytes) in &files {
        fs::write(dist.join(name), bytes).with_context(|| format!("{name} cannot be written"))?;
    }
    let modules: Vec<_> =
        MODULES.iter().map(|(_, name)| format!("{name} {}", size(&format!("{name}_bg.wasm")))).collect();
    Ok(format!("compressed: a first visit {first} bytes, all {all}; modules: {}", modules.join(", ")))
}

pub(crate) fn folder(workspace: &Workspace) -> PathBuf {
    workspace.root.join("web").join("playground")
}

fn dist(workspace: &Workspace) -> PathBuf {
    folder(workspace).join("dist")
}

/// The modules and their bindings, by name: what the command `wasm-bindgen` would make.
fn bindings(workspace: &Workspace) -> Result<BTreeMap<String, Vec<u8>>> {
    ensure_target(WASM)?;
    let mut files = BTreeMap::new();
    for (feature, name) in MODULES {
        run(workspace.cargo().args([
            "build",
            "--lib",
            "--package",
            PACKAGE,
            "--no-default-features",
            "--features",
            feature,
            "--profile",
            "playground",
            "--target",
            WASM,
            "--locked",
        ]))?;
        let module = workspace.target.join(WASM).join("playground").join("snowmint_playground.wasm");
        let mut output = Bindgen::new()
            .input_path(&module)
            .out_name(name)
            .web(true)?
            .typescript(false)
            .omit_default_module_path(false)
            .remove_name_section(true)
            .remove_producers_section(true)
            .generate_output()
            .with_context(|| format!("{} cannot be bound", module.display()))?;
        files.insert(format!("{name}_bg.wasm"), output.wasm_mut().emit_wasm());
        files.insert(format!("{name}.js"), output.js().as_bytes().to_vec());
    }
    Ok(files)
}

/// Writes into the service worker what it keeps, and a version that changes with any of it.
fn keep_offline(files: &mut BTreeMap<String, Vec<u8>>) -> Result<()> {
    let worker = files.remove("service-worker.js").context("the page has no service worker")?;
    let mut worker = String::from_utf8(worker).context("the service worker is no text")?;
    let names: Vec<_> = files.keys().map(|name| format!("\"{name}\"")).collect();
    for (mark, text) in
        [(FILES_MARK, names.join(", ")), (VERSION_MARK, format!("\"{:016x}\"", digest(files)))]
    {
        ensure!(worker.contains(mark), "the service worker lacks `{mark}`");
        worker = worker.replace(mark, &text);
    }
    files.insert("service-worker.js".into(), worker.into_bytes());
    Ok(())
}

/// FNV-1a over names and bytes: tells versions apart, proves nothing.
fn digest(files: &BTreeMap<String, Vec<u8>>) -> u64 {
    let bytes = files.iter().flat_map(|(name, bytes)| name.bytes().chain([0]).chain(bytes.iter().copied()));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Nothing that the page loads lies elsewhere.
fn check_text(files: &BTreeMap<String, Vec<u8>>) -> Result<()> {
    let page = files.get("index.html").context("the page has no index.html")?;
    policy(page).context("index.html has no content security policy")?;
    for (name, bytes) in files {
        let text = String::from_utf8_lossy(bytes);
        for loads in ["src=\"http", "src=\"//", "url(http", "from \"http", "import(\"http", "fetch(\"http"] {
            ensure!(!text.contains(loads), "{name} loads something from elsewhere: `{loads}`");
        }
    }
    Ok(())
}

fn compressed(bytes: &[u8]) -> usize {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    // Into memory: it cannot fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().map_or(usize::MAX, |bytes| bytes.len())
}

/// The content security policy of a page, as its own element says it.
fn policy(page: &[u8]) -> Option<String> {
    let page = std::str::from_utf8(page).ok()?;
    let (_, after) = page.split_once("http-equiv=\"Content-Security-Policy\"")?;
    let (_, after) = after.split_once("content=\"")?;
    let (policy, _) = after.split_once('"')?;
    Some(policy.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Serves the built page on this machine until it is stopped. Only this machine can reach it.
pub(crate) fn serve(workspace: &Workspace) -> Result<()> {
    let listener = TcpListener::bind(ADDRESS)
        .with_context(|| format!("{ADDRESS} cannot be listened on: is the page served already?"))?;
    let folder = dist(workspace);
    let page = fs::read(folder.join("index.html"))?;
    let policy = policy(&page).context("index.html has no content security policy")?;
    eprintln!("http://{ADDRESS}/ (Ctrl-C ends it)");
    for stream in listener.incoming() {
        let Ok(stream) = stream else { continue };
        let (folder, policy) = (folder.clone(), policy.clone());
        thread::spawn(move || {
            // Whoever went away needs no answer.
            let _ = answer(stream, &folder, &policy);
        });
    }
    Ok(())
}

/// How long a client may take, and how much it may say.
const PATIENCE: Duration = Duration::from_secs(10);
const REQUEST_BYTES_MAX: u64 = 16 * 1024;

fn answer(mut stream: TcpStream, folder: &Path, policy: &str) -> Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream.try_clone()?.take(REQUEST_BYTES_MAX));
    let mut request = String::new();
    reader.read_line(&mut request)?;
    // The rest of the request is read, so that the connection ends in order.
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    let file = wanted(&request).and_then(|name| Some((kind(&name)?, fs::read(folder.join(name)).ok()?)));
    let (status, kind, body) = match file {
        Some((kind, body)) => ("200 OK", kind, body),
        None => ("404 Not Found", "text/plain; charset=utf-8", b"there is no such file\n".to_vec()),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nCache-Control: no-cache\r\n\
         Content-Security-Policy: {policy}; frame-ancestors 'none'\r\nX-Content-Type-Options: nosniff\r\n\
         Referrer-Policy: no-referrer\r\nConnection: close\r\n\r\n",
        body.len()
    )?;
    if !request.starts_with("HEAD ") {
        stream.write_all(&body)?;
    }
    Ok(())
}

/// The file that a request asks for, which lies in the folder itself.
fn wanted(request: &str) -> Option<PathBuf> {
    let mut words = request.split_whitespace();
    let method = words.next()?;
    let target = words.next()?;
    let path = target.split(['?', '#']).next()?.strip_prefix('/')?;
    let name = Path::new(if path.is_empty() { "index.html" } else { path });
    let is_plain = name.components().all(|part| matches!(part, Component::Normal(_)));
    (matches!(method, "GET" | "HEAD") && is_plain).then(|| name.to_owned())
}

/// What kind of file it is, for those kinds that a page has.
fn kind(name: &Path) -> Option<&'static str> {
    Some(match name.extension()?.to_str()? {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "wasm" => "application/wasm",
        "svg" => "image/svg+xml",
        "webmanifest" => "application/manifest+json",
        _ => return None,
    })
}

/// Builds the page, says how large it is, and serves it where that is asked for.
pub(crate) fn web(workspace: &Workspace, is_served: bool) -> Result<()> {
    let size = build(workspace)?;
    eprintln!("web/playground/dist: {size}");
    if is_served {
        serve(workspace)?;
        bail!("the server ended");
    }
    Ok(())
}

/// The page in a browser, where there is one: links, keys, faults, accessibility, no network.
pub(crate) fn test(workspace: &Workspace) -> Result<Outcome> {
    let missing = debian::ensure(debian::PAGE_NEEDS)?;
    if !missing.is_empty() {
        return Ok(Outcome::Skipped(debian::advice(&missing)));
    }
    let version = output(Command::new("node").arg("--version"))?;
    if major(&version).is_none_or(|major| major < NODE_MIN) {
        let version = version.trim();
        return Ok(Outcome::Skipped(format!(
            "the page in a browser needs node {NODE_MIN} or later, and this is {version}: Debian has it from 13 on"
        )));
    }
    let folder = workspace.root.join("web").join("tests");
    let npm = ["ci", "--no-audit", "--no-fund", "--ignore-scripts"];
    run(Command::new("npm").args(npm).current_dir(&folder))
        .context("the tests' own packages (web/tests/package-lock.json) could not be had")?;
    let chromium = find("chromium").context("chromium was installed, and is not found")?;
    run(Command::new("node")
        .args(["--test", "--test-reporter=spec", "playground.test.js"])
        .current_dir(&folder)
        .env("SNOWMINT_CHROMIUM", chromium))?;
    Ok(Outcome::Done)
}

/// What drives the browser asks for it.
const NODE_MIN: u32 = 20;

/// The first number of `v20.20.2`.
fn major(version: &str) -> Option<u32> {
    version.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_folder_are_served() {
        let check = |request: &str, expected: Option<&str>| {
            assert_eq!(wanted(request).as_deref(), expected.map(Path::new), "{request}");
        };
        check("GET / HTTP/1.1", Some("index.html"));
        check("GET /app.js?x HTTP/1.1", Some("app.js"));
        check("HEAD /style.css HTTP/1.1", Some("style.css"));
        check("POST / HTTP/1.1", None);
        check("GET /../Cargo.toml HTTP/1.1", None);
        check("GET //etc/passwd HTTP/1.1", None);
        check("GET http://elsewhere/ HTTP/1.1", None);
        check("", None);
        assert_eq!(kind(Path::new("a.wasm")), Some("application/wasm"));
        assert_eq!(kind(Path::new("passwd")), None);
    }

    #[test]
    fn versions_of_node() {
        assert_eq!(major("v20.20.2\n"), Some(20));
        assert_eq!(major("twenty"), None);
    }

    #[test]
    fn the_policy_is_that_of_the_page() {
        let page = b"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none';\n  img-src 'self'\">";
        assert_eq!(policy(page).as_deref(), Some("default-src 'none'; img-src 'self'"));
        assert_eq!(policy(b"<html></html>"), None);
    }

    #[test]
    fn a_version_changes_with_every_byte() {
        let files = |text: &str| BTreeMap::from([("a.js".to_owned(), text.as_bytes().to_vec())]);
        assert_eq!(digest(&files("x")), digest(&files("x")));
        assert_ne!(digest(&files("x")), digest(&files("y")));
        let mut all = files("x");
        all.insert("service-worker.js".into(), b"const v = /* version */; const f = [/* files */];".to_vec());
        keep_offline(&mut all).unwrap();
        let worker = String::from_utf8(all["service-worker.js"].clone()).unwrap();
        assert!(worker.ends_with("[\"a.js\"];"), "{worker}");
    }
}
