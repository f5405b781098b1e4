//! Errors as problem documents (RFC 9457): a stable `code` to branch on, and every field of the error beside it.

use serde::{Deserialize, Serialize};
use snowmint_lease::protocol::NoneLeft;
use snowmint_lease::{CallError, LeaseRefusal, Owner, State, StoreError, Subject};

use crate::text::Dec;

/// The media type of a problem document.
pub const PROBLEM_TYPE: &str = "application/problem+json";

/// What `type` begins with: the page that explains each code. Clients branch on `code`.
const PAGE: &str = "https://github.com/snowmint/snowmint/blob/main/docs/leases-over-http.md#";

/// What went wrong, by its code. Every [`CallError`] that a desk tells has one, and HTTP adds a few.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(tag = "code", rename_all = "kebab-case")]
#[non_exhaustive]
#[allow(missing_docs)] // Each is a row of docs/leases-over-http.md, and a variant of `CallError`.
pub enum Fault {
    // The request.
    Malformed { what: String },
    TooLarge { bytes_max: usize },
    NoSuchPath,
    MethodNotAllowed { allow: String },
    UnsupportedMediaType,
    Unauthorised,
    Invalid { what: String },
    // The call.
    NonceSpent,
    NotHolder { state: StateName, term: u32 },
    NoneLeft { codes: u32, active: u32, wait_ms: Option<Text64>, ended_last_ms: Option<Text64> },
    ClockUncertain { clock_error_ms: Option<u32> },
    NotFree { state: StateName, owner: Option<String> },
    Quarantined { until_ms: Text64, wait_ms: Text64 },
    NotYet { floor_ms: Text64, wait_ms: Text64 },
    LayoutEnded { last_ms: Text64 },
    TermsEnded,
    // The store.
    Unreachable { what: String },
    WrongLayout { stored: String, configured: String },
    WrongRegion { stored: u32, configured: u32 },
    WrongGeneration { stored: u16, granted: u16 },
    WrongVersion { found: u32, expected: u32 },
    Denied { what: String },
    Misconfigured { what: String },
    Missing { of: Option<u32> },
    Damaged { of: Option<u32>, what: String },
    Gone { place: String },
    Unreadable { what: String },
    NotInitialised { place: String },
    InUse { by: String },
    NoLocks { place: String },
    Copied { what: String },
    NoDirectory { place: String, what: String },
    Forked,
    ReadOnly { what: String },
    Full { what: String },
    Io { what: String },
}

/// 64 bits, as a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Text64(Dec);

impl From<u64> for Text64 {
    fn from(number: u64) -> Self {
        Self(Dec(number))
    }
}

impl From<Text64> for u64 {
    fn from(text: Text64) -> Self {
        text.0.0
    }
}

/// What a code is doing, by [`State::name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)] // See `State`.
pub enum StateName {
    Free,
    Active,
    Expired,
    Fenced,
}

impl From<State> for StateName {
    fn from(state: State) -> Self {
        match state {
            State::Free => Self::Free,
            State::Active => Self::Active,
            State::Expired => Self::Expired,
            State::Fenced => Self::Fenced,
        }
    }
}

impl From<StateName> for State {
    fn from(state: StateName) -> Self {
        match state {
            StateName::Free => Self::Free,
            StateName::Active => Self::Active,
            StateName::Expired => Self::Expired,
            StateName::Fenced => Self::Fenced,
        }
    }
}

/// The code of a subject; `None` for the cluster.
const fn of(subject: Subject) -> Option<u32> {
    match subject {
        Subject::Cluster => None,
        Subject::Code(code) => Some(code),
    }
}

const fn subject(of: Option<u32>) -> Subject {
    match of {
        None => Subject::Cluster,
        Some(code) => Subject::Code(code),
    }
}

