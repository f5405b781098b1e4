//! `/v1/leases`: requests become calls of a desk, by `snowmint-lease-http`. docs/leases-over-http.md is the protocol.

#![allow(unused_qualifications)] // In what the macro writes for parameters.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use snowmint::fresh_nonce;
use snowmint_lease_http::{Fault, REQUEST_BYTES_MAX};
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::tokens::{Caller, Right};

/// Asks for a code.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)] // What the contract says of a body that `snowmint-lease-http` reads.
pub(super) struct AcquireJson {
    /// The layout that the client is configured with, as its canonical text; left out, it takes the store's.
    #[schema(
        example = "reserved:1 timestamp:41 region:2 worker:8 sequence:12 epoch-ms:1735689600000 tick-ns:1000000"
    )]
    layout: Option<String>,
    /// The region that the client is configured with; left out, it takes the store's.
    region: Option<u32>,
    /// For people; nothing is decided by it.
    #[schema(min_length = 1, max_length = 128, example = "edge-7")]
    owner: String,
    /// How long minting goes on without the service, in milliseconds.
    #[schema(minimum = 30, maximum = 60_000)]
    window_ms: u32,
    /// How far ahead of the clock the generator may stamp, in milliseconds; left out, 0.
    #[schema(minimum = 0, maximum = 3_600_000, nullable = false)]
    lead_ms: Option<u32>,
    /// 128 fresh random bits, which name this call: 32 lower-case hexadecimal digits.
    #[schema(pattern = "^[0-9a-f]{32}$")]
    nonce: String,
}

/// Asks to go on holding a code.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
pub(super) struct RenewJson {
    /// The store's number, from the answer.
    #[schema(pattern = "^[0-9a-f]{32}$")]
    store: String,
    /// The layout, from the answer.
    layout: String,
    /// The region, from the answer.
    region: u32,
    /// The same as when the code was taken.
    #[schema(minimum = 30, maximum = 60_000)]
    window_ms: u32,
    /// How far ahead of the clock the generator may stamp, in milliseconds; left out, 0.
    #[schema(minimum = 0, maximum = 3_600_000, nullable = false)]
    lead_ms: Option<u32>,
    /// The nonce of the last call for this grant that was answered.
    #[schema(pattern = "^[0-9a-f]{32}$")]
    held: String,
    /// Its high 64 bits are those of `held`, the others fresh.
    #[schema(pattern = "^[0-9a-f]{32}$")]
    nonce: String,
}

/// What is asked of a release; in the query, since nobody promises to pass on a body of `DELETE`.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code)]
pub(super) struct ReleaseQuery {
    /// The store's number, from the answer.
    #[param(pattern = "^[0-9a-f]{32}$")]
    store: String,
    /// The layout, from the answer.
    layout: String,
    /// The region, from the answer.
    region: u32,
    /// The nonce of the last call for this grant that was answered.
    #[param(pattern = "^[0-9a-f]{32}$")]
    held: String,
    /// The nonce of a renewal that was not answered.
    #[param(pattern = "^[0-9a-f]{32}$", nullable = false)]
    perhaps_held: Option<String>,
    /// Its high 64 bits are those of `held`, the others fresh.
    #[param(pattern = "^[0-9a-f]{32}$")]
    nonce: String,
    /// What stopping the generator returned, in Unix milliseconds; left out, all that was granted.
    #[param(pattern = "^(0|[1-9][0-9]{0,18})$", nullable = false)]
    last_reserved_ms: Option<String>,
}

/// What the service has granted, or taken back.
#[derive(Serialize, ToSchema)]
#[allow(dead_code)]
pub(super) struct LeaseJson {
    /// The grant's ticket: the last part of its address.
    id: String,
    /// The store's number, 128 bits in hexadecimal.
    store: String,
    /// The layout's canonical text.
    layout: String,
    /// The region.
    region: u32,
    /// The worker of the node.
    code: u32,
    /// Which grant of the code it is.
    term: u32,
    /// The last Unix millisecond that may not be stamped.
    floor_ms: String,
    /// The last Unix millisecond that may be stamped; after a release, the last that may have been.
    end_ms: String,
    /// The call's nonce.
    nonce: String,
    /// The service's clock while it answered, in Unix milliseconds.
    now_ms: String,
    /// How far that may be off, in milliseconds; none where it is unknown.
    clock_error_ms: Option<u32>,
    /// The call was carried out before; nothing was written now.
    is_repeated: bool,
}

/// Why a call was not carried out: a problem document with a `code` to branch on, and its fields beside it. Or, where the
/// service did not get as far as the call, with a `reason`.
#[derive(Serialize, ToSchema)]
#[allow(dead_code)]
pub(super) struct LeaseProblem {
    /// Names the kind of problem.
    #[serde(rename = "type")]
    kind: String,
    /// The kind in words.
    title: String,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// What happened, whose fault it is, and what to do.
    detail: String,
    /// The kind, of those that docs/leases-over-http.md lists.
    #[schema(nullable = false)]
    code: Option<String>,
}

