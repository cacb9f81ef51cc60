//! HTTP client for metadata services.
//!
//! In:  address of the service, path and headers; one deadline for all requests.
//! Out: the body of a response with status 200, otherwise `None`.
//! Not here: paths and formats of each vendor (`metadata`).

use crate::os::http::{Client, HttpError};
use crate::os::network::CountedConnection;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

/// Maximum size of a response. Real responses have a few kB at most.
const BODY_MAX_BYTES: u64 = 256 << 10;

pub(crate) struct MetadataClient {
    http: Client,
    /// Replaces the address of every service in tests, for example by `http://127.0.0.1:8080`.
    base_url: Option<String>,
}

impl MetadataClient {
    pub(crate) fn new(budget: Duration, base_url: Option<String>) -> Self {
        Self { http: Client::link_local(budget, BODY_MAX_BYTES), base_url }
    }

    pub(crate) fn get(&self, host: &str, path: &str, headers: &[(&str, &str)]) -> Option<String> {
        body(self.http.get(&self.url(host, path), headers))
    }

    pub(crate) fn put(&self, host: &str, path: &str, headers: &[(&str, &str)]) -> Option<String> {
        body(self.http.put(&self.url(host, path), headers))
    }

    /// Whether the service accepts a TCP connection. Does not allocate memory (see `Discovery::request`).
    pub(crate) fn is_reachable(&self, host: &str) -> bool {
        let authority = match &self.base_url {
            Some(url) => url.strip_prefix("http://").and_then(|rest| rest.split('/').next()),
            None => Some(host),
        };
        let address = authority.and_then(|authority| {
            let with_default_port = || Some(SocketAddr::new(authority.parse::<IpAddr>().ok()?, 80));
            authority.parse::<SocketAddr>().ok().or_else(with_default_port)
        });
        let left = self.http.left().ok();
        cfg!(feature = "net")
            && address.zip(left).is_some_and(|(address, left)| {
                let is_open = TcpStream::connect_timeout(&address, left).is_ok();
                CountedConnection::new(address.ip(), is_open);
                is_open
            })
    }

    fn url(&self, host: &str, path: &str) -> String {
        match &self.base_url {
            Some(base_url) => format!("{}{path}", base_url.trim_end_matches('/')),
            None => format!("http://{host}{path}"),
        }
    }
}

fn body(response: Result<(u16, Vec<u8>), HttpError>) -> Option<String> {
    match response {
        Ok((200, body)) => String::from_utf8(body).ok(),
        _ => None,
    }
}
