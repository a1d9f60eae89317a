//! Converts events and figures of the core into Python values. Owns the conversion; names and
//! meanings are the core's, and the classes are in `quorlock/events.py` and `quorlock/_stats.py`.

use std::time::UNIX_EPOCH;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use quorlock::Event;
use quorlock::embed::Value;

use crate::errors;
use crate::notices::Notices;
use crate::process;

/// An event as Python gets it: the manager's number, the name, the seconds since 1970, a line for
/// the log, and the fields by name.
type Told<'py> = (u64, &'static str, f64, String, Bound<'py, PyDict>);

/// The events that have not been told, and how many older ones were dropped.
#[pyfunction]
pub(crate) fn take_events(py: Python<'_>) -> PyResult<(Vec<Told<'_>>, u64)> {
    let (events, dropped) = process::notices().map(Notices::take_events).unwrap_or_default();
    let events = events.iter().map(|(manager, event)| told(py, *manager, event));
    Ok((events.collect::<PyResult<_>>()?, dropped))
}

fn told<'py>(py: Python<'py>, manager: u64, event: &Event) -> PyResult<Told<'py>> {
    let at = event.at().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    Ok((manager, event.name(), at, event.to_string(), by_name(py, &event.fields())?))
}

/// Values by name.
pub(crate) fn by_name<'py>(
    py: Python<'py>,
    fields: &[(&'static str, Value)],
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in fields {
        dict.set_item(name, converted(py, value)?)?;
    }
    Ok(dict)
}

fn converted<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::None => py.None().into_bound(py),
        Value::Flag(flag) => flag.into_pyobject(py)?.to_owned().into_any(),
        Value::Count(count) => count.into_pyobject(py)?.into_any(),
        Value::Number(number) => number.into_pyobject(py)?.into_any(),
        Value::Time(time) => time.as_secs_f64().into_pyobject(py)?.into_any(),
        Value::Text(text) => text.into_pyobject(py)?.into_any(),
        Value::Votes(votes) => PyTuple::new(py, errors::votes(py, votes)?)?.into_any(),
        Value::List(values) => {
            let list = PyList::empty(py);
            for value in values {
                list.append(converted(py, value)?)?;
            }
            list.to_tuple().into_any()
        }
        Value::Counts(counts) => {
            let dict = PyDict::new(py);
            for (name, count) in counts {
                dict.set_item(name, count)?;
            }
            dict.into_any()
        }
        Value::Map(fields) => by_name(py, fields)?.into_any(),
    })
}
