//! Converts keyword arguments into the core's policy. Owns that conversion; names, defaults and
//! bounds are the core's.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use quorlock::{ConfigError, OptionDefault, OptionKind, Policy, PolicyBuilder};

use crate::convert::{count, factor, flag, seconds, text};
use crate::errors::{config, raised};

/// The options given for a lock.
#[derive(Clone, Copy)]
pub(crate) struct Options {
    pub(crate) policy: Policy,
    /// `None`: on in the block forms, off for a plain `acquire()`.
    pub(crate) auto_extend: Option<bool>,
}

/// Parses options; one that is `None` keeps its default.
pub(crate) fn parse(given: &Bound<'_, PyDict>) -> PyResult<Options> {
    let mut builder = Policy::builder();
    let mut auto_extend = None;
    for (name, value) in given {
        let name: String = name.extract()?;
        if value.is_none() {
            continue;
        }
        if name == "auto_extend" {
            auto_extend = Some(flag(&name, &value)?);
        } else {
            builder = apply(builder, &name, &value)?;
        }
    }
    let policy = builder.build().map_err(|error| raised(given.py(), &error.into()))?;
    Ok(Options { policy, auto_extend })
}

/// How long one call may wait: the `timeout` of `acquire()` or of a lock.
pub(crate) fn timeout(value: &Bound<'_, PyAny>) -> PyResult<Option<Duration>> {
    if value.is_none() || is_minus_one(value) {
        return Ok(None);
    }
    seconds("timeout", value).map(Some)
}

/// As for the locks of the standard library, -1 stands for no limit.
pub(crate) fn is_minus_one(value: &Bound<'_, PyAny>) -> bool {
    value.extract::<f64>().is_ok_and(|number| number.to_bits() == (-1.0_f64).to_bits())
}

/// Every option: its name, default (in seconds where it is a time) and meaning.
pub(crate) fn listed(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let list = PyDict::new(py);
    for option in Policy::options() {
        let default = match option.default {
            OptionDefault::Time(time) => time.as_secs_f64().into_pyobject(py)?.into_any(),
            OptionDefault::Number(number) => number.into_pyobject(py)?.into_any(),
            OptionDefault::Flag(flag) => flag.into_pyobject(py)?.to_owned().into_any(),
            OptionDefault::Word(word) => word.into_pyobject(py)?.into_any(),
            OptionDefault::Unset => py.None().into_bound(py),
        };
        list.set_item(option.name, (default, option.meaning))?;
    }
    Ok(list)
}

fn apply(builder: PolicyBuilder, name: &str, value: &Bound<'_, PyAny>) -> PyResult<PolicyBuilder> {
    let Some(option) = Policy::options().iter().find(|option| option.name == name) else {
        return Err(config(value.py(), format!("there is no option '{name}'")));
    };
    Ok(match option.kind {
        OptionKind::Time(set) | OptionKind::Bound(set) => set(builder, seconds(name, value)?),
        OptionKind::Limit(set) if name == "timeout" => set(builder, timeout(value)?),
        OptionKind::Limit(set) => set(builder, Some(seconds(name, value)?)),
        OptionKind::Number(set) => set(builder, factor(name, value)?),
        OptionKind::Count(set) => set(builder, Some(count(name, value)?)),
        OptionKind::Flag(set) => set(builder, flag(name, value)?),
        OptionKind::Word(set) => set(builder, &text(name, value)?)
            .map_err(|error: ConfigError| raised(value.py(), &error.into()))?,
    })
}
