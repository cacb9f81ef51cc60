//! The user's cache folder: responses of the Keeper, and the catalogue saved by `catalog update`.
//!
//! In:  the path of the folder, a URL, the current time.
//! Out: the stored data, if the file is complete and recent. A damaged file counts as missing.
//! Not here: requests to the Keeper (`keeper`), the update (`update`).
//!
//! Files are written under a temporary name and renamed, so a reader never sees a partial file.

use super::error::CatalogError;
use super::server::Server;
use crate::os::{self, paths};
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

/// Maximum age of cached responses. These are the limits of the Keeper itself.
pub(crate) const SERVERS_MAX_AGE_S: u64 = 3_600;
pub(crate) const PRICES_MAX_AGE_S: u64 = 900;

#[derive(Serialize, Deserialize)]
struct CachedResponse {
    url: String,
    fetched_unix_s: u64,
    body: Value,
}

/// Maximum size of a file, compressed or not: about four times the size of the Keeper's data in 2026.
const FILE_MAX_BYTES: u64 = 64 << 20;

/// The cached response to `url`, if it is younger than `max_age_s`.
pub(crate) fn load(dir: &Path, url: &str, now_unix_s: u64, max_age_s: u64) -> Option<Value> {
    let cached: CachedResponse = serde_json::from_slice(&read(&response_path(dir, url))?).ok()?;
    // A date in the future comes from a wrong clock, so the response does not count as fresh.
    let fresh = now_unix_s.checked_sub(cached.fetched_unix_s).is_some_and(|age| age < max_age_s);
    (fresh && cached.url == url).then_some(cached.body)
}

