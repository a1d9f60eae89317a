//! Finds processes of the command that have left its group, as under `timeout` or a shell's job
//! control, and whose parents have ended. Knows no lock. Only Linux makes them children of `run`.

use std::fs;
use std::path::Path;

use nix::unistd::{Pid, getpgid, getpgrp, getpid, getsid};

/// Tells the command's processes from children that this process had before, as in `helper & exec
/// quorlock run ...`.
pub(super) struct Orphans {
    /// Those children, their groups, and the group of this process.
    others: Vec<Pid>,
}

impl Orphans {
    /// To be called before the command is started.
    pub(super) fn before_start() -> Self {
        let mut others = children();
        let groups: Vec<Pid> = others.iter().filter_map(|it| getpgid(Some(*it)).ok()).collect();
        others.extend(groups);
        others.push(getpgrp());
        Self { others }
    }

    /// The groups of the children in this session. Who has called `setsid` is no longer in it.
    pub(super) fn groups(&self) -> Vec<Pid> {
        let session = getsid(None);
        let mut groups: Vec<Pid> = children()
            .into_iter()
            .filter(|it| !self.others.contains(it) && getsid(Some(*it)) == session)
            .filter_map(|it| getpgid(Some(it)).ok())
            .filter(|it| !self.others.contains(it))
            .collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }
}

/// The children of the main thread, which get the processes whose parents have ended. None where
/// the system does not list them.
fn children() -> Vec<Pid> {
    let own = getpid();
    // In a namespace of processes without a /proc of its own, the numbers there are others'.
    if fs::read_link("/proc/self").ok().as_deref() != Some(Path::new(&own.to_string())) {
        return Vec::new();
    }
    let list = fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|it| it.parse().ok()).map(Pid::from_raw).collect()
}
