//! The way to the Keeper, the public server-search service: one deadline, one cache, plain JSON.
//!
//! In:  a path with its query below the base URL.
//! Out: the answer's JSON, fresh or at most an hour old, or a [`KeeperError`] that says what happened.
//! Not here: what is asked and how an answer is checked (`remote`), `catalog update` (`update`).
//!
//! The user's proxy settings (`HTTPS_PROXY`, `NO_PROXY`, …) apply, and `SSL_CERT_FILE` replaces the
//! built-in root certificates, for networks that inspect TLS.

use super::cache;
use super::error::KeeperError;
#[cfg(feature = "net")]
use super::resolver::InThread;
use crate::human::Zone;
use serde_json::Value;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};
#[cfg(feature = "net")]
use ureq::unversioned::transport::DefaultConnector;

/// Where the Keeper is unless `RESOURCE_TRACKER_KEEPER_URL` says otherwise.
pub const KEEPER_URL: &str = "https://keeper.sparecores.net";
/// All requests of one call together.
pub const DEADLINE: Duration = Duration::from_secs(2);
/// For how long answers may be used again, by the Keeper's own rules.
pub(crate) const SERVERS_MAX_AGE_S: u64 = 3_600;
pub(crate) const PRICES_MAX_AGE_S: u64 = 900;

/// Nobody waits longer, whatever the caller allows.
const LONGEST: Duration = Duration::from_hours(24);

/// What the client names itself.
#[cfg(feature = "net")]
const APPLICATION: &str = "resource-tracker";
/// All of `/servers` is 11 MB; more than six times that is no answer.
#[cfg(feature = "net")]
const BODY_MAX_BYTES: u64 = 64 << 20;

/// A connection to the Keeper for one call of ours.
pub(crate) struct Keeper {
    base_url: String,
    cache_dir: Option<PathBuf>,
    deadline: Duration,
    /// Set by the first request, so that time spent elsewhere does not count.
    ends: Option<Instant>,
    #[cfg(feature = "net")]
    agent: Option<ureq::Agent>,
}

impl Keeper {
    pub(crate) fn new(base_url: &str, cache_dir: Option<PathBuf>, deadline: Duration) -> Self {
        Self {
            base_url: base_url.trim_end_matches('/').to_owned(),
            cache_dir,
            deadline,
            ends: None,
            #[cfg(feature = "net")]
            agent: None,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base_url)
    }

    /// The answer, kept for `max_age_s`.
    pub(crate) fn get(&mut self, path: &str, max_age_s: u64) -> Result<Value, KeeperError> {
        let url = self.url(path);
        let now = unix_now_s();
        if let Some(kept) = self.cache_dir.as_deref().and_then(|dir| cache::load(dir, &url, now, max_age_s)) {
            return Ok(kept);
        }
        let answer = self.get_fresh(path)?;
        if let Some(dir) = self.cache_dir.as_deref() {
            // A cache that takes nothing costs time at the next question, not this answer.
            let _ = cache::store(dir, &url, now, &answer);
        }
        Ok(answer)
    }

