//! The command line as it is stored: without secrets, and of limited length.
//!
//! In:  the words of a command line. Out: the same words; `***` replaces the secret parts, and long words are cut.
//!
//! Recordings and reports are passed on to others. These parts are secret; `docs/privacy.md` has the same list:
//!
//! * the value of an option or variable whose name ends with one of [`SECRET_NAMES`]: `--db-password x`, `API_TOKEN=x`;
//! * the password of a URL: `postgres://user:x@host/`;
//! * the rest of a header `Authorization:`, and of `Bearer` or `Basic`;
//! * keys of well-known services, by their prefixes ([`SECRET_PREFIXES`]).
//!
//! The same holds within a word that contains blanks, such as the script of `sh -c`.

/// Compared without case, `-` and `_`.
const SECRET_NAMES: [&str; 11] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "secretkey",
    "privatekey",
    "credential",
    "credentials",
];
const SECRET_PREFIXES: [&str; 9] =
    ["ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "hf_", "sk-", "xoxb-", "xoxp-"];
const HIDDEN: &str = "***";
/// A longer word is cut.
const WORD_MAX_BYTES: usize = 4096;
/// Further words are left out.
const WORDS_MAX: usize = 1000;

/// What of a command line is stored.
pub fn stored(words: &[String]) -> Vec<String> {
    let left_out = words.len().saturating_sub(WORDS_MAX);
    let mut hides_next = false;
    let is_r = words.first().is_some_and(|program| program == "R" || program.ends_with("/R"));
    // The launcher of R passes blanks to the interpreter as `~+~`.
    let plain = |word: &String| if is_r { word.replace("~+~", " ") } else { word.clone() };
    let mut stored: Vec<String> =
        words.iter().take(WORDS_MAX).map(|word| cut(&redact(&plain(word), &mut hides_next))).collect();
    if left_out > 0 {
        stored.push(format!("… {left_out} more"));
    }
    stored
}

fn cut(word: &str) -> String {
    if word.len() <= WORD_MAX_BYTES {
        return word.to_owned();
    }
    let end = word.floor_char_boundary(WORD_MAX_BYTES);
    format!("{}… {} more bytes", word.get(..end).unwrap_or_default(), word.len() - end)
}

/// A word, or a text of several words, without secrets. `hides_next` says that the word before announced a secret.
fn redact(text: &str, hides_next: &mut bool) -> String {
    text.split_inclusive(char::is_whitespace).map(|piece| redact_piece(piece, hides_next)).collect()
}

fn redact_piece(piece: &str, hides_next: &mut bool) -> String {
    let word = piece.trim_end();
    let space = piece.get(word.len()..).unwrap_or_default();
    let bare = word.trim_matches(['"', '\'', ';']);
    if bare.is_empty() {
        return piece.to_owned();
    }
    let is_scheme = ["bearer", "basic"].iter().any(|scheme| bare.eq_ignore_ascii_case(scheme));
    let was_announced = std::mem::replace(hides_next, is_scheme || announces_secret(bare));
    if was_announced && !is_scheme {
        return format!("{HIDDEN}{space}");
    }
    match word.split_once('=') {
        Some((name, value)) if is_secret_name(name) && !value.is_empty() => format!("{name}={HIDDEN}{space}"),
        Some((name, value)) => format!("{name}={}{space}", redact_value(value)),
        None => format!("{}{space}", redact_value(word)),
    }
}

/// Whether the next word is secret.
fn announces_secret(word: &str) -> bool {
    let is_header = word.to_ascii_lowercase().ends_with("authorization:");
    is_header || (word.starts_with("--") && !word.contains('=') && is_secret_name(word))
}

fn is_secret_name(name: &str) -> bool {
    let plain: String = name.chars().filter(|letter| !matches!(letter, '-' | '_')).collect();
    let plain = plain.to_ascii_lowercase();
    SECRET_NAMES.iter().any(|secret| plain.ends_with(secret))
}

/// A word without the password of a URL, and without well-known keys.
fn redact_value(value: &str) -> String {
    let bare = value.trim_start_matches(['"', '\'']);
    if SECRET_PREFIXES.iter().any(|prefix| bare.starts_with(prefix)) {
        return HIDDEN.to_owned();
    }
    let Some((scheme, rest)) = value.split_once("://") else { return value.to_owned() };
    let authority_end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(authority_end);
    match authority.rsplit_once('@').and_then(|(user, host)| Some((user.split_once(':')?.0, host))) {
        Some((user, host)) => format!("{scheme}://{user}:{HIDDEN}@{host}{path}"),
        None => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(words: &[&str]) -> String {
        stored(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).join(" ")
    }

    #[test]
    fn values_of_secret_options_and_variables_are_hidden() {
        assert_eq!(line(&["train", "--password", "x1", "--epochs", "3"]), "train --password *** --epochs 3");
        assert_eq!(line(&["train", "--db-password=x1"]), "train --db-password=***");
        assert_eq!(line(&["env", "AWS_SECRET_ACCESS_KEY=x1", "make"]), "env AWS_SECRET_ACCESS_KEY=*** make");
        assert_eq!(
            line(&["sh", "-c", "export API_TOKEN=x1; ./run --api-key x2 fast"]),
            "sh -c export API_TOKEN=*** ./run --api-key *** fast"
        );
        assert_eq!(
            line(&["train", "--tokenizer", "a", "--max-tokens=9"]),
            "train --tokenizer a --max-tokens=9"
        );
    }

    #[test]
    fn passwords_of_urls_headers_and_well_known_keys_are_hidden() {
        assert_eq!(line(&["psql", "postgres://joe:x1@db:5432/a"]), "psql postgres://joe:***@db:5432/a");
        assert_eq!(line(&["load", "--url=https://u:p@ss@h/x"]), "load --url=https://u:***@h/x");
        assert_eq!(line(&["get", "https://host/a:b@c"]), "get https://host/a:b@c");
        assert_eq!(
            line(&["curl", "-H", "Authorization: Bearer x1", "url"]),
            "curl -H Authorization: Bearer *** url"
        );
        assert_eq!(line(&["curl", "-H", "Authorization: x1"]), "curl -H Authorization: ***");
        assert_eq!(line(&["push", "ghp_abc", "--key=hf_abc"]), "push *** --key=***");
    }

    #[test]
    fn blanks_in_arguments_of_r_are_decoded_and_secrets_there_hidden() {
        assert_eq!(
            line(&["/usr/lib/R/bin/exec/R", "-e", "f(~+~1~+~)~+~#~+~--password~+~x1", "--file=my~+~fit.R"]),
            "/usr/lib/R/bin/exec/R -e f( 1 ) # --password *** --file=my fit.R"
        );
        assert_eq!(line(&["sh", "a~+~b"]), "sh a~+~b");
    }

    #[test]
    fn other_words_are_unchanged_and_long_lines_are_cut() {
        let plain = ["python", "train.py", "--epochs=3", "a b\tc", "", "x=1", "--", "s3://bucket/key"];
        assert_eq!(stored(&plain.map(str::to_owned)), plain);
        let long = stored(&vec!["ä".repeat(3000); 2000]);
        assert_eq!((long.len(), long[1000].as_str()), (1001, "… 1000 more"));
        assert!(
            long[0].len() < WORD_MAX_BYTES + 40 && long[0].ends_with("… 1904 more bytes"),
            "{}",
            &long[0][4000..]
        );
    }

    proptest! {
        /// No word is lost, whatever it contains.
        #[test]
        fn any_words_are_stored(words in proptest::collection::vec("\\PC{0,20}", 0..8)) {
            prop_assert_eq!(stored(&words).len(), words.len());
        }
    }
}
