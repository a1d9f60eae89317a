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

    #[test]
    fn the_prefix_stands_before_the_name() {
        let resource = Resource::new("r").unwrap();
        assert_eq!(lock_key("", &resource), "r");
        assert_eq!(lock_key("app:", &resource), "app:r");
    }
}
