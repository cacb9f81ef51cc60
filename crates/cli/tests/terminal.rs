//! On a real terminal (tmux): the summary, the status line, resizing, keys that send signals, and full-screen jobs.
//! The screen is compared with the screen of the same job without the tracker.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use support::runs::{RUNS, save};
use support::{BIN, open_folder};
use unicode_width::UnicodeWidthStr as _;

/// A terminal with a shell; dropping it ends both.
struct Terminal {
    socket: String,
    home: tempfile::TempDir,
}

impl Terminal {
    fn new(columns: u16, lines: u16) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let socket = format!("rt-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let terminal = Self { socket, home: open_folder() };
        let home = terminal.home.path().display();
        let shell = format!(
            "cd {home} && exec env -i PATH=\"$PATH\" HOME={home} TERM=\"$TERM\" LC_ALL=C.UTF-8 PS1='ready> ' RESOURCE_TRACKER_OFFLINE=1 rt={BIN} bash --norc --noprofile"
        );
        let size = [columns.to_string(), lines.to_string()];
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", &size[0], "-y", &size[1], &shell]);
        terminal.wait_for(|screen| screen.starts_with("ready>"));
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let output =
            Command::new("tmux").env("LC_ALL", "C.UTF-8").args(["-L", &self.socket]).args(arguments).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    fn enter(&self, line: &str) {
        self.keys(&[line, "Enter"]);
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// The screen and its scrollback.
    fn scroll(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-S", "-1000"])
    }

    fn size(&self, columns: u16, lines: u16) {
        self.tmux(&["resize-window", "-x", &columns.to_string(), "-y", &lines.to_string()]);
    }

    /// Ends the loop of [`WAIT`].
    fn go_on(&self) {
        fs::write(self.home().join("go"), "").unwrap();
    }

    /// Waits until the screen meets a condition.
    fn wait_for(&self, is_met: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let screen = self.screen();
            if is_met(&screen) {
                return screen;
            }
            assert!(Instant::now() < end, "timeout with this screen:\n{screen}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the screen has not changed for more than a second; the machine itself may pause for half a second.
    fn settled(&self) -> String {
        let (mut before, mut same) = (String::new(), 0);
        for _ in 0..200 {
            let screen = self.screen();
            same = if screen == before { same + 1 } else { 0 };
            if same == 4 {
                return screen;
            }
            before = screen;
            std::thread::sleep(Duration::from_millis(300));
        }
        panic!("the screen keeps changing:\n{before}");
    }

    fn home(&self) -> &Path {
        self.home.path()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = Command::new("tmux").args(["-L", &self.socket, "kill-server"]).output();
    }
}

fn last_line(screen: &str) -> &str {
    screen.lines().last().unwrap_or_default()
}

fn is_status(line: &str) -> bool {
    line.starts_with(" 0:00:") && line.contains("CPU ")
}

/// Shell code that waits for [`Terminal::go_on`].
const WAIT: &str = "while [ ! -e go ]; do sleep 0.05; done";

#[test]
fn summary_has_colours_and_bars_unless_switched_off() {
    let terminal = Terminal::new(120, 40);
    let busy = "for k in 1 2 3; do timeout 0.4 sh -c \"while :; do :; done\"; sleep 0.4; done";
    terminal.enter(&format!("$rt run --no-save -i 0.05 -- sh -c '{busy}'; echo done=$?"));
    let screen = terminal.wait_for(|screen| screen.contains("done=0"));
    assert!(screen.contains("resource-tracker: finished after"), "{screen}");
    let cpu = screen.lines().find(|line| line.starts_with("  CPU ")).unwrap();
    assert!(cpu.contains('█') && cpu.contains('▁'), "{cpu}");
    let coloured = terminal.tmux(&["capture-pane", "-p", "-e"]);
    assert!(coloured.contains("\u{1b}[32mfinished"), "{coloured}");

    terminal.enter(&format!(
        "clear; NO_COLOR=1 LC_ALL=C $rt run --no-save -i 0.05 -- sh -c '{busy}'; echo plain=$?"
    ));
    terminal.wait_for(|screen| screen.contains("plain=0"));
    let plain = terminal.tmux(&["capture-pane", "-p", "-e"]);
    assert!(!plain.contains('\u{1b}') && plain.is_ascii() && plain.contains("finished after"), "{plain}");
}

#[test]
fn status_line_stays_below_the_output_and_disappears_at_the_end() {
    let terminal = Terminal::new(100, 20);
    let steps =
        |first: u32, last: u32| format!("for i in $(seq {first} {last}); do echo line $i; sleep 0.05; done");
    let job = [steps(1, 30), WAIT.to_owned(), steps(31, 60)].join("; ");
    terminal.enter(&format!("$rt run --live --no-save -i 0.2 -- sh -c '{job}'; echo done=$?"));
    let screen = terminal.wait_for(|screen| is_status(last_line(screen)) && screen.contains("\nline 30\n"));
    let lines: Vec<&str> = screen.lines().filter(|line| line.starts_with("line ")).collect();
    let first: usize = lines[0]["line ".len()..].parse().unwrap();
    for (number, line) in lines.iter().enumerate() {
        assert_eq!(*line, format!("line {}", first + number), "{screen}");
    }
    assert!(last_line(&screen).contains("memory ") && last_line(&screen).contains("disk r "), "{screen}");
    terminal.go_on();
    terminal.wait_for(|screen| screen.contains("done=0"));
    let scroll = terminal.scroll();
    assert!(!scroll.contains(" 0:00:"), "the status line was removed:\n{scroll}");
    let printed: Vec<&str> = scroll.lines().filter(|line| line.starts_with("line ")).collect();
    let expected: Vec<String> = (1..=60).map(|number| format!("line {number}")).collect();
    assert_eq!(printed, expected);
    // The whole screen scrolls again.
    terminal.enter("seq 100");
    let screen = terminal.wait_for(|screen| screen.contains("100\nready>"));
    assert_eq!(screen.trim_end().lines().count(), 20, "{screen}");
}

#[test]
fn status_line_does_not_break_a_half_printed_line() {
    let terminal = Terminal::new(100, 14);
    terminal.enter(&format!(
        "seq 30; $rt run --live --no-save -i 0.1 -- sh -c 'printf half; {WAIT}; echo way'; echo done=$?"
    ));
    terminal.wait_for(|screen| is_status(last_line(screen)) && screen.contains("\nhalf\n"));
    terminal.go_on();
    let screen = terminal.wait_for(|screen| screen.contains("done=0"));
    assert!(screen.contains("\nhalfway\n"), "{screen}");
}

#[test]
fn no_status_line_without_a_terminal() {
    let terminal = Terminal::new(100, 20);
    terminal.enter("$rt run --live --no-save -- sleep 1 2> err.txt; wc -c < err.txt; echo done");
    terminal.wait_for(|screen| screen.contains("\ndone"));
    let text = fs::read_to_string(terminal.home().join("err.txt")).unwrap();
    assert!(text.starts_with("resource-tracker: finished") && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn status_line_follows_the_terminal_size() {
    let terminal = Terminal::new(100, 24);
    terminal.enter("$rt run --live --no-save -i 0.1 -- sh -c 'while [ ! -e stop ]; do echo row; sleep 0.1; done'; echo done=$?");
    terminal.wait_for(|screen| is_status(last_line(screen)));
    for (columns, lines) in [(70, 15), (100, 30), (40, 10)] {
        terminal.size(columns, lines);
        let screen = terminal
            .wait_for(|screen| screen.lines().count() == usize::from(lines) && is_status(last_line(screen)));
        let shown = screen.lines().filter(|line| line.contains(" 0:00:")).count();
        assert_eq!(shown, 1, "{columns} × {lines}:\n{screen}");
    }
    fs::write(terminal.home().join("stop"), "").unwrap();
    terminal.size(100, 24);
    let screen = terminal.wait_for(|screen| screen.contains("done=0"));
    assert!(!screen.contains(" 0:00:"), "{screen}");
}

#[test]
fn ctrl_c_ends_the_job_and_restores_the_terminal() {
    let terminal = Terminal::new(100, 20);
    terminal.enter("for i in 1 2 3; do $rt run --live --no-save -i 0.1 -- sleep 60; done");
    terminal.wait_for(|screen| is_status(last_line(screen)));
    terminal.keys(&["C-c"]);
    // The shell ends the loop, since the tracker ended by the signal.
    terminal.wait_for(|screen| screen.trim_end().ends_with("\nready>"));
    terminal.enter("echo done=$?");
    let screen = terminal.wait_for(|screen| screen.contains("done=130"));
    assert_eq!(screen.matches("killed by").count(), 1, "{screen}");
    assert!(screen.contains("killed by signal 2 (SIGINT)") && !screen.contains(" 0:00:"), "{screen}");
}

#[test]
fn ctrl_z_and_fg_work_and_the_status_line_is_removed_meanwhile() {
    for live in ["", "--live "] {
        let terminal = Terminal::new(100, 20);
        terminal.enter(&format!(
            "$rt run {live}--no-save -i 0.1 -- sh -c 'echo begun; {WAIT}; echo slept'; echo done=$?"
        ));
        terminal.wait_for(|screen| {
            screen.contains("\nbegun\n") && (live.is_empty() || is_status(last_line(screen)))
        });
        terminal.keys(&["C-z"]);
        let screen = terminal.wait_for(|screen| screen.contains("Stopped"));
        assert!(!screen.contains(" 0:00:"), "{screen}");
        terminal.enter("seq 50 | tail -1; echo shell");
        let screen = terminal.wait_for(|screen| screen.contains("\nshell\n"));
        assert!(!screen.contains(" 0:00:"), "{screen}");
        terminal.enter("fg; echo back=$?");
        if !live.is_empty() {
            terminal.wait_for(|screen| is_status(last_line(screen)));
        }
        terminal.go_on();
        let screen = terminal.wait_for(|screen| screen.contains("back=0"));
        assert!(screen.contains("\nslept\n") && screen.contains("finished after"), "{live}: {screen}");
    }
}

/// Screens of a full-screen program: at its start, after each key, and after its end.
fn full_screen(prefix: &str, program: &str, keys: &[&str], quit: &[&str]) -> Vec<String> {
    let terminal = Terminal::new(80, 24);
    let lines: Vec<String> = (1..=200).map(|number| format!("line {number} of the file\n")).collect();
    fs::write(terminal.home().join("file"), lines.concat()).unwrap();
    terminal.enter(&format!("clear; {prefix}{program}; echo done=$?"));
    terminal.wait_for(|screen| screen.contains("line 5 of the file"));
    let mut screens = vec![terminal.settled()];
    for key in keys {
        let before = terminal.screen();
        terminal.keys(&[key]);
        terminal.wait_for(|screen| screen != before);
        screens.push(terminal.settled());
    }
    terminal.keys(quit);
    let end = terminal.wait_for(|screen| screen.contains("done=0"));
    screens
        .push(end.lines().filter(|line| line.contains("of the file") || line.contains(" 0:00:")).collect());
    screens
}

#[test]
fn full_screen_programs_look_the_same_as_without_the_tracker() {
    let vim =
        ["/usr/bin/vim", "/usr/bin/vim.tiny"].into_iter().find(|path| Path::new(path).exists()).unwrap();
    let programs = [
        ("less file".to_owned(), vec!["Space", "G"], vec!["q"]),
        (format!("{vim} -u NONE -N -n -i NONE file"), vec!["G", "C-u"], vec![":q", "Enter"]),
    ];
    for (program, keys, quit) in programs {
        let bare = full_screen("", &program, &keys, &quit);
        assert!(bare[0].lines().count() == 24 && bare[1].contains("of the file"), "{program}:\n{}", bare[0]);
        assert_eq!(full_screen("$rt run --no-save -i 0.1 -- ", &program, &keys, &quit), bare, "{program}");
        assert_eq!(
            full_screen("$rt run --live --no-save -i 0.1 -- ", &program, &keys, &quit),
            bare,
            "{program} --live"
        );
        // The status line is drawn before the program starts. The program then redraws as after a resize, with another
        // message on its last line.
        let late = format!("sh -c 'sleep 1.5; exec {program}'");
        let screens = full_screen("$rt run --live --no-save -i 0.1 -- ", &late, &keys, &quit);
        for (screen, bare) in screens.iter().zip(&bare) {
            let but_last = |screen: &str| screen.lines().take(23).map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(but_last(screen), but_last(bare), "late {program} --live");
            assert!(!screen.contains(" 0:00:"), "late {program}: the status line was removed\n{screen}");
        }
    }
}

#[test]
fn attach_shows_the_status_line_and_ctrl_c_does_not_end_the_process() {
    let terminal = Terminal::new(100, 20);
    terminal.enter("sleep 60 & $rt attach --live --no-save -i 0.1 $!; echo done=$?");
    terminal.wait_for(|screen| is_status(last_line(screen)));
    terminal.keys(&["C-c"]);
    let screen = terminal.wait_for(|screen| screen.contains("done=0"));
    assert!(screen.contains("stopped tracking after"), "{screen}");
    terminal.enter("jobs; kill %1");
    terminal.wait_for(|screen| screen.contains("Running") && screen.contains("sleep 60 &"));
}

#[test]
fn ctrl_z_stops_nothing_without_a_shell_to_continue() {
    let terminal = Terminal::new(100, 20);
    // `script` starts a session without a job-control shell, as `ssh -t host resource-tracker …` does.
    terminal.enter(&format!(
        "script -qc \"$rt run --live --no-save -i 0.1 -- sh -c '{WAIT}'\" /dev/null; echo done=$?"
    ));
    terminal.wait_for(|screen| is_status(last_line(screen)));
    terminal.keys(&["C-z"]);
    terminal.wait_for(|screen| screen.contains("^Z"));
    terminal.go_on();
    terminal.wait_for(|screen| screen.contains("done=0"));
}

#[test]
fn list_fits_the_terminal_with_wide_characters() {
    for columns in [80, 120, 200] {
        let terminal = Terminal::new(columns, 24);
        let job = "学習ジョブ 👩‍🚀";
        save(terminal.home(), job, &RUNS);
        let entry = terminal.home().join("data/resource-tracker/a10000000001.run");
        let long = format!("python 訓練.py {}", "--option=value ".repeat(12));
        let mut run: serde_json::Value = serde_json::from_slice(&fs::read(&entry).unwrap()).unwrap();
        run["command"] = serde_json::json!(long.split_whitespace().collect::<Vec<_>>());
        fs::write(&entry, run.to_string()).unwrap();
        // Journals in the shared temporary folder would be recovered into this history.
        terminal.enter("clear; TMPDIR=$PWD XDG_DATA_HOME=$PWD/data $rt list; echo done=$?");
        let screen = terminal.wait_for(|screen| screen.contains("done=0"));
        let lines: Vec<&str> = screen.lines().take_while(|line| !line.starts_with("done=")).collect();
        assert_eq!(lines.len(), 1 + RUNS.len(), "no line is wrapped at {columns} columns:\n{screen}");
        let of = |id: &str| *lines.iter().find(|line| line.starts_with(id)).unwrap();
        let (first, head) = (of("a10000000001"), lines[0]);
        // The column `started` begins at the same place of the terminal in every line.
        let width_before = |line: &str, text: &str| line[..line.find(text).unwrap()].width();
        let year = if columns < 100 { "" } else { "2001-" };
        assert_eq!(
            width_before(first, &format!("{year}09-09 01:46")),
            width_before(head, "started"),
            "{columns}:\n{screen}"
        );
        assert!(first.contains("finished") && first.contains("197 MiB"), "{screen}");
        match columns {
            80 => assert!(lines.iter().all(|line| line.width() <= 80), "{screen}"),
            120 => assert!(
                first.contains("python 訓練.py") && first.ends_with('…') && first.width() <= 120,
                "{screen}"
            ),
            _ => assert!(first.width() > 190 && first.contains("--option=value --option=value"), "{screen}"),
        }
    }
}

#[test]
fn status_line_at_eighty_columns_has_no_half_number() {
    let terminal = Terminal::new(80, 24);
    terminal.enter(&format!("$rt run --live --no-save -i 0.2 -- sh -c '{WAIT}'; echo done=$?"));
    let screen = terminal.wait_for(|screen| last_line(screen).contains("disk r"));
    let status = last_line(&screen).trim_end();
    assert!(status.width() < 80 && (status.ends_with("/s") || status.ends_with("GPU")), "{screen}");
    terminal.go_on();
    terminal.wait_for(|screen| screen.contains("done=0"));
}
