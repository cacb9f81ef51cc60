//! A client for metadata services: plain HTTP to one host, one deadline for everything.
//!
//! In:  method, host, path, headers.
//! Out: the body of a 200, or why there is none.
//! Not here: what is asked of whom (`metadata`).
//!
//! Metadata services are link-local, speak plain HTTP and hand out the machine's identity: no proxy
//! is ever used, no redirect followed, no name resolved, and no more read than such an answer has.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use thiserror::Error;

/// The largest real answer is a few kB.
const ANSWER_MAX_BYTES: usize = 256 << 10;

/// Why a metadata service gave nothing.
#[derive(Debug, Error)]
pub enum HttpError {
    /// The deadline passed.
    #[error("no answer in time")]
    Timeout,
    /// The base URL that replaces the services is none.
    #[error("`{0}` is no address of a metadata service")]
    BadAddress(String),
    /// No connection, or one that broke.
    #[error("the connection failed")]
    Io(#[from] std::io::Error),
    /// Not 200: refused, not found, elsewhere.
    #[error("status {0}")]
    Status(u16),
    /// Not HTTP, cut short, or far too long.
    #[error("the answer is broken: {0}")]
    Broken(&'static str),
}

/// Asks metadata services until a deadline.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    ends: Instant,
    /// `http://127.0.0.1:8080`, in place of every service; for tests.
    base_url: Option<String>,
}

impl Client {
    pub(crate) fn new(budget: Duration, base_url: Option<String>) -> Self {
        Self { ends: Instant::now() + budget, base_url }
    }

    pub(crate) fn get(&self, host: &str, path: &str, headers: &[(&str, &str)]) -> Result<String, HttpError> {
        self.request("GET", host, path, headers)
    }

    pub(crate) fn put(&self, host: &str, path: &str, headers: &[(&str, &str)]) -> Result<String, HttpError> {
        self.request("PUT", host, path, headers)
    }

    /// Whether anybody takes a connection there.
    pub(crate) fn reaches(&self, host: &str) -> bool {
        let connect = || {
            let (address, ..) = self.address(host)?;
            TcpStream::connect_timeout(&address, self.left()?).map_err(timed)
        };
        connect().is_ok()
    }

    fn request(
        &self,
        method: &str,
        host: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<String, HttpError> {
        use std::fmt::Write as _;
        let (address, host, prefix) = self.address(host)?;
        let mut stream = TcpStream::connect_timeout(&address, self.left()?).map_err(timed)?;
        let mut text = format!("{method} {prefix}{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
        for (name, value) in headers {
            // A token came from the service; it must not become a header of ours.
            if value.chars().any(char::is_control) {
                return Err(HttpError::Broken("a header value with control characters"));
            }
            let _ = write!(text, "{name}: {value}\r\n");
        }
        if method == "PUT" {
            text.push_str("Content-Length: 0\r\n");
        }
        text.push_str("\r\n");
        stream.set_write_timeout(Some(self.left()?))?;
        stream.write_all(text.as_bytes()).map_err(timed)?;

        let mut answer = Vec::new();
        let mut buffer = [0_u8; 8192];
        loop {
            stream.set_read_timeout(Some(self.left()?))?;
            let count = match stream.read(&mut buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(timed(error)),
            };
            answer.extend_from_slice(buffer.get(..count).unwrap_or_default());
            match parse_answer(&answer, count == 0)? {
                Some((200, body)) => {
                    return String::from_utf8(body).map_err(|_| HttpError::Broken("not text"));
                }
                Some((status, _)) => return Err(HttpError::Status(status)),
                None if answer.len() > ANSWER_MAX_BYTES => return Err(HttpError::Broken("too long")),
                None => {}
            }
        }
    }

    fn left(&self) -> Result<Duration, HttpError> {
        let left = self.ends.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(HttpError::Timeout) } else { Ok(left) }
    }

    /// Address, host name, and what goes before the path.
    fn address<'a>(&'a self, host: &'a str) -> Result<(SocketAddr, &'a str, &'a str), HttpError> {
        let Some(base) = &self.base_url else {
            return Ok((
                SocketAddr::new(host.parse().map_err(|_| HttpError::BadAddress(host.to_owned()))?, 80),
                host,
                "",
            ));
        };
        let bad = || HttpError::BadAddress(base.clone());
        let rest = base.strip_prefix("http://").ok_or_else(bad)?.trim_end_matches('/');
        let split = rest.find('/').unwrap_or(rest.len());
        let (authority, prefix) = rest.split_at_checked(split).ok_or_else(bad)?;
        Ok((authority.parse().map_err(|_| bad())?, authority, prefix))
    }
}

fn timed(error: std::io::Error) -> HttpError {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => HttpError::Timeout,
        _ => HttpError::Io(error),
    }
}

