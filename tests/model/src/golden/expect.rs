//! Checks the expectations of a golden schedule. Owns what each of them means.

use std::time::Duration;

use quorlock_protocol::{Action, Command, HolderId, LeaseLife, LossReason, ReleaseOutcome};

use super::guards::ClientGuards;
use super::session::{Outcome, Session, Work, kind};
use super::words::number;

impl Session {
    /// Whether the words are true at this moment.
    pub(super) fn expect(&mut self, words: &[String]) -> Result<(), String> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["sent", "nothing"] if self.unexpected.is_empty() => Ok(()),
            ["sent", "nothing"] => Err(format!("sent {:?}", self.unexpected)),
            ["sent", name, nodes @ ..] => self.expect_sent(name, nodes),
            ["fresh", "holder"] => self.expect_fresh(),
            ["revoked", "round", place] => self.expect_revoked(number(place)?),
            ["proposed", token] => self.expect_proposed(number(token)?),
            ["asked", millis] => self.expect_asked(number(millis)?),
            ["pending"] if self.result == Outcome::Pending => Ok(()),
            ["won", rest @ ..] if self.result == Outcome::Won => self.expect_lease(rest),
            ["extended", rest @ ..] if self.result == Outcome::Extended => self.expect_lease(rest),
            ["until", _] => self.expect_lease(&words),
            ["error", code] => match self.result {
                Outcome::Error(kind) if kind.code() == *code => Ok(()),
                _ => self.otherwise(),
            },
            ["lost", reason] => match self.result {
                Outcome::Lost(told) if word(told) == *reason => Ok(()),
                _ => self.otherwise(),
            },
            ["outcome", wanted] => match &self.work {
                Work::Withdraw(machine) => {
                    let told = machine.outcome().map_or("none", ReleaseOutcome::name);
                    (told == *wanted).then_some(()).ok_or_else(|| format!("it is {told}"))
                }
                _ => Err("nothing was released".to_owned()),
            },
            ["says", wanted @ ..] => {
                let is_there = self.text.contains(&wanted.join(" "));
                is_there.then_some(()).ok_or_else(|| format!("it says: {}", self.text))
            }
            ["trusts", nodes @ ..] => self.expect_trusted(nodes),
            ["holds", "back", node, millis] => {
                let left = self.client_guards()?.left(number(node)?, self.boot())?;
                (left == number(millis)?).then_some(()).ok_or_else(|| format!("for {left} ms"))
            }
            ["at", "rest"] if self.result == Outcome::AtRest => Ok(()),
            _ => self.otherwise(),
        }
    }

    fn client_guards(&self) -> Result<&ClientGuards, String> {
        self.client_guards.as_ref().ok_or_else(|| "the guards are off".to_owned())
    }

    /// Whether the grants of these nodes count, and of no others.
    fn expect_trusted(&self, nodes: &[&str]) -> Result<(), String> {
        let wanted: Vec<u64> = nodes.iter().map(|node| number(node)).collect::<Result<_, _>>()?;
        let client_guards = self.client_guards()?;
        let all = 0..u64::try_from(self.nodes()).unwrap_or(u64::MAX);
        let found: Vec<u64> =
            all.filter(|it| client_guards.left(*it, self.boot()) == Ok(0)).collect();
        (found == wanted).then_some(()).ok_or_else(|| format!("it trusts {found:?}"))
    }

    fn otherwise(&self) -> Result<(), String> {
        Err(match &self.result {
            Outcome::Pending => "it is pending".to_owned(),
            other => format!("it is {other:?}"),
        })
    }

    fn expect_sent(&mut self, name: &str, nodes: &[&str]) -> Result<(), String> {
        let wanted: Vec<u64> = nodes.iter().map(|node| number(node)).collect::<Result<_, _>>()?;
        let (found, rest): (Vec<_>, Vec<_>) =
            self.unexpected.iter().partition(|(_, kind)| *kind == name);
        self.unexpected = rest;
        let found: Vec<u64> = found.iter().map(|(node, _)| u64::from(node.0)).collect();
        (found == wanted).then_some(()).ok_or_else(|| format!("{name} went to {found:?}"))
    }

    fn grants(&self) -> impl Iterator<Item = &Command> {
        let all = self.sent.iter().map(|(_, command)| command);
        all.filter(|command| kind(command) == "grant")
    }

    /// The holder ids of the rounds of grants, in order.
    fn holders(&self) -> Vec<&HolderId> {
        let mut holders: Vec<_> = self.grants().map(|it| &it.claim.holder).collect();
        holders.dedup();
        holders
    }

    fn expect_fresh(&self) -> Result<(), String> {
        match self.holders().split_last() {
            Some((last, earlier)) if !earlier.contains(last) => Ok(()),
            _ => Err("it is not".to_owned()),
        }
    }

    fn expect_revoked(&self, place: u64) -> Result<(), String> {
        let mut sent = self.sent.iter().rev().map(|(_, command)| command);
        let last = sent.find(|command| kind(command) == "revoke").ok_or("there was no revoke")?;
        let place = usize::try_from(place.max(1) - 1).unwrap_or(usize::MAX);
        let wanted = self.holders().get(place).copied();
        (wanted == Some(&last.claim.holder)).then_some(()).ok_or_else(|| "it was not".to_owned())
    }

    fn expect_proposed(&self, token: u64) -> Result<(), String> {
        let last = self.grants().last().ok_or("there was no grant")?;
        match last.action {
            Action::Grant { fence: Some(fence), .. } if fence.proposal.0 == token => Ok(()),
            action => Err(format!("it is {action:?}")),
        }
    }

    fn expect_asked(&self, millis: u64) -> Result<(), String> {
        let mut sent = self.sent.iter().rev().map(|(_, command)| &command.action);
        let asked = sent.find_map(|action| match action {
            Action::Grant { key_ttl, .. } | Action::Extend { key_ttl, .. } => {
                Some(key_ttl.as_millis())
            }
            _ => None,
        });
        let asked = asked.ok_or("no node was asked to keep anything")?;
        (asked == millis).then_some(()).ok_or_else(|| format!("it was asked for {asked} ms"))
    }

    fn expect_lease(&self, mut words: &[&str]) -> Result<(), String> {
        while let [name, value, rest @ ..] = words {
            let wanted = number(value)?;
            let found = match *name {
                "token" => {
                    self.life.as_ref().and_then(LeaseLife::fencing_token).map(|token| token.0)
                }
                "until" => self.until(),
                _ => return Err(format!("{name} is no part of a lease")),
            };
            if found != Some(wanted) {
                return Err(format!("{name} is {found:?}"));
            }
            words = rest;
        }
        Ok(())
    }

    /// Until when the lease is trusted, in whole milliseconds.
    fn until(&self) -> Option<u64> {
        let until = self.life.as_ref()?.lease()?.until();
        u64::try_from(until.since_epoch().min(Duration::from_secs(1 << 30)).as_millis()).ok()
    }
}

const fn word(reason: LossReason) -> &'static str {
    match reason {
        LossReason::Expired => "expired",
        LossReason::Gone => "gone",
        LossReason::HeldTooLong => "held-too-long",
    }
}
