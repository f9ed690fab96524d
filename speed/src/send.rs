//! Send requests: from their headers to records and answers.

use std::collections::HashMap;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use crate::json::{number, Reader, Value};
use crate::record::{unit, Record};

const ONEWAY: i64 = 2;
const TRANSACTION_PREPARED: i32 = 4;
const SEPARATOR: u8 = 2;

/// What of a send header a record needs (SendMessageRequestHeaderV2, by its letters).
#[derive(Default)]
pub struct Header {
    topic: Arc<str>,
    queue_id: i32,
    sys_flag: i32,
    born_timestamp: i64,
    flag: i32,
    properties: String,
    reconsume_times: i32,
    batch: bool,
}

/// A send request; what it lacks of a RemotingCommand is decoded when somebody asks for it.
#[pyclass(frozen)]
pub struct SendCommand {
    #[pyo3(get)]
    code: i64,
    #[pyo3(get)]
    opaque: i64,
    #[pyo3(get)]
    flag: i64,
    #[pyo3(get)]
    head: Py<PyBytes>,
    #[pyo3(get)]
    body: Py<PyBytes>,
    fields: Header,
}

#[pymethods]
impl SendCommand {
    fn __getattr__<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let decoder = py.import("orbitmq.wire.command")?;
        decoder.call_method1("decode_command", (0, &self.head, &self.body))?.getattr(name)
    }
}

/// The command of a JSON header, if it is a send, and everything in it as it usually is. `topic` is
/// that of the one before, most often the same.
pub fn decode(
    py: Python<'_>,
    topic: &mut Arc<str>,
    header: &[u8],
    body: &[u8],
) -> Option<SendCommand> {
    if !header.starts_with(b"{\"code\":310,") && !header.starts_with(b"{\"code\":320,") {
        return None;
    }
    let mut numbers = [None; 4]; // code, flag, opaque, version
    let (mut fields, mut seen) = (Header::default(), 0_u32);
    let mut reader = Reader::new(std::str::from_utf8(header).ok()?);
    reader.object(|reader, name| {
        let place = match name {
            "extFields" if seen == 0 => {
                seen = 1 << 31;
                return reader.object(|reader, name| match (name.as_bytes(), reader.value()?) {
                    ([letter @ b'a'..=b'n'], Value::Text(text)) => {
                        let bit = 1 << (letter - b'a');
                        let is_first = seen & bit == 0;
                        seen |= bit;
                        is_first.then_some(())?;
                        set(&mut fields, topic, *letter, &text)
                    }
                    (_, Value::Text(_)) => Some(()),
                    _ => None,
                });
            }
            "code" => 0,
            "flag" => 1,
            "opaque" => 2,
            "version" => 3,
            "language" | "serializeTypeCurrentRPC" => {
                return matches!(reader.value()?, Value::Text(_)).then_some(());
            }
            _ => return None,
        };
        match reader.value()? {
            Value::Number(value) => numbers[place].replace(value).is_none().then_some(()),
            Value::Text(_) => None,
        }
    })?;
    let required = 1 << 31 | 0xFF; // extFields, and of these "a" to "h"
    (reader.is_at_end() && seen & required == required).then_some(SendCommand {
        code: numbers[0]?,
        flag: numbers[1].unwrap_or(0),
        opaque: numbers[2].unwrap_or(0),
        head: PyBytes::new(py, header).unbind(),
        body: PyBytes::new(py, body).unbind(),
        fields,
    })
}

/// Takes over a field, if it is what its type says.
fn set(fields: &mut Header, topic: &mut Arc<str>, letter: u8, text: &str) -> Option<()> {
    let int = || i32::try_from(number(text)?).ok();
    let truth = || if text == "true" { Some(true) } else { (text == "false").then_some(false) };
    match letter {
        b'b' => {
            if **topic != *text {
                *topic = Arc::from(text);
            }
            fields.topic = topic.clone();
        }
        b'd' | b'l' => _ = int()?,
        b'e' => fields.queue_id = int()?,
        b'f' => fields.sys_flag = int()?,
        b'g' => fields.born_timestamp = number(text)?,
        b'h' => fields.flag = int()?,
        b'i' => text.clone_into(&mut fields.properties),
        b'j' => fields.reconsume_times = int()?,
        b'k' => _ = truth()?,
        b'm' => fields.batch = truth()?,
        _ => {}
    }
    Some(())
}

