//! What a server says about itself. Owns the parsing of INFO, ROLE and CLUSTER NODES; decides
//! nothing.

use std::sync::Arc;

use quorlock_protocol::{Identity, Membership};
use redis::Value;

use crate::address::{self, Address};
use crate::redis_node::transport::plain;

/// What is read of a server when a connection is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Facts {
    /// Who it is; empty if this user may not ask.
    identity: Identity,
    /// Whether it says that it is a node of a Redis Cluster.
    has_cluster: bool,
    /// Whether the user says that every change is on disk before it is answered.
    is_declared_durable: bool,
    has_log: bool,
    is_loading: bool,
    deletion: Option<Deletion>,
    /// What changes when the server takes its keys from elsewhere in one run.
    lineage: Option<Arc<str>>,
    /// The setting `appendfsync`, where this user may ask for it.
    syncs: Option<String>,
}

/// The server's own command that deletes a key if it holds a value: cheaper than a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deletion {
    /// `DELIFEQ key value`, of Valkey 9.0 and later.
    DelIfEq,
    /// `DELEX key IFEQ value`, of Redis 8.4 and later.
    DelEx,
}

impl Facts {
    /// Adds what the user says of the node at `address`.
    pub(crate) fn at(mut self, address: &Address) -> Self {
        self.identity.listed_as = address.host_and_port();
        self.is_declared_durable = address.is_durable();
        self
    }

    /// Who the server is.
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// A value that changes when the server takes its keys from elsewhere in one run: which master
    /// it followed last, and how many keys it last read from a file or from its master. `None` if
    /// this user may not ask.
    pub(super) fn lineage(&self) -> Option<Arc<str>> {
        self.lineage.clone()
    }

    /// Whether CLUSTER NODES would tell more.
    pub(super) fn has_cluster(&self) -> bool {
        self.has_cluster
    }

    /// Whether the server writes every change to disk before it answers, by its own word or the
    /// user's.
    pub(super) fn is_durable(&self) -> bool {
        self.is_declared_durable || (self.has_log && self.syncs.as_deref() == Some("always"))
    }

    /// How the server deletes a key by its value, if it has a command for that.
    pub(super) fn deletion(&self) -> Option<Deletion> {
        self.deletion
    }

    /// Whether the server still reads its keys from disk. Until it has, it says that it keeps no log.
    pub(super) fn is_loading(&self) -> bool {
        self.is_loading
    }

    /// Takes what ROLE said of a replica's master.
    pub(super) fn learn_master(&mut self, master: Option<(&[u8], i64)>) {
        self.identity.follows = master
            .map(|(host, port)| place(&String::from_utf8_lossy(host), &port.to_string()))
            .map(|place| place.unwrap_or_else(|| "an unknown server".into()));
    }

    /// Reads the reply to `CONFIG GET appendfsync`.
    pub(super) fn learn_sync(&mut self, reply: &Value) {
        if let Value::Array(parts) = reply
            && let [_, Value::BulkString(setting)] = parts.as_slice()
        {
            self.syncs = Some(String::from_utf8_lossy(setting).into_owned());
        }
    }

    /// Parses the reply to INFO; a user who may not ask learns nothing.
    pub(super) fn renew(&mut self, reply: &Value) {
        let info = match reply {
            Value::BulkString(bytes) => String::from_utf8_lossy(bytes),
            _ => return,
        };
        let field = |name: &str| {
            let mut fields = info.lines().filter_map(|line| line.trim_end().split_once(':'));
            fields.find(|(it, _)| *it == name).map(|(_, value)| value)
        };
        let name = |field: Option<&str>| field.filter(|it| is_name(it)).map(Arc::from);
        let may_evict = field("maxmemory").is_some_and(|limit| limit != "0");
        let policy = field("maxmemory_policy").filter(|it| may_evict && *it != "noeviction");
        let master = field("master_host").zip(field("master_port"));
        self.is_loading = field("loading") == Some("1");
        if !self.is_loading {
            self.has_log = field("aof_enabled") == Some("1");
        }
        let since = |name, first| field(name).and_then(version).is_some_and(|it| it >= first);
        self.deletion = match field("valkey_version") {
            Some(_) => since("valkey_version", (9, 0)).then_some(Deletion::DelIfEq),
            None => since("redis_version", (8, 4)).then_some(Deletion::DelEx),
        };
        self.has_cluster = field("cluster_enabled") == Some("1");
        // `master_replid` itself changes when a first replica comes, which does no harm.
        let followed = name(field("master_replid2")).unwrap_or_else(|| "0".into());
        let loaded = field("rdb_last_load_keys_loaded").and_then(|it| it.parse::<u64>().ok());
        self.lineage = Some(format!("{followed}:{}", loaded.unwrap_or(0)).into());
        let known = &mut self.identity;
        known.run = name(field("run_id"));
        known.history = name(field("master_replid"));
        known.follows = master.and_then(|(host, port)| place(host, port));
        known.evicts_by = policy.map(|it| plain(it).into());
    }

    /// Parses the reply to CLUSTER NODES; a user who may not ask learns nothing.
    pub(super) fn learn_cluster(&mut self, reply: &Value) {
        let Value::BulkString(lines) = reply else {
            return;
        };
        let lines = String::from_utf8_lossy(lines);
        let members = || {
            let words = lines.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
            words.filter(|words| words.len() > FLAGS)
        };
        let own = members().find(|words| words[FLAGS].split(',').any(|flag| flag == "myself"));
        self.identity.cluster = own.map(|words| Membership {
            own: words[NAME].into(),
            all: members().map(|words| Arc::from(words[NAME])).collect(),
        });
    }
}

