//! The key index: hashes of many messages' keys, and their entries. See `record_keys` in
//! `orbitmq/store/index_keys.py` and `IndexSlots` in `orbitmq/store/index_slots.py`.

use std::io::BufRead;

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;

use crate::record::Stored;
use crate::{part, rows};

const ROW: usize = 20; // of a key, of an entry of the index
const SLOTS_A_PAGE: usize = 1024;
const ROLLED_BACK: i32 = 0xC;

/// `String.hashCode` of Java, continued from the hash of the text before.
pub fn hash(before: u32, text: &[u8]) -> u32 {
    let add = |hash: u32, unit: u32| hash.wrapping_mul(31).wrapping_add(unit);
    if text.is_ascii() {
        return text.iter().fold(before, |hash, byte| add(hash, u32::from(*byte)));
    }
    let text = String::from_utf8_lossy(text);
    text.encode_utf16().fold(before, |hash, unit| add(hash, u32::from(unit)))
}

type Kind = (Vec<u8>, String, Vec<u8>);
const KINDS: usize = 3;

/// The values behind `markers` in properties: of a repeated name, the last that is not empty.
pub fn find<'a, const N: usize>(mut properties: &'a [u8], markers: &[&[u8]; N]) -> [&'a [u8]; N] {
    let mut found: [&[u8]; N] = [b""; N];
    let end = markers.first().and_then(|marker| marker.first()).copied().unwrap_or_default();
    while !properties.is_empty() {
        let pair = properties;
        let length = properties.skip_until(end).unwrap_or_default();
        let pair = pair.get(..length).unwrap_or_default();
        let pair = pair.strip_suffix(&[end]).unwrap_or(pair);
        for (marker, found) in markers.iter().zip(&mut found) {
            match marker.get(1..).and_then(|name| pair.strip_prefix(name)) {
                Some(value) if !value.is_empty() => *found = value,
                _ => (),
            }
        }
    }
    found
}

/// The interpreter is left to others meanwhile.
#[pyfunction]
pub fn record_keys(
    py: Python,
    data: &[u8],
    position: i64,
    known: i64,
    verify_crc: bool,
    kinds: [Kind; KINDS],
) -> (Vec<u8>, usize, i64) {
    py.detach(|| {
        let markers = kinds.each_ref().map(|(marker, _, _)| marker.as_slice());
        let (mut keys, mut place, mut timestamp) = (Vec::new(), 0, 0);
        let (mut topic, mut before) = (&b""[..], [0; KINDS]);
        while let Some(record) = Stored::read(&data[place..], verify_crc) {
            let offset = position.wrapping_add(place as i64);
            if record.physical_offset != offset || record.topic.contains(&0) {
                break;
            }
            (place, timestamp) = (place + record.size, record.store_timestamp);
            if offset == known || record.sys_flag & ROLLED_BACK == ROLLED_BACK {
                continue;
            }
            if topic != record.topic || topic.is_empty() {
                topic = record.topic;
                before = kinds.each_ref().map(|kind| hash(hash(0, topic), kind.1.as_bytes()));
            }
            let values = find(record.properties, &markers);
            for ((value, before), (_, _, separator)) in values.iter().zip(before).zip(&kinds) {
                let several = value.split(|byte| Some(byte) == separator.first());
                for key in several.filter(|key| !key.is_empty()) {
                    let hash = (hash(before, key) as i32).checked_abs().unwrap_or(0);
                    keys.extend([offset.to_be_bytes(), timestamp.to_be_bytes()].as_flattened());
                    keys.extend(hash.to_be_bytes());
                }
            }
        }
        (keys, place, timestamp)
    })
}

/// See `IndexSlots` in `orbitmq/store/index_slots.py`.
#[pyclass]
pub struct IndexSlots {
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

    fn put(&mut self, keys: &[u8], number: i32, begin: i64) -> PyResult<(Vec<u8>, u32)> {
        let mut entries = Vec::with_capacity(keys.len());
        let mut used = 0;
        for (key, number) in rows::<ROW>(keys)?.iter().zip(number..) {
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
            let since = timestamp.saturating_sub(begin).div_euclid(1000);
            let seconds = if begin > 0 { since.clamp(0, i32::MAX.into()) } else { 0 };
            entries.extend(hash.to_be_bytes());
            entries.extend(part::<8>(key, 0)?);
            entries.extend([(seconds as i32).to_be_bytes(), previous.to_be_bytes()].as_flattened());
        }
        Ok((entries, used))
    }

    fn load(&mut self, first: usize, stored: &[u8]) -> PyResult<()> {
        let (values, _) = stored.as_chunks::<4>();
        let slots = self.slots.get_mut(first..).and_then(|rest| rest.get_mut(..values.len()));
        for (slot, value) in slots.ok_or_else(outside)?.iter_mut().zip(values) {
            *slot = i32::from_be_bytes(*value);
        }
        Ok(())
    }

    fn stored(&self, first: usize, stop: usize) -> Vec<u8> {
        let slots = self.slots.get(first..stop.min(self.slots.len())).unwrap_or_default();
        slots.iter().flat_map(|slot| slot.to_be_bytes()).collect()
    }

    fn touched(&self) -> &[u8] {
        &self.touched
    }

    fn forget_touched(&mut self) {
        self.touched.fill(0);
    }
}
