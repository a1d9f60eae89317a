//! Writes the sentences in which errors tell people how an operation ended. Owns the wording;
//! decides nothing.

mod notices;

use std::fmt::Write as _;
use std::time::Duration;

use crate::command::{Answer, Frees};
use crate::error::ErrorKind;
use crate::fault::{Fault, FaultKind};
use crate::identity::Resources;
use crate::quorum::{Quorum, Vote};
use crate::round::{NodeVote, RoundReport};

/// Everything that the message about a failed operation may mention.
#[derive(Clone, Copy, Debug)]
pub struct Failure<'a> {
    /// What kind of failure.
    pub kind: ErrorKind,
    /// What was to be locked, extended or checked.
    pub resources: &'a Resources,
    /// The last round's votes; may be empty.
    pub report: &'a RoundReport,
    /// The nodes' addresses, without passwords, in the order of the votes.
    pub addresses: &'a [&'a str],
    /// How many rounds were begun.
    pub attempts: u32,
    /// How long it took.
    pub elapsed: Duration,
}

impl Failure<'_> {
    /// One or two sentences: what happened, to which resource and nodes, and what to do.
    pub fn explain(&self) -> String {
        let names = self.resources;
        match self.kind {
            ErrorKind::NotAcquired => format!("{names} is held by another: {}", self.refusals()),
            ErrorKind::AcquireTimedOut => format!(
                "gave up waiting for {names} after {} and {}: held by another: {}",
                seconds(self.elapsed),
                plural(self.attempts, "attempt"),
                self.refusals()
            ),
            ErrorKind::QuorumUnreachable => format!(
                "no quorum for {names}: {} of {} nodes are needed, {}",
                self.quorum().size(),
                self.addresses.len(),
                self.faults()
            ),
            ErrorKind::LeaseLost => format!(
                "the lease on {names} is lost{}; work since its end may overlap another holder's",
                self.loss()
            ),
            ErrorKind::LockNotHeld => format!("{names} is not held: there is no lease to act on"),
            ErrorKind::Config => format!("a setting for {names} is wrong"),
            ErrorKind::Cancelled => format!("the operation on {names} was cancelled"),
            ErrorKind::Closed => format!("{names}: the lock manager is closed; make a new one"),
        }
    }

    const fn quorum(&self) -> Quorum {
        Quorum::of(self.addresses.len())
    }

    /// `3 of 5 nodes refused, free in at most 4.2 s`.
    fn refusals(&self) -> String {
        if self.report.votes.is_empty() {
            return "others held it or waited for it before".into();
        }
        let tally = self.report.tally();
        let mut text = format!("{} of {} nodes refused", tally.refused, self.addresses.len());
        if tally.granted > 0 {
            let _ = write!(text, ", {} granted", tally.granted);
        }
        if tally.failed > 0 {
            let _ = write!(text, ", {} failed ({})", tally.failed, self.list_faults());
        }
        let frees = self.report.votes.iter().filter_map(|vote| match vote.answer {
            Some(Ok(Answer::Theirs { frees, .. })) => Some(frees),
            _ => None,
        });
        let (mut longest, mut never) = (None, 0_u32);
        for free in frees {
            match free {
                Frees::In(time) => longest = longest.max(Some(time)),
                Frees::Never => never += 1,
                Frees::Unknown => {}
            }
        }
        let without_end = never as usize + tally.failed + tally.missing;
        if never > 0 && self.quorum().is_blocked_by(without_end) {
            let _ = write!(
                text,
                "; on {} the key has no ttl (another program made it): it will not expire, delete it \
                 if its owner is gone",
                plural(never, "node")
            );
        } else if let Some(time) = longest {
            let _ = write!(text, "; free in at most {} unless extended", seconds(time));
        }
        text
    }

    /// `: 2 of 3 nodes have no key of it`, or what prevented a quorum until the lease ended.
    fn loss(&self) -> String {
        let (tally, nodes) = (self.report.tally(), self.addresses.len());
        let absent = self.absent();
        let others = tally.refused - absent;
        match (others, absent) {
            _ if self.report.votes.is_empty() => String::new(),
            _ if !self.quorum().is_blocked_by(tally.refused) => {
                format!(": no quorum of {nodes} nodes kept it, {}", self.faults())
            }
            (_, 0) => format!(": on {others} of {nodes} nodes another holds it"),
            (0, _) => format!(": {absent} of {nodes} nodes have no key of it"),
            _ => format!(
                ": on {others} of {nodes} nodes another holds it, {absent} have no key of it"
            ),
        }
    }

    /// How many nodes have no key of the lease: any other client can take the key there.
    fn absent(&self) -> usize {
        let is_absent = |vote: &&NodeVote| vote.answer == Some(Ok(Answer::Absent));
        self.report.votes.iter().filter(is_absent).count()
    }

    /// `2 granted, 3 failed (redis://a:6379, redis://b:6379: connection refused; ...)`.
    fn faults(&self) -> String {
        let tally = self.report.tally();
        let absent = self.absent();
        let is_late = tally.granted >= self.quorum().size();
        let counts = [
            (tally.granted, if is_late { "granted, but too late" } else { "granted" }),
            (tally.refused - absent, "refused"),
            (absent, "without a key of it"),
        ];
        let told = counts.iter().enumerate();
        // "0 granted" is told, too, unless the nodes were only asked what they hold.
        let told = told.filter(|(place, (count, _))| *count > 0 || (*place == 0 && absent == 0));
        let told: Vec<_> = told.map(|(_, (count, what))| format!("{count} {what}")).collect();
        let mut text = told.join(", ");
        let is_open = !self.quorum().is_blocked_by(tally.refused + tally.failed);
        if tally.missing > 0 && is_open {
            let _ = write!(text, ", {} had not answered", tally.missing);
        }
        let (quarantined, ends) = self.quarantine();
        if quarantined > 0 {
            let nodes = self.addresses.len();
            let _ = write!(text, ", {quarantined} of {nodes} nodes in quarantine");
            if let Some(left) = ends {
                let _ = write!(text, ", {} left", seconds(left));
            }
        }
        let others = tally.failed - quarantined;
        match (others, tally.failed) {
            (_, 0) => {}
            (0, _) => {
                let _ = write!(text, " ({})", self.list_faults());
            }
            _ => {
                let _ = write!(text, ", {others} failed ({})", self.list_faults());
            }
        }
        if tally.missing > 0 && !is_open {
            let _ = write!(text, "; {} more could not change that", tally.missing);
        }
        if !self.report.stood_still.is_zero() {
            let lost = seconds(self.report.stood_still);
            let _ = write!(text, "; this process stood still for {lost} or more, or was too busy");
        }
        text
    }

    /// How many nodes' grants are held back, and after what time enough of them count again for a
    /// quorum.
    fn quarantine(&self) -> (usize, Option<Duration>) {
        let faults =
            || self.report.votes.iter().filter_map(|vote| vote.answer.as_ref()?.as_ref().err());
        let is_quarantined = |fault: &&Fault| fault.kind() == FaultKind::Quarantined;
        let quarantined = faults().filter(is_quarantined).count();
        let mut left: Vec<_> = faults().filter(is_quarantined).filter_map(Fault::lasts).collect();
        left.sort_unstable();
        let usable = self.addresses.len().saturating_sub(faults().count());
        let wanted = self.quorum().size().saturating_sub(usable).max(1);
        (quarantined, left.get(wanted - 1).copied())
    }

    fn list_faults(&self) -> String {
        let votes = self.report.votes.iter().zip(self.addresses);
        Fault::list(votes.filter_map(|(vote, address)| match (vote.vote, &vote.answer) {
            (Vote::Failed, Some(Err(fault))) => Some((*address, fault)),
            _ => None,
        }))
    }
}

/// `4.2 s` or `35 ms`.
fn seconds(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{} ms", time.as_millis())
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}

fn plural(count: u32, word: &str) -> String {
    if count == 1 { format!("1 {word}") } else { format!("{count} {word}s") }
}
