//! Stands in for `uv.rs` on systems where no descriptor tells that the core has work. Owns an empty
//! type.

use std::convert::Infallible;
use std::ffi::c_int;
use std::time::Duration;

use napi::Env;
use napi::bindgen_prelude::Function;

/// A watch that can never exist.
pub(crate) struct DescriptorWatch(Infallible);

impl DescriptorWatch {
    pub(crate) fn new(
        _env: Env,
        _descriptor: c_int,
        _call: &Function<'_, (), ()>,
        _look: impl Fn() -> (bool, bool) + 'static,
    ) -> Option<Self> {
        None
    }

    pub(crate) fn start(&self) {
        match self.0 {}
    }

    pub(crate) fn stop(&self) {
        match self.0 {}
    }

    pub(crate) fn idle_time(&self) -> Duration {
        match self.0 {}
    }
}
