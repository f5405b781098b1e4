//! What went wrong with a request, and what to do with the member that it went to.

use std::error::Error;

use etcd_client::Error as EtcdError;
use snowmint_lease::StoreError;
use tonic::{Code, Status};

/// What to do with a member after a request to it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Nothing: it answered.
    Stay,
    /// Go to another: it answered that it cannot serve now.
    Rotate,
    /// Go to another, and connect anew: nothing is known of the connection any more.
    Reconnect,
    /// Authenticate anew: it does not know the token any more.
    Authenticate,
}

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) error: StoreError,
    pub(crate) then: Then,
}

impl Fault {
    /// The time was up before there was an answer.
    pub(crate) fn no_reply() -> Self {
        unreachable(String::from("no reply in time"), Then::Reconnect)
    }
}

impl From<EtcdError> for Fault {
    fn from(error: EtcdError) -> Self {
        match error {
            EtcdError::GRpcStatus(status) => from_status(&status),
            EtcdError::TransportError(error) => unreachable(with_sources(&error), Then::Reconnect),
            EtcdError::IoError(error) => unreachable(with_sources(&error), Then::Reconnect),
            EtcdError::InvalidArgs(_) | EtcdError::InvalidUri(_) | EtcdError::InvalidMetadataValue(_) => {
                Self { error: StoreError::Misconfigured { detail: error.to_string() }, then: Then::Stay }
            }
            // Of calls that are not made here.
            other => unreachable(other.to_string(), Then::Reconnect),
        }
    }
}

/// etcd names its errors by their text; codes alone are too coarse. What is not known is an unknown outcome.
///
/// | answer | error | was a swap written? |
/// |---|---|---|
/// | no leader, leader changed, timed out, stopped, too many requests | `Unreachable` | not known |
/// | token invalid or older than a change of users | `Unreachable` | no; by the rule it is not sent again here |
/// | no such user, wrong password, no permission, authentication not enabled | `Denied` | no |
/// | database space exceeded | `Full` | *not known*: the store reads, and then knows |
/// | too many operations, request too large | `Misconfigured` | no |
/// | corrupt cluster | `Unreadable` | no |
fn from_status(status: &Status) -> Fault {
    let text = status.message();
    let detail = || with_sources(status);
    let definite = |error| Fault { error, then: Then::Stay };
    match status.code() {
        Code::Unauthenticated => unreachable(detail(), Then::Authenticate),
        // Of a token from before a change of users; versions of etcd differ in the code and in the words.
        _ if text.contains("revision of auth store is old") || text.contains("revision in header is old") => {
            unreachable(detail(), Then::Authenticate)
        }
        Code::PermissionDenied => definite(StoreError::Denied { detail: detail() }),
        Code::InvalidArgument
            if text.contains("authentication failed") || text.contains("user name is empty") =>
        {
            definite(StoreError::Denied { detail: detail() })
        }
        Code::FailedPrecondition
            if text.contains("auth") || text.contains("user") || text.contains("role") =>
        {
            definite(StoreError::Denied { detail: detail() })
        }
        Code::ResourceExhausted if text.contains("space exceeded") => definite(StoreError::Full {
            detail: format!(
                "{text}; compact and defragment etcd or raise its --quota-backend-bytes, then disarm the alarm"
            ),
        }),
        Code::InvalidArgument if text.contains("too many operations") || text.contains("too large") => {
            definite(StoreError::Misconfigured {
                detail: format!("{text}; etcd's own limits are set too low"),
            })
        }
        Code::DataLoss => definite(StoreError::Unreadable { detail: detail() }),
        // A member that answers in etcd's words has a connection that works.
        _ if text.starts_with("etcdserver:") => unreachable(detail(), Then::Rotate),
        _ => unreachable(detail(), Then::Reconnect),
    }
}

fn unreachable(detail: String, then: Then) -> Fault {
    Fault { error: StoreError::Unreachable { detail }, then }
}

/// The error with what it comes from: the transport's own text says only "transport error".
fn with_sources(error: &(dyn Error + 'static)) -> String {
    let mut text = match error.downcast_ref::<Status>() {
        Some(status) => status.message().to_owned(),
        None => error.to_string(),
    };
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_of_etcd_has_a_name_here() {
        // Shows what each refusal of etcd 3.4 to 3.6 becomes, and what is done with the member.
        for (code, text, reason, then) in [
            (Code::Unavailable, "etcdserver: no leader", "unreachable", Then::Rotate),
            (Code::Unavailable, "etcdserver: leader changed", "unreachable", Then::Rotate),
            (Code::Unavailable, "etcdserver: request timed out", "unreachable", Then::Rotate),
            (
                Code::Unavailable,
                "etcdserver: request timed out, possibly due to previous leader failure",
                "unreachable",
                Then::Rotate,
            ),
            (Code::Unavailable, "etcdserver: server stopped", "unreachable", Then::Rotate),
            (Code::ResourceExhausted, "etcdserver: too many requests", "unreachable", Then::Rotate),
            (Code::Unavailable, "error trying to connect", "unreachable", Then::Reconnect),
            (Code::Unknown, "h2 protocol error", "unreachable", Then::Reconnect),
            (Code::Cancelled, "Timeout expired", "unreachable", Then::Reconnect),
            (Code::Internal, "anything", "unreachable", Then::Reconnect),
            (Code::Unauthenticated, "etcdserver: invalid auth token", "unreachable", Then::Authenticate),
            (
                Code::InvalidArgument,
                "etcdserver: revision of auth store is old",
                "unreachable",
                Then::Authenticate,
            ),
            (Code::Unknown, "auth: revision in header is old", "unreachable", Then::Authenticate),
            (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
                "denied",
                Then::Stay,
            ),
            (Code::InvalidArgument, "etcdserver: user name is empty", "denied", Then::Stay),
            (Code::PermissionDenied, "etcdserver: permission denied", "denied", Then::Stay),
            (Code::FailedPrecondition, "etcdserver: authentication is not enabled", "denied", Then::Stay),
            (Code::FailedPrecondition, "etcdserver: user name not found", "denied", Then::Stay),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", "full", Then::Stay),
            (
                Code::InvalidArgument,
                "etcdserver: too many operations in txn request",
                "misconfigured",
                Then::Stay,
            ),
            (Code::InvalidArgument, "etcdserver: request is too large", "misconfigured", Then::Stay),
            (Code::DataLoss, "etcdserver: corrupt cluster", "unreadable", Then::Stay),
        ] {
            let fault = from_status(&Status::new(code, text));
            assert_eq!((fault.error.reason(), fault.then), (reason, then), "{text}");
            assert!(fault.error.to_string().contains(text), "{}", fault.error);
        }
    }
}
