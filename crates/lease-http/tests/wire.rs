//! Requests and responses without a network: what is written is read again, and whatever is sent is answered.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // It is all test.

use proptest::prelude::*;
use serde_json::{Value, json};
use snowmint_core::Layout;
use snowmint_lease::desk::{Acquire, Answer, Call, GrantName, Release, Renew, kin_of};
use snowmint_lease::protocol::NoneLeft;
use snowmint_lease::{
    CallError, ClusterRecord, Desk, DeskConfig, LeaseRefusal, MemoryStore, Now, Owner, State, StoreError,
    Subject, init,
};
use snowmint_lease_http::message::{read_answer, receive, send};
use snowmint_lease_http::{
    Fault, PATH, Problem, REQUEST_BYTES_MAX, Request, Response, is_for_leases, respond, serve,
};

const NOW: Now = Now { boot_ms: 5_000, wall_ms: 1_750_000_000_000, clock_error_ms: 2 };

fn serve_on(store: &MemoryStore, request: &Request<'_>) -> Response {
    serve(&Desk::new(DeskConfig::default()), store, request, &mut || NOW, &mut || 1)
}

fn founded() -> MemoryStore {
    let store = MemoryStore::new();
    init(&store, &ClusterRecord::new(7, Layout::SNOWMINT, 0).unwrap()).unwrap();
    store
}

/// Reads a call as a server does what a client sends for it.
fn passed(call: &Call) -> Result<Call, Fault> {
    let sent = send(call).unwrap();
    let (path, query) = match sent.target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (sent.target.as_str(), None),
    };
    let content_type = sent.body.as_ref().map(|_| "application/json; charset=utf-8");
    let body = sent.body.as_deref().unwrap_or_default();
    receive(&Request { method: sent.method, path, query, content_type, body })
}

fn grant() -> GrantName {
    GrantName { ticket: u64::MAX, store: 0xff << 100, layout: Layout::SNOWMINT, region: 3 }
}

#[test]
fn a_call_is_read_as_it_was_meant() {
    // Shows every field of every call at its ends, and the presence and absence of those that may be absent.
    let owner = Owner::new("Zürich \"edge\" \\ 7").unwrap();
    for (layout, region) in [(None, None), (Some(Layout::SNOWMINT), Some(u32::MAX))] {
        for nonce in [0, u128::MAX] {
            let (window_ms, lead_ms) = (u32::MAX, 0);
            let call = Acquire { layout, region, owner: owner.clone(), window_ms, lead_ms, nonce };
            assert_eq!(passed(&Call::Acquire(call.clone())), Ok(Call::Acquire(call)));
        }
    }
    let call = Call::Renew(Renew { grant: grant(), window_ms: 1, lead_ms: 9, held: 1 << 127, nonce: 3 });
    assert_eq!(passed(&call), Ok(call));
    for (perhaps_held, last_reserved_ms) in [(None, u64::MAX), (Some(5), 0), (Some(u128::MAX), 1 << 62)] {
        let (held, nonce) = (1, 2);
        let call = Call::Release(Release { grant: grant(), last_reserved_ms, held, perhaps_held, nonce });
        assert_eq!(passed(&call), Ok(call));
    }
}

#[test]
fn an_answer_is_read_as_it_was_meant_and_big_numbers_are_strings() {
    // Shows every field of an answer at its ends, the status, and that no number of the JSON passes 32 bits.
    for (clock_error_ms, is_repeated, end_ms) in [(0, false, u64::MAX), (u32::MAX, true, 0)] {
        let answer = Answer {
            grant: grant(),
            code: 65_535,
            term: u32::MAX,
            floor_ms: end_ms / 2,
            end_ms,
            nonce: u128::MAX,
            now_ms: u64::MAX,
            clock_error_ms,
            is_repeated,
        };
        let acquire = Acquire {
            layout: None,
            region: None,
            owner: Owner::new("a").unwrap(),
            window_ms: 30,
            lead_ms: 0,
            nonce: 1,
        };
        let response = respond(&Call::Acquire(acquire), Ok(answer));
        assert_eq!(response.status, if is_repeated { 200 } else { 201 });
        assert_eq!(read_answer(&response.body), Ok(answer));
        assert_small(&serde_json::from_slice(&response.body).unwrap());
    }
}

fn assert_small(value: &Value) {
    match value {
        Value::Number(number) => {
            assert!(number.as_u64().is_some_and(|it| u32::try_from(it).is_ok()), "{number}");
        }
        Value::Array(values) => values.iter().for_each(assert_small),
        Value::Object(fields) => fields.values().for_each(assert_small),
        _ => {}
    }
}

