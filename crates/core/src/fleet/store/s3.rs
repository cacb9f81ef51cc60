//! A store in a bucket of an S3-compatible service.
//!
//! In:  keys. Out: objects. The service makes each object visible as a whole.
//! Not here: credentials (`credentials`), profiles (`profile`), connections (`os::http`).
//!
//! Requests are signed by the crate rusty-s3: it implements Signature Version 4 and the listing's XML, and does no I/O, so
//! that requests go through the HTTP client that the program has. The signature is in the query of the address, is valid
//! for some minutes, and never in an error.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use rusty_s3::actions::ListObjectsV2;
use rusty_s3::{Credentials, S3Action as _, UrlStyle};
use url::Url;

use super::credentials;
use super::environment::{CredentialsError, Environment};
use super::profile::Profile;
use super::{Connection, MOST_BYTES, Object, Store, StoreError};
use crate::os::http::{Client, HttpError};
use crate::os::network;

/// Requests that are made at once: they wait for the network, not for CPUs.
const REQUESTS: usize = 32;
/// A request may last this long, unless `RESOURCE_TRACKER_STORE_TIMEOUT` has another number of seconds.
const REQUEST_LIMIT: Duration = Duration::from_mins(1);
/// Attempts of a request while the service is overloaded or the connection fails. All requests are idempotent.
const ATTEMPTS: u32 = 4;
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// A signature is valid for the time of a request, and for clocks that differ.
const CLOCKS_DIFFER: Duration = Duration::from_mins(15);
/// Credentials are replaced before they expire.
const RENEWAL: SignedDuration = SignedDuration::from_mins(5);
/// A listing has at most this many pages of 1,000 objects.
const MOST_PAGES: usize = 10_000;

#[derive(Debug)]
pub(super) struct Bucket {
    name: String,
    /// Empty, or with a `/` at the end.
    prefix: String,
    environment: Environment,
    session: Mutex<Option<Arc<Session>>>,
}

/// What requests need. Made at the first request, and again before the credentials expire.
struct Session {
    client: Client,
    limit: Duration,
    bucket: rusty_s3::Bucket,
    credentials: Credentials,
    expires: Option<Timestamp>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Session").field("bucket", &self.bucket).finish_non_exhaustive()
    }
}

impl Bucket {
    /// A bucket and a prefix by `BUCKET/PREFIX`.
    pub(super) fn open(place: &str, environment: Environment) -> Result<Self, StoreError> {
        let (name, prefix) = place.split_once('/').unwrap_or((place, ""));
        let prefix = prefix.trim_end_matches('/');
        let is_name = |character: char| character.is_ascii_alphanumeric() || "._-".contains(character);
        let is_part = |part: &str| !part.is_empty() && part != "." && part != "..";
        let is_valid = is_part(name)
            && name.chars().all(is_name)
            && (prefix.is_empty() || prefix.split('/').all(is_part))
            && !prefix.contains(|character: char| character.is_control() || "?#".contains(character));
        if !is_valid {
            // What is before an `@` may be a password.
            let shown = place.rsplit('@').next().unwrap_or_default();
            return Err(StoreError::Url { url: format!("s3://{shown}") });
        }
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Ok(Self { name: name.to_owned(), prefix, environment, session: Mutex::default() })
    }

    fn session(&self) -> Result<Arc<Session>, StoreError> {
        if network::offline() {
            return Err(StoreError::Offline { url: self.url() });
        }
        let mut kept = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let is_valid = |session: &Arc<Session>| {
            session.expires.is_none_or(|expires| expires.duration_since(Timestamp::now()) > RENEWAL)
        };
        if let Some(session) = kept.as_ref().filter(|session| is_valid(session)) {
            return Ok(Arc::clone(session));
        }
        let session = Arc::new(self.connect()?);
        *kept = Some(Arc::clone(&session));
        Ok(session)
    }

