//! A command's steps: each announced, timed, and told again in a table at the end.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

/// How a step that did not fail went.
pub(crate) enum Outcome {
    Done,
    /// Done, and this is worth knowing.
    Note(String),
    /// Not done, and this is why.
    Skipped(String),
}

/// Steps done so far. A failed step does not stop the next: one run shows all that is wrong.
pub(crate) struct Steps {
    command: &'static str,
    rows: Vec<Row>,
}

struct Row {
    name: &'static str,
    took: Duration,
    result: Result<Outcome>,
}

impl Steps {
    pub(crate) fn new(command: &'static str) -> Self {
        Self { command, rows: Vec::new() }
    }

    /// Does a step; true unless it failed.
    pub(crate) fn step(&mut self, name: &'static str, work: impl FnOnce() -> Result<Outcome>) -> bool {
        eprintln!("\n==> {name}");
        let started = Instant::now();
        let result = work();
        match &result {
            Ok(Outcome::Done) => {}
            Ok(Outcome::Note(text)) => eprintln!("{text}"),
            Ok(Outcome::Skipped(why)) => eprintln!("skipped: {why}"),
            Err(error) => eprintln!("error: {error:#}"),
        }
        let fine = result.is_ok();
        self.rows.push(Row { name, took: started.elapsed(), result });
        fine
    }

    /// Prints the table; an error if any step failed.
    pub(crate) fn finish(self) -> Result<()> {
        eprint!("\n{}", self.table());
        let failed: Vec<_> = self.rows.iter().filter(|row| row.result.is_err()).map(|row| row.name).collect();
        ensure!(failed.is_empty(), "cargo xtask {}: {} failed", self.command, failed.join(", "));
        Ok(())
    }

    fn table(&self) -> String {
        let width = self.rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
        let mut table = String::new();
        for Row { name, took, result } in &self.rows {
            let (word, more) = match result {
                Ok(Outcome::Done) => ("ok", ""),
                Ok(Outcome::Note(text)) => ("ok", text.as_str()),
                Ok(Outcome::Skipped(why)) => ("skipped", why.as_str()),
                Err(_) => ("FAILED", "see above"),
            };
            // One line a row: the rest of a longer text was printed with its step.
            let more = more.lines().next().unwrap_or_default();
            let line = format!("{name:width$}  {:>6.1} s  {word:7}  {more}", took.as_secs_f64());
            let _ = writeln!(table, "{}", line.trim_end());
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn a_failed_step_fails_the_command_and_the_steps_after_it_still_run() {
        let mut steps = Steps::new("test");
        assert!(steps.step("one", || Ok(Outcome::Done)));
        assert!(!steps.step("two", || Err(anyhow!("broken"))));
        assert!(steps.step("three", || Ok(Outcome::Skipped("no such program\nmore".into()))));
        let table = steps.table();
        assert!(table.lines().nth(1).is_some_and(|line| line.contains("FAILED")), "{table}");
        assert!(
            table.lines().nth(2).is_some_and(|line| line.ends_with("skipped  no such program")),
            "{table}"
        );
        assert_eq!(steps.finish().unwrap_err().to_string(), "cargo xtask test: two failed");
    }

    #[test]
    fn a_command_without_a_failed_step_is_fine() {
        let mut steps = Steps::new("test");
        steps.step("one", || Ok(Outcome::Note("a note".into())));
        assert!(steps.finish().is_ok());
    }
}
