//! What the processes of a fleet told, and what must be true of it.
//!
//! The deadline and the confirmed end are reckoned here anew, from when swaps were sent and what came of them, not taken
//! from the keeper that is under test.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use snowmint_core::{Id, Layout};
use snowmint_lease::{CodeRecord, Stored};

use super::child::{Line, Orders};

/// IDs that were handed out at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub first: u64,
    pub stride: u64,
    pub count: u32,
    /// The boot-time clock before and after they were asked for.
    pub before_boot_ms: u64,
    pub after_boot_ms: u64,
    /// The wall clock of the process afterwards.
    pub wall_ms: u64,
}

/// A swap that made or renewed a grant, and of which the store has confirmed that it holds.
#[derive(Clone, Copy, Debug)]
struct Confirmed {
    code: u32,
    term: u32,
    floor_ms: u64,
    end_ms: u64,
    sent_boot_ms: u64,
    /// When its process knew.
    known_boot_ms: u64,
}

/// What the keeper told.
#[derive(Clone, Debug)]
pub struct Told {
    pub kind: String,
    pub ticket: u64,
    pub text: String,
    pub boot_ms: u64,
}

/// Why nothing was minted, from when on.
#[derive(Clone, Debug)]
pub struct Refused {
    pub reason: String,
    pub error: String,
    pub boot_ms: u64,
}

/// Everything that one process told.
#[derive(Clone, Debug)]
pub struct Log {
    pub owner: String,
    pub layout: Layout,
    pub window_ms: u32,
    /// The boot-time and the wall clock when it had a worker.
    pub began: Option<(u64, u64)>,
    pub not_begun: Option<String>,
    pub asks_to_swap: bool,
    /// The swaps that were sent, by nonce.
    sent: BTreeMap<u64, Confirmed>,
    confirmed: Vec<Confirmed>,
    /// Swaps that failed: when they were sent, and how.
    pub failed: Vec<(u64, String)>,
    pub notices: Vec<Told>,
    pub runs: Vec<Run>,
    pub refusals: Vec<Refused>,
    is_refused: bool,
    /// How far its wall clock was ahead of its boot-time clock: at first, and after each step.
    pub ahead_ms: Vec<u64>,
    /// Whether a stop gave the code back.
    pub ended: Option<bool>,
}

impl Log {
    pub fn new(orders: &Orders) -> Self {
        Self {
            owner: orders.owner.clone(),
            layout: orders.layout(),
            window_ms: orders.window_ms,
            began: None,
            not_begun: None,
            asks_to_swap: false,
            sent: BTreeMap::new(),
            confirmed: Vec::new(),
            failed: Vec::new(),
            notices: Vec::new(),
            runs: Vec::new(),
            refusals: Vec::new(),
            is_refused: false,
            ahead_ms: Vec::new(),
            ended: None,
        }
    }

    /// Takes in what the process told next.
    pub fn take(&mut self, line: Line) {
        match line {
            Line::Began { boot_ms, wall_ms } => {
                self.began = Some((boot_ms, wall_ms));
                self.ahead_ms.push(wall_ms - boot_ms);
            }
            Line::Stepped { boot_ms, wall_ms } => self.ahead_ms.push(wall_ms - boot_ms),
            Line::NotBegun { error } => self.not_begun = Some(error),
            Line::AsksToSwap => self.asks_to_swap = true,
            Line::Swap {
                code,
                term,
                floor_ms,
                end_ms,
                is_active,
                nonce,
                sent_boot_ms,
                replied_boot_ms,
                error,
            } => {
                if let Some(error) = &error {
                    self.failed.push((sent_boot_ms, error.clone()));
                }
                if is_active {
                    let known_boot_ms = replied_boot_ms;
                    let sent = Confirmed { code, term, floor_ms, end_ms, sent_boot_ms, known_boot_ms };
                    self.sent.insert(nonce, sent);
                    if error.is_none() {
                        self.confirmed.push(sent);
                    }
                }
            }
            Line::Read { code, nonce, replied_boot_ms } => {
                if let Some(sent) = self.sent.get(&nonce).filter(|sent| sent.code == code) {
                    self.confirmed.push(Confirmed { known_boot_ms: replied_boot_ms, ..*sent });
                }
            }
            Line::Notice { kind, ticket, text, boot_ms } => {
                self.notices.push(Told { kind, ticket, text, boot_ms });
            }
            Line::Run(first, stride, count, before_boot_ms, after_boot_ms, wall_ms) => {
                self.is_refused = false;
                self.runs.push(Run { first, stride, count, before_boot_ms, after_boot_ms, wall_ms });
            }
            Line::Refused { reason, error, boot_ms } => {
                self.is_refused = true;
                self.refusals.push(Refused { reason, error, boot_ms });
            }
            Line::Ended { is_released } => self.ended = Some(is_released),
        }
    }

    /// The code of the last run.
    pub fn code(&self) -> u32 {
        u32::try_from(self.layout.decode(Id::new(self.runs.last().unwrap().first)).worker).unwrap()
    }

