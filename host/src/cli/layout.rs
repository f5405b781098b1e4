//! `snowmint layout`: look at layouts, derive one, plan to change one.

use std::io::{self, Write};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use snowmint::{Clock, SystemClock};
use snowmint_core::{
    Check, CutoverPlan, Derived, FormatHistory, Layout, MS_PER_YEAR, Margin, NS_PER_MS, Requirements,
    RequirementsError, Role, Scheme, UnixTime,
};

use snowmint_lease::cutover::{self, CutoverRefusal};
use snowmint_lease::{ClusterRecord, StoreError};

use super::layout_file::{Reader, find_any, find_reader};
use super::picture::Picture;
use super::report::{AsText, Number};
use super::store::{self, StoreArgs};
use super::{CliError, tell, written};

/// Look at layouts, derive one, plan to change one.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant)] // There is one, for the whole run.
pub(super) enum LayoutCommand {
    /// List the layouts that are known by name.
    List(List),
    /// Show a layout: its bits, how long it lasts, how much it holds, and whether that is enough.
    Show(Show),
    /// Derive a layout from what it must hold, with the margin of each field.
    Derive(Derive),
    /// Plan the change from one layout to another, or say why it cannot be promised; with `--act`, carry it out.
    ///
    /// Alone it touches no store. With `--act` it carries the plan out in a store, while workers mint: those of the old
    /// layout go on to its last millisecond and stop, and those that are started for the new one go on above it.
    Cutover(Cutover),
}

impl LayoutCommand {
    pub(super) fn run(&self) -> Result<(), CliError> {
        match self {
            Self::List(list) => list.run(),
            Self::Show(show) => show.run(),
            Self::Derive(derive) => derive.run(),
            Self::Cutover(cutover) => cutover.run(),
        }
    }
}

/// List the layouts that are known by name.
#[derive(Args, Debug)]
pub(super) struct List {
    /// One JSON object a line.
    #[arg(long, env = "SNOWMINT_JSON")]
    json: bool,
}

impl List {
    fn run(&self) -> Result<(), CliError> {
        let mut out = io::BufWriter::new(io::stdout().lock());
        written(self.write(&mut out).and_then(|()| out.flush()))
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        if self.json {
            return Scheme::all().iter().try_for_each(|scheme| {
                let facts = Facts::of(&scheme.layout);
                write_json(out, &Listed { name: scheme.name, title: scheme.title, facts })
            });
        }
        writeln!(out, "{:<22} {:<46} {:<12} title", "name", "fields from the highest bit", "ends")?;
        Scheme::all().iter().try_for_each(|scheme| {
            let fields: Vec<String> = scheme
                .layout
                .fields()
                .iter()
                .map(|field| format!("{} {}", letter(field.role()), field.bits()))
                .collect();
            let ends = scheme.ends().text(0);
            let day = ends.split('T').next().unwrap_or_default();
            writeln!(out, "{:<22} {:<46} {day:<12} {}", scheme.name, fields.join("  "), scheme.title)
        })?;
        writeln!(out, "\n(reserved, shard, time, region, worker, sequence, other; in bits)")
    }
}

fn letter(role: Role) -> &'static str {
    match role {
        Role::Reserved => "res",
        Role::Shard => "shard",
        Role::Timestamp => "time",
        Role::Region => "reg",
        Role::Worker => "work",
        Role::Sequence => "seq",
        Role::Other => "other",
    }
}

/// Requirements, each as a flag.
#[derive(Args, Debug)]
struct Needs {
    /// For how many years from the epoch [default: 60].
    #[arg(long, value_name = "N", env = "SNOWMINT_YEARS")]
    years: Option<u32>,

    /// How many regions [default: 4].
    #[arg(long, value_name = "N", env = "SNOWMINT_REGIONS")]
    regions: Option<u32>,

    /// How many workers mint at once in a region [default: 200].
    #[arg(long, value_name = "N", env = "SNOWMINT_WORKERS")]
    workers: Option<u32>,

