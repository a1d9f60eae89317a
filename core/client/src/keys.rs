//! What the keys of a resource are called on a node. Owns the names that other libraries and versions
//! must agree on; knows nothing of what stands in them.

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

/// The key beside `lock_key` that remembers the highest fencing token, in the same cluster hash slot.
///
/// The slot is that of the first `{...}` that is not empty, or of the whole key. (A name that has no
/// such tag but holds a '}' cannot be put into a tag; its fence lies in another slot, which matters
/// to a cluster alone.)
///
/// Three parts, which stand one after another.
pub(crate) fn fence_key(lock_key: &str) -> [&str; 3] {
    if has_hash_tag(lock_key) {
        ["quorlock:fence:", lock_key, ""]
    } else {
        ["quorlock:fence:{", lock_key, "}"]
    }
}

fn has_hash_tag(key: &str) -> bool {
    let Some((_, tail)) = key.split_once('{') else {
        return false;
    };
    matches!(tail.split_once('}'), Some((tag, _)) if !tag.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_shares_the_slot_of_its_lock() {
        for (lock, fence) in [
            ("invoice:42", "quorlock:fence:{invoice:42}"),
            ("app:{invoice:42}:x", "quorlock:fence:app:{invoice:42}:x"),
            ("a{}b", "quorlock:fence:{a{}b}"),
            ("a{b", "quorlock:fence:{a{b}"),
        ] {
            assert_eq!(fence_key(lock).concat(), fence);
        }
    }

    #[test]
    fn the_prefix_stands_before_the_name() {
        let resource = Resource::new("r").unwrap();
        assert_eq!(lock_key("", &resource), "r");
        assert_eq!(lock_key("app:", &resource), "app:r");
    }
}