#[test]
fn an_error_is_the_same_on_both_sides() {
    // Shows that each error that a desk tells comes back as it was, in a document with type, title, status, detail and
    // code, no number in it above 32 bits.
    let text = || String::from("what \"it\" was\n");
    let store = [
        StoreError::Unreachable { detail: text() },
        StoreError::Denied { detail: text() },
        StoreError::Misconfigured { detail: text() },
        StoreError::Missing { subject: Subject::Cluster },
        StoreError::Missing { subject: Subject::Code(65_535) },
        StoreError::Gone { place: text() },
        StoreError::Damaged { subject: Subject::Code(0), detail: text() },
        StoreError::Damaged { subject: Subject::Cluster, detail: text() },
        StoreError::Unreadable { detail: text() },
        StoreError::WrongVersion { found: 2, expected: 1 },
        StoreError::WrongLayout { stored: text(), configured: Layout::SNOWMINT.to_string() },
        StoreError::WrongRegion { stored: 1, configured: 2 },
        StoreError::WrongGeneration { stored: 2, granted: 1 },
        StoreError::WrongGeneration { stored: 1, granted: u16::MAX },
        StoreError::NotInitialised { place: text() },
        StoreError::InUse { by: text() },
        StoreError::NoLocks { place: text() },
        StoreError::Copied { detail: text() },
        StoreError::NoDirectory { place: text(), detail: text() },
        StoreError::Forked,
        StoreError::ReadOnly { detail: text() },
        StoreError::Full { detail: text() },
        StoreError::Io { detail: text() },
    ];
    let owner = Owner::new("host-7").ok();
    let none = |wait_ms, ended_last_ms| NoneLeft { codes: 256, active: 9, wait_ms, ended_last_ms };
    let others = [
        CallError::Refused(LeaseRefusal::NotHolder { state: State::Fenced, term: u32::MAX }),
        CallError::Refused(LeaseRefusal::NotFree { state: State::Active, owner }),
        CallError::Refused(LeaseRefusal::NotFree { state: State::Expired, owner: None }),
        CallError::Refused(LeaseRefusal::Quarantined { until_ms: u64::MAX, wait_ms: 1 << 60 }),
        CallError::Refused(LeaseRefusal::NotYet { floor_ms: 1 << 60, wait_ms: 7 }),
        CallError::Refused(LeaseRefusal::LayoutEnded { last_ms: u64::MAX }),
        CallError::Refused(LeaseRefusal::TermsEnded),
        CallError::NoneLeft(none(Some(1 << 60), None)),
        CallError::NoneLeft(none(None, Some(u64::MAX))),
        CallError::NoneLeft(none(None, None)),
        CallError::Clock { clock_error_ms: 11 },
        CallError::Clock { clock_error_ms: u32::MAX },
        CallError::Spent,
        CallError::Invalid { detail: text() },
    ];
    let mut codes = std::collections::BTreeSet::new();
    for error in store.into_iter().map(CallError::Store).chain(others) {
        let response = Problem::new(error.clone().into()).into_response();
        let problem: Problem = serde_json::from_slice(&response.body).unwrap();
        assert_eq!(problem.fault.clone().into_error(), error);
        let value: Value = serde_json::from_slice(&response.body).unwrap();
        let code = value["code"].as_str().unwrap().to_owned();
        assert!(value["type"].as_str().unwrap().ends_with(&format!("leases-over-http.md#{code}")));
        assert_eq!(value["status"], response.status);
        assert_eq!(value["detail"], error.to_string());
        assert!(!value["title"].as_str().unwrap().is_empty() && response.status >= 400);
        assert!(response.headers.contains(&("content-type", String::from("application/problem+json"))));
        assert_small(&value);
        codes.insert(code);
    }
    // What a reader looks up is on the page.
    let page = include_str!("../../../docs/leases-over-http.md");
    for fault in [
        "malformed",
        "too-large",
        "no-such-path",
        "method-not-allowed",
        "unsupported-media-type",
        "unauthorised",
    ] {
        codes.insert(fault.to_owned());
    }
    for code in codes {
        assert!(page.contains(&format!("| `{code}` |")), "the page does not tell of {code}");
    }
}

fn check(request: &Request<'_>, status: u16, part: &str) {
    let response = serve_on(&founded(), request);
    let told = String::from_utf8(response.body).unwrap();
    assert_eq!(response.status, status, "{request:?}: {told}");
    assert!(told.contains(part), "{request:?}: {told:?} should tell {part:?}");
}

