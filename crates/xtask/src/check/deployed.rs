//! What is deployed beside the binary: alert rules and the dashboard, Kubernetes' manifests, systemd's unit.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cargo::{Workspace, run};
use crate::debian::{self, KUBECTL, PROMTOOL, SYSTEMD};
use crate::steps::{Outcome, Steps};

const RULES: &str = "snowmint.rules.yml";
const RULES_TRIED: &str = "snowmint.rules.test.yml";

/// What systemd's unit starts.
const PROGRAM: &str = "/usr/local/bin/snowmint";

pub(super) fn check(workspace: &Workspace, steps: &mut Steps) {
    let deploy = workspace.root.join("deploy");
    steps.step("alert rules", || {
        let missing = debian::ensure(&[PROMTOOL])?;
        if !missing.is_empty() {
            return Ok(Outcome::Skipped(debian::advice(&missing)));
        }
        alert_rules(&deploy.join("prometheus"))?;
        dashboard(&deploy.join("grafana").join("snowmint.json"), &workspace.target)
    });
    // These two are not installed for this alone: they bring more with them than they tell.
    steps.step("Kubernetes' manifests", || {
        if !debian::is_here(KUBECTL.program) {
            return Ok(Outcome::Skipped(debian::advice(&[&KUBECTL])));
        }
        let mut kubectl = Command::new(KUBECTL.program);
        // What it prints are all manifests; they are not news.
        kubectl.stdout(Stdio::null());
        run(kubectl.arg("kustomize").arg(deploy.join("kubernetes"))).map(|()| Outcome::Done)
    });
    steps.step("systemd's unit", || {
        if !debian::is_here(SYSTEMD.program) {
            return Ok(Outcome::Skipped(debian::advice(&[&SYSTEMD])));
        }
        unit(&deploy.join("systemd").join("snowmint.service"), &workspace.target)
    });
}

/// The rules can be read, and each fires on what it is about and on nothing else.
fn alert_rules(folder: &Path) -> Result<()> {
    let promtool = || {
        let mut promtool = Command::new(PROMTOOL.program);
        promtool.current_dir(folder);
        promtool
    };
    run(promtool().args(["check", "rules", RULES]))?;
    run(promtool().args(["test", "rules", RULES_TRIED]))
}

/// Every expression of the dashboard can be read: as rules, which is what promtool reads.
fn dashboard(path: &Path, target: &Path) -> Result<Outcome> {
    let expressions = expressions(path)?;
    let rules: Vec<Value> = expressions
        .iter()
        .enumerate()
        .map(|(nth, expression)| {
            let expression = expression
                .replace("$__rate_interval", "5m")
                .replace("$job", "snowmint")
                .replace("$instance", ".*");
            serde_json::json!({ "record": format!("dashboard:{nth}"), "expr": expression })
        })
        .collect();
    // JSON is YAML too.
    let rules = serde_json::json!({ "groups": [{ "name": "dashboard", "rules": rules }] });
    let path = target.join("dashboard.rules.yml");
    fs::write(&path, rules.to_string())?;
    run(Command::new(PROMTOOL.program).args(["check", "rules"]).arg(path))?;
    Ok(Outcome::Note(format!("{} expressions of the dashboard", expressions.len())))
}

/// What the dashboard's panels ask for.
fn expressions(path: &Path) -> Result<Vec<String>> {
    let dashboard: Value =
        serde_json::from_str(&read(path)?).with_context(|| format!("{} is not JSON", path.display()))?;
    let panels = dashboard.get("panels").and_then(Value::as_array).context("the dashboard has no panels")?;
    let targets = panels.iter().filter_map(|panel| panel.get("targets").and_then(Value::as_array)).flatten();
    let expressions: Vec<_> =
        targets.filter_map(|target| target.get("expr").and_then(Value::as_str)).map(str::to_owned).collect();
    ensure!(!expressions.is_empty(), "the dashboard's panels ask for nothing");
    Ok(expressions)
}

