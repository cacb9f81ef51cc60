//! Names to addresses within a time. The system's own way has none, so that a thread asks.
//!
//! In:  a URL and a time. Out: its addresses.
//!
//! The client's own resolver does the same, and panics where no thread can be had; its thread also takes signals that
//! are meant for the host's.

use std::net::IpAddr;
use std::sync::mpsc::sync_channel;
use std::thread;

use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

use crate::sys;

/// Asks in a thread, if there has to be asked.
#[derive(Debug)]
pub(super) struct InThread;

impl Resolver for InThread {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let is_address =
            uri.host().is_some_and(|host| host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok());
        if is_address {
            return DefaultResolver::default().resolve(uri, config, NextTimeout::default());
        }
        let (uri, config) = (uri.clone(), config.clone());
        let (found, answer) = sync_channel(1);
        let ask = move || {
            // Nobody may be waiting any more.
            let _ = found.send(DefaultResolver::default().resolve(&uri, &config, NextTimeout::default()));
        };
        sys::without_signals(|| thread::Builder::new().name("rt-resolver".into()).spawn(ask))
            .map_err(Error::Io)?;
        answer.recv_timeout(*timeout.after).unwrap_or(Err(Error::Timeout(timeout.reason)))
    }
}
