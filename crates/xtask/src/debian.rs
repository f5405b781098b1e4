//! Programs that tests start, and where Debian has them.

use std::env;
use std::process::{Command, Stdio};

use anyhow::Result;

use crate::cargo::{find, output, run};

/// A program that a test starts. Such a test asks [`WITHOUT`] whether it may pass over itself; where the program
/// is missing and not named there, the test fails. So nothing is skipped in silence.
pub(crate) struct Need {
    pub(crate) program: &'static str,
    pub(crate) package: &'static str,
    /// Which tests, for who reads that they were skipped.
    pub(crate) tests: &'static str,
}

/// Only what a test really starts belongs here.
pub(crate) const NEEDS: &[Need] = &[
    Need { program: "etcd", package: "etcd-server", tests: "the etcd store" },
    Need { program: "chronyd", package: "chrony", tests: "chrony's word for the clock" },
    Need { program: "faketime", package: "faketime", tests: "clocks that step under a real process" },
    Need { program: "ip", package: "iproute2", tests: "an etcd whose members are cut off from each other" },
    Need { program: "strace", package: "strace", tests: "a fleet's disks that are slow, full or broken" },
    PROTOC,
    PROMTOOL,
];

/// What the build itself starts: without it, there is no etcd store.
pub(crate) const BUILD_NEEDS: &[Need] = &[PROTOC];

/// What the tests of the page start.
pub(crate) const PAGE_NEEDS: &[Need] = &[
    Need { program: "chromium", package: "chromium", tests: "the page in a browser" },
    Need { program: "node", package: "nodejs", tests: "the page in a browser" },
    Need { program: "npm", package: "npm", tests: "the page in a browser" },
];

pub(crate) const PROTOC: Need =
    Need { program: "protoc", package: "protobuf-compiler", tests: "stores in etcd" };

/// Reads alert rules, and tries them.
pub(crate) const PROMTOOL: Need =
    Need { program: "promtool", package: "prometheus", tests: "alert rules, and the service's metrics" };

/// Reads Kubernetes' manifests.
pub(crate) const KUBECTL: Need =
    Need { program: "kubectl", package: "kubernetes-client", tests: "Kubernetes' manifests" };

/// Reads systemd's units.
pub(crate) const SYSTEMD: Need =
    Need { program: "systemd-analyze", package: "systemd", tests: "systemd's unit" };

/// Compiles C for musl: what a static binary has of it.
pub(crate) const MUSL_GCC: Need =
    Need { program: "musl-gcc", package: "musl-tools", tests: "a static binary" };

/// Tells whether a binary is static.
pub(crate) const READELF: Need = Need { program: "readelf", package: "binutils", tests: "a static binary" };

/// Builds images, without a daemon.
pub(crate) const BUILDAH: Need = Need { program: "buildah", package: "buildah", tests: "an image" };

/// The variable that names the programs which this machine has to do without, with commas between them.
pub(crate) const WITHOUT: &str = "SNOWMINT_TEST_WITHOUT";

/// Installs what is missing where that is ours to do (as root, or in CI), and returns what is missing still.
pub(crate) fn ensure(needs: &'static [Need]) -> Result<Vec<&'static Need>> {
    let missing = || -> Vec<_> { needs.iter().filter(|need| !is_here(need.program)).collect() };
    let wanted = missing();
    if wanted.is_empty() || find("apt-get").is_none() || !may_install()? {
        return Ok(wanted);
    }
    for args in [vec!["update", "--quiet"], install(&wanted)] {
        run(Command::new("apt-get")
            .args(args)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null()))?;
    }
    Ok(missing())
}

/// What to tell who ran the tests about those that were passed over.
pub(crate) fn advice(missing: &[&Need]) -> String {
    let packages: Vec<_> = missing.iter().map(|need| need.package).collect();
    let tests: Vec<_> =
        missing.iter().map(|need| format!("{} (needs {})", need.tests, need.program)).collect();
    format!("without {}; to have them: apt-get install {}", tests.join(", "), packages.join(" "))
}

/// The value of [`WITHOUT`].
pub(crate) fn without(missing: &[&Need]) -> String {
    missing.iter().map(|need| need.program).collect::<Vec<_>>().join(",")
}

fn install(wanted: &[&'static Need]) -> Vec<&'static str> {
    let options = ["install", "--yes", "--quiet", "--no-install-recommends"];
    options.into_iter().chain(wanted.iter().map(|need| need.package)).collect()
}

pub(crate) fn may_install() -> Result<bool> {
    Ok(env::var_os("CI").is_some() || output(Command::new("id").arg("-u"))?.trim() == "0")
}

/// Debian's services lie where only root's PATH leads.
pub(crate) fn is_here(program: &str) -> bool {
    find(program).is_some() || std::path::Path::new("/usr/sbin").join(program).is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHELL: Need = Need { program: "sh", package: "dash", tests: "all" };
    const NOWHERE: Need =
        Need { program: "no-such-program", package: "no-such-package", tests: "the etcd suite" };

    #[test]
    fn a_program_that_is_here_is_not_missing_and_one_that_is_not_is_told() {
        assert!(is_here(SHELL.program));
        assert!(!is_here(NOWHERE.program));
        assert!(ensure(&[SHELL]).unwrap().is_empty());
        let advice = advice(&[&NOWHERE]);
        assert!(advice.contains("the etcd suite (needs no-such-program)"), "{advice}");
        assert!(advice.ends_with("apt-get install no-such-package"), "{advice}");
        assert_eq!(without(&[&SHELL, &NOWHERE]), "sh,no-such-program");
    }
}