    /// Few services but Amazon's have a name for each bucket, and its certificate allows no dot in the name.
    fn is_path_style(&self, has_endpoint: bool) -> bool {
        match self.environment.get("RESOURCE_TRACKER_S3_PATH_STYLE") {
            Some(value) => {
                !["0", "false", "f", "no", "n", "off"].contains(&value.trim().to_ascii_lowercase().as_str())
            }
            None => has_endpoint || self.name.contains('.'),
        }
    }

    fn connect(&self) -> Result<Session, StoreError> {
        let environment = &self.environment;
        let denied = |source: CredentialsError| StoreError::Credentials { url: self.url(), source };
        let profile = Profile::read(environment).map_err(denied)?;
        let region = (environment.get("AWS_REGION").or_else(|| environment.get("AWS_DEFAULT_REGION")))
            .or_else(|| profile.get("region"))
            .unwrap_or("us-east-1");
        let endpoint = (environment.get("AWS_ENDPOINT_URL_S3"))
            .or_else(|| environment.get("AWS_ENDPOINT_URL"))
            .or_else(|| profile.get("endpoint_url"));
        let is_path_style = self.is_path_style(endpoint.is_some());
        let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
        let endpoint = endpoint.map_or_else(|| format!("https://s3.{region}.{domain}"), str::to_owned);
        let style = if is_path_style { UrlStyle::Path } else { UrlStyle::VirtualHost };
        let bucket = (Url::parse(&endpoint).ok())
            .and_then(|url| rusty_s3::Bucket::new(url, style, self.name.clone(), region.to_owned()).ok())
            .ok_or_else(|| StoreError::Endpoint { url: self.url() })?;
        let limit = (environment.get("RESOURCE_TRACKER_STORE_TIMEOUT"))
            .and_then(|text| Duration::try_from_secs_f64(text.trim().parse().ok()?).ok())
            .filter(|limit| !limit.is_zero())
            .unwrap_or(REQUEST_LIMIT);
        let found = credentials::find(environment, &profile).map_err(denied)?;
        let client = Client::service(limit, MOST_BYTES);
        Ok(Session { client, limit, bucket, credentials: found.credentials, expires: found.expires })
    }

    /// Makes a request, again after a while if the service is overloaded or the connection fails. No request starts after the
    /// time limit.
    fn request(
        &self,
        doing: &'static str,
        key: &str,
        send: impl Fn(&Session) -> Result<(u16, Vec<u8>), HttpError>,
    ) -> Result<Vec<u8>, StoreError> {
        let began = Instant::now();
        let mut wait = FIRST_WAIT;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let session = self.session()?;
            let (error, is_passing) = match send(&session) {
                Ok((200..=299, body)) => return Ok(body),
                Ok((status, body)) => {
                    let code = error_code(&body);
                    let is_passing =
                        matches!(status, 429 | 500 | 502 | 503 | 504) || code == "RequestTimeout";
                    let key = key.to_owned();
                    (StoreError::Status { doing, key, url: self.url(), status, code }, is_passing)
                }
                Err(HttpError::Transport(source)) => (self.error(doing, key, io::Error::other(source)), true),
                Err(HttpError::Timeout) => {
                    let text = format!("no answer within {} s", session.limit.as_secs_f64());
                    let source = io::Error::new(io::ErrorKind::TimedOut, text);
                    (self.error(doing, key, source), false)
                }
            };
            // Many jobs may end at the same moment.
            let spread = f64::from(Timestamp::now().subsec_nanosecond().unsigned_abs()) / 1e9;
            let pause = wait.mul_f64(0.5 + spread);
            if !is_passing || attempts == ATTEMPTS || began.elapsed() + pause >= session.limit {
                return Err(error);
            }
            thread::sleep(pause);
            wait *= 2;
        }
    }

    /// The folders and the objects whose keys start with `start`, up to the next `/`.
    fn list(&self, start: &str) -> Result<(Vec<String>, Vec<Object>), StoreError> {
        let (mut folders, mut objects) = (Vec::new(), Vec::new());
        let full = format!("{}{start}", self.prefix);
        let mut token: Option<String> = None;
        for _ in 0..MOST_PAGES {
            let body = self.request("list", start, |session| {
                let mut list = session.bucket.list_objects_v2(Some(&session.credentials));
                list.with_prefix(full.as_str());
                list.with_delimiter("/");
                if let Some(token) = &token {
                    list.with_continuation_token(token.as_str());
                }
                session.client.get(list.sign(session.limit + CLOCKS_DIFFER).as_str(), &[])
            })?;
            let no_listing = || {
                self.error(
                    "list",
                    start,
                    io::Error::new(io::ErrorKind::InvalidData, "the answer is no listing"),
                )
            };
            let page = (std::str::from_utf8(&body).ok())
                .and_then(|text| ListObjectsV2::parse_response(text).ok())
                .ok_or_else(no_listing)?;
            let name =
                |key: &str| key.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned();
            folders.extend(page.common_prefixes.iter().map(|folder| name(&folder.prefix)));
            let files = page.contents.iter().filter(|object| !object.key.ends_with('/'));
            objects.extend(
                files.map(|object| Object { name: name(&object.key), bytes: object.size.unwrap_or(0) }),
            );
            token = page.next_continuation_token;
            if token.is_none() {
                return Ok((folders, objects));
            }
        }
        Err(self.error("list", start, io::ErrorKind::FileTooLarge.into()))
    }

    fn error(&self, doing: &'static str, key: &str, source: io::Error) -> StoreError {
        StoreError::Io { doing, key: key.to_owned(), url: self.url(), source }
    }
}