fn plain<'a>(method: &'a str, path: &'a str, query: Option<&'a str>) -> Request<'a> {
    Request { method, path, query, content_type: Some("application/json"), body: b"{}" }
}

#[test]
fn what_cannot_be_read_is_told_and_never_guessed() {
    // Shows the answer to each kind of request that is none of the three, by its status, its code and what it names.
    let hex = "0123456789abcdef0123456789abcdef";
    let good = json!({"owner": "me", "window_ms": 10_000, "nonce": hex});
    let with = |name: &str, value: Value| {
        let mut body = good.clone();
        body[name] = value;
        body.to_string()
    };
    let without = |name: &str| {
        let mut body = good.clone();
        body.as_object_mut().unwrap().remove(name);
        body.to_string()
    };
    let json_type = Some("application/json");
    let post = |body: &str, status: u16, part: &str| {
        let request = Request {
            method: "POST",
            path: PATH,
            query: None,
            content_type: json_type,
            body: body.as_bytes(),
        };
        check(&request, status, part);
    };
    post(&good.to_string(), 201, "\"id\"");
    for body in ["", "{", "[]", "null", "7", "\"a\"", "{}{}", "\u{0}"] {
        post(body, 400, "malformed");
    }
    post(&"[".repeat(REQUEST_BYTES_MAX), 400, "malformed");
    post(&" ".repeat(REQUEST_BYTES_MAX + 1), 413, "too-large");
    for name in ["owner", "window_ms", "nonce"] {
        post(&without(name), 400, name);
    }
    for nonce in [
        json!(7),
        json!(null),
        json!(""),
        json!(&hex[1..]),
        json!(hex.to_uppercase()),
        json!(format!("+{}", &hex[1..])),
        json!(format!("{hex}0")),
        json!("0123456789abcdef0123456789abcdeg"),
        json!("é".repeat(16)),
    ] {
        post(&with("nonce", nonce), 400, "malformed");
    }
    for window in [json!(-1), json!(1.5), json!("1000"), json!(4_294_967_296_u64), json!(null), json!([])] {
        post(&with("window_ms", window), 400, "malformed");
    }
    post(&with("window_ms", json!(29)), 422, "29 ms");
    post(&with("lead_ms", json!(u32::MAX)), 422, "4294967295 ms");
    for owner in [json!(""), json!(" a"), json!("a\nb"), json!("é".repeat(129)), json!("a\u{202e}b")] {
        post(&with("owner", owner), 400, "the owner's name");
    }
    for layout in [json!(""), json!("snowmint"), json!(7), json!("reserved:1 timestamp:64")] {
        post(&with("layout", layout), 400, "malformed");
    }
    post(&with("layout", json!(Layout::SNOWMINT.to_string())), 201, "\"id\"");
    post(&with("region", json!(1)), 409, "wrong-region");
    post(&with("colour", json!(1)), 400, "colour");
    post(&good.to_string().replacen('{', &format!("{{\"nonce\":\"{hex}\","), 1), 400, "duplicate");

    for content_type in [None, Some(""), Some("text/plain"), Some("application/jsonp")] {
        let body = good.to_string();
        let body = body.as_bytes();
        check(&Request { method: "POST", path: PATH, query: None, content_type, body }, 415, "media-type");
    }
}

#[test]
fn a_path_or_query_that_cannot_be_read_is_told_and_never_guessed() {
    // Shows the same for paths, methods, tickets, and each field of a query.
    let hex = "0123456789abcdef0123456789abcdef";
    for path in ["", "/", "/v1/leasesx", "/v1/leases/", "/v1/leases/1/2", "/v1/leases//"] {
        check(&plain("PUT", path, None), 404, "no-such-path");
    }
    check(&plain("GET", PATH, None), 405, "method-not-allowed");
    check(&plain("POST", "/v1/leases/1", None), 405, "method-not-allowed");
    for id in ["x", "-1", "+1", "01", "1.0", "18446744073709551616", "%31", "é"] {
        check(&plain("PUT", &format!("{PATH}/{id}"), None), 400, "the id");
        check(&plain("DELETE", &format!("{PATH}/{id}"), Some("")), 400, "the id");
    }
    let fields = [
        ("store", hex),
        (
            "layout",
            "reserved:1 timestamp:41 region:2 worker:8 sequence:12 epoch-ms:1735689600000 tick-ns:1000000",
        ),
        ("region", "0"),
        ("held", hex),
        ("nonce", hex),
        ("last_reserved_ms", "5"),
    ];
    let query = |changed: &str, value: Option<&str>| {
        let pairs = fields.iter().filter_map(|&(name, field)| {
            let field = if name == changed { value? } else { field };
            Some(format!("{name}={}", field.replace(' ', "+")))
        });
        pairs.collect::<Vec<_>>().join("&")
    };
    let delete = |query: &str, status, part: &str| {
        check(&plain("DELETE", &format!("{PATH}/1"), Some(query)), status, part);
    };
    delete(&query("", None), 409, "wrong-generation");
    for (name, bad) in
        [("store", "1"), ("layout", "x"), ("region", "4294967296"), ("held", "é"), ("nonce", "")]
    {
        delete(&query(name, None), 400, name);
        delete(&query(name, Some(bad)), 400, name);
    }
    delete(&query("last_reserved_ms", Some("-1")), 400, "last_reserved_ms");
    delete(&format!("{}&region=0", query("", None)), 400, "given twice");
    delete(&format!("{}&colour=red", query("", None)), 400, "no field");
    delete(&"a".repeat(REQUEST_BYTES_MAX + 1), 413, "too-large");
}