/// Stores a response, and deletes all responses that are too old for any query.
pub(crate) fn store(dir: &Path, url: &str, now_unix_s: u64, body: &Value) -> io::Result<()> {
    let path = response_path(dir, url);
    if let Some(parent) = path.parent() {
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            let age = entry.metadata().and_then(|data| data.modified()).ok().and_then(|at| at.elapsed().ok());
            if age.is_some_and(|age| age.as_secs() > SERVERS_MAX_AGE_S) {
                // An error is ignored: another process may have deleted the file already.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
    let cached = CachedResponse { url: url.to_owned(), fetched_unix_s: now_unix_s, body: body.clone() };
    write(&path, &serde_json::to_vec(&cached)?)
}

pub(crate) fn count_responses(dir: &Path) -> usize {
    fs::read_dir(dir.join("keeper")).into_iter().flatten().count()
}

fn response_path(dir: &Path, url: &str) -> PathBuf {
    // URLs with the same checksum and length share a file. `load` therefore compares the URL in the file.
    dir.join("keeper").join(format!("{:08x}-{}.json", crc32fast::hash(url.as_bytes()), url.len()))
}

/// The catalogue saved by `catalog update`.
#[derive(Debug, Default)]
pub struct Updated {
    /// Content of the file, without the servers.
    pub(crate) file: UpdatedFile,
    servers: Vec<Server>,
}

/// Content of the file, which is gzipped JSON.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct UpdatedFile {
    pub database_hash: String,
    pub fetched_unix_s: u64,
    pub servers: Vec<Map<String, Value>>,
    pub regions: Vec<Value>,
    /// Region (`aws~us-east-1`) → `server_id` → on-demand price in USD per hour.
    pub region_prices: BTreeMap<String, BTreeMap<String, f64>>,
}

impl Updated {
    /// Loads the saved catalogue; `None` if there is no valid file.
    pub fn load(dir: &Path) -> Option<Self> {
        let mut file = UpdatedFile::load(dir)?;
        let servers: Vec<Server> =
            std::mem::take(&mut file.servers).into_iter().map(Server::from_api).collect();
        (!servers.is_empty()).then_some(Self { file, servers })
    }

    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Whether the catalogue has separate prices for a region.
    pub fn has_region(&self, vendor_id: &str, region: &str) -> bool {
        self.file.region_prices.contains_key(&format!("{vendor_id}~{region}"))
    }

    /// On-demand price of a server in a region, in USD per hour.
    pub fn region_price(&self, vendor_id: &str, region: &str, server_id: &str) -> Option<f64> {
        self.file.region_prices.get(&format!("{vendor_id}~{region}"))?.get(server_id).copied()
    }
}

impl UpdatedFile {
    pub(crate) fn path(dir: &Path) -> PathBuf {
        dir.join("catalog.json.gz")
    }

    pub(crate) fn load(dir: &Path) -> Option<Self> {
        let mut text = Vec::new();
        let packed = read(&Self::path(dir))?;
        GzDecoder::new(packed.as_slice()).take(FILE_MAX_BYTES).read_to_end(&mut text).ok()?;
        serde_json::from_slice(&text).ok()
    }

    pub(crate) fn save(&self, dir: &Path) -> Result<PathBuf, CatalogError> {
        let path = Self::path(dir);
        let write_error = |source| CatalogError::Write { path: path.clone(), source };
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
        serde_json::to_writer(&mut encoder, self).map_err(io::Error::from).map_err(write_error)?;
        let packed = encoder.finish().map_err(write_error)?;
        write(&path, &packed).map_err(write_error)?;
        Ok(path)
    }
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(FILE_MAX_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let temporary = path.with_extension(format!("{}.part", paths::writer()));
    let written = fs::File::create(&temporary)
        .and_then(|mut file| os::without_size_signal(|| file.write_all(bytes)))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const URL: &str = "http://keeper/servers?vcpus_min=2";

    #[test]
    fn response_is_cached_for_max_age_and_for_its_url_only() {
        let dir = tempfile::tempdir().unwrap();
        let body = json!([{"server_id": "a"}]);
        store(dir.path(), URL, 1_000, &body).unwrap();
        let at = |now| load(dir.path(), URL, now, 3_600);
        assert_eq!(at(1_000), Some(body.clone()));
        assert_eq!(at(4_599), Some(body));
        assert_eq!(at(4_600), None);
        assert_eq!(at(999), None, "stored in the future");
        assert_eq!(load(dir.path(), "http://keeper/servers?vcpus_min=3", 1_000, 3_600), None);
        assert_eq!(count_responses(dir.path()), 1);
    }

    #[test]
    fn storing_a_response_deletes_only_expired_ones() {
        let dir = tempfile::tempdir().unwrap();
        for (url, age_s) in [("http://keeper/a", 1_800), ("http://keeper/b", 2 * SERVERS_MAX_AGE_S)] {
            store(dir.path(), url, 1_000, &json!([])).unwrap();
            let written = std::time::SystemTime::now() - std::time::Duration::from_secs(age_s);
            fs::File::open(response_path(dir.path(), url)).unwrap().set_modified(written).unwrap();
        }
        store(dir.path(), URL, 1_000, &json!([])).unwrap();
        let is_cached = |url: &str| load(dir.path(), url, 1_000, 3_600).is_some();
        assert_eq!((is_cached("http://keeper/a"), is_cached("http://keeper/b")), (true, false));
    }

    #[test]
    fn damaged_file_counts_as_missing() {
        let dir = tempfile::tempdir().unwrap();
        store(dir.path(), URL, 1_000, &json!([])).unwrap();
        let path = response_path(dir.path(), URL);
        let whole = fs::read(&path).unwrap();
        for damaged in [&b""[..], b"\0\xff\xfe", b"[]", b"{}", &whole[..whole.len() / 2]] {
            fs::write(&path, damaged).unwrap();
            assert_eq!(load(dir.path(), URL, 1_000, 3_600), None, "{damaged:?}");
        }
        for damaged in [&b""[..], b"\x1f\x8b\x08", b"plain"] {
            fs::write(UpdatedFile::path(dir.path()), damaged).unwrap();
            assert!(Updated::load(dir.path()).is_none(), "{damaged:?}");
        }
    }

    #[test]
    fn updated_catalogue_is_loaded_as_saved() {
        let dir = tempfile::tempdir().unwrap();
        let Value::Object(server) = json!({"vendor_id": "aws", "server_id": "x", "vcpus": 1}) else {
            panic!()
        };
        let mut file = UpdatedFile { database_hash: "h".into(), fetched_unix_s: 5, ..UpdatedFile::default() };
        file.servers.push(server);
        file.region_prices.insert("aws~us-east-1".into(), BTreeMap::from([("x".into(), 0.5)]));
        file.save(dir.path()).unwrap();
        let updated = Updated::load(dir.path()).unwrap();
        assert_eq!((updated.servers().len(), updated.file.fetched_unix_s), (1, 5));
        assert_eq!(updated.region_price("aws", "us-east-1", "x"), Some(0.5));
        assert_eq!(updated.region_price("aws", "us-east-2", "x"), None);
    }
}