/// Take a worker code.
#[utoipa::path(
    post,
    path = "/v1/leases",
    tag = "leases",
    request_body = AcquireJson,
    responses(
        (status = 201, description = "It is granted", body = LeaseJson, headers(("location" = String, description = "The grant's address"))),
        (status = 200, description = "The same call was carried out before", body = LeaseJson),
        (status = 400, description = "The request cannot be read", body = LeaseProblem, content_type = "application/problem+json"),
        (status = 401, description = "A token is needed", body = LeaseProblem, content_type = "application/problem+json"),
        (status = 403, description = "The token does not allow it, or there are no tokens", body = LeaseProblem, content_type = "application/problem+json"),
        (status = 409, description = "The nonce was used, or layout or region are others", body = LeaseProblem, content_type = "application/problem+json"),
        (status = 413, description = "The request is too large", body = LeaseProblem, content_type = "application/problem+json"),
        (status = 415, description = "The body is not application/json", body = LeaseProblem, content_type = "application/problem+json"),
        (status = 422, description = "What is asked for is never given", body = LeaseProblem, content_type = "application/problem+json"),
        (status = 429, description = "The token's share is used up", body = LeaseProblem, content_type = "application/problem+json"),
        (status = 500, description = "The store has failed", body = LeaseProblem, content_type = "application/problem+json"),
        (status = 503, description = "None can be had now", body = LeaseProblem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn acquire(State(app): State<Arc<App>>, caller: Caller, request: Request) -> Response {
    serve(app, &caller, request).await
}

/// Go on holding a code.
#[utoipa::path(
    put,
    path = "/v1/leases/{id}",
    tag = "leases",
    params(("id" = String, Path, description = "The grant's ticket", pattern = "^(0|[1-9][0-9]{0,18})$")),
    request_body = RenewJson,
    responses(
        (status = 200, description = "It is renewed", body = LeaseJson),
        (status = 400, description = "The request cannot be read", body = LeaseProblem, content_type = "application/problem+json"),
        (status = 401, description = "A token is needed", body = LeaseProblem, content_type = "application/problem+json"),
        (status = 403, description = "The token does not allow it, or there are no tokens", body = LeaseProblem, content_type = "application/problem+json"),
        (status = 404, description = "There is no such path", body = LeaseProblem, content_type = "application/problem+json"),
        (status = 409, description = "The grant is over, or of another store, layout or region", body = LeaseProblem, content_type = "application/problem+json"),
        (status = 413, description = "The request is too large", body = LeaseProblem, content_type = "application/problem+json"),
        (status = 415, description = "The body is not application/json", body = LeaseProblem, content_type = "application/problem+json"),
        (status = 422, description = "What is asked for is never given", body = LeaseProblem, content_type = "application/problem+json"),
        (status = 429, description = "The token's share is used up", body = LeaseProblem, content_type = "application/problem+json"),
        (status = 500, description = "The store has failed", body = LeaseProblem, content_type = "application/problem+json"),
        (status = 503, description = "It cannot be renewed now", body = LeaseProblem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn renew(State(app): State<Arc<App>>, caller: Caller, request: Request) -> Response {
    serve(app, &caller, request).await
}

/// Give a code back.
#[utoipa::path(
    delete,
    path = "/v1/leases/{id}",
    tag = "leases",
    params(("id" = String, Path, description = "The grant's ticket", pattern = "^(0|[1-9][0-9]{0,18})$"), ReleaseQuery),
    responses(
        (status = 200, description = "It is given back", body = LeaseJson),
        (status = 400, description = "The request cannot be read", body = LeaseProblem, content_type = "application/problem+json"),
        (status = 401, description = "A token is needed", body = LeaseProblem, content_type = "application/problem+json"),
        (status = 403, description = "The token does not allow it, or there are no tokens", body = LeaseProblem, content_type = "application/problem+json"),
        (status = 404, description = "There is no such path", body = LeaseProblem, content_type = "application/problem+json"),
        (status = 409, description = "The grant is over, or of another store, layout or region", body = LeaseProblem, content_type = "application/problem+json"),
        (status = 413, description = "The request is too large", body = LeaseProblem, content_type = "application/problem+json"),
        (status = 422, description = "What is asked for is never given", body = LeaseProblem, content_type = "application/problem+json"),
        (status = 429, description = "The token's share is used up", body = LeaseProblem, content_type = "application/problem+json"),
        (status = 500, description = "The store has failed", body = LeaseProblem, content_type = "application/problem+json"),
        (status = 503, description = "It cannot be given back now", body = LeaseProblem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn release(State(app): State<Arc<App>>, caller: Caller, request: Request) -> Response {
    serve(app, &caller, request).await
}

async fn serve(app: Arc<App>, caller: &Caller, request: Request) -> Response {
    if let Err(problem) = app.allow(caller, Right::Lease, 0).and(app.region().map(drop)) {
        return problem.into_response();
    }
    let (parts, body) = request.into_parts();
    // One byte more than is read, so that a body that is too long is told from one that just fits.
    let Ok(body) = to_bytes(body, REQUEST_BYTES_MAX + 1).await else {
        return answer(fault(Fault::TooLarge { bytes_max: REQUEST_BYTES_MAX }));
    };
    let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content_type = content_type.map(str::to_owned);
    // The store blocks.
    let served = tokio::task::spawn_blocking(move || {
        let region = app.region().map_err(IntoResponse::into_response)?;
        let request = snowmint_lease_http::Request {
            method: parts.method.as_str(),
            path: parts.uri.path(),
            query: parts.uri.query(),
            content_type: content_type.as_deref(),
            body: &body,
        };
        let mut clock = || app.now();
        Ok(snowmint_lease_http::serve(&region.desk, &*region.store, &request, &mut clock, &mut fresh_nonce))
    });
    match served.await {
        Ok(Ok(response)) => answer(response),
        Ok(Err(response)) => response,
        Err(error) => answer(fault(Fault::Io { what: error.to_string() })),
    }
}

fn fault(fault: Fault) -> snowmint_lease_http::Response {
    snowmint_lease_http::Problem::new(fault).into_response()
}

fn answer(answer: snowmint_lease_http::Response) -> Response {
    let mut response = Response::new(Body::from(answer.body));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in answer.headers {
        // Digits, media types and methods: whatever a header can carry.
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}