    /// How many IDs a worker mints in its busiest millisecond [default: 3000].
    #[arg(long, value_name = "N", env = "SNOWMINT_BURST")]
    burst: Option<u32>,
}

impl Needs {
    fn requirements(&self) -> Requirements {
        Requirements {
            years: self.years.unwrap_or(60),
            regions: self.regions.unwrap_or(4),
            workers_per_region: self.workers.unwrap_or(200),
            burst_per_ms: self.burst.unwrap_or(3_000),
        }
    }

    /// Whether somebody asked, so that failing is a failure.
    fn are_given(&self) -> bool {
        [self.years, self.regions, self.workers, self.burst].iter().any(Option::is_some)
    }
}

/// Show a layout: its bits, how long it lasts, how much it holds, and whether that is enough.
///
/// Where a requirement is given and the layout fails one, the exit code is 1.
#[derive(Args, Debug)]
pub(super) struct Show {
    /// A name of `snowmint layout list`, or a TOML file.
    #[arg(value_name = "NAME|FILE")]
    layout: String,

    #[command(flatten)]
    needs: Needs,

    /// One JSON object.
    #[arg(long, env = "SNOWMINT_JSON")]
    json: bool,
}

impl Show {
    fn run(&self) -> Result<(), CliError> {
        let layout = find_any(&self.layout)?;
        let scheme = Scheme::named(&self.layout);
        let check = self.needs.requirements().check(&layout);
        let now_ms = SystemClock::new(u32::MAX).now_ms();
        let mut out = io::stdout().lock();
        let result = if self.json {
            let shown = Shown {
                name: scheme.map(|scheme| scheme.name),
                title: scheme.map(|scheme| scheme.title),
                status: scheme.map(|scheme| scheme.status.name()),
                source: scheme.map(|scheme| scheme.source),
                facts: Facts::of(&layout),
                passes: check.passes(),
                margins: margins(&check),
            };
            write_json(&mut out, &shown)
        } else {
            (|| {
                if let Some(scheme) = scheme {
                    writeln!(out, "{}: {} ({})", scheme.name, scheme.title, scheme.status.name())?;
                    writeln!(out, "from {}\n", scheme.source)?;
                }
                write_layout(&mut out, &layout, now_ms)?;
                if let Some(caution) = scheme.and_then(|scheme| scheme.caution) {
                    writeln!(out, "  warning: {caution}")?;
                }
                write_margins(&mut out, &check)
            })()
        };
        written(result)?;
        if self.needs.are_given() && !check.passes() {
            return Err(CliError::Failed("the layout does not hold what is asked for".into()));
        }
        Ok(())
    }
}

/// Derive a layout from what it must hold, with the margin of each field.
///
/// Where it cannot be done, the exit code is 1, and what could give is told, the cheapest first.
#[derive(Args, Debug)]
pub(super) struct Derive {
    #[command(flatten)]
    needs: Needs,

    /// When tick 0 is: RFC 3339, a date, or Unix milliseconds [default: that of `snowmint`, 2025-01-01].
    #[arg(long, value_name = "TIME", env = "SNOWMINT_EPOCH")]
    epoch: Option<String>,

    /// One JSON object.
    #[arg(long, env = "SNOWMINT_JSON")]
    json: bool,

    /// A layout file, for `--layout FILE`.
    #[arg(long, conflicts_with = "json", env = "SNOWMINT_TOML")]
    toml: bool,
}