impl From<CallError> for Fault {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Store(error) => Self::from_store(error),
            CallError::Refused(refusal) => Self::from_refusal(refusal),
            CallError::NoneLeft(NoneLeft { codes, active, wait_ms, ended_last_ms }) => Self::NoneLeft {
                codes,
                active,
                wait_ms: wait_ms.map(Text64::from),
                ended_last_ms: ended_last_ms.map(Text64::from),
            },
            CallError::Clock { clock_error_ms } => {
                Self::ClockUncertain { clock_error_ms: Some(clock_error_ms).filter(|it| *it != u32::MAX) }
            }
            CallError::Spent => Self::NonceSpent,
            CallError::Invalid { detail } => Self::Invalid { what: detail },
            error => Self::Unreachable { what: error.to_string() },
        }
    }
}

impl Fault {
    /// That a part of a request cannot be read.
    pub(crate) fn malformed(part: &str, what: &str) -> Self {
        Self::Malformed { what: format!("{part}: {what}") }
    }

    fn from_refusal(refusal: LeaseRefusal) -> Self {
        match refusal {
            LeaseRefusal::NotHolder { state, term } => Self::NotHolder { state: state.into(), term },
            LeaseRefusal::NotFree { state, owner } => {
                Self::NotFree { state: state.into(), owner: owner.map(|owner| owner.as_str().to_owned()) }
            }
            LeaseRefusal::Quarantined { until_ms, wait_ms } => {
                Self::Quarantined { until_ms: until_ms.into(), wait_ms: wait_ms.into() }
            }
            LeaseRefusal::NotYet { floor_ms, wait_ms } => {
                Self::NotYet { floor_ms: floor_ms.into(), wait_ms: wait_ms.into() }
            }
            LeaseRefusal::LayoutEnded { last_ms } => Self::LayoutEnded { last_ms: last_ms.into() },
            LeaseRefusal::TermsEnded => Self::TermsEnded,
            // Of an operator's acts, or of a race that the next call finds decided.
            refusal => Self::Unreachable { what: refusal.to_string() },
        }
    }

    fn from_store(error: StoreError) -> Self {
        match error {
            StoreError::Unreachable { detail } => Self::Unreachable { what: detail },
            StoreError::WrongLayout { stored, configured } => Self::WrongLayout { stored, configured },
            StoreError::WrongRegion { stored, configured } => Self::WrongRegion { stored, configured },
            StoreError::WrongGeneration { stored, granted } => Self::WrongGeneration { stored, granted },
            StoreError::WrongVersion { found, expected } => Self::WrongVersion { found, expected },
            StoreError::Denied { detail } => Self::Denied { what: detail },
            StoreError::Misconfigured { detail } => Self::Misconfigured { what: detail },
            StoreError::Missing { subject } => Self::Missing { of: of(subject) },
            StoreError::Damaged { subject, detail } => Self::Damaged { of: of(subject), what: detail },
            StoreError::Gone { place } => Self::Gone { place },
            StoreError::Unreadable { detail } => Self::Unreadable { what: detail },
            StoreError::NotInitialised { place } => Self::NotInitialised { place },
            StoreError::InUse { by } => Self::InUse { by },
            StoreError::NoLocks { place } => Self::NoLocks { place },
            StoreError::Copied { detail } => Self::Copied { what: detail },
            StoreError::NoDirectory { place, detail } => Self::NoDirectory { place, what: detail },
            StoreError::Forked => Self::Forked,
            StoreError::ReadOnly { detail } => Self::ReadOnly { what: detail },
            StoreError::Full { detail } => Self::Full { what: detail },
            StoreError::Io { detail } => Self::Io { what: detail },
            // A desk reads again after these.
            error @ (StoreError::Conflict { .. } | StoreError::ClusterChanged) => {
                Self::Unreachable { what: error.to_string() }
            }
            // What only init and recovery tell, and what is yet to be named: definite, and whatever was asked may have
            // been done.
            error => Self::Io { what: error.to_string() },
        }
    }

