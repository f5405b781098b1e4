//! Calls and answers as HTTP carries them: both ways, in one place.

use form_urlencoded::{Serializer, parse};
use serde::{Deserialize, Serialize};
use snowmint_lease::CallError;
use snowmint_lease::desk::{Acquire, Answer, Call, GrantName, Release, Renew};

use crate::problem::Fault;
use crate::text::{Dec, Hex, LayoutText, OwnerText};

/// Where leases are: `POST` here, `PUT` and `DELETE` one below.
pub const PATH: &str = "/v1/leases";

/// The most bytes that the body of a request may have, and its query.
pub const REQUEST_BYTES_MAX: usize = 8 * 1024;

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct AcquireBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    layout: Option<LayoutText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    region: Option<u32>,
    owner: OwnerText,
    window_ms: u32,
    #[serde(default)]
    lead_ms: u32,
    nonce: Hex,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct RenewBody {
    store: Hex,
    layout: LayoutText,
    region: u32,
    window_ms: u32,
    #[serde(default)]
    lead_ms: u32,
    held: Hex,
    nonce: Hex,
}

#[derive(Deserialize, Serialize)]
struct AnswerBody {
    id: Dec,
    store: Hex,
    layout: LayoutText,
    region: u32,
    code: u32,
    term: u32,
    floor_ms: Dec,
    end_ms: Dec,
    nonce: Hex,
    now_ms: Dec,
    /// `null`: unknown.
    clock_error_ms: Option<u32>,
    is_repeated: bool,
}

/// What a client sends for a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// `POST`, `PUT` or `DELETE`.
    pub method: &'static str,
    /// The path, with the query behind it.
    pub target: String,
    /// JSON; `None` for `DELETE`.
    pub body: Option<Vec<u8>>,
}

/// A call, as a client sends it.
///
/// An error is a fault of this crate: there is no call that cannot be written.
pub fn send(call: &Call) -> Result<Sent, CallError> {
    let (method, target, body) = match call {
        Call::Acquire(call) => {
            let body = AcquireBody {
                layout: call.layout.map(LayoutText),
                region: call.region,
                owner: OwnerText(call.owner.clone()),
                window_ms: call.window_ms,
                lead_ms: call.lead_ms,
                nonce: Hex(call.nonce),
            };
            ("POST", String::from(PATH), Some(serde_json::to_vec(&body)))
        }
        Call::Renew(call) => {
            let body = RenewBody {
                store: Hex(call.grant.store),
                layout: LayoutText(call.grant.layout),
                region: call.grant.region,
                window_ms: call.window_ms,
                lead_ms: call.lead_ms,
                held: Hex(call.held),
                nonce: Hex(call.nonce),
            };
            ("PUT", format!("{PATH}/{}", call.grant.ticket), Some(serde_json::to_vec(&body)))
        }
        Call::Release(call) => {
            let mut query = Serializer::new(String::new());
            query
                .append_pair("store", &Hex(call.grant.store).text())
                .append_pair("layout", &call.grant.layout.to_string())
                .append_pair("region", &call.grant.region.to_string())
                .append_pair("held", &Hex(call.held).text());
            if let Some(nonce) = call.perhaps_held {
                query.append_pair("perhaps_held", &Hex(nonce).text());
            }
            query.append_pair("nonce", &Hex(call.nonce).text());
            if call.last_reserved_ms != u64::MAX {
                query.append_pair("last_reserved_ms", &call.last_reserved_ms.to_string());
            }
            ("DELETE", format!("{PATH}/{}?{}", call.grant.ticket, query.finish()), None)
        }
    };
    let body = body.transpose().map_err(|error| CallError::Invalid { detail: error.to_string() })?;
    Ok(Sent { method, target, body })
}

/// A request, as whatever server there is has read it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The method, in capitals.
    pub method: &'a str,
    /// The path, without a query.
    pub path: &'a str,
    /// What stands behind the `?`.
    pub query: Option<&'a str>,
    /// The header `Content-Type`.
    pub content_type: Option<&'a str>,
    /// The body. A server SHOULD stop reading above [`REQUEST_BYTES_MAX`], and MAY hand over one byte more: it is refused.
    pub body: &'a [u8],
}

