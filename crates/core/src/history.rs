//! Formats over time: which layout owns which IDs, and how to pass from one to the next.

use core::fmt;

use crate::{FieldError, Id, Layout, LayoutError, LayoutTextError, Parts, Role, UnixTime};

/// The most formats that a history holds.
pub const FORMATS_MAX: usize = 8;

/// A layout, and the IDs that are its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// The layout.
    pub layout: Layout,
    /// The smallest ID that it owns.
    pub first: Id,
    /// The largest.
    pub last: Id,
}

/// Layouts with the range of IDs that each owns, oldest first. IDs that exist are never read by another layout than
/// the one that made them.
///
/// ```
/// use snowmint_core::{CutoverPlan, Field, FormatHistory, Layout, Role, UnixTime};
///
/// let old = Layout::SNOWMINT;
/// let fields = [
///     Field::new(Role::Reserved, 1),
///     Field::new(Role::Timestamp, 41),
///     Field::new(Role::Region, 3),
///     Field::new(Role::Worker, 9),
///     Field::new(Role::Sequence, 10),
/// ];
/// let new = Layout::new(&fields, old.epoch_unix_ms(), old.tick_ns())?;
///
/// let now_ms = UnixTime::parse(b"2027-01-01")?.unix_ms();
/// let plan = CutoverPlan::new(&old, &new, now_ms + 86_400_000, now_ms)?;
/// let history = FormatHistory::new(old).after(&plan)?;
///
/// let id = old.compose(1_000, old.node(3, 200)?, 4_095)?;
/// assert_eq!(history.layout_of(id), Some(&old));
/// assert_eq!(history.layout_of(plan.new_first_id()), Some(&new));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FormatHistory {
    /// One or more, in order; the rest is `None`.
    formats: [Option<Format>; FORMATS_MAX],
}

impl FormatHistory {
    /// The history of a layout that was never changed: it owns every ID.
    pub const fn new(layout: Layout) -> Self {
        let mut formats = [None; FORMATS_MAX];
        let [oldest, ..] = &mut formats;
        *oldest = Some(Format { layout, first: Id::new(0), last: Id::new(u64::MAX) });
        Self { formats }
    }

    /// A history from its formats, oldest first, as a store keeps them. Each must begin above the one before.
    pub fn from_formats(formats: &[Format]) -> Result<Self, HistoryError> {
        if formats.is_empty() {
            return Err(HistoryError::Empty);
        }
        let mut history = Self { formats: [None; FORMATS_MAX] };
        let mut above = None;
        for (nth, format) in formats.iter().enumerate() {
            if format.first > format.last || above.is_some_and(|above| format.first <= above) {
                return Err(HistoryError::Overlap { nth });
            }
            above = Some(format.last);
            *history.formats.get_mut(nth).ok_or(HistoryError::Full)? = Some(*format);
        }
        Ok(history)
    }

    /// The history after a cut-over: what the current layout owned is cut at its last ID, and the new layout owns
    /// everything from its first. What lies between belongs to nobody.
    pub fn after(&self, plan: &CutoverPlan) -> Result<Self, HistoryError> {
        let mut formats = self.formats;
        let mut places = formats.iter_mut();
        let current = places.by_ref().rfind(|place| place.is_some()).and_then(Option::as_mut);
        match current {
            Some(current) if current.layout == plan.old && current.first <= plan.old_last_id => {
                current.last = plan.old_last_id;
            }
            _ => return Err(HistoryError::OtherLayout),
        }
        let place = formats.iter_mut().find(|place| place.is_none()).ok_or(HistoryError::Full)?;
        *place = Some(Format { layout: plan.new, first: plan.new_first_id, last: Id::new(u64::MAX) });
        Ok(Self { formats })
    }

    /// The formats, oldest first.
    pub fn formats(&self) -> impl DoubleEndedIterator<Item = &Format> {
        self.formats.iter().flatten()
    }

