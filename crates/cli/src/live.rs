//! The status line of `--live`: what the job uses now, on the last line of the terminal.
//!
//! In:  rows as they come. Out: one line below a scroll region, so that what the job prints scrolls above it and is
//! never written over. Drawn by a thread of its own: a terminal that is held (Ctrl-S) holds nobody else.
//!
//! A job that takes the terminal for itself (it switches lines off: editors, pagers, prompts) gets all of it back, and
//! is told to draw anew as after a change of size. The same before Ctrl-Z, and while we are in the background.

use std::fs::File;
use std::io::{self, Write as _};
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use resource_tracker::human::Scale;
use resource_tracker::metric::{Metric, Row};
use resource_tracker::sampler::Sink;
use resource_tracker::sys;
use rustix::process::Signal;
use rustix::termios::{LocalModes, tcgetattr, tcgetpgrp, tcgetwinsize};

/// How often the terminal is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// A job that ends before this shows no line at all.
const FIRST: Duration = Duration::from_millis(600);
/// Fewer lines than this are all the job's.
const MIN_LINES: u16 = 4;

/// The thread that draws.
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
    /// Nothing of ours is on the terminal.
    is_clean: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Every change is one assignment, so what a panic leaves behind is whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Live {
    /// Begins to draw, and gives what takes the rows; `None` where standard error is no terminal.
    pub fn start() -> Option<(Self, Box<dyn Sink>)> {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        if is_dumb || !rustix::termios::isatty(rustix::stdio::stderr()) {
            return None;
        }
        let terminal = File::from(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 3).ok()?);
        let shared = Arc::new(Shared::default());
        let drawn = Arc::clone(&shared);
        let mut screen = Screen { terminal, lines: None, stale: None, text: String::new() };
        let thread = std::thread::Builder::new().name("live".to_owned()).stack_size(128 << 10);
        // With SIGTTOU blocked too, writing never stops us.
        let thread = sys::without_signals(|| thread.spawn(move || screen.draw_until_over(&drawn))).ok()?;
        let sink = Box::new(LiveSink(Arc::clone(&shared)));
        Some((Self { shared, thread: Some(thread) }, sink))
    }

    /// Takes the line away, and draws no more until [`Live::resume`].
    pub fn pause(&self) {
        let mut inner = self.shared.lock();
        inner.is_paused = true;
        self.shared.changed.notify_all();
        while !inner.is_clean && !inner.is_over {
            // A terminal that takes no more text must not keep us from being stopped.
            let waited = self.shared.changed.wait_timeout(inner, LOOK);
            let (again, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            inner = again;
            if timeout.timed_out() {
                break;
            }
        }
    }

    /// Draws again.
    pub fn resume(&self) {
        self.shared.lock().is_paused = false;
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // It draws, and does nothing that could be lost.
            let _ = thread.join();
        }
    }
}

struct LiveSink(Arc<Shared>);

impl Sink for LiveSink {
    fn take(&mut self, row: &Row) -> io::Result<ControlFlow<()>> {
        let mut inner = self.0.lock();
        let seen =
            [Metric::ProcessMemory, Metric::MemoryPeak].into_iter().filter_map(|metric| row.get(metric));
        inner.memory_peak_kib = seen.fold(inner.memory_peak_kib, f64::max);
        inner.row = Some(Box::new(row.clone()));
        Ok(ControlFlow::Continue(()))
    }

    fn name(&self) -> String {
        "live".to_owned()
    }
}

/// The terminal, and what of it is ours.
struct Screen {
    terminal: File,
    /// Lines of the terminal when the last of them became ours.
    lines: Option<u16>,
    /// The line that may still show what we wrote.
    stale: Option<u16>,
    /// What is on it.
    text: String,
}

impl Screen {
    fn draw_until_over(&mut self, shared: &Shared) {
        let began = Instant::now();
        let mut inner = shared.lock();
        while !inner.is_over {
            let row = inner.row.clone();
            let (is_paused, peak_kib) = (inner.is_paused, inner.memory_peak_kib);
            inner.is_clean = false;
            drop(inner);
            if is_paused {
                self.give_back();
            } else if !self.is_ours_to_draw() {
                self.hand_over();
            } else if began.elapsed() >= FIRST {
                self.draw(&status(began.elapsed(), row.as_deref(), peak_kib));
            }
            inner = shared.lock();
            inner.is_clean = self.lines.is_none();
            shared.changed.notify_all();
            if !inner.is_over && inner.is_paused == is_paused {
                inner = shared.changed.wait_timeout(inner, LOOK).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        drop(inner);
        self.give_back();
        self.clear_stale();
    }

    /// We are in the foreground, and nobody reads single keys: then the screen is a scroll of lines.
    fn is_ours_to_draw(&self) -> bool {
        let in_front = tcgetpgrp(&self.terminal).is_ok_and(|group| group == rustix::process::getpgrp());
        in_front
            && tcgetattr(&self.terminal).is_ok_and(|modes| modes.local_modes.contains(LocalModes::ICANON))
    }

    fn draw(&mut self, text: &str) {
        let Ok(size) = tcgetwinsize(&self.terminal) else { return };
        if size.ws_row < MIN_LINES {
            return self.give_back();
        }
        if self.lines != Some(size.ws_row) {
            self.give_back();
            // Down and up again: on the last line this scrolls, and keeps the column, where the job may be in the
            // middle of a line. The region is set with the cursor put aside, as setting it moves the cursor.
            self.write(&format!("\u{1b}D\u{1b}[A\u{1b}7\u{1b}[1;{}r\u{1b}8", size.ws_row - 1));
            (self.lines, self.stale) = (Some(size.ws_row), None);
            self.text.clear();
        }
        let text: String = text.chars().take(usize::from(size.ws_col.saturating_sub(1))).collect();
        if text != self.text {
            self.write(&format!("\u{1b}7\u{1b}[{};1H\u{1b}[0;7m{text}\u{1b}[0m\u{1b}[K\u{1b}8", size.ws_row));
            self.text = text;
        }
    }

    /// The whole terminal is the job's again.
    fn give_back(&mut self) {
        if self.release() {
            self.clear_stale();
        }
    }

    /// The same for a job that draws on all of it, and must not lose what it has drawn there: it is told to draw anew.
    /// When it leaves, the screen from before comes back, our line with it.
    fn hand_over(&mut self) {
        if self.release()
            && let Ok(group) = tcgetpgrp(&self.terminal)
        {
            let _ = rustix::process::kill_process_group(group, Signal::WINCH);
        }
    }

    /// Lifts the scroll region; whether there was one. What we wrote below it is still there.
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
        // A terminal that is gone shows nothing, and nobody misses it.
        let _ = self.terminal.write_all(text.as_bytes());
    }
}

/// What the line says.
fn status(elapsed: Duration, row: Option<&Row>, memory_peak_kib: f64) -> String {
    let seconds = elapsed.as_secs();
    let clock = format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    let Some(row) = row else { return format!(" {clock}") };
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
    parts.into_iter().flatten().collect::<Vec<_>>().join("  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_tells_time_and_what_is_known() {
        assert_eq!(status(Duration::from_secs(3725), None, 0.0), " 1:02:05");
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
        assert_eq!(
            status(Duration::from_secs(1), Some(&row), 4096.0),
            " 0:00:01  CPU 1.50  memory 2.00 MiB (peak 4.00 MiB)  disk r 1.50 kB/s w 0 B/s"
        );
    }
}
