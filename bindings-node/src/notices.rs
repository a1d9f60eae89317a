//! Hands notices to JavaScript. Owns the call there; the words are the core's.

use napi::Status;
use napi::bindgen_prelude::Function;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi_derive::napi;
use quorlock::NoticeReport;

use crate::spelling;

/// Something that a person should know.
#[napi(object, object_from_js = false)]
pub struct Notice {
    /// A stable name, such as `quarantined`.
    pub name: &'static str,
    /// A sentence or two.
    pub message: String,
    /// The node that it is about, without a password, if it is about one.
    pub address: Option<String>,
}

/// Weak: it does not keep the process alive.
type Call = ThreadsafeFunction<Notice, (), Notice, Status, false, true, 0>;

/// What the core is to call, on its own thread, so that `listener` is called on JavaScript's.
pub(crate) fn listener(
    listener: &Function<'_, Notice, ()>,
) -> napi::Result<impl Fn(&NoticeReport) + Send + Sync + use<>> {
    let call: Call = listener.build_threadsafe_function().weak::<true>().build()?;
    Ok(move |notice: &NoticeReport| {
        let notice = Notice {
            name: notice.name(),
            message: spelling::in_node(&notice.to_string()),
            address: notice.address().map(str::to_owned),
        };
        // An environment that has ended hears nothing.
        call.call(notice, ThreadsafeFunctionCallMode::NonBlocking);
    })
}