    /// The last millisecond that was stamped with a code; 0 if none was.
    pub fn stamped_ms(&self, code: u32) -> u64 {
        let layout = &self.layout;
        let runs = self.runs.iter().map(|run| Id::new(run.first));
        let own = runs.filter(|&id| layout.decode(id).worker == u64::from(code));
        own.map(|id| layout.time_of(id).unix_ms()).max().unwrap_or(0)
    }

    /// The grants that were confirmed: code, term, floor, and the highest end.
    pub fn grants(&self) -> Vec<(u32, u32, u64, u64)> {
        let mut grants = BTreeMap::new();
        for Confirmed { code, term, floor_ms, end_ms, .. } in &self.confirmed {
            let end: &mut u64 = grants.entry((*floor_ms, *code, *term)).or_default();
            *end = (*end).max(*end_ms);
        }
        grants.into_iter().map(|((floor_ms, code, term), end_ms)| (code, term, floor_ms, end_ms)).collect()
    }

    /// The last deadline of any grant: when the last confirmed swap was sent, and a window.
    pub fn deadline_boot_ms(&self) -> u64 {
        let sent_ms = self.confirmed.iter().map(|confirmed| confirmed.sent_boot_ms).max();
        sent_ms.map_or(0, |sent_ms| sent_ms + u64::from(self.window_ms))
    }

    /// How long after this moment IDs were asked for, and had.
    pub fn first_run_since(&self, since_boot_ms: u64) -> Option<u64> {
        let at = self.runs.partition_point(|run| run.before_boot_ms < since_boot_ms);
        self.runs.get(at).map(|run| run.after_boot_ms - since_boot_ms)
    }

    /// Whether the last that came of asking for IDs was a refusal.
    pub fn is_refusing(&self) -> bool {
        self.is_refused
    }

    /// The reasons of the refusals since this moment, without repetition.
    pub fn reasons_since(&self, since_boot_ms: u64) -> Vec<&str> {
        let mut reasons: Vec<_> = self
            .refusals
            .iter()
            .filter(|refused| refused.boot_ms >= since_boot_ms)
            .map(|refused| refused.reason.as_str())
            .collect();
        reasons.sort_unstable();
        reasons.dedup();
        reasons
    }

    /// The notices of one kind.
    pub fn notices_of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Told> {
        self.notices.iter().filter(move |told| told.kind == kind)
    }

    /// What was told last, for people.
    pub fn tail(&self) -> String {
        let mut text = format!("{}: {} runs, began {:?}", self.owner, self.runs.len(), self.began);
        let _ = write!(text, ", not begun {:?}, last run {:?}", self.not_begun, self.runs.last());
        for told in self.notices.iter().rev().take(8).rev() {
            let _ = write!(text, "\n  {} {}", told.boot_ms, told.text);
        }
        for refused in self.refusals.iter().rev().take(4).rev() {
            let _ = write!(text, "\n  {} refused: {}", refused.boot_ms, refused.error);
        }
        text
    }
}

/// What all processes of a fleet, or of several, told.
#[derive(Clone, Debug, Default)]
pub struct Collector(Arc<Mutex<Vec<Log>>>);

impl Collector {
    /// A place for a process.
    pub fn enter(&self, log: Log) -> usize {
        let mut logs = self.lock();
        logs.push(log);
        logs.len() - 1
    }

    pub fn take(&self, at: usize, line: Line) {
        self.lock()[at].take(line);
    }