/// Properties as they are stored, and what was found in them.
struct Properties {
    stored: Vec<u8>,
    key: std::ops::Range<usize>,
    tags_code: i32,
}

/// See `SendRules` in `orbitmq/wire/plain_sends.py`.
#[derive(FromPyObject)]
struct Rules<'a>(
    Bound<'a, PyBytes>,
    String,
    usize,
    Vec<String>,
    Bound<'a, PyBytes>,
    String,
    String,
);

impl Rules<'_> {
    /// The properties of a plain message; none for those of others.
    fn read(&self, text: &str) -> Option<Properties> {
        let mut stored = Vec::with_capacity(text.len() + 1 + self.1.len());
        stored.extend(text.as_bytes());
        if stored.last().is_some_and(|last| *last != SEPARATOR) {
            stored.push(SEPARATOR);
        }
        let (key_mark, tags_mark) = (&self.5.as_bytes()[1..], &self.6.as_bytes()[1..]);
        let (mut key, mut tags, mut at) = (0..0, 0..0, 0);
        for pair in stored.split(|byte| *byte == SEPARATOR) {
            let value = |mark: &[u8]| at + mark.len()..at + pair.len();
            if pair.starts_with(key_mark) {
                key = value(key_mark);
            } else if pair.starts_with(tags_mark) {
                tags = value(tags_mark);
            }
            at += pair.len() + 1;
        }
        let is_special = |rest: &[u8]| self.3.iter().any(|mark| rest.starts_with(mark.as_bytes()));
        let is_plain = !key.is_empty()
            && stored[key.clone()].iter().all(u8::is_ascii_alphanumeric)
            && !(0..stored.len())
                .any(|at| stored[at].is_ascii_uppercase() && is_special(&stored[at..]));
        let units = std::str::from_utf8(&stored[tags]).ok()?.encode_utf16();
        let tags_code =
            units.fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
        stored.extend(self.1.as_bytes());
        (is_plain && i16::try_from(stored.len()).is_ok()).then_some(Properties {
            stored,
            key,
            tags_code,
        })
    }
}

/// What a queue gets; see `QueueRun` in `orbitmq/wire/plain_sends.py`.
struct Run<'py> {
    queue: Bound<'py, PyAny>,
    first: i64,
    position: i64,
    size: i64,
    units: Vec<u8>,
    properties: Bound<'py, PyList>,
}

type Encoded<'py> = (Bound<'py, PyBytes>, Bound<'py, PyList>, Bound<'py, PyList>);

