//! The records of a batch, made of its body. See `orbitmq/wire/batch_records.py`.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::index::{find, hash};

const HEAD: usize = 20;

type Heads<'py> = (u32, i32, Bound<'py, PyBytes>, Bound<'py, PyBytes>);
type Encoded<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyList>);

/// The parts of a message within a batch: flag, body, length and properties.
struct Message<'a> {
    flag: &'a [u8],
    body: &'a [u8],
    length: &'a [u8],
    properties: &'a [u8],
}

/// Take a whole message off the front of a batch.
fn take<'a>(batch: &mut &'a [u8]) -> Option<Message<'a>> {
    let number = |bytes: &[u8]| Some(i32::from_be_bytes(*bytes.first_chunk()?));
    let (head, rest) = batch.split_at_checked(HEAD)?;
    let (body, rest) = rest.split_at_checked(number(&head[16..])?.try_into().ok()?)?;
    let (length, rest) = rest.split_first_chunk::<2>()?;
    let (properties, rest) = rest.split_at_checked(i16::from_be_bytes(*length).try_into().ok()?)?;
    *batch = rest;
    Some(Message { flag: &head[12..16], body, length, properties })
}

#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn encode_body<'py>(
    py: Python<'py>,
    mut body: &[u8],
    heads: Heads,
    tags_marker: &[u8],
    most: usize,
    queue_offset: i64,
    mut position: i64,
    limit: i64,
) -> PyResult<Option<Encoded<'py>>> {
    let (magic, queue_id, common, topic) =
        (heads.0, heads.1, heads.2.as_bytes(), heads.3.as_bytes());
    let mut records = Vec::with_capacity(2 * body.len());
    let (mut units, all_properties) = (Vec::new(), PyList::empty(py));
    let mut queue_offsets = queue_offset..;
    while !body.is_empty() {
        let (Some(message), Some(queue_offset)) = (take(&mut body), queue_offsets.next()) else {
            return Ok(None);
        };
        let Message { flag, body, length, properties } = message;
        let start = records.len();
        records.extend_from_slice(&[0; 4]); // the size
        records.extend_from_slice(&magic.to_be_bytes());
        records.extend_from_slice(&(crc32fast::hash(body) & 0x7FFF_FFFF).to_be_bytes());
        records.extend_from_slice(&queue_id.to_be_bytes());
        records.extend_from_slice(flag);
        records.extend_from_slice(&queue_offset.to_be_bytes());
        records.extend_from_slice(&position.to_be_bytes());
        records.extend_from_slice(common);
        records.extend_from_slice(&(body.len() as u32).to_be_bytes());
        for part in [body, topic, length, properties] {
            records.extend_from_slice(part);
        }
        let size = ((records.len() - start) as u32).to_be_bytes();
        records[start..start + 4].copy_from_slice(&size);
        let [tags] = find(properties, &[tags_marker]);
        units.extend_from_slice(&position.to_be_bytes());
        units.extend_from_slice(&size);
        units.extend_from_slice(&i64::from(hash(0, tags) as i32).to_be_bytes());
        all_properties.append(PyBytes::new(py, properties))?;
        position = position.saturating_add((records.len() - start) as i64);
        if body.len() > most || properties.ends_with(b"\0") || position > limit {
            return Ok(None);
        }
    }
    Ok(Some((PyBytes::new(py, &records), PyBytes::new(py, &units), all_properties)))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(encode_body, module)?)
}
