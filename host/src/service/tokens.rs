//! Who may do what: tokens from a file, kept as hashes.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::header;
use axum::http::request::Parts;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::problem::Problem;

/// The longest token that is looked at, in bytes.
const TOKEN_BYTES_MAX: usize = 512;

/// What a token may be for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Right {
    /// Mint and decode.
    Mint,
    /// Take, renew and give back leases.
    Lease,
}

impl Right {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Mint => "mint",
            Self::Lease => "lease",
        }
    }
}

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenFile {
    token: Vec<TokenEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenEntry {
    name: String,
    sha256: String,
    may: Vec<Right>,
    requests_per_second: Option<NonZeroU32>,
    ids_per_second: Option<NonZeroU32>,
}

/// A token that is known.
struct Token {
    name: String,
    hash: [u8; 32],
    may: Vec<Right>,
    requests: Option<DefaultDirectRateLimiter>,
    ids: Option<DefaultDirectRateLimiter>,
}

/// All tokens that are known.
pub(crate) struct Tokens(Vec<Arc<Token>>);

impl Tokens {
    /// Reads a file. The error says what does not fit, and never shows a hash.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("the token file {shown} cannot be read: {error}"))?;
        Self::parse(&text).map_err(|error| format!("the token file {shown}: {error}"))
    }

    fn parse(text: &str) -> Result<Self, String> {
        // The reader's own message would quote the line, and a hash with it.
        let file: TokenFile = toml::from_str(text).map_err(|error| {
            let line =
                error.span().map_or(0, |span| text.get(..span.start).unwrap_or(text).lines().count().max(1));
            format!("line {line}: {}", error.message())
        })?;
        let mut tokens: Vec<Arc<Token>> = Vec::new();
        for entry in file.token {
            let name = entry.name;
            if name.is_empty() || tokens.iter().any(|token| token.name == name) {
                return Err(format!("every token needs a name of its own; `{name}` is not"));
            }
            let hash = hash_of(&entry.sha256).ok_or_else(|| {
                format!("the `sha256` of `{name}` is not 64 hexadecimal digits; `printf %s TOKEN | sha256sum` prints them")
            })?;
            let limiter = |quota: NonZeroU32| RateLimiter::direct(Quota::per_second(quota));
            tokens.push(Arc::new(Token {
                name,
                hash,
                may: entry.may,
                requests: entry.requests_per_second.map(limiter),
                ids: entry.ids_per_second.map(limiter),
            }));
        }
        if tokens.is_empty() {
            return Err("it names no token".into());
        }
        Ok(Self(tokens))
    }

    /// The token with this text. Every one that is known is compared, each in constant time.
    fn find(&self, text: &[u8]) -> Option<Arc<Token>> {
        let hash: [u8; 32] = Sha256::digest(text).into();
        let mut found = None;
        for token in &self.0 {
            if bool::from(token.hash.ct_eq(&hash)) {
                found = Some(Arc::clone(token));
            }
        }
        found
    }

    /// Whether `caller` may do this now, for so many IDs.
    pub(super) fn allow(&self, caller: &Caller, right: Right, ids: u32) -> Result<(), Problem> {
        let token = caller.0.as_deref().and_then(|text| self.find(text)).ok_or_else(|| {
            let detail = "give a token that this service knows, as `Authorization: Bearer TOKEN`";
            Problem::new(StatusCode::UNAUTHORIZED, "token", detail)
        })?;
        if !token.may.contains(&right) {
            let detail = format!(
                "the token `{}` is not for `{}`; its entry in the token file says what it may",
                token.name,
                right.name()
            );
            return Err(Problem::new(StatusCode::FORBIDDEN, "token-right", detail));
        }
        let is_over = |limiter: &Option<DefaultDirectRateLimiter>, count: u32| match (
            limiter,
            NonZeroU32::new(count),
        ) {
            (Some(limiter), Some(count)) => Some(limiter.check_n(count)),
            _ => None,
        };
        let too_many = |what: &str| {
            let detail = format!("the token `{}` has had its {what} of this second", token.name);
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "token-share", detail).retry_after_ms(1_000)
        };
        match is_over(&token.requests, 1) {
            None | Some(Ok(Ok(()))) => {}
            Some(_) => return Err(too_many("requests")),
        }
        match is_over(&token.ids, ids) {
            None | Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(_))) => Err(too_many("IDs")),
            Some(Err(_)) => {
                let detail = format!(
                    "{ids} IDs are more than the token `{}` may have in a second; ask for fewer",
                    token.name
                );
                Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "token-share", detail))
            }
        }
    }
}