impl Store for Bucket {
    fn url(&self) -> String {
        format!("s3://{}/{}", self.name, self.prefix).trim_end_matches('/').to_owned()
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn connection(&self) -> Option<Connection> {
        let variable =
            |names: [&str; 2]| names.iter().find_map(|name| self.environment.get(name)).map(str::to_owned);
        let endpoint = variable(["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]);
        Some(Connection {
            region: variable(["AWS_REGION", "AWS_DEFAULT_REGION"]),
            is_path_style: self.is_path_style(endpoint.is_some()),
            endpoint,
        })
    }

    fn requests(&self) -> usize {
        REQUESTS
    }

    fn folders(&self, key: &str) -> Result<Vec<String>, StoreError> {
        let (mut folders, _) = self.list(&format!("{key}/"))?;
        folders.sort_unstable();
        Ok(folders)
    }

    fn objects(&self, key: &str, start: &str) -> Result<Vec<Object>, StoreError> {
        let (_, mut objects) = self.list(&format!("{key}/{start}"))?;
        objects.retain(|object| !object.name.starts_with('.'));
        objects.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(objects)
    }

    fn get(&self, key: &str) -> Result<Vec<u8>, StoreError> {
        let full = format!("{}{key}", self.prefix);
        self.request("read", key, |session| {
            let get = session.bucket.get_object(Some(&session.credentials), &full);
            session.client.get(get.sign(session.limit + CLOCKS_DIFFER).as_str(), &[])
        })
    }

    fn put(&self, key: &str, content: &[u8]) -> Result<(), StoreError> {
        let full = format!("{}{key}", self.prefix);
        let sent = self.request("write", key, |session| {
            let put = session.bucket.put_object(Some(&session.credentials), &full);
            let headers = [("Content-Type", "application/octet-stream")];
            session.client.send("PUT", put.sign(session.limit + CLOCKS_DIFFER).as_str(), &headers, content)
        });
        sent.map(|_| ())
    }

    fn remove(&self, key: &str) -> Result<(), StoreError> {
        let full = format!("{}{key}", self.prefix);
        let removed = self.request("remove", key, |session| {
            let delete = session.bucket.delete_object(Some(&session.credentials), &full);
            session.client.delete(delete.sign(session.limit + CLOCKS_DIFFER).as_str())
        });
        match removed {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }
}

/// The code of the service's error, such as `NoSuchKey`; the rest of the answer may repeat parts of the request.
fn error_code(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let code =
        text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>")).map(|(code, _)| code);
    let is_code = |code: &&str| code.len() <= 64 && code.chars().all(|letter| letter.is_ascii_alphanumeric());
    code.filter(is_code).unwrap_or_default().to_owned()
}