/// The call that a request makes.
pub fn receive(request: &Request<'_>) -> Result<Call, Fault> {
    let id = match request.path.strip_prefix(PATH) {
        Some("") => None,
        Some(rest) => match rest.strip_prefix('/') {
            Some(id) if !id.is_empty() && !id.contains('/') => Some(id),
            _ => return Err(Fault::NoSuchPath),
        },
        None => return Err(Fault::NoSuchPath),
    };
    if request.body.len() > REQUEST_BYTES_MAX || request.query.is_some_and(|it| it.len() > REQUEST_BYTES_MAX)
    {
        return Err(Fault::TooLarge { bytes_max: REQUEST_BYTES_MAX });
    }
    let ticket = |id: &str| Dec::parse(id).map(|id| id.0).map_err(|what| Fault::malformed("the id", &what));
    match (request.method, id) {
        ("POST", None) => {
            let body: AcquireBody = json(request)?;
            Ok(Call::Acquire(Acquire {
                layout: body.layout.map(|it| it.0),
                region: body.region,
                owner: body.owner.0,
                window_ms: body.window_ms,
                lead_ms: body.lead_ms,
                nonce: body.nonce.0,
            }))
        }
        ("PUT", Some(id)) => {
            let ticket = ticket(id)?;
            let body: RenewBody = json(request)?;
            let grant = GrantName { ticket, store: body.store.0, layout: body.layout.0, region: body.region };
            Ok(Call::Renew(Renew {
                grant,
                window_ms: body.window_ms,
                lead_ms: body.lead_ms,
                held: body.held.0,
                nonce: body.nonce.0,
            }))
        }
        ("DELETE", Some(id)) => release(ticket(id)?, request.query.unwrap_or_default()),
        (_, None) => Err(Fault::MethodNotAllowed { allow: String::from("POST") }),
        (_, Some(_)) => Err(Fault::MethodNotAllowed { allow: String::from("PUT, DELETE") }),
    }
}

fn json<'a, T: Deserialize<'a>>(request: &Request<'a>) -> Result<T, Fault> {
    let media = request.content_type.unwrap_or_default().split(';').next().unwrap_or_default();
    if !media.trim().eq_ignore_ascii_case("application/json") {
        return Err(Fault::UnsupportedMediaType);
    }
    serde_json::from_slice(request.body).map_err(|error| Fault::malformed("the body", &error.to_string()))
}

fn release(ticket: u64, query: &str) -> Result<Call, Fault> {
    let mut fields: [(&str, Option<String>); 7] =
        ["store", "layout", "region", "held", "perhaps_held", "nonce", "last_reserved_ms"]
            .map(|it| (it, None));
    for (name, value) in parse(query.as_bytes()) {
        match fields.iter_mut().find(|(known, _)| *known == name) {
            None => return Err(Fault::malformed("the query", &format!("there is no field {name:?}"))),
            Some((_, Some(_))) => {
                return Err(Fault::malformed("the query", &format!("{name:?} is given twice")));
            }
            Some((_, field)) => *field = Some(value.into_owned()),
        }
    }
    let [store, layout, region, held, perhaps_held, nonce, last_reserved_ms] = fields;
    let wrong = |name: &'static str| move |what: String| Fault::malformed(name, &what);
    let must = |(name, value): (&'static str, Option<String>)| {
        value.ok_or_else(|| Fault::malformed("the query", &format!("{name:?} is missing")))
    };
    let region = Dec::parse(&must(region)?).map_err(wrong("region"))?;
    let grant = GrantName {
        ticket,
        store: Hex::parse(&must(store)?).map_err(wrong("store"))?.0,
        layout: LayoutText::parse(&must(layout)?).map_err(wrong("layout"))?.0,
        region: u32::try_from(region.0).map_err(|error| wrong("region")(error.to_string()))?,
    };
    let perhaps_held = perhaps_held.1.map(|it| Hex::parse(&it).map_err(wrong("perhaps_held"))).transpose()?;
    let last_reserved_ms =
        last_reserved_ms.1.map(|it| Dec::parse(&it).map_err(wrong("last_reserved_ms"))).transpose()?;
    Ok(Call::Release(Release {
        grant,
        last_reserved_ms: last_reserved_ms.map_or(u64::MAX, |it| it.0),
        held: Hex::parse(&must(held)?).map_err(wrong("held"))?.0,
        perhaps_held: perhaps_held.map(|it| it.0),
        nonce: Hex::parse(&must(nonce)?).map_err(wrong("nonce"))?.0,
    }))
}

/// An answer's body.
pub(crate) fn write_answer(answer: &Answer) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&AnswerBody {
        id: Dec(answer.grant.ticket),
        store: Hex(answer.grant.store),
        layout: LayoutText(answer.grant.layout),
        region: answer.grant.region,
        code: answer.code,
        term: answer.term,
        floor_ms: Dec(answer.floor_ms),
        end_ms: Dec(answer.end_ms),
        nonce: Hex(answer.nonce),
        now_ms: Dec(answer.now_ms),
        clock_error_ms: Some(answer.clock_error_ms).filter(|error_ms| *error_ms != u32::MAX),
        is_repeated: answer.is_repeated,
    })
}

/// The answer in a body. Fields that are not known are for clients to come, and left out.
pub fn read_answer(body: &[u8]) -> Result<Answer, String> {
    let body: AnswerBody = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    Ok(Answer {
        grant: GrantName {
            ticket: body.id.0,
            store: body.store.0,
            layout: body.layout.0,
            region: body.region,
        },
        code: body.code,
        term: body.term,
        floor_ms: body.floor_ms.0,
        end_ms: body.end_ms.0,
        nonce: body.nonce.0,
        now_ms: body.now_ms.0,
        clock_error_ms: body.clock_error_ms.unwrap_or(u32::MAX),
        is_repeated: body.is_repeated,
    })
}
