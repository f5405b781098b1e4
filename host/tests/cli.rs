//! The command as its users run it: a process, a real store in a real directory, real signals.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use snowmint_core::{Layout, TextForm};
use tempfile::TempDir;

/// A home of its own for each test: nothing of the user's is read or written.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn store(&self) -> PathBuf {
        self.path().join("data").join("snowmint")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_snowmint"));
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SNOWMINT_"))
        {
            command.env_remove(name);
        }
        // One cache for all, beside the test binaries, so that the component is compiled once.
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
        command
            .args(arguments)
            .env("HOME", self.path())
            .env("XDG_DATA_HOME", self.path().join("data"))
            .env("XDG_CACHE_HOME", cache)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a mint that must succeed, and returns its IDs.
    fn mint(&self, arguments: &[&str]) -> Vec<u64> {
        let output = self.run(&[&["mint"], arguments].concat());
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        ids(&output.stdout)
    }

    /// Runs a command that must fail so, with this in its message.
    #[track_caller]
    fn fails(&self, arguments: &[&str], code: i32, told: &str) {
        let output = self.run(arguments);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        assert!(text.contains(told), "{arguments:?}: {text}");
        assert!(!text.contains("panicked"), "{arguments:?}: {text}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The IDs of whole lines; the last may be cut off where the process was killed.
fn ids(text: &[u8]) -> Vec<u64> {
    let end = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    std::str::from_utf8(&text[..end]).unwrap().lines().map(|line| line.parse().unwrap()).collect()
}

fn assert_all_different(mut ids: Vec<u64>) {
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "IDs twice");
}

fn kill(child: &Child, signal: &str) {
    let status = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

/// The first command of the README: IDs of now, in order, under a lease that is given back.
#[test]
fn mints_real_ids_and_gives_the_code_back() {
    let home = Home::new();
    let before = snowmint_now_ms();
    let ids = home.mint(&["-n", "10000", "--init"]);
    let after = snowmint_now_ms();
    assert_eq!(ids.len(), 10_000);
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
    let layout = Layout::SNOWMINT;
    for &id in &ids {
        let parts = layout.decode(id.into());
        let ms = layout.epoch_unix_ms() + parts.tick;
        assert!((before..=after).contains(&ms));
        assert_eq!((parts.region, parts.reserved), (0, false));
    }
    let list = home.run(&["lease", "list", "--json"]);
    let rows: Vec<serde_json::Value> =
        stdout_lines(&list).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 256);
    assert!(rows.iter().all(|row| row["state"] == "free"));
    let used: Vec<_> = rows.iter().filter(|row| row["term"] == 1).collect();
    assert_eq!(used.len(), 1);
    let last_ms = layout.epoch_unix_ms() + layout.decode(ids[9_999].into()).tick;
    assert_eq!(used[0]["end_ms"], last_ms, "what is given back is all but what was minted");
    let table = home.run(&["lease", "list"]);
    assert!(String::from_utf8_lossy(&table.stdout).contains("256 of 256 codes can be taken now"));

    // And once more, at once: another life, no ID twice.
    assert_all_different([ids, home.mint(&["-n", "10000"])].concat());
}

fn snowmint_now_ms() -> u64 {
    use snowmint::Clock;
    snowmint::SystemClock::new(0).now_ms()
}

fn stdout_lines(output: &Output) -> Vec<String> {
    String::from_utf8(output.stdout.clone()).unwrap().lines().map(str::to_owned).collect()
}

/// Every form that is asked for reads back as the same kind of ID, one a line; JSON holds strings (F8).
#[test]
fn mints_in_every_form() {
    let home = Home::new();
    home.mint(&["--init"]);
    for (format, form) in [
        ("dec", TextForm::Decimal),
        ("hex", TextForm::Hex),
        ("base32", TextForm::Base32),
        ("base36", TextForm::Base36),
        ("base62", TextForm::Base62),
    ] {
        let output = home.run(&["mint", "-n", "50", "--format", format]);
        let lines = stdout_lines(&output);
        let ids: Vec<_> = lines.iter().map(|line| form.parse(line.as_bytes()).unwrap()).collect();
        assert_eq!(ids.len(), 50, "{format}");
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{format}");
        assert!(
            form == TextForm::Decimal || lines.windows(2).all(|pair| pair[0] < pair[1]),
            "{format} sorts"
        );
    }
    for line in stdout_lines(&home.run(&["mint", "-n", "50", "--format", "json"])) {
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert!(value["id"].as_str().unwrap().parse::<u64>().unwrap() > 1 << 53, "a string: {line}");
    }
}

/// Killed with `kill -9` in the middle of a long mint, five times over: no ID twice in all that reached anybody.
#[test]
fn killed_five_times_repeats_nothing() {
    let home = Home::new();
    let mut all = home.mint(&["--init"]);
    for round in 0..5 {
        let path = home.path().join(format!("round-{round}"));
        let mut child = home
            .command(&["mint", "-n", "50000000"])
            .stdout(File::create(&path).unwrap())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // In the middle: after the first IDs have come, and a little more each time.
        while fs::metadata(&path).unwrap().len() < 2_000_000 * (1 + round) {
            assert!(child.try_wait().unwrap().is_none(), "the mint ended by itself");
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        assert!(!child.wait().unwrap().success());
        let minted = ids(&fs::read(&path).unwrap());
        assert!(minted.len() > 50_000);
        all.extend(minted);
    }
    all.extend(home.mint(&["-n", "20000"]));
    assert_all_different(all);
}

/// Two to four processes on one store at once: each either mints all it was asked for or is refused, by name; no ID
/// comes twice (F5).
#[test]
fn f5_processes_on_one_store_mint_or_are_refused() {
    let home = Home::new();
    let mut all = home.mint(&["--init"]);
    let mut refused = 0;
    for round in 0..6 {
        let children: Vec<Child> =
            (0..2 + round % 3).map(|_| home.command(&["mint", "-n", "30000"]).spawn().unwrap()).collect();
        let mut minted = 0;
        for child in children {
            let output = child.wait_with_output().unwrap();
            if output.status.success() {
                let ids = ids(&output.stdout);
                assert_eq!(ids.len(), 30_000);
                all.extend(ids);
                minted += 1;
            } else {
                assert_eq!(output.status.code(), Some(1));
                assert!(stderr(&output).contains("in use by"), "{}", stderr(&output));
                assert!(output.stdout.is_empty());
                refused += 1;
            }
        }
        assert!(minted > 0, "one of them has the lock");
    }
    assert!(refused > 0, "no two ever met");
    assert_all_different(all);
}

/// SIGINT and SIGTERM end a mint cleanly: what it said is whole, and the code is free at once.
#[test]
fn signals_end_a_mint_cleanly() {
    let home = Home::new();
    let mut all = home.mint(&["--init"]);
    for signal in ["-INT", "-TERM"] {
        let mut child = home.command(&["mint", "-n", "50000000"]).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        out.read_line(&mut first).unwrap();
        kill(&child, signal);
        let mut rest = first.into_bytes();
        out.read_to_end(&mut rest).unwrap();
        assert_eq!(rest.last(), Some(&b'\n'), "no line is cut off");
        all.extend(ids(&rest));
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("interrupted after"), "{}", stderr(&output));
        let table = home.run(&["lease", "list"]);
        assert!(String::from_utf8_lossy(&table.stdout).contains("256 of 256 codes can be taken now"));
    }
    all.extend(home.mint(&["-n", "1000"]));
    assert_all_different(all);
}

/// A reader that has seen enough is no error, and the code is given back.
#[test]
fn a_closed_pipe_is_no_error() {
    let home = Home::new();
    home.mint(&["--init"]);
    let mut child = home.command(&["mint", "-n", "50000000"]).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
    let list = home.run(&["lease", "list"]);
    assert!(String::from_utf8_lossy(&list.stdout).contains("256 of 256 codes can be taken now"));
}

/// `--after`: greater than what somebody else minted; refused where that cannot be promised.
#[test]
fn mints_after_another_id() {
    let home = Home::new();
    let ids = home.mint(&["--init", "--layout", "hybrid"]);
    let after = home.mint(&["-n", "3", "--after", &ids[0].to_string()]);
    assert!(after[0] > ids[0]);
    home.fails(&["mint", "--after", "9223372036854775807"], 1, "");
    home.fails(&["mint", "--after", "18446744073709551615"], 1, "reserved bit");
    home.fails(&["mint", "--after", "18446744073709551616"], 2, "--after");
    let sharded = Home::new();
    sharded.mint(&["--init", "--layout", "sharded"]);
    sharded.fails(&["mint", "--after", "5"], 1, "not in order of time");
}

/// Bad usage: exit code 2, what is wrong and what to do, nothing made.
#[test]
fn bad_usage_is_told_and_makes_nothing() {
    let home = Home::new();
    let check = |arguments: &[&str], told: &str| home.fails(arguments, 2, told);
    check(&["mint", "-n", "0", "--init"], "1 or more");
    check(&["mint", "-n", "-1", "--init"], "-1");
    check(&["mint", "-n", "NaN", "--init"], "NaN");
    check(&["mint", "-n", "18446744073709551616", "--init"], "too large");
    check(&["mint", "--format", "xml", "--init"], "xml");
    check(&["mint", "--store", "mysql:x", "--init"], "redb:DIR");
    check(&["mint", "--store", "redb:", "--init"], "names no directory");
    check(&["mint", "--region", "4", "--init"], "region 4 does not fit");
    check(&["mint", "--layout", "nonesuch", "--init"], "neither a layout");
    check(&["mint", "--clock", "assume:x", "--init"], "whole number");
    check(&["mint", "--clock", "sundial", "--init"], "assume:MS");
    check(&["mint", "--owner", "", "--init"], "owner");
    check(&["mint", "--owner", "a\nb", "--init"], "owner");
    check(&["mint", "--lead-ms", "3600001", "--init"], "lead");
    check(&["mint", "--window-ms", "0", "--init"], "window");
    check(&["mint", "--spread", "--layout", "hybrid", "--init"], "spread");
    check(&["init", "--recover"], "--not-before");
    check(&["init", "--not-before", "5"], "--recover");
    check(&["frobnicate"], "frobnicate");
    check(&["init", "--region", "4"], "0 to 3");
    check(&["init", "--region", "300"], "0 to 3");
    for (file, told) in BAD_LAYOUTS {
        let path = home.path().join("layout.toml");
        fs::write(&path, file).unwrap();
        check(&["init", "--layout", path.to_str().unwrap()], told);
        check(&["mint", "--init", "--layout", path.to_str().unwrap()], told);
    }
    let list = home.run(&["lease", "list"]);
    assert_eq!(list.status.code(), Some(1));
    assert!(stderr(&list).contains("snowmint init"), "{}", stderr(&list));
    assert!(!home.store().join("store.redb").exists());
}

/// Layout files that are none, and what is said of each.
const BAD_LAYOUTS: &[(&str, &str)] = &[
    ("", "epoch_unix_ms"),
    ("\u{feff}{", "layout file"),
    ("epoch_unix_ms = 0\nfields = []", "0 bits"),
    (
        "epoch_unix_ms = 0\nfields = [{role='timestamp',bits=41},{role='worker',bits=10},{role='sequence',bits=12}]",
        "63 bits",
    ),
    (
        "epoch_unix_ms = 0\nfields = [{role='timestamp',bits=43},{role='worker',bits=10},{role='sequence',bits=12}]",
        "65 bits",
    ),
    (
        "epoch_unix_ms = 0\nfields = [{role='timestamp',bits=41},{role='timestamp',bits=11},{role='sequence',bits=12}]",
        "more than one timestamp",
    ),
    (
        "epoch_unix_ms = 0\nfields = [{role='timestamp',bits=52},{role='worker',bits=0},{role='sequence',bits=12}]",
        "0 bits wide",
    ),
    (
        "epoch_unix_ms = 0\ntick_ms = 0\nfields = [{role='timestamp',bits=52},{role='sequence',bits=12}]",
        "tick is 0 ns",
    ),
    (
        "epoch_unix_ms = 99999999999999\nfields = [{role='timestamp',bits=41},{role='worker',bits=11},{role='sequence',bits=12}]",
        "not yet past",
    ),
    (
        "epoch_unix_ms = 0\ntick_ns = 10000\nfields = [{role='timestamp',bits=52},{role='sequence',bits=12}]",
        "multiple of 1000000",
    ),
    ("epoch_unix_ms = 0\nfields = [{role='timestamp',bits=41},{role='worker',bits=23}]", "no sequence"),
    ("epoch_unix_ms = 0\nfields = [{role='thyme',bits=64}]", "`thyme` is no role"),
    ("epoch_unix_ms = -1\nfields = []", "epoch_unix_ms"),
    ("epoch_unix_ms = 0\nunknown = 1\nfields = []", "unknown"),
];

/// A store that is not what it should be: refused by name, with what to do, and nothing lost.
#[test]
fn bad_stores_are_refused_by_name() {
    let home = Home::new();
    let ids = home.mint(&["--init"]);
    home.fails(&["init"], 1, "");
    home.fails(&["mint", "--layout", "hybrid"], 1, "layout");
    home.fails(&["mint", "--region", "1"], 1, "region");
    assert_all_different([ids.clone(), home.mint(&["--layout", "snowmint", "--region", "0"])].concat());

    // Another directory is another store, which is not there.
    let elsewhere = format!("redb:{}", home.path().join("elsewhere").display());
    home.fails(&["mint", "--store", &elsewhere], 1, "snowmint init --store");

    // In use.
    let mut child = home.command(&["mint", "-n", "50000000"]).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    home.fails(&["mint"], 1, "in use");
    home.fails(&["lease", "list"], 1, &format!("{}", child.id()));
    child.kill().unwrap();
    child.wait().unwrap();

    // Damaged: the middle of the file is overwritten.
    let file = home.store().join("store.redb");
    let whole = fs::read(&file).unwrap();
    let mut damaged = whole.clone();
    let length = damaged.len();
    damaged[..length / 2].fill(0x5a);
    fs::write(&file, &damaged).unwrap();
    home.fails(&["mint"], 1, "");

    // Emptied, and gone: there was one, so none is made.
    fs::write(&file, b"").unwrap();
    home.fails(&["mint", "--init"], 1, "");
    fs::remove_file(&file).unwrap();
    home.fails(&["mint", "--init"], 1, "");
    home.fails(&["init"], 1, "--recover");

    // The operator's way out, above everything minted.
    let not_before = (snowmint_now_ms() - 1).to_string();
    let output = home.run(&["init", "--recover", "--not-before", &not_before, "--window-ms", "1000"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("generation 2"));
    std::thread::sleep(Duration::from_millis(1_100));
    assert_all_different([ids, home.mint(&["-n", "1000"])].concat());
}

/// A lost store is recovered as what it was, never as the default: another region's IDs would come twice.
#[test]
fn a_recovery_keeps_layout_and_region() {
    let home = Home::new();
    let output = home.run(&["init", "--layout", "hybrid", "--region", "2"]);
    assert!(output.status.success(), "{}", stderr(&output));
    fs::remove_file(home.store().join("store.redb")).unwrap();
    let not_before = (snowmint_now_ms() - 1).to_string();
    let recover = ["init", "--recover", "--window-ms", "1000", "--not-before", &not_before];
    home.fails(&[&recover[..], &["--region", "0"]].concat(), 1, "region");
    home.fails(&[&recover[..], &["--layout", "snowmint"]].concat(), 1, "layout");
    let output = home.run(&recover);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(told.contains("region 2, 256 codes, generation 2"), "{told}{}", stderr(&output));
    assert!(told.contains(&Layout::HYBRID.to_string()), "{told}");

    // Nothing is left that tells: the flags are asked for.
    fs::remove_file(home.store().join("store.redb")).unwrap();
    fs::remove_file(home.store().join("store.lock")).unwrap();
    home.fails(&recover, 1, "`--layout` and `--region`");
    home.fails(
        &["init", "--recover", "--not-before", "1764538000000000", "--layout", "hybrid", "--region", "2"],
        2,
        "in milliseconds",
    );
    // Half of the pair, where the parser does not see it.
    let file = home.path().join("half.toml");
    fs::write(&file, "[init]\nrecover = true\n").unwrap();
    home.fails(&["init", "--config", file.to_str().unwrap()], 2, "go together");
}

/// A signal ends a mint also where it blocks: on a reader that does not read.
#[test]
fn a_signal_ends_a_mint_that_nobody_reads() {
    let home = Home::new();
    home.mint(&["--init"]);
    for signal in ["-INT", "-TERM"] {
        let mut child = home.command(&["mint", "-n", "50000000"]).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut String::new()).unwrap();
        // Nothing more is read until the process has ended, long after the pipe and the backlog are full.
        kill(&child, signal);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("interrupted"), "{}", stderr(&output));
    }
    assert_eq!(home.mint(&["-n", "10"]).len(), 10, "the store is not held any more");
}

