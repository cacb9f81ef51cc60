//! Permission to use the network, and the tracker's own traffic.
//!
//! Out: [`offline`], from `RESOURCE_TRACKER_OFFLINE`. An option of a front can forbid network access, but not allow it.
//!      [`traffic`], an estimate from the payload of the tracker's connections. The kernel counts no bytes per process.

use std::net::IpAddr;

use super::ProcessCounter;

static RECEIVED_BYTES: ProcessCounter = ProcessCounter::zero();
static SENT_BYTES: ProcessCounter = ProcessCounter::zero();

/// Headers of Ethernet, IPv4 and TCP with timestamps; the packet that opens a connection has 8 bytes more.
const HEADER_BYTES: usize = 66;
const SYN_BYTES: usize = HEADER_BYTES + 8;
/// Payload of a full packet on Ethernet.
const SEGMENT_BYTES: usize = 1448;

/// Bytes that this process has received and sent on network interfaces for the tracker, an estimate.
pub fn traffic() -> (u64, u64) {
    (u64::from(RECEIVED_BYTES.get()), u64::from(SENT_BYTES.get()))
}

/// A TCP connection of the tracker, whose bytes count as the tracker's. Loopback is not a network interface that counts.
#[derive(Clone, Copy, Debug)]
pub struct CountedConnection {
    counts: bool,
}

#[cfg_attr(
    not(any(feature = "net", test)),
    expect(dead_code, reason = "there is no payload without a client")
)]
impl CountedConnection {
    /// Counts the packets that open and close a connection to `address`, or the attempt if `is_open` is false.
    pub fn new(address: IpAddr, is_open: bool) -> Self {
        let connection = Self { counts: !address.is_loopback() };
        if is_open {
            // SYN, ACK, FIN and ACK one way; SYN-ACK, FIN and ACK the other way.
            connection.add(SYN_BYTES + 2 * HEADER_BYTES, SYN_BYTES + 3 * HEADER_BYTES);
        } else {
            connection.add(0, SYN_BYTES);
        }
        connection
    }

    /// Counts payload, its headers, and the packets that acknowledge it.
    pub fn received(self, bytes: usize) {
        let headers = bytes.div_ceil(SEGMENT_BYTES) * HEADER_BYTES;
        self.add(bytes + headers, headers);
    }

    /// As [`Self::received`].
    pub fn sent(self, bytes: usize) {
        let headers = bytes.div_ceil(SEGMENT_BYTES) * HEADER_BYTES;
        self.add(headers, bytes + headers);
    }

    fn add(self, received: usize, sent: usize) {
        for (counter, bytes) in [(&RECEIVED_BYTES, received), (&SENT_BYTES, sent)] {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            counter.change(|count| count.saturating_add(if self.counts { bytes } else { 0 }));
        }
    }
}

/// Whether `RESOURCE_TRACKER_OFFLINE` forbids network access. An empty value, `0`, `false` and `no` allow it.
pub fn offline() -> bool {
    std::env::var_os("RESOURCE_TRACKER_OFFLINE").is_some_and(|value| is_set(&value.to_string_lossy()))
}

fn is_set(value: &str) -> bool {
    !matches!(value.trim().to_ascii_lowercase().as_str(), "" | "0" | "false" | "no")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_on_network_interfaces_counts_with_its_headers_and_loopback_does_not() {
        // No other unit test opens connections that are not loopback.
        let before = traffic();
        let local = CountedConnection::new([127, 0, 0, 1].into(), true);
        local.sent(1000);
        assert_eq!(traffic(), before);
        let connection = CountedConnection::new([169, 254, 169, 254].into(), true);
        connection.sent(100);
        connection.received(2000);
        CountedConnection::new([169, 254, 169, 254].into(), false);
        let after = traffic();
        let received = 74 + 2 * 66 + 66 + 2000 + 2 * 66;
        let sent = 74 + 3 * 66 + 100 + 66 + 2 * 66 + 74;
        assert_eq!((after.0 - before.0, after.1 - before.1), (received, sent));
    }

    #[test]
    fn offline_unless_unset_or_false() {
        for (value, offline) in
            [("1", true), ("true", true), ("yes", true), ("", false), ("0", false), ("No", false)]
        {
            assert_eq!(super::is_set(value), offline, "{value}");
        }
    }
}
