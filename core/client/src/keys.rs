//! The names of keys on a node. Owns the names that other libraries and versions must agree on;
//! knows nothing of the values.

use std::borrow::Cow;

use quorlock_protocol::Resource;

/// The lock key: the resource's name, as every Redlock library spells it, behind the node's prefix.
pub(crate) fn lock_key<'a>(prefix: &str, resource: &'a Resource) -> Cow<'a, str> {
    if prefix.is_empty() {
        Cow::Borrowed(resource.as_str())
    } else {
        Cow::Owned(format!("{prefix}{resource}"))
    }
}

/// The key of the node's table of fences, one for all names and prefixes: a sorted set of buckets,
/// whose scores are the highest fencing tokens that were granted or asked for in them.
pub(crate) const FENCES_KEY: &str = "quorlock:{node}:fences";

/// The key of the queue for a lock key: a sorted set of waiters by the time when they came.
pub(crate) fn queue_key(lock_key: &str) -> String {
    beside("quorlock:queue:", lock_key)
}

/// The key that tells until when each place in the queue counts: a sorted set of the same waiters.
pub(crate) fn lives_key(lock_key: &str) -> String {
    beside("quorlock:alive:", lock_key)
}

/// A key of our own that belongs to `lock_key` and to no other.
///
/// A server that is part of a cluster runs a script only if all keys are in one hash slot. The slot of a key is that of
/// its hash tag, if it has one: what stands between its first `{` and the next `}`, unless that is nothing. So the
/// hash tag is the lock key's own, or else the whole lock key. Only if that holds a `}` it cannot be a tag: then the
/// slots differ, and only a cluster refuses the script.
///
/// No two lock keys share a key: the first form is that of a lock key with a tag, which has a `}` besides the last one
/// of the prefix, the second has a single `}`, and the third has no tag.
fn beside(prefix: &str, lock_key: &str) -> String {
    match hash_tag(lock_key) {
        Some(tag) => format!("{prefix}{{{tag}}}:{lock_key}"),
        None if !lock_key.contains('}') => format!("{prefix}{{{lock_key}}}"),
        None => format!("{prefix}{lock_key}"),
    }
}

/// The part of a key that decides on its hash slot, if that is not the whole key.
fn hash_tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    Some(tag).filter(|tag| !tag.is_empty())
}

/// The channel to which servers send news for the waiters of `process`.
pub(crate) fn wake_channel(process: u64) -> String {
    format!("{WAKE_CHANNEL}{process:016x}")
}

/// What every such channel begins with.
pub(crate) const WAKE_CHANNEL: &str = "quorlock:wake:";

/// The number of buckets, which limits the table to 1.5 MB.
const BUCKETS: u64 = 16_384;

/// The bucket of a lock key, by its FNV-1a hash of 64 bits. Names that share one share their fence, which does no
/// harm: a fence is only ever raised.
pub(crate) fn bucket(lock_key: &str) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    lock_key.bytes().fold(0xcbf2_9ce4_8422_2325, mix) % BUCKETS
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Every version and binding must compute the same bucket.
    #[test]
    fn a_name_keeps_its_bucket() {
        // The FNV-1a hashes of the empty text, of "a" and of "foobar", as its authors publish them.
        for (name, hash) in [
            ("", 0xcbf2_9ce4_8422_2325_u64),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            assert_eq!(bucket(name), hash % 16_384);
        }
    }

    /// Every version and binding must use the same queue.
    #[test]
    fn a_queue_is_in_the_hash_slot_of_its_lock_key() {
        for (lock_key, queue) in [
            ("invoice:42", "quorlock:queue:{invoice:42}"),
            ("app:a b", "quorlock:queue:{app:a b}"),
            ("{user:7}:cart", "quorlock:queue:{user:7}:{user:7}:cart"),
            ("a{b}{c}", "quorlock:queue:{b}:a{b}{c}"),
            ("a{b", "quorlock:queue:{a{b}"),
            ("a{{b}", "quorlock:queue:{{b}:a{{b}"),
        ] {
            assert_eq!(queue_key(lock_key), queue);
            let slot_of = |key| hash_tag(key).map_or(key.to_owned(), str::to_owned);
            assert_eq!(slot_of(queue), slot_of(lock_key), "{lock_key}");
        }
        assert_eq!(queue_key("{}a"), "quorlock:queue:{}a");
        assert_eq!(queue_key("a}b"), "quorlock:queue:a}b");
        assert_eq!(lives_key("r"), "quorlock:alive:{r}");
    }

    #[test]
    fn no_two_lock_keys_share_a_queue() {
        // All texts of one to six of these characters; no name is empty.
        let mut names = vec![String::new()];
        for length in 0..6 {
            let longest: Vec<_> = names.iter().filter(|it| it.len() == length).cloned().collect();
            names.extend(
                longest.iter().flat_map(|it| ["a", "{", "}", ":"].map(|c| format!("{it}{c}"))),
            );
        }
        names.remove(0);
        let queues: HashSet<_> = names.iter().map(|it| queue_key(it)).collect();
        assert_eq!(queues.len(), names.len());
    }

    #[test]
    fn the_channel_has_the_process_in_hex() {
        assert_eq!(wake_channel(0xab), "quorlock:wake:00000000000000ab");
    }

    #[test]
    fn the_prefix_stands_before_the_name() {
        let resource = Resource::new("r").unwrap();
        assert_eq!(lock_key("", &resource), "r");
        assert_eq!(lock_key("app:", &resource), "app:r");
    }
}
