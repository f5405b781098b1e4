//! `snowmint decode`: what an ID holds, and which IDs a time has.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};

use clap::Args;
use serde::Serialize;
use snowmint::{Clock, SystemClock};
use snowmint_core::{
    Form, FormatHistory, Id, Layout, ParseError, Ranking, Scheme, TextForm, TickIds, UnixTime, Verdict,
    Warning, WideId, is_id_like, words,
};

use super::layout_file::{Reader, find_reader};
use super::lines::{LINE_BYTES_MAX, Line, Lines};
use super::report::{AsText, Json, Number, Report};
use super::{CliError, written};

/// How much text is written at once.
const CHUNK_BYTES: usize = 1 << 18;

/// Say what an ID holds and when it was made; or which IDs a time has.
///
/// IDs are read as decimal numbers, in the scheme's own form (such as Instagram's shortcodes), and as `mint` writes
/// them. By `auto` UUIDs, ULIDs, `ObjectIds`, KSUIDs and Xids are recognised, too. Of two IDs the older is told.
///
/// From standard input, blanks around an ID and blank lines are skipped, and a line that is no ID is reported on standard
/// error while the rest goes on; the exit code then is 1.
#[derive(Args, Debug)]
pub(super) struct Decode {
    /// The IDs; none, or `-`: one a line from standard input.
    #[arg(value_name = "ID", allow_negative_numbers = true)]
    ids: Vec<OsString>,

    /// The layout to read by: `auto`, a name of `snowmint layout list`, or a TOML file [default: auto; with --at,
    /// snowmint].
    #[arg(long, value_name = "NAME|FILE", env = "SNOWMINT_LAYOUT")]
    layout: Option<String>,

    /// One JSON object a line.
    #[arg(long, env = "SNOWMINT_JSON")]
    json: bool,

    /// Pull IDs out of lines of logs, CSV or JSON: numbers of 15 to 20 digits that the layout explains, and wide IDs. What
    /// is no ID is skipped.
    #[arg(long, env = "SNOWMINT_EXTRACT")]
    extract: bool,

    /// Instead: the smallest and the largest ID of this time, and the range for a query. RFC 3339, a date, or Unix
    /// milliseconds.
    #[arg(long, value_name = "TIME", env = "SNOWMINT_AT", conflicts_with_all = ["ids", "extract"])]
    at: Option<String>,
}

/// Why a text is no ID.
pub(crate) enum NoId {
    Parse(ParseError),
    /// Two forms read it as different numbers.
    Ambiguous(TextForm, TextForm),
    /// Between two formats of a history.
    Unowned,
}

impl std::fmt::Display for NoId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Parse(error) => error.fmt(f),
            Self::Ambiguous(one, other) => write!(
                f,
                "the text is one ID in {} and another in {}; give it in decimal",
                one.name(),
                other.name()
            ),
            Self::Unowned => f.write_str("the ID lies between two formats of the history: nobody made it"),
        }
    }
}

impl Decode {
    pub(super) fn run(&self) -> Result<(), CliError> {
        let reader = self.layout.as_deref().map(find_reader).transpose()?;
        if let Some(at) = &self.at {
            return self.run_at(at, reader);
        }
        let reader = reader.unwrap_or(Reader::Auto);
        let clock = SystemClock::new(u32::MAX);
        let mut output = Output { out: io::stdout().lock(), text: Vec::new(), json: self.json };
        if self.ids.is_empty() || self.ids.iter().eq(["-"]) {
            return self.run_lines(&reader, clock, &mut output);
        }
        if self.extract {
            return Err(CliError::Usage(
                "--extract reads lines from standard input; give no IDs with it".into(),
            ));
        }
        self.run_arguments(&reader, clock.now_ms(), &mut output)
    }