    /// The layout that is minted by.
    pub fn current(&self) -> &Layout {
        // There is always one: every constructor sees to it.
        self.formats().next_back().map_or(&Layout::SNOWMINT, |format| &format.layout)
    }

    /// The layout that owns an ID; `None` for what lies between two formats, which nobody made.
    pub fn layout_of(&self, id: Id) -> Option<&Layout> {
        self.formats().find(|format| (format.first..=format.last).contains(&id)).map(|format| &format.layout)
    }

    /// Takes an ID apart by the layout that owns it.
    pub fn decode(&self, id: Id) -> Option<(&Layout, Parts)> {
        self.layout_of(id).map(|layout| (layout, layout.decode(id)))
    }
}

impl fmt::Debug for FormatHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FormatHistory({self})")
    }
}

/// The canonical text, for fingerprints: each format as `first..last` and its layout's text, oldest first, with `; `
/// between.
impl fmt::Display for FormatHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, format) in self.formats().enumerate() {
            let separator = if nth == 0 { "" } else { "; " };
            write!(f, "{separator}{}..{} {}", format.first, format.last, format.layout)?;
        }
        Ok(())
    }
}

/// Reads the canonical text back, and nothing else.
impl core::str::FromStr for FormatHistory {
    type Err = HistoryError;

    fn from_str(text: &str) -> Result<Self, HistoryError> {
        // Every place is overwritten before it is read.
        let mut formats =
            [Format { layout: Layout::SNOWMINT, first: Id::new(0), last: Id::new(0) }; FORMATS_MAX];
        let mut len = 0;
        for part in text.split("; ") {
            let (range, layout) = part.split_once(' ').ok_or(HistoryError::Text)?;
            let (first, last) = range.split_once("..").ok_or(HistoryError::Text)?;
            let layout = layout.parse().map_err(HistoryError::Layout)?;
            *formats.get_mut(len).ok_or(HistoryError::Full)? =
                Format { layout, first: bound(first)?, last: bound(last)? };
            len += 1;
        }
        Self::from_formats(formats.get(..len).unwrap_or_default())
    }
}

/// A decimal ID without leading zeros, so that two texts are one history only if they are the same bytes.
fn bound(text: &str) -> Result<Id, HistoryError> {
    let is_plain = text == "0" || !text.starts_with('0');
    crate::TextForm::Decimal.parse(text.as_bytes()).ok().filter(|_| is_plain).ok_or(HistoryError::Text)
}

/// Why something is not a history of formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HistoryError {
    /// There is no format.
    Empty,
    /// More than [`FORMATS_MAX`] formats.
    Full,
    /// A format does not begin above the one before, or ends before it begins.
    Overlap {
        /// Which, counted from 0.
        nth: usize,
    },
    /// The plan leads away from another layout than the current one.
    OtherLayout,
    /// Not the canonical text of a history.
    Text,
    /// A layout in the text is none.
    Layout(LayoutTextError),
}

impl fmt::Display for HistoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the history lists no format; give the layout in use"),
            Self::Full => {
                write!(f, "the history would list more than {FORMATS_MAX} formats, the most supported")
            }
            Self::Overlap { nth } => write!(
                f,
                "format {nth} (from 0) of the history does not lie above the one before; list them oldest first, \
                 with disjoint ranges"
            ),
            Self::OtherLayout => f.write_str(
                "the plan does not lead away from the history's current layout; plan again from that one",
            ),
            Self::Text => {
                f.write_str("not the canonical text of a history, such as `0..18446744073709551615 LAYOUT`")
            }
            Self::Layout(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for HistoryError {}

/// A proven way from one layout to the next: every ID that the new one can make lies above every ID that the old one
/// can still make.
///
/// The proof needs three things, which [`CutoverPlan::new`] checks:
///
/// 1. Both layouts have nothing variable above the timestamp. So the largest ID of the old layout up to its last tick
///    is that tick with every lower bit set, and the smallest of the new is its first tick with none.
/// 2. The new layout's first tick begins after the old layout's last has ended.
/// 3. The smallest new ID is greater than the largest old one, as numbers.
///
/// The old layout's end is kept by the lease: no ceiling that it grants lies above [`CutoverPlan::old_last_ms`], so a
/// writer that lags is refused by its own bound; and the new layout's grants begin above
/// [`CutoverPlan::new_floor_ms`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutoverPlan {
    old: Layout,
    new: Layout,
    old_last_tick: u64,
    new_first_tick: u64,
    old_last_id: Id,
    new_first_id: Id,
}

