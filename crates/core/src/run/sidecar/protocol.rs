//! The messages between host and sidecar, and the socket that carries them, one line per message.
//!
//! In:  one end of a Unix socket pair. Out: [`Connection`].
//! Not here: who sends what when (`host`, `server`).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::process::{Pid, test_kill_process};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::os;
use crate::os::root::Root;
use crate::probe::procfs;
use crate::store::recording::{Metadata, Run};

/// The hidden command of `resource-tracker` that becomes a sidecar; its argument is [`Orders`] as JSON.
pub(super) const SUBCOMMAND: &str = "sidecar";

/// How long host and sidecar wait for each other at the start.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(10);
/// The peer may die without an end of file on the socket, so a waiting side checks the peer's process this often.
const RECEIVE_CHECK: Duration = Duration::from_millis(10);
const SEND_CHECK: Duration = Duration::from_secs(1);

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Orders {
    pub(super) host_pid: u32,
    /// Id of the recording in the history.
    pub(super) id: String,
    pub(super) journal: PathBuf,
    /// What to record, in the form of the recording's metadata.
    pub(super) metadata: Metadata,
    /// What is known about the run when it starts.
    pub(super) run: Run,
    /// Address of the store of many machines that gets the run of a host that died.
    pub(super) store: Option<String>,
}

/// A message from the host to the sidecar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Command {
    /// Read the baseline.
    Go,
    /// Make the last row, and leave the journal to the host.
    Stop,
    /// Make the last row, and save the recording in the history: the host cannot read the journal.
    Save,
}

/// The sidecar's message to the host after `Go`. After `Stop` and `Save`, the sidecar sends its final report instead.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Started {
        pid: u32,
        start_ticks: Option<u64>,
        start_time: f64,
        cpu_source: String,
        notes: Vec<String>,
    },
    /// The process to follow does not exist.
    Refused(String),
    Failed(String),
}

/// One end of the socket.
///
/// The host process may close the socket's descriptor, and another file may get its number. So the inode of the socket
/// is remembered, and a descriptor with another inode is neither used nor closed.
#[derive(Debug)]
pub(super) struct Connection {
    /// `None` only while the connection is dropped.
    socket: Option<UnixStream>,
    device_and_inode: (u64, u64),
    received: Vec<u8>,
}

impl Connection {
    pub(super) fn new(socket: UnixStream) -> io::Result<Self> {
        let socket = os::above_stdio(socket)?;
        let device_and_inode = identity(socket.as_fd()).ok_or(io::ErrorKind::NotConnected)?;
        Ok(Self { socket: Some(socket), device_and_inode, received: Vec::new() })
    }

