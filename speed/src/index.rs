//! The key index: hashes of many messages' keys, and their entries. See `key_entries` in
//! `orbitmq/store/index_keys.py` and `IndexSlots` in `orbitmq/store/index_slots.py`.

use std::io::BufRead;

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PySequence};

use crate::{part, rows};

const ROW: usize = 20; // of an entry of a queue, a key, an entry of the index
const SLOTS_A_PAGE: usize = 1024;

/// `String.hashCode` of Java, continued from the hash of the text before.
pub fn hash(before: u32, text: &[u8]) -> u32 {
    let add = |hash: u32, unit: u32| hash.wrapping_mul(31).wrapping_add(unit);
    if text.is_ascii() {
        return text.iter().fold(before, |hash, byte| add(hash, u32::from(*byte)));
    }
    let text = String::from_utf8_lossy(text);
    text.encode_utf16().fold(before, |hash, unit| add(hash, u32::from(unit)))
}

type Run<'py> = (Bound<'py, PyAny>, i64, Bound<'py, PyBytes>, Bound<'py, PyAny>);
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

#[pyfunction]
pub fn key_entries<'py>(
    py: Python<'py>,
    runs: &Bound<'py, PyList>,
    start: i64,
    kinds: [Kind; KINDS],
) -> PyResult<(Bound<'py, PyBytes>, i64, i64)> {
    let (mut end, mut timestamp, mut keys) = (start, 0, Vec::new());
    let markers = kinds.each_ref().map(|(marker, _, _)| marker.as_slice());
    for run in runs.iter() {
        let (topic, stored, units, properties) = run.extract::<Run>()?;
        let topic = hash(0, topic.extract::<&str>()?.as_bytes());
        let before = kinds.each_ref().map(|(_, between, _)| hash(topic, between.as_bytes()));
        let (units, properties) =
            (rows::<ROW>(units.as_bytes())?, properties.cast::<PySequence>()?);
        if units.len() != properties.len()? {
            return Err(PyValueError::new_err("units and properties are not as many"));
        }
        for (index, unit) in units.iter().enumerate() {
            let offset = i64::from_be_bytes(part(unit, 0)?);
            if offset < start {
                continue;
            }
            if offset >= end {
                end = offset.saturating_add(i32::from_be_bytes(part(unit, 8)?).into());
                timestamp = stored;
            }
            let properties = properties.get_item(index)?;
            let values = find(properties.cast::<PyBytes>()?.as_bytes(), &markers);
            for ((value, before), (_, _, separator)) in values.iter().zip(before).zip(&kinds) {
                let several = value.split(|byte| Some(byte) == separator.first());
                let several = several.filter(|key| !key.is_empty());
                let positive = |key| (hash(before, key) as i32).checked_abs().unwrap_or(0);
                keys.extend(several.map(|key| (offset, stored, positive(key))));
            }
        }
    }
    keys.sort_by_key(|key| key.0);
    let mut packed = Vec::with_capacity(keys.len() * ROW);
    for (offset, stored, hash) in keys {
        packed.extend([offset.to_be_bytes(), stored.to_be_bytes()].as_flattened());
        packed.extend(hash.to_be_bytes());
    }
    Ok((PyBytes::new(py, &packed), end, timestamp))
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

    fn put<'py>(
        &mut self,
        py: Python<'py>,
        keys: &[u8],
        number: i32,
        begin_timestamp: i64,
    ) -> PyResult<(Bound<'py, PyBytes>, u32)> {
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
            let since = timestamp.saturating_sub(begin_timestamp).div_euclid(1000);
            let seconds = if begin_timestamp > 0 { since.clamp(0, i32::MAX.into()) } else { 0 };
            entries.extend(hash.to_be_bytes());
            entries.extend(part::<8>(key, 0)?);
            entries.extend([(seconds as i32).to_be_bytes(), previous.to_be_bytes()].as_flattened());
        }
        Ok((PyBytes::new(py, &entries), used))
    }

    fn load(&mut self, first: usize, stored: &[u8]) -> PyResult<()> {
        let (values, _) = stored.as_chunks::<4>();
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