impl Derive {
    fn run(&self) -> Result<(), CliError> {
        let epoch_unix_ms = match &self.epoch {
            Some(epoch) => UnixTime::parse(epoch.as_bytes()).map_err(CliError::usage)?.unix_ms(),
            None => Layout::SNOWMINT.epoch_unix_ms(),
        };
        let mut out = io::stdout().lock();
        let derived = match self.needs.requirements().derive(epoch_unix_ms) {
            Ok(derived) => derived,
            Err(error) => {
                if let (true, RequirementsError::Over(shortfall)) = (self.json, &error) {
                    let ways = shortfall
                        .ways()
                        .map(|way| Way {
                            need: way.need.name(),
                            asked: Number(way.asked),
                            left: Number(way.left),
                            text: way.to_string(),
                        })
                        .collect();
                    written(write_json(&mut out, &Over { bits_over: shortfall.bits_over(), ways }))?;
                }
                return Err(match error {
                    RequirementsError::Zero { .. } => CliError::usage(error),
                    _ => CliError::failed(error),
                });
            }
        };
        written(if self.toml {
            write_toml(&mut out, &derived.layout)
        } else if self.json {
            let Derived { layout, spare_bits, check } = &derived;
            let (facts, margins) = (Facts::of(layout), margins(check));
            write_json(
                &mut out,
                &DerivedJson { spare_bits: *spare_bits, facts, passes: check.passes(), margins },
            )
        } else {
            let now_ms = SystemClock::new(u32::MAX).now_ms();
            write_layout(&mut out, &derived.layout, now_ms)
                .and_then(|()| write_margins(&mut out, &derived.check))
                .and_then(|()| match derived.spare_bits {
                    0 => writeln!(out, "\n  0 bits to spare"),
                    bits => writeln!(
                        out,
                        "\n  {bits} bits to spare, given to the sequence up to 12 bits, then to the timestamp"
                    ),
                })
        })
    }
}

/// Plan the change from one layout to another, or say why it cannot be promised.
///
/// Alone it shows that every ID of the new layout lies above every ID that the old one can still make, and from when on.
#[derive(Args, Debug)]
pub(super) struct Cutover {
    /// The layout that ends (a name, or a TOML file, which may hold a history) and the layout that begins. With `--act` the
    /// latter alone: the store tells the other.
    #[arg(value_name = "LAYOUT", required = true, num_args = 1..=2)]
    layouts: Vec<String>,

    /// When the new layout begins: RFC 3339, a date, or Unix milliseconds. At least a window of any worker ahead.
    #[arg(long, value_name = "TIME", env = "SNOWMINT_AT")]
    at: Option<String>,

    /// Carries it out in a store: `plan`, `scan` and `open` one by one; `run` for all three, waiting in between;
    /// `withdraw` takes a plan back that is not open. Each can be run again.
    #[arg(long, value_enum, value_name = "ACT", env = "SNOWMINT_ACT")]
    act: Option<Act>,

    /// One JSON object.
    #[arg(long, env = "SNOWMINT_JSON")]
    json: bool,

    /// A file that reads IDs of both, for `snowmint decode --layout FILE`.
    #[arg(long, conflicts_with_all = ["json", "act"], env = "SNOWMINT_TOML")]
    toml: bool,

    #[command(flatten)]
    store: StoreArgs,
}

/// An operator's act in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Act {
    /// Sets the old layout's last millisecond.
    Plan,
    /// Moves it above what is granted already.
    Scan,
    /// Makes the new layout current.
    Open,
    /// All three, one after the other.
    Run,
    /// Takes the plan back.
    Withdraw,
}

impl Cutover {
    fn run(&self) -> Result<(), CliError> {
        match (self.act, self.layouts.as_slice()) {
            (Some(act), [new]) => self.carry_out(act, &find_any(new)?),
            (None, [old, new]) => self.plan(old, &find_any(new)?),
            (Some(_), _) => Err(CliError::Usage(
                "with `--act` name the layout that begins alone: the store tells which one ends".into(),
            )),
            (None, _) => Err(CliError::Usage(
                "name two layouts: the one that ends, and the one that begins; or give `--act`".into(),
            )),
        }
    }