    /// The answer, asked for now.
    pub(crate) fn get_fresh(&mut self, path: &str) -> Result<Value, KeeperError> {
        let url = self.url(path);
        let ends = *self.ends.get_or_insert_with(|| Instant::now() + self.deadline.min(LONGEST));
        let left = ends.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(self.timeout());
        }
        let body = self.fetch(&url, left)?;
        serde_json::from_slice(&body).map_err(|source| KeeperError::Json { source })
    }

    fn timeout(&self) -> KeeperError {
        KeeperError::Timeout { seconds: self.deadline.as_secs_f64() }
    }

    #[cfg(not(feature = "net"))]
    #[expect(clippy::unused_self, reason = "the same call with and without a client")]
    fn fetch(&mut self, _url: &str, _left: Duration) -> Result<Vec<u8>, KeeperError> {
        Err(KeeperError::NotBuilt)
    }

    #[cfg(feature = "net")]
    fn fetch(&mut self, url: &str, left: Duration) -> Result<Vec<u8>, KeeperError> {
        let agent = self.agent.get_or_insert_with(new_agent);
        let sent = agent
            .get(url)
            .header("X-Application-ID", APPLICATION)
            .header("Accept", "application/json")
            .config()
            .timeout_global(Some(left))
            .build()
            .call();
        let read = sent.and_then(|mut answer| {
            let status = answer.status().as_u16();
            let body = answer.body_mut().with_config().limit(BODY_MAX_BYTES).read_to_vec()?;
            Ok((status, body))
        });
        match read {
            Ok((200, body)) => Ok(body),
            Ok((status, body)) => Err(KeeperError::Status { status, detail: detail(&body) }),
            Err(error) if is_timeout(&error) => Err(self.timeout()),
            Err(error) => Err(KeeperError::Transport { source: Box::new(error) }),
        }
    }
}

#[cfg(feature = "net")]
fn new_agent() -> ureq::Agent {
    let mut tls = ureq::tls::TlsConfig::builder();
    let certificates = std::env::var_os("SSL_CERT_FILE").and_then(|path| std::fs::read(path).ok());
    if let Some(pem) = certificates {
        let roots: Vec<_> = ureq::tls::parse_pem(&pem)
            .filter_map(|item| match item {
                Ok(ureq::tls::PemItem::Certificate(certificate)) => Some(certificate),
                _ => None,
            })
            .collect();
        if !roots.is_empty() {
            tls = tls.root_certs(ureq::tls::RootCerts::new_with_certs(&roots));
        }
    }
    // Statuses are answers here: their bodies say what was wrong.
    let config = ureq::Agent::config_builder().http_status_as_error(false).tls_config(tls.build()).build();
    ureq::Agent::with_parts(config, DefaultConnector::default(), InThread)
}

#[cfg(feature = "net")]
fn is_timeout(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::Timeout(_) => true,
        ureq::Error::Io(error) => {
            matches!(error.kind(), std::io::ErrorKind::TimedOut | std::io::ErrorKind::WouldBlock)
        }
        _ => false,
    }
}

/// What an error's body says: `{"detail": "…"}`, `{"detail": [{"msg": "…"}]}`, or plain text.
#[cfg(any(feature = "net", test))]
fn detail(body: &[u8]) -> String {
    let said = match serde_json::from_slice::<Value>(body) {
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
    let line: String =
        said.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).take(200).collect();
    if line.trim().is_empty() { String::new() } else { format!(": {}", line.trim()) }
}

/// Seconds since 1970 by the wall clock; 0 when it stands before that.
pub(crate) fn unix_now_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The day of a time in UTC, as `2026-11-15`.
///
/// Empty where that is no date: a damaged file may say anything.
pub(crate) fn utc_date(unix_s: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "exact far beyond the year 9999")]
    Zone::utc().at(unix_s as f64).map_or_else(String::new, |civil| civil.date())
}

/// A part of a path or a query, so that no name of a user's can add to either.
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
    fn an_errors_body_is_told_in_one_line() {
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
    fn days_are_counted_through_leap_years() {
        let dates = [0, 68_169_599, 951_782_400, 951_868_800, 1_735_689_599, 4_102_444_800].map(utc_date);
        assert_eq!(
            dates,
            ["1970-01-01", "1972-02-28", "2000-02-29", "2000-03-01", "2024-12-31", "2100-01-01"]
        );
        assert_eq!(utc_date(u64::MAX), "");
    }

    #[test]
    fn a_name_cannot_leave_its_place_in_a_url() {
        assert_eq!(escaped("c5.large"), "c5.large");
        assert_eq!(escaped("../x?a=b&c d"), "..%2Fx%3Fa%3Db%26c%20d");
    }
}
