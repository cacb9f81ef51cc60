//! The status line on a Unix terminal.
//!
//! In:  rows of the sampler. Out: one line below a scroll region: the output of the job scrolls above the line and is
//! never overwritten. A separate thread draws the line, so that a terminal that blocks (Ctrl-S) blocks nothing else.
//!
//! A job that switches canonical mode off (editors, pagers, prompts) gets the whole screen and a `SIGWINCH`, so that it
//! redraws. The line is also removed before Ctrl-Z and while the tracker is in the background.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use resource_tracker::human::Scale;
use resource_tracker::{Metric, Row, Sink, without_signals};
use rustix::process::Signal;
use rustix::termios::{LocalModes, tcgetattr, tcgetpgrp, tcgetwinsize};

/// Interval at which the line is drawn, and size and mode of the terminal are checked.
const REFRESH: Duration = Duration::from_millis(200);
/// The first line is drawn after this time; a shorter job shows no line.
const DRAW_AFTER: Duration = Duration::from_millis(600);
/// A smaller terminal shows no status line.
const MIN_LINES: u16 = 4;

pub struct Live {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    row: Option<Box<Row>>,
    memory_peak_kib: f64,
    is_paused: bool,
    is_over: bool,
    /// Whether the terminal has no scroll region.
    is_clean: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Every change is one assignment, so a panic leaves the data consistent.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Live {
    /// Starts the thread that draws the line; `None` if standard error is not a terminal or the thread cannot start.
    pub fn start() -> Option<(Self, Box<dyn Sink>)> {
        if !anstyle_query::term_supports_color() || !io::stderr().is_terminal() {
            return None;
        }
        let terminal = File::from(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 3).ok()?);
        let shared = Arc::new(Shared::default());
        let drawn = Arc::clone(&shared);
        let mut screen = Screen { terminal, lines: None, stale: None, text: String::new() };
        let thread = std::thread::Builder::new().name("live".to_owned()).stack_size(128 << 10);
        // With all signals blocked, SIGTTOU included, writing from the background does not stop the process.
        let thread = without_signals(|| thread.spawn(move || screen.draw_until_over(&drawn))).ok()?;
        let sink = Box::new(LiveSink(Arc::clone(&shared)));
        Some((Self { shared, thread: Some(thread) }, sink))
    }

    /// Removes the line until [`Live::resume`].
    pub fn pause(&self) {
        let mut inner = self.shared.lock();
        inner.is_paused = true;
        self.shared.changed.notify_all();
        while !inner.is_clean && !inner.is_over {
            // A blocked terminal must not prevent the stop.
            let waited = self.shared.changed.wait_timeout(inner, REFRESH);
            let (again, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            inner = again;
            if timeout.timed_out() {
                break;
            }
        }
    }

    pub fn resume(&self) {
        self.shared.lock().is_paused = false;
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // If the drawing thread panicked, only the status line is lost.
            let _ = thread.join();
        }
    }
}

struct LiveSink(Arc<Shared>);

impl Sink for LiveSink {
    fn take(&mut self, row: &Row) -> io::Result<ControlFlow<()>> {
        let mut inner = self.0.lock();
        let measured =
            [Metric::ProcessMemory, Metric::MemoryPeak].into_iter().filter_map(|metric| row.get(metric));
        inner.memory_peak_kib = measured.fold(inner.memory_peak_kib, f64::max);
        inner.row = Some(Box::new(row.clone()));
        Ok(ControlFlow::Continue(()))
    }

    fn name(&self) -> String {
        "live".to_owned()
    }
}

struct Screen {
    terminal: File,
    /// Height of the terminal when the scroll region was set; `None` without a scroll region.
    lines: Option<u16>,
    /// The terminal line that may still show an old status.
    stale: Option<u16>,
    /// Text on the status line.
    text: String,
}

