//! Plain messages: from requests to records and answers. See `orbitmq/wire/plain_sends.py`.

use std::collections::hash_map::{Entry, HashMap};
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::header::{Header, SendCommand, ONEWAY};
use crate::index::{find, hash};
use crate::record::{topic_part, Head, UNIT};

const TRANSACTION_PREPARED: i32 = 4;
const HOSTS_V6: i32 = 0x30;

/// SendRules: store host, suffix, most of a body, special, answer, its parts, marks of key and tags.
type Bytes<'py> = Bound<'py, PyBytes>;
type Rules<'py> =
    (Bytes<'py>, String, usize, Vec<String>, Bytes<'py>, [Bytes<'py>; 6], String, String);
/// QueueRun.
type Run<'py> = (Bound<'py, PyAny>, i64, i64, i64, Vec<u8>);

/// The properties of a plain message as they are stored, its unique key, and the code of its tags.
fn read(text: &str, rules: &Rules) -> Option<(Vec<u8>, Vec<u8>, i32)> {
    let (_, suffix, _, special, .., key_mark, tags_mark) = rules;
    let separator = *key_mark.as_bytes().first()?;
    let mut stored = Vec::with_capacity(text.len() + 1 + suffix.len());
    stored.extend(text.bytes());
    if stored.last().is_some_and(|last| *last != separator) {
        stored.push(separator);
    }
    let [key, tags] = find(&stored, &[key_mark.as_bytes(), tags_mark.as_bytes()]);
    let is_special = special.iter().any(|mark| text.contains(mark));
    if key.is_empty() || !key.iter().all(u8::is_ascii_alphanumeric) || is_special {
        return None;
    }
    let (key, tags_code) = (key.to_vec(), hash(0, tags) as i32);
    stored.extend(suffix.bytes());
    (stored.len() < 1 << 15).then_some((stored, key, tags_code))
}

/// What a message's record has in common with those of a batch, but for the store's part.
fn common(header: &Header, bits: i32, born_host: &[u8], store: (i64, &[u8])) -> Vec<u8> {
    let hosts = i32::from(born_host.len() == 20) | i32::from(store.1.len() == 20) << 1;
    let sys_flag = (header.sys_flag | bits) & !HOSTS_V6 | hosts << 4;
    let mut common = Vec::with_capacity(72);
    common.extend(sys_flag.to_be_bytes());
    common.extend(header.born_timestamp.to_be_bytes());
    common.extend(born_host);
    common.extend(store.0.to_be_bytes());
    common.extend(store.1);
    common.extend(header.reconsume_times.to_be_bytes());
    common.extend([0; 8]);
    common
}

/// A topic's queues and its bits in sysFlag, and what its records have of it.
type Topic = Option<((i32, i32), (u32, Vec<u8>))>;

type Encoded<'py> = (Vec<u8>, Bound<'py, PyList>, Vec<Run<'py>>);

#[pyfunction]
#[pyo3(signature = (noted, first, rules, find_topic, find_queue, store_timestamp, position, limit, /))]
#[allow(clippy::too_many_arguments)]
pub fn encode_sends<'py>(
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
    let mut topics = HashMap::<Arc<str>, Topic>::new();
    let mut places = HashMap::<(Arc<str>, i32), usize>::new();
    let (mut runs, mut records, answers) = (Vec::<Run>::new(), Vec::new(), PyList::empty(py));
    let store = (store_timestamp, rules.0.as_bytes());
    for index in first..noted.len() {
        let item = noted.get_item(index)?.cast_into::<PyTuple>()?;
        let (command, host) = (item.get_item(0)?, item.get_item(1)?);
        let Ok(command) = command.cast::<SendCommand>().map(|command| command.get()) else { break };
        let (header, body) = (&command.header, command.body.as_bytes(py));
        let topic = match topics.entry(header.topic.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let found: Option<_> = find_topic.call1((&*header.topic,))?.extract()?;
                unknown.insert(found.zip(topic_part(&header.topic)))
            }
        };
        let Some(((queues, bits), (magic, topic))) = topic else { break };
        let is_plain = !header.is_batch
            && header.sys_flag & TRANSACTION_PREPARED == 0
            && (0..*queues).contains(&header.queue_id)
            && body.len() <= rules.2;
        let Some((properties, key, tags_code)) =
            read(&header.properties, &rules).filter(|_| is_plain)
        else {
            break;
        };
        let place = *places.entry((header.topic.clone(), header.queue_id)).or_insert(runs.len());
        if place == runs.len() {
            let (found, next) = find_queue.call1((&*header.topic, header.queue_id))?.extract()?;
            runs.push((found, next, position, 0, Vec::new()));
        }
        let run = &mut runs[place];
        let head = Head {
            magic: *magic,
            queue_id: header.queue_id,
            flag: header.flag,
            queue_offset: run.1 + (run.4.len() / UNIT) as i64,
            position,
            common: &common(header, *bits, host.cast::<PyBytes>()?.as_bytes(), store),
        };
        let parts = (body, &topic[..], &properties[..]);
        let Some(end) = head.write((&mut records, &mut run.4), parts, tags_code, limit) else {
            runs.retain(|run| run.3 > 0);
            break;
        };
        run.3 += end - position;
        if command.flag & ONEWAY != 0 {
            answers.append(py.None())?;
        } else {
            let numbers = [position, header.queue_id.into(), head.queue_offset, command.opaque];
            answers.append(PyBytes::new(py, &fill(&rules.5, &key, numbers)))?;
        }
        position = end;
    }
    runs.sort_by_key(|run| run.4.last_chunk::<20>().copied());
    Ok((records, answers, runs))
}

/// A frame without a body, whose header are these parts with values between them.
fn fill([begin, parts @ ..]: &[Bytes; 6], key: &[u8], numbers: [i64; 4]) -> Vec<u8> {
    let [place, queue_id, queue_offset, opaque] = numbers;
    let parts = parts.each_ref().map(|part| part.as_bytes());
    let mut frame = Vec::with_capacity(1024);
    frame.extend([0; 8]);
    frame.extend(begin.as_bytes());
    digits::<16>(&mut frame, place, 16);
    frame.extend(parts[0]);
    digits::<10>(&mut frame, queue_id, 1);
    frame.extend(parts[1]);
    digits::<10>(&mut frame, queue_offset, 1);
    frame.extend([parts[2], key, parts[3]].concat());
    digits::<10>(&mut frame, opaque, 1);
    frame.extend(parts[4]);
    let length = (frame.len() - 8) as u32;
    frame[..8].copy_from_slice([length + 4, length].map(u32::to_be_bytes).as_flattened());
    frame
}

/// A number behind `text`, with so many digits at least: in half the time of `write!`.
fn digits<const BASE: u64>(text: &mut Vec<u8>, number: i64, least: usize) {
    text.extend((number < 0).then_some(b'-'));
    let (mut digits, mut at, mut rest) = ([b'0'; 20], 20, number.unsigned_abs());
    while rest > 0 || at > 20 - least {
        at -= 1;
        digits[at] = b"0123456789ABCDEF"[(rest % BASE) as usize];
        rest /= BASE;
    }
    text.extend(&digits[at..]);
}
