//! Invariants that are written as absences, and the few lines whose presence they rest on.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::cargo::{Workspace, output};

/// Words that no file may hold.
struct Absence {
    words: &'static [&'static str],
    why: &'static str,
    /// Only files whose name ends so; empty means all.
    only: &'static str,
    /// Files whose name ends so may hold them.
    except: &'static str,
    /// A line that holds this too is left alone; empty means none is.
    unless: &'static str,
    /// Whether a word counts only where a path begins, so that `a/home/b` is left alone.
    at_start_of_path: bool,
}

// `concat!` keeps the words out of this file, which is looked at like any other.
const ABSENCES: &[Absence] = &[
    Absence {
        words: &[concat!("todo", "!("), concat!("unimplemented", "!("), concat!("dbg", "!(")],
        why: "unfinished",
        only: ".rs",
        except: "",
        unless: "",
        at_start_of_path: false,
    },
    Absence {
        words: &[concat!("#[", "ignore")],
        why: "a test that never runs: let SNOWMINT_TEST_LONG decide how much it does",
        only: ".rs",
        except: "",
        // A process that its parent, another test, starts and kills.
        unless: "= \"the child of another test\"]",
        at_start_of_path: false,
    },
    Absence {
        words: &[concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/")],
        why: "a path of one machine",
        only: "",
        except: "",
        unless: "",
        at_start_of_path: true,
    },
    Absence {
        words: &[
            concat!("\"snowmint", "_mutations"),
            concat!("'snowmint", "_mutations"),
            concat!("cfg snowmint", "_mutations"),
            concat!("cfg=snowmint", "_mutations"),
        ],
        why: "a rule can be broken only in the build that `cargo xtask` makes for that",
        only: ".toml",
        except: "",
        unless: "",
        at_start_of_path: false,
    },
    Absence {
        words: &[concat!("cfg=snowmint", "_mutations")],
        why: "a rule can be broken only in the build that `cargo xtask` makes for that",
        only: ".rs",
        except: "",
        unless: "",
        at_start_of_path: false,
    },
    Absence {
        words: &[
            concat!("index.", "crates.io"),
            concat!("static.", "crates.io"),
            concat!("crates.io", "-index"),
        ],
        why: "a registry is named by cargo's configuration, nowhere else",
        only: "",
        except: "Cargo.lock",
        unless: "",
        at_start_of_path: false,
    },
];

/// Lines that a crate's lib.rs must hold.
const PRESENCES: &[(&str, &str)] = &[
    ("snowmint-core", "#![no_std]"),
    ("snowmint-core", "#![forbid(unsafe_code)]"),
    ("snowmint-lease", "#![forbid(unsafe_code)]"),
    ("snowmint-lease-etcd", "#![forbid(unsafe_code)]"),
    ("snowmint-lease-http", "#![forbid(unsafe_code)]"),
    ("snowmint-lease-redb", "#![forbid(unsafe_code)]"),
    ("snowmint-sim", "#![forbid(unsafe_code)]"),
    ("snowmint", "#![forbid(unsafe_code)]"),
    ("snowmint-component", "#![no_std]"),
];

pub(super) fn check(workspace: &Workspace) -> Result<()> {
    let mut wrong = Vec::new();
    for name in files(&workspace.root)? {
        // What is no text holds no words; what git still lists but is gone from the disk neither.
        if let Ok(text) = fs::read_to_string(workspace.root.join(&name)) {
            wrong.extend(found(&name, &text));
        }
    }
    for (name, line) in PRESENCES {
        let package = workspace.package(name).with_context(|| format!("the workspace has no {name}"))?;
        let path = package.folder().join("src").join("lib.rs");
        let text = fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        if !has_line(&text, line) {
            wrong.push(format!("{} lacks `{line}`", path.display()));
        }
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    Ok(())
}

/// Every file that is, or would be, in the repository.
fn files(root: &Path) -> Result<Vec<String>> {
    let mut git = Command::new("git");
    // A checkout that belongs to somebody else, as in a container, is only read here.
    git.args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let list = output(git.current_dir(root)).context("git must tell which files are the repository's")?;
    let files: Vec<_> = list.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    ensure!(!files.is_empty(), "git knows no file here");
    Ok(files)
}

fn found(name: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let rows = ABSENCES.iter().filter(|row| name.ends_with(row.only));
    for row in rows.filter(|row| row.except.is_empty() || !name.ends_with(row.except)) {
        for (number, line) in (1..).zip(text.lines()) {
            if !row.unless.is_empty() && line.contains(row.unless) {
                continue;
            }
            for word in row.words {
                if line.match_indices(word).any(|(at, _)| !row.at_start_of_path || starts_path(line, at)) {
                    found.push(format!("{name}:{number}: `{word}`: {}", row.why));
                }
            }
        }
    }
    found
}

fn starts_path(line: &str, at: usize) -> bool {
    let before = line.get(..at).and_then(|before| before.chars().next_back());
    before.is_none_or(|before| !before.is_alphanumeric() && !"_-./~}".contains(before))
}

fn has_line(text: &str, line: &str) -> bool {
    text.lines().any(|it| it == line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_found_where_it_must_not_be_and_only_there() {
        fn row(name: &str, text: &str, expected: usize) {
            assert_eq!(found(name, text).len(), expected, "{name}: {text}");
        }
        row("src/a.rs", "fn a() {}\nfn b() {}", 0);
        row("src/a.rs", concat!("todo", "!(); dbg", "!(1);\nunimplemented", "!()"), 3);
        row("docs/a.md", concat!("todo", "!()"), 0);
        row("src/a.rs", concat!("    #[", "ignore = \"slow\"]"), 1);
        row("src/a.rs", concat!("#[", "ignore = \"the child of another test\"]"), 0);
        row("docs/a.md", concat!("see /ho", "me/somebody/x"), 1);
        row("docs/a.md", concat!("`/ro", "ot/x` and \"/Us", "ers/x\""), 2);
        row("docs/a.md", concat!("https://example.org/ho", "me/ and $X/ro", "ot/, a/ho", "me/b"), 0);
        row("Cargo.toml", concat!("check-cfg = ['cfg(snowmint", "_mutations)']"), 0);
        row(".cargo/config.toml", concat!("rustflags = [\"--cfg\", \"snowmint", "_mutations\"]"), 1);
        row(".cargo/config.toml", concat!("rustflags = \"--cfg snowmint", "_mutations\""), 1);
        row("build.rs", concat!("println!(\"cargo::rustc-cfg=snowmint", "_mutations\")"), 1);
        row("deny.toml", concat!("https://github.com/rust-lang/crates.io", "-index"), 1);
        row("benches/Cargo.lock", concat!("registry+https://github.com/rust-lang/crates.io", "-index"), 0);
    }

    #[test]
    fn what_is_found_says_where_and_why() {
        let told = found("src/a.rs", concat!("\n\n#[", "ignore]"));
        assert!(told[0].starts_with("src/a.rs:3: "), "{told:?}");
        assert!(told[0].contains("never runs"), "{told:?}");
    }

    #[test]
    fn a_line_in_a_comment_or_in_another_form_is_not_the_line() {
        assert!(has_line("//! Docs.\n\n#![forbid(unsafe_code)]\n", "#![forbid(unsafe_code)]"));
        assert!(!has_line("// #![forbid(unsafe_code)]\n#![deny(unsafe_code)]\n", "#![forbid(unsafe_code)]"));
    }
}
