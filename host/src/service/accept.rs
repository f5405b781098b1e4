//! Which form of an answer a request accepts.

use axum::http::{HeaderMap, header};

/// A form that IDs are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One JSON object.
    Json,
    /// A JSON object a line.
    Ndjson,
    /// A decimal number a line.
    Text,
    /// Eight bytes an ID, the most significant first.
    Bytes,
}

impl Form {
    /// In the order in which they are given where several are accepted alike.
    const ALL: [Self; 4] = [Self::Json, Self::Ndjson, Self::Text, Self::Bytes];

    pub(super) const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Ndjson => "application/x-ndjson",
            Self::Text => "text/plain; charset=utf-8",
            Self::Bytes => "application/octet-stream",
        }
    }

    /// The type and subtype, without parameters.
    fn essence(self) -> &'static str {
        self.media_type().split(';').next().unwrap_or_default()
    }

    /// The form that these headers accept best; JSON where they say nothing. `None`: none of them.
    pub(super) fn accepted(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(header::ACCEPT).iter().peekable();
        if values.peek().is_none() {
            return Some(Self::Json);
        }
        let ranges: Vec<(String, u16)> = values
            .filter_map(|value| value.to_str().ok())
            .flat_map(|text| text.split(','))
            .map(range)
            .collect();
        let mut best: Option<(u16, Self)> = None;
        for form in Self::ALL {
            let quality = quality(&ranges, form.essence());
            if quality > 0 && best.is_none_or(|(best, _)| quality > best) {
                best = Some((quality, form));
            }
        }
        best.map(|(_, form)| form)
    }
}

/// One range of an `Accept` header, with its quality in thousandths (RFC 9110, 12.4.2).
fn range(text: &str) -> (String, u16) {
    let mut parts = text.split(';').map(str::trim);
    let range = parts.next().unwrap_or_default().to_ascii_lowercase();
    let quality = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
    let quality = quality.map_or(1_000, |text| match text.parse::<f32>() {
        // A quality lies between 0 and 1; the cast keeps that.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        Ok(quality) => (quality.clamp(0.0, 1.0) * 1_000.0) as u16,
        Err(_) => 0,
    });
    (range, quality)
}

/// The quality of the most specific range that a type lies in.
fn quality(ranges: &[(String, u16)], essence: &str) -> u16 {
    let kind = essence.split('/').next().unwrap_or_default();
    let find = |wanted: &str| ranges.iter().find(|(range, _)| range == wanted).map(|(_, quality)| *quality);
    find(essence).or_else(|| find(&format!("{kind}/*"))).or_else(|| find("*/*")).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn the_best_accepted_form_is_given() {
        // Shows what each `Accept` leads to, by RFC 9110.
        for (accept, expected) in [
            ("application/json", Some(Form::Json)),
            ("*/*", Some(Form::Json)),
            ("text/plain", Some(Form::Text)),
            ("text/*", Some(Form::Text)),
            ("TEXT/PLAIN; charset=utf-8", Some(Form::Text)),
            ("application/octet-stream, */*;q=0.1", Some(Form::Bytes)),
            ("application/json;q=0.5, application/x-ndjson", Some(Form::Ndjson)),
            ("application/*;q=0.2, text/plain;q=0.1", Some(Form::Json)),
            ("application/json;q=0, */*", Some(Form::Ndjson)),
            ("text/html", None),
            ("application/json;q=0", None),
            ("application/json;q=x", None),
            ("", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(Form::accepted(&headers), expected, "{accept}");
        }
    }
}