    fn at_ms(&self) -> Result<u64, CliError> {
        let at = self
            .at
            .as_deref()
            .ok_or_else(|| CliError::Usage("say when the new layout begins, with `--at TIME`".into()))?;
        Ok(UnixTime::parse(at.as_bytes()).map_err(CliError::usage)?.unix_ms())
    }

    /// Carries an act out, and says what the store holds now.
    fn carry_out(&self, act: Act, new: &Layout) -> Result<(), CliError> {
        let clock = SystemClock::new(u32::MAX);
        let opened = self.store.open(false, &clock)?;
        let store = opened.store.as_store();
        let plan = || {
            let planned = cutover::plan_cutover(store, new, self.at_ms()?, &store::now(&clock));
            carried_out(planned)
        };
        let scan = || carried_out(cutover::scan_cutover(store, new));
        let open = || carried_out(cutover::open_cutover(store, new, &store::now(&clock)));
        let cluster = match act {
            Act::Plan => plan()?,
            Act::Scan => scan()?,
            Act::Open => open()?,
            Act::Withdraw => cutover::withdraw_cutover(store).map_err(CliError::failed)?,
            Act::Run => {
                plan()?;
                if let Some(last_ms) = scan()?.cutover_last_ms {
                    tell(&format!(
                        "the old layout is minted by until {}; then the new one is opened. To stop here loses nothing: \
                         run it again",
                        UnixTime::from_unix_ms(last_ms).text(3)
                    ));
                    while clock.now_ms() <= last_ms {
                        let wait_ms = (last_ms + 1).saturating_sub(clock.now_ms());
                        std::thread::sleep(Duration::from_millis(wait_ms.clamp(1, 1_000)));
                    }
                }
                open()?
            }
        };
        let mut out = io::stdout().lock();
        let last_ms = cluster.cutover_last_ms;
        written(if self.json {
            write_json(
                &mut out,
                &Cut {
                    layout: AsText(&cluster.layout),
                    former: cluster.former.iter().map(|former| former.layout.to_string()).collect(),
                    cutover_last_ms: last_ms.map(Number),
                    not_before_ms: Number(cluster.not_before_ms),
                },
            )
        } else {
            (|| {
                writeln!(out, "layout {}", cluster.layout)?;
                match last_ms {
                    Some(last_ms) => {
                        let text = UnixTime::from_unix_ms(last_ms).text(3);
                        writeln!(out, "minted by until {text}, after which the new layout can be opened")
                    }
                    None if cluster.layout == *new => writeln!(out, "open: start workers for it"),
                    None => writeln!(out, "no cut-over is planned"),
                }
            })()
        })
    }

    fn plan(&self, old: &str, new: &Layout) -> Result<(), CliError> {
        let history = match find_reader(old)? {
            Reader::File { history, .. } => history,
            _ => FormatHistory::new(find_any(old)?),
        };
        let at_ms = self.at_ms()?;
        let now_ms = SystemClock::new(u32::MAX).now_ms();
        let plan = CutoverPlan::new(history.current(), new, at_ms, now_ms).map_err(CliError::failed)?;
        let history = history.after(&plan).map_err(CliError::failed)?;
        let mut out = io::stdout().lock();
        let time = |ms: u64| UnixTime::from_unix_ms(ms).text(3);
        written(if self.toml {
            writeln!(out, "# Reads IDs of every layout so far.\nhistory = \"{history}\"")
        } else if self.json {
            let json = Plan {
                old: AsText(plan.old_layout()),
                new: AsText(plan.new_layout()),
                old_last_ms: Number(plan.old_last_ms()),
                old_last_id: plan.old_last_id().to_string(),
                new_first_ms: Number(plan.new_first_ms()),
                new_first_id: plan.new_first_id().to_string(),
                history: AsText(&history),
            };
            write_json(&mut out, &json)
        } else {
            (|| {
                writeln!(out, "old  {}\nnew  {}\n", plan.old_layout(), plan.new_layout())?;
                writeln!(out, "  {}  the old layout's last millisecond", time(plan.old_last_ms()))?;
                writeln!(out, "  {:>24}  the largest ID that it can make", plan.old_last_id())?;
                writeln!(out, "  {}  the new layout's first millisecond", time(plan.new_first_ms()))?;
                writeln!(out, "  {:>24}  the smallest ID that it can make", plan.new_first_id())?;
                writeln!(
                    out,
                    "\nEvery new ID lies above every old one, provided that no lease under the old layout reaches past \
                     its\nlast millisecond: a worker that lags is refused there. Nothing was changed: this is a plan, \
                     which `--act` carries out in a store."
                )
            })()
        })
    }
}

