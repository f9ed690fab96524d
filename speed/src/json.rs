//! The little of JSON that headers of requests need. Whatever is out of the ordinary is `None`, and
//! left to the general decoder.

use std::borrow::Cow;

pub enum Value<'a> {
    Text(Cow<'a, str>),
    Number(i64),
}

pub struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    pub fn new(text: &'a str) -> Self {
        Reader { text, at: 0 }
    }

    pub fn is_at_end(&self) -> bool {
        self.at == self.text.len()
    }

    /// Passes over `byte`, if it is what comes next.
    pub fn take(&mut self, byte: u8) -> Option<()> {
        let is_next = self.text.as_bytes().get(self.at) == Some(&byte);
        self.at += usize::from(is_next);
        is_next.then_some(())
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

    pub fn value(&mut self) -> Option<Value<'a>> {
        if self.text.as_bytes().get(self.at) == Some(&b'"') {
            return self.text().map(Value::Text);
        }
        let rest = self.text.get(self.at..)?;
        let digits = rest.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'-').count();
        self.at += digits;
        number(&rest[..digits]).map(Value::Number)
    }

    fn text(&mut self) -> Option<Cow<'a, str>> {
        self.take(b'"')?;
        let rest = self.text.get(self.at..)?;
        let plain = rest.bytes().position(|byte| byte == b'"' || byte == b'\\' || byte < b' ')?;
        if rest.as_bytes()[plain] == b'"' {
            self.at += plain + 1;
            return Some(Cow::Borrowed(&rest[..plain]));
        }
        let mut text = String::with_capacity(rest.len());
        loop {
            let rest = self.text.get(self.at..)?;
            let plain =
                rest.bytes().position(|byte| byte == b'"' || byte == b'\\' || byte < b' ')?;
            text.push_str(&rest[..plain]);
            self.at += plain;
            if self.take(b'"').is_some() {
                return Some(Cow::Owned(text));
            }
            self.take(b'\\')?;
            text.push(self.escaped()?);
        }
    }

    fn escaped(&mut self) -> Option<char> {
        let byte = *self.text.as_bytes().get(self.at)?;
        self.at += 1;
        match byte {
            b'"' | b'\\' | b'/' => Some(char::from(byte)),
            b'n' => Some('\n'),
            b't' => Some('\t'),
            b'u' => {
                let digits = self.text.get(self.at..self.at + 4)?;
                self.at += 4;
                let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
                is_hex
                    .then(|| u32::from_str_radix(digits, 16).ok())
                    .flatten()
                    .and_then(char::from_u32)
            }
            _ => None,
        }
    }
}

/// A whole number of at most 18 digits, written as numbers are.
pub fn number(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_plain = match digits.as_bytes() {
        [b'0'] => text.len() == 1,
        [b'1'..=b'9', rest @ ..] => rest.len() < 18 && rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if is_plain {
        text.parse().ok()
    } else {
        None
    }
}
