//! Carries out commands on a node of the world, exactly as `quorlock_protocol::Action` says. Owns
//! also the ways in which a faulty node does it wrong.

use std::time::Duration;

use quorlock_protocol::{
    Action, Answer, Command, Fence, FencingToken, Frees, Ticket, Ttl, WaitQueue,
};

use super::{Holder, Key, Site};

/// What a node is told besides the command.
pub(crate) struct Request<'a> {
    pub(crate) command: &'a Command,
    pub(crate) holder: Holder,
    pub(crate) resources: &'a [u8],
    /// The node's clock in milliseconds.
    pub(crate) clock: u64,
    /// The node's wall clock in microseconds, which proposals must be near to.
    pub(crate) wall: u64,
    pub(crate) in_time: bool,
    /// Whether it goes out for the first time.
    pub(crate) is_first: bool,
    /// Whether fences go when their retention has passed.
    pub(crate) fences_end: bool,
    /// Those of the resources.
    pub(crate) buckets: Vec<usize>,
    pub(crate) flaw: Flaw,
    /// The clients, as bits, that hear what the node's queues say.
    pub(crate) listeners: u64,
}

struct Found {
    ours: usize,
    /// The latest end of those that are another's.
    theirs: Option<u64>,
    /// The soonest end of those that are ours.
    soonest: u64,
}

/// What is wrong with the nodes, to show that the properties would notice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Nothing.
    #[default]
    None,
    /// A revoke deletes whatever is there.
    RevokesAnyones,
    /// A grant takes the free keys although others of the claim are not free.
    GrantsInPart,
    /// The fence does not step over what the node has seen.
    FenceFollowsProposal,
    /// A claim's own key refuses a grant that is sent again.
    RefusesItsOwn,
    /// A revoke is done before what was sent ahead of it.
    RevokesOvertake,
    /// A key has no end.
    NeverExpires,
    /// A grant is done whatever stands in the canary key.
    IgnoresCanary,
    /// The canary is looked at before the key is set, and not after.
    LooksAhead,
    /// A key that is the claim's already has the token that its fence shows.
    KeepsFence,
    /// No flaw of a node: what one manager has lost is added to the lease clock of every manager of its process.
    LostIsShared,
    /// No flaw of a node: a waiter that was told of a change reads the key, and does not watch it any more.
    WatchesOnce,
    /// A proposal counts however far below the node's clock it lies.
    NoFloor,
}

impl Request<'_> {
    /// The terms of a first grant, which nodes do by commands of their own if the proposal is near their clock:
    /// first the key, then the fence, then they tell what stands in the canary key, then their clock.
    pub(crate) fn native(&self) -> Option<(Ttl, Option<Fence>)> {
        let Action::Grant { key_ttl, fence, place } = self.command.action else {
            return None;
        };
        let is_near = fence.is_none_or(|fence| self.is_near(fence));
        let is_first = self.is_first && self.command.ticket == Ticket::default() && place.is_none();
        (is_first && is_near && self.resources.len() == 1).then_some((key_ttl, fence))
    }

    fn is_near(&self, fence: Fence) -> bool {
        let (proposal, slack) = (fence.proposal.0, Fence::SLACK_MICROS);
        let is_above = proposal + slack >= self.wall || self.flaw == Flaw::NoFloor;
        is_above && proposal <= self.wall + slack
    }
}

/// The buckets of `resources`: all the same, or each its own.
pub(crate) fn buckets(resources: &[u8], shared: bool) -> impl Iterator<Item = usize> {
    resources.iter().map(move |it| if shared { 0 } else { usize::from(*it) })
}

impl Site {
    /// Does what a command says.
    pub(crate) fn run(&mut self, request: &Request) -> Answer {
        if request.native().is_none() {
            return self.run_script(request);
        }
        let is_set = self.begin(request);
        let is_raised = self.raise_natively(request);
        self.conclude(request, is_set, is_raised).unwrap_or_else(|| self.run_script(request))
    }

    /// Does the first of the commands for a first grant: whether the key was free.
    pub(crate) fn begin(&mut self, request: &Request) -> bool {
        let Some((key_ttl, _)) = request.native() else {
            return false;
        };
        let is_free = request.resources.iter().all(|it| self.keys[usize::from(*it)].is_none());
        if is_free {
            self.set(request, key_ttl);
        }
        is_free
    }

