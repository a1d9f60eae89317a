//! Converts Python values into the core's. Owns what is accepted as seconds, a number or a flag,
//! and the messages for everything else.

use std::time::Duration;

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBoolMethods, PyBytes, PyInt, PyString, PyType};

use quorlock_protocol::Ttl;

use crate::errors::{config, wrong_type};

/// Seconds as an `int`, a `float` (or what converts to one) or a `timedelta`.
pub(crate) fn seconds(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let py = value.py();
    let number = number_of_seconds(name, value)?;
    if number.is_nan() {
        return Err(config(py, format!("{name} must be a number of seconds, not nan")));
    }
    if number < 0.0 {
        return Err(config(py, format!("{name} must not be negative: {}", shown(value))));
    }
    Duration::try_from_secs_f64(number)
        .ok()
        .filter(|duration| duration.as_millis() < u128::from(Ttl::LIMIT_MILLIS))
        .ok_or_else(|| {
            config(py, format!("{name} must be below 2^53 milliseconds, not {} s", shown(value)))
        })
}

/// `True` or `False`, and nothing that merely converts to one.
pub(crate) fn flag(name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    value.cast::<PyBool>().map(PyBoolMethods::is_true).map_err(|_| {
        wrong_type(value.py(), format!("{name} must be True or False, not {}", described(value)))
    })
}

/// A fraction, such as 0.01.
pub(crate) fn factor(name: &str, value: &Bound<'_, PyAny>) -> PyResult<f64> {
    let refused =
        || wrong_type(value.py(), format!("{name} must be a number, not {}", described(value)));
    if is_no_number(value) { Err(refused()) } else { value.extract().map_err(|_| refused()) }
}

/// A whole number from zero upwards.
pub(crate) fn count(name: &str, value: &Bound<'_, PyAny>) -> PyResult<u32> {
    if is_no_number(value) || !value.hasattr("__index__")? {
        let text = format!("{name} must be a whole number, not {}", described(value));
        return Err(wrong_type(value.py(), text));
    }
    value.extract().map_err(|_| {
        let is_negative = value.lt(0).unwrap_or(false);
        let bound = if is_negative { "0 or more, or None for the default" } else { "below 2^32" };
        config(value.py(), format!("{name} must be {bound}, not {}", shown(value)))
    })
}

/// A text.
pub(crate) fn text(name: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    value
        .cast::<PyString>()
        .map_err(|_| {
            wrong_type(value.py(), format!("{name} must be a str, not {}", type_name(value)))
        })?
        .extract()
        .map_err(|_| config(value.py(), format!("{name} is not valid Unicode text")))
}

/// The name of the value's type; the value itself may be a secret.
pub(crate) fn type_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "an unknown type".to_owned(), |name| name.to_string())
}

fn number_of_seconds(name: &str, value: &Bound<'_, PyAny>) -> PyResult<f64> {
    let refused = || {
        let text =
            format!("{name} must be seconds (int, float or timedelta), not {}", described(value));
        wrong_type(value.py(), text)
    };
    if is_no_number(value) {
        return Err(refused());
    }
    match value.extract::<f64>() {
        Ok(number) => Ok(number),
        Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => Ok(f64::INFINITY),
        Err(_) if is_timedelta(value) => value.call_method0("total_seconds")?.extract(),
        Err(_) => Err(refused()),
    }
}

/// By name: to ask for the type itself imports its module at first, and panics if the interpreter ends.
fn is_timedelta(value: &Bound<'_, PyAny>) -> bool {
    let is_it = |kind: Bound<'_, PyAny>| -> PyResult<bool> {
        let kind = kind.cast_into::<PyType>()?;
        Ok(kind.name()? == "timedelta" && kind.module()? == "datetime")
    };
    value.get_type().mro().iter().any(|kind| is_it(kind).unwrap_or(false))
}

/// Values that Python would convert to a number although nobody meant one.
fn is_no_number(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyBool>()
        || value.is_instance_of::<PyString>()
        || value.is_instance_of::<PyBytes>()
}

fn described(value: &Bound<'_, PyAny>) -> String {
    format!("{} ({})", shown(value), type_name(value))
}

fn shown(value: &Bound<'_, PyAny>) -> String {
    // Python refuses to print numbers of more than some thousand digits.
    if value.is_instance_of::<PyInt>() && value.extract::<i128>().is_err() {
        return "a huge number".to_owned();
    }
    let text = value.repr().map_or_else(|_| "?".to_owned(), |text| text.to_string());
    if text.chars().count() <= LONGEST_SHOWN {
        return text;
    }
    text.chars().take(LONGEST_SHOWN).chain("...".chars()).collect()
}

const LONGEST_SHOWN: usize = 60;
