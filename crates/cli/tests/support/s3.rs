//! A real S3 server on loopback, which checks signatures and keeps objects in a folder, and answers of broken ones.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::PathBuf;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;

use super::support::Reply;

pub const KEY: &str = "AKIDEXAMPLE";
pub const SECRET: &str = "a/secret+that=is/never shown";
pub const URL: &str = "s3://fleet/team/runs";

/// Variables for a server at an address.
pub fn variables(endpoint: &str) -> Vec<(&'static str, String)> {
    vec![
        ("AWS_ACCESS_KEY_ID", KEY.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
        ("AWS_ENDPOINT_URL_S3", endpoint.to_owned()),
        ("AWS_REGION", "eu-central-1".to_owned()),
        ("RESOURCE_TRACKER_STORE_TIMEOUT", "5".to_owned()),
    ]
}

/// A server that works.
pub struct Server {
    pub endpoint: String,
    folder: tempfile::TempDir,
    _runtime: tokio::runtime::Runtime,
}

impl Server {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("fleet")).unwrap();
        let mut service = S3ServiceBuilder::new(FileSystem::new(folder.path()).unwrap());
        service.set_auth(SimpleAuth::from_single(KEY, SECRET));
        let service = service.build();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let service = service.clone();
                tokio::spawn(async move {
                    let http = Builder::new(TokioExecutor::new());
                    // A client may close a connection at any time.
                    let _ = http.serve_connection(TokioIo::new(socket), service).await;
                });
            }
        });
        Self { endpoint, folder, _runtime: runtime }
    }

    /// Where the server keeps the objects of [`URL`].
    pub fn objects(&self) -> PathBuf {
        self.folder.path().join("fleet/team/runs")
    }
}

/// The answer of a broken server. What it says is never shown, but for the code.
pub fn failure(status: u16, code: &str) -> Reply {
    Reply::status(status, format!("<Error><Code>{code}</Code><Message>{SECRET}</Message></Error>"))
}

/// A port on which nothing listens.
pub fn closed_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
