//! Clocks that somebody vouches for: real sources, real steps, sources that hang.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use clock_bound_shm::{ClockErrorBound, ClockStatus, ShmReader, ShmWrite, ShmWriter};
use common::{FakeClock, Running, program};
use snowmint::{
    Assumed, Chrony, Clock, ClockBound, ClockNotice, ClockSource, DRIFT_PPM_MAX, Kernel, Sample, Source,
    SourceError, StepAwareness, SystemClock, WatchedClock,
};
use tempfile::TempDir;

const UNKNOWN: u32 = u32::MAX;

/// How long a daemon may take on a machine that is busy.
const PATIENCE: Duration = Duration::from_mins(1);

/// Waits until something holds.
#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The bound that chrony gets to over one machine's loopback, before a limit of some milliseconds is put to it.
const CLOSE_NS: u64 = 1_000_000;

/// A daemon of chrony on ports of its own. It never touches this machine's clock (`-x`).
struct ChronyDaemon {
    _directory: TempDir,
    process: Running,
    command_port: u16,
    time_port: u16,
}

impl ChronyDaemon {
    fn start(chronyd: &Path, configuration: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let port = || UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (time_port, command_port) = (port(), port());
        let file = directory.path().join("chrony.conf");
        let pid_file = directory.path().join("pid").display().to_string();
        let text = format!(
            "port {time_port}\nbindaddress 127.0.0.1\nallow 127.0.0.1\ncmdport {command_port}\n\
             bindcmdaddress 127.0.0.1\nbindcmdaddress /\npidfile {pid_file}\n{configuration}\n"
        );
        fs::write(&file, text).unwrap();
        let child = Command::new(chronyd)
            .args(["-U", "-x", "-d", "-f"])
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { _directory: directory, process: Running(child), command_port, time_port }
    }

    fn source(&self) -> Chrony {
        Chrony::new("chronyc", ["-h", "127.0.0.1", "-p", &self.command_port.to_string()])
    }
}

/// Two real daemons of chrony, one the other's server: the client vouches by chrony's formula, is believed by a watched
/// clock, says so when it is not synchronised, and is told apart from one that is not there. A server that serves its
/// own clock vouches for nothing.
#[test]
fn chrony_vouches_when_it_is_synchronised() {
    let Some(chronyd) = program("chronyd", "chrony") else { return };
    let server = ChronyDaemon::start(&chronyd, "local stratum 5");
    until("the server answers", || match server.source().sample() {
        Err(SourceError::Absent(_)) => false,
        Err(SourceError::Unsynchronised(_)) => true,
        other => panic!("{other:?}"),
    });
    // Its own clock as a reference, or no reference yet: either is no bound. Then it is the former.
    until("the server serves its own clock", || {
        let error = server.source().sample().unwrap_err();
        assert!(matches!(error, SourceError::Unsynchronised(_)), "{error}");
        error.to_string().contains("own clock")
    });

    let configuration = format!("server 127.0.0.1 port {} iburst minpoll 0 maxpoll 0", server.time_port);
    let client = ChronyDaemon::start(&chronyd, &configuration);
    let mut source = client.source();
    let mut unsynchronised = 0;
    until("the client is synchronised", || match source.sample() {
        Ok(_) => true,
        Err(SourceError::Unsynchronised(_)) => {
            unsynchronised += 1;
            false
        }
        Err(SourceError::Absent(_)) => false,
        Err(error) => panic!("{error}"),
    });
    let sample = source.sample().unwrap();
    assert!(sample.error_ns >= 1, "a packet takes its time: {sample:?}");
    let StepAwareness::Measured(first_ns) = sample.steps else { panic!("{sample:?}") };
    until(
        "the client measures again",
        || matches!(source.sample().unwrap().steps, StepAwareness::Measured(ns) if ns > first_ns),
    );
    // The first measurements of a busy machine are wide.
    until("the bound is close", || source.sample().unwrap().error_ns < CLOSE_NS);

    let clock = WatchedClock::start(Box::new(source), 10, Box::new(|_| {})).unwrap();
    clock.wait(PATIENCE);
    assert_eq!(clock.source(), "chrony");
    assert!(clock.error_bound_ms() <= 10, "{clock:?}");
    assert_eq!(clock.refusal(), None);

    // The daemon dies: what it said ages, and is no longer enough within 20 s at 500 ppm.
    let mut source = client.source();
    drop(client);
    let error = source.sample().unwrap_err();
    assert!(matches!(error, SourceError::Absent(_)), "{error}");
    assert!(clock.error_bound_ms() <= 10, "{clock:?}");
    until("the word of a daemon that died is worth nothing", || clock.error_bound_ms() > 10);
    let told = clock.refusal().unwrap();
    assert!(told.contains("`chrony`") && told.contains("--clock assume:MS"), "{told}");
    eprintln!("chrony said {unsynchronised} times that it was not synchronised yet");
}