    fn run_arguments(
        &self,
        reader: &Reader,
        now_ms: u64,
        output: &mut Output<impl Write>,
    ) -> Result<(), CliError> {
        let mut bad = 0;
        let mut reports = Vec::new();
        for (nth, text) in self.ids.iter().enumerate() {
            match read(reader, text.as_encoded_bytes(), now_ms) {
                Ok(report) => reports.push(report),
                Err(error) if self.ids.len() == 1 => return Err(CliError::failed(error)),
                Err(error) => {
                    bad += 1;
                    complain(format_args!("ID {}: {error}", nth + 1));
                }
            }
        }
        let result = (|| {
            for (nth, report) in reports.iter().enumerate() {
                if nth > 0 && !self.json {
                    output.text.push(b'\n');
                }
                output.at_length(report)?;
            }
            if let ([a, b], 0) = (reports.as_slice(), bad) {
                output.order(a, b)?;
            }
            output.flush()
        })();
        written(result)?;
        all_were_ids(bad, self.ids.len() as u64, "arguments")
    }

    fn run_lines(
        &self,
        reader: &Reader,
        clock: SystemClock,
        output: &mut Output<impl Write>,
    ) -> Result<(), CliError> {
        let input = io::stdin().lock();
        if input.is_terminal() {
            complain(format_args!("reading IDs from the terminal, one a line"));
        }
        let mut lines = Lines::new(input);
        let (mut number, mut bad) = (0_u64, 0_u64);
        let mut now_ms = clock.now_ms();
        let result = loop {
            let line = lines.next(&mut || {
                // Whoever waits for output gets it before more input is waited for, which may take any time.
                now_ms = clock.now_ms();
                output.flush()
            });
            let text = match line {
                Ok(None) => break output.flush(),
                Ok(Some(Line::Text(text))) => text,
                Ok(Some(Line::TooLong(bytes))) => {
                    number += 1;
                    bad += 1;
                    complain(format_args!(
                        "line {number}: the line has {bytes} bytes, and {LINE_BYTES_MAX} is the most that is read; no \
                         ID is so long"
                    ));
                    continue;
                }
                Err(error) => break Err(error),
            };
            number += 1;
            let result = if self.extract {
                words(text)
                    .filter_map(|word| extracted(reader, word, now_ms))
                    .try_for_each(|report| output.line(&report, Some(number)))
            } else {
                match text.trim_ascii() {
                    b"" => Ok(()),
                    text => match read(reader, text, now_ms) {
                        Ok(report) => output.line(&report, None),
                        Err(error) => {
                            bad += 1;
                            complain(format_args!("line {number}: {error}"));
                            Ok(())
                        }
                    },
                }
            };
            if result.is_err() {
                break result;
            }
        };
        match result {
            // Whoever reads has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(error) => Err(CliError::Failed(format!("after line {number}: {error}"))),
            Ok(()) => all_were_ids(bad, number, "lines"),
        }
    }

    fn run_at(&self, at: &str, reader: Option<Reader>) -> Result<(), CliError> {
        let time = UnixTime::parse(at.as_bytes()).map_err(CliError::usage)?;
        let (name, history) = match reader {
            None | Some(Reader::Auto) => ("snowmint".to_owned(), FormatHistory::new(Layout::SNOWMINT)),
            Some(Reader::Scheme(scheme)) => (scheme.name.to_owned(), FormatHistory::new(scheme.layout)),
            Some(Reader::File { name, history }) => (name, history),
        };
        let owned = history.formats().find_map(|format| {
            let ids = format.layout.ids_at(time).ok()?;
            (format.first <= ids.first && ids.last <= format.last).then_some((&format.layout, ids))
        });
        let (layout, ids) = match owned {
            Some(owned) => owned,
            None => (history.current(), history.current().ids_at(time).map_err(CliError::failed)?),
        };
        let answer = At::new(&name, layout, &ids);
        let mut out = io::stdout().lock();
        written(if self.json { answer.write_json(&mut out) } else { answer.write(&mut out) })
    }
}

/// The IDs of a time.
#[derive(Serialize)]
struct At<'a> {
    layout: &'a str,
    /// When the tick begins, to the layout's precision.
    time: String,
    unix_ms: Number,
    first: String,
    last: String,
    /// Whether rows of the time are those from first to last.
    is_range: bool,
    /// The condition for a query; none where no range finds just the rows.
    sql: Option<String>,
    warnings: Vec<&'static str>,
}

