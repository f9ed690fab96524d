//! Frames of the remoting protocol: commands out of what a read brought.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::header;

pyo3::import_exception!(orbitmq.errors, WireError);

pub const JSON: u8 = 0;

/// The form, the header and the body of a frame, and what is behind it.
type Frame<'a> = (u8, &'a [u8], &'a [u8], &'a [u8]);

/// The frame that `data` begins with, if it is whole and possible.
fn take_frame(data: &[u8], limit: usize) -> Option<Frame<'_>> {
    let (length, rest) = data.split_first_chunk()?;
    let length = u32::from_be_bytes(*length) as usize;
    let (frame, rest) = rest.split_at_checked(length).filter(|_| 4 + length <= limit)?;
    let ([form, a, b, c], frame) = frame.split_first_chunk()?;
    let header_length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
    let (header, body) = frame.split_at_checked(header_length)?;
    Some((*form, header, body, rest))
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
    let (commands, mut topic, mut left) = (PyList::empty(py), Arc::from(""), data);
    while let Some((form, header, body, rest)) = take_frame(left, limit) {
        let send = if form == JSON { header::decode(py, &mut topic, header, body) } else { None };
        if let Some(command) = send {
            commands.append(command)?;
        } else {
            match decode.call1((form, PyBytes::new(py, header), PyBytes::new(py, body))) {
                Ok(command) => commands.append(command)?,
                Err(error) if error.is_instance_of::<WireError>(py) => break,
                Err(error) => return Err(error),
            }
        }
        left = rest;
    }
    Ok((commands, data.len() - left.len()))
}