impl CutoverPlan {
    /// Plans that the new layout begins at `cutover_ms`, or with its first tick after, and that the old one ends with
    /// its last tick before. `now_ms` is the clock of the planner, as all in Unix milliseconds.
    pub fn new(old: &Layout, new: &Layout, cutover_ms: u64, now_ms: u64) -> Result<Self, CutoverError> {
        for (side, layout) in [(Side::Old, old), (Side::New, new)] {
            layout.check_mints().map_err(|error| CutoverError::NotMinted { side, error })?;
            if let Some((field, _)) = layout.variable_above_timestamp() {
                return Err(CutoverError::NotTimeFirst { side, role: field.role() });
            }
        }
        if old == new {
            return Err(CutoverError::SameLayout);
        }
        // Tick 0 is never minted, so the first tick that can be the last is 1.
        let before = old.tick_of_ms(cutover_ms).checked_sub(1).filter(|tick| *tick > 0);
        let old_last_tick = before.ok_or(CutoverError::BeforeOldEpoch)?.min(old.last_tick());
        let old_last_ms = old.last_ms_of_tick(old_last_tick);
        // An end that the layout has by itself cannot have been passed by anybody.
        if old_last_ms <= now_ms && old_last_tick < old.last_tick() {
            return Err(CutoverError::Past { old_last_ms, now_ms });
        }
        let within = new.tick_of_ms(cutover_ms);
        let new_first_tick =
            if new.first_ms_of_tick(within) < cutover_ms { within.saturating_add(1) } else { within };
        if new_first_tick == 0 || cutover_ms < new.epoch_unix_ms() {
            return Err(CutoverError::BeforeNewEpoch { first_ms: new.first_ms_of_tick(1) });
        }
        if new_first_tick > new.last_tick() {
            return Err(CutoverError::AfterNewEnd { last_ms: new.last_ms() });
        }
        let old_last_id = Id::new(old.timestamp.put(old_last_tick) | old.variable_mask());
        let new_first_id = Id::new(new.timestamp.put(new_first_tick));
        if new_first_id <= old_last_id {
            return Err(CutoverError::ValuesFall { old_last_id, new_first_id });
        }
        Ok(Self { old: *old, new: *new, old_last_tick, new_first_tick, old_last_id, new_first_id })
    }

    /// The layout that ends.
    pub const fn old_layout(&self) -> &Layout {
        &self.old
    }

    /// The layout that begins.
    pub const fn new_layout(&self) -> &Layout {
        &self.new
    }

    /// The last tick of the old layout.
    pub const fn old_last_tick(&self) -> u64 {
        self.old_last_tick
    }

    /// The last Unix millisecond that the old layout may stamp: the ceiling of every lease that is granted under it.
    pub const fn old_last_ms(&self) -> u64 {
        self.old.last_ms_of_tick(self.old_last_tick)
    }

    /// The largest ID that the old layout can make.
    pub const fn old_last_id(&self) -> Id {
        self.old_last_id
    }

    /// The first Unix millisecond that the new layout stamps.
    pub const fn new_first_ms(&self) -> u64 {
        self.new.first_ms_of_tick(self.new_first_tick)
    }