impl<'a> At<'a> {
    fn new(name: &'a str, layout: &Layout, ids: &TickIds) -> Self {
        let TickIds { first, last, is_range, start } = *ids;
        let mut warnings = Vec::new();
        if !is_range {
            warnings.push(
                "no range query finds these rows: something that differs between IDs stands above the timestamp, so \
                 IDs of every other time lie between the two; seek per value of the fields above it",
            );
        }
        if i64::try_from(last.get()).is_err() {
            warnings.push(
                "signed 64-bit columns show IDs of 2^63 and above as negative numbers: compare as unsigned there",
            );
        }
        Self {
            layout: name,
            time: start.text(layout.time_digits()).as_str().to_owned(),
            unix_ms: Number(start.unix_ms()),
            first: first.to_string(),
            last: last.to_string(),
            is_range,
            sql: is_range.then(|| format!("id BETWEEN {first} AND {last}")),
            warnings,
        }
    }

    fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        out.write_all(b"\n")
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "IDs of {} at {}", self.layout, self.time)?;
        writeln!(out, "  smallest  {}\n  largest   {}", self.first, self.last)?;
        if let Some(sql) = &self.sql {
            writeln!(out, "  SQL       WHERE {sql}")?;
            writeln!(out, "  since     WHERE id >= {}", self.first)?;
        }
        self.warnings.iter().try_for_each(|warning| writeln!(out, "  warning: {warning}"))
    }
}

/// Reads one text. By `auto`, wide kinds are recognised.
pub(crate) fn read<'a>(reader: &'a Reader, text: &'a [u8], now_ms: u64) -> Result<Report<'a>, NoId> {
    match reader {
        Reader::Auto => {
            let is_digits = text.iter().all(u8::is_ascii_digit);
            if !is_digits && let Some(wide) = WideId::parse(text) {
                return Ok(Report::Wide { wide, text });
            }
            let ranking = Ranking::of_text(text, now_ms).map_err(NoId::Parse)?;
            let first = ranking.candidates().next().map(|first| first.id);
            // No scheme explains it at all: it is what it is by itself.
            let id = match first {
                Some(id) => id,
                None => number(text)?.0,
            };
            Ok(Report::Ranked { ranking, id, now_ms })
        }
        Reader::Scheme(scheme) => {
            let (id, form) = scheme.parse(text, now_ms).map_err(NoId::Parse)?;
            let Scheme { layout, name, .. } = scheme;
            Ok(Report::Named { id, form, layout, name, scheme: Some(scheme), now_ms })
        }
        Reader::File { name, history } => {
            let (id, form) = number(text)?;
            let layout = history.layout_of(id).ok_or(NoId::Unowned)?;
            Ok(Report::Named { id, form: Form::Own(form), layout, name, scheme: None, now_ms })
        }
    }
}

/// Reads a text in the one form of ours that reads it; the error is that of the decimal form.
fn number(text: &[u8]) -> Result<(Id, TextForm), NoId> {
    let mut readings = TextForm::ALL.into_iter().filter_map(|form| Some((form.parse(text).ok()?, form)));
    let Some((id, form)) = readings.next() else {
        return TextForm::Decimal.parse(text).map(|id| (id, TextForm::Decimal)).map_err(NoId::Parse);
    };
    // Digits alone are decimal, whatever else they might be.
    match readings.find(|(other, _)| *other != id) {
        Some((_, other)) if form != TextForm::Decimal => Err(NoId::Ambiguous(form, other)),
        _ => Ok((id, form)),
    }
}

