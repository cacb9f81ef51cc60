//! An HTTP server on loopback whose replies, valid or faulty, are defined by the test.
//!
//! In:  a function from request to [`Reply`].
//! Out: the address of the server, and a log of the requests. Dropping the server joins all its threads and closes all
//! its sockets.

#![expect(dead_code, reason = "each test file uses only a part of this module")]

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A request of a client.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    /// Bytes of the body that are not read yet.
    left: usize,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Decoded values of a query parameter.
    pub fn parameters(&self, name: &str) -> Vec<String> {
        let query = self.path.split_once('?').map_or("", |(_, query)| query);
        query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .filter(|(key, _)| *key == name)
            .map(|(_, value)| value.replace("%20", " ").replace("%7E", "~"))
            .collect()
    }

    pub fn route(&self) -> &str {
        self.path.split_once('?').map_or(self.path.as_str(), |(route, _)| route)
    }
}

/// The server's reply to a request.
#[derive(Clone, Debug)]
pub enum Reply {
    /// A complete response.
    Answer { status: u16, headers: Vec<(&'static str, String)>, body: Vec<u8> },
    /// Sends a response one byte at a time, with a pause after each byte.
    Drip(Box<Reply>, Duration),
    /// Sends a response after a pause.
    Late(Box<Reply>, Duration),
    /// Truncates a response. Its `Content-Length` is that of the complete response.
    Half(Box<Reply>),
    /// Sends these bytes, which need not be HTTP.
    Raw(Vec<u8>),
    /// Sends nothing until the client closes the connection.
    Hang,
    /// Closes the connection after half of the request's body.
    HalfUpload,
}

impl Reply {
    pub fn ok(body: impl Into<Vec<u8>>) -> Self {
        Self::status(200, body)
    }

    pub fn status(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self::Answer { status, headers: Vec::new(), body: body.into() }
    }

    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Answer { status, headers, body } => {
                use std::fmt::Write as _;
                let mut head = format!(
                    "HTTP/1.1 {status} Status\r\nContent-Length: {}\r\nConnection: close\r\n",
                    body.len()
                );
                for (name, value) in headers {
                    let _ = write!(head, "{name}: {value}\r\n");
                }
                [head.as_bytes(), b"\r\n", body].concat()
            }
            Self::Drip(reply, _) | Self::Late(reply, _) => reply.bytes(),
            Self::Half(reply) => {
                let mut bytes = reply.bytes();
                bytes.truncate(bytes.len() - (bytes.len() / 4).max(1));
                bytes
            }
            Self::Raw(bytes) => bytes.clone(),
            Self::Hang | Self::HalfUpload => Vec::new(),
        }
    }
}

/// A server on loopback.
pub struct TestServer {
    address: SocketAddr,
    stopping: Arc<AtomicBool>,
    log: Arc<Mutex<Vec<Request>>>,
    accepting: Option<JoinHandle<()>>,
}

impl TestServer {
    pub fn start(handler: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (stopping, log) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let handler = Arc::new(handler);
        let accepting = thread::spawn({
            let (stopping, log) = (Arc::clone(&stopping), Arc::clone(&log));
            move || {
                let mut serving = Vec::new();
                for stream in listener.incoming() {
                    if stopping.load(Ordering::SeqCst) {
                        break;
                    }
                    let (handler, log) = (Arc::clone(&handler), Arc::clone(&log));
                    let stream = stream.unwrap();
                    serving.push(thread::spawn(move || serve(stream, handler.as_ref(), &log)));
                }
                for thread in serving {
                    thread.join().unwrap();
                }
            }
        });
        Self { address, stopping, log, accepting: Some(accepting) }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn log(&self) -> Vec<Request> {
        self.log.lock().unwrap().clone()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        // The connection wakes the listener, which then reads the flag.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

fn serve(mut stream: TcpStream, handler: &dyn Fn(&Request) -> Reply, log: &Mutex<Vec<Request>>) {
    let Some(request) = read_request(&mut stream) else { return };
    log.lock().unwrap().push(request.clone());
    let reply = handler(&request);
    // A connection that is closed with unread bytes is reset, and the client may not see the reply.
    let read = if matches!(reply, Reply::HalfUpload) { request.left / 2 } else { request.left };
    let _ = std::io::copy(&mut (&stream).take(read as u64), &mut std::io::sink());
    // Write errors are ignored: in many tests the client closes the connection early.
    match &reply {
        Reply::Drip(_, pause) => {
            for byte in reply.bytes() {
                if stream.write_all(&[byte]).is_err() {
                    return;
                }
                thread::sleep(*pause);
            }
        }
        Reply::Late(_, pause) => {
            thread::sleep(*pause);
            let _ = stream.write_all(&reply.bytes());
        }
        _ => {
            let _ = stream.write_all(&reply.bytes());
        }
    }
    if matches!(reply, Reply::Hang) {
        let _ = stream.read(&mut [0; 64]);
    }
    let _ = stream.shutdown(Shutdown::Both);
}

fn read_request(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    while !bytes.windows(4).any(|window| window == b"\r\n\r\n") {
        let count = stream.read(&mut buffer).ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&buffer[..count]);
        if !bytes[0].is_ascii_uppercase() {
            // The client tries TLS, which this server does not support.
            return Some(Request {
                method: String::new(),
                path: String::new(),
                headers: Vec::new(),
                left: 0,
            });
        }
    }
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&bytes[..head]).into_owned();
    let mut lines = text.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
        .collect();
    let mut request =
        Request { method: first.next()?.to_owned(), path: first.next()?.to_owned(), headers, left: 0 };
    let length = request.header("content-length").and_then(|length| length.parse::<usize>().ok());
    request.left = length.unwrap_or(0).saturating_sub(bytes.len() - head);
    Some(request)
}

/// Number of threads of this process.
pub fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// Number of sockets of this process.
pub fn sockets() -> usize {
    std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|link| link.to_string_lossy().starts_with("socket:"))
        .count()
}

/// Measures how long the machine delays a thread that only sleeps. Time limits of tests are extended by this time.
pub struct Stalls {
    is_over: Arc<AtomicBool>,
    watcher: JoinHandle<Duration>,
}

impl Stalls {
    pub fn watch() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&is_over);
        let watcher = thread::spawn(move || {
            let (nap, mut late) = (Duration::from_millis(5), Duration::ZERO);
            while !stop.load(Ordering::Relaxed) {
                let began = Instant::now();
                thread::sleep(nap);
                late += began.elapsed().saturating_sub(2 * nap);
            }
            late
        });
        Self { is_over, watcher }
    }

    pub fn stop(self) -> Duration {
        self.is_over.store(true, Ordering::Relaxed);
        self.watcher.join().unwrap()
    }
}