/// Status and body once the answer is whole, `None` while it is not. At the end of the connection
/// an answer without a length is whole, any other is broken.
fn parse_answer(bytes: &[u8], ended: bool) -> Result<Option<(u16, Vec<u8>)>, HttpError> {
    let Some(head_len) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
        let is_http = bytes.starts_with(b"HTTP/1.") || b"HTTP/1.".starts_with(bytes);
        return if ended || !is_http { Err(HttpError::Broken("not HTTP")) } else { Ok(None) };
    };
    let head = bytes
        .get(..head_len)
        .and_then(|head| std::str::from_utf8(head).ok())
        .ok_or(HttpError::Broken("head"))?;
    let body = bytes.get(head_len + 4..).unwrap_or_default();
    let mut lines = head.split("\r\n");
    let status = lines
        .next()
        .and_then(|line| line.strip_prefix("HTTP/1."))
        .and_then(|rest| rest.get(2..5))
        .and_then(|digits| digits.parse::<u16>().ok())
        .ok_or(HttpError::Broken("status line"))?;
    if status != 200 {
        return Ok(Some((status, Vec::new())));
    }
    let header = |name: &str| {
        head.split("\r\n")
            .skip(1)
            .filter_map(|line| line.split_once(':'))
            .find_map(|(key, value)| key.trim().eq_ignore_ascii_case(name).then(|| value.trim()))
    };
    if header("Transfer-Encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
        return match unchunked(body)? {
            Some(whole) => Ok(Some((status, whole))),
            None if ended => Err(HttpError::Broken("half an answer")),
            None => Ok(None),
        };
    }
    match header("Content-Length") {
        Some(length) => {
            let length = length.parse::<usize>().map_err(|_| HttpError::Broken("length"))?;
            if length > ANSWER_MAX_BYTES {
                return Err(HttpError::Broken("too long"));
            }
            match body.get(..length) {
                Some(whole) => Ok(Some((status, whole.to_vec()))),
                None if ended => Err(HttpError::Broken("half an answer")),
                None => Ok(None),
            }
        }
        None => Ok(ended.then(|| (status, body.to_vec()))),
    }
}

fn unchunked(mut bytes: &[u8]) -> Result<Option<Vec<u8>>, HttpError> {
    let mut whole = Vec::new();
    loop {
        let Some(line_len) = bytes.windows(2).position(|window| window == b"\r\n") else { return Ok(None) };
        let (line, rest) = bytes.split_at(line_len);
        let size = std::str::from_utf8(line)
            .ok()
            .and_then(|line| line.split(';').next())
            .and_then(|digits| usize::from_str_radix(digits.trim(), 16).ok())
            .filter(|size| *size <= ANSWER_MAX_BYTES)
            .ok_or(HttpError::Broken("chunk"))?;
        if size == 0 {
            return Ok(Some(whole));
        }
        let Some(chunk) = rest.get(2..2 + size) else { return Ok(None) };
        whole.extend_from_slice(chunk);
        let Some(next) = rest.get(2 + size + 2..) else { return Ok(None) };
        bytes = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str, ended: bool) -> Option<(u16, String)> {
        parse_answer(text.as_bytes(), ended)
            .unwrap()
            .map(|(status, body)| (status, String::from_utf8(body).unwrap()))
    }

    #[test]
    fn an_answer_is_whole_by_its_length_its_chunks_or_its_end() {
        let sized = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nfsn1\n";
        assert_eq!(parsed(sized, false), Some((200, "fsn1\n".into())));
        assert_eq!(parsed(&sized[..sized.len() - 1], false), None);
        let chunked =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfsn1\r\n2;x=y\r\n\r\n\r\n0\r\n\r\n";
        assert_eq!(parsed(chunked, false), Some((200, "fsn1\r\n".into())));
        let open = "HTTP/1.0 200 OK\r\n\r\nfsn1";
        assert_eq!((parsed(open, false), parsed(open, true)), (None, Some((200, "fsn1".into()))));
    }

    #[test]
    fn half_an_answer_and_what_is_no_http_are_errors() {
        let error = |text: &str| parse_answer(text.as_bytes(), true).unwrap_err().to_string();
        assert_eq!(
            error("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfsn1"),
            "the answer is broken: half an answer"
        );
        assert_eq!(
            error("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfsn1\r\n"),
            "the answer is broken: half an answer"
        );
        assert_eq!(error("SSH-2.0-OpenSSH_9.6\r\n\r\n"), "the answer is broken: status line");
        assert_eq!(error(""), "the answer is broken: not HTTP");
        assert_eq!(
            error("HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n"),
            "the answer is broken: too long"
        );
    }

    proptest! {
        /// The other side may be anything: it must not make us panic, however its bytes arrive.
        #[test]
        fn any_bytes_are_an_answer_or_an_error(head in "(HTTP/1\\.1 200 OK)?\r\n(Content-Length: [0-9]{1,3}|Transfer-Encoding: chunked)?\r\n\r\n", body in proptest::collection::vec(any::<u8>(), 0..64), ended: bool) {
            let mut bytes = head.into_bytes();
            bytes.extend(body);
            let _ = parse_answer(&bytes, ended);
        }

        /// Where a packet ends must not change what was said.
        #[test]
        fn a_chunked_body_is_the_same_however_it_was_cut(parts in proptest::collection::vec("[a-z]{1,9}", 1..6)) {
            let chunks: Vec<String> = parts.iter().map(|part| format!("{:x}\r\n{part}\r\n", part.len())).collect();
            let whole = format!("{}0\r\n\r\n", chunks.concat());
            for cut in 0..whole.len() - 4 {
                prop_assert_eq!(unchunked(&whole.as_bytes()[..cut]).unwrap(), None);
            }
            prop_assert_eq!(unchunked(whole.as_bytes()).unwrap(), Some(parts.concat().into_bytes()));
        }
    }
}
