//! Frames of the remoting protocol: commands out of what a read brought.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::header;

const SHORTEST: usize = 8;
pub const JSON: u8 = 0;

/// Where the parts of a frame are.
pub struct Frame {
    pub form: u8,
    pub header: usize,
    pub body: usize,
    pub end: usize,
}

/// The frame that begins at `at`, if it is whole and possible.
pub fn frame_at(data: &[u8], at: usize, limit: usize) -> Option<Frame> {
    let head = data.get(at..at.checked_add(SHORTEST)?)?;
    let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
    let header = at + SHORTEST;
    let body = header + u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize;
    let end = at + 4 + length;
    let is_possible =
        4 + length >= SHORTEST && 4 + length <= limit && body <= end && end <= data.len();
    is_possible.then_some(Frame { form: head[4], header, body, end })
}

/// See `decode_frames` in `orbitmq/wire/frames.py`.
#[pyfunction]
#[pyo3(signature = (data, limit, decode, /))]
pub fn decode_frames<'py>(
    py: Python<'py>,
    data: &[u8],
    limit: usize,
    decode: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyList>, usize)> {
    let (commands, mut topic, mut at) = (PyList::empty(py), Arc::from(""), 0);
    while let Some(frame) = frame_at(data, at, limit) {
        let (header, body) = (&data[frame.header..frame.body], &data[frame.body..frame.end]);
        let send =
            if frame.form == JSON { header::decode(py, &mut topic, header, body) } else { None };
        if let Some(command) = send {
            commands.append(command)?;
        } else {
            match decode.call1((frame.form, PyBytes::new(py, header), PyBytes::new(py, body))) {
                Ok(command) => commands.append(command)?,
                Err(error) => {
                    let wire_error = py.import("orbitmq.errors")?.getattr("WireError")?;
                    if error.matches(py, wire_error)? {
                        break;
                    }
                    return Err(error);
                }
            }
        }
        at = frame.end;
    }
    Ok((commands, at))
}
