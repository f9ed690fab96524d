//! Where the records of a queue's entries lie in the log. See `orbitmq/store/pull.py`.

use pyo3::prelude::*;
use pyo3::types::{PyList, PySlice};

use crate::{part, rows};

type Places<'py> = (Bound<'py, PyList>, i64, i64);

#[pyfunction]
fn neighbours<'py>(
    py: Python<'py>,
    units: &[u8],
    within: (i64, i64),
    limits: (i64, i64),
) -> PyResult<Option<Places<'py>>> {
    let ((base, end_of_part), (max_count, max_bytes)) = (within, limits);
    let places = PyList::empty(py);
    let place = |position: i64| position.wrapping_sub(base) as isize;
    let add = |start, end| places.append(PySlice::new(py, place(start), place(end), 1));
    let (mut start, mut end, mut count, mut taken) = (0, 0, 0, 0);
    for unit in rows::<20>(units)? {
        let position = i64::from_be_bytes(part(unit, 0)?);
        let size = i64::from(i32::from_be_bytes(part(unit, 8)?));
        if count > 0 && (count >= max_count || size > max_bytes.saturating_sub(taken)) {
            break;
        }
        let stop = position.saturating_add(size);
        if base > position || position >= stop || stop > end_of_part {
            return Ok(None);
        }
        if count == 0 {
            start = position;
        } else if position != end {
            add(start, end)?;
            start = position;
        }
        (end, count, taken) = (stop, count + 1, taken + size);
    }
    add(start, end)?;
    Ok(Some((places, count, taken)))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(neighbours, module)?)
}
