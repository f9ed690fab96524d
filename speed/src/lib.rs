//! The functions of OrbitMQ's hot path that are worth compiling. Each is the twin of a Python
//! function of the same name, which says what it means and is what it is tested against.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

mod batch;
mod frames;
mod header;
mod index;
mod json;
mod pull;
mod record;
mod send;

/// The `N` bytes at `at`; an error where there are not as many.
fn part<const N: usize>(data: &[u8], at: usize) -> PyResult<[u8; N]> {
    let bytes = data.get(at..).and_then(|rest| rest.first_chunk::<N>());
    bytes.copied().ok_or_else(|| PyValueError::new_err("bytes are missing"))
}

/// Rows of `N` bytes each; an error where the last is not whole.
fn rows<const N: usize>(data: &[u8]) -> PyResult<&[[u8; N]]> {
    let (rows, rest) = data.as_chunks::<N>();
    if !rest.is_empty() {
        return Err(PyValueError::new_err("the last row is not whole"));
    }
    Ok(rows)
}

#[pymodule]
pub mod orbitmq_speed {
    #[pymodule_export]
    use crate::{
        batch::encode_body, frames::decode_frames, index::record_keys, index::IndexSlots,
        pull::neighbours, send::encode_sends,
    };

    /// Changes whenever a function's arguments or result do: OrbitMQ uses no core of another number.
    #[pymodule_export]
    const INTERFACE: u32 = 2;
}
