//! What a service tells of its store: `GET /v1/layout`, as far as another region wants to know it.

use serde::Deserialize;
use snowmint_core::Layout;
use snowmint_lease::FormerLayout;
use snowmint_lease::regions::Identity;

/// Where it is asked for.
pub const IDENTITY_PATH: &str = "/v1/layout";

/// Other members of the answer are passed over: they are for people.
#[derive(Deserialize)]
struct Message {
    uuid: String,
    region: u32,
    layout: String,
    cutover_last_ms: Option<u64>,
    former: Vec<FormerMessage>,
}

#[derive(Deserialize)]
struct FormerMessage {
    layout: String,
    last_ms: u64,
}

/// Reads the answer to `GET /v1/layout`.
///
/// # Errors
///
/// What does not fit.
pub fn read_identity(body: &[u8]) -> Result<Identity, String> {
    let message: Message = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let is_hex = message.uuid.len() == 32 && message.uuid.bytes().all(|byte| byte.is_ascii_hexdigit());
    let uuid = u128::from_str_radix(&message.uuid, 16).ok().filter(|_| is_hex);
    let layout = |text: &str| text.parse::<Layout>().map_err(|error| format!("layout `{text}`: {error}"));
    let former = |former: &FormerMessage| {
        Ok::<_, String>(FormerLayout { layout: layout(&former.layout)?, last_ms: former.last_ms })
    };
    let former = message.former.iter().map(former).collect::<Result<_, _>>()?;
    Ok(Identity {
        uuid: uuid.ok_or("uuid is not 32 hexadecimal digits")?,
        region: message.region,
        layout: layout(&message.layout)?,
        cutover_last_ms: message.cutover_last_ms,
        former,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_read_whole_or_not_at_all() {
        // Shows what is read, and that whatever does not fit is an error.
        let snowmint = Layout::SNOWMINT.to_string();
        let text = |uuid: &str, layout: &str, former: &str| {
            format!(
                r#"{{"uuid": "{uuid}", "region": 2, "layout": "{layout}", "cutover_last_ms": 9, "former": {former}}}"#
            )
        };
        let uuid = "000000000000000000000000000000ff";
        let former = format!(r#"[{{"layout": "{snowmint}", "last_ms": 5}}]"#);
        let read = read_identity(text(uuid, &snowmint, &former).as_bytes()).unwrap();
        let expected = Identity {
            uuid: 255,
            region: 2,
            layout: Layout::SNOWMINT,
            cutover_last_ms: Some(9),
            former: vec![FormerLayout { layout: Layout::SNOWMINT, last_ms: 5 }],
        };
        assert_eq!(read, expected);
        for bad in [
            text("+00000000000000000000000000000ff", &snowmint, "[]"),
            text("ff", &snowmint, "[]"),
            text(uuid, "snowmint", "[]"),
            text(uuid, &snowmint, "[{}]"),
            String::from("{}"),
            String::from("<html>"),
        ] {
            assert!(read_identity(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
