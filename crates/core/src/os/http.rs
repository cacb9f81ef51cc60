//! HTTP client: a thin layer over ureq.
//!
//! In:  a URL and headers.
//! Out: status and body, or an `HttpError`.
//! Not here: the requests (`market`, `fleet`).
//!
//! One deadline covers all requests of a `Client`, from name resolution to the last byte of the body. A client for a store
//! has a limit for each request.
//! Without the cargo feature `net` every request fails.
//!
//! A discovery of the cloud that requests all 14 vendors costs 2.9 to 4.0 ms of CPU time, 0.4 to 0.7 ms more than with
//! a hand-written client for plain HTTP (release build). Without a metadata service, both cost 0.4 ms.

use std::time::{Duration, Instant};

/// Longest deadline. `Instant` overflows on the largest `Duration`.
const DEADLINE_MAX: Duration = Duration::from_hours(24);

/// Why a request has no response.
#[derive(Debug)]
pub(crate) enum HttpError {
    Timeout,
    /// There is no connection or no TLS session, the answer is not HTTP, or its body is cut short or too long.
    Transport(Box<dyn std::error::Error + Send + Sync>),
}

/// Until when a request may last.
enum Limit {
    Until(Instant),
    #[cfg(feature = "parquet")]
    Each(Duration),
}

/// A response.
#[cfg(any(feature = "net", feature = "parquet"))]
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The time after which the service wants the next request, if the header has seconds and no date.
    #[cfg_attr(not(feature = "parquet"), expect(dead_code, reason = "for telemetry"))]
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body: Vec<u8>,
}

pub(crate) struct Client {
    limit: Limit,
    #[cfg_attr(not(feature = "net"), expect(dead_code, reason = "there are no responses without a client"))]
    body_max_bytes: u64,
    #[cfg(feature = "net")]
    agent: ureq::Agent,
}

impl Client {
    /// A client for link-local services: plain HTTP to an IP address. It uses no proxy, follows no redirect and
    /// resolves no names, because the responses contain the identity of the machine.
    ///
    /// Connections are not reused. The threads of a discovery have separate descriptor tables, so a socket of one
    /// thread is not valid in another thread.
    pub(crate) fn link_local(deadline: Duration, body_max_bytes: u64) -> Self {
        Self {
            limit: Limit::Until(Instant::now() + deadline.min(DEADLINE_MAX)),
            body_max_bytes,
            #[cfg(feature = "net")]
            agent: agent::link_local(),
        }
    }

    /// A client for public services. The user's proxy settings (`HTTPS_PROXY`, `NO_PROXY`, …) apply, and
    /// `SSL_CERT_FILE` replaces the built-in root certificates, for networks that inspect TLS. A redirect from a public
    /// address to one of this machine or its network is an error.
    pub(crate) fn public(deadline: Duration, body_max_bytes: u64) -> Self {
        Self {
            limit: Limit::Until(Instant::now() + deadline.min(DEADLINE_MAX)),
            body_max_bytes,
            #[cfg(feature = "net")]
            agent: agent::public(),
        }
    }

    /// Time until the deadline, never zero; [`HttpError::Timeout`] after the deadline.
    pub(crate) fn left(&self) -> Result<Duration, HttpError> {
        let left = match self.limit {
            Limit::Until(ends) => ends.saturating_duration_since(Instant::now()),
            #[cfg(feature = "parquet")]
            Limit::Each(limit) => limit,
        };
        if left.is_zero() { Err(HttpError::Timeout) } else { Ok(left) }
    }
}

#[cfg(not(feature = "net"))]
impl Client {
    pub(crate) fn get(&self, _: &str, _: &[(&str, &str)]) -> Result<(u16, Vec<u8>), HttpError> {
        self.left().and_then(|_| Err(HttpError::Transport("built without network support".into())))
    }

    pub(crate) fn put(&self, url: &str, headers: &[(&str, &str)]) -> Result<(u16, Vec<u8>), HttpError> {
        self.get(url, headers)
    }
}

#[cfg(feature = "net")]
impl Client {
    pub(crate) fn get(&self, url: &str, headers: &[(&str, &str)]) -> Result<(u16, Vec<u8>), HttpError> {
        let request = headers.iter().fold(self.agent.get(url), |to, (name, value)| to.header(*name, *value));
        self.read(request.config().timeout_global(Some(self.left()?)).build().call())
    }

