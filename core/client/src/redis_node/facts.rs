//! What a server says of itself. Owns the reading of INFO; decides nothing.

use std::sync::Arc;

use redis::Value;

/// What is read of a server when a connection is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// A new one with each start of the server; `None` if this user may not ask.
    pub(super) run: Option<Arc<str>>,
    /// Whether it writes every change to disk before it answers.
    pub(super) is_durable: bool,
    /// The setting `appendfsync`, where this user may ask for it.
    syncs: Option<String>,
}

impl Facts {
    /// Reads the reply to `CONFIG GET appendfsync`; to be called before [`Self::renew`].
    pub(super) fn learn_sync(&mut self, reply: &Value) {
        if let Value::Array(parts) = reply
            && let [_, Value::BulkString(setting)] = parts.as_slice()
        {
            self.syncs = Some(String::from_utf8_lossy(setting).into_owned());
        }
    }

    /// Reads the reply to INFO; a user who may not ask knows nothing.
    pub(super) fn renew(&mut self, reply: &Value) {
        let info = match reply {
            Value::BulkString(bytes) => String::from_utf8_lossy(bytes),
            _ => return,
        };
        let field = |name: &str| {
            let mut fields = info.lines().filter_map(|line| line.trim_end().split_once(':'));
            fields.find(|(it, _)| *it == name).map(|(_, value)| value)
        };
        let has_log = field("aof_enabled") == Some("1");
        self.run = field("run_id").map(Arc::from);
        self.is_durable = has_log && self.syncs.as_deref() == Some("always");
    }
}
