//! Requests to send: their commands, and what of their headers a record needs.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::frames::JSON;
use crate::json::{number, Reader};

pub const ONEWAY: i64 = 2;

/// What of SendMessageRequestHeaderV2 a record needs.
#[derive(Default)]
pub struct Header {
    pub topic: Arc<str>,
    pub queue_id: i32,
    pub sys_flag: i32,
    pub born_timestamp: i64,
    pub flag: i32,
    pub properties: String,
    pub reconsume_times: i32,
    pub is_batch: bool,
}

/// A send request; what it lacks of a RemotingCommand is decoded when somebody asks for it.
#[pyclass(frozen)]
pub struct SendCommand {
    #[pyo3(get)]
    code: i64,
    #[pyo3(get)]
    pub flag: i64,
    #[pyo3(get)]
    pub opaque: i64,
    #[pyo3(get)]
    head: Py<PyBytes>,
    #[pyo3(get)]
    pub body: Py<PyBytes>,
    pub header: Header,
}

#[pymethods]
impl SendCommand {
    #[classattr]
    #[pyo3(name = "serialize_type")]
    const FORM: u8 = JSON;

    fn __getattr__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let decoder = py.import("orbitmq.wire.command")?;
        decoder.call_method1("decode_command", (0, &self.head, &self.body))?.getattr(name)
    }
}

/// The command of a JSON header, if it is a send, and everything in it as it usually is. `topic` is
/// that of the one before, most often the same.
pub fn decode(py: Python, topic: &mut Arc<str>, head: &[u8], body: &[u8]) -> Option<SendCommand> {
    if !head.starts_with(b"{\"code\":310,") && !head.starts_with(b"{\"code\":320,") {
        return None;
    }
    let (mut header, mut seen) = (Header::default(), 0_u32); // a bit a letter, and one for all
    let [mut code, mut flag, mut opaque, mut version] = [None; 4];
    let mut reader = Reader::new(std::str::from_utf8(head).ok()?);
    reader.object(|reader, name| {
        let number = match name {
            "extFields" if seen == 0 => {
                seen = 1 << 31;
                return reader.object(|reader, name| {
                    let text = reader.text()?;
                    let [letter @ b'a'..=b'n'] = *name.as_bytes() else { return Some(()) };
                    let bit = 1 << (letter - b'a');
                    seen = (seen & bit == 0).then_some(seen | bit)?;
                    set(&mut header, topic, letter, &text)
                });
            }
            "language" | "serializeTypeCurrentRPC" => return reader.text().map(drop),
            "code" => &mut code,
            "flag" => &mut flag,
            "opaque" => &mut opaque,
            "version" => &mut version,
            _ => return None,
        };
        number.replace(reader.number()?).is_none().then_some(())
    })?;
    let required = 1 << 31 | 0xFF; // "a" to "h" must be there
    (reader.is_at_end() && seen & required == required).then_some(SendCommand {
        code: code?,
        flag: flag.unwrap_or(0),
        opaque: opaque.unwrap_or(0),
        head: PyBytes::new(py, head).unbind(),
        body: PyBytes::new(py, body).unbind(),
        header,
    })
}

/// Takes over a field, if it is what its type says.
fn set(header: &mut Header, topic: &mut Arc<str>, letter: u8, text: &str) -> Option<()> {
    let int = || i32::try_from(number(text)?).ok();
    let truth = || if text == "true" { Some(true) } else { (text == "false").then_some(false) };
    match letter {
        b'b' if **topic == *text => header.topic = topic.clone(),
        b'b' => {
            *topic = Arc::from(text);
            header.topic = topic.clone();
        }
        b'd' | b'l' => _ = int()?,
        b'e' => header.queue_id = int()?,
        b'f' => header.sys_flag = int()?,
        b'g' => header.born_timestamp = number(text)?,
        b'h' => header.flag = int()?,
        b'i' => text.clone_into(&mut header.properties),
        b'j' => header.reconsume_times = int()?,
        b'k' => _ = truth()?,
        b'm' => header.is_batch = truth()?,
        _ => {}
    }
    Some(())
}