    /// The descriptor of the socket; an error if the number now belongs to another file.
    pub(super) fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        let socket = self.socket.as_ref().map(AsFd::as_fd);
        let own = socket.filter(|socket| identity(*socket) == Some(self.device_and_inode));
        own.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Sends a message. While the socket's buffer is full, waits until the peer reads or `is_peer_alive` returns false.
    pub(super) fn send(&self, message: &impl Serialize, is_peer_alive: impl Fn() -> bool) -> io::Result<()> {
        let line = serde_json::to_string(message)? + "\n";
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            let socket = self.descriptor()?;
            // SIGPIPE would kill a host that has not changed its default action.
            match send(socket, rest, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(sent) => rest = rest.get(sent..).unwrap_or_default(),
                Err(Errno::AGAIN) if is_peer_alive() => {
                    os::takes_text_within(socket, SEND_CHECK);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// The next message; `None` if the peer is gone.
    ///
    /// A process that another thread forked may hold a copy of the peer's end: then the peer can die without an end of
    /// file. `is_peer_alive` shows that.
    pub(super) fn receive<T: DeserializeOwned>(
        &mut self,
        timeout: Duration,
        is_peer_alive: impl Fn() -> bool,
    ) -> io::Result<Option<T>> {
        let deadline = Instant::now() + timeout;
        let mut part = vec![0; 64 << 10];
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            // Checked before the read, so that the last message of a peer that dies meanwhile is received.
            let is_alive = is_peer_alive();
            let socket = self.descriptor()?;
            match recv(socket, &mut part, RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(Errno::CONNRESET) => return Ok(None),
                Ok((length, _)) => self.received.extend(part.iter().take(length)),
                Err(Errno::AGAIN) if !is_alive => return Ok(None),
                Err(Errno::AGAIN) if Instant::now() >= deadline => return Err(io::ErrorKind::TimedOut.into()),
                Err(Errno::AGAIN) => {
                    wait_readable([Some(socket)], Some(RECEIVE_CHECK));
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Whether the peer has sent a message that was not received yet.
    pub(super) fn has_unread(&self) -> bool {
        let mut byte = [0];
        self.descriptor().is_ok_and(|socket| {
            matches!(recv(socket, &mut byte, RecvFlags::DONTWAIT | RecvFlags::PEEK), Ok((1.., _)))
        })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.descriptor().is_err() {
            // The descriptor's number now belongs to another file of the host program, which must stay open.
            let _ = self.socket.take().map(UnixStream::into_raw_fd);
        }
    }
}

fn identity(descriptor: BorrowedFd<'_>) -> Option<(u64, u64)> {
    rustix::fs::fstat(descriptor).ok().map(|found| (found.st_dev, found.st_ino))
}

/// Waits until a descriptor is readable, failed or at its end, or until the timeout; returns which of them are ready.
pub(super) fn wait_readable<const N: usize>(
    descriptors: [Option<BorrowedFd<'_>>; N],
    timeout: Option<Duration>,
) -> [bool; N] {
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: timeout.as_secs().cast_signed(),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let polled =
        descriptors.iter().flatten().map(|descriptor| PollFd::from_borrowed_fd(*descriptor, PollFlags::IN));
    let mut polled: Vec<PollFd<'_>> = polled.collect();
    // After an interrupted wait, no descriptor counts as ready.
    let _ = poll(&mut polled, timeout.as_ref());
    let mut ready = polled.iter().map(|descriptor| !descriptor.revents().is_empty());
    descriptors.map(|descriptor| descriptor.is_some() && ready.next().unwrap_or(false))
}

/// Whether a process exists, is not a zombie, and started at this time.
pub(super) fn is_alive(pid: u32, start_ticks: Option<u64>) -> bool {
    match Root::host_in_process() {
        Ok(root) if root.check_processes().is_ok() => procfs::is_alive(&root, pid, start_ticks),
        // `/proc` cannot be read: no descriptor is free, or `/proc` belongs to another PID namespace. `kill(2)` with
        // signal 0 shows whether a process exists, and needs no file.
        _ => Pid::from_raw(pid.cast_signed())
            .is_some_and(|pid| matches!(test_kill_process(pid), Ok(()) | Err(Errno::PERM))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Connection, Connection) {
        let (one, other) = UnixStream::pair().unwrap();
        (Connection::new(one).unwrap(), Connection::new(other).unwrap())
    }

    #[test]
    fn messages_arrive_one_by_one_and_then_the_end_of_file() {
        let (host, mut sidecar) = pair();
        assert!(!sidecar.has_unread());
        host.send(&Command::Go, || true).unwrap();
        host.send(&["a\nb"], || true).unwrap();
        assert!(sidecar.has_unread());
        drop(host);
        assert_eq!(sidecar.receive(START_TIMEOUT, || true).unwrap(), Some(Command::Go));
        assert_eq!(sidecar.receive(START_TIMEOUT, || true).unwrap(), Some(["a\nb".to_owned()]));
        assert_eq!(sidecar.receive::<Command>(START_TIMEOUT, || true).unwrap(), None);
        assert!(sidecar.send(&Command::Stop, || true).is_err(), "no SIGPIPE");
    }

    #[test]
    fn message_larger_than_the_buffer_waits_for_the_reader() {
        let long = "x".repeat(4 << 20);
        let (host, _sidecar) = pair();
        assert!(host.send(&long, || false).is_err(), "a dead reader");
        let (host, mut sidecar) = pair();
        std::thread::scope(|scope| {
            scope.spawn(|| host.send(&long, || true).unwrap());
            assert_eq!(sidecar.receive(START_TIMEOUT, || true).unwrap(), Some(long.clone()));
        });
    }

    #[test]
    fn dead_peer_without_end_of_file_is_noticed() {
        let (_copy_in_a_fork, mut host) = pair();
        assert!(host.receive::<Answer>(START_TIMEOUT, || false).unwrap().is_none());
        let late = host.receive::<Answer>(Duration::ZERO, || true).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn descriptor_number_that_the_host_reused_is_neither_written_nor_closed() {
        use std::os::fd::{AsRawFd as _, OwnedFd};
        let (mut host, sidecar) = pair();
        sidecar.send(&Command::Go, || true).unwrap();
        // The host program closes the descriptor, and another socket of the program gets the number.
        let (own, _other) = UnixStream::pair().unwrap();
        let mut number = OwnedFd::from(host.socket.take().unwrap());
        rustix::io::dup2(&own, &mut number).unwrap();
        let raw = number.as_raw_fd();
        host.socket = Some(UnixStream::from(number));
        assert_eq!(host.send(&Command::Stop, || true).unwrap_err().kind(), io::ErrorKind::NotConnected);
        assert!(host.receive::<Answer>(START_TIMEOUT, || true).is_err() && !host.has_unread());
        drop(host);
        assert!(std::fs::metadata(format!("/proc/self/fd/{raw}")).is_ok(), "closed");
    }
}
