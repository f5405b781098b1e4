//! What several test files need: programs of Debian's, processes that end with their test, a clock that steps.

#![allow(dead_code)] // Each file uses its part.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use tempfile::TempDir;

/// Where a program of Debian's is. `None`, and a word about it, where it is missing and may be; a failure where it may
/// not. `cargo xtask test` names the programs that this machine has to do without.
pub(crate) fn program(name: &str, package: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let found = directories.map(|directory| directory.join(name)).find(|program| program.is_file());
    if found.is_some() {
        return found;
    }
    let excused = std::env::var("SNOWMINT_TEST_WITHOUT").unwrap_or_default();
    let is_excused = excused.split(',').any(|excused| excused == name);
    let must = std::env::var_os("CI").is_some() || rustix::process::geteuid().is_root();
    let advice = format!("{name} is not installed (on Debian: apt-get install {package})");
    assert!(is_excused || !must, "{advice}");
    eprintln!("SKIPPED: {advice}; what needs it is not tested");
    None
}

/// A process that is ended with its test.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A wall clock for one process, by a library of Debian's that answers it for the system; the boot-time clock stays
/// the machine's.
pub(crate) struct FakeClock {
    library: PathBuf,
    directory: TempDir,
}

impl FakeClock {
    /// `None` where there is no such library.
    pub(crate) fn new() -> Option<Self> {
        program("faketime", "faketime")?;
        let library = ["x86_64-linux-gnu", "aarch64-linux-gnu"]
            .map(|triple| Path::new("/usr/lib").join(triple).join("faketime/libfaketime.so.1"))
            .into_iter()
            .find(|library| library.is_file())
            .expect("Debian's faketime has its library in /usr/lib");
        let clock = Self { library, directory: tempfile::tempdir().unwrap() };
        clock.set("+0s");
        Some(clock)
    }

    /// Sets it so much ahead of the machine's.
    pub(crate) fn set(&self, offset: &str) {
        // In one piece: the process may read it at any moment.
        let next = self.directory.path().join("next");
        fs::write(&next, offset).unwrap();
        fs::rename(&next, self.file()).unwrap();
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("offset")
    }

    pub(crate) fn give_to<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env("LD_PRELOAD", &self.library)
            .env("FAKETIME_TIMESTAMP_FILE", self.file())
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
    }
}
