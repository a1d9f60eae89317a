//! Writes numbers as JavaScript does, and converts times to milliseconds. Knows no setting.

use std::fmt;
use std::time::Duration;

/// JavaScript's unit of time.
pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// Shows a number as `String(number)` does in JavaScript.
pub(crate) struct Js(pub(crate) f64);

impl fmt::Display for Js {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.0;
        if number.is_infinite() {
            return formatter.write_str(if number > 0.0 { "Infinity" } else { "-Infinity" });
        }
        if number == 0.0 {
            return formatter.write_str("0");
        }
        if (SMALLEST_PLAIN..LARGEST_PLAIN).contains(&number.abs()) || number.is_nan() {
            return write!(formatter, "{number}");
        }
        let text = format!("{number:e}");
        formatter.write_str(&if number.abs() < 1.0 { text } else { text.replace('e', "e+") })
    }
}

/// Below this, and from the next number on, JavaScript writes an exponent.
const SMALLEST_PLAIN: f64 = 1e-6;
const LARGEST_PLAIN: f64 = 1e21;
