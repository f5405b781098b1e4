//! `/v1/ids`: minted, and taken apart.

#![allow(unused_qualifications)] // In what the macro writes for parameters.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use snowmint::{COUNT_MAX, Pool, WorkerError};
use snowmint_core::{FormatHistory, Id, Layout, Run, RunIds, TextForm};
use snowmint_lease::ClusterRecord;
use snowmint_lease::cutover::history;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::App;
use super::accept::Form;
use super::problem::Problem;
use super::tokens::{Caller, Right};
use crate::cli::{Json as ReportJson, Reader, read};

/// How much of an answer is written at once.
const CHUNK_BYTES: usize = 1 << 16;

/// Up to how many IDs an answer is written as a whole, with its length.
const WHOLE_COUNT_MAX: u64 = 2_000;

/// The longest wait that a request may ask for, in milliseconds.
const WAIT_MS_MAX: u32 = 5;

/// What is asked of a mint.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct MintQuery {
    /// How many IDs.
    #[serde(default = "one")]
    #[param(minimum = 1, maximum = 1_000_000, default = 1)]
    count: u32,
    /// Every ID is greater than this one, which somebody else minted. In decimal.
    #[param(value_type = Option<String>, pattern = "^(0|[1-9][0-9]{0,18})$", example = "264543141887999999")]
    after: Option<String>,
    /// With each ID a random twin that tells nothing, for URLs.
    #[param(inline)]
    public: Option<Public>,
    /// 1: runs instead of IDs. A run is a first ID, a stride and a count.
    #[param(minimum = 0, maximum = 1, value_type = Option<u8>)]
    runs: Option<u8>,
    /// How long the request may wait for a tick with room, or a clock that is a little behind, in milliseconds.
    #[param(minimum = 0, maximum = 5, default = 5)]
    wait_ms: Option<u32>,
}

const fn one() -> u32 {
    1
}

/// The kind of the twins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Public {
    /// All random.
    Uuidv4,
    /// The time in front, so that it tells when it was made.
    Uuidv7,
}

impl Public {
    fn make(self) -> Uuid {
        match self {
            Self::Uuidv4 => Uuid::new_v4(),
            Self::Uuidv7 => Uuid::now_v7(),
        }
    }
}

/// IDs, as strings: JavaScript rounds numbers above 2^53.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[allow(dead_code)] // What the contract says; the answer is written as it is minted.
pub(super) enum Minted {
    /// By default.
    Ids {
        /// Each in decimal.
        ids: Vec<String>,
    },
    /// With `public`.
    Twins {
        /// Each with its twin.
        ids: Vec<Twin>,
    },
    /// With `runs=1`.
    Runs {
        /// Each of one tick of one worker.
        runs: Vec<RunJson>,
    },
}

/// An ID and its twin.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Twin {
    /// In decimal.
    id: String,
    /// A UUID that is random, but for the time of version 7.
    #[serde(skip_serializing_if = "Option::is_none")]
    public: Option<Uuid>,
}

/// IDs in an arithmetic progression: `first`, `first + stride`, and so on, `count` of them.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RunJson {
    /// In decimal.
    first: String,
    /// In decimal.
    stride: String,
    /// How many; 1 or more.
    #[schema(minimum = 1)]
    count: u32,
}

impl RunJson {
    fn new(run: &Run) -> Self {
        let decimal = |number| TextForm::Decimal.write(Id::new(number)).as_str().to_owned();
        Self { first: decimal(run.first().get()), stride: decimal(run.stride()), count: run.count() }
    }
}

/// A mint that can be carried out.
struct Order {
    count: u32,
    after: Option<Id>,
    public: Option<Public>,
    runs: bool,
    wait: Duration,
    form: Form,
}

impl MintQuery {
    fn order(&self, form: Form) -> Result<Order, Problem> {
        let Self { count, public, .. } = *self;
        let out_of_range = |name: &str, value: u32, least: u32, most: u32| {
            Problem::bad_request(
                "query",
                format!("`{name}` is {value}, which is out of range; give {least} to {most}"),
            )
        };
        if !(1..=COUNT_MAX).contains(&count) {
            return Err(out_of_range("count", count, 1, COUNT_MAX));
        }
        let wait_ms = self.wait_ms.unwrap_or(WAIT_MS_MAX);
        if wait_ms > WAIT_MS_MAX {
            return Err(out_of_range("wait_ms", wait_ms, 0, WAIT_MS_MAX));
        }
        let runs = match self.runs {
            None | Some(0) => false,
            Some(1) => true,
            Some(other) => return Err(out_of_range("runs", other.into(), 0, 1)),
        };
        let after = self.after.as_deref().map(|text| {
            TextForm::Decimal
                .parse(text.as_bytes())
                .map_err(|error| Problem::bad_request("query", format!("`after` is no ID: {error}")))
        });
        if public.is_some() && runs {
            let detail = "twins are of single IDs, and runs have none; ask for one or the other";
            return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "query", detail));
        }
        if public.is_some() && form == Form::Bytes {
            let detail = "twins have no place in application/octet-stream; accept JSON or text";
            return Err(Problem::new(StatusCode::NOT_ACCEPTABLE, "accept", detail));
        }
        if runs && form != Form::Json {
            return Err(Problem::new(
                StatusCode::NOT_ACCEPTABLE,
                "accept",
                "runs are given as application/json only",
            ));
        }
        let wait = Duration::from_millis(wait_ms.into());
        Ok(Order { count, after: after.transpose()?, public, runs, wait, form })
    }
}

