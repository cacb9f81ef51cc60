//! On a real terminal, under tmux: the summary, the status line, resizing, keys that send signals, and jobs that take
//! the whole screen. What is on the screen is compared with what the same job shows without us.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use support::{BIN, open_folder};

/// A terminal with a shell in it, which is gone with this.
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

    /// Types a line.
    fn enter(&self, line: &str) {
        self.keys(&[line, "Enter"]);
    }

    /// What is on the screen.
    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// The same with all that has scrolled away.
    fn scroll(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-S", "-1000"])
    }

    fn size(&self, columns: u16, lines: u16) {
        self.tmux(&["resize-window", "-x", &columns.to_string(), "-y", &lines.to_string()]);
    }

    /// What waits in [`WAIT`] goes on.
    fn go_on(&self) {
        fs::write(self.home().join("go"), "").unwrap();
    }

    /// Looks until the screen is as it should be.
    fn wait_for(&self, is_there: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let screen = self.screen();
            if is_there(&screen) {
                return screen;
            }
            assert!(Instant::now() < end, "this stays on the screen:\n{screen}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the screen stays as it is for a second and more: a machine may stand still for half of one.
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
        panic!("the screen does not come to rest:\n{before}");
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

/// The last line of a screen.
fn last_line(screen: &str) -> &str {
    screen.lines().last().unwrap_or_default()
}

fn is_status(line: &str) -> bool {
    line.starts_with(" 0:00:") && line.contains("CPU ")
}

/// A line of a job that waits there until [`Terminal::go_on`].
const WAIT: &str = "while [ ! -e go ]; do sleep 0.05; done";

#[test]
fn the_summary_has_colours_and_bars_on_a_terminal_and_none_against_the_users_will() {
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
fn the_status_line_stays_below_what_the_job_prints_and_is_gone_at_the_end() {
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
    assert!(!scroll.contains(" 0:00:"), "nothing of the line is left:\n{scroll}");
    let printed: Vec<&str> = scroll.lines().filter(|line| line.starts_with("line ")).collect();
    let expected: Vec<String> = (1..=60).map(|number| format!("line {number}")).collect();
    assert_eq!(printed, expected);
    // The whole screen scrolls again.
    terminal.enter("seq 100");
    let screen = terminal.wait_for(|screen| screen.contains("100\nready>"));
    assert_eq!(screen.trim_end().lines().count(), 20, "{screen}");
}

#[test]
fn a_line_that_the_job_has_only_begun_is_not_broken_by_the_status_line() {
    let terminal = Terminal::new(100, 12);
    terminal.enter(&format!(
        "seq 30; $rt run --live --no-save -i 0.1 -- sh -c 'printf half; {WAIT}; echo way'; echo done=$?"
    ));
    terminal.wait_for(|screen| is_status(last_line(screen)) && screen.contains("\nhalf\n"));
    terminal.go_on();
    let screen = terminal.wait_for(|screen| screen.contains("done=0"));
    assert!(screen.contains("\nhalfway\n"), "{screen}");
}

#[test]
fn there_is_no_status_line_without_a_terminal() {
    let terminal = Terminal::new(100, 20);
    terminal.enter("$rt run --live --no-save -- sleep 1 2> err.txt; wc -c < err.txt; echo done");
    terminal.wait_for(|screen| screen.contains("\ndone"));
    let text = fs::read_to_string(terminal.home().join("err.txt")).unwrap();
    assert!(text.starts_with("resource-tracker: finished") && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn the_status_line_follows_the_size_of_the_terminal() {
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
fn ctrl_c_ends_the_job_and_gives_the_terminal_back() {
    let terminal = Terminal::new(100, 20);
    terminal.enter("$rt run --live --no-save -i 0.1 -- sleep 60; echo done=$?");
    terminal.wait_for(|screen| is_status(last_line(screen)));
    terminal.keys(&["C-c"]);
    let screen = terminal.wait_for(|screen| screen.contains("done=130"));
    assert!(screen.contains("ended by signal 2 (SIGINT)") && !screen.contains(" 0:00:"), "{screen}");
}

#[test]
fn ctrl_z_and_fg_work_as_without_us_and_the_line_is_away_meanwhile() {
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

/// What a full-screen program shows: at its start, after a key, and after it has ended.
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
fn programs_that_use_the_whole_screen_look_as_without_us() {
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
        // The line is there before the program takes the screen. It then draws anew, as after a change of size, and has
        // another message on its last line.
        let late = format!("sh -c 'sleep 1.5; exec {program}'");
        let screens = full_screen("$rt run --live --no-save -i 0.1 -- ", &late, &keys, &quit);
        for (screen, bare) in screens.iter().zip(&bare) {
            let but_last = |screen: &str| screen.lines().take(23).map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(but_last(screen), but_last(bare), "late {program} --live");
            assert!(!screen.contains(" 0:00:"), "late {program}: the line is gone\n{screen}");
        }
    }
}

#[test]
fn attaching_shows_the_line_too_and_ctrl_c_leaves_the_process_alone() {
    let terminal = Terminal::new(100, 20);
    terminal.enter("sleep 60 & $rt attach --live --no-save -i 0.1 $!; echo done=$?");
    terminal.wait_for(|screen| is_status(last_line(screen)));
    terminal.keys(&["C-c"]);
    let screen = terminal.wait_for(|screen| screen.contains("done=0"));
    assert!(screen.contains("stopped following after"), "{screen}");
    terminal.enter("jobs; kill %1");
    terminal.wait_for(|screen| screen.contains("Running") && screen.contains("sleep 60 &"));
}

#[test]
fn where_no_shell_could_continue_us_ctrl_z_stops_nobody() {
    let terminal = Terminal::new(100, 20);
    // `script` makes a session whose leader has no parent in it, as `ssh -t host resource-tracker …` does.
    terminal.enter(&format!(
        "script -qc \"$rt run --live --no-save -i 0.1 -- sh -c '{WAIT}'\" /dev/null; echo done=$?"
    ));
    terminal.wait_for(|screen| is_status(last_line(screen)));
    terminal.keys(&["C-z"]);
    terminal.wait_for(|screen| screen.contains("^Z"));
    terminal.go_on();
    terminal.wait_for(|screen| screen.contains("done=0"));
}
