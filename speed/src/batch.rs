//! The records of a batch, made of its body. See `orbitmq/wire/batch_records.py`.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::index::{find, hash};
use crate::record::{take, take_text, Head};

type Heads<'py> = (u32, i32, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// Take a message off the front of a batch: its head, its body, and its properties.
fn take_message<'a>(batch: &mut &'a [u8]) -> Option<(&'a [u8; 20], &'a [u8], &'a [u8])> {
    let (head, rest) = batch.split_first_chunk()?;
    *batch = rest;
    let body = take(batch, i32::from_be_bytes(*head.last_chunk()?))?;
    Some((head, body, take_text(batch)?))
}

#[pyfunction]
pub fn encode_body(
    mut body: &[u8],
    heads: Heads,
    tags_marker: &[u8],
    most: usize,
    place: (i64, i64, i64),
) -> Option<(Vec<u8>, Vec<u8>)> {
    let (magic, queue_id, common, topic) = heads;
    let (mut queue_offset, mut position, limit) = place;
    let (mut records, mut units) = (Vec::with_capacity(2 * body.len()), Vec::new());
    while !body.is_empty() {
        let (head, body, properties) = take_message(&mut body)?;
        if body.len() > most || properties.ends_with(b"\0") {
            return None;
        }
        let flag = i32::from_be_bytes([head[12], head[13], head[14], head[15]]);
        let common = common.as_bytes();
        let head = Head { magic, queue_id, flag, queue_offset, position, common };
        let [tags] = find(properties, &[tags_marker]);
        let parts = (body, topic.as_bytes(), properties);
        let tags_code = hash(0, tags) as i32;
        position = head.write((&mut records, &mut units), parts, tags_code, limit)?;
        queue_offset = queue_offset.wrapping_add(1);
    }
    Some((records, units))
}
