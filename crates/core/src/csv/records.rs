//! The lines of a CSV text, cell by cell.
//!
//! In:  the bytes of a file. Out: cells without their quotes, and how their line ended.
//! Not here: what a cell means, and whether a line is a row of a table (`csv`).

use std::borrow::Cow;

/// One cell as it stands in the file, without its quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field<'a> {
    pub text: Cow<'a, [u8]>,
    pub quoted: bool,
}

/// How a line ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineEnd {
    /// By a line feed, with or without a carriage return before it.
    Newline,
    /// By the end of the text.
    Input,
    /// By the end of the text inside quotes.
    OpenQuote,
}

/// The lines of a CSV text, cell by cell.
#[derive(Clone, Debug)]
pub(super) struct Records<'a> {
    rest: &'a [u8],
    /// Line that `rest` starts in, the first being 1.
    next_line: usize,
    line: usize,
}

impl<'a> Records<'a> {
    /// From the start of `text`, a byte order mark aside.
    #[must_use]
    pub fn new(text: &'a [u8]) -> Self {
        Self { rest: text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text), next_line: 1, line: 1 }
    }

    /// The line of the file that the cells read last start in, the first being 1.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }

    /// The cells of the next line that has any, into `fields`; `None` when there is none.
    pub fn read(&mut self, fields: &mut Vec<Field<'a>>) -> Option<LineEnd> {
        fields.clear();
        loop {
            if let Some(rest) = self.rest.strip_prefix(b"\n").or_else(|| self.rest.strip_prefix(b"\r\n")) {
                self.rest = rest;
                self.next_line += 1;
            } else if self.rest.is_empty() {
                return None;
            } else {
                break;
            }
        }
        self.line = self.next_line;
        loop {
            let (field, closed) = self.field();
            fields.push(field);
            if !closed {
                return Some(LineEnd::OpenQuote);
            }
            match self.rest {
                [b',', rest @ ..] => self.rest = rest,
                [b'\n', rest @ ..] | [b'\r', b'\n', rest @ ..] => {
                    self.rest = rest;
                    self.next_line += 1;
                    return Some(LineEnd::Newline);
                }
                _ => return Some(LineEnd::Input),
            }
        }
    }

    /// Takes one cell; `false` when its quotes were never closed.
    fn field(&mut self) -> (Field<'a>, bool) {
        let Some(mut rest) = self.rest.strip_prefix(b"\"") else {
            return (Field { text: Cow::Borrowed(self.take_bare()), quoted: false }, true);
        };
        let mut text = Cow::Borrowed(&b""[..]);
        loop {
            let Some(quote) = rest.iter().position(|byte| *byte == b'"') else {
                self.rest = &[];
                append(&mut text, rest);
                return (Field { text, quoted: true }, false);
            };
            let (part, after) = rest.split_at(quote);
            self.next_line += part.split(|byte| *byte == b'\n').count() - 1;
            append(&mut text, part);
            let Some(more) = after.strip_prefix(b"\"\"") else {
                self.rest = after.get(1..).unwrap_or_default();
                // Text behind a closing quote is no CSV; kept, so that it is seen and not lost.
                append(&mut text, self.take_bare());
                return (Field { text, quoted: true }, true);
            };
            append(&mut text, b"\"");
            rest = more;
        }
    }

    /// The bytes up to the next separator, which stays.
    fn take_bare(&mut self) -> &'a [u8] {
        let end = self.rest.iter().position(|byte| matches!(byte, b',' | b'\n')).unwrap_or(self.rest.len());
        let carriage_return = self.rest.get(end) == Some(&b'\n') && end > 0 && self.rest[end - 1] == b'\r';
        let (bare, rest) = self.rest.split_at(end - usize::from(carriage_return));
        self.rest = rest;
        bare
    }
}

/// Borrows as long as there is one piece only.
fn append<'a>(text: &mut Cow<'a, [u8]>, part: &'a [u8]) {
    if text.is_empty() {
        *text = Cow::Borrowed(part);
    } else if !part.is_empty() {
        text.to_mut().extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cells_are_given_to_those_who_want_them() {
        let mut records = Records::new(b"name,note\n\"a \"\"b\"\"\n,c\",x\n");
        let mut fields = Vec::new();
        records.read(&mut fields);
        assert_eq!(records.read(&mut fields), Some(LineEnd::Newline));
        assert_eq!((&*fields[0].text, fields[0].quoted), (&b"a \"b\"\n,c"[..], true));
        assert_eq!((&*fields[1].text, fields[1].quoted), (&b"x"[..], false));
        assert_eq!((records.read(&mut fields), records.line()), (None, 2));
    }
}
