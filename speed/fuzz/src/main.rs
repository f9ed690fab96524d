//! A Python with the compiled core built into it, so that a sanitizer sees both:
//! `orbitmq-speed-fuzz tests.fuzz.fuzzer --frames 10000000` runs the module as `python -m` does.

use orbitmq_speed::orbitmq_speed;
use pyo3::prelude::*;
use pyo3::types::PyList;

fn main() -> PyResult<()> {
    pyo3::append_to_inittab!(orbitmq_speed);
    Python::attach(|py| {
        let mut arguments = std::env::args();
        let program = arguments.next();
        let module = arguments.next().unwrap_or_default();
        let sys = py.import("sys")?;
        sys.setattr("argv", PyList::new(py, program.into_iter().chain(arguments))?)?;
        py.import("runpy")?.call_method1("run_module", (module, py.None(), "__main__"))?;
        Ok(())
    })
}