/// What an act came to.
fn carried_out(
    result: Result<Result<ClusterRecord, CutoverRefusal>, StoreError>,
) -> Result<ClusterRecord, CliError> {
    result.map_err(CliError::failed)?.map_err(CliError::failed)
}

/// A layout with its bits, its lifetime and what it holds.
fn write_layout(out: &mut impl Write, layout: &Layout, now_ms: u64) -> io::Result<()> {
    let facts = Facts::of(layout);
    writeln!(out, "{}\n", Picture { layout, id: None, indent: "  " })?;
    for field in layout.fields() {
        writeln!(out, "  {:<15} {:>2} bits", field.name(), field.bits())?;
    }
    let ended = if facts.ends_ms < now_ms { ": it has ended" } else { "" };
    writeln!(out, "\n  epoch      {}", facts.epoch)?;
    writeln!(out, "  tick       {}", tick(layout.tick_ns()))?;
    writeln!(out, "  lifetime   {} years, to {}{ended}", facts.years, facts.ends)?;
    writeln!(out, "  nodes      {} regions of {} workers", layout.regions(), layout.workers_per_region())?;
    writeln!(out, "  IDs        {} a worker a tick", layout.ids_per_tick())?;
    match layout.check_mints() {
        Ok(()) => writeln!(out, "  minted by  yes"),
        Err(error) => writeln!(out, "  minted by  no: {error}"),
    }
}

fn write_margins(out: &mut impl Write, check: &Check) -> io::Result<()> {
    writeln!(out)?;
    check.margins().iter().try_for_each(|margin| {
        let verdict = if margin.passes() { "pass" } else { "FAIL" };
        writeln!(out, "  {verdict}  {:<8} {margin}{}", margin.need.name(), spare(margin))
    })
}

/// How much more than asked for is held, in per cent.
fn spare(margin: &Margin) -> String {
    match (u128::from(margin.holds) * 100).checked_div(u128::from(margin.asked)) {
        Some(percent) if margin.passes() => format!(" ({} % to spare)", percent - 100),
        _ => String::new(),
    }
}

/// A tick in the largest unit that writes it whole.
fn tick(tick_ns: u64) -> String {
    let units = [(60_000 * NS_PER_MS, "min"), (1_000 * NS_PER_MS, "s"), (NS_PER_MS, "ms"), (1_000, "us")];
    let unit = units.into_iter().find(|(ns, _)| tick_ns.is_multiple_of(*ns));
    let (ns, name) = unit.unwrap_or((1, "ns"));
    format!("{} {name}", tick_ns / ns)
}

/// The layout as a file that `--layout` reads: numbers and roles only, which need no quoting beyond this.
fn write_toml(out: &mut impl Write, layout: &Layout) -> io::Result<()> {
    writeln!(out, "epoch_unix_ms = {}", layout.epoch_unix_ms())?;
    writeln!(out, "tick_ns = {}", layout.tick_ns())?;
    writeln!(out, "fields = [")?;
    for field in layout.fields() {
        writeln!(out, "    {{ role = \"{}\", bits = {} }},", field.role().name(), field.bits())?;
    }
    writeln!(out, "]")
}

