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

/// A key in the hash slot of `lock_key`, so that one script may use both on a cluster's node.
///
/// A name with a brace may have a hash tag of its own, which then stands alone before the name; no name without
/// braces makes such a key.
fn beside(purpose: &str, lock_key: &str) -> String {
    if !lock_key.contains(['{', '}']) {
        return format!("{purpose}{{{lock_key}}}");
    }
    let tag = lock_key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    let tag = tag.map(|(tag, _)| tag).filter(|tag| !tag.is_empty()).unwrap_or(lock_key);
    format!("{purpose}{{{tag}}}:{lock_key}")
}

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

    /// Every version and binding must name the same queue.
    #[test]
    fn a_queue_lies_in_the_slot_of_its_lock_key() {
        for (name, queue) in [
            ("r", "quorlock:queue:{r}"),
            ("user:{42}:cart", "quorlock:queue:{42}:user:{42}:cart"),
            ("{}r", "quorlock:queue:{{}r}:{}r"),
            ("r}", "quorlock:queue:{r}}:r}"),
        ] {
            assert_eq!(queue_key(name), queue);
        }
        assert_eq!(lives_key("r"), "quorlock:alive:{r}");
    }

    #[test]
    fn the_prefix_stands_before_the_name() {
        let resource = Resource::new("r").unwrap();
        assert_eq!(lock_key("", &resource), "r");
        assert_eq!(lock_key("app:", &resource), "app:r");
    }
}