/// A daemon that has no server says that it is not synchronised.
#[test]
fn chrony_without_a_server_is_not_synchronised() {
    let Some(chronyd) = program("chronyd", "chrony") else { return };
    let mut daemon = ChronyDaemon::start(&chronyd, "");
    let mut source = daemon.source();
    until("it answers", || !matches!(source.sample(), Err(SourceError::Absent(_))));
    let error = source.sample().unwrap_err();
    assert!(matches!(error, SourceError::Unsynchronised(_)), "{error}");
    let clock = WatchedClock::start(Box::new(source), 10, Box::new(|_| {})).unwrap();
    clock.wait(PATIENCE);
    assert_eq!(clock.error_bound_ms(), UNKNOWN);
    let told = clock.refusal().unwrap();
    assert!(told.contains("`chrony`") && told.contains("not synchronised"), "{told}");
    assert!(daemon.process.0.try_wait().unwrap().is_none(), "the daemon has died");
}

/// The real kernel: the source says what `adjtimex` says, whatever that is here.
#[test]
fn the_kernel_vouches_when_its_clock_is_kept() {
    let state = snowmint_kernel_clock::read().unwrap();
    match Kernel.sample() {
        Ok(sample) => {
            assert!(state.is_synchronised);
            // It may have grown or been set anew in between, but no further than it can get.
            assert!(sample.error_ns < 16_000_000_000, "{sample:?} {state:?}");
        }
        Err(SourceError::Unsynchronised(_)) => assert!(!state.is_synchronised, "{state:?}"),
        Err(error) => panic!("{error}"),
    }
    eprintln!("this machine's kernel: {state:?}");
}