fn write_json(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

/// What can be said of any layout.
#[derive(Serialize)]
struct Facts<'a> {
    fields: Vec<FieldFacts<'a>>,
    epoch: String,
    epoch_unix_ms: Number,
    tick_ns: Number,
    /// Years from the epoch to the end, to a tenth.
    years: String,
    /// When the last tick begins.
    ends: String,
    #[serde(skip)]
    ends_ms: u64,
    regions: Number,
    workers_per_region: Number,
    ids_per_tick: Number,
    /// Whether a generator can mint by it.
    mints: bool,
}

#[derive(Serialize)]
struct FieldFacts<'a> {
    name: &'a str,
    role: &'static str,
    bits: u32,
}

impl<'a> Facts<'a> {
    fn of(layout: &'a Layout) -> Self {
        let fields = layout.fields().iter().map(|field| FieldFacts {
            name: field.name(),
            role: field.role().name(),
            bits: field.bits(),
        });
        let ends = layout.time_of_tick(layout.last_tick());
        let lifetime_ms =
            u128::from(layout.last_tick()) * u128::from(layout.tick_ns()) / u128::from(NS_PER_MS);
        // To the nearest tenth, as core says margins.
        let tenths = (lifetime_ms * 10 + u128::from(MS_PER_YEAR) / 2) / u128::from(MS_PER_YEAR);
        Self {
            fields: fields.collect(),
            epoch: UnixTime::from_unix_ms(layout.epoch_unix_ms()).to_string(),
            epoch_unix_ms: Number(layout.epoch_unix_ms()),
            tick_ns: Number(layout.tick_ns()),
            years: format!("{}.{}", tenths / 10, tenths % 10),
            ends: ends.text(layout.time_digits()).as_str().to_owned(),
            ends_ms: ends.unix_ms(),
            regions: Number(layout.regions()),
            workers_per_region: Number(layout.workers_per_region()),
            ids_per_tick: Number(layout.ids_per_tick()),
            mints: layout.check_mints().is_ok(),
        }
    }
}

#[derive(Serialize)]
struct Listed<'a> {
    name: &'a str,
    title: &'a str,
    #[serde(flatten)]
    facts: Facts<'a>,
}

#[derive(Serialize)]
struct Shown<'a> {
    name: Option<&'a str>,
    title: Option<&'a str>,
    status: Option<&'a str>,
    source: Option<&'a str>,
    #[serde(flatten)]
    facts: Facts<'a>,
    passes: bool,
    margins: Vec<MarginJson>,
}

#[derive(Serialize)]
struct DerivedJson<'a> {
    spare_bits: u32,
    #[serde(flatten)]
    facts: Facts<'a>,
    passes: bool,
    margins: Vec<MarginJson>,
}

/// A requirement against what is held. Years are in milliseconds.
#[derive(Serialize)]
struct MarginJson {
    need: &'static str,
    asked: Number,
    holds: Number,
    passes: bool,
    text: String,
}

fn margins(check: &Check) -> Vec<MarginJson> {
    let margins = check.margins().iter().map(|margin| MarginJson {
        need: margin.need.name(),
        asked: Number(margin.asked),
        holds: Number(margin.holds),
        passes: margin.passes(),
        text: margin.to_string(),
    });
    margins.collect()
}

#[derive(Serialize)]
struct Over {
    bits_over: u32,
    ways: Vec<Way>,
}

/// One requirement that could give. Years are in milliseconds.
#[derive(Serialize)]
struct Way {
    need: &'static str,
    asked: Number,
    left: Number,
    text: String,
}

/// What a store holds after an act.
#[derive(Serialize)]
struct Cut<'a> {
    layout: AsText<&'a Layout>,
    former: Vec<String>,
    cutover_last_ms: Option<Number>,
    not_before_ms: Number,
}

#[derive(Serialize)]
struct Plan<'a> {
    old: AsText<&'a Layout>,
    new: AsText<&'a Layout>,
    old_last_ms: Number,
    old_last_id: String,
    new_first_ms: Number,
    new_first_id: String,
    history: AsText<&'a FormatHistory>,
}
