//! The user's cache directory: the Keeper's answers for an hour, and the catalogue of `catalog update`.
//!
//! In:  a directory, a URL, the time.
//! Out: what was kept, if it is whole and fresh; a damaged file is as good as none.
//! Not here: asking the Keeper (`keeper`), the update itself (`update`).
//!
//! Files are written aside and renamed, so that a reader sees all of one or all of the other.

use super::error::CatalogError;
use super::keeper::SERVERS_MAX_AGE_S;
use super::server::Server;
use crate::paths;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

/// Kept answers are of this shape.
#[derive(Serialize, Deserialize)]
struct Kept {
    url: String,
    fetched_unix_s: u64,
    body: Value,
}

/// No answer that we keep is larger; a larger file is not ours.
const KEPT_MAX_BYTES: u64 = 64 << 20;

/// The answer to `url` that was kept less than `max_age_s` ago.
#[must_use]
pub(crate) fn load(dir: &Path, url: &str, now_unix_s: u64, max_age_s: u64) -> Option<Value> {
    let kept: Kept = serde_json::from_slice(&read(&answer_path(dir, url))?).ok()?;
    // A date in the future is a clock that was wrong, then or now.
    let fresh = now_unix_s.checked_sub(kept.fetched_unix_s).is_some_and(|age| age < max_age_s);
    (fresh && kept.url == url).then_some(kept.body)
}

/// Keeps an answer, and throws away those that nobody may use any more, whatever they answer.
pub(crate) fn store(dir: &Path, url: &str, now_unix_s: u64, body: &Value) -> io::Result<()> {
    let path = answer_path(dir, url);
    if let Some(parent) = path.parent() {
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            let age = entry.metadata().and_then(|data| data.modified()).ok().and_then(|at| at.elapsed().ok());
            if age.is_some_and(|age| age.as_secs() > SERVERS_MAX_AGE_S) {
                // Another process may have been faster.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
    let kept = Kept { url: url.to_owned(), fetched_unix_s: now_unix_s, body: body.clone() };
    write(&path, &serde_json::to_vec(&kept)?)
}

/// How many answers are kept.
#[must_use]
pub(crate) fn answers(dir: &Path) -> usize {
    fs::read_dir(dir.join("keeper")).into_iter().flatten().count()
}

fn answer_path(dir: &Path, url: &str) -> PathBuf {
    // Two URLs with one checksum overwrite each other; the URL inside tells them apart.
    dir.join("keeper").join(format!("{:08x}-{}.json", crc32fast::hash(url.as_bytes()), url.len()))
}

/// The catalogue that `catalog update` fetched.
#[derive(Debug, Default)]
pub struct Updated {
    file: UpdatedFile,
    servers: Vec<Server>,
}

/// As it lies on disk, gzipped.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct UpdatedFile {
    pub database_hash: String,
    pub fetched_unix_s: u64,
    pub servers: Vec<Map<String, Value>>,
    pub regions: Vec<Value>,
    /// `aws~us-east-1` → `server_id` → USD an hour on demand.
    pub region_prices: BTreeMap<String, BTreeMap<String, f64>>,
}

impl Updated {
    /// Reads the updated catalogue, if there is one.
    #[must_use]
    pub fn load(dir: &Path) -> Option<Self> {
        let mut file = UpdatedFile::load(dir)?;
        let servers: Vec<Server> =
            std::mem::take(&mut file.servers).into_iter().map(Server::from_api).collect();
        (!servers.is_empty()).then_some(Self { file, servers })
    }

    /// All its servers.
    #[must_use]
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// When it was fetched.
    #[must_use]
    pub fn fetched_unix_s(&self) -> u64 {
        self.file.fetched_unix_s
    }

    /// Regions whose prices were fetched too, as `aws~us-east-1`.
    pub fn regions_with_prices(&self) -> impl Iterator<Item = &str> {
        self.file.region_prices.keys().map(String::as_str)
    }

    /// Where it lies in a cache directory.
    #[must_use]
    pub fn path(dir: &Path) -> PathBuf {
        UpdatedFile::path(dir)
    }

    /// Whether prices in this region were fetched too.
    #[must_use]
    pub fn has_region(&self, vendor_id: &str, region: &str) -> bool {
        self.file.region_prices.contains_key(&format!("{vendor_id}~{region}"))
    }

    /// The on-demand price of a server in a region.
    #[must_use]
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
        // Four times what the Keeper holds today; a file that inflates to more is not ours.
        GzDecoder::new(packed.as_slice()).take(KEPT_MAX_BYTES).read_to_end(&mut text).ok()?;
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
    fs::File::open(path).ok()?.take(KEPT_MAX_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    // The last rename wins.
    let aside = path.with_extension(format!("{}.part", paths::writer()));
    let written = fs::File::create(&aside)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| fs::rename(&aside, path));
    if written.is_err() {
        let _ = fs::remove_file(&aside);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const URL: &str = "http://keeper/servers?vcpus_min=2";

    #[test]
    fn an_answer_is_kept_for_its_time_and_only_for_its_url() {
        let dir = tempfile::tempdir().unwrap();
        let body = json!([{"server_id": "a"}]);
        store(dir.path(), URL, 1_000, &body).unwrap();
        let at = |now| load(dir.path(), URL, now, 3_600);
        assert_eq!(at(1_000), Some(body.clone()));
        assert_eq!(at(4_599), Some(body));
        assert_eq!(at(4_600), None);
        assert_eq!(at(999), None, "kept in the future");
        assert_eq!(load(dir.path(), "http://keeper/servers?vcpus_min=3", 1_000, 3_600), None);
        assert_eq!(answers(dir.path()), 1);
    }

    #[test]
    fn a_new_answer_takes_only_what_no_question_may_use_any_more() {
        let dir = tempfile::tempdir().unwrap();
        for (url, age_s) in [("http://keeper/a", 1_800), ("http://keeper/b", 2 * SERVERS_MAX_AGE_S)] {
            store(dir.path(), url, 1_000, &json!([])).unwrap();
            let written = std::time::SystemTime::now() - std::time::Duration::from_secs(age_s);
            fs::File::open(answer_path(dir.path(), url)).unwrap().set_modified(written).unwrap();
        }
        store(dir.path(), URL, 1_000, &json!([])).unwrap();
        let is_kept = |url: &str| load(dir.path(), url, 1_000, 3_600).is_some();
        assert_eq!((is_kept("http://keeper/a"), is_kept("http://keeper/b")), (true, false));
    }

    #[test]
    fn a_damaged_file_is_as_good_as_none() {
        let dir = tempfile::tempdir().unwrap();
        store(dir.path(), URL, 1_000, &json!([])).unwrap();
        let path = answer_path(dir.path(), URL);
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
    fn an_updated_catalogue_comes_back_as_it_was_saved() {
        let dir = tempfile::tempdir().unwrap();
        let Value::Object(server) = json!({"vendor_id": "aws", "server_id": "x", "vcpus": 1}) else {
            panic!()
        };
        let mut file = UpdatedFile { database_hash: "h".into(), fetched_unix_s: 5, ..UpdatedFile::default() };
        file.servers.push(server);
        file.region_prices.insert("aws~us-east-1".into(), BTreeMap::from([("x".into(), 0.5)]));
        file.save(dir.path()).unwrap();
        let updated = Updated::load(dir.path()).unwrap();
        assert_eq!((updated.servers().len(), updated.fetched_unix_s()), (1, 5));
        assert_eq!(updated.region_price("aws", "us-east-1", "x"), Some(0.5));
        assert_eq!(updated.region_price("aws", "us-east-2", "x"), None);
    }
}