    /// The floor of every grant under the new layout: it begins in the tick after.
    pub const fn new_floor_ms(&self) -> u64 {
        self.new_first_ms().saturating_sub(1)
    }

    /// The smallest ID that the new layout can make.
    pub const fn new_first_id(&self) -> Id {
        self.new_first_id
    }

    /// An ID of the old layout, checked against the plan: a reader's guard against writers outside any lease.
    pub fn check_old(&self, id: Id) -> Result<(), FieldError> {
        let tick = self.old.decode(id).tick;
        if tick > self.old_last_tick {
            return Err(FieldError { role: Role::Timestamp, value: tick, max: self.old_last_tick });
        }
        Ok(())
    }
}

/// Which of the two layouts of a cut-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The one that ends.
    Old,
    /// The one that begins.
    New,
}

impl Side {
    /// `old` or `new`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Old => "old",
            Self::New => "new",
        }
    }
}

/// Why a cut-over cannot be promised. The fault is the plan's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CutoverError {
    /// A layout cannot be minted by.
    NotMinted {
        /// Which.
        side: Side,
        /// Why.
        error: LayoutError,
    },
    /// Something variable stands above the timestamp, so that new IDs fall among old ones.
    NotTimeFirst {
        /// In which layout.
        side: Side,
        /// What.
        role: Role,
    },
    /// The two layouts are the same.
    SameLayout,
    /// The cut-over lies before the old layout's first tick.
    BeforeOldEpoch,
    /// The old layout's last tick would be over already: IDs above it may exist.
    Past {
        /// The last millisecond that the old layout would stamp.
        old_last_ms: u64,
        /// The planner's clock.
        now_ms: u64,
    },
    /// The new layout would not have begun.
    BeforeNewEpoch {
        /// The first millisecond that it can stamp.
        first_ms: u64,
    },
    /// The new layout would have ended.
    AfterNewEnd {
        /// The last millisecond that it can stamp.
        last_ms: u64,
    },
    /// The smallest new ID would not lie above the largest old one.
    ValuesFall {
        /// The largest old ID.
        old_last_id: Id,
        /// The smallest new ID.
        new_first_id: Id,
    },
}

impl fmt::Display for CutoverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = UnixTime::from_unix_ms;
        match *self {
            Self::NotMinted { side, error } => {
                write!(f, "the {} layout cannot be minted by: {error}", side.name())
            }
            Self::NotTimeFirst { side, role } => write!(
                f,
                "the {} layout has its {} above the timestamp, so new IDs would fall among old ones: no cut-over can \
                 keep them apart; keep both kinds in separate columns instead",
                side.name(),
                role.name()
            ),
            Self::SameLayout => {
                f.write_str("the old and the new layout are the same; there is nothing to cut over")
            }
            Self::BeforeOldEpoch => {
                f.write_str("the cut-over lies before the old layout made any ID; choose a later time")
            }
            Self::Past { old_last_ms, now_ms } => write!(
                f,
                "the old layout would have ended on {}, and it is {}: IDs above its end may exist; choose a later \
                 time, by at least the longest window of a lease",
                ms(old_last_ms),
                ms(now_ms)
            ),
            Self::BeforeNewEpoch { first_ms } => write!(
                f,
                "the new layout begins on {} at the earliest; choose that or a later time, or an earlier epoch",
                ms(first_ms)
            ),
            Self::AfterNewEnd { last_ms } => write!(
                f,
                "the new layout ends on {}, before the cut-over; give it a wider timestamp or a later epoch",
                ms(last_ms)
            ),
            Self::ValuesFall { old_last_id, new_first_id } => write!(
                f,
                "values would fall: the first new ID {new_first_id} would not lie above the last old one \
                 {old_last_id}; give the new layout an earlier epoch, or its timestamp more bits below it"
            ),
        }
    }
}

impl core::error::Error for CutoverError {}

#[cfg(test)]
mod tests {
    use core::num::NonZeroU32;
    use std::string::ToString;

