//! Finds processes of the command, also those that have left its group, as under `timeout` or a shell's job
//! control. Knows no lock. Only Linux makes those whose parents have ended children of `run`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use nix::unistd::{Pid, getpgid, getpgrp, getpid, getsid};

/// Tells the command's processes from children that this process had before, as in `helper & exec
/// quorlock run ...`.
pub(super) struct Orphans {
    /// Those children, their groups, and the group of this process.
    others: Vec<Pid>,
}

/// A process of the command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Worker {
    pub(super) process: Pid,
    pub(super) group: Pid,
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
        let groups: BTreeSet<Pid> = self.in_session(self.children()).map(|it| it.group).collect();
        groups.into_iter().collect()
    }

    /// The command's processes in this session that are not stopped, in whatever group.
    pub(super) fn workers(&self) -> Vec<Worker> {
        self.members().into_iter().filter(|it| !has_state(it.process, &['T', 't'])).collect()
    }

    /// The groups of the command's processes in this session.
    pub(super) fn all_groups(&self) -> BTreeSet<Pid> {
        self.members().into_iter().map(|it| it.group).collect()
    }

    /// The groups of the command's processes in this session in which one is stopped.
    pub(super) fn stopped_groups(&self) -> BTreeSet<Pid> {
        let stopped = self.members().into_iter().filter(|it| state(it.process) == Some('T'));
        stopped.map(|it| it.group).collect()
    }

    /// Those that have not ended.
    fn members(&self) -> Vec<Worker> {
        let found = self.in_session(with_descendants(self.children()));
        found.filter(|it| !has_state(it.process, &['Z', 'X'])).collect()
    }

    /// The children of this process that come from the command.
    fn children(&self) -> Vec<Pid> {
        children().into_iter().filter(|it| !self.others.contains(it)).collect()
    }

    /// Those in this session, and in none of the groups of others.
    fn in_session(&self, processes: Vec<Pid>) -> impl Iterator<Item = Worker> {
        let session = getsid(None);
        processes
            .into_iter()
            .filter(move |it| getsid(Some(*it)) == session)
            .filter_map(|process| Some(Worker { process, group: getpgid(Some(process)).ok()? }))
            .filter(|it| !self.others.contains(&it.group))
    }
}

/// These processes, and all that descend from them.
fn with_descendants(mut found: Vec<Pid>) -> Vec<Pid> {
    let mut known: BTreeSet<Pid> = found.iter().copied().collect();
    let mut next = 0;
    while let Some(process) = found.get(next) {
        found.extend(children_of(*process).into_iter().filter(|it| known.insert(*it)));
        next += 1;
    }
    found
}

/// The children of all threads of a process.
fn children_of(process: Pid) -> Vec<Pid> {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    threads.flatten().flat_map(|thread| listed(&thread.path().join("children"))).collect()
}

/// Whether no shell could continue the group of this process, so that the system does not stop it: none of it has a parent
/// in another group of the session. Not known where the system does not list processes.
pub(super) fn is_group_orphaned() -> bool {
    let (own, session) = (getpgrp(), getsid(None));
    let Ok(list) = fs::read_dir("/proc") else { return false };
    let all = list.flatten().filter_map(|it| it.file_name().to_str()?.parse().ok());
    let mut members = all.map(Pid::from_raw).filter(|it| getpgid(Some(*it)) == Ok(own)).peekable();
    is_proc_own()
        && members.peek().is_some()
        && !members.filter_map(parent).any(|it| {
            getpgid(Some(it)).is_ok_and(|group| group != own) && getsid(Some(it)) == session
        })
}

fn parent(process: Pid) -> Option<Pid> {
    stat(process)?.split_whitespace().nth(1)?.parse().ok().map(Pid::from_raw)
}

/// Whether a process is in one of these states, by the system's letters. One that is no more is in any.
fn has_state(process: Pid, states: &[char]) -> bool {
    state(process).is_none_or(|it| states.contains(&it))
}

/// The system's letter for what a process does.
fn state(process: Pid) -> Option<char> {
    stat(process)?.trim_start().chars().next()
}

/// What the system tells of a process, from its state on. (The name before may hold anything.)
fn stat(process: Pid) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(')').map(|(_, rest)| rest.to_owned())
}

/// The children of the main thread, which get the processes whose parents have ended. None where
/// the system does not list them.
fn children() -> Vec<Pid> {
    let own = getpid();
    if !is_proc_own() {
        return Vec::new();
    }
    listed(Path::new(&format!("/proc/{own}/task/{own}/children")))
}

/// Whether the system lists the children of this process. (Elsewhere than on Linux there are none that it has not started.)
pub(super) fn are_children_listed() -> bool {
    let own = getpid();
    let has_list = || Path::new(&format!("/proc/{own}/task/{own}/children")).exists();
    cfg!(not(any(target_os = "linux", target_os = "android"))) || is_proc_own() && has_list()
}

/// In a namespace of processes without a /proc of its own, the numbers there are others'.
fn is_proc_own() -> bool {
    fs::read_link("/proc/self").ok().as_deref() == Some(Path::new(&getpid().to_string()))
}

fn listed(list: &Path) -> Vec<Pid> {
    let list = fs::read_to_string(list).unwrap_or_default();
    list.split_whitespace().filter_map(|it| it.parse().ok()).map(Pid::from_raw).collect()
}