/// A file written by the writer of `ClockBound`'s own daemon is read as its own reader reads it: status by status. No
/// daemon ran: that needs a machine of AWS.
#[test]
fn what_the_writer_of_clock_bound_writes_is_read_as_its_reader_does() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shm0");
    let mut source = ClockBound::new(&path);
    let error = source.sample().unwrap_err();
    assert!(matches!(&error, SourceError::Absent(what) if what.contains("shm0")), "{error}");

    let mut writer = ShmWriter::new(&path).unwrap();
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let at = |seconds: i64| libc::timespec { tv_sec: now.tv_sec + seconds, tv_nsec: now.tv_nsec }.into();
    let mut update = |as_of: i64, void_after: i64, bound_ns: i64, drift_ppb: u32, status: ClockStatus| {
        writer.write(&ClockErrorBound::new(at(as_of), at(void_after), bound_ns, 7, drift_ppb, status, true));
    };
    let c_path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    let rows = [
        // Not of this moment: their reader's clock is the coarse one.
        (-1, 1_000, 250_000, 50_000, ClockStatus::Synchronized),
        (-4, 1_000, 250_000, 1_000_000, ClockStatus::Synchronized),
        (-100, 1_000, 1_000, 50_000, ClockStatus::FreeRunning),
        (-1, 1_000, 250_000, 50_000, ClockStatus::Unknown),
        (-1, 1_000, 250_000, 50_000, ClockStatus::Disrupted),
        (-1_001, -1, 250_000, 50_000, ClockStatus::Synchronized),
    ];
    for (as_of, void_after, bound_ns, drift_ppb, status) in rows {
        update(as_of, void_after, bound_ns, drift_ppb, status);
        let context = format!("{as_of} {void_after} {bound_ns} {drift_ppb} {status:?}");
        let mut reader = ShmReader::new(&c_path).unwrap();
        let ours = source.sample();
        let (earliest, latest, theirs) = reader.snapshot().unwrap().now().unwrap();
        let width_ns =
            (latest.tv_sec() - earliest.tv_sec()) * 1_000_000_000 + (latest.tv_nsec() - earliest.tv_nsec());
        match theirs {
            ClockStatus::Synchronized | ClockStatus::FreeRunning => {
                // Not asked at the same moment, and by two clocks: a little drift apart.
                let error_ns = i64::try_from(ours.unwrap().error_ns).unwrap();
                assert!((width_ns / 2 - error_ns).abs() < 100_000, "{context}: {width_ns} {error_ns}");
                assert!(error_ns >= bound_ns, "{context}");
            }
            ClockStatus::Unknown | ClockStatus::Disrupted => {
                assert!(matches!(ours, Err(SourceError::Unsynchronised(_))), "{context}: {ours:?}");
            }
        }
    }

    // Damage is an error that says so.
    let good = fs::read(&path).unwrap();
    let damage = |at: usize, bytes: &[u8]| {
        let mut all = good.clone();
        all[at..at + bytes.len()].copy_from_slice(bytes);
        fs::write(directory.path().join("damaged"), all).unwrap();
        ClockBound::new(directory.path().join("damaged")).sample().unwrap_err().to_string()
    };
    for (at, bytes, told) in [
        (0, &[0_u8; 8][..], "not one"),
        (12, &3_u16.to_ne_bytes()[..], "version 3"),
        (12, &0_u16.to_ne_bytes()[..], "not told"),
        (14, &0_u16.to_ne_bytes()[..], "not told"),
        (14, &7_u16.to_ne_bytes()[..], "all the time"),
        (8, &79_u32.to_ne_bytes()[..], "shorter"),
        (16, &(-1_i64).to_ne_bytes()[..], "damaged"),
        (24, &1_000_000_000_i64.to_ne_bytes()[..], "damaged"),
        (32, &i64::MAX.to_ne_bytes()[..], "damaged"),
        (64, &1_000_000_000_u32.to_ne_bytes()[..], "drift"),
    ] {
        let error = damage(at, bytes);
        assert!(error.contains(told), "{at}: {error}");
    }
    for length in [0, 16, 79] {
        fs::write(directory.path().join("damaged"), &good[..length]).unwrap();
        let error = ClockBound::new(directory.path().join("damaged")).sample().unwrap_err();
        assert!(error.to_string().contains("too short"), "{length}: {error}");
    }
}

/// A source whose answers a test gives. Without one it hangs.
struct Scripted {
    answers: mpsc::Receiver<Result<Sample, SourceError>>,
    asked: Arc<AtomicU64>,
}

impl Scripted {
    #[allow(clippy::type_complexity)]
    fn new() -> (mpsc::Sender<Result<Sample, SourceError>>, Arc<AtomicU64>, Box<Self>) {
        let (sender, answers) = mpsc::channel();
        let asked = Arc::new(AtomicU64::new(0));
        (sender, Arc::clone(&asked), Box::new(Self { answers, asked }))
    }
}

impl Source for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn sample(&mut self) -> Result<Sample, SourceError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.answers.recv().unwrap_or_else(|_| Err(SourceError::Absent("the test is over".into())))
    }

    fn way_out(&self) -> &'static str {
        "write another test"
    }
}

#[allow(clippy::unnecessary_wraps)]
fn vouch(error_ms: u64) -> Result<Sample, SourceError> {
    Ok(Sample { error_ns: error_ms * 1_000_000, drift_ppm: DRIFT_PPM_MAX, steps: StepAwareness::Aware })
}