#[test]
fn a_lease_goes_its_way_by_requests_alone() {
    // Shows the three faces, one after the other, and what each header says.
    let store = founded();
    let nonce = 0xabc << 64;
    let through = |call: &Call| {
        let sent = send(call).unwrap();
        let (path, query) = sent.target.split_once('?').map_or((&*sent.target, None), |(a, b)| (a, Some(b)));
        assert!(is_for_leases(path));
        let body = sent.body.as_deref().unwrap_or_default();
        let content_type = Some("application/json");
        let response = serve_on(&store, &Request { method: sent.method, path, query, content_type, body });
        assert!(response.headers.contains(&("cache-control", String::from("no-store"))));
        response
    };
    let owner = Owner::new("me").unwrap();
    let acquire = Acquire { layout: None, region: None, owner, window_ms: 10_000, lead_ms: 0, nonce };
    let acquired = through(&Call::Acquire(acquire.clone()));
    let first = read_answer(&acquired.body).unwrap();
    let location = ("location", format!("/v1/leases/{}", first.grant.ticket));
    assert!(acquired.status == 201 && acquired.headers.contains(&location));
    assert_eq!(through(&Call::Acquire(acquire.clone())).status, 200);
    let (grant, held) = (first.grant, first.nonce);
    let renew = Call::Renew(Renew { grant, window_ms: 10_000, lead_ms: 0, held, nonce: kin_of(nonce, 1) });
    let renewed = through(&renew);
    assert_eq!((renewed.status, read_answer(&renewed.body).unwrap().nonce), (200, kin_of(nonce, 1)));
    assert_eq!(through(&Call::Acquire(acquire)).status, 409);
    let held = kin_of(nonce, 1);
    let release = Release { grant, last_reserved_ms: 9, held, perhaps_held: None, nonce: kin_of(nonce, 2) };
    let released = through(&Call::Release(release));
    assert_eq!((released.status, read_answer(&released.body).unwrap().end_ms), (200, 9));
    assert_eq!(through(&renew).status, 409);
    assert!(!is_for_leases("/v1/ids") && !is_for_leases("/v1/leasesx"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn whatever_is_sent_is_answered(
        method in "POST|PUT|DELETE|GET|",
        path in "/v1/leases(/[0-9]{0,21}|/.{0,8})?",
        query in prop::option::of("(store|layout|region|held|nonce|last_reserved_ms|x|&|=|%[0-9a-fG]{0,2}|.){0,40}"),
        body in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..300).prop_map(|it| String::from_utf8_lossy(&it).into_owned()),
            "\\{(\"(owner|nonce|window_ms|held|store|layout|region|lead_ms)\":(\"[0-9a-f]{0,33}\"|[0-9]{1,12}|null|[{}\\[]),?){0,8}\\}",
        ],
    ) {
        // Shows that no request is a panic, that every refusal is a document that a client can read, and that any bytes
        // as a response are read or refused.
        let content_type = Some("application/json");
        let request =
            Request { method: &method, path: &path, query: query.as_deref(), content_type, body: body.as_bytes() };
        let response = serve_on(&founded(), &request);
        if response.status >= 400 {
            let problem: Problem = serde_json::from_slice(&response.body).unwrap();
            prop_assert_eq!(problem.status, response.status);
            let _ = problem.fault.into_error();
        } else {
            prop_assert!(read_answer(&response.body).is_ok());
        }
        let _ = read_answer(body.as_bytes());
        let _ = serde_json::from_str::<Problem>(&body);
    }
}
