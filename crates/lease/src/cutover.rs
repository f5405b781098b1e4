//! A cut-over to another layout: three acts of an operator over any store, each of which can be run again.
//!
//! | act | swaps in | afterwards |
//! |---|---|---|
//! | [`plan_cutover`] | the old layout's last millisecond, into the cluster record | every later swap compares that record, so that no end is raised above it |
//! | [`scan_cutover`] | a later last millisecond, if some end lay above already | nothing of the old layout is, or will be, above it |
//! | [`open_cutover`] | the new layout, with every code that it has and the old one has not | its grants begin above; holders of the old layout find that it is over |
//!
//! In between, old workers go on to the last tick and stop. Which IDs may follow which is decided by
//! [`snowmint_core::CutoverPlan`]; here it is only kept.
//!
//! **Any of them can be cut off, run again, or run by two operators at once.** Each begins by reading what there is, and
//! writes by comparing the cluster record alone: a plan moves to the later time of two, a scan only raises, and of two that
//! open, one finds it open. Nothing is taken on trust from the act before: opening looks at every end itself.

use std::fmt;

use snowmint_core::mutation::{self, Mutation};
use snowmint_core::{CutoverError, CutoverPlan, FormatHistory, HistoryError, Layout};

use crate::store::scan_complete;
use crate::{
    ClusterError, ClusterRecord, CodeRecord, FormerLayout, Now, Revision, Store, StoreError, Stored,
};

/// How often an act begins anew because somebody else changed the cluster record meanwhile.
const TRIES: usize = 8;

/// Why an act of a cut-over was not carried out. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CutoverRefusal {
    /// It cannot be promised that new IDs lie above old ones. The fault is the plan's.
    Plan(CutoverError),
    /// The region cannot be leased by the new layout. The fault is the plan's.
    Cluster(ClusterError),
    /// There is no plan: plan first.
    NotPlanned,
    /// An end lies above the plan: scan first.
    NotScanned {
        /// The last millisecond that may have been stamped by the old layout.
        end_ms: u64,
        /// The planned one.
        last_ms: u64,
    },
    /// The old layout is still minted by: to open now would only stop its workers early.
    NotYet {
        /// Its last millisecond.
        last_ms: u64,
        /// How long to wait, by the operator's clock.
        wait_ms: u64,
    },
}

impl fmt::Display for CutoverRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(error) => error.fmt(f),
            Self::Cluster(error) => error.fmt(f),
            Self::NotPlanned => f.write_str("no cut-over is planned in this store; plan it first"),
            Self::NotScanned { end_ms, last_ms } => write!(
                f,
                "the old layout may have been stamped up to {end_ms}, above its planned end {last_ms} (Unix ms); scan \
                 first, which moves the plan"
            ),
            Self::NotYet { last_ms, wait_ms } => write!(
                f,
                "the old layout is minted by up to {last_ms} (Unix ms): {wait_ms} ms to wait; to open now would only \
                 stop its workers early"
            ),
        }
    }
}

impl std::error::Error for CutoverRefusal {}

impl From<CutoverError> for CutoverRefusal {
    fn from(error: CutoverError) -> Self {
        Self::Plan(error)
    }
}

/// What came of an act: the cluster record as it is now.
type Outcome = Result<ClusterRecord, CutoverRefusal>;

/// Whether the cut-over to this layout is through.
fn is_open(cluster: &ClusterRecord, next: &Layout) -> bool {
    cluster.layout == *next && !cluster.former.is_empty()
}

/// The end of the tick that a millisecond lies in: a ceiling within a tick allows all of it.
fn tick_end_ms(layout: &Layout, ms: u64) -> u64 {
    (layout.first_ms_above(ms) - 1).min(layout.last_ms())
}

/// The plan that this record holds, with its last millisecond. Validity in time is for whoever plans: `now_ms` 0.
fn plan_of(cluster: &ClusterRecord, next: &Layout) -> Result<CutoverPlan, CutoverRefusal> {
    let last_ms = cluster.cutover_last_ms.ok_or(CutoverRefusal::NotPlanned)?;
    let last_ms = tick_end_ms(&cluster.layout, last_ms);
    Ok(CutoverPlan::new(&cluster.layout, next, last_ms.saturating_add(1), 0)?)
}

