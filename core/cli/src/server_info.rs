//! What a server's reply to INFO says. Owns how it is read.

use quorlock::ServerReply;

/// A reply to INFO; without fields where the user may not ask.
#[derive(Clone, Copy)]
pub(crate) struct ServerInfo<'a>(&'a str);

impl<'a> ServerInfo<'a> {
    pub(crate) fn of(reply: &'a ServerReply) -> Self {
        Self(reply.text().unwrap_or_default())
    }

    pub(crate) fn field(self, name: &str) -> Option<&'a str> {
        let mut fields = self.0.lines().filter_map(|line| line.trim_end().split_once(':'));
        fields.find(|(it, _)| *it == name).map(|(_, value)| value)
    }

    pub(crate) fn number(self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }

    /// The id of the running server: another after each start. Servers that hide it show something
    /// else in its place.
    pub(crate) fn run_id(self) -> Option<&'a str> {
        let is_id = |run: &&str| {
            run.bytes().all(|byte| byte.is_ascii_alphanumeric())
                && !run.trim_matches('0').is_empty()
        };
        self.field("run_id").filter(is_id)
    }

    pub(crate) fn is_replica(self) -> bool {
        self.field("role") == Some("slave")
    }
}
