//! Passes notices to JavaScript. Owns the call into its thread; the words come from the core.

use napi::Status;
use napi::bindgen_prelude::Function;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi_derive::napi;
use quorlock::NoticeReport;

use crate::spelling;

/// An event that a person should know.
#[napi(object, object_from_js = false)]
pub struct Notice {
    /// A stable name, such as `quarantined`.
    pub name: &'static str,
    /// A sentence or two.
    pub message: String,
    /// The node that it is about, without a password, if it is about one.
    pub address: Option<String>,
    /// Whether another manager of the process has told the same outage of a node.
    pub is_repeat: bool,
}

/// Weak: it does not keep the process alive.
type Call = ThreadsafeFunction<Notice, (), Notice, Status, false, true, 0>;

/// The function for the core to call on its own thread; it makes JavaScript's thread call
/// `listener`.
pub(crate) fn listener(
    listener: &Function<'_, Notice, ()>,
) -> napi::Result<impl Fn(&NoticeReport) + Send + Sync + use<>> {
    let call: Call = listener.build_threadsafe_function().weak::<true>().build()?;
    Ok(move |notice: &NoticeReport| {
        let notice = Notice {
            name: notice.name(),
            message: spelt(notice),
            address: notice.address().map(str::to_owned),
            is_repeat: notice.is_repeat(),
        };
        // For an environment that has ended, nothing happens.
        call.call(notice, ThreadsafeFunctionCallMode::NonBlocking);
    })
}

/// Its sentence, with the user's own settings as Node writes them.
fn spelt(notice: &NoticeReport) -> String {
    let text = notice.to_string();
    match notice.name() {
        "long-lock" => spelling::with_times(&text),
        _ => spelling::in_node(&text),
    }
}
