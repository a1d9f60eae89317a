//! The Lua scripts, and the digests by which the server knows them. Owns the texts.

use redis::Cmd;

/// The text of a file of scripts.
macro_rules! lua {
    ($name:literal) => {
        include_str!(concat!("../../scripts/", $name, ".lua"))
    };
}

/// One of the scripts; its number is its place in [`Script::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    Grant,
    Extend,
    Revoke,
    RaiseFence,
    Inspect,
    /// A grant that is refused while an earlier caller waits.
    GrantFair,
    /// A revoke that calls the first waiter.
    RevokeAndCall,
}

impl Script {
    pub(crate) const ALL: [Self; 7] = [
        Self::Grant,
        Self::Extend,
        Self::Revoke,
        Self::RaiseFence,
        Self::Inspect,
        Self::GrantFair,
        Self::RevokeAndCall,
    ];

    /// Whether its keys are followed by those of the queues.
    pub(crate) const fn has_queues(self) -> bool {
        matches!(self, Self::GrantFair | Self::RevokeAndCall)
    }

    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Grant => concat!(lua!("plain"), lua!("grant")),
            Self::Extend => lua!("extend"),
            Self::Revoke => concat!(lua!("plain"), lua!("revoke")),
            Self::RaiseFence => lua!("raise_fence"),
            Self::Inspect => lua!("inspect"),
            Self::GrantFair => concat!(lua!("queue"), lua!("fair"), lua!("grant")),
            Self::RevokeAndCall => {
                concat!(
                    lua!("queue"),
                    "local function revoke()\n",
                    lua!("revoke"),
                    "end\n",
                    lua!("call")
                )
            }
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
