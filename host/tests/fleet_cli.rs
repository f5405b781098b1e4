//! The command with a region's store in etcd, of three real members: what it does, and what it says where it cannot.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // It is all test.

#[path = "../../crates/lease-etcd/tests/common/mod.rs"]
mod common;

use std::collections::HashSet;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{Cluster, PATIENCE, copy_dir};
use etcd_client::Permission;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::Value;
use snowmint::{Clock, SystemClock};
use snowmint_core::{Id, Layout};
use tempfile::TempDir;

/// Layouts with 16 or 32 IDs a millisecond, so that what a mint writes that goes on in the background stays small.
const SLOW: &str = "reserved:1 timestamp:41 region:10 worker:8 sequence:4";
const TWO_CODES: &str = "reserved:1 timestamp:41 region:17 worker:1 sequence:4";
const ONE_CODE: &str = "reserved:1 timestamp:41 region:17 sequence:5";

/// A place for a store of its own in an etcd, and the command as somebody would run it there.
struct Place {
    dir: TempDir,
    prefix: String,
    layout: Layout,
    /// Flags and their values, each given unless a command line has it itself.
    flags: Vec<(&'static str, String)>,
}

impl Place {
    fn new(etcd: &Cluster) -> Self {
        let prefix = etcd.config(1).prefix;
        let flags = vec![
            ("--store", format!("etcd:{}", etcd.urls().join(","))),
            ("--region", String::from("1")),
            ("--etcd-prefix", prefix.clone()),
        ];
        Self { dir: tempfile::tempdir().unwrap(), prefix, layout: Layout::SNOWMINT, flags }
    }

    /// A place for a store of this layout.
    fn of_layout(etcd: &Cluster, fields: &str) -> Self {
        let epoch_ms = Layout::SNOWMINT.epoch_unix_ms();
        let layout = format!("{fields} epoch-ms:{epoch_ms} tick-ns:1000000").parse().unwrap();
        let mut place = Self { layout, ..Self::new(etcd) };
        let fields: Vec<_> = fields
            .split(' ')
            .map(|field| field.split_once(':').unwrap())
            .map(|(role, bits)| format!("{{role='{role}',bits={bits}}}"))
            .collect();
        let text = format!("epoch_unix_ms = {epoch_ms}\nfields = [{}]", fields.join(","));
        let file = place.file("layout.toml", &text).to_str().unwrap().to_owned();
        place.flags.push(("--layout", file));
        place
    }

