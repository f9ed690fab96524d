//! The key index: hashes of many messages' keys, and their entries. See `key_entries` in
//! `orbitmq/store/index_keys.py` and `IndexSlots` in `orbitmq/store/index_slots.py`.

use std::io::BufRead;

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PySequence};

const UNIT: usize = 20;
const KEY: usize = 20;
const ENTRY: usize = 20;
const SLOT: usize = 4;
const SLOTS_A_PAGE: usize = 1024;

/// The `N` bytes at `at`.
fn part<const N: usize>(data: &[u8], at: usize) -> PyResult<[u8; N]> {
    let bytes = data.get(at..).and_then(|rest| rest.first_chunk::<N>());
    bytes.copied().ok_or_else(|| PyValueError::new_err("bytes are missing"))
}

/// `String.hashCode` of Java, continued from the hash of the text before.
fn hash(before: u32, text: &[u8]) -> u32 {
    let add = |hash: u32, unit: u32| hash.wrapping_mul(31).wrapping_add(unit);
    if text.is_ascii() {
        let (fours, rest) = text.as_chunks::<4>();
        let head = fours.iter().fold(before, |hash, four| {
            let sum = four.iter().fold(0, |sum, byte| add(sum, u32::from(*byte)));
            hash.wrapping_mul(31 * 31 * 31 * 31).wrapping_add(sum)
        });
        return rest.iter().fold(head, |hash, byte| add(hash, u32::from(*byte)));
    }
    let text = String::from_utf8_lossy(text);
    text.encode_utf16().fold(before, |hash, unit| add(hash, u32::from(unit)))
}

/// What Java's `Math.abs` makes of a hash; 0 where it has no absolute.
fn positive(hash: u32) -> i32 {
    (hash as i32).checked_abs().unwrap_or(0)
}

type Run<'py> = (Bound<'py, PyAny>, i64, Bound<'py, PyBytes>, Bound<'py, PyAny>);
type Kind = (Vec<u8>, String, Vec<u8>);
const KINDS: usize = 3;
type Values<'a> = [&'a [u8]; KINDS];

struct Entries {
    start: i64,
    end: i64,
    timestamp: i64,
    is_ordered: bool,
    keys: Vec<(i64, i64, i32)>,
}

impl Entries {
    /// Whether the message of an entry of a queue is wanted.
    fn see(&mut self, offset: i64, size: i32, timestamp: i64) -> bool {
        if offset >= self.end {
            self.end = offset.saturating_add(i64::from(size));
            self.timestamp = timestamp;
        } else if offset >= self.start {
            self.is_ordered = false;
        }
        offset >= self.start
    }

    /// Take the keys of a message; `found` has the value of each of `kinds`, or nothing.
    fn take(&mut self, place: (i64, i64), kinds: &[Kind], before: &[u32], found: &Values) {
        for (((_, _, separator), before), value) in kinds.iter().zip(before).zip(found) {
            let mut add = |key: &[u8]| {
                if !key.is_empty() {
                    self.keys.push((place.0, place.1, positive(hash(*before, key))));
                }
            };
            match separator.first() {
                Some(separator) => value.split(|byte| byte == separator).for_each(add),
                None => add(value),
            }
        }
    }

    fn packed(&mut self) -> Vec<u8> {
        if !self.is_ordered {
            self.keys.sort_by_key(|key| key.0);
        }
        let mut packed = Vec::with_capacity(self.keys.len() * KEY);
        for (offset, timestamp, hash) in &self.keys {
            packed.extend_from_slice(&offset.to_be_bytes());
            packed.extend_from_slice(&timestamp.to_be_bytes());
            packed.extend_from_slice(&hash.to_be_bytes());
        }
        packed
    }
}

/// Find the values of `kinds` in properties: of a repeated name, the last that is not empty.
fn find<'a>(mut properties: &'a [u8], kinds: &[Kind; KINDS]) -> Values<'a> {
    let mut found: Values = [b""; KINDS];
    let end = kinds[0].0.first().copied().unwrap_or_default();
    while !properties.is_empty() {
        let mut rest = properties;
        let length = rest.skip_until(end).unwrap_or_default();
        let pair = properties.get(..length).unwrap_or_default();
        let pair = pair.strip_suffix(&[end]).unwrap_or(pair);
        for ((marker, _, _), found) in kinds.iter().zip(&mut found) {
            match marker.get(1..).and_then(|name| pair.strip_prefix(name)) {
                Some(value) if !value.is_empty() => *found = value,
                _ => (),
            }
        }
        properties = rest;
    }
    found
}

