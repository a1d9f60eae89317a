//! The Lua scripts, and the digests by which the server knows them. Owns the texts.

use redis::Cmd;

/// One of the scripts; its number is its place in [`Script::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Script {
    Grant,
    Extend,
    Revoke,
    RaiseFence,
    Inspect,
}

impl Script {
    pub(super) const ALL: [Self; 5] =
        [Self::Grant, Self::Extend, Self::Revoke, Self::RaiseFence, Self::Inspect];

    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Grant => include_str!("../../scripts/grant.lua"),
            Self::Extend => include_str!("../../scripts/extend.lua"),
            Self::Revoke => include_str!("../../scripts/revoke.lua"),
            Self::RaiseFence => include_str!("../../scripts/raise_fence.lua"),
            Self::Inspect => include_str!("../../scripts/inspect.lua"),
        }
    }
}

/// The digests (SHA-1 in hex) that the server gave the scripts, by [`Script`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Digests([String; Script::ALL.len()]);

impl Digests {
    pub(super) fn new(list: Vec<String>) -> Option<Self> {
        let fits =
            |digest: &String| digest.len() == 40 && digest.bytes().all(|b| b.is_ascii_hexdigit());
        list.iter().all(fits).then_some(())?;
        list.try_into().ok().map(Self)
    }

    pub(super) fn of(&self, script: Script) -> &str {
        &self.0[script as usize]
    }
}

/// The call that gives a script to the server.
pub(super) fn load(script: Script) -> Cmd {
    let mut call = redis::cmd("SCRIPT");
    call.arg("LOAD").arg(script.text());
    call
}
