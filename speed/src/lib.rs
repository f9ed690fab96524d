//! The functions of OrbitMQ's hot path that are worth compiling. Each is the twin of a Python
//! function of the same name, which says what it means and is what it is tested against.

use pyo3::prelude::*;

mod frames;
mod index;
mod json;
mod record;
mod send;

/// Changes whenever a function's arguments or result do: OrbitMQ uses no core of another number.
const INTERFACE: u32 = 1;

#[pymodule]
pub fn orbitmq_speed(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("INTERFACE", INTERFACE)?;
    frames::register(module)?;
    index::register(module)?;
    send::register(module)
}
