//! Paths of `/proc/PID` files, built without allocation because a tick may need thousands of paths.

#[derive(Clone, Copy)]
pub struct PidPath {
    bytes: [u8; 40],
    length: usize,
}

impl PidPath {
    pub fn as_str(&self) -> &str {
        self.bytes.get(..self.length).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
    }
}

/// `/proc/<pid>/<file>`.
pub fn pid_path(pid: u32, file: &str) -> PidPath {
    use std::io::Write as _;
    let mut path = PidPath { bytes: [0; 40], length: 0 };
    let mut rest = path.bytes.as_mut_slice();
    // `/proc/`, 10 digits, `/` and the longest file name in use (`smaps_rollup`) are 29 bytes.
    let _ = write!(rest, "/proc/{pid}/{file}");
    path.length = 40 - rest.len();
    path
}
