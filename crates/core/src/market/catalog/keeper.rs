//! Client of the Keeper, the Spare Cores server-search service.
//!
//! In:  a path with its query, relative to the base URL.
//! Out: the JSON of the response, from the Keeper or from the cache; or a [`KeeperError`].
//! Not here: queries and checks of responses (`remote`), `catalog update` (`update`).

use super::cache;
use super::error::KeeperError;
use crate::human::{self, Zone};
use crate::os::http::{Client, HttpError};
use serde_json::Value;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// Default base URL; `RESOURCE_TRACKER_KEEPER_URL` replaces it.
pub const KEEPER_URL: &str = "https://keeper.sparecores.net";
/// Time limit for all requests of one call together.
pub const DEADLINE: Duration = Duration::from_secs(2);

/// Maximum size of a response after decompression. The full list of servers has 11 MB.
const BODY_MAX_BYTES: u64 = 32 << 20;

/// Maximum memory of a response as JSON values. `[0,0,…` takes 36 bytes for each byte of the text.
const VALUES_MAX_BYTES: usize = 256 << 20;

/// Requests to the Keeper during one call of the library.
pub(crate) struct Keeper {
    base_url: String,
    /// Cache folder; `None` if responses are not cached.
    cache_dir: Option<PathBuf>,
    deadline: Duration,
    /// HTTP client. The first request creates it and starts the deadline.
    http: Option<Client>,
}

impl Keeper {
    pub(crate) fn new(base_url: &str, cache_dir: Option<PathBuf>, deadline: Duration) -> Self {
        Self { base_url: base_url.trim_end_matches('/').to_owned(), cache_dir, deadline, http: None }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base_url)
    }

    /// The response to a path. It comes from the cache if the cached response is younger than `max_age_s`.
    pub(crate) fn get(&mut self, path: &str, max_age_s: u64) -> Result<Value, KeeperError> {
        let url = self.url(path);
        let now = unix_now_s();
        if let Some(cached) = self.cache_dir.as_deref().and_then(|dir| cache::load(dir, &url, now, max_age_s))
        {
            return Ok(cached);
        }
        let response = self.get_uncached(path)?;
        if let Some(dir) = self.cache_dir.as_deref() {
            // A write error is ignored: it only costs one more request next time.
            let _ = cache::store(dir, &url, now, &response);
        }
        Ok(response)
    }

    pub(crate) fn get_uncached(&mut self, path: &str) -> Result<Value, KeeperError> {
        let headers = [("X-Application-ID", "resource-tracker"), ("Accept", "application/json")];
        let url = self.url(path);
        let http = self.http.get_or_insert_with(|| Client::public(self.deadline, BODY_MAX_BYTES));
        match http.get(&url, &headers) {
            Ok((200, body)) if values_bytes(&body) > VALUES_MAX_BYTES => Err(KeeperError::TooLarge),
            Ok((200, body)) => serde_json::from_slice(&body).map_err(|source| KeeperError::Json { source }),
            Ok((status, body)) => Err(KeeperError::Status { status, detail: detail(&body) }),
            Err(_) if !cfg!(feature = "net") => Err(KeeperError::NotBuilt),
            Err(HttpError::Timeout) => Err(KeeperError::Timeout { seconds: self.deadline.as_secs_f64() }),
            Err(HttpError::Transport(source)) => Err(KeeperError::Transport { source }),
        }
    }
}

/// Upper estimate of the memory of a JSON text as values: every object has its own table.
fn values_bytes(text: &[u8]) -> usize {
    let cost = |byte: &u8| match byte {
        b'{' => 512,
        b',' | b'[' => 112,
        _ => 0,
    };
    text.iter().map(cost).sum()
}

/// The message in the body of an error response: `{"detail": "…"}`, `{"detail": [{"msg": "…"}]}`, or plain text.
fn detail(body: &[u8]) -> String {
    let message = match serde_json::from_slice::<Value>(body) {
        Ok(Value::Object(object)) => match object.get("detail") {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(items)) => items
                .iter()
                .filter_map(|item| item.get("msg").and_then(Value::as_str))
                .collect::<Vec<_>>()
                .join(", "),
            _ => String::new(),
        },
        _ => String::from_utf8_lossy(body).into_owned(),
    };
    let line: String = message
        .chars()
        .map(|letter| if human::is_unprintable(letter) { ' ' } else { letter })
        .take(200)
        .collect();
    if line.trim().is_empty() { String::new() } else { format!(": {}", line.trim()) }
}

/// Unix time in seconds; 0 if the clock shows a time before 1970.
pub(crate) fn unix_now_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The UTC date, such as `2026-11-15`. Empty for a time out of range, which a damaged file may contain.
pub(crate) fn utc_date(unix_s: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "exact far beyond the year 9999")]
    Zone::utc().at(unix_s as f64).map_or_else(String::new, |civil| civil.date())
}

/// Percent-encodes one part of a path or query, so that user input cannot change the rest of the URL.
pub(crate) fn escaped(part: &str) -> String {
    use std::fmt::Write as _;
    part.bytes().fold(String::with_capacity(part.len()), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_of_an_error_response_is_one_line() {
        assert_eq!(detail(br#"{"detail": "Server not found"}"#), ": Server not found");
        assert_eq!(
            detail(br#"{"detail": [{"loc": ["query"], "msg": "too low"}, {"msg": "too high"}]}"#),
            ": too low, too high"
        );
        assert_eq!(detail(b"Rate limit\nexceeded"), ": Rate limit exceeded");
        assert_eq!(detail(b""), "");
        assert_eq!(detail(&[b'x'; 5_000]).len(), 202);
    }

    #[test]
    fn dates_are_right_in_leap_years() {
        let dates = [0, 68_169_599, 951_782_400, 951_868_800, 1_735_689_599, 4_102_444_800].map(utc_date);
        assert_eq!(
            dates,
            ["1970-01-01", "1972-02-28", "2000-02-29", "2000-03-01", "2024-12-31", "2100-01-01"]
        );
        assert_eq!(utc_date(u64::MAX), "");
    }

    #[test]
    fn user_input_cannot_change_the_rest_of_a_url() {
        assert_eq!(escaped("c5.large"), "c5.large");
        assert_eq!(escaped("../x?a=b&c d"), "..%2Fx%3Fa%3Db%26c%20d");
    }
}