    /// The error that this tells: what the desk had, where a desk told it.
    pub fn into_error(self) -> CallError {
        let store = |error| CallError::Store(error);
        let refused = |refusal| CallError::Refused(refusal);
        match self {
            Self::Malformed { what } | Self::Invalid { what } => CallError::Invalid { detail: what },
            Self::TooLarge { .. }
            | Self::NoSuchPath
            | Self::MethodNotAllowed { .. }
            | Self::UnsupportedMediaType => CallError::Invalid { detail: self.title().to_owned() },
            Self::Unauthorised => {
                store(StoreError::Denied { detail: String::from("the bearer token is missing or wrong") })
            }
            Self::NonceSpent => CallError::Spent,
            Self::NotHolder { state, term } => refused(LeaseRefusal::NotHolder { state: state.into(), term }),
            Self::NoneLeft { codes, active, wait_ms, ended_last_ms } => CallError::NoneLeft(NoneLeft {
                codes,
                active,
                wait_ms: wait_ms.map(u64::from),
                ended_last_ms: ended_last_ms.map(u64::from),
            }),
            Self::ClockUncertain { clock_error_ms } => {
                CallError::Clock { clock_error_ms: clock_error_ms.unwrap_or(u32::MAX) }
            }
            Self::NotFree { state, owner } => refused(LeaseRefusal::NotFree {
                state: state.into(),
                owner: owner.and_then(|owner| Owner::new(owner).ok()),
            }),
            Self::Quarantined { until_ms, wait_ms } => {
                refused(LeaseRefusal::Quarantined { until_ms: until_ms.into(), wait_ms: wait_ms.into() })
            }
            Self::NotYet { floor_ms, wait_ms } => {
                refused(LeaseRefusal::NotYet { floor_ms: floor_ms.into(), wait_ms: wait_ms.into() })
            }
            Self::LayoutEnded { last_ms } => refused(LeaseRefusal::LayoutEnded { last_ms: last_ms.into() }),
            Self::TermsEnded => refused(LeaseRefusal::TermsEnded),
            Self::Unreachable { what } => store(StoreError::Unreachable { detail: what }),
            Self::WrongLayout { stored, configured } => store(StoreError::WrongLayout { stored, configured }),
            Self::WrongRegion { stored, configured } => store(StoreError::WrongRegion { stored, configured }),
            Self::WrongGeneration { stored, granted } => {
                store(StoreError::WrongGeneration { stored, granted })
            }
            Self::WrongVersion { found, expected } => store(StoreError::WrongVersion { found, expected }),
            Self::Denied { what } => store(StoreError::Denied { detail: what }),
            Self::Misconfigured { what } => store(StoreError::Misconfigured { detail: what }),
            Self::Missing { of } => store(StoreError::Missing { subject: subject(of) }),
            Self::Damaged { of, what } => store(StoreError::Damaged { subject: subject(of), detail: what }),
            Self::Gone { place } => store(StoreError::Gone { place }),
            Self::Unreadable { what } => store(StoreError::Unreadable { detail: what }),
            Self::NotInitialised { place } => store(StoreError::NotInitialised { place }),
            Self::InUse { by } => store(StoreError::InUse { by }),
            Self::NoLocks { place } => store(StoreError::NoLocks { place }),
            Self::Copied { what } => store(StoreError::Copied { detail: what }),
            Self::NoDirectory { place, what } => store(StoreError::NoDirectory { place, detail: what }),
            Self::Forked => store(StoreError::Forked),
            Self::ReadOnly { what } => store(StoreError::ReadOnly { detail: what }),
            Self::Full { what } => store(StoreError::Full { detail: what }),
            Self::Io { what } => store(StoreError::Io { detail: what }),
        }
    }

