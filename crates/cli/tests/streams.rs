//! Pipes, devices and standard streams: data of the job passes through byte for byte, outputs of the tracker never
//! replace a device or a pipe, and a reader that closes its end or stops reading does not affect the job.

mod support;

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::FileTypeExt as _;
use std::process::{Command, Stdio};

use support::{BIN, open_folder, python, run, text, tracker};

#[test]
fn output_of_the_job_passes_through_byte_for_byte() {
    let home = open_folder();
    let bytes: Vec<u8> = (0..=255).cycle().take(1 << 22).collect();
    let file = home.path().join("bytes");
    fs::write(&file, &bytes).unwrap();
    let output = tracker(home.path())
        .args(["run", "-q", "--no-save", "--", "cat"])
        .stdin(File::open(&file).unwrap())
        .output()
        .unwrap();
    assert!(output.stdout == bytes && output.stderr.is_empty());
}

#[test]
fn gigabytes_and_binary_data_pass_through_byte_for_byte() {
    let home = open_folder();
    let path = home.path().join("data");
    let file = File::create(&path).unwrap();
    // Two gigabytes, mostly holes, with blocks of every byte value in between.
    file.set_len(2 << 30).unwrap();
    let block: Vec<u8> = (0..=255_u8).cycle().take(1 << 20).collect();
    for at in [0, 1 << 20, 1 << 30, (2 << 30) - (1 << 20)] {
        std::os::unix::fs::FileExt::write_all_at(&file, &block, at).unwrap();
    }
    let line = format!(
        "'{BIN}' run -q --no-save -- cat < data | cmp - data && '{BIN}' run -q --no-save -- cat data | wc -c"
    );
    let output = Command::new("sh").args(["-c", &line]).current_dir(home.path()).output().unwrap();
    assert_eq!(text(&output), "exit status: 0\n-- stdout --\n2147483648\n\n-- stderr --\n");
}

#[test]
fn device_and_fifo_are_written_to_and_never_replaced() {
    let home = open_folder();
    let device = home.path().join("device");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &device,
        rustix::fs::FileType::CharacterDevice,
        0o666.into(),
        rustix::fs::makedev(1, 3),
    )
    .unwrap();
    let link = home.path().join("link");
    std::os::unix::fs::symlink(&device, &link).unwrap();
    for path in [&device, &link] {
        for option in ["-o", "--csv"] {
            let output = run(home.path(), &["-q", option, path.to_str().unwrap()], &["true"]);
            assert!(output.status.success(), "{}", text(&output));
            assert!(fs::metadata(&device).unwrap().file_type().is_char_device());
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        }
    }
    let fifo = home.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let mut reader = Command::new("cat").arg(&fifo).stdout(Stdio::piped()).spawn().unwrap();
    assert!(run(home.path(), &["-q", "-o", fifo.to_str().unwrap()], &["true"]).status.success());
    let mut bytes = Vec::new();
    reader.stdout.take().unwrap().read_to_end(&mut bytes).unwrap();
    reader.wait().unwrap();
    assert!(bytes.starts_with(&[0x1f, 0x8b]) && fs::metadata(&fifo).unwrap().file_type().is_fifo());
}

#[test]
fn recording_can_go_to_standard_output() {
    let home = open_folder();
    for name in ["-", "/dev/stdout", "/proc/self/fd/1"] {
        let piped = run(home.path(), &["-q", "-o", name], &["echo", "job"]).stdout;
        assert!(piped.starts_with(b"job\n\x1f\x8b"), "{name}");
        let path = home.path().join("sent-to");
        let file = File::create(&path).unwrap();
        let mut command = tracker(home.path());
        command.args(["run", "-q", "-o", name, "--", "echo", "job"]).stdout(file);
        assert!(command.status().unwrap().success());
        assert!(fs::read(&path).unwrap().starts_with(b"job\n\x1f\x8b"), "{name}");
    }
}

#[test]
fn closed_pipe_is_not_an_error() {
    let home = open_folder();
    for line in
        ["run -q --no-save -- yes", "list", "--help", "servers --cpu 1 --memory 1 -n 500", "system -i 0.001"]
    {
        let line = format!("'{BIN}' {line} | head -c 1 | wc -c");
        let output = Command::new("sh")
            .args(["-c", &line])
            // Journals of other tests in shared folders would be recovered and listed.
            .env("HOME", home.path())
            .env("XDG_DATA_HOME", home.path().join("data"))
            .env("TMPDIR", home.path())
            .env("RESOURCE_TRACKER_OFFLINE", "1")
            .output()
            .unwrap();
        assert_eq!(text(&output), "exit status: 0\n-- stdout --\n1\n\n-- stderr --\n", "{line}");
    }
    let line = format!("'{BIN}' run -q --no-save -- yes | head -c 1 > /dev/null; echo ${{PIPESTATUS[0]}}");
    let output = Command::new("bash").args(["-c", &line]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "141\n", "ended by SIGPIPE, as without the tracker");
}

#[test]
fn reader_of_rows_that_stops_reading_does_not_delay_the_end_of_the_job() {
    let home = open_folder();
    let fifo = home.path().join("rows");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    // The pipe takes one page, which is a few rows.
    let reads_nothing = "import fcntl, sys, time
with open(sys.argv[1]) as rows:
    fcntl.fcntl(rows, 1031, 4096)  # F_SETPIPE_SZ
    time.sleep(60)";
    let mut reader = Command::new(python()).args(["-c", reads_nothing]).arg(&fifo).spawn().unwrap();
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "20", BIN, "run", "--no-save", "--offline", "-i", "0.001", "--csv"]);
    let output = command.arg(&fifo).args(["--", "sleep", "2"]).env("HOME", home.path()).output().unwrap();
    reader.kill().unwrap();
    reader.wait().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let notes = String::from_utf8_lossy(&output.stderr).matches("the reader stopped reading").count();
    assert_eq!(notes, 1, "{}", text(&output));
}