    /// The same place, reached otherwise.
    fn with(&self, flags: &[(&'static str, String)]) -> Self {
        let mut all: Vec<_> = self.flags.clone();
        all.retain(|(name, _)| !flags.iter().any(|(other, _)| other == name));
        all.extend_from_slice(flags);
        let dir = tempfile::tempdir().unwrap();
        Self { dir, prefix: self.prefix.clone(), layout: self.layout, flags: all }
    }

    fn key(&self, name: &str) -> String {
        format!("{}/1/{name}", self.prefix)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_snowmint"));
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SNOWMINT_"))
        {
            command.env_remove(name);
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        command.args(&words);
        for (name, value) in self.flags.iter().filter(|(name, _)| !words.contains(name)) {
            command.args([*name, value]);
        }
        if words[0] == "mint" && !words.contains(&"--clock") {
            command.args(["--clock", "assume:1"]);
        }
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
        command
            .env("HOME", self.dir.path())
            .env("XDG_DATA_HOME", self.dir.path())
            .env("XDG_CACHE_HOME", cache)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// A command that must do what it was asked; what it printed.
    #[track_caller]
    fn passes(&self, line: &str) -> String {
        let output = self.command(line).output().unwrap();
        assert!(output.status.success(), "{line}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn mint(&self, line: &str) -> Vec<Id> {
        ids(self.passes(line).as_bytes())
    }

    /// A command that must be refused so, with each of these words, and without an ID.
    #[track_caller]
    fn check(&self, line: &str, code: i32, told: &[&str]) -> String {
        let started = Instant::now();
        let output = self.command(line).output().unwrap();
        let text = stderr(&output);
        println!("{line}\n  {code}, {:?}: {}", started.elapsed(), text.trim_end());
        assert_eq!(output.status.code(), Some(code), "{line}: {text}");
        for words in told {
            assert!(text.contains(words), "{line}: no {words:?} in {text}");
        }
        assert!(!text.contains("panicked"), "{line}: {text}");
        assert!(output.stdout.is_empty(), "{line} printed: {}", String::from_utf8_lossy(&output.stdout));
        text
    }

    /// [`Place::check`], and nothing was written.
    #[track_caller]
    fn check_unwritten(&self, etcd: &Cluster, line: &str, code: i32, told: &[&str]) {
        let revision = etcd.revision();
        self.check(line, code, told);
        assert_eq!(etcd.revision(), revision, "{line}: something was written");
    }

    /// What the graveyard says of each code.
    fn rows(&self) -> Vec<Value> {
        json_lines(&self.passes("lease list --json"))
    }

    fn worker_of(&self, id: Id) -> u64 {
        self.layout.decode(id).worker
    }

    fn ms_of(&self, id: Id) -> u64 {
        self.layout.time_of(id).unix_ms()
    }

    /// Starts a mint that goes on until it is stopped, and waits for its first IDs.
    fn start_mint(&self, name: &str, line: &str) -> Minting {
        let (out, err) = (self.dir.path().join(format!("{name}.out")), self.dir.path().join(name));
        let child = self
            .command(&format!("{line} -n 50000000"))
            .stdout(File::create(&out).unwrap())
            .stderr(File::create(&err).unwrap())
            .spawn()
            .unwrap();
        let minting = Minting { child, out, err, layout: self.layout };
        minting.wait("its first IDs", |minting| minting.bytes() > 0);
        minting
    }
}

/// A mint in the background. It is killed when nobody waits for it.
struct Minting {
    child: Child,
    out: PathBuf,
    err: PathBuf,
    layout: Layout,
}

impl Minting {
    fn bytes(&self) -> u64 {
        fs::metadata(&self.out).unwrap().len()
    }

    fn ids(&self) -> Vec<Id> {
        ids(&fs::read(&self.out).unwrap())
    }

    fn told(&self) -> String {
        fs::read_to_string(&self.err).unwrap()
    }

    #[track_caller]
    fn wait(&self, what: &str, is_there: impl Fn(&Self) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_there(self) {
            assert!(Instant::now() < until, "no {what}: {}", self.told());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Its code now, by its last ID.
    fn code(&self) -> u64 {
        self.layout.decode(*self.ids().last().unwrap()).worker
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Waits until it has ended; its exit code, and its IDs.
    fn end(mut self) -> (Option<i32>, Vec<Id>, String) {
        let until = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "it does not end: {}", self.told());
            std::thread::sleep(Duration::from_millis(10));
        };
        (status.code(), self.ids(), self.told())
    }
}

impl Drop for Minting {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The IDs of whole lines; the last may be cut off where the process was killed.
fn ids(text: &[u8]) -> Vec<Id> {
    let end = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let lines = std::str::from_utf8(&text[..end]).unwrap().lines();
    lines.map(|line| Id::new(line.parse().unwrap())).collect()
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn now_ms() -> u64 {
    SystemClock::new(0).now_ms()
}

/// Takes IDs in, none of which may have come before.
#[derive(Default)]
struct Seen(HashSet<Id>);

impl Seen {
    #[track_caller]
    fn take(&mut self, ids: impl IntoIterator<Item = Id>) {
        for id in ids {
            assert!(self.0.insert(id), "{id} twice");
        }
    }

    fn last(&self) -> Id {
        *self.0.iter().max().unwrap()
    }
}

const DAY_MS: u64 = 24 * 3_600_000;

/// A region's life by the command alone: founded once, minted in by several, a code taken from its holder, the graveyard
/// of each.
#[test]
fn a_region_is_founded_minted_in_and_looked_after() {
    let Some(etcd) = Cluster::start(3) else { return };
    let place = Place::of_layout(&etcd, SLOW);
    let told = place.passes("init --new --window-ms 500");
    assert!(
        told.contains("region 1, 256 codes, generation 1") && told.contains(&place.layout.to_string()),
        "{told}"
    );
    assert!(told.contains("no grant begins at or below"), "deleted keys leave nothing behind: {told}");
    place.check_unwritten(&etcd, "init", 1, &["there is a lease store", "already"]);

    // A mint that ends: the code is given back with exactly what was minted.
    let mut seen = Seen::default();
    let ids = place.mint("mint -n 10000 --owner alpha");
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
    assert!(ids.iter().all(|&id| place.layout.decode(id).region == 1));
    let (code, last_ms) = (place.worker_of(ids[0]), place.ms_of(ids[9_999]));
    seen.take(ids);
    let rows = place.rows();
    assert_eq!(rows.len(), 256);
    let row = &rows[usize::try_from(code).unwrap()];
    assert_eq!((&row["state"], &row["term"], &row["owner"]), (&"free".into(), &1.into(), &"alpha".into()));
    assert_eq!((&row["end_ms"], &row["reuse"]), (&last_ms.into(), &"now".into()));
    let table = place.passes("lease list");
    assert!(table.contains("alpha") && table.contains(&last_ms.to_string()), "{table}");
    assert!(table.contains("256 of 256 codes can be taken now; 0 are held\n"), "{table}");
    assert_eq!(table.lines().count(), 3, "the head, the one code that was ever granted, the sum: {table}");
    let json = place.passes("mint -n 3 --format json");
    let id = json_lines(&json)[0]["id"].as_str().unwrap().parse().unwrap();
    seen.take(json_lines(&json).iter().map(|line| Id::new(line["id"].as_str().unwrap().parse().unwrap())));
    assert!(seen.0.contains(&Id::new(id)));

    // A mint that goes on, and what can be done about its code.
    let minting = place.start_mint("beta", "mint --owner beta --window-ms 2000");
    let code = minting.code();
    let row = &place.rows()[usize::try_from(code).unwrap()];
    assert_eq!((&row["state"], &row["owner"]), (&"active".into(), &"beta".into()));
    assert_eq!((&row["reuse"], &row["reuse_wait_ms"]), (&"held".into(), &Value::Null));
    assert!(place.passes("lease list").contains("; 1 are held"));
    place.check(&format!("lease free {code}"), 1, &["the code is active, by beta", "fence it"]);
    for command in ["fence", "free"] {
        place.check(&format!("lease {command} 256"), 2, &["no code 256", "256 a region"]);
        place.check(&format!("lease {command} -1"), 2, &["-1"]);
    }
    let table = place.passes(&format!("lease fence {code}"));
    assert!(table.contains("fenced") && table.contains("beta"), "{table}");
    let row = &place.rows()[usize::try_from(code).unwrap()];
    assert_eq!(
        (&row["state"], &row["owner"], &row["reuse"]),
        (&"fenced".into(), &"beta".into(), &"later".into())
    );
    let wait_ms = row["reuse_wait_ms"].as_u64().unwrap();
    assert!((DAY_MS - 60_000..=DAY_MS + 10).contains(&wait_ms), "{row}");
    let table = place.passes("lease list");
    assert!(
        table.contains("in 23h 59m") && table.contains("1 can be later, the first in 23h 59m"),
        "{table}"
    );
    place.check_unwritten(&etcd, "lease free 256", 2, &["no code 256"]);
    place.check(&format!("lease free {code}"), 1, &["the code is quarantined until"]);
    assert_eq!(place.passes("lease gc --json"), "");
    // Its owner hears of it, takes another code, and mints on: above nothing that the graveyard told.
    minting.wait("another code", |minting| minting.code() != code);
    minting.signal("-INT");
    let (exit, ids, told) = minting.end();
    assert_eq!(exit, Some(1));
    assert!(
        told.contains("the lease is lost: the code is fenced at term") && told.contains("interrupted after"),
        "{told}"
    );
    let end_ms = row["end_ms"].as_u64().unwrap();
    let fenced = ids.iter().filter(|&&id| place.worker_of(id) == code);
    assert!(fenced.map(|&id| place.ms_of(id)).max().unwrap() <= end_ms);
    seen.take(ids);

    // Fenced without a quarantine to speak of: freed by name, or by gc.
    let other = (code + 1) % 256;
    let row = &json_lines(&place.passes(&format!("lease fence {other} --quarantine 1ms --json")))[0];
    assert_eq!((&row["code"], &row["state"]), (&other.into(), &"fenced".into()));
    std::thread::sleep(Duration::from_millis(5));
    let row = &json_lines(&place.passes(&format!("lease free {other} --json")))[0];
    assert_eq!((&row["code"], &row["state"], &row["reuse"]), (&other.into(), &"free".into(), &"now".into()));
    place.check(&format!("lease free {other}"), 1, &["the code is free"]);
    place.passes(&format!("lease fence {other} --quarantine 0"));
    std::thread::sleep(Duration::from_millis(5));
    let freed = json_lines(&place.passes("lease gc --json"));
    assert_eq!((freed.len(), &freed[0]["code"], &freed[0]["state"]), (1, &other.into(), &"free".into()));
    let table = place.passes("lease gc");
    assert!(table.contains("255 of 256 codes can be taken now; 0 are held; 1 can be later"), "{table}");

    // One that is killed: its code stays its own for all to see, and whoever comes next has another one.
    let minting = place.start_mint("gamma", "mint --owner gamma --window-ms 1000");
    minting.signal("-KILL");
    let (_, ids, _) = minting.end();
    let code = place.worker_of(*ids.last().unwrap());
    seen.take(ids);
    let row = &place.rows()[usize::try_from(code).unwrap()];
    assert_eq!(
        (&row["state"], &row["owner"], &row["reuse"]),
        (&"active".into(), &"gamma".into(), &"held".into())
    );
    let ids = place.mint("mint -n 1000");
    assert_ne!(place.worker_of(ids[0]), code);
    seen.take(ids);
    println!("{} IDs", seen.0.len());
}

/// Every slip in the flags: exit code 2, what is wrong and what to do; a store that is not there, does not answer, or is
/// another's, and a clock that nobody vouches for: exit code 1. Nothing is minted, nothing is written.
#[test]
fn what_cannot_be_done_is_told_and_nothing_is_minted() {
    let Some(etcd) = Cluster::start(3) else { return };
    let place = Place::new(&etcd);
    let closed = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let nobody = format!("--store etcd:http://127.0.0.1:{closed}");
    let text = place.file("text", "no PEM");
    let text = text.to_str().unwrap();

    // There is no store yet: the command that is told founds just the one that was looked for.
    let text_of =
        place.check("mint", 1, &["there is no lease store", "snowmint init --new --store etcd:http"]);
    place.check("init", 1, &["If no ID was ever minted for this region", "--recover --not-before MS"]);
    assert!(text_of.contains(&format!("--region 1 --etcd-prefix {}", place.prefix)), "{text_of}");
    assert!(!text_of.contains("--init"), "{text_of}");
    place.check("lease list", 1, &["there is no lease store"]);
    place.passes("init --new --window-ms 0");
    let mut seen = Seen::default();
    seen.take(place.mint("mint -n 1000"));

    let all = ["mint", "init", "lease list", "lease fence 0", "lease free 0", "lease gc"];
    let without = |name: &str| {
        let mut place = place.with(&[]);
        place.flags.retain(|(flag, _)| *flag != name);
        place
    };
    for line in all {
        without("--region").check(line, 2, &["--region R"]);
        place.check(&format!("{line} {nobody}"), 1, &["the lease store does not answer", "127.0.0.1"]);
    }
    for (line, code, told) in [
        ("mint --init", 2, "`--init` founds an embedded store only"),
        ("mint --store etcd:", 2, "names no member"),
        ("mint --store etcd:127.0.0.1:1", 2, "is no http://"),
        ("mint --store etcd:https://127.0.0.1:1", 2, "certificate authority"),
        ("mint --store etcd:http://me:word@127.0.0.1:1", 2, "contains a user"),
        ("mint --etcd-prefix a//b", 2, "prefix"),
        ("mint --etcd-user mint", 2, "`--etcd-user` and `--etcd-password-file` go together"),
        ("mint --etcd-user mint --etcd-password-file nonesuch", 2, "nonesuch cannot be read"),
        ("mint --etcd-ca nonesuch", 2, "nonesuch cannot be read"),
        (&format!("mint --etcd-ca {text}"), 2, "is not https"),
        ("mint --etcd-server-name a", 2, "--etcd-ca"),
        (&format!("mint --etcd-cert {text}"), 2, "--etcd-key"),
        ("mint --region x", 2, "x"),
        ("mint --owner= ", 2, "owner"),
        ("mint --window-ms 29", 2, "window"),
        ("mint --quarantine soon", 2, "soon"),
        ("init --region 4", 2, "0 to 3"),
        ("init --region 300", 2, "0 to 3"),
        ("init --recover", 2, "--not-before"),
        ("init --not-before 5", 2, "--recover"),
        ("init --generation-known 3", 2, "--recover"),
        ("init --recover --not-before 5 --generation-known 65536", 2, "65536"),
        // As nobody's clock is vouched for, none is believed; the operator may.
        ("mint --clock clockbound", 1, "its source `clockbound` does not vouch for that"),
        ("mint --clock clockbound", 1, "--clock assume:MS"),
        ("mint --clock assume:11 --window-ms 100", 1, "must be at most 10 ms"),
        ("mint --layout hybrid", 1, "is for the layout"),
        ("lease list --layout hybrid", 1, "is for the layout"),
        ("mint --region 2", 1, "there is no lease store"),
        ("mint --region 4", 2, "0 to 3"),
        ("init", 1, "already"),
        ("init --layout hybrid", 1, "already"),
        ("init --recover --not-before 5 --layout hybrid", 1, "is for the layout"),
        ("init --recover --not-before 5", 1, "can be older than the last cut-over"),
        (
            "init --recover --not-before 99999999999999 --layout snowmint",
            2,
            "no grant could ever begin above",
        ),
    ] {
        place.check_unwritten(&etcd, line, code, &[told]);
    }
    seen.take(place.mint("mint -n 1000"));

    println!("{} IDs", seen.0.len());
}

/// Records that an operator's slip, a disk or another version can leave: each by its name, for every command; nothing is
/// minted or written, and once it is put right, or recovered, minting goes on above.
#[test]
fn broken_records_are_named_and_nothing_is_minted() {
    let Some(etcd) = Cluster::start(3) else { return };
    let place = Place::new(&etcd);
    place.passes("init --new --window-ms 0");
    let mut seen = Seen::default();
    seen.take(place.mint("mint -n 1000"));

    // Another region's record under a region's keys.
    let get = |key: &str| etcd.admin(0, async |client| client.get(key, None).await).kvs()[0].value().to_vec();
    let put =
        |key: &str, value: Vec<u8>| drop(etcd.admin(0, async |client| client.put(key, value, None).await));
    let delete = |key: &str| drop(etcd.admin(0, async |client| client.delete(key, None).await));
    put(&format!("{}/2/cluster", place.prefix), get(&place.key("cluster")));
    let wrong = &["is for region 1, and the configuration says region 2"];
    place.check_unwritten(&etcd, "mint --region 2", 1, wrong);
    place.check_unwritten(&etcd, "init --region 2", 1, wrong);

    // Records that were deleted, damaged, or written by another version; put back, all is well.
    let changed = |key: &str, at: usize, to: fn(u8) -> u8| {
        let mut bytes = get(key);
        bytes[at] = to(bytes[at]);
        Some(bytes)
    };
    let (cluster, code) = (place.key("cluster"), place.key("code/00003"));
    for (key, broken, told) in [
        (&code, None, "the record of code 3 is missing"),
        (&code, changed(&code, 20, |byte| byte ^ 1), "the record of code 3 is not as Snowmint wrote it"),
        (&code, Some(Vec::new()), "the record of code 3 is not as Snowmint wrote it"),
        (&code, changed(&code, 5, |_| 9), "has version 9, and this program reads version 1"),
        (&cluster, None, "the cluster record is missing"),
        (&cluster, changed(&cluster, 20, |byte| byte ^ 1), "the cluster record is not as Snowmint wrote it"),
        (&cluster, changed(&cluster, 5, |_| 9), "has version 9, and this program reads version 1"),
    ] {
        let whole = get(key);
        match broken {
            Some(bytes) => put(key, bytes),
            None => delete(key),
        }
        for line in ["mint", "lease list", "lease gc", "lease fence 3"] {
            place.check_unwritten(&etcd, line, 1, &[told]);
        }
        if *key == cluster {
            // Nothing that is there is founded anew.
            place.check_unwritten(&etcd, "init", 1, &[told]);
        }
        put(key, whole);
        seen.take(place.mint("mint -n 100"));
    }
    // A key among the codes that is none.
    put(&place.key("code/7"), b"7".to_vec());
    place.check_unwritten(&etcd, "mint", 1, &["a key at", "that Snowmint did not write"]);
    delete(&place.key("code/7"));

    // Records that are gone for good: recovered above what was stamped, by what is left; else by what is told.
    let is_all_above = |seen: &mut Seen, generation: u16, recover: &str| {
        let not_before_ms = place.ms_of(seen.last());
        let line = format!("init --recover --window-ms 0 --not-before {not_before_ms} {recover}");
        let told = place.passes(&line);
        assert!(told.contains(&format!("256 codes, generation {generation}\n")), "{told}");
        let ids = place.mint("mint -n 100");
        assert!(place.ms_of(ids[0]) > not_before_ms);
        seen.take(ids);
    };
    delete(&code);
    is_all_above(&mut seen, 2, "--layout snowmint");
    is_all_above(&mut seen, 8, "--layout snowmint --generation-known 7");
    is_all_above(&mut seen, 9, "--layout snowmint --generation-known 3");
    delete(&cluster);
    for told in ["", "--layout snowmint", "--generation-known 9"] {
        let line = format!("init --recover --not-before {} {told}", now_ms());
        place.check_unwritten(&etcd, &line, 1, &["`--layout` and `--generation-known`"]);
    }
    is_all_above(&mut seen, 10, "--layout snowmint --generation-known 9");
    println!("{} IDs", seen.0.len());
}

/// Only whom etcd knows, and lets at the store's keys, mints; and no password is ever printed.
#[test]
fn only_whom_etcd_knows_mints() {
    let Some(etcd) = Cluster::start(3) else { return };
    let place = Place::new(&etcd);
    let user = |name: &str, password: &str| {
        let file = place.file(&format!("{name}-{password}"), &format!("{password}\n"));
        place.with(&[
            ("--etcd-user", String::from(name)),
            ("--etcd-password-file", file.to_str().unwrap().to_owned()),
        ])
    };
    let denied = "the lease store refuses this user";
    // While nobody is asked who he is, a user is a mistake.
    user("mint", "s3cret").check("init", 1, &[denied]);
    etcd.admin(0, async |client| {
        client.user_add("root", "root", None).await?;
        client.user_grant_role("root", "root").await?;
        client.role_add("snowmint").await?;
        let prefix = format!("{}/", place.prefix);
        client.role_grant_permission("snowmint", Permission::read_write(prefix).with_prefix()).await?;
        client.user_add("mint", "s3cret", None).await?;
        client.user_grant_role("mint", "snowmint").await?;
        client.user_add("other", "s3cret", None).await?;
        client.auth_enable().await
    });
    let mint = user("mint", "s3cret");
    mint.passes("init --new --window-ms 0");
    let mut seen = Seen::default();
    seen.take(mint.mint("mint -n 1000"));
    let refused = [user("mint", "wr0ng"), user("nobody", "s3cret"), user("other", "s3cret"), place.with(&[])];
    for place in &refused {
        for line in ["mint", "init", "lease list", "lease fence 0", "init --recover --not-before 5"] {
            let told = place.check(line, 1, &[denied, "correct the user, password or certificate"]);
            assert!(!told.contains("s3cret") && !told.contains("wr0ng"), "{told}");
        }
    }
    mint.check("mint --etcd-prefix elsewhere", 1, &[denied]);
    seen.take(mint.mint("mint -n 1000"));
}

/// Over TLS: with the right authority it mints; with another one, another name, or none that is one, it does not.
#[test]
fn only_whose_certificate_is_trusted_is_minted_by() {
    let authority = || {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        (params.self_signed(&key).unwrap().pem(), Issuer::new(params, key))
    };
    let ((ours, issuer), (theirs, _)) = (authority(), authority());
    let certify = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![String::from(name)]).unwrap();
        (params.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem())
    };
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, pem: &str| {
        let path = dir.path().join(name);
        fs::write(&path, pem).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let ((server, server_key), (client, client_key)) = (certify("etcd.test"), certify("mint"));
    let ours = write("ours.pem", &ours);
    let args = [
        String::from("--client-cert-auth"),
        format!("--cert-file={}", write("server.pem", &server)),
        format!("--key-file={}", write("server.key", &server_key)),
        format!("--trusted-ca-file={ours}"),
    ];
    let Some(etcd) = Cluster::start_with(3, "https", &args) else { return };
    let good = Place::new(&etcd).with(&[
        ("--etcd-ca", ours),
        ("--etcd-server-name", String::from("etcd.test")),
        ("--etcd-cert", write("client.pem", &client)),
        ("--etcd-key", write("client.key", &client_key)),
    ]);
    let until = Instant::now() + PATIENCE;
    while !good.command("init --new --window-ms 0").output().unwrap().status.success() {
        assert!(Instant::now() < until);
    }
    let mut seen = Seen::default();
    seen.take(good.mint("mint -n 1000"));
    let theirs = write("theirs.pem", &theirs);
    for (flags, code, told) in [
        (format!("--etcd-ca {theirs}"), 1, "certificate"),
        (String::from("--etcd-server-name other.test"), 1, "certificate"),
        (format!("--etcd-ca {}", write("no.pem", "none")), 2, "certificate"),
        (format!("--etcd-key {}", write("no.key", "none")), 2, "private key"),
    ] {
        for line in ["mint", "lease list", "init"] {
            good.check(&format!("{line} {flags}"), code, &["the lease store", told]);
        }
    }
    // Without a certificate of its own.
    let mut bare = good.with(&[]);
    bare.flags.retain(|(name, _)| *name != "--etcd-cert" && *name != "--etcd-key");
    bare.check("mint", 1, &["the lease store does not answer"]);
    seen.take(good.mint("mint -n 1000"));
}

/// Under a mint that runs, the store is recovered: it stops, and says why. Later an old backup of etcd is put back under
/// one: it stops for that, and goes on for nobody until the generation is above any that was seen. No ID comes twice.
#[test]
fn a_recovery_or_an_old_backup_ends_what_runs() {
    let Some(mut etcd) = Cluster::start(3) else { return };
    let place = Place::of_layout(&etcd, SLOW);
    place.passes("init --new --window-ms 0");
    let mut seen = Seen::default();

    // One member away is nothing; two are a store that does not answer.
    etcd.kill(0);
    seen.take(place.mint("mint -n 1000"));
    etcd.kill(1);
    place.check("mint", 1, &["the lease store does not answer"]);
    place.check("lease list", 1, &["the lease store does not answer"]);
    etcd.kill(2);
    let backup = tempfile::tempdir().unwrap();
    for at in 0..3 {
        copy_dir(&etcd.data_dir(at), &backup.path().join(at.to_string()));
        etcd.run(at);
    }
    (0..3).for_each(|at| etcd.wait_for(at));

    let minting = place.start_mint("first", "mint --window-ms 3000");
    let recover = |generation: &str| {
        let line = format!("init --recover --window-ms 3000 --not-before {} {generation}", now_ms());
        place.passes(&line)
    };
    assert!(recover("").contains("generation 2"));
    let (exit, ids, told) = minting.end();
    assert_eq!(exit, Some(1));
    assert!(told.contains("was recovered or replaced (generation 2; the grant is of 1)"), "{told}");
    assert!(told.contains(&format!("{} of 50000000 IDs minted", ids.len())), "{told}");
    let last_ms = place.ms_of(*ids.last().unwrap());
    seen.take(ids);

    // The next one begins above the last that the first could have minted.
    let minting = place.start_mint("second", "mint --window-ms 3000");
    assert!(place.ms_of(minting.ids()[0]) > last_ms);
    (0..3).for_each(|at| etcd.kill(at));
    for at in 0..3 {
        fs::remove_dir_all(etcd.data_dir(at)).unwrap();
        copy_dir(&backup.path().join(at.to_string()), &etcd.data_dir(at));
        etcd.run(at);
    }
    let (exit, ids, told) = minting.end();
    assert_eq!(exit, Some(1));
    assert!(told.contains("is a copy (etcd's revision went back from"), "{told}");
    seen.take(ids);
    // The backup knows of generation 1 only: whoever recovers it says what it cannot know.
    assert!(recover("--generation-known 2").contains("generation 3"));
    let ids = place.mint("mint -n 1000 --window-ms 3000");
    assert!(place.ms_of(ids[0]) > place.ms_of(seen.last()));
    seen.take(ids);
    println!("{} IDs", seen.0.len());
}

/// In a region of two codes a third mint is refused, and told when the next code is free; where there is but one code
/// left and its holder gives it back, the next takes it.
#[test]
fn when_no_code_is_left_it_is_told_when_the_next_is() {
    let Some(etcd) = Cluster::start(3) else { return };
    let place = Place::of_layout(&etcd, TWO_CODES);
    place.passes("init --new --window-ms 0");
    let mut seen = Seen::default();
    let [first, second] = ["first", "second"]
        .map(|name| place.start_mint(name, &format!("mint --owner {name} --window-ms 1000")));
    let third = "mint --window-ms 1000";
    place.check(third, 1, &["none of the region's 2 codes can be used now (2 are held)", "stop a worker"]);
    assert!(place.passes("lease list").contains("0 of 2 codes can be taken now; 2 are held\n"));
    first.signal("-TERM");
    let (exit, ids, told) = first.end();
    assert_eq!(exit, Some(1), "{told}");
    seen.take(ids);
    let code = |ids: &[Id]| place.worker_of(ids[0]);
    let ids = place.mint(third);
    assert_ne!(code(&ids), code(&second.ids()));
    seen.take(ids);

    // Killed: held until somebody has watched it for its whole time to live.
    second.signal("-KILL");
    let (_, ids, _) = second.end();
    let held = code(&ids);
    seen.take(ids);
    place.passes(&format!("lease fence {} --quarantine 24h", 1 - held));
    let ids = place.mint(third);
    assert_eq!(code(&ids), held);
    seen.take(ids);

    // Both fenced: the next is free when the first quarantine is over.
    place.passes(&format!("lease fence {held} --quarantine 1h"));
    let told = place.check(third, 1, &["none of the region's 2 codes can be used now (0 are held)"]);
    assert!(
        told.contains("the next one can in 1 h 0 min") || told.contains("the next one can in 59 min"),
        "{told}"
    );
    let table = place.passes("lease list");
    assert!(
        table.contains("0 of 2 codes can be taken now; 0 are held; 2 can be later, the first in 59m"),
        "{table}"
    );

    // And where the layout has one code.
    let place = Place::of_layout(&etcd, ONE_CODE);
    place.passes("init --new --window-ms 0");
    let minting = place.start_mint("only", "mint --window-ms 1000");
    place.check(third, 1, &["none of the region's 1 codes can be used now (1 are held)"]);
    minting.signal("-INT");
    let (_, ids, _) = minting.end();
    let mut seen = Seen::default();
    seen.take(ids);
    seen.take(place.mint("mint -n 100"));
}