    /// Does the second, which is done also for who is refused: whether the fence was below.
    pub(crate) fn raise_natively(&mut self, request: &Request) -> bool {
        let Action::Grant { fence, .. } = request.command.action else {
            return false;
        };
        fence.is_none_or(|fence| self.raise(request, fence))
    }

    /// Tells the clock, which is the last of them; `None` if it is not granted beyond doubt, and is to be asked for by
    /// script.
    #[allow(clippy::unused_self)] // reads as what the node says
    pub(crate) fn conclude(
        &self,
        request: &Request,
        is_set: bool,
        is_raised: bool,
    ) -> Option<Answer> {
        let Action::Grant { fence, .. } = request.command.action else {
            return None;
        };
        let is_granted = is_set && is_raised && fence.is_none_or(|it| request.is_near(it));
        let token = fence.map(|fence| fence.proposal);
        is_granted.then_some(Answer::Ours { token, remaining: None })
    }

    /// Raises the fence to the proposal; whether it was below.
    fn raise(&mut self, request: &Request, fence: Fence) -> bool {
        let is_below = self.highest(request).is_none_or(|highest| highest < fence.proposal);
        for &bucket in &request.buckets {
            let highest = self.fences[bucket].max(fence.proposal.0);
            self.set_fence(request, bucket, highest, fence.retention);
        }
        is_below
    }

    /// Leaves nothing behind of a claim that is not granted.
    pub(crate) fn leave(&mut self, request: &Request) {
        for key in request.resources.iter().map(|it| usize::from(*it)) {
            self.keys[key].take_if(|key| key.holder == request.holder);
        }
    }

    fn run_script(&mut self, request: &Request) -> Answer {
        let found = self.look(request);
        let all_ours = found.ours == request.resources.len();
        match request.command.action {
            Action::Grant { key_ttl, fence, place } => {
                let is_free = found.theirs.is_none() && found.ours == 0;
                if is_free && place.is_some_and(|place| self.is_behind(request, place)) {
                    let floor = fence.and_then(|_| self.highest(request));
                    return Answer::Theirs { floor, frees: Frees::In(WaitQueue::TURN) };
                }
                self.grant(request, key_ttl, fence, &found)
            }
            Action::Restore { key_ttl } => self.grant(request, key_ttl, None, &found),
            Action::Extend { key_ttl, .. } => {
                if all_ours {
                    self.set(request, key_ttl);
                    return Answer::Ours { token: None, remaining: None };
                }
                self.answer(request, &found, false)
            }
            Action::Revoke { calls, max_remaining } => {
                self.revoke(request, max_remaining);
                if calls {
                    self.call_first(request);
                }
                Self::plain(request, &found)
            }
            Action::RaiseFence { token, retention } => {
                if !all_ours {
                    return Self::plain(request, &found);
                }
                self.raise(request, Fence { proposal: token, retention });
                Answer::Ours { token: self.highest(request), remaining: None }
            }
            Action::Inspect => self.answer(request, &found, true),
            Action::Enqueue { place } => self.enqueue(request, place),
            Action::Leave { place } => self.leave_queue(request, place),
            Action::CountWaiters => self.count_waiters(request),
        }
    }

    fn grant(
        &mut self,
        request: &Request,
        key_ttl: Ttl,
        fence: Option<Fence>,
        found: &Found,
    ) -> Answer {
        let highest = fence.and_then(|_| self.highest(request));
        let own = found.ours > 0 && request.flaw == Flaw::RefusesItsOwn;
        if found.theirs.is_some() || own {
            if request.flaw == Flaw::GrantsInPart {
                self.set(request, key_ttl);
            }
            return self.refusal(request, found, highest);
        }
        let held_before = found.ours == request.resources.len();
        self.set(request, key_ttl);
        let Some(fence) = fence else {
            return Answer::Ours { token: None, remaining: None };
        };
        if held_before && highest.is_some() && request.flaw == Flaw::KeepsFence {
            return Answer::Ours { token: highest, remaining: None };
        }
        let clamped = fence.proposal.0.min(request.wall + Fence::SLACK_MICROS);
        let floor = highest.map_or(1, |token| token.0 + 1);
        let token = match request.flaw {
            Flaw::FenceFollowsProposal => clamped,
            Flaw::NoFloor => clamped.max(floor),
            _ => clamped.max(floor).max(request.wall.saturating_sub(Fence::SLACK_MICROS)),
        };
        for &bucket in &request.buckets {
            self.set_fence(request, bucket, token, fence.retention);
        }
        Answer::Ours { token: Some(FencingToken(token)), remaining: None }
    }

