//! Text of the run inside HTML: shown as it is, never taken for markup.
//!
//! In:  any string. Out: [`Text`], which displays it so that it is safe between tags and in quoted attributes.

use std::fmt::{self, Display, Formatter, Write as _};

/// A string that came from outside.
pub(super) struct Text<'a>(pub(super) &'a str);

impl Display for Text<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '&' => out.write_str("&amp;")?,
                '<' => out.write_str("&lt;")?,
                '>' => out.write_str("&gt;")?,
                '"' => out.write_str("&quot;")?,
                '\'' => out.write_str("&#39;")?,
                '\n' | '\t' => out.write_char(letter)?,
                // HTML has no way to write these; a reader should see that something is there.
                letter if letter.is_control() || is_noncharacter(letter) => out.write_char('\u{fffd}')?,
                letter => out.write_char(letter)?,
            }
        }
        Ok(())
    }
}

/// Code points that Unicode reserves for internal use, and HTML forbids.
fn is_noncharacter(letter: char) -> bool {
    let code = u32::from(letter);
    (0xfdd0..=0xfdef).contains(&code) || code & 0xfffe == 0xfffe
}

/// The same as a string.
pub(super) fn text(raw: &str) -> String {
    Text(raw).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn markup_and_quotes_are_text() {
        assert_eq!(
            text("<script>alert(1)</script>\"'&"),
            "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;"
        );
        assert_eq!(text("a\0b\u{1b}[31m\u{fffe}\tz"), "a\u{fffd}b\u{fffd}[31m\u{fffd}\tz");
    }

    proptest! {
        /// Whatever the run is called, it opens no tag, ends no attribute and starts no entity of its own.
        #[test]
        fn nothing_escapes(raw in "\\PC{0,40}|[<>&\"'\\x00-\\x1f]{0,20}") {
            let shown = text(&raw);
            prop_assert!(!shown.contains(['<', '>', '"', '\'']));
            let entities = ["amp;", "lt;", "gt;", "quot;", "#39;"];
            for rest in shown.split('&').skip(1) {
                prop_assert!(entities.iter().any(|entity| rest.starts_with(entity)), "{shown}");
            }
        }
    }
}
