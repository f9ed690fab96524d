//! Where the records of a queue's entries lie in the log. See `orbitmq/store/pull.py`.

use pyo3::prelude::*;
use pyo3::types::{PyList, PySlice};

use crate::{part, rows};

const UNIT: usize = 20;

type Places<'py> = (Bound<'py, PyList>, i64, i64);

#[pyfunction]
fn neighbours<'py>(
    py: Python<'py>,
    units: &[u8],
    base: i64,
    limit: i64,
    max_count: i64,
    max_bytes: i64,
) -> PyResult<Option<Places<'py>>> {
    let places = PyList::empty(py);
    let add = |start: i64, end: i64| {
        places.append(PySlice::new(
            py,
            start.wrapping_sub(base) as isize,
            end.wrapping_sub(base) as isize,
            1,
        ))
    };
    let (mut start, mut end, mut count, mut taken) = (0, 0, 0, 0);
    for unit in rows::<UNIT>(units)? {
        let position = i64::from_be_bytes(part(unit, 0)?);
        let size = i64::from(i32::from_be_bytes(part(unit, 8)?));
        if count > 0 && size > max_bytes.saturating_sub(taken) {
            break;
        }
        let stop = position.saturating_add(size);
        if !(base <= position && position < stop && stop <= limit) {
            return Ok(None);
        }
        if count == 0 || position != end {
            if count > 0 {
                add(start, end)?;
            }
            start = position;
        }
        end = stop;
        taken += size;
        count += 1;
        if count >= max_count {
            break;
        }
    }
    add(start, end)?;
    Ok(Some((places, count, taken)))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(neighbours, module)?)
}