/// Whether a text is a real name: proxies and look-alikes send placeholders.
fn is_name(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic()) && text.bytes().any(|byte| byte != b'0')
}

/// The first two numbers of a version.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn place(host: &str, port: &str) -> Option<Arc<str>> {
    let (host, port) = (plain(host), port.parse::<u16>().ok()?);
    (!host.is_empty()).then(|| address::join(&host, port))
}

/// The positions of words in a line of CLUSTER NODES.
const NAME: usize = 0;
const FLAGS: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(address: &str, info: &str) -> Facts {
        let mut facts = Facts::default().at(&address.parse().expect("an address"));
        facts.renew(&Value::BulkString(info.replace('\n', "\r\n").into_bytes()));
        facts
    }

    #[test]
    fn a_master_says_who_it_is() {
        let info = "# Server\nrun_id:4f2a\n# Replication\nrole:master\nmaster_replid:9c\n";
        let facts = facts("redis://Host:7000", info);
        let expected = Identity {
            run: Some("4f2a".into()),
            history: Some("9c".into()),
            listed_as: Some("host:7000".into()),
            ..Identity::default()
        };
        assert_eq!(facts.identity(), &expected);
        assert!(!facts.has_cluster() && !facts.is_durable());
    }

    #[test]
    fn a_replica_says_whom_it_follows() {
        let facts = facts("host", "role:slave\nmaster_host:LOCALHOST\nmaster_port:6380\n");
        assert_eq!(facts.identity().follows.as_deref(), Some("127.0.0.1:6380"));
    }

    #[test]
    fn what_stands_in_the_place_of_a_name_is_none() {
        for value in ["", "0000000000000000", "not known"] {
            let facts = facts("host", &format!("run_id:{value}\nmaster_replid:{value}\n"));
            assert_eq!((&facts.identity().run, &facts.identity().history), (&None, &None));
        }
    }

    #[test]
    fn only_a_server_with_a_limit_throws_keys_out() {
        let policy = |info| facts("host", info).identity().evicts_by.clone();
        assert_eq!(
            policy("maxmemory:100\nmaxmemory_policy:volatile-ttl\n").as_deref(),
            Some("volatile-ttl")
        );
        assert_eq!(policy("maxmemory:100\nmaxmemory_policy:noeviction\n"), None);
        assert_eq!(policy("maxmemory:0\nmaxmemory_policy:allkeys-lru\n"), None);
        assert_eq!(policy("maxmemory_policy:allkeys-lru\n"), None);
    }

    #[test]
    fn a_server_is_durable_if_it_or_the_user_says_so() {
        let setting = |text: &str| Value::BulkString(text.into());
        let durable = |address, log, syncs| {
            let mut facts = facts(address, log);
            facts.learn_sync(&Value::Array(vec![setting("appendfsync"), setting(syncs)]));
            facts.is_durable()
        };
        assert!(durable("host", "aof_enabled:1\n", "always"));
        assert!(!durable("host", "aof_enabled:0\n", "always"));
        assert!(!durable("host", "aof_enabled:1\n", "everysec"));
        assert!(durable("redis://host?durable=true", "aof_enabled:0\n", "everysec"));
    }

    #[test]
    fn a_server_that_loads_does_not_tell_whether_it_is_durable() {
        let mut facts = facts("host", "loading:0\naof_enabled:1\n");
        facts.syncs = Some("always".into());
        assert!(facts.is_durable() && !facts.is_loading());
        facts.renew(&Value::BulkString(b"loading:1\r\naof_enabled:0\r\n".to_vec()));
        assert!(facts.is_durable() && facts.is_loading());
    }

    #[test]
    fn a_server_has_the_commands_of_its_version() {
        let deletion = |info: &str| facts("host", info).deletion();
        let valkey =
            |own| format!("redis_version:7.2.4\nserver_name:valkey\nvalkey_version:{own}\n");
        assert_eq!(deletion(&valkey("9.0.0")), Some(Deletion::DelIfEq));
        assert_eq!(deletion(&valkey("10.1.0-rc1")), Some(Deletion::DelIfEq));
        assert_eq!(deletion(&valkey("8.1.3")), None);
        assert_eq!(deletion("redis_version:8.4.0\n"), Some(Deletion::DelEx));
        assert_eq!(deletion("redis_version:8.2.3\n"), None);
        assert_eq!(deletion("redis_version:255.255.255\n"), Some(Deletion::DelEx));
        assert_eq!(deletion("redis_version:unstable\n"), None);
        assert_eq!(deletion(""), None);
    }

    #[test]
    fn members_of_a_cluster_are_read_with_the_one_that_answers() {
        let mut facts = facts("host", "cluster_enabled:1\n");
        assert!(facts.has_cluster());
        let lines = "07c3 127.0.0.1:30004@31004,host slave e7d1 0 1426 4 connected\n\
                     e7d1 127.0.0.1:30001@31001 myself,master - 0 0 1 connected 0-5460\n\n";
        facts.learn_cluster(&Value::BulkString(lines.into()));
        let all: [Arc<str>; 2] = ["07c3".into(), "e7d1".into()];
        let expected = Membership { own: "e7d1".into(), all: all.into() };
        assert_eq!(facts.identity().cluster, Some(expected));
    }
}