    use proptest::prelude::*;

    use super::*;
    use crate::{Bounds, Field, Generator, Grant, NS_PER_MS, Policy, Refusal};

    const EPOCH_MS: u64 = Layout::SNOWMINT.epoch_unix_ms();
    const NOW_MS: u64 = 1_800_000_000_000;
    const CUTOVER_MS: u64 = NOW_MS + 86_400_000;

    fn layout(fields: &[(Role, u8)], epoch_unix_ms: u64, tick_ms: u64) -> Layout {
        let fields: std::vec::Vec<_> = fields.iter().map(|(role, bits)| Field::new(*role, *bits)).collect();
        Layout::new(&fields, epoch_unix_ms, tick_ms * NS_PER_MS).unwrap()
    }

    fn wider() -> Layout {
        use Role::{Region, Reserved, Sequence, Timestamp, Worker};
        layout(&[(Reserved, 1), (Timestamp, 41), (Region, 3), (Worker, 9), (Sequence, 10)], EPOCH_MS, 1)
    }

    fn plan() -> CutoverPlan {
        CutoverPlan::new(&Layout::SNOWMINT, &wider(), CUTOVER_MS, NOW_MS).unwrap()
    }

    /// From the default to 1 + 41 + 3 + 9 + 10: the ranges are disjoint, and a history reads IDs of both by the layout
    /// that made them.
    #[test]
    fn readers_of_both() {
        let plan = plan();
        let (old, new) = (Layout::SNOWMINT, wider());
        assert_eq!(plan.old_last_ms(), CUTOVER_MS - 1);
        assert_eq!(plan.new_first_ms(), CUTOVER_MS);
        assert!(plan.old_last_id() < plan.new_first_id());

        let history = FormatHistory::new(old).after(&plan).unwrap();
        assert_eq!(history.current(), &new);
        let last = old.compose(plan.old_last_tick(), old.node(3, 255).unwrap(), 4_095).unwrap();
        assert_eq!(last, plan.old_last_id());
        let (by, parts) = history.decode(last).unwrap();
        assert_eq!((by, parts.region, parts.worker, parts.sequence), (&old, 3, 255, 4_095));
        let first = new.compose(CUTOVER_MS - EPOCH_MS, new.node(7, 300).unwrap(), 5).unwrap();
        let (by, parts) = history.decode(first).unwrap();
        assert_eq!((by, parts.region, parts.worker, parts.sequence), (&new, 7, 300, 5));
        assert_eq!(plan.check_old(last), Ok(()));
        assert!(plan.check_old(Id::new(last.get() + 1)).is_err());
    }

    /// A writer that lags keeps the old layout: it mints to the last tick under the lease's ceiling, which is clamped
    /// to the plan, and is refused from then on, whatever its clock says. The new layout's generator begins above.
    #[test]
    fn lagging_writer_is_refused() {
        let plan = plan();
        let bounds = Bounds { ceiling_ms: plan.old_last_ms(), ..Bounds::OPEN };
        let want = NonZeroU32::MAX;
        let old = *plan.old_layout();
        let grant = Grant::new(old.node(3, 255).unwrap(), 1, 0);
        let mut lagging = Generator::new(old, grant, Policy::HYBRID).unwrap();
        let run = lagging.mint(plan.old_last_ms(), &bounds, want).unwrap();
        assert_eq!(run.last(), Some(plan.old_last_id()));
        for now_ms in [plan.old_last_ms(), CUTOVER_MS, CUTOVER_MS + 1_000_000] {
            let refused = lagging.mint(now_ms, &bounds, want);
            assert_eq!(refused, Err(Refusal::Ceiling { ceiling_ms: plan.old_last_ms() }));
            assert_eq!(lagging.mint_checked(now_ms, want), None);
        }

        let new = *plan.new_layout();
        let grant = Grant::new(new.node(0, 0).unwrap(), 2, plan.new_floor_ms());
        let mut fresh = Generator::new(new, grant, Policy::HYBRID).unwrap();
        // Even with a clock that is a little behind the cut-over, which the lead allows for.
        let run = fresh.mint(CUTOVER_MS - 500, &Bounds::OPEN, want).unwrap();
        assert_eq!(run.first(), plan.new_first_id());
    }