/// 64 hexadecimal digits as bytes.
fn hash_of(text: &str) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (nth, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * nth..2 * nth + 2)?, 16).ok()?;
    }
    Some(hash)
}

/// The token that a request brought, not yet looked up. Its `Debug` does not show it.
pub(super) struct Caller(Option<Vec<u8>>);

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let value = parts.headers.get(header::AUTHORIZATION).map(axum::http::HeaderValue::as_bytes);
        let token = value.and_then(|value| {
            let (scheme, token) = value.split_at_checked(7)?;
            (scheme.eq_ignore_ascii_case(b"bearer ") && token.len() <= TOKEN_BYTES_MAX)
                .then(|| token.trim_ascii().to_vec())
        });
        Ok(Self(token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf %s secret | sha256sum`
    const SECRET: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

    fn file(more: &str) -> String {
        format!("[[token]]\nname = \"edge\"\nsha256 = \"{SECRET}\"\nmay = [\"mint\"]\n{more}")
    }

    fn status(result: Result<(), Problem>) -> Option<u16> {
        use axum::response::IntoResponse;
        result.err().map(|problem| problem.into_response().status().as_u16())
    }

    #[test]
    fn a_token_is_known_by_its_hash_and_may_what_its_entry_says() {
        // Shows the answers to a known token, an unknown one and none, and to a right that it lacks.
        let tokens = Tokens::parse(&file("")).unwrap();
        let caller = |text: &str| Caller(Some(text.as_bytes().to_vec()));
        assert_eq!(status(tokens.allow(&caller("secret"), Right::Mint, 1_000_000)), None);
        assert_eq!(status(tokens.allow(&caller("secret"), Right::Lease, 0)), Some(403));
        assert_eq!(status(tokens.allow(&caller("Secret"), Right::Mint, 1)), Some(401));
        assert_eq!(status(tokens.allow(&caller(SECRET), Right::Mint, 1)), Some(401));
        assert_eq!(status(tokens.allow(&Caller(None), Right::Mint, 1)), Some(401));
    }

    #[test]
    fn a_token_has_a_share_of_requests_and_of_ids() {
        // Shows that what is over a share is refused for a second, and what never fits it for good.
        let tokens = Tokens::parse(&file("ids_per_second = 100\n")).unwrap();
        let caller = Caller(Some(b"secret".to_vec()));
        assert_eq!(status(tokens.allow(&caller, Right::Mint, 101)), Some(422));
        assert_eq!(status(tokens.allow(&caller, Right::Mint, 100)), None);
        assert_eq!(status(tokens.allow(&caller, Right::Mint, 100)), Some(429));
        assert_eq!(status(tokens.allow(&caller, Right::Mint, 0)), None);
        let tokens = Tokens::parse(&file("requests_per_second = 1\n")).unwrap();
        assert_eq!(status(tokens.allow(&caller, Right::Mint, 1)), None);
        assert_eq!(status(tokens.allow(&caller, Right::Mint, 1)), Some(429));
    }

    #[test]
    fn a_file_that_does_not_fit_is_told_without_its_hashes() {
        // Shows the words for each slip, and that no hash is among them.
        for (text, part) in [
            (String::new(), "token"),
            (file("").replace(SECRET, "12"), "64 hexadecimal digits"),
            (file("").replace("\"mint\"", "\"mind\""), "line 4"),
            (file("ids_per_second = 0\n"), "line 5"),
            (file("secret = 1\n"), "line 5"),
            (format!("{0}{0}", file("")), "a name of its own"),
        ] {
            let error = Tokens::parse(&text).err().unwrap();
            assert!(error.contains(part) && !error.contains(&SECRET[..16]), "{part}: {error}");
        }
    }
}