/// The unit can be read. The program that it starts need not be installed for that: another stands in for it.
fn unit(path: &Path, target: &Path) -> Result<Outcome> {
    let text = read(path)?;
    ensure!(text.contains(PROGRAM), "{} does not start {PROGRAM}", path.display());
    let folder = target.join("unit");
    fs::create_dir_all(&folder)?;
    let copy = folder.join("snowmint.service");
    fs::write(&copy, text.replace(PROGRAM, "/bin/sh"))?;
    let verified = Command::new(SYSTEMD.program).args(["verify", "--man=no"]).arg(&copy).output()?;
    // It warns of what it does not know, and says that all is well.
    let told = String::from_utf8_lossy(&verified.stderr).into_owned();
    ensure!(verified.status.success() && !told.contains("snowmint.service"), "{}", told.trim());
    Ok(Outcome::Done)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use super::*;

    /// What `/metrics` has, as long as this tree has no source that says so.
    const METRICS: &[&str] = &[
        "snowmint_clock_error_bound_seconds",
        "snowmint_clock_rollback_ms",
        "snowmint_epoch_remaining_seconds",
        "snowmint_ids_minted_total",
        "snowmint_ids_per_worker_tick",
        "snowmint_lease_ceiling_headroom_seconds",
        "snowmint_lease_renew_failures_total",
        "snowmint_mark_sync_duration_seconds",
        "snowmint_mint_duration_seconds",
        "snowmint_refusals_total",
        "snowmint_sequence_exhausted_total",
        "snowmint_worker_codes",
    ];

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    fn text(path: &str) -> String {
        read(&root().join(path)).unwrap()
    }

    /// The words of a text that begin so; of a histogram's series, its name.
    fn metrics(text: &str) -> BTreeSet<String> {
        text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
            .filter(|word| word.starts_with("snowmint_"))
            .map(|word| {
                let histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| word.strip_suffix(end));
                histogram.unwrap_or(word).to_owned()
            })
            .collect()
    }

    /// What the service's source has in quotes, if it is a metric's name and nothing more.
    fn known() -> BTreeSet<String> {
        let Ok(source) = fs::read_to_string(root().join("host/src/service/metrics.rs")) else {
            return METRICS.iter().map(|&name| name.to_owned()).collect();
        };
        let is_name = |quoted: &&str| quoted.starts_with("snowmint_") && metrics(quoted).contains(*quoted);
        source.split('"').filter(is_name).map(str::to_owned).collect()
    }

    fn alerts() -> Vec<String> {
        let rules = text("deploy/prometheus/snowmint.rules.yml");
        let names = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
        names.map(str::to_owned).collect()
    }

    #[test]
    fn every_metric_that_is_watched_exists_and_every_one_that_exists_is_shown() {
        let known = known();
        assert!(known.len() >= METRICS.len(), "{known:?}");
        let shown: BTreeSet<_> = expressions(&root().join("deploy/grafana/snowmint.json"))
            .unwrap()
            .iter()
            .flat_map(|expression| metrics(expression))
            .collect();
        assert_eq!(shown, known, "the dashboard and the service");
        let rules = metrics(&text("deploy/prometheus/snowmint.rules.yml"));
        assert!(rules.len() > 7 && rules.is_subset(&known), "{:?}", rules.difference(&known));
        // A series in the trial of a rule that no service has would try nothing.
        let tried = metrics(&text("deploy/prometheus/snowmint.rules.test.yml"));
        assert_eq!(tried, rules, "the rules and their trial");
    }

    #[test]
    fn every_alert_is_tried_and_leads_to_a_page_that_speaks_of_it() {
        let alerts = alerts();
        assert!(alerts.len() > 10, "{alerts:?}");
        let (rules, tried) =
            (text("deploy/prometheus/snowmint.rules.yml"), text("deploy/prometheus/snowmint.rules.test.yml"));
        let page = text("docs/operations.md");
        for alert in &alerts {
            assert!(tried.contains(&format!("alertname=\"{alert}\"")), "{alert} is not tried");
            assert!(page.lines().any(|line| line == format!("### {alert}")), "no heading for {alert}");
            let link = format!("docs/operations.md#{}\n", alert.to_lowercase());
            assert!(rules.contains(&link), "{alert} leads nowhere");
        }
        let spoken_of = page.lines().filter(|line| line.starts_with("### Snowmint"));
        assert_eq!(spoken_of.count(), alerts.len(), "the page speaks of an alert that does not exist");
        for every in ["severity: ", "summary: ", "description: ", "runbook_url: "] {
            assert_eq!(rules.matches(every).count(), alerts.len(), "each alert has a {every}");
        }
    }

    #[test]
    fn alert_rules_fire_on_what_they_are_about() {
        let without = std::env::var(debian::WITHOUT).unwrap_or_default();
        if without.split(',').any(|program| program == PROMTOOL.program) {
            return;
        }
        alert_rules(&root().join("deploy/prometheus")).unwrap();
    }

    /// Flags are fields of the command's types, or named by `long`.
    #[test]
    fn every_flag_that_is_written_down_exists() {
        let mut sources = String::new();
        for file in fs::read_dir(root().join("host/src/cli")).unwrap() {
            sources.push_str(&read(&file.unwrap().path()).unwrap());
        }
        let has_serve = root().join("host/src/cli/serve.rs").is_file();
        let mut seen = 0;
        for path in ["docs/operations.md", "docs/slo.md", "deploy/systemd/snowmint.service"] {
            for line in text(path).lines().filter(|line| line.contains("snowmint ")) {
                let Some((_, command)) = line.trim().split_once("snowmint ") else { continue };
                let is_serve = command.starts_with("serve");
                let is_command = ["mint", "init", "lease", "layout", "decode", "serve"]
                    .iter()
                    .any(|name| command.starts_with(name));
                if !is_command || (is_serve && !has_serve) {
                    continue;
                }
                // What follows a backtick or a pipe is no longer the command.
                let command = command.split(['`', '|', '#', ';']).next().unwrap_or_default();
                for flag in command.split_whitespace().filter_map(|word| word.strip_prefix("--")) {
                    let flag = flag.split('=').next().unwrap_or_default();
                    let field = format!("    {}: ", flag.replace('-', "_"));
                    let exists = sources.contains(&field) || sources.contains(&format!("long = \"{flag}\""));
                    assert!(exists, "{path} has `--{flag}`, which is no flag: {line}");
                    seen += 1;
                }
            }
        }
        assert!(seen > 20, "{seen} flags were looked at");
    }
}
