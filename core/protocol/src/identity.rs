//! The names of resources, nodes, holders and fencing tokens. Owns the rules that make a name
//! valid.

use std::fmt;
use std::sync::Arc;

use crate::error::ConfigError;
use crate::shown::plain_line;

/// What is protected: the name of a lock, and (with an optional prefix) the key on every node.
///
/// ```
/// use quorlock_protocol::Resource;
///
/// assert_eq!(Resource::new("invoice:42")?.as_str(), "invoice:42");
/// assert!(Resource::new("").is_err());
/// # Ok::<(), quorlock_protocol::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource(Arc<str>);

impl Resource {
    /// The longest name, in bytes of UTF-8.
    pub const MAX_BYTES: usize = 4096;

    /// The prefix of the keys that nodes keep for this library itself. No lock key may begin with
    /// it.
    pub const RESERVED: &str = "quorlock:";

    /// A resource called `name`.
    ///
    /// # Errors
    /// [`ConfigError`] if the name is empty, longer than [`Self::MAX_BYTES`], or begins with [`Self::RESERVED`].
    pub fn new(name: &str) -> Result<Self, ConfigError> {
        if name.starts_with(Self::RESERVED) {
            return Err(ConfigError::new(format!(
                "a resource name must not begin with {:?}, as the keys do that the library keeps for itself: \
                 {name:?}",
                Self::RESERVED
            )));
        }
        match name.len() {
            0 => Err(ConfigError::new("a resource name must not be empty")),
            1..=Self::MAX_BYTES => Ok(Self(name.into())),
            length => Err(ConfigError::new(format!(
                "a resource name must not be longer than {} bytes; this one has {length}",
                Self::MAX_BYTES
            ))),
        }
    }

    /// The name as the user gave it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The random value of one round, and the value of the key on the nodes.
///
/// A fresh id is drawn for every round, also when a round is repeated: if several rounds shared one
/// id, a late revoke of the first would delete the key of the second.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HolderId(Box<str>);

impl HolderId {
    /// The number of random bytes behind a fresh id.
    pub const RANDOM_BYTES: usize = 20;
    /// The longest id that can be adopted, in bytes.
    pub const MAX_BYTES: usize = 1024;

    /// The id that spells `random` in lowercase hex; the bytes must come from a cryptographic
    /// source.
    pub fn fresh(random: [u8; Self::RANDOM_BYTES]) -> Self {
        let mut text = [0; 2 * Self::RANDOM_BYTES];
        for (digits, byte) in text.chunks_exact_mut(2).zip(random) {
            digits.copy_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
        Self(std::str::from_utf8(&text).expect("hex digits are ASCII").into())
    }

    /// Takes an id that another process (or another Redlock library) drew and handed over.
    ///
    /// # Errors
    /// [`ConfigError`] if it is empty or longer than [`Self::MAX_BYTES`].
    pub fn adopt(token: &str) -> Result<Self, ConfigError> {
        match token.len() {
            1..=Self::MAX_BYTES => Ok(Self(token.into())),
            0 => Err(ConfigError::new("a lease token must not be empty")),
            length => Err(ConfigError::new(format!(
                "a lease token must not be longer than {} bytes; this one has {length}",
                Self::MAX_BYTES
            ))),
        }
    }

    /// The id as it is stored in the key.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";

impl fmt::Display for HolderId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The subject of one round: all its resources together, and the id of the client that wants to
/// hold them.
///
/// Shared by every command of the round and of the lease that it may win.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claim {
    /// The resources, in the order given, without duplicates.
    pub resources: Resources,
    /// The value that the keys have while the claim is granted.
    pub holder: HolderId,
}

/// One or more distinct resources that are locked all together or not at all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resources(Names);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Names {
    /// A single resource without a list: nearly all locks are on one.
    One(Resource),
    Many(Arc<[Resource]>),
}

impl Resources {
    /// The largest number of resources in one lock.
    pub const MAX_COUNT: usize = 1000;

    /// The resources called `names`, in that order.
    ///
    /// # Errors
    /// [`ConfigError`] if there is none, one is invalid or named twice, or there are more than
    /// [`Self::MAX_COUNT`].
    pub fn new<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Result<Self, ConfigError> {
        let mut names = names.into_iter().map(|name| Resource::new(name.as_ref()));
        let first = names
            .next()
            .ok_or_else(|| ConfigError::new("a lock needs at least one resource"))??;
        let Some(second) = names.next() else {
            return Ok(Self(Names::One(first)));
        };
        let list: Vec<_> =
            [Ok(first), second].into_iter().chain(names).collect::<Result<_, _>>()?;
        let mut sorted: Vec<&Resource> = list.iter().collect();
        sorted.sort();
        let mut pairs = sorted.windows(2);
        if let Some([twice, _]) = pairs.find(|pair| matches!(pair, [one, next] if one == next)) {
            return Err(ConfigError::new(format!("resource '{twice}' is named twice")));
        }
        if list.len() > Self::MAX_COUNT {
            return Err(ConfigError::new(format!(
                "a lock takes at most {} resources, not {}",
                Self::MAX_COUNT,
                list.len()
            )));
        }
        Ok(Self(Names::Many(list.into())))
    }

    /// The resources as a slice; never empty.
    pub fn as_slice(&self) -> &[Resource] {
        match &self.0 {
            Names::One(name) => std::slice::from_ref(name),
            Names::Many(names) => names,
        }
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.as_slice().iter().map(Resource::as_str)
    }
}

impl fmt::Display for Resources {
    /// `'a'`, or `'a', 'b'` for several; letters that would change how the line is shown are written as in Rust's texts.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in self.names().enumerate() {
            if index > 0 {
                formatter.write_str(", ")?;
            }
            write!(formatter, "'{}'", plain_line(name))?;
        }
        Ok(())
    }
}

/// One of the N nodes, by its place in the list that the user gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u8);

impl NodeId {
    /// The largest number of nodes.
    pub const MAX_COUNT: usize = 255;

    /// The node's index in the user's list.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Every node of `count`, in order.
    pub fn all(count: usize) -> impl Iterator<Item = Self> {
        (0..count).map(|index| Self(u8::try_from(index).expect("at most NodeId::MAX_COUNT nodes")))
    }
}

/// A number that grows with every acquisition of a resource; the protected resource checks it.
///
/// Always below 2^53, so that it is exact in Lua and JavaScript.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(pub u64);

impl fmt::Display for FencingToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}