#[pyfunction]
fn key_entries<'py>(
    py: Python<'py>,
    runs: &Bound<'py, PyList>,
    start: i64,
    kinds: [Kind; KINDS],
) -> PyResult<(Bound<'py, PyBytes>, i64, i64)> {
    let mut entries =
        Entries { start, end: start, timestamp: 0, is_ordered: true, keys: Vec::new() };
    let mut before = [0; KINDS];
    for run in runs.iter() {
        let (topic, timestamp, units, properties) = run.extract::<Run>()?;
        let topic = hash(0, topic.extract::<&str>()?.as_bytes());
        for ((_, between, _), before) in kinds.iter().zip(&mut before) {
            *before = hash(topic, between.as_bytes());
        }
        let properties = properties.cast::<PySequence>()?;
        if units.as_bytes().len() != properties.len()? * UNIT {
            return Err(PyValueError::new_err("units and properties are not as many"));
        }
        for (index, unit) in units.as_bytes().chunks_exact(UNIT).enumerate() {
            let offset = i64::from_be_bytes(part(unit, 0)?);
            if entries.see(offset, i32::from_be_bytes(part(unit, 8)?), timestamp) {
                let properties = properties.get_item(index)?;
                let found = find(properties.cast::<PyBytes>()?.as_bytes(), &kinds);
                entries.take((offset, timestamp), &kinds, &before, &found);
            }
        }
    }
    Ok((PyBytes::new(py, &entries.packed()), entries.end, entries.timestamp))
}

/// See `IndexSlots` in `orbitmq/store/index_slots.py`.
#[pyclass]
struct IndexSlots {
    slots: Vec<i32>,
    touched: Vec<u8>,
}

fn outside() -> PyErr {
    PyIndexError::new_err("there is no such slot")
}

#[pymethods]
impl IndexSlots {
    #[new]
    fn new(number: usize) -> Self {
        IndexSlots { slots: vec![0; number], touched: vec![0; number / SLOTS_A_PAGE + 1] }
    }

    fn __getitem__(&self, index: usize) -> PyResult<i32> {
        self.slots.get(index).copied().ok_or_else(outside)
    }

    fn __setitem__(&mut self, index: usize, entry: i32) -> PyResult<()> {
        *self.slots.get_mut(index).ok_or_else(outside)? = entry;
        *self.touched.get_mut(index / SLOTS_A_PAGE).ok_or_else(outside)? = 1;
        Ok(())
    }

    fn put<'py>(
        &mut self,
        py: Python<'py>,
        keys: &[u8],
        number: i32,
        begin_timestamp: i64,
    ) -> PyResult<(Bound<'py, PyBytes>, u32)> {
        if keys.len() % KEY != 0 {
            return Err(PyValueError::new_err("the last key is not whole"));
        }
        let mut entries = Vec::with_capacity(keys.len() / KEY * ENTRY);
        let mut used = 0;
        for (key, number) in keys.chunks_exact(KEY).zip(number..) {
            let timestamp = i64::from_be_bytes(part(key, 8)?);
            let hash = i32::from_be_bytes(part(key, 16)?);
            let slots = i64::try_from(self.slots.len()).unwrap_or(i64::MAX);
            let index = i64::from(hash).checked_rem_euclid(slots).ok_or_else(outside)? as usize;
            let mut previous = self.__getitem__(index)?;
            self.__setitem__(index, number)?;
            if !(0 < previous && previous < number) {
                previous = 0;
                used += 1;
            }
            let since = timestamp.saturating_sub(begin_timestamp).div_euclid(1000);
            let seconds = if begin_timestamp > 0 { since.clamp(0, i32::MAX.into()) } else { 0 };
            entries.extend_from_slice(&hash.to_be_bytes());
            entries.extend_from_slice(&part::<8>(key, 0)?);
            entries.extend_from_slice(&(seconds as i32).to_be_bytes());
            entries.extend_from_slice(&previous.to_be_bytes());
        }
        Ok((PyBytes::new(py, &entries), used))
    }

    fn load(&mut self, first: usize, stored: &[u8]) -> PyResult<()> {
        let (values, _) = stored.as_chunks::<SLOT>();
        let slots = self.slots.get_mut(first..).and_then(|rest| rest.get_mut(..values.len()));
        for (slot, value) in slots.ok_or_else(outside)?.iter_mut().zip(values) {
            *slot = i32::from_be_bytes(*value);
        }
        Ok(())
    }

    fn stored<'py>(&self, py: Python<'py>, first: usize, stop: usize) -> Bound<'py, PyBytes> {
        let slots = self.slots.get(first..stop.min(self.slots.len())).unwrap_or_default();
        PyBytes::new(py, &slots.iter().flat_map(|slot| slot.to_be_bytes()).collect::<Vec<u8>>())
    }

    fn touched<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.touched)
    }

    fn forget_touched(&mut self) {
        self.touched.fill(0);
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<IndexSlots>()?;
    module.add_function(wrap_pyfunction!(key_entries, module)?)
}