/// Mint IDs.
///
/// All of them, or none: where they cannot be had, nothing is given, and what was minted of them becomes a gap.
#[utoipa::path(
    post,
    path = "/v1/ids",
    tag = "ids",
    params(MintQuery),
    responses(
        (status = 200, description = "The IDs", content(
            (Minted = "application/json"),
            (Twin = "application/x-ndjson"),
            (String = "text/plain"),
            (Vec<u8> = "application/octet-stream"),
        )),
        (status = 400, description = "The request cannot be understood", body = Problem, content_type = "application/problem+json"),
        (status = 401, description = "A token is needed", body = Problem, content_type = "application/problem+json"),
        (status = 403, description = "The token does not allow it", body = Problem, content_type = "application/problem+json"),
        (status = 406, description = "No form is accepted that it can be written in", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`after` cannot be followed", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "What cannot be: `public` of runs, or more than the token may ever have at once", body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "The token's share is used up", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "Nothing can be minted now: the refusal, with `Retry-After`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn mint(
    State(app): State<Arc<App>>,
    caller: Caller,
    headers: HeaderMap,
    query: Result<Query<MintQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let started = Instant::now();
    let Query(query) = query?;
    let form = Form::accepted(&headers).ok_or_else(|| {
        let detail =
            "IDs are given as application/json, application/x-ndjson, text/plain or application/octet-stream";
        Problem::new(StatusCode::NOT_ACCEPTABLE, "accept", detail)
    })?;
    let order = query.order(form)?;
    app.allow(&caller, Right::Mint, order.count)?;
    let result = take(&app.region()?.pool, &order).await;
    app.metrics.minted(started.elapsed());
    let runs = result.map_err(|error| Problem::of_worker(&error))?;
    Ok(answer(order, runs))
}

/// All IDs of an order, waiting between ticks as long as there is progress, and for the order's wait where there is none.
async fn take(pool: &Pool, order: &Order) -> Result<Vec<Run>, WorkerError> {
    let mut runs = Vec::new();
    let mut left = u64::from(order.count);
    let mut give_up_at = Instant::now() + order.wait;
    loop {
        let taken = pool.try_mint_all(left, order.after);
        if taken.count > 0 {
            left -= taken.count;
            runs.extend(taken.runs);
            give_up_at = Instant::now() + order.wait;
        }
        let Some(error) = taken.error else { return Ok(runs) };
        match error.pause(give_up_at.saturating_duration_since(Instant::now())) {
            Some(pause) => tokio::time::sleep(pause).await,
            None => return Err(error),
        }
    }
}

fn answer(order: Order, runs: Vec<Run>) -> Response {
    let media_type = [(header::CONTENT_TYPE, HeaderValue::from_static(order.form.media_type()))];
    if order.runs {
        let runs = runs.iter().map(RunJson::new).collect();
        return (media_type, axum::Json(Minted::Runs { runs })).into_response();
    }
    let is_whole = u64::from(order.count) <= WHOLE_COUNT_MAX;
    let mut chunks = Chunks { ids: Some(Ids { runs: runs.into_iter(), run: None }), order, is_begun: false };
    if is_whole {
        let mut whole = Vec::new();
        while let Some(chunk) = chunks.next_chunk() {
            whole.extend_from_slice(&chunk);
        }
        return (media_type, whole).into_response();
    }
    let stream = futures_util::stream::iter(chunks);
    (media_type, Body::from_stream(stream)).into_response()
}

/// The IDs of several runs.
struct Ids {
    runs: std::vec::IntoIter<Run>,
    run: Option<RunIds>,
}

impl Iterator for Ids {
    type Item = Id;

    fn next(&mut self) -> Option<Id> {
        loop {
            if let Some(id) = self.run.as_mut().and_then(Iterator::next) {
                return Some(id);
            }
            self.run = Some(self.runs.next()?.into_iter());
        }
    }
}

/// The text of an answer, written while it is sent.
struct Chunks {
    /// `None`: all is written.
    ids: Option<Ids>,
    order: Order,
    is_begun: bool,
}

impl Iterator for Chunks {
    type Item = Result<Bytes, Infallible>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_chunk().map(|chunk| Ok(Bytes::from(chunk)))
    }
}

