//! How fast `snowmint decode` reads lines: a million of them, as JSON and as text, by a named layout and by `auto`.
//!
//! It runs the released binary, as its users do: `cargo xtask bench --bench decode`. The limit is 1.5 s a million.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const LINES: u64 = 1_000_000;
const ROUNDS: usize = 5;
const LIMIT_SECONDS: f64 = 1.5;

/// An ID that Twitter made, and by how much the next is greater: 1 ms and 3, so that every field varies.
const FIRST_ID: u64 = 1_205_161_015_177_961_473;
const STEP: u64 = (1 << 22) + (5 << 12) + 3;

fn main() {
    let Some(binary) = binary() else {
        eprintln!("the released binary is missing: run `cargo xtask bench`, or name it in SNOWMINT_BINARY");
        std::process::exit(1);
    };
    let input: String = (0..LINES).map(|nth| format!("{}\n", FIRST_ID + nth * STEP)).collect();
    println!("{:<26}  {:>18}  {:>14}", "a million lines", "seconds (median)", "range");
    for arguments in [&["--layout", "twitter", "--json"][..], &["--layout", "twitter"], &["--json"], &[]] {
        let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| round(&binary, arguments, &input)).collect();
        rounds.sort_by(f64::total_cmp);
        let median = rounds[ROUNDS / 2];
        let verdict = if median <= LIMIT_SECONDS { "" } else { "  over the limit of 1.5 s" };
        let range = format!("{:.2} to {:.2}", rounds[0], rounds[ROUNDS - 1]);
        println!("{:<26}  {median:>18.2}  {range:>14}{verdict}", format!("decode {}", arguments.join(" ")));
    }
}

/// Seconds from the start of the process to its end, its input written and its output read as fast as may be.
fn round(binary: &Path, arguments: &[&str], input: &str) -> f64 {
    let began = Instant::now();
    let mut child = Command::new(binary)
        .arg("decode")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let lines = std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input.as_bytes()).unwrap());
        let (mut buffer, mut lines) = (vec![0; 1 << 16], 0);
        loop {
            match stdout.read(&mut buffer).unwrap() {
                0 => return lines,
                length => lines += buffer[..length].iter().filter(|&&byte| byte == b'\n').count() as u64,
            }
        }
    });
    assert!(child.wait().unwrap().success());
    let seconds = began.elapsed().as_secs_f64();
    assert_eq!(lines, LINES);
    seconds
}

fn binary() -> Option<PathBuf> {
    let named = std::env::var_os("SNOWMINT_BINARY").map(PathBuf::from);
    // A benchmark runs in `<target>/release/deps`.
    let beside = || Some(std::env::current_exe().ok()?.parent()?.parent()?.join("snowmint"));
    named.or_else(beside).filter(|path| path.is_file())
}
