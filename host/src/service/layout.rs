//! `/v1/layout`: what this region's IDs look like.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::App;
use super::problem::Problem;
use super::tokens::{Caller, Right};

/// The region's layout and what tells its store apart.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LayoutJson {
    /// The layout's canonical text, which is its fingerprint.
    layout: String,
    /// The layouts before it, oldest first.
    former: Vec<FormerJson>,
    /// The fields, from the most significant bit.
    fields: Vec<FieldJson>,
    /// Tick 0, in Unix milliseconds.
    epoch_unix_ms: u64,
    /// The length of a tick in nanoseconds.
    tick_ns: u64,
    /// The region.
    region: u32,
    /// The store's own number, 128 bits in hexadecimal: another one for the same region would mint the same IDs.
    uuid: String,
    /// How often the store was founded and recovered.
    generation: u16,
    /// The last Unix millisecond that the layout is minted by.
    last_ms: u64,
    /// The last Unix millisecond before a planned cut-over.
    cutover_last_ms: Option<u64>,
}

/// A layout that was cut over.
#[derive(Debug, Serialize, ToSchema)]
struct FormerJson {
    /// Its canonical text.
    layout: String,
    /// The last Unix millisecond that was minted by it.
    last_ms: u64,
}

/// A field of a layout.
#[derive(Debug, Serialize, ToSchema)]
struct FieldJson {
    /// Its name.
    name: String,
    /// What it is for.
    role: &'static str,
    /// Its width.
    bits: u32,
}

/// What this region's IDs look like, and which store it has.
#[utoipa::path(
    get,
    path = "/v1/layout",
    tag = "ids",
    responses(
        (status = 200, description = "The layout", body = LayoutJson),
        (status = 401, description = "A token is needed", body = Problem, content_type = "application/problem+json"),
        (status = 403, description = "The token does not allow it", body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "The token's share is used up", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "The lease store was not opened yet", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn layout(State(app): State<Arc<App>>, caller: Caller) -> Result<Json<LayoutJson>, Problem> {
    app.allow(&caller, Right::Mint, 0)?;
    let cluster = &app.region()?.cluster().record;
    let layout = &cluster.layout;
    let fields = layout.fields().iter().map(|field| FieldJson {
        name: field.name().to_owned(),
        role: field.role().name(),
        bits: field.bits(),
    });
    let former = cluster.former.iter();
    Ok(Json(LayoutJson {
        layout: layout.to_string(),
        former: former
            .map(|former| FormerJson { layout: former.layout.to_string(), last_ms: former.last_ms })
            .collect(),
        fields: fields.collect(),
        epoch_unix_ms: layout.epoch_unix_ms(),
        tick_ns: layout.tick_ns(),
        region: cluster.region,
        uuid: format!("{:032x}", cluster.uuid),
        generation: cluster.generation,
        last_ms: cluster.last_ms(),
        cutover_last_ms: cluster.cutover_last_ms,
    }))
}
