//! Any bytes as a request for a lease, and as a service's answer: no panic, and what was read is written and read again
//! as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use snowmint_lease_http::message::{read_answer, receive, send};
use snowmint_lease_http::{Problem, Request};

fuzz_target!(|bytes: &[u8]| {
    // Method, ticket, query, each a line; the rest is the body.
    let mut parts = bytes.splitn(4, |byte| *byte == b'\n');
    let mut text = || String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let (method, id, query) = (text(), text(), text());
    let body = parts.next().unwrap_or_default();
    let path = if id.is_empty() { String::from("/v1/leases") } else { format!("/v1/leases/{id}") };
    let content_type = Some("application/json");
    let request = Request { method: &method, path: &path, query: Some(&query), content_type, body };
    match receive(&request) {
        Ok(call) => {
            let sent = send(&call).unwrap();
            let (path, query) = sent.target.split_once('?').map_or((&*sent.target, None), |(a, b)| (a, Some(b)));
            let body = sent.body.as_deref().unwrap_or_default();
            let again = Request { method: sent.method, path, query, content_type, body };
            assert_eq!(receive(&again), Ok(call));
        }
        Err(fault) => {
            let response = Problem::new(fault.clone()).into_response();
            let problem: Problem = serde_json::from_slice(&response.body).unwrap();
            assert_eq!(problem.fault, fault);
        }
    }
    let _ = read_answer(body);
    if let Ok(problem) = serde_json::from_slice::<Problem>(body) {
        let _ = problem.fault.into_error();
    }
});