/// The ID that a word of a line is, if it is one that its layout explains.
fn extracted<'a>(reader: &'a Reader, word: &'a [u8], now_ms: u64) -> Option<Report<'a>> {
    if !is_id_like(word) {
        return None;
    }
    if !word.iter().all(u8::is_ascii_digit) {
        let wide = matches!(reader, Reader::Auto).then(|| WideId::parse(word)).flatten()?;
        // A word is no ID of the future.
        let is_past = wide.time.is_none_or(|time| time.unix_ms() <= now_ms);
        return is_past.then_some(Report::Wide { wide, text: word });
    }
    let report = read(reader, word, now_ms).ok()?;
    let is_plausible = match &report {
        Report::Ranked { ranking, .. } => ranking.verdict() != Verdict::Implausible,
        _ => !report.warnings().into_iter().flatten().any(|warning| {
            matches!(warning, Warning::ReservedSet | Warning::InFuture { .. } | Warning::BeforeBirth { .. })
        }),
    };
    is_plausible.then_some(report)
}

/// Where reports go.
struct Output<W> {
    out: W,
    text: Vec<u8>,
    json: bool,
}

impl<W: Write> Output<W> {
    fn line(&mut self, report: &Report<'_>, line: Option<u64>) -> io::Result<()> {
        if self.json {
            serde_json::to_writer(&mut self.text, &Json { report, line })?;
        } else {
            if let Some(line) = line {
                write!(self.text, "{line:>6}: ")?;
            }
            report.write_line(&mut self.text)?;
        }
        self.text.push(b'\n');
        if self.text.len() >= CHUNK_BYTES { self.flush() } else { Ok(()) }
    }

    fn at_length(&mut self, report: &Report<'_>) -> io::Result<()> {
        if self.json { self.line(report, None) } else { report.write_at_length(&mut self.text) }
    }

    /// Which of two IDs is older, and by how much, by the times that their reports give.
    fn order(&mut self, one: &Report<'_>, other: &Report<'_>) -> io::Result<()> {
        let (Some((time, digits)), Some((other_time, other_digits))) = (one.time(), other.time()) else {
            return Ok(());
        };
        let (older, newer) = if time <= other_time { (one, other) } else { (other, one) };
        let by_ns = time.unix_ns().abs_diff(other_time.unix_ns());
        let span = Span { ns: by_ns, digits: digits.max(other_digits) };
        if self.json {
            let told = Order {
                older: (by_ns > 0).then(|| older.id_text()),
                newer: (by_ns > 0).then(|| newer.id_text()),
                by_ms: Number(UnixTime::from_unix_ns(by_ns).unix_ms()),
                by: AsText(span),
            };
            serde_json::to_writer(&mut self.text, &told)?;
            self.text.push(b'\n');
            return Ok(());
        }
        if by_ns == 0 {
            return writeln!(self.text, "\nboth have the same time");
        }
        writeln!(self.text, "\n{} is older than {} by {span}", older.id_text(), newer.id_text())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.text)?;
        self.text.clear();
        self.out.flush()
    }
}

/// Which of two IDs is older; neither where their times are the same.
#[derive(Serialize)]
struct Order {
    older: Option<String>,
    newer: Option<String>,
    by_ms: Number,
    by: AsText<Span>,
}

/// A length of time, to so many digits of a second.
struct Span {
    ns: u128,
    digits: u32,
}

impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let secs = self.ns / 1_000_000_000;
        let (days, hours, minutes) = (secs / 86_400, secs / 3_600 % 24, secs / 60 % 60);
        for (count, unit) in [(days, "d"), (hours, "h"), (minutes, "min")] {
            if count > 0 {
                write!(f, "{count} {unit} ")?;
            }
        }
        write!(f, "{}", secs % 60)?;
        if self.digits > 0 {
            let width = self.digits as usize;
            let cut = 10_u128.pow(9_u32.saturating_sub(self.digits));
            write!(f, ".{:0width$}", self.ns % 1_000_000_000 / cut)?;
        }
        f.write_str(" s")
    }
}

/// Tells of a fault and goes on. Standard error may be closed, too; nobody is left to tell then.
fn complain(what: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "snowmint: {what}");
}

fn all_were_ids(bad: u64, total: u64, what: &str) -> Result<(), CliError> {
    match bad {
        0 => Ok(()),
        _ => Err(CliError::Failed(format!("{bad} of {total} {what} are no IDs"))),
    }
}
