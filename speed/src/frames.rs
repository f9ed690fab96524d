//! Frames of the remoting protocol, cut out of what a read brought.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

const SHORTEST: usize = 8;

/// The whole frames at the front of `data`, and where the first one begins that is not whole, or is
/// not as it should be: the caller finds out which.
pub fn cut(data: &[u8], limit: usize) -> (Vec<(u8, usize, usize, usize)>, usize) {
    let mut frames = Vec::new();
    let mut at = 0;
    while let Some(head) = data.get(at..at + SHORTEST) {
        let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let end = at + 4 + length;
        let body = at + SHORTEST + u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize;
        if 4 + length < SHORTEST || 4 + length > limit || end > data.len() || body > end {
            break;
        }
        frames.push((head[4], at + SHORTEST, body, end));
        at = end;
    }
    (frames, at)
}

/// See `cut_frames` in `orbitmq/wire/frames.py`.
#[pyfunction]
fn cut_frames<'py>(
    py: Python<'py>,
    data: &[u8],
    limit: usize,
) -> PyResult<(Bound<'py, PyList>, usize)> {
    let (frames, end) = cut(data, limit);
    let found = PyList::empty(py);
    for (form, header, body, end) in frames {
        found.append(PyTuple::new(
            py,
            [
                form.into_pyobject(py)?.into_any(),
                PyBytes::new(py, &data[header..body]).into_any(),
                PyBytes::new(py, &data[body..end]).into_any(),
            ],
        )?)?;
    }
    Ok((found, end))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(cut_frames, module)?)
}
