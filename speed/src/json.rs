//! The little of JSON that headers of requests need. Whatever is out of the ordinary is `None`, and
//! left to the general decoder. (serde_json was measured: it takes half a microsecond more.)

use std::borrow::Cow;

pub struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    pub fn new(text: &'a str) -> Self {
        Reader { rest: text }
    }

    pub fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Passes over `mark`, if it is what comes next.
    fn take(&mut self, mark: u8) -> Option<()> {
        self.rest = self.rest.get(1..).filter(|_| self.rest.as_bytes()[0] == mark)?;
        Some(())
    }

    /// The members of an object, each given to `member` when its name has been read.
    pub fn object(&mut self, mut member: impl FnMut(&mut Self, &str) -> Option<()>) -> Option<()> {
        self.take(b'{')?;
        loop {
            let name = self.text()?;
            self.take(b':')?;
            member(self, &name)?;
            if self.take(b',').is_none() {
                return self.take(b'}');
            }
        }
    }

    pub fn number(&mut self) -> Option<i64> {
        let is_part = |byte: &u8| byte.is_ascii_digit() || *byte == b'-';
        let (digits, rest) = self.rest.split_at(self.rest.bytes().take_while(is_part).count());
        self.rest = rest;
        number(digits)
    }

    pub fn text(&mut self) -> Option<Cow<'a, str>> {
        self.take(b'"')?;
        let mut text = Cow::Borrowed("");
        loop {
            let is_end = |byte| byte == b'"' || byte == b'\\' || byte < b' ';
            let (plain, rest) = self.rest.split_at(self.rest.bytes().position(is_end)?);
            self.rest = rest;
            text += plain;
            if self.take(b'"').is_some() {
                return Some(text);
            }
            self.take(b'\\')?;
            let escaped = self.escaped()?;
            let owned = text.to_mut();
            owned.reserve(self.rest.len()); // which is enough for all that is escaped
            owned.push(escaped);
        }
    }

    fn escaped(&mut self) -> Option<char> {
        let mark = *self.rest.as_bytes().first()?;
        self.take(mark)?;
        match mark {
            b'"' | b'\\' | b'/' => Some(char::from(mark)),
            b'n' => Some('\n'),
            b't' => Some('\t'),
            b'u' => {
                let (digits, rest) = self.rest.split_at_checked(4)?;
                self.rest = rest;
                let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
                char::from_u32(u32::from_str_radix(digits, 16).ok().filter(|_| is_hex)?)
            }
            _ => None,
        }
    }
}

/// A whole number of 64 bits, written as numbers are.
pub fn number(text: &str) -> Option<i64> {
    let is_plain = match text.strip_prefix('-').unwrap_or(text).as_bytes() {
        [b'0'] => text.len() == 1,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    text.parse().ok().filter(|_| is_plain)
}