    /// Plans that cannot keep the promise are refused, with the reason.
    #[test]
    fn refused_plans() {
        use Role::{Region, Reserved, Sequence, Shard, Timestamp, Worker};
        let snowmint = Layout::SNOWMINT;
        let check = |old: Layout, new: Layout, cutover_ms: u64, message: &str| {
            let error = CutoverPlan::new(&old, &new, cutover_ms, NOW_MS).unwrap_err();
            assert!(error.to_string().contains(message), "{error}\n  should say: {message}");
        };
        check(Layout::SHARDED, wider(), CUTOVER_MS, "the old layout has its shard above");
        check(snowmint, Layout::SHARDED, CUTOVER_MS, "the new layout has its shard above");
        let worker_first = [(Reserved, 1), (Worker, 10), (Timestamp, 41), (Sequence, 12)];
        check(snowmint, layout(&worker_first, EPOCH_MS, 1), CUTOVER_MS, "its worker above");
        check(snowmint, snowmint, CUTOVER_MS, "the same");
        check(snowmint, wider(), NOW_MS, "would have ended on 2027-01-15T07:59:59.999Z");
        check(snowmint, wider(), NOW_MS - 1_000_000, "may exist");
        check(snowmint, wider(), EPOCH_MS + 1, "before the old layout");
        check(snowmint, wider(), 0, "before the old layout");
        // A later epoch, and a timestamp that stands lower: both make values fall.
        let plain = [(Reserved, 1), (Timestamp, 41), (Region, 2), (Worker, 8), (Sequence, 12)];
        check(snowmint, layout(&plain, NOW_MS, 1), CUTOVER_MS, "values would fall");
        check(snowmint, layout(&plain, CUTOVER_MS, 1), CUTOVER_MS, "begins on 2027-01-16T08:00:00.001Z");
        check(snowmint, layout(&plain, CUTOVER_MS + 5, 1), CUTOVER_MS, "begins on 2027-01-16T08:00:00.006Z");
        let lower = [(Reserved, 1), (Timestamp, 45), (Region, 2), (Worker, 8), (Sequence, 8)];
        check(snowmint, layout(&lower, EPOCH_MS, 1), CUTOVER_MS, "values would fall");
        let short = [(Reserved, 1), (Timestamp, 30), (Region, 2), (Worker, 8), (Shard, 1), (Sequence, 22)];
        check(snowmint, layout(&short, EPOCH_MS, 1), CUTOVER_MS, "ends on 2025-01-13");
        let tiktok = crate::Scheme::named("tiktok").unwrap().layout;
        check(tiktok, wider(), CUTOVER_MS, "the old layout cannot be minted by");
    }

    /// A layout that runs out by itself can be left at its end, or any time after.
    #[test]
    fn after_the_old_end() {
        use Role::{Reserved, Sequence, Timestamp, Worker};
        let ended = layout(&[(Reserved, 1), (Timestamp, 30), (Worker, 11), (Sequence, 22)], EPOCH_MS, 1);
        let plan = CutoverPlan::new(&ended, &Layout::SNOWMINT, NOW_MS, NOW_MS);
        // Its timestamp stands high, so its IDs are large: values would fall.
        assert!(matches!(plan, Err(CutoverError::ValuesFall { .. })));
        let low = layout(&[(Reserved, 12), (Timestamp, 30), (Worker, 10), (Sequence, 12)], EPOCH_MS, 1);
        let plan = CutoverPlan::new(&low, &Layout::SNOWMINT, NOW_MS, NOW_MS).unwrap();
        assert_eq!(plan.old_last_ms(), low.last_ms());
    }