    /// Sends a PUT request with an empty body.
    pub(crate) fn put(&self, url: &str, headers: &[(&str, &str)]) -> Result<(u16, Vec<u8>), HttpError> {
        let request = headers.iter().fold(self.agent.put(url), |to, (name, value)| to.header(*name, *value));
        self.read(request.config().timeout_global(Some(self.left()?)).build().send_empty())
    }

    fn read(
        &self,
        response: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<(u16, Vec<u8>), HttpError> {
        self.read_answer(response).map(|answer| (answer.status, answer.body))
    }

    fn read_answer(
        &self,
        response: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<Answer, HttpError> {
        use std::io::{ErrorKind, Read as _};
        let read = response.and_then(|mut response| {
            // The limit of ureq counts the bytes before decompression.
            let max = self.body_max_bytes;
            let mut body = Vec::new();
            let reader = response.body_mut().with_config().limit(max).reader();
            reader.take(max.saturating_add(1)).read_to_end(&mut body)?;
            if body.len() as u64 > max {
                return Err(ureq::Error::BodyExceedsLimit(max));
            }
            let retry_after = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
            let retry_after = retry_after.and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
            Ok(Answer { status: response.status().as_u16(), retry_after, body })
        });
        read.map_err(|error| match error {
            ureq::Error::Timeout(_) => HttpError::Timeout,
            ureq::Error::Io(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock) => {
                HttpError::Timeout
            }
            ureq::Error::Io(error) => HttpError::Transport(Box::new(error)),
            error => HttpError::Transport(Box::new(error)),
        })
    }
}

/// For the stores of a fleet and the receivers of its telemetry.
#[cfg(feature = "parquet")]
impl Client {
    /// A client for a service that the user names, for several threads. Each request has its own limit. No redirect is
    /// followed, since a signature and a header of authorization are for one host. Otherwise as [`Self::public`].
    pub(crate) fn service(request_limit: Duration, body_max_bytes: u64) -> Self {
        Self::service_with_roots(request_limit, body_max_bytes, None)
    }

    /// [`Self::service`] with these root certificates as PEM, if there are any.
    #[cfg_attr(not(feature = "net"), expect(unused_variables, reason = "there is no TLS without a client"))]
    pub(crate) fn service_with_roots(
        request_limit: Duration,
        body_max_bytes: u64,
        roots: Option<&[u8]>,
    ) -> Self {
        Self {
            limit: Limit::Each(request_limit.min(DEADLINE_MAX)),
            body_max_bytes,
            #[cfg(feature = "net")]
            agent: agent::service(roots),
        }
    }

    /// Sends a request with a body.
    pub(crate) fn send(
        &self,
        method: &str,
        url: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<(u16, Vec<u8>), HttpError> {
        self.exchange(method, url, headers, body).map(|answer| (answer.status, answer.body))
    }

    /// [`Self::send`] with the time after which the service wants another request.
    #[cfg(feature = "net")]
    pub(crate) fn exchange(
        &self,
        method: &str,
        url: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Answer, HttpError> {
        let request = ureq::http::Request::builder().method(method).uri(url);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let request = request.body(body).map_err(|error| HttpError::Transport(error.into()))?;
        let request = self.agent.configure_request(request).timeout_global(Some(self.left()?));
        self.read_answer(self.agent.run(request.build()))
    }

    #[cfg(feature = "net")]
    pub(crate) fn delete(&self, url: &str) -> Result<(u16, Vec<u8>), HttpError> {
        self.read(self.agent.delete(url).config().timeout_global(Some(self.left()?)).build().call())
    }

    #[cfg(not(feature = "net"))]
    pub(crate) fn exchange(
        &self,
        _: &str,
        url: &str,
        headers: &[(&str, &str)],
        _: &[u8],
    ) -> Result<Answer, HttpError> {
        self.get(url, headers).map(|(status, body)| Answer { status, retry_after: None, body })
    }

    #[cfg(not(feature = "net"))]
    pub(crate) fn delete(&self, url: &str) -> Result<(u16, Vec<u8>), HttpError> {
        self.get(url, &[])
    }
}

#[cfg(feature = "net")]
mod agent {
    use std::io;
    use std::net::IpAddr;
    use std::sync::OnceLock;
    use std::sync::mpsc::sync_channel;
    use std::thread;
    use ureq::config::{AutoHeaderValue, Config, ConfigBuilder};
    use ureq::http::Uri;
    use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
    use ureq::typestate::AgentScope;
    use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
    use ureq::unversioned::transport::{
        Buffers, ConnectionDetails, Connector, DefaultConnector, NextTimeout, TcpConnector, Transport,
    };
    use ureq::{Agent, Error};

    use crate::os::network::CountedConnection;

    pub(super) fn link_local() -> Agent {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .max_idle_connections(0)
            .accept_encoding(AutoHeaderValue::None)
            .input_buffer_size(8 << 10)
            .output_buffer_size(8 << 10)
            .build();
        Agent::with_parts(config, Counted(TcpConnector::default()), AddressOnly)
    }

    #[cfg(feature = "parquet")]
    pub(super) fn service(roots: Option<&[u8]>) -> Agent {
        const KEPT_CONNECTIONS: usize = 32;
        const CONNECT_LIMIT: std::time::Duration = std::time::Duration::from_secs(10);
        let config = with_tls(roots)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .accept_encoding(AutoHeaderValue::None)
            .timeout_connect(Some(CONNECT_LIMIT))
            .max_idle_connections(KEPT_CONNECTIONS)
            .max_idle_connections_per_host(KEPT_CONNECTIONS)
            .build();
        Agent::with_parts(config, Counted(DefaultConnector::default()), InThread)
    }

    /// Root certificates as given, else by the user's settings; a status is no error.
    fn with_tls(roots: Option<&[u8]>) -> ConfigBuilder<AgentScope> {
        let mut tls = TlsConfig::builder();
        let of_user = || std::env::var_os("SSL_CERT_FILE").and_then(|path| std::fs::read(path).ok());
        let pem = roots.map(<[u8]>::to_vec).or_else(of_user);
        let roots: Vec<_> = parse_pem(&pem.unwrap_or_default())
            .filter_map(|item| match item {
                Ok(PemItem::Certificate(certificate)) => Some(certificate),
                _ => None,
            })
            .collect();
        if !roots.is_empty() {
            tls = tls.root_certs(RootCerts::new_with_certs(&roots));
        }
        Agent::config_builder().http_status_as_error(false).tls_config(tls.build())
    }

    pub(super) fn public() -> Agent {
        let config = with_tls(None).build();
        let proxy = config.proxy().and_then(|proxy| proxy.uri().authority()).map(ToString::to_string);
        let guard = RedirectGuard { proxy, is_first_internal: OnceLock::new() };
        Agent::with_parts(config, Counted(guard.chain(DefaultConnector::default())), InThread)
    }

    /// Counts the bytes of all connections as the tracker's own traffic.
    #[derive(Debug)]
    struct Counted<C>(C);

    #[derive(Debug)]
    struct CountedTransport<T> {
        inner: T,
        connection: CountedConnection,
    }

    impl<C: Connector<()>> Connector<()> for Counted<C> {
        type Out = CountedTransport<C::Out>;

        fn connect(
            &self,
            details: &ConnectionDetails<'_>,
            chained: Option<()>,
        ) -> Result<Option<Self::Out>, Error> {
            let opened = self.0.connect(details, chained);
            let address = details.addrs.first().map(std::net::SocketAddr::ip);
            let is_open = matches!(opened, Ok(Some(_)));
            let connection = CountedConnection::new(address.unwrap_or(IpAddr::from([127, 0, 0, 1])), is_open);
            Ok(opened?.map(|inner| CountedTransport { inner, connection }))
        }
    }

    impl<T: Transport> Transport for CountedTransport<T> {
        fn buffers(&mut self) -> &mut dyn Buffers {
            self.inner.buffers()
        }

        fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
            self.connection.sent(amount);
            self.inner.transmit_output(amount, timeout)
        }

        fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
            let before = self.inner.buffers().input().len();
            let progress = self.inner.await_input(timeout);
            self.connection.received(self.inner.buffers().input().len().saturating_sub(before));
            progress
        }

        fn is_open(&mut self) -> bool {
            self.inner.is_open()
        }

        fn is_tls(&self) -> bool {
            self.inner.is_tls()
        }
    }

    /// Refuses connections to loopback, link-local and private addresses, unless the first connection is to one. All
    /// requests of a client are to the same host, so a later connection to another address follows a redirect.
    #[derive(Debug)]
    struct RedirectGuard {
        proxy: Option<String>,
        is_first_internal: OnceLock<bool>,
    }

    impl Connector<()> for RedirectGuard {
        type Out = ();

        fn connect(&self, to: &ConnectionDetails<'_>, chained: Option<()>) -> Result<Option<()>, Error> {
            if to.uri.authority().map(ToString::to_string) == self.proxy && self.proxy.is_some() {
                return Ok(chained);
            }
            let host = to.uri.host().unwrap_or_default().trim_matches(['[', ']']).to_ascii_lowercase();
            // Through a proxy, names are not resolved here.
            let is_local = host == "localhost" || host.ends_with(".localhost");
            let named = host.parse().is_ok_and(is_internal);
            let is_internal = is_local || named || to.addrs.iter().any(|address| is_internal(address.ip()));
            let is_first_internal = *self.is_first_internal.get_or_init(|| is_internal);
            if is_internal && !is_first_internal {
                let text = format!("redirect to `{host}`, an address of this machine or its network");
                return Err(Error::Io(io::Error::new(io::ErrorKind::PermissionDenied, text)));
            }
            Ok(chained)
        }
    }

    /// Loopback, link-local, private and shared (RFC 6598) addresses, and those that are not of a single host.
    fn is_internal(address: IpAddr) -> bool {
        match address {
            IpAddr::V4(v4) => {
                let [first, second, ..] = v4.octets();
                v4.is_loopback()
                    || v4.is_private()
                    || v4.is_link_local()
                    || v4.is_multicast()
                    || v4.is_broadcast()
                    || first == 0
                    || (first == 100 && second & 0xc0 == 64)
            }
            IpAddr::V6(v6) => {
                v6.is_loopback()
                    || v6.is_unique_local()
                    || v6.is_unicast_link_local()
                    || v6.is_multicast()
                    || v6.to_ipv4().is_some_and(|v4| is_internal(v4.into()))
            }
        }
    }

    /// Accepts IP addresses and resolves no names.
    #[derive(Debug)]
    struct AddressOnly;

    impl Resolver for AddressOnly {
        fn resolve(&self, uri: &Uri, config: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
            let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
            host.parse::<IpAddr>().map_err(|_| Error::HostNotFound)?;
            DefaultResolver::default().resolve(uri, config, NextTimeout::default())
        }
    }

    /// Resolves names in a thread, because `getaddrinfo` has no timeout.
    ///
    /// The resolver of ureq does the same, but it panics if no thread can be started, and its thread may receive
    /// signals of the host process.
    #[derive(Debug)]
    struct InThread;

    impl Resolver for InThread {
        fn resolve(
            &self,
            uri: &Uri,
            config: &Config,
            timeout: NextTimeout,
        ) -> Result<ResolvedSocketAddrs, Error> {
            if let Ok(addresses) = AddressOnly.resolve(uri, config, timeout) {
                return Ok(addresses);
            }
            let (uri, config) = (uri.clone(), config.clone());
            let (sender, receiver) = sync_channel(1);
            let resolve = move || {
                // This fails after a timeout, when there is no receiver any more.
                let _ =
                    sender.send(DefaultResolver::default().resolve(&uri, &config, NextTimeout::default()));
            };
            crate::os::without_signals(|| thread::Builder::new().name("rt-resolver".into()).spawn(resolve))
                .map_err(Error::Io)?;
            receiver.recv_timeout(*timeout.after).unwrap_or(Err(Error::Timeout(timeout.reason)))
        }
    }
}

#[cfg(all(test, feature = "net"))]
mod tests {
    use super::*;

    #[test]
    fn link_local_client_resolves_no_names_and_sends_no_control_characters() {
        let client = Client::link_local(Duration::from_secs(1), 100);
        let error = |url: &str, headers: &[(&str, &str)]| match client.get(url, headers) {
            Err(HttpError::Transport(error)) => error.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(error("http://localhost:1/", &[]), "host not found");
        assert_eq!(
            error("http://127.0.0.1:1/", &[("Token", "a\r\nHost: b")]),
            "http: failed to parse header value"
        );
    }

    #[test]
    fn no_request_starts_after_the_deadline() {
        let client = Client::public(Duration::ZERO, 100);
        assert!(matches!(client.put("http://127.0.0.1:1/", &[]), Err(HttpError::Timeout)));
        assert!(Client::public(Duration::MAX, 100).left().is_ok());
    }
}
