//! A value of an event or a figure in a form that every language can convert. Owns the form; knows
//! no language.

use std::time::Duration;

use crate::error::NodeReport;

/// A value for another language: a binding converts these kinds, and thereby every event and
/// figure that there is.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// It does not apply.
    None,
    /// A yes or no.
    Flag(bool),
    /// How many, or a number that identifies something.
    Count(u64),
    /// A number, or a time in seconds where its name ends with `_seconds`.
    Number(f64),
    /// A length of time, in the unit of the language.
    Time(Duration),
    /// A text.
    Text(String),
    /// What every node did in a round.
    Votes(Vec<NodeReport>),
    /// Several values in order.
    List(Vec<Self>),
    /// Counts by a word that is a value itself, such as an outcome.
    Counts(Vec<(&'static str, u64)>),
    /// Values by name.
    Map(Vec<(&'static str, Self)>),
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::None, Into::into)
    }
}

impl From<Duration> for Value {
    fn from(time: Duration) -> Self {
        Self::Time(time)
    }
}

impl From<u64> for Value {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}
