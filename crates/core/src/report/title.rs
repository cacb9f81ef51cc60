//! The title of the page: the given title, the name of the job, the script, the command or the process id.

use std::path::Path;

use super::Context;
use crate::store::recording::Head;

/// Longest title in characters. The full command is among the facts.
const TITLE_LENGTH: usize = 120;

pub(super) fn title(head: &Head, context: &Context) -> String {
    let run = head.run.as_ref();
    let given = context.title.clone().or_else(|| run?.job.clone());
    let command = run.and_then(|run| run.command.as_ref());
    let script = || command.and_then(|words| script(words));
    let named = given.or_else(script).or_else(|| command.map(|words| words.join(" ")));
    let name = named
        .filter(|name| !name.trim().is_empty())
        .unwrap_or_else(|| format!("Process {}", head.metadata.pid));
    if name.chars().count() > TITLE_LENGTH {
        name.chars().take(TITLE_LENGTH - 1).chain(['…']).collect()
    } else {
        name
    }
}

fn file_name(path: &str) -> Option<String> {
    Some(Path::new(path).file_name()?.to_string_lossy().into_owned())
}

/// The name of the script that Python or R runs, or `Notebook`; `None` for other programs, code, modules and prompts.
fn script(words: &[String]) -> Option<String> {
    let (program, arguments) = words.split_first()?;
    let program = file_name(program)?;
    if program == "R" || program == "Rscript" {
        let file = arguments.iter().find_map(|word| word.strip_prefix("--file="));
        // Rscript runs R with `--file`; before that, its own first argument is the script.
        let mut options = arguments.iter().take_while(|word| word.starts_with('-'));
        let is_script = program == "Rscript" && !options.any(|option| option == "-e");
        let first = || arguments.iter().find(|word| !word.starts_with('-')).filter(|_| is_script);
        // `-` is the standard input.
        return file_name(file.or_else(|| first().map(String::as_str)).filter(|file| *file != "-")?);
    }
    if !["python", "pypy"].iter().any(|python| program.starts_with(python)) {
        return None;
    }
    let mut arguments = arguments.iter();
    while let Some(word) = arguments.next() {
        match word.as_str() {
            "-W" | "-X" | "--check-hash-based-pycs" => drop(arguments.next()),
            script if !script.starts_with('-') => return file_name(script),
            long if long.starts_with("--") => {}
            "-m" => {
                // The kernel of a notebook. Jupyter tells its name, other programs do not.
                let is_kernel = arguments.next().is_some_and(|module| module.starts_with("ipykernel"));
                return is_kernel.then(|| "Notebook".to_owned());
            }
            // `-c` and `-m` end the options of Python, also behind other letters, as in `-uc`.
            short if short.ends_with(['c', 'm']) || short == "-" => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script_of(line: &str) -> Option<String> {
        script(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn script_of_python_or_r_is_found_behind_options() {
        for line in [
            "python train.py --epochs 3",
            "/usr/bin/python3.11 -u -W ignore -Xdev /srv/jobs/train.py -c other.cfg",
            "python3 -X dev --check-hash-based-pycs never train.py",
            "pypy3 train.py",
        ] {
            assert_eq!(script_of(line).as_deref(), Some("train.py"), "{line}");
        }
        let kernel = "/venv/bin/python -Xfrozen_modules=off -m ipykernel_launcher -f /tmp/kernel-1.json";
        assert_eq!(script_of(kernel).as_deref(), Some("Notebook"));
        for line in
            ["Rscript --vanilla a/fit.R -e", "/usr/lib/R/bin/exec/R --no-echo --file=a/fit.R --args 3"]
        {
            assert_eq!(script_of(line).as_deref(), Some("fit.R"), "{line}");
        }
    }

    #[test]
    fn command_without_a_script_has_none() {
        for line in [
            "python -c x.py y.py",
            "python -um pkg.train data.csv",
            "python -",
            "python3",
            "R --no-save data",
            "Rscript -e sum(1/2)",
            "/usr/lib/R/bin/exec/R --no-echo --file=-",
            "make -j8",
            "pythagoras a.py",
        ] {
            assert_eq!(script_of(line), None, "{line}");
        }
    }
}