    /// The table may have been told its end ten seconds before that.
    fn set_fence(&mut self, request: &Request, bucket: usize, token: u64, retention: Ttl) {
        self.fences[bucket] = token;
        if request.fences_end {
            let end = &mut self.fences_end;
            let later = request.clock + retention.as_millis().saturating_sub(KEEP_EVERY).max(1);
            *end = if *end == u64::MAX { later } else { later.max(*end) };
        }
    }

    /// Deletes every key that is ours, unless more than `max_remaining` is left of it.
    fn revoke(&mut self, request: &Request, max_remaining: Option<Duration>) {
        let any = request.flaw == Flaw::RevokesAnyones;
        for resource in request.resources {
            let key = &mut self.keys[usize::from(*resource)];
            let is_ended = |key: Key| {
                let is_ours = key.holder == request.holder;
                is_ours && max_remaining.is_none_or(|most| key.ends_within(most, request.clock))
            };
            if key.is_some_and(|key| is_ended(key) || any) {
                *key = None;
            }
        }
    }

    /// Takes every key that is free or ours; what is ours is kept for at least `key_ttl`, unless it may be shortened.
    fn set(&mut self, request: &Request, key_ttl: Ttl) {
        let fresh = Key {
            holder: request.holder,
            expires: request.clock + key_ttl.as_millis(),
            in_time: request.in_time,
        };
        let most = match request.command.action {
            Action::Extend { may_shorten, .. } => may_shorten,
            _ => None,
        };
        let shortens = |key: Key| most.is_some_and(|most| key.ends_within(most, request.clock));
        for resource in request.resources {
            let key = &mut self.keys[usize::from(*resource)];
            match key {
                Some(other) if other.holder != request.holder => {}
                Some(own) if !shortens(*own) && own.expires > fresh.expires => {}
                _ => *key = Some(fresh),
            }
            if let (Some(own), Flaw::NeverExpires) = (key, request.flaw) {
                own.expires = u64::MAX;
            }
        }
    }

    fn look(&self, request: &Request) -> Found {
        let mut found = Found { ours: 0, theirs: None, soonest: u64::MAX };
        for resource in request.resources {
            match self.keys[usize::from(*resource)] {
                Some(key) if key.holder == request.holder => {
                    found.ours += 1;
                    found.soonest = found.soonest.min(key.expires);
                }
                Some(key) => found.theirs = found.theirs.max(Some(key.expires)),
                None => {}
            }
        }
        found
    }

    /// The answer of a command that only names who holds the keys.
    fn plain(request: &Request, found: &Found) -> Answer {
        if found.theirs.is_some() {
            Answer::Theirs { floor: None, frees: Frees::Unknown }
        } else if found.ours < request.resources.len() {
            Answer::Absent
        } else {
            Answer::Ours { token: None, remaining: None }
        }
    }

    fn answer(&self, request: &Request, found: &Found, tells: bool) -> Answer {
        match Self::plain(request, found) {
            Answer::Ours { .. } if tells => Answer::Ours {
                token: self.highest(request),
                remaining: Some(Duration::from_millis(found.soonest - request.clock)),
            },
            Answer::Theirs { .. } if tells => self.refusal(request, found, self.highest(request)),
            plain => plain,
        }
    }

    #[allow(clippy::unused_self)] // reads as what the node says
    fn refusal(&self, request: &Request, found: &Found, floor: Option<FencingToken>) -> Answer {
        let frees = found.theirs.map_or(Frees::Unknown, |end| {
            Frees::In(Duration::from_millis(end.saturating_sub(request.clock)))
        });
        Answer::Theirs { floor, frees }
    }

    fn highest(&self, request: &Request) -> Option<FencingToken> {
        let fences = request.buckets.iter().map(|bucket| self.fences[*bucket]);
        fences.max().filter(|fence| *fence > 0).map(FencingToken)
    }
}

/// How often connections tell a node to remember its fences, in milliseconds.
const KEEP_EVERY: u64 = 10_000;