impl Screen {
    fn draw_until_over(&mut self, shared: &Shared) {
        let started = Instant::now();
        let mut inner = shared.lock();
        while !inner.is_over {
            let row = inner.row.clone();
            let (is_paused, peak_kib) = (inner.is_paused, inner.memory_peak_kib);
            inner.is_clean = false;
            drop(inner);
            if is_paused {
                self.give_back();
            } else if !self.may_draw() {
                self.hand_over();
            } else if started.elapsed() >= DRAW_AFTER {
                self.draw(&status(started.elapsed(), row.as_deref(), peak_kib));
            }
            inner = shared.lock();
            inner.is_clean = self.lines.is_none();
            shared.changed.notify_all();
            if !inner.is_over && inner.is_paused == is_paused {
                inner = shared.changed.wait_timeout(inner, REFRESH).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        drop(inner);
        self.give_back();
        self.clear_stale();
    }

    /// Whether the tracker is in the foreground and the terminal in canonical mode: no job uses the whole screen then.
    fn may_draw(&self) -> bool {
        let in_front = tcgetpgrp(&self.terminal).is_ok_and(|group| group == rustix::process::getpgrp());
        in_front
            && tcgetattr(&self.terminal).is_ok_and(|modes| modes.local_modes.contains(LocalModes::ICANON))
    }

    fn draw(&mut self, parts: &[String]) {
        let Ok(size) = tcgetwinsize(&self.terminal) else { return };
        if size.ws_row < MIN_LINES {
            return self.give_back();
        }
        if self.lines != Some(size.ws_row) {
            self.give_back();
            // Cursor down and up: scrolls if the cursor is on the last line, and keeps the column, because the job may
            // have printed half a line. The cursor is saved and restored, because setting the region moves it.
            self.write(&format!("\u{1b}D\u{1b}[A\u{1b}7\u{1b}[1;{}r\u{1b}8", size.ws_row - 1));
            (self.lines, self.stale) = (Some(size.ws_row), None);
            self.text.clear();
        }
        let text = fitting(parts, usize::from(size.ws_col.saturating_sub(1)));
        if text != self.text {
            self.write(&format!("\u{1b}7\u{1b}[{};1H\u{1b}[0;7m{text}\u{1b}[0m\u{1b}[K\u{1b}8", size.ws_row));
            self.text = text;
        }
    }

    /// Removes the scroll region and the line.
    fn give_back(&mut self) {
        if self.release() {
            self.clear_stale();
        }
    }

    /// Removes the scroll region for a job that uses the whole screen, and makes the job redraw. The text of the line
    /// is not cleared now, because the job has drawn over it, but after the job has restored the old screen.
    fn hand_over(&mut self) {
        if self.release()
            && let Ok(group) = tcgetpgrp(&self.terminal)
        {
            let _ = rustix::process::kill_process_group(group, Signal::WINCH);
        }
    }

    /// Removes the scroll region, but not the text of the line. Returns whether there was a scroll region.
    fn release(&mut self) -> bool {
        let Some(lines) = self.lines.take() else { return false };
        self.write("\u{1b}7\u{1b}[r\u{1b}8");
        self.stale = Some(lines);
        true
    }

    fn clear_stale(&mut self) {
        let Some(lines) = self.stale.take() else { return };
        if tcgetwinsize(&self.terminal).is_ok_and(|size| size.ws_row >= lines) {
            self.write(&format!("\u{1b}7\u{1b}[{lines};1H\u{1b}[2K\u{1b}8"));
        }
    }

    fn write(&mut self, text: &str) {
        // The terminal may be gone; the status line is not worth a warning.
        let _ = self.terminal.write_all(text.as_bytes());
    }
}

/// The first parts that fit into the width. A part is never cut: half a number is another number.
fn fitting(parts: &[String], width: usize) -> String {
    let mut text = String::new();
    for part in parts {
        let gap = if text.is_empty() { "" } else { "  " };
        if text.len() + gap.len() + part.len() > width {
            break;
        }
        text = text + gap + part;
    }
    text
}

/// The parts of the line, the most important first.
fn status(elapsed: Duration, row: Option<&Row>, memory_peak_kib: f64) -> Vec<String> {
    let seconds = elapsed.as_secs();
    let clock = format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    let Some(row) = row else { return vec![format!(" {clock}")] };
    let of = |metric: Metric| row.get(metric);
    let rate = |metric: Metric| {
        let per_second = of(metric)? / of(Metric::Elapsed).filter(|elapsed| *elapsed > 0.0)?;
        Some(Scale::Rate.show(per_second))
    };
    let parts = [
        Some(format!(" {clock}")),
        of(Metric::ProcessCpu).map(|cores| format!("CPU {cores:.2}")),
        of(Metric::ProcessMemory).map(|kib| {
            format!(
                "memory {} (peak {})",
                Scale::Bytes.show(kib * 1024.0),
                Scale::Bytes.show(memory_peak_kib * 1024.0)
            )
        }),
        rate(Metric::ProcessRead)
            .zip(rate(Metric::ProcessWrite))
            .map(|(read, write)| format!("disk r {read} w {write}")),
        rate(Metric::NetRecv).zip(rate(Metric::NetSent)).map(|(recv, sent)| format!("net r {recv} s {sent}")),
        of(Metric::ProcessGpu).filter(|gpus| *gpus > 0.0).map(|gpus| format!("GPU {gpus:.2}")),
    ];
    parts.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_line_shows_the_time_and_the_measured_values() {
        assert_eq!(status(Duration::from_secs(3725), None, 0.0), [" 1:02:05"]);
        let mut row = Row::default();
        for (metric, value) in [
            (Metric::Elapsed, 2.0),
            (Metric::ProcessCpu, 1.5),
            (Metric::ProcessMemory, 2048.0),
            (Metric::ProcessRead, 3000.0),
            (Metric::ProcessWrite, 0.0),
        ] {
            row.set(metric, Some(value));
        }
        let parts = status(Duration::from_secs(1), Some(&row), 4096.0);
        let whole = " 0:00:01  CPU 1.50  memory 2.00 MiB (peak 4.00 MiB)  disk r 1.50 kB/s w 0 B/s";
        assert_eq!(fitting(&parts, 77), whole);
        assert_eq!(fitting(&parts, 76), " 0:00:01  CPU 1.50  memory 2.00 MiB (peak 4.00 MiB)");
        assert_eq!([fitting(&parts, 10), fitting(&parts, 3)], [" 0:00:01", ""]);
    }
}