/// A source that hangs holds up neither a reading of the bound nor the end of the clock; its last word grows older.
/// Real time passes: that a bound ends after 30 s is tested in the watch, without waiting.
#[test]
fn a_source_that_hangs_holds_nothing_up() {
    let (answers, asked, source) = Scripted::new();
    let clock = WatchedClock::start(source, 10, Box::new(|_| {})).unwrap();
    clock.wait(Duration::from_millis(50));
    assert_eq!(clock.error_bound_ms(), UNKNOWN);
    assert!(clock.refusal().unwrap().contains("has not answered"), "{:?}", clock.refusal());
    answers.send(vouch(9)).unwrap();
    clock.wait(PATIENCE);
    // Asked before it answered, so a little older than new.
    let first_ms = clock.error_bound_ms();
    assert!((9..=10).contains(&first_ms), "{first_ms}");
    until("it is asked again", || asked.load(Ordering::SeqCst) == 2);
    let start = Instant::now();
    for _ in 0..10_000 {
        clock.error_bound_ms();
    }
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    eprintln!("a reading of the bound takes {:?}", start.elapsed() / 10_000);
    // 9 ms and a drift of 500 ppm pass 10 ms within 2 s; then it is refused until the bound is at 8 ms.
    until("its word grows older", || clock.error_bound_ms() > 10);
    answers.send(vouch(9)).unwrap();
    until("it is asked again", || asked.load(Ordering::SeqCst) == 3);
    assert!(clock.error_bound_ms() > 10, "{clock:?}");
    answers.send(vouch(7)).unwrap();
    until("it is believed again", || clock.error_bound_ms() <= 8);
    until("it is asked again", || asked.load(Ordering::SeqCst) == 4);
    let start = Instant::now();
    drop(clock);
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
}

/// What an operator is told: each change once, in order, and a panicking observer ends nothing.
#[test]
fn each_change_is_told_once() {
    let (answers, asked, source) = Scripted::new();
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&told);
    let observer = move |notice: &ClockNotice| {
        tell.lock().unwrap().push(notice.clone());
        assert!(tell.lock().unwrap().len() > 1, "an observer at fault");
    };
    let clock = WatchedClock::start(source, 10, Box::new(observer)).unwrap();
    let unsure = SourceError::Unsynchronised("not in step".into());
    for (at, answer) in [Err(unsure.clone()), Err(unsure.clone()), vouch(1), vouch(2), vouch(20), vouch(1)]
        .into_iter()
        .enumerate()
    {
        answers.send(answer).unwrap();
        until("it is asked again", || asked.load(Ordering::SeqCst) == at as u64 + 2);
    }
    assert_eq!(clock.refusal(), None);
    let told = told.lock().unwrap().clone();
    let expected = [
        ClockNotice::Unsure { error: unsure },
        ClockNotice::Refused { error_bound_ms: UNKNOWN, error_ms_max: 10 },
        ClockNotice::Sure,
        ClockNotice::Believed { error_bound_ms: 2 },
        ClockNotice::Refused { error_bound_ms: 21, error_ms_max: 10 },
        ClockNotice::Believed { error_bound_ms: 2 },
    ];
    // The figures age while the test goes on; what is told does not depend on them.
    let kinds = |notices: &[ClockNotice]| -> Vec<_> { notices.iter().map(std::mem::discriminant).collect() };
    assert_eq!(kinds(&told), kinds(&expected), "{told:?}");
}

/// An operator's word stands from the start, for ever and on both clocks; the watched clock is the machine's.
#[test]
fn an_assumed_bound_is_known_at_once() {
    let source = ClockSource::Assume(3).choose().source;
    let clock = WatchedClock::start(source, 3, Box::new(|_| {})).unwrap();
    clock.wait(PATIENCE);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(clock.error_bound_ms(), 3, "{clock:?}");
    assert_eq!((clock.source(), clock.steps(), clock.last_step_ms()), ("assume", 0, 0));
    let machine = SystemClock::new(0);
    assert!(clock.now_ms().abs_diff(machine.now_ms()) < 1_000);
    assert!(clock.boot_ms().abs_diff(machine.boot_ms()) < 1_000);
    assert_eq!(Assumed::new(3).sample(), vouch(3).map(|sample| Sample { drift_ppm: 0, ..sample }));
}

/// The command in a home of its own, with the environment's settings taken away.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        let output = home.command(&["mint", "--init", "--clock", "assume:1"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        home
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_snowmint"));
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SNOWMINT_"))
        {
            command.env_remove(name);
        }
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
        command
            .args(arguments)
            .env("HOME", self.0.path())
            .env("XDG_DATA_HOME", self.0.path().join("data"))
            .env("XDG_CACHE_HOME", cache)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// A PATH with only this chronyc on it: a script that calls the real one with more arguments, or none at all.
    fn path(&self, chronyc: Option<&str>) -> PathBuf {
        let directory = self.0.path().join("bin");
        fs::create_dir_all(&directory).unwrap();
        if let Some(line) = chronyc {
            let file = directory.join("chronyc");
            fs::write(&file, format!("#!/bin/sh\n{line}\n")).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        directory
    }
}