/// The cluster record once the plan is carried out.
fn opened(cluster: &ClusterRecord, plan: &CutoverPlan) -> Result<ClusterRecord, CutoverRefusal> {
    let mut opened = ClusterRecord {
        layout: *plan.new_layout(),
        cutover_last_ms: None,
        not_before_ms: cluster.not_before_ms.max(plan.new_floor_ms()),
        ..cluster.clone()
    };
    opened.former.push(FormerLayout { layout: cluster.layout, last_ms: plan.old_last_ms() });
    opened.check().map_err(CutoverRefusal::Cluster)?;
    Ok(opened)
}

/// The last millisecond that anybody may have been granted, as far as the records tell, and what was vouched for at a
/// recovery tells of those that it forgot.
fn reach_ms(cluster: &ClusterRecord, codes: &[(u32, Stored<CodeRecord>)]) -> u64 {
    if mutation::active(Mutation::CutoverWithoutScan) {
        return 0;
    }
    let end_ms = codes.iter().map(|(_, stored)| stored.record.end_ms).max().unwrap_or(0);
    end_ms.max(cluster.not_before_ms)
}

/// Reads the cluster record, lets `act` say what to put in its place (`None`: it is as it should be), and swaps that in.
fn change(
    store: &dyn Store,
    mut act: impl FnMut(
        &Stored<ClusterRecord>,
    ) -> Result<Result<Option<ClusterRecord>, CutoverRefusal>, StoreError>,
) -> Result<Outcome, StoreError> {
    let mut tries = 0;
    loop {
        let stored = store.cluster()?;
        let record = match act(&stored)? {
            Err(refusal) => return Ok(Err(refusal)),
            Ok(None) => return Ok(Ok(stored.record)),
            Ok(Some(record)) => record,
        };
        tries += 1;
        match store.swap_cluster(stored.revision, &record) {
            Ok(Revision { .. }) => return Ok(Ok(record)),
            // Another operator, or a recovery: what there is now may be all that was wanted.
            Err(StoreError::ClusterChanged) if tries < TRIES => {}
            Err(error) => return Err(error),
        }
    }
}

/// Plans that the old layout ends with its last tick before `cutover_ms`, and `next` begins then (Unix milliseconds):
/// the first of three acts. Returns the record, whose `cutover_last_ms` tells when that is.
///
/// `cutover_ms` should lie at least the longest window of any keeper ahead, else the scan moves it. Run again, or after
/// somebody else planned, the later time of both stands; where `next` is open already, nothing is changed.
pub fn plan_cutover(
    store: &dyn Store,
    next: &Layout,
    cutover_ms: u64,
    now: &Now,
) -> Result<Outcome, StoreError> {
    let plan = |cluster: &ClusterRecord| {
        if is_open(cluster, next) {
            return Ok(None);
        }
        let wanted = CutoverPlan::new(&cluster.layout, next, cutover_ms, 0)?;
        opened(cluster, &wanted)?;
        if cluster.cutover_last_ms.is_some_and(|last_ms| last_ms >= wanted.old_last_ms()) {
            // As planned before, or later. It must be one to `next` too.
            plan_of(cluster, next)?;
            return Ok(None);
        }
        let plan = CutoverPlan::new(&cluster.layout, next, cutover_ms, now.wall_ms)?;
        Ok(Some(ClusterRecord { cutover_last_ms: Some(plan.old_last_ms()), ..cluster.clone() }))
    };
    change(store, |stored| Ok(plan(&stored.record)))
}

/// Looks at every end, and moves the plan where one lies above: the second act. Returns the record, whose
/// `cutover_last_ms` is the last millisecond of the old layout for good.
///
/// Whoever was granted before the plan was known of may stamp up to what was confirmed to it, and nobody will be granted
/// more.
pub fn scan_cutover(store: &dyn Store, next: &Layout) -> Result<Outcome, StoreError> {
    change(store, |stored| {
        let cluster = &stored.record;
        if is_open(cluster, next) {
            return Ok(Ok(None));
        }
        let Some(last_ms) = cluster.cutover_last_ms else { return Ok(Err(CutoverRefusal::NotPlanned)) };
        // Read after the cluster record: whatever is swapped in under that is not above the plan.
        let codes = scan_complete(store, cluster)?;
        let raised_ms = tick_end_ms(&cluster.layout, last_ms.max(reach_ms(cluster, &codes)));
        let raised = ClusterRecord { cutover_last_ms: Some(raised_ms), ..cluster.clone() };
        Ok(plan_of(&raised, next)
            .and_then(|plan| opened(cluster, &plan))
            .map(|_| (raised_ms > last_ms).then_some(raised)))
    })
}

