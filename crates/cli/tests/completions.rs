//! Completion scripts, used by the shells themselves.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::process::Command;

use support::{BIN, open_folder, text};

/// Writes the script of a shell to a file; returns what the shell prints for a program that uses it as `$1`.
fn completed(shell: &str, options: &[&str], program: &str) -> String {
    let home = open_folder();
    let script = home.path().join("script");
    let output = Command::new(BIN).args(["completions", shell]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    fs::write(&script, output.stdout).unwrap();
    let mut command = Command::new(shell);
    command.args(options).arg("-c").arg(program).env("HOME", home.path()).env("SCRIPT", script);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn bash_completes_options_of_subcommands_and_no_hidden_command() {
    let complete = |words: &str| {
        let program = format!(
            "source $SCRIPT; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _resource__tracker resource-tracker ${{COMP_WORDS[-1]}} ${{COMP_WORDS[-2]}}; echo ${{COMPREPLY[@]}}"
        );
        completed("bash", &["--norc"], &program)
    };
    assert_eq!(complete("resource-tracker run --inter"), "--interval\n");
    assert_eq!(complete("resource-tracker catalog up"), "update\n");
    assert!(complete("resource-tracker s").contains("servers"));
    assert!(!complete("resource-tracker s").contains("sidecar"));
}

#[test]
fn fish_completes_options_of_subcommands_and_no_hidden_command() {
    let complete =
        |line: &str| completed("fish", &["--no-config"], &format!("source $SCRIPT; complete -C '{line}'"));
    assert!(complete("resource-tracker run --inter").starts_with("--interval"));
    assert!(complete("resource-tracker s").contains("servers"));
    assert!(!complete("resource-tracker s").contains("sidecar"));
}

#[test]
fn zsh_completes_options_of_subcommands_and_no_hidden_command() {
    // A terminal of its own, in which Tab is typed.
    let complete = |line: &str| {
        let program = format!(
            "zmodload zsh/zpty; zpty z TERM=dumb zsh -f -i
             zpty -w z 'PS1=; LISTMAX=999; autoload -Uz compinit; compinit -u -D; source $SCRIPT; print loaded'
             zpty -r z seen '*loaded*loaded*'
             zpty -w -n z $'{line}\\t\\t'
             sleep 2; zpty -w z ''; zpty -w z 'print en''ded'
             zpty -r z seen '*ended*'; print -r -- $seen"
        );
        completed("zsh", &["-f"], &program)
    };
    assert!(complete("resource-tracker run --inter").contains("--interval"));
    let commands = complete("resource-tracker s");
    assert!(commands.contains("servers") && !commands.contains("sidecar"), "{commands}");
}
