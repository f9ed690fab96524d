//! Where the records of a queue's entries lie in the log. See `orbitmq/store/pull.py`.

use pyo3::prelude::*;
use pyo3::types::{PyList, PySlice};

use crate::record::UNIT;
use crate::{part, rows};

type Records<'py> = (Bound<'py, PyList>, i64, i64);

#[pyfunction]
pub fn neighbours<'py>(
    py: Python<'py>,
    view: &Bound<'py, PyAny>,
    base: i64,
    end: i64,
    units: &[u8],
    max_count: i64,
    max_bytes: i64,
) -> PyResult<Option<Records<'py>>> {
    let slices = PyList::empty(py);
    let slice = py.get_type::<PySlice>(); // PySlice::new of PyO3 0.30 leaks its numbers
    let place = |position: i64| position.wrapping_sub(base);
    let add = |start, stop| -> PyResult<()> {
        slices.append(view.get_item(slice.call1((place(start), place(stop)))?)?)
    };
    let (mut start, mut stop, mut count, mut taken) = (0, 0, 0, 0);
    for unit in rows::<UNIT>(units)? {
        let position = i64::from_be_bytes(part(unit, 0)?);
        let size = i64::from(i32::from_be_bytes(part(unit, 8)?));
        if count > 0 && (count >= max_count || size > max_bytes.saturating_sub(taken)) {
            break;
        }
        let after = position.saturating_add(size);
        if base > position || position >= after || after > end {
            return Ok(None);
        }
        if count == 0 {
            start = position;
        } else if position != stop {
            add(start, stop)?;
            start = position;
        }
        (stop, count, taken) = (after, count + 1, taken + size);
    }
    add(start, stop)?;
    Ok(Some((slices, count, taken)))
}