/// Where a bound is asked for, the source that vouches is named once with its bound; one that does not is refused, by
/// its name and with the way out. Where none is asked for, one machine mints, and says nothing.
#[test]
fn the_command_names_its_source_or_refuses_it() {
    let home = Home::new();
    let path = home.path(None);
    let run = |arguments: &[&str]| {
        let output = home.command(&[&["mint"], arguments].concat()).env("PATH", &path).output().unwrap();
        (output.status.code(), output.stdout.len(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, _, told) = run(&["--clock", "assume:10", "--clock-error-ms-max", "10"]);
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.contains("vouched for by assume") && told.contains("off by 10 ms"), "{told}");

    for (arguments, words) in [
        (
            &["--clock", "chrony"][..],
            &["`chrony`", "not installed", "install and start chrony", "assume:MS"][..],
        ),
        (&["--clock", "assume:11"], &["`assume`", "11 ms", "limit is 10 ms"]),
    ] {
        let (code, printed, told) = run(&[arguments, &["--clock-error-ms-max", "10"]].concat());
        assert_eq!((code, printed), (Some(1), 0), "{told}");
        for word in words {
            assert!(told.contains(word), "{word}: {told}");
        }
        let (code, _, told) = run(arguments);
        assert_eq!((code, told.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

/// `--clock chrony` and `--clock auto` by a real daemon; the script adds only the port that the test chose. When the
/// daemon ends, a long mint is refused once its last word is too old, and the refusal names it.
#[test]
fn the_command_asks_a_real_chrony() {
    let Some(chronyd) = program("chronyd", "chrony") else { return };
    let asker = program("chronyc", "chrony").unwrap();
    let server = ChronyDaemon::start(&chronyd, "local stratum 5");
    let configuration = format!("server 127.0.0.1 port {} iburst minpoll 0 maxpoll 0", server.time_port);
    let client = ChronyDaemon::start(&chronyd, &configuration);
    until("the bound is close", || client.source().sample().is_ok_and(|sample| sample.error_ns < CLOSE_NS));
    let home = Home::new();
    let line = format!("exec {} -h 127.0.0.1 -p {} \"$@\"", asker.display(), client.command_port);
    let path = home.path(Some(&line));
    for (source, extra) in [("chrony", ""), ("auto", "clockbound: ")] {
        let arguments = ["mint", "--clock", source, "--clock-error-ms-max", "10"];
        let output = home.command(&arguments).env("PATH", &path).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{told}");
        assert!(told.contains("vouched for by chrony") && told.contains(extra), "{told}");
    }

    let mut child = home
        .command(&["mint", "-n", "10000000000", "--clock", "chrony", "--clock-error-ms-max", "4"])
        .env("PATH", &path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let child = Running(child);
    let first = lines.next().unwrap().unwrap();
    assert!(first.contains("vouched for by chrony"), "{first}");
    drop(client);
    // 4 ms at 500 ppm are 8 s.
    let rest: Vec<_> = lines.map(Result::unwrap).collect();
    let mut child = child;
    assert_eq!(child.0.wait().unwrap().code(), Some(1), "{rest:?}");
    let last = rest.last().unwrap();
    assert!(last.contains("`chrony`") && last.contains("install and start chrony"), "{rest:?}");
    assert!(last.contains("IDs minted"), "{rest:?}");
}

/// A real daemon of chrony that knows nothing of a step goes on to vouch for some microseconds. The command does not take
/// its word: the step counts, and the refusal says by how much the clock may be off.
#[test]
fn a_step_that_chrony_does_not_know_of_is_added_to_its_bound() {
    let Some(chronyd) = program("chronyd", "chrony") else { return };
    let Some(fake) = FakeClock::new() else { return };
    let asker = program("chronyc", "chrony").unwrap();
    let server = ChronyDaemon::start(&chronyd, "local stratum 5");
    let configuration = format!("server 127.0.0.1 port {} iburst minpoll 0 maxpoll 0", server.time_port);
    let client = ChronyDaemon::start(&chronyd, &configuration);
    until("the bound is close", || client.source().sample().is_ok_and(|sample| sample.error_ns < CLOSE_NS));
    // Without its server it measures no more, and goes by what it has.
    drop(server);
    let home = Home::new();
    let line =
        format!("unset LD_PRELOAD\nexec {} -h 127.0.0.1 -p {} \"$@\"", asker.display(), client.command_port);
    let path = home.path(Some(&line));
    let limits = ["--clock-error-ms-max", "50", "--window-ms", "500", "--wait-ms-max", "1000"];
    let mut child = fake
        .give_to(
            &mut home.command(&[&["mint", "-n", "10000000000", "--clock", "chrony"], &limits[..]].concat()),
        )
        .env("PATH", &path)
        .spawn()
        .unwrap();
    let mut ids = BufReader::new(child.stdout.take().unwrap());
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut child = Running(child);
    let first = told.next().unwrap().unwrap();
    assert!(first.contains("vouched for by chrony"), "{first}");
    ids.read_line(&mut String::new()).unwrap();
    let reader = std::thread::spawn(move || std::io::copy(&mut ids, &mut std::io::sink()));
    fake.set("+20s");
    let rest: Vec<_> = told.map(Result::unwrap).collect();
    reader.join().unwrap().unwrap();
    assert_eq!(child.0.wait().unwrap().code(), Some(1), "{rest:?}");
    assert!(rest[0].contains("stepped forward by"), "{rest:?}");
    assert!(client.source().sample().unwrap().error_ns < 50 * CLOSE_NS, "chrony itself is as sure as before");
    let last = rest.last().unwrap();
    let by_ms: u64 =
        last.split(' ').skip_while(|word| *word != "off").find_map(|word| word.parse().ok()).unwrap();
    // More where the library's threads trip over each other, and make a step of their own.
    assert!(last.contains("`chrony`") && by_ms >= 20_000, "{rest:?}");
}

/// The wall clock of a real process is stepped under it: each step is told with its direction and size, IDs go on above,
/// and after a step back nothing is minted below.
#[test]
fn steps_under_a_real_process_are_told() {
    let Some(fake) = FakeClock::new() else { return };
    let home = Home::new();
    let arguments = ["mint", "-n", "10000000000", "--clock", "assume:3", "--clock-error-ms-max", "10"];
    let mut child = fake.give_to(&mut home.command(&arguments)).spawn().unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut ids = BufReader::with_capacity(1 << 20, child.stdout.take().unwrap());
    let mut child = Running(child);
    // Somebody has to read what is minted; the newest ID says what time it is there.
    let newest = Arc::new(AtomicU64::new(0));
    let reader = std::thread::spawn({
        let newest = Arc::clone(&newest);
        move || {
            let mut line = String::new();
            while ids.read_line(&mut line).unwrap() > 0 {
                if let Ok(id) = line.trim_end().parse::<u64>() {
                    // Unique and ascending, whatever the clock does.
                    assert!(newest.swap(id, Ordering::SeqCst) < id);
                }
                line.clear();
            }
        }
    });
    // 22 bits below the timestamp, from 2025.
    let epoch_ms = 1_735_689_600_000;
    let ahead_ms = || {
        let minted_ms = (newest.load(Ordering::SeqCst) >> 22) + epoch_ms;
        i128::from(minted_ms) - i128::from(SystemClock::new(0).now_ms())
    };
    let first = told.next().unwrap().unwrap();
    assert!(first.contains("vouched for by assume"), "{first}");
    until("it mints by the machine's time", || ahead_ms().abs() < 1_000);

    fake.set("+20s");
    // It took effect: IDs of a time that is not the machine's.
    until("the clock of the process is ahead", || ahead_ms() > 18_000);
    let line = told.next().unwrap().unwrap();
    assert!(line.contains("stepped forward by") && line.contains("(step 1)"), "{line}");
    let by_ms: i64 = line.split(' ').find_map(|word| word.parse().ok()).unwrap();
    assert!((19_900..20_100).contains(&by_ms), "{line}");

    fake.set("+5s");
    let rest: Vec<_> = told.map(Result::unwrap).collect();
    reader.join().unwrap();
    assert_eq!(child.0.wait().unwrap().code(), Some(1), "{rest:?}");
    assert!(
        rest.iter().any(|line| line.contains("stepped back by") && line.contains("(step 2)")),
        "{rest:?}"
    );
    assert!(rest.last().unwrap().contains("set back"), "{rest:?}");
}
