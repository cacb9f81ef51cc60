//! The address of a receiver.
//!
//! In:  a URL of the user, which may have a user and a password. Out: the URL without them, for requests and messages, and the
//! header that replaces them.

/// An `http://` or `https://` URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Without user and password, otherwise as given.
    pub url: String,
    pub authorization: Option<String>,
}

impl Address {
    pub fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        if !matches!(scheme, "http" | "https") || !rest.bytes().all(|byte| byte.is_ascii_graphic()) {
            return None;
        }
        // A fragment is never sent.
        let (rest, _) = rest.split_once('#').unwrap_or((rest, ""));
        let host_end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(host_end);
        let (user, host) =
            authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
        if host.is_empty() || host.starts_with(':') {
            return None;
        }
        let authorization =
            user.map(|user| format!("Basic {}", base64(&percent_decoded(user), *b"+/", true)));
        Some(Self { url: format!("{scheme}://{host}{path}"), authorization })
    }

    /// The address with `path` at the end of its path. The query stays behind it.
    pub fn join(self, path: &str) -> Self {
        let shown = self.shown();
        let query = &self.url[shown.len()..];
        Self { url: format!("{}{path}{query}", shown.trim_end_matches('/')), ..self }
    }

    /// The address for messages. A query may have a key.
    pub fn shown(&self) -> &str {
        self.url.split_once('?').map_or(self.url.as_str(), |(shown, _)| shown)
    }
}

/// Base64 with these two last characters of the alphabet.
pub fn base64(bytes: &[u8], last: [u8; 2], is_padded: bool) -> String {
    let alphabet: Vec<u8> = (b'A'..=b'Z').chain(b'a'..=b'z').chain(b'0'..=b'9').chain(last).collect();
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().fold(0, |bits, byte| bits << 8 | usize::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = alphabet.get(bits >> (18 - 6 * place) & 63).copied().unwrap_or_default();
            match place <= chunk.len() {
                true => text.push(char::from(digit)),
                false if is_padded => text.push('='),
                false => {}
            }
        }
    }
    text
}

/// `%41` is `A`; what is not an escape stays.
pub fn percent_decoded(text: &str) -> Vec<u8> {
    let mut decoded = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = after.get(..2).filter(|_| *first == b'%');
        let digits = escaped.and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        decoded.push(byte.unwrap_or(*first));
        rest = after.get(if byte.is_some() { 2 } else { 0 }..).unwrap_or_default();
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_password_become_a_header() {
        let address = Address::parse("https://ada:pass%3Aw0rd@push.example:9091/base/").unwrap();
        assert_eq!(address.url, "https://push.example:9091/base/");
        // From `printf ada:pass:w0rd | base64`.
        assert_eq!(address.authorization.as_deref(), Some("Basic YWRhOnBhc3M6dzByZA=="));
        let plain = Address::parse("http://127.0.0.1:4318").unwrap();
        assert_eq!((plain.join("/v1/metrics").url.as_str()), "http://127.0.0.1:4318/v1/metrics");
    }

    #[test]
    fn query_stays_behind_the_path_and_out_of_messages() {
        for (text, url) in [
            ("http://h/in/?key=a/b#part", "http://h/in/v1/metrics?key=a/b"),
            ("http://h?key=1", "http://h/v1/metrics?key=1"),
            ("http://h//", "http://h/v1/metrics"),
        ] {
            let address = Address::parse(text).unwrap().join("/v1/metrics");
            assert_eq!(address.url, url);
            assert!(!address.shown().contains("key"), "{}", address.shown());
        }
    }

    #[test]
    fn what_is_no_url_is_refused() {
        for text in
            ["", "true", "http://", "ftp://a", "http://:80", "http://a b", "http://a\r\nX: y", "http://ada@"]
        {
            assert_eq!(Address::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn base64_of_all_lengths() {
        let of = |text: &str| base64(text.as_bytes(), *b"-_", false);
        assert_eq!(
            (of(""), of("a"), of("ab"), of("abc")),
            (String::new(), "YQ".into(), "YWI".into(), "YWJj".into())
        );
        assert_eq!(base64(&[0xfb, 0xff], *b"-_", true), "-_8=");
        assert_eq!(percent_decoded("a%20%zz%4"), b"a %zz%4");
    }
}
