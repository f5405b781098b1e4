//! Errors as problem documents (RFC 9457).

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use snowmint::{InstanceError, WorkerError};
use snowmint_core::{ObserveError, Refusal, Wait};
use utoipa::ToSchema;

/// What went wrong: a problem document of RFC 9457.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "type": "urn:snowmint:problem:exhausted",
    "title": "No ID was minted",
    "status": 503,
    "detail": "every ID of this tick is minted: 1 ms to wait",
    "reason": "exhausted",
    "retry_after_ms": 1
}))]
pub(crate) struct Problem {
    /// Names the kind of problem: `urn:snowmint:problem:` and the reason.
    #[serde(rename = "type")]
    kind: String,
    /// The kind in words.
    title: &'static str,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// What happened, whose fault it is, and what to do.
    detail: String,
    /// The reason as every face of Snowmint names it: for programs to branch on.
    reason: &'static str,
    /// After how many milliseconds asking again helps, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

impl Problem {
    /// A problem of this status and reason.
    pub(super) fn new(status: StatusCode, reason: &'static str, detail: impl Into<String>) -> Self {
        let title = match status {
            StatusCode::BAD_REQUEST => "The request cannot be understood",
            StatusCode::UNAUTHORIZED => "The request needs a token",
            StatusCode::FORBIDDEN => "The token does not allow this",
            StatusCode::NOT_FOUND => "There is nothing at this address",
            StatusCode::METHOD_NOT_ALLOWED => "The address does not know this method",
            StatusCode::NOT_ACCEPTABLE => "The answer cannot be written in any accepted form",
            StatusCode::CONFLICT => "The request does not fit the layout or the store",
            StatusCode::PAYLOAD_TOO_LARGE => "The request is too long",
            StatusCode::UNPROCESSABLE_ENTITY => "The request asks for what cannot be",
            StatusCode::TOO_MANY_REQUESTS => "The token's share is used up",
            StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => "The request took too long",
            StatusCode::SERVICE_UNAVAILABLE => "No ID was minted",
            _ => "The request failed",
        };
        let kind = format!("urn:snowmint:problem:{reason}");
        Self { kind, title, status: status.as_u16(), detail: detail.into(), reason, retry_after_ms: None }
    }

    pub(super) fn bad_request(reason: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, reason, detail)
    }

    /// The service cannot do it now.
    pub(super) fn unavailable(reason: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, reason, detail)
    }

    pub(super) fn retry_after_ms(self, wait_ms: u64) -> Self {
        Self { retry_after_ms: Some(wait_ms), ..self }
    }

    /// Why no ID was minted.
    pub(super) fn of_worker(error: &WorkerError) -> Self {
        let problem = match (error, error.refusal()) {
            (_, Some(refusal)) => Self::unavailable(refusal.reason(), refusal.to_string()),
            // The service's state, not the ID's.
            (
                WorkerError::Observe(InstanceError::Core(
                    observe @ (ObserveError::Stopped | ObserveError::AboveCeiling { ceiling_ms: 0 }),
                )),
                None,
            ) => Self::unavailable(Refusal::LeaseLost.reason(), observe.to_string()),
            (WorkerError::Observe(observe), None) => {
                Self::new(StatusCode::CONFLICT, "after", format!("`after` cannot be followed: {observe}"))
            }
            (error, None) => Self::unavailable("worker", error.to_string()),
        };
        match error.wait() {
            Wait::Ms(wait_ms) => problem.retry_after_ms(wait_ms),
            Wait::Unknown | Wait::Never => problem,
        }
    }

    /// The reason.
    pub(super) const fn reason(&self) -> &'static str {
        self.reason
    }

    /// What happened, whose fault it is, and what to do.
    pub(super) fn detail(&self) -> &str {
        &self.detail
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let is_retryable = matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS);
        // In whole seconds, and never 0: that is all the header can say.
        let seconds = self.retry_after_ms.map_or(1, |wait_ms| wait_ms.div_ceil(1_000).max(1));
        let mut response = (status, Json(self)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if is_retryable {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<QueryRejection> for Problem {
    fn from(rejection: QueryRejection) -> Self {
        Self::bad_request("query", rejection.body_text())
    }
}

impl From<PathRejection> for Problem {
    fn from(rejection: PathRejection) -> Self {
        Self::bad_request("path", rejection.body_text())
    }
}

impl From<JsonRejection> for Problem {
    fn from(rejection: JsonRejection) -> Self {
        let status = match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => StatusCode::PAYLOAD_TOO_LARGE,
            StatusCode::UNSUPPORTED_MEDIA_TYPE => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            _ => StatusCode::BAD_REQUEST,
        };
        Self::new(status, "body", rejection.body_text())
    }
}