    #[test]
    fn histories() {
        let one = FormatHistory::new(Layout::SNOWMINT);
        let two = one.after(&plan()).unwrap();
        for history in [one, two] {
            assert_eq!(history.to_string().parse(), Ok(history));
        }
        assert_eq!(two.formats().count(), 2);
        assert_eq!(two.after(&plan()), Err(HistoryError::OtherLayout));
        let format = |first: u64, last: u64| Format {
            layout: Layout::SNOWMINT,
            first: Id::new(first),
            last: Id::new(last),
        };
        let check = |formats: &[Format], expected: HistoryError| {
            assert_eq!(FormatHistory::from_formats(formats), Err(expected));
        };
        check(&[], HistoryError::Empty);
        check(&[format(5, 4)], HistoryError::Overlap { nth: 0 });
        check(&[format(0, 4), format(4, 9)], HistoryError::Overlap { nth: 1 });
        check(&[format(5, 9), format(0, 4)], HistoryError::Overlap { nth: 1 });
        check(&[0, 1, 2, 3, 4, 5, 6, 7, 8].map(|nth| format(nth, nth)), HistoryError::Full);
        let history = FormatHistory::from_formats(&[format(5, 9), format(20, 29)]).unwrap();
        assert_eq!(history.layout_of(Id::new(15)), None);
        for text in ["", "0..5", "0..5 ", "00..5 x", "5 reserved:1", "0..x reserved:1"] {
            assert!(text.parse::<FormatHistory>().is_err(), "{text}");
        }
    }

    proptest! {
        /// Every plan that is accepted keeps its promise: whatever the old layout can make up to its last tick lies
        /// below whatever the new one can make from its first, and their times do not meet.
        #[test]
        fn plans_keep_their_promise(
            bits in (30_u8..45, 1_u8..8, 1_u8..12), new_bits in (30_u8..45, 1_u8..8, 1_u8..12),
            ticks in (1_u64..20, 1_u64..20), epoch_back in 0_u64..1_000_000_000, ahead in 1_u64..10_000_000_000,
            any_old in any::<u64>(), any_new in any::<u64>(), back in 0_u64..1000, on in 0_u64..1000,
        ) {
            let of = |(timestamp, worker, sequence): (u8, u8, u8), epoch: u64, tick: u64| {
                let reserved = 64 - timestamp - worker - sequence;
                let fields = [(Role::Reserved, reserved), (Role::Timestamp, timestamp), (Role::Worker, worker),
                    (Role::Sequence, sequence)];
                layout(&fields.into_iter().filter(|(_, bits)| *bits > 0).collect::<std::vec::Vec<_>>(), epoch, tick)
            };
            let old = of(bits, EPOCH_MS, ticks.0);
            let new = of(new_bits, EPOCH_MS - epoch_back, ticks.1);
            if let Ok(plan) = CutoverPlan::new(&old, &new, NOW_MS + ahead, NOW_MS) {
                let old_tick = plan.old_last_tick().saturating_sub(back);
                let new_tick = (plan.new_first_tick + on).min(new.last_tick());
                let pick = |layout: &Layout, tick: u64, random: u64| {
                    Id::new(layout.timestamp.put(tick) | (random & layout.variable_mask()))
                };
                let (before, after) = (pick(&old, old_tick, any_old), pick(&new, new_tick, any_new));
                prop_assert!(before < after);
                prop_assert!(plan.old_last_ms() < plan.new_first_ms());
                prop_assert_eq!(new.tick_of_ms(plan.new_floor_ms()) + 1, plan.new_first_tick);
                let history = FormatHistory::new(old).after(&plan).unwrap();
                prop_assert_eq!(history.layout_of(before), Some(&old));
                prop_assert_eq!(history.layout_of(after), Some(&new));
            }
        }
    }
}