/// See `encode_sends` in `orbitmq/wire/plain_sends.py`.
#[pyfunction]
#[pyo3(signature = (noted, first, rules, find_topic, find_queue, store_timestamp, position, limit, /))]
#[allow(clippy::too_many_arguments)]
fn encode_sends<'py>(
    py: Python<'py>,
    noted: &Bound<'py, PyList>,
    first: usize,
    rules: Rules<'py>,
    find_topic: &Bound<'py, PyAny>,
    find_queue: &Bound<'py, PyAny>,
    store_timestamp: i64,
    mut position: i64,
    limit: i64,
) -> PyResult<Encoded<'py>> {
    let mut topics: HashMap<Arc<str>, Option<(i32, i32)>> = HashMap::new();
    let mut runs: Vec<Run> = Vec::new();
    let mut places: HashMap<(Arc<str>, i32), usize> = HashMap::new();
    let (mut records, mut answer) = (Vec::new(), Vec::new());
    let answers = PyList::empty(py);
    for index in first..noted.len() {
        let item = noted.get_item(index)?.cast_into::<PyTuple>()?;
        let command = item.get_borrowed_item(0)?;
        let Ok(command) = command.cast::<SendCommand>() else { break };
        let (command, host) = (command.get(), item.get_item(1)?.cast_into::<PyBytes>()?);
        let (header, body) = (&command.fields, command.body.as_bytes(py));
        let topic = match topics.get(&header.topic) {
            Some(topic) => *topic,
            None => {
                let topic = find_topic.call1((&*header.topic,))?.extract()?;
                topics.insert(header.topic.clone(), topic);
                topic
            }
        };
        let Some((queues, bits)) = topic else { break };
        let is_plain = !header.batch
            && header.sys_flag & TRANSACTION_PREPARED == 0
            && (0..queues).contains(&header.queue_id)
            && body.len() <= rules.2;
        let Some(properties) = rules.read(&header.properties).filter(|_| is_plain) else { break };
        let mut record = Record {
            topic: &header.topic,
            queue_id: header.queue_id,
            body,
            properties: &properties.stored,
            flag: header.flag,
            sys_flag: header.sys_flag | bits,
            born_timestamp: header.born_timestamp,
            born_host: host.as_bytes(),
            store_timestamp,
            store_host: rules.0.as_bytes(),
            reconsume_times: header.reconsume_times,
            queue_offset: 0,
            position,
        };
        let Some(size) = record.size().filter(|size| position + i64::from(*size) <= limit) else {
            break;
        };
        let place = match places.get(&(header.topic.clone(), header.queue_id)) {
            Some(place) => *place,
            None => {
                let (queue, first) =
                    find_queue.call1((&*header.topic, header.queue_id))?.extract()?;
                runs.push(Run {
                    queue,
                    first,
                    position,
                    size: 0,
                    units: Vec::new(),
                    properties: PyList::empty(py),
                });
                places.insert((header.topic.clone(), header.queue_id), runs.len() - 1);
                runs.len() - 1
            }
        };
        let run = &mut runs[place];
        record.queue_offset = run.first + run.properties.len() as i64;
        record.write(&mut records, size);
        run.units.extend(unit(position, size, properties.tags_code.into()));
        run.properties.append(PyBytes::new(py, &properties.stored))?;
        run.size += i64::from(size);
        if command.flag & ONEWAY == 0 {
            let numbers = [position, header.queue_id.into(), record.queue_offset, command.opaque];
            fill(&mut answer, rules.4.as_bytes(), numbers, &properties.stored[properties.key])?;
            answers.append(PyBytes::new(py, &answer))?;
        } else {
            answers.append(py.None())?;
        }
        position += i64::from(size);
    }
    runs.sort_by_key(|run| run.units.last_chunk::<20>().copied());
    let finished = runs.into_iter().map(|run| {
        (run.queue, run.first, run.position, run.size, PyBytes::new(py, &run.units), run.properties)
    });
    Ok((PyBytes::new(py, &records), answers, PyList::new(py, finished.collect::<Vec<_>>())?))
}

/// A frame without a body, whose header is `text` filled with these values in their order.
fn fill(frame: &mut Vec<u8>, text: &[u8], numbers: [i64; 4], key: &[u8]) -> PyResult<()> {
    frame.clear();
    frame.extend([0; 8]);
    let mut numbers = numbers.into_iter();
    let mut parts = text.split(|byte| *byte == b'%');
    frame.extend(parts.next().unwrap_or_default());
    while let Some(part) = parts.next() {
        let rest = match part {
            [b'd', rest @ ..] => {
                decimal(frame, numbers.next().unwrap_or_default());
                rest
            }
            [b'0', b'1', b'6', b'X', rest @ ..] => {
                let number = numbers.next().unwrap_or_default();
                frame.extend(
                    (0..16)
                        .rev()
                        .map(|digit| b"0123456789ABCDEF"[(number >> (4 * digit) & 15) as usize]),
                );
                rest
            }
            [b'b', rest @ ..] => {
                frame.extend(key);
                rest
            }
            [] => {
                frame.push(b'%');
                parts.next().unwrap_or_default()
            }
            _ => return Err(PyValueError::new_err("an answer has a directive that is not known")),
        };
        frame.extend(rest);
    }
    let length = (frame.len() - 8) as u32;
    frame[..4].copy_from_slice(&(length + 4).to_be_bytes());
    frame[4..8].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

fn decimal(text: &mut Vec<u8>, number: i64) {
    if number < 0 {
        text.push(b'-');
    }
    let (mut digits, mut rest, mut at) = ([0; 20], number.unsigned_abs(), 20);
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    text.extend(&digits[at..]);
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(encode_sends, module)?)
}