    /// The status of a response that tells it.
    pub const fn status(&self) -> u16 {
        match self {
            Self::Malformed { .. } => 400,
            Self::Unauthorised => 401,
            Self::NoSuchPath => 404,
            Self::MethodNotAllowed { .. } => 405,
            Self::WrongLayout { .. }
            | Self::WrongRegion { .. }
            | Self::WrongGeneration { .. }
            | Self::NonceSpent
            | Self::NotHolder { .. } => 409,
            Self::TooLarge { .. } => 413,
            Self::UnsupportedMediaType => 415,
            Self::Invalid { .. } => 422,
            Self::NoneLeft { .. }
            | Self::ClockUncertain { .. }
            | Self::NotFree { .. }
            | Self::Quarantined { .. }
            | Self::NotYet { .. }
            | Self::LayoutEnded { .. }
            | Self::TermsEnded
            | Self::Unreachable { .. } => 503,
            _ => 500,
        }
    }

    /// What it is, in words that are the same each time.
    const fn title(&self) -> &'static str {
        match self {
            Self::Malformed { .. } => "The request cannot be read",
            Self::TooLarge { .. } => "The request is too large",
            Self::NoSuchPath => "There is nothing at this path",
            Self::MethodNotAllowed { .. } => "This method is not for this path",
            Self::UnsupportedMediaType => "The body is not application/json",
            Self::Unauthorised => "The bearer token is missing or wrong",
            Self::Invalid { .. } => "The call asks for what is never given",
            Self::NonceSpent => "The nonce was used before",
            Self::NotHolder { .. } => "The grant is over",
            Self::NoneLeft { .. } => "No code can be had now",
            Self::ClockUncertain { .. } => "The service's clock is not to be believed",
            Self::WrongLayout { .. } => "The service leases another layout",
            Self::WrongRegion { .. } => "The service leases another region",
            Self::WrongGeneration { .. } => "The store was recovered or replaced",
            Self::Unreachable { .. } => "The service cannot reach its store",
            Self::LayoutEnded { .. } => "The layout has ended",
            Self::NotFree { .. } | Self::Quarantined { .. } | Self::NotYet { .. } | Self::TermsEnded => {
                "The code cannot be had now"
            }
            _ => "The service's store has failed",
        }
    }

    /// Seconds after which to ask again, where that is known.
    pub(crate) fn retry_after_s(&self) -> Option<u64> {
        let wait_ms = match self {
            Self::NoneLeft { wait_ms: Some(wait_ms), .. }
            | Self::Quarantined { wait_ms, .. }
            | Self::NotYet { wait_ms, .. } => u64::from(*wait_ms),
            _ => return None,
        };
        Some(wait_ms.div_ceil(1_000))
    }
}

/// A problem document.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Problem {
    /// A page about the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it is, in words that are the same each time.
    pub title: String,
    /// The status of the response.
    pub status: u16,
    /// What happened, whose fault it is, what to do next.
    pub detail: String,
    /// The code, and its fields.
    #[serde(flatten)]
    pub fault: Fault,
}

impl Problem {
    /// The document that tells `fault`.
    pub fn new(fault: Fault) -> Self {
        let code = match serde_json::to_value(&fault) {
            Ok(value) => value.get("code").and_then(|code| code.as_str().map(str::to_owned)),
            Err(_) => None,
        };
        Self {
            kind: format!("{PAGE}{}", code.unwrap_or_default()),
            title: fault.title().to_owned(),
            status: fault.status(),
            detail: fault.clone().into_error().to_string(),
            fault,
        }
    }

    /// A response that tells it.
    pub fn into_response(self) -> crate::Response {
        let mut headers =
            vec![("content-type", String::from(PROBLEM_TYPE)), ("cache-control", String::from("no-store"))];
        match &self.fault {
            Fault::MethodNotAllowed { allow } => headers.push(("allow", allow.clone())),
            Fault::Unauthorised => headers.push(("www-authenticate", String::from("Bearer"))),
            fault => {
                if let Some(seconds) = fault.retry_after_s() {
                    headers.push(("retry-after", seconds.to_string()));
                }
            }
        }
        // A document of strings and numbers can always be written.
        let body = serde_json::to_vec(&self).unwrap_or_default();
        crate::Response { status: self.status, headers, body }
    }
}