/// Output that cannot be written is an error with a name, never a panic.
#[test]
fn output_that_cannot_be_written_is_told() {
    let home = Home::new();
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = home.command(&["init"]).stdout(full()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("cannot be written"), "{}", stderr(&output));
    for arguments in [&["mint"][..], &["lease", "list"]] {
        let output = home.command(arguments).stdout(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    }
    let output = home.command(&["mint", "-n", "0"]).stderr(full()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

/// Switches in the environment: `1` is on; `0`, `false` and nothing are off.
#[test]
fn switches_of_the_environment_are_forgiving() {
    let home = Home::new();
    for (value, is_on) in [("", false), ("0", false), ("false", false), ("1", true), ("true", true)] {
        let output = home.command(&["mint"]).env("SNOWMINT_INIT", value).output().unwrap();
        assert_eq!(output.status.success(), is_on, "{value:?}: {}", stderr(&output));
    }
}

/// Flags come from the command line, then the environment, then the file; a file that sets what is no flag is refused.
#[test]
fn flags_come_from_file_environment_and_command_line() {
    let home = Home::new();
    let file = home.path().join("snowmint.toml");
    let path = file.to_str().unwrap();
    fs::write(&file, "layout = \"hybrid\"\ninit = true\n[mint]\ncount = 3\nformat = \"hex\"\n").unwrap();
    let run = |arguments: &[&str], environment: &[(&str, &str)]| {
        let output = home.command(arguments).envs(environment.iter().copied()).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        stdout_lines(&output)
    };
    let lines = run(&["mint", "--config", path], &[]);
    assert_eq!((lines.len(), lines[0].len()), (3, 16), "{lines:?}");
    let lines = run(&["mint"], &[("SNOWMINT_CONFIG", path), ("SNOWMINT_COUNT", "5")]);
    assert_eq!((lines.len(), lines[0].len()), (5, 16), "{lines:?}");
    let environment = [("SNOWMINT_CONFIG", path), ("SNOWMINT_COUNT", "5"), ("SNOWMINT_FORMAT", "base62")];
    let lines = run(&["mint", "-n", "7"], &environment);
    assert_eq!((lines.len(), lines[0].len()), (7, 11), "{lines:?}");

    for (text, told) in [
        ("nonsense = 1", "`nonsense`"),
        ("[mint]\nnonsense = 1", "`mint.nonsense`"),
        ("layout = 1.5", "`layout`"),
        ("init = \"yes\"", "`init`"),
        ("[mint]\ncount = -1", "-1"),
        ("not toml", "not TOML"),
    ] {
        fs::write(&file, text).unwrap();
        home.fails(&["mint", "--config", path], 2, told);
    }
    home.fails(&["mint", "--config", "/nonexistent/file"], 2, "cannot be read");
}

/// A clock that nobody vouches for mints on one machine; on request its bound is enforced.
#[test]
fn the_clock_bound_is_enforced_on_request() {
    let home = Home::new();
    home.mint(&["--init"]);
    home.mint(&["--clock", "assume:3", "--clock-error-ms-max", "10"]);
    // What vouches for the clock of the machine that tests run on is not known: the clock tests bring their own.
    home.fails(&["mint", "--clock", "assume:11", "--clock-error-ms-max", "10"], 1, "11 ms");
}

/// `--spread`: few IDs a millisecond do not all end in the same bits (F9); refused where the layout has no room.
#[test]
fn f9_spread_from_the_command_line() {
    let home = Home::new();
    home.mint(&["--init"]);
    let ids: HashSet<u64> = (0..8).map(|_| home.mint(&["--spread"])[0]).collect();
    assert_eq!(ids.len(), 8);
    let hybrid = Home::new();
    hybrid.mint(&["--init", "--layout", "hybrid"]);
    hybrid.fails(&["mint", "--spread"], 2, "spread needs a layout");
}
