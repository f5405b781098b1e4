//! How fast `snowmint mint` fills a pipe, and whether its memory grows with the count.
//!
//! The layout's own limit is 4,096 IDs a worker a millisecond; the figure is the share of it that arrives. It runs the
//! released binary, as its users do: `cargo xtask bench --bench pipe`.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// IDs a second that one worker of the default layout can mint.
const LIMIT_PER_SECOND: f64 = 4_096_000.0;

const COUNTS: [u64; 3] = [1_000_000, 10_000_000, 30_000_000];
const ROUNDS: usize = 5;

fn main() {
    let Some(binary) = binary() else {
        eprintln!("the released binary is missing: run `cargo xtask mint` once, or name it in SNOWMINT_BINARY");
        std::process::exit(1);
    };
    let home = std::env::temp_dir().join(format!("snowmint-pipe-{}", std::process::id()));
    let store = format!("redb:{}", home.join("store").display());
    let status = Command::new(&binary).args(["init", "--store", &store]).stdout(Stdio::null()).status();
    assert!(status.unwrap().success());
    println!("{:>10}  {:>22}  {:>22}  {:>8}", "IDs", "IDs a second (median)", "share of the limit", "peak KB");
    for count in COUNTS {
        let mut rounds: Vec<(f64, u64)> = (0..ROUNDS).map(|_| round(&binary, &store, count)).collect();
        rounds.sort_by(|one, other| one.0.total_cmp(&other.0));
        let (per_second, _) = rounds[ROUNDS / 2];
        let peak_kb = rounds.iter().map(|(_, peak_kb)| *peak_kb).max().unwrap();
        let share = per_second / LIMIT_PER_SECOND * 100.0;
        let range = format!(
            "{:.1} to {:.1} %",
            rounds[0].0 / LIMIT_PER_SECOND * 100.0,
            rounds[ROUNDS - 1].0 / LIMIT_PER_SECOND * 100.0
        );
        println!("{count:>10}  {per_second:>22.0}  {share:>6.1} % ({range})  {peak_kb:>8}");
    }
    std::fs::remove_dir_all(home).unwrap();
}

/// Mints into a pipe that is read as fast as it fills. IDs a second between the first byte and the last, and the
/// process's peak memory in KB.
fn round(binary: &Path, store: &str, count: u64) -> (f64, u64) {
    let mut child = Command::new(binary)
        .args(["mint", "--store", store, "-n", &count.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut buffer = vec![0; 1 << 16];
    let (mut lines, mut began, mut peak_kb) = (0, None, 0);
    loop {
        let length = out.read(&mut buffer).unwrap();
        let began = *began.get_or_insert_with(Instant::now);
        lines += buffer[..length].iter().filter(|&&byte| byte == b'\n').count() as u64;
        // Before the last piece is taken the process is still there to be asked.
        if lines >= count / 2 && peak_kb == 0 || lines == count {
            peak_kb = peak_kb.max(peak_of(child.id()));
        }
        if length == 0 || lines == count {
            let seconds = began.elapsed().as_secs_f64();
            assert!(child.wait().unwrap().success());
            assert_eq!(lines, count);
            return (count as f64 / seconds, peak_kb);
        }
    }
}

/// The high-water mark of a process's memory in KB, as Linux tells it; 0 where it does not.
fn peak_of(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.split_whitespace().next()).and_then(|kb| kb.parse().ok()).unwrap_or(0)
}

fn binary() -> Option<PathBuf> {
    let named = std::env::var_os("SNOWMINT_BINARY").map(PathBuf::from);
    // A benchmark runs in `<target>/release/deps`.
    let beside = || Some(std::env::current_exe().ok()?.parent()?.parent()?.join("snowmint"));
    named.or_else(beside).filter(|path| path.is_file())
}