impl Chunks {
    fn next_chunk(&mut self) -> Option<Vec<u8>> {
        let mut ids = self.ids.take()?;
        let mut text = Vec::with_capacity(CHUNK_BYTES.min(64 * self.order.count as usize) + 64);
        let is_json = self.order.form == Form::Json;
        if !self.is_begun && is_json {
            text.extend_from_slice(b"{\"ids\":[");
        }
        for id in ids.by_ref() {
            if is_json && self.is_begun {
                text.push(b',');
            }
            self.is_begun = true;
            self.append(&mut text, id);
            if text.len() >= CHUNK_BYTES {
                self.ids = Some(ids);
                return Some(text);
            }
        }
        if is_json {
            text.extend_from_slice(b"]}");
        }
        Some(text)
    }

    /// Serializing to memory does not fail; if it did, the ID would be missing, which a reader sees by the count.
    fn append(&self, text: &mut Vec<u8>, id: Id) {
        let decimal = TextForm::Decimal.write(id);
        let decimal = decimal.as_str();
        let public = self.order.public.map(Public::make);
        let twin = |public| Twin { id: decimal.to_owned(), public };
        match (self.order.form, public) {
            (Form::Json, None) => drop(serde_json::to_writer(text, decimal)),
            (Form::Json, public) => drop(serde_json::to_writer(text, &twin(public))),
            (Form::Ndjson, public) => {
                drop(serde_json::to_writer(&mut *text, &twin(public)));
                text.push(b'\n');
            }
            (Form::Text, public) => {
                text.extend_from_slice(decimal.as_bytes());
                if let Some(public) = public {
                    text.push(b' ');
                    text.extend_from_slice(
                        public.hyphenated().encode_lower(&mut Uuid::encode_buffer()).as_bytes(),
                    );
                }
                text.push(b'\n');
            }
            (Form::Bytes, _) => text.extend_from_slice(&id.get().to_be_bytes()),
        }
    }
}

/// What an ID holds.
#[derive(Debug, ToSchema)]
#[allow(dead_code)] // What the contract says of the report, which the command writes too.
pub(super) struct Decoded {
    /// In decimal.
    id: String,
    /// The layout that the ID was read by.
    layout: Option<String>,
    /// When it was minted: RFC 3339.
    time: Option<String>,
    /// The same in Unix milliseconds.
    unix_ms: Option<u64>,
    /// The value of each field, by its name.
    fields: std::collections::BTreeMap<String, u64>,
    /// What is odd about it.
    warnings: Vec<String>,
    /// The form that the ID was given in, where that is not decimal.
    #[schema(nullable = false)]
    form: Option<String>,
}

/// Take an ID apart, by this region's layouts.
///
/// In decimal, or in one of the forms that `snowmint mint` writes.
#[utoipa::path(
    get,
    path = "/v1/ids/{id}",
    tag = "ids",
    params(("id" = String, Path, description = "The ID", example = "264543141887999999")),
    responses(
        (status = 200, description = "What it holds", body = Decoded),
        (status = 400, description = "The path is not UTF-8", body = Problem, content_type = "application/problem+json"),
        (status = 401, description = "A token is needed", body = Problem, content_type = "application/problem+json"),
        (status = 403, description = "The token does not allow it", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "It is no ID", body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "The token's share is used up", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "The lease store was not opened yet", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn decode(
    State(app): State<Arc<App>>,
    caller: Caller,
    id: Result<Path<String>, axum::extract::rejection::PathRejection>,
) -> Result<Response, Problem> {
    app.allow(&caller, Right::Mint, 0)?;
    let Path(text) = id?;
    let region = app.region()?;
    let cluster = region.cluster();
    let report = read(&cluster.reading.0, text.as_bytes(), region.pool.now_ms())
        .map_err(|error| Problem::new(StatusCode::NOT_FOUND, "no-id", error.to_string()))?;
    Ok(axum::Json(ReportJson { report: &report, line: None }).into_response())
}

/// How a region's IDs are read: by its layouts so far.
pub(super) struct Reading(Reader);

impl Reading {
    pub(super) fn new(cluster: &ClusterRecord) -> Self {
        let preset = Layout::PRESETS.into_iter().find(|(_, layout)| *layout == cluster.layout);
        let name = preset.map_or("region", |(name, _)| name).to_owned();
        // A store's own past is in order; if it were not, the current layout is all that is known.
        let history = history(cluster).unwrap_or_else(|_| FormatHistory::new(cluster.layout));
        Self(Reader::File { name, history })
    }
}