/// Makes `next` the layout to mint by: the third act, once the old layout's last millisecond is past. Returns the new
/// record.
///
/// Creates first every code that `next` has and the store has not; a code that it has keeps its record, whose end the next
/// grant begins above. Codes that `next` has no room for stay where they are, and are not granted.
pub fn open_cutover(store: &dyn Store, next: &Layout, now: &Now) -> Result<Outcome, StoreError> {
    change(store, |stored| {
        let cluster = &stored.record;
        if is_open(cluster, next) {
            return Ok(Ok(None));
        }
        let codes = scan_complete(store, cluster)?;
        let record = match open(cluster, next, &codes, now) {
            Ok(record) => record,
            Err(refusal) => return Ok(Err(refusal)),
        };
        create_missing(store, &record, &codes)?;
        Ok(Ok(Some(record)))
    })
}

fn open(
    cluster: &ClusterRecord,
    next: &Layout,
    codes: &[(u32, Stored<CodeRecord>)],
    now: &Now,
) -> Result<ClusterRecord, CutoverRefusal> {
    let plan = plan_of(cluster, next)?;
    let record = opened(cluster, &plan)?;
    let (last_ms, end_ms) = (plan.old_last_ms(), reach_ms(cluster, codes));
    if end_ms > last_ms {
        return Err(CutoverRefusal::NotScanned { end_ms, last_ms });
    }
    match last_ms.saturating_add(1).saturating_sub(now.wall_ms) {
        0 => Ok(record),
        wait_ms => Err(CutoverRefusal::NotYet { last_ms, wait_ms }),
    }
}

fn create_missing(
    store: &dyn Store,
    cluster: &ClusterRecord,
    codes: &[(u32, Stored<CodeRecord>)],
) -> Result<(), StoreError> {
    let missing = |codes: &[(u32, Stored<CodeRecord>)]| -> Vec<_> {
        let is_missing = |code: &u32| codes.binary_search_by_key(code, |(existing, _)| *existing).is_err();
        (0..cluster.codes()).filter(is_missing).map(|code| (code, CodeRecord::UNUSED)).collect()
    };
    let mut wanted = missing(codes);
    for _ in 0..TRIES {
        if wanted.is_empty() {
            return Ok(());
        }
        match store.create_codes(&wanted) {
            // Another operator creates them too, and is as far as it is.
            Err(StoreError::AlreadyInitialised { .. }) => wanted = missing(&store.scan()?),
            result => return result,
        }
    }
    Err(StoreError::ClusterChanged)
}

/// Takes a plan back that is not open yet: the old layout goes on. Nothing, where none is planned.
pub fn withdraw_cutover(store: &dyn Store) -> Result<ClusterRecord, StoreError> {
    let withdraw = |cluster: &ClusterRecord| {
        cluster.cutover_last_ms.map(|_| ClusterRecord { cutover_last_ms: None, ..cluster.clone() })
    };
    match change(store, |stored| Ok(Ok(withdraw(&stored.record))))? {
        Ok(record) => Ok(record),
        // It refuses nothing.
        Err(_) => Err(StoreError::ClusterChanged),
    }
}

/// How IDs of this cluster are read: by the layouts before, each up to its last millisecond, and by the current one.
pub fn history(cluster: &ClusterRecord) -> Result<FormatHistory, HistoryError> {
    let layouts = cluster.former.iter().map(|former| former.layout).chain([cluster.layout]);
    let mut layouts = layouts;
    let mut history = FormatHistory::new(layouts.next().unwrap_or(cluster.layout));
    for (former, next) in cluster.former.iter().zip(layouts) {
        // What was carried out could be planned.
        let plan = CutoverPlan::new(&former.layout, &next, former.last_ms.saturating_add(1), 0)
            .map_err(|_| HistoryError::OtherLayout)?;
        history = history.after(&plan)?;
    }
    Ok(history)
}
