//! Uses an open wake connection. Owns what is sent for a request, and what follows for waiters from what happens.

use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::{Action, Answer, Fault, FaultKind, News, Queued, Waiter};
use redis::Value;
use tokio::time::Instant;

use super::{Actor, State};
use crate::background::BackgroundTicket;
use crate::redis_node::backoff::Backoff;
use crate::redis_node::wake::calls::Failure;
use crate::redis_node::wake::lacks::Way;
use crate::redis_node::wake::live::Event;
use crate::redis_node::wake::news::Push;
use crate::redis_node::wake::request::Request;
use crate::redis_node::wake::scripts;
use crate::redis_node::wake::watches::KeyState;

impl Actor {
    /// Sends a request over the open connection.
    pub(super) fn send(&mut self, request: Request) {
        let State::Open(live) = &mut self.state else {
            return;
        };
        if request.is_late() {
            return request.refuse_late();
        }
        let Some(waiter) = request.waiter() else {
            return live.send(request);
        };
        if request.is_leave() {
            self.watches.unwatch(waiter, &request.lock_keys);
            if let Some(request) = self.waiters.leave(waiter, request) {
                live.send(request);
            }
            return;
        }
        self.closes_early = false;
        self.waiters.enter(waiter, &request);
        live.subscribe(waiter.process);
        live.send(request);
    }

    /// Gives up all places; `ticket` is dropped once that is answered.
    pub(super) fn leave_all(&mut self, ticket: BackgroundTicket) {
        let State::Open(live) = &mut self.state else {
            return;
        };
        let ticket = Arc::new(ticket);
        for (waiter, lock_keys) in self.waiters.take_all() {
            live.leave(waiter, &lock_keys, Arc::clone(&ticket));
        }
        self.watches.clear();
    }

    pub(super) fn handle_event(&mut self, event: Event) {
        match event {
            Event::Push(push) => self.handle_push(push),
            Event::Answered(request, result) => self.handle_answer(request, result),
            Event::Read(key, result) => self.handle_read(&key, result),
            // In the first case the connection ends.
            Event::Deaf(_, _, Failure::Lost(_)) | Event::Nothing => {}
            Event::Deaf(process, call, failure) => {
                if let State::Open(live) = &mut self.state {
                    live.note_deaf(process, call, &failure);
                }
            }
            Event::Tested(process) => {
                if let State::Open(live) = &mut self.state
                    && !live.judge_test(process)
                {
                    self.forget_watches();
                }
            }
            Event::Lost => self.handle_lost(),
        }
    }

    fn handle_push(&mut self, push: Push) {
        let State::Open(live) = &mut self.state else {
            return;
        };
        match push {
            Push::News { waiter, news, lock_key } => {
                if !self.waiters.tell(waiter, news) {
                    live.drop_place(waiter, &lock_key);
                }
            }
            Push::Changed(keys) => {
                let reads = keys.iter().filter_map(|key| self.watches.note_change(key));
                reads.for_each(|key| live.read(key));
            }
            Push::AllChanged => {
                self.watches.note_change_of_all().into_iter().for_each(|key| live.read(key));
                // The queues may be gone, too.
                self.waiters.tell_all(News::Gone);
            }
            Push::Test { process } => live.note_heard(process),
        }
    }

    fn handle_answer(&mut self, request: Request, result: Result<Value, Failure>) {
        self.used = Instant::now();
        self.note_silence(&result);
        let action = request.command.action;
        let answer = match result {
            Ok(value) => scripts::answer(&action, &value),
            // The place ends by itself.
            Err(Failure::Lost(_)) if request.is_leave() => Ok(Answer::Done),
            Err(failure) => Err(failure.into_fault()),
        };
        let Action::Enqueue { place } = action else {
            return request.answer(answer);
        };
        if let Err(fault) = &answer
            && fault.kind() == FaultKind::NotPermitted
        {
            self.lacks.note_words(Way::Queue, fault.detail().to_owned());
        }
        let leave = self.waiters.note_answer(place.waiter);
        request.answer(answer.map(|answer| self.complete(place.waiter, answer)));
        if let (Some(leave), State::Open(live)) = (leave, &mut self.state) {
            live.send(leave);
        }
    }

    /// Adds to an answer whether the waiter is told, and watches its keys if that is how it is told.
    fn complete(&mut self, waiter: Waiter, answer: Answer) -> Answer {
        let (Answer::Queued { queued, frees }, State::Open(live)) = (answer, &mut self.state)
        else {
            return answer;
        };
        let (can_hear, can_watch) = (live.can_hear(waiter.process), live.can_watch());
        let is_told = match queued.rank {
            // Nobody calls a waiter that has no place.
            None => false,
            Some(0) => can_watch,
            Some(_) => can_hear || can_watch,
        };
        let is_first = queued.rank == Some(0);
        let watches = is_told && !(is_first && queued.is_free) && (is_first || !can_hear);
        if let Some(lock_keys) = self.waiters.lock_keys(waiter) {
            if watches {
                self.watches.watch(waiter, lock_keys).into_iter().for_each(|key| live.read(key));
            } else {
                self.watches.unwatch(waiter, lock_keys);
            }
        }
        Answer::Queued { queued: Queued { is_told, ..queued }, frees }
    }

    fn handle_read(&mut self, key: &Arc<str>, result: Result<KeyState, Failure>) {
        self.note_silence(&result);
        let State::Open(live) = &mut self.state else {
            return;
        };
        match result {
            Ok(state) => {
                let finding = self.watches.note_read(key, state);
                if finding.again {
                    live.read(Arc::clone(key));
                }
                for (waiter, news) in finding.news {
                    self.waiters.tell(waiter, news);
                }
            }
            Err(Failure::Refused(error)) => {
                live.stop_watching(&error);
                self.forget_watches();
            }
            // The connection ends, and all watches with it.
            Err(Failure::Lost(_) | Failure::NoResp3) => {}
        }
    }

    /// The server does not tell of changed keys. The waiters that relied on it ask again, and are answered so.
    fn forget_watches(&mut self) {
        for waiter in self.watches.clear() {
            self.waiters.tell(waiter, News::Gone);
        }
    }

    /// A server that does not answer, or not in its protocol, is no longer waited for.
    fn note_silence<T>(&mut self, result: &Result<T, Failure>) {
        if let (Err(Failure::Lost(fault)), State::Open(live)) = (result, &mut self.state)
            && fault.kind() != FaultKind::Broken
        {
            live.give_up();
        }
    }

    /// The connection has ended. The waiters ask for their places again, which opens another one.
    fn handle_lost(&mut self) {
        let State::Open(live) = &self.state else {
            return;
        };
        let is_short_lived = live.opened.elapsed() < SHORT_LIFE;
        self.short_lived = if is_short_lived { self.short_lived + 1 } else { 0 };
        if !is_short_lived {
            self.backoff = Backoff::new(&self.settings);
        }
        // A server that ends every connection at once is not asked again and again.
        let refusal = (self.short_lived > 1).then(|| {
            let fault = Fault::new(FaultKind::NotSent, "the node ends its wake connections");
            (Instant::now() + self.backoff.next(), fault)
        });
        self.state = State::Closed(refusal);
        self.watches.clear();
        self.waiters.tell_all(News::Gone);
    }
}

/// A connection that lasts less than this is not made again at once.
const SHORT_LIFE: Duration = Duration::from_secs(1);
