//! The name of a program, from the command line of a process.
//!
//! In:  `/proc/[pid]/cmdline`. Out: `gzip`, `python train.py`, `java app.jar`; no other arguments, which may be secret.

/// Programs that run a script.
const INTERPRETERS: [&str; 17] = [
    "R", "Rscript", "bash", "dash", "fish", "java", "julia", "ksh", "lua", "node", "perl", "php", "pypy",
    "python", "ruby", "sh", "zsh",
];

/// Options of interpreters whose value is the next word.
const WITH_VALUE: [&str; 6] = ["-W", "-X", "-cp", "-classpath", "--class-path", "-o"];

/// Longest name, in characters.
const MOST_CHARS: usize = 60;

/// `None` for a process without a command line, such as a zombie.
pub fn program_name(cmdline: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(cmdline);
    let mut words: Vec<&str> = text.trim_end_matches('\0').split('\0').collect();
    if let [title] = words[..] {
        // A process that sets its title leaves one text with blanks.
        words = title.split(' ').take(1).collect();
    }
    let (first, arguments) = words.split_first()?;
    let executable = base_name(first).trim_start_matches('-');
    let kind = executable.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    let script = INTERPRETERS.contains(&kind).then(|| script(arguments)).flatten();
    let name = script.map_or_else(|| executable.to_owned(), |script| format!("{executable} {script}"));
    let name: String = name.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect();
    Some(name.chars().take(MOST_CHARS).collect()).filter(|name: &String| !name.is_empty())
}

fn script(arguments: &[&str]) -> Option<String> {
    let mut arguments = arguments.iter();
    loop {
        let word = *arguments.next()?;
        match word {
            "-m" => return Some(format!("-m {}", arguments.next()?)),
            "-jar" => return arguments.next().map(|file| base_name(file).to_owned()),
            "-c" | "-e" => return Some(word.to_owned()),
            "--args" => return None,
            _ if WITH_VALUE.contains(&word) => {
                arguments.next();
            }
            _ => match word.strip_prefix("--file=") {
                Some(file) => return Some(base_name(file).to_owned()),
                None if word.starts_with('-') => {}
                None => return Some(base_name(word).to_owned()),
            },
        }
    }
}

fn base_name(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_the_executable_and_the_script_of_an_interpreter() {
        for (command, name) in [
            ("/usr/bin/gzip\0-9\0secret.txt", "gzip"),
            ("python\0train.py\0--token=abc", "python train.py"),
            ("/usr/bin/python3.11\0-W\0ignore\0-u\0/home/a/train.py", "python3.11 train.py"),
            ("python3\0-m\0http.server\08000", "python3 -m http.server"),
            ("python3\0-c\0print('secret')", "python3 -c"),
            ("/usr/lib/R/bin/exec/R\0--no-echo\0--file=fit.R\0--args\0secret", "R fit.R"),
            ("R\0--args\0secret", "R"),
            ("java\0-Xmx1g\0-cp\0a.jar:b.jar\0org.Main", "java org.Main"),
            ("java\0-jar\0/opt/app.jar", "java app.jar"),
            ("-bash", "bash"),
            ("sh\0/opt/run.sh", "sh run.sh"),
            ("postgres: writer process   ", "postgres:"),
            ("/opt/a\nb", "a?b"),
        ] {
            assert_eq!(program_name(command.as_bytes()).as_deref(), Some(name), "{command:?}");
        }
        assert_eq!(program_name(b""), None);
        assert_eq!(program_name(b"\0\0"), None);
        assert_eq!(program_name(&[b'x'; 500]).map(|name| name.len()), Some(MOST_CHARS));
    }
}