    pub fn look<T>(&self, look: impl FnOnce(&[Log]) -> T) -> T {
        look(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Log>> {
        // A look that fails is a test that fails; those who take lines in need not fail with it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails on any violation.
    pub fn check(&self) {
        self.look(|logs| {
            let ids: u64 = logs.iter().flat_map(|log| &log.runs).map(|run| u64::from(run.count)).sum();
            let runs: usize = logs.iter().map(|log| log.runs.len()).sum();
            println!("{} processes minted {ids} IDs in {runs} runs", logs.len());
            none_of(&violations(logs));
        });
    }

    /// Fails where an ID lies above what etcd's record of its code says.
    pub fn check_records(&self, region: u32, records: &[(u32, Stored<CodeRecord>)]) {
        self.look(|logs| none_of(&violations_of_records(logs, region, records)));
    }
}

fn none_of(violations: &[String]) {
    let shown = violations.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
    assert!(violations.is_empty(), "{} violations:\n{shown}", violations.len());
}

/// Everything that must not be:
///
/// | violation | rule |
/// |---|---|
/// | twice | no ID is handed out twice, by whichever processes |
/// | not of one tick | a run's IDs lie in one tick, of one node |
/// | by no grant | each ID lies above the floor of a grant of its process, which the store had confirmed before it was handed out |
/// | above the end | and at or below the highest end confirmed until then |
/// | late | IDs that were asked for at or after the deadline: a window after the sending of the last swap confirmed until then |
pub fn violations(logs: &[Log]) -> Vec<String> {
    let mut found = Vec::new();
    // Of each node: the cursors of each run, and whose it is.
    let mut cursors: BTreeMap<Node, Vec<(u128, u128, usize)>> = BTreeMap::new();
    for (at, log) in logs.iter().enumerate() {
        let layout = &log.layout;
        let grants = grants_of(log);
        for run in &log.runs {
            let first = layout.decode(Id::new(run.first));
            let last = layout.decode(Id::new(run.first + run.stride * u64::from(run.count - 1)));
            let cursor = (u128::from(first.tick) << 64) | u128::from(first.sequence);
            let node = (layout.to_string(), first.region, first.worker);
            cursors.entry(node).or_default().push((cursor, cursor + u128::from(run.count), at));
            let is_one_tick = (last.tick, last.region, last.worker, last.sequence)
                == (first.tick, first.region, first.worker, first.sequence + u64::from(run.count) - 1);
            if !is_one_tick || first.reserved || run.count == 0 {
                found.push(format!("{}: a run is not of one tick and node: {run:?}", log.owner));
            }
            if let Some(what) = grants.get(&first.worker).map_or(Some("by no grant"), |grants| {
                against_grants(grants, layout, layout.time_of(Id::new(run.first)).unix_ms(), run)
            }) {
                found.push(format!("{}: {what}: {run:?}, {first:?}", log.owner));
            }
        }
    }
    for ((_, region, worker), mut cursors) in cursors {
        cursors.sort_unstable();
        for pair in cursors.windows(2) {
            let [(_, end, one), (start, _, other)] = pair else { continue };
            if start < end {
                let (one, other) = (&logs[*one].owner, &logs[*other].owner);
                let (tick, sequence) = (start >> 64, start & u128::from(u64::MAX));
                found.push(format!(
                    "twice: region {region}, code {worker}, tick {tick}, sequence {sequence}, by {one} and {other}"
                ));
            }
        }
    }
    found
}

/// Layout, region and worker.
type Node = (String, u64, u64);

/// A grant as its process came to know it.
struct Granted {
    floor_ms: u64,
    /// When known, then the highest end and the latest deadline until then. Ascending in all three.
    known: Vec<(u64, u64, u64)>,
}

/// The grants of each code, by their floors.
fn grants_of(log: &Log) -> BTreeMap<u64, Vec<Granted>> {
    let mut by_grant: BTreeMap<(u64, u64, u32), Vec<&Confirmed>> = BTreeMap::new();
    for confirmed in &log.confirmed {
        let grant = (u64::from(confirmed.code), confirmed.floor_ms, confirmed.term);
        by_grant.entry(grant).or_default().push(confirmed);
    }
    let mut grants: BTreeMap<u64, Vec<Granted>> = BTreeMap::new();
    for ((code, floor_ms, _), mut confirmed) in by_grant {
        confirmed.sort_by_key(|confirmed| confirmed.known_boot_ms);
        let (mut end_ms, mut deadline_ms) = (0, 0);
        let known = confirmed.iter().map(|confirmed| {
            end_ms = confirmed.end_ms.max(end_ms);
            deadline_ms = deadline_ms.max(confirmed.sent_boot_ms + u64::from(log.window_ms));
            (confirmed.known_boot_ms, end_ms, deadline_ms)
        });
        grants.entry(code).or_default().push(Granted { floor_ms, known: known.collect() });
    }
    grants
}

fn against_grants(grants: &[Granted], layout: &Layout, time_ms: u64, run: &Run) -> Option<&'static str> {
    // The latest grant that begins below: those of one code do not overlap.
    let at = grants.partition_point(|grant| layout.first_ms_above(grant.floor_ms) <= time_ms);
    let Some(grant) = at.checked_sub(1).and_then(|at| grants.get(at)) else { return Some("by no grant") };
    let known = grant.known.partition_point(|&(known_ms, ..)| known_ms <= run.after_boot_ms);
    let Some((_, end_ms, deadline_ms)) = known.checked_sub(1).and_then(|at| grant.known.get(at)) else {
        return Some("by no grant");
    };
    if time_ms > *end_ms {
        return Some("above the end");
    }
    // The lease is asked about once a tick: within one that was checked before, a millisecond may have gone by.
    (run.before_boot_ms > *deadline_ms).then_some("late")
}

/// What lies above the end in etcd's record of its code.
pub fn violations_of_records(
    logs: &[Log],
    region: u32,
    records: &[(u32, Stored<CodeRecord>)],
) -> Vec<String> {
    let mut found = Vec::new();
    for log in logs {
        for run in &log.runs {
            let id = Id::new(run.first);
            let parts = log.layout.decode(id);
            if parts.region != u64::from(region) {
                continue;
            }
            let record = records.iter().find(|(code, _)| u64::from(*code) == parts.worker);
            let end_ms = record.map_or(0, |(_, stored)| stored.record.end_ms);
            if log.layout.time_of(id).unix_ms() > end_ms {
                let owner = &log.owner;
                found.push(format!(
                    "{owner}: {run:?} lies above etcd's end {end_ms} of code {}",
                    parts.worker
                ));
            }
        }
    }
    found
}
