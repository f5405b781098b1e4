//! A service's side, for whatever server there is: a request becomes a call, an answer becomes a response.

use snowmint_lease::desk::{Answer, Call};
use snowmint_lease::{CallError, Desk, Now, Store};

use crate::message::{PATH, Request, receive, write_answer};
use crate::problem::{Fault, Problem};

/// What to send back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// Headers, their names in lower case.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// Whether a path belongs to leases.
pub fn is_for_leases(path: &str) -> bool {
    path.strip_prefix(PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Serves a request: all of `POST`, `PUT` and `DELETE`. Blocks as the store does; never panics, whatever was sent.
///
/// Who may ask is for the server to have looked at before ([`Fault::Unauthorised`]).
pub fn serve(
    desk: &Desk,
    store: &dyn Store,
    request: &Request<'_>,
    clock: &mut dyn FnMut() -> Now,
    nonce: &mut dyn FnMut() -> u128,
) -> Response {
    match receive(request) {
        Ok(call) => respond(&call, desk.serve(store, &call, clock, nonce)),
        Err(fault) => Problem::new(fault).into_response(),
    }
}

/// The response that tells what came of a call.
pub fn respond(call: &Call, answer: Result<Answer, CallError>) -> Response {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return Problem::new(error.into()).into_response(),
    };
    let body = match write_answer(&answer) {
        Ok(body) => body,
        Err(error) => return Problem::new(Fault::Io { what: error.to_string() }).into_response(),
    };
    let mut headers = vec![
        ("content-type", String::from("application/json")),
        // What is answered is true of this moment alone.
        ("cache-control", String::from("no-store")),
    ];
    let is_new = matches!(call, Call::Acquire(_)) && !answer.is_repeated;
    if is_new {
        headers.push(("location", format!("{PATH}/{}", answer.grant.ticket)));
    }
    Response { status: if is_new { 201 } else { 200 }, headers, body }
}
