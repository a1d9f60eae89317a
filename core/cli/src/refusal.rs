//! Tells `status`, `doctor` and the other commands that ask nodes why a server refused a call: rights,
//! protected mode, writes that it does not take, or a command that it does not have. Owns the words by which that is known.

/// Whether the user may not make the call.
pub(crate) fn is_not_permitted(words: &str) -> bool {
    words.starts_with("NOPERM")
}

/// Whether the server takes no connections from other machines.
pub(crate) fn is_protected(words: &str) -> bool {
    words.contains("protected mode")
}

/// Whether the server takes no writes now: its memory is full, it cannot save its data, or too few replicas follow it.
pub(crate) fn is_unwritable(words: &str) -> bool {
    ["OOM ", "MISCONF ", "NOREPLICAS "].iter().any(|sign| words.starts_with(sign))
}

/// Whether the server does not have the command, as where it is renamed.
pub(crate) fn is_unknown_command(words: &str) -> bool {
    let words = words.to_lowercase();
    words.contains("unknown command") || words.contains("unknown subcommand")
}
