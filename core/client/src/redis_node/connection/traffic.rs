//! The users of a connection, and which of them asked for the next replies. Owns the users' numbers
//! and which ones are woken when one of them reads; waits for nothing.

use std::collections::VecDeque;
use std::iter;
use std::task::Waker;

use crate::redis_node::transport::{Pipe, Reply};

/// The calls in flight on a connection, and its users.
pub(super) struct Traffic {
    pub(super) pipe: Pipe,
    /// For each reply to come, in order, the user that asked for it.
    askers: VecDeque<usize>,
    /// By their numbers.
    users: Vec<User>,
    /// The numbers that no user has.
    free: Vec<usize>,
    /// How many there are.
    pub(super) count: usize,
    /// The user that was polled last.
    reader: usize,
    /// How often the last user has left.
    pub(super) leavings: u64,
}

/// One user of a connection.
#[derive(Default)]
struct User {
    /// The replies that came for it while another user read.
    replies: VecDeque<Reply>,
    /// How many are still to come.
    outstanding: usize,
    waker: Option<Waker>,
    has_left: bool,
}

impl Traffic {
    pub(super) fn over(pipe: Pipe) -> Self {
        let (askers, users, free) = Default::default();
        Self { pipe, askers, users, free, count: 0, reader: 0, leavings: 0 }
    }

    /// Adds a user; returns its number.
    pub(super) fn admit(&mut self) -> usize {
        self.count += 1;
        if let Some(number) = self.free.pop() {
            return number;
        }
        self.users.push(User::default());
        self.users.len() - 1
    }

    /// A user has left. If it was the last, returns how many times that has happened by now.
    pub(super) fn discharge(&mut self, number: usize) -> Option<u64> {
        self.count -= 1;
        let user = &mut self.users[number];
        (user.has_left, user.waker) = (true, None);
        user.replies = VecDeque::new();
        self.vacate(number);
        if self.count == 0 {
            self.leavings += 1;
            return Some(self.leavings);
        }
        if self.reader == number
            && let Some(waker) = self.users.iter_mut().find_map(|user| user.waker.take())
        {
            waker.wake();
        }
        None
    }

    /// Frees the number of a user that has left, once all its replies have come.
    fn vacate(&mut self, number: usize) {
        let user = &mut self.users[number];
        if user.has_left && user.outstanding == 0 {
            user.has_left = false;
            self.free.push(number);
        }
    }

    /// A user has asked for this many replies.
    pub(super) fn expect_replies(&mut self, number: usize, replies: usize) {
        self.askers.extend(iter::repeat_n(number, replies));
        self.users[number].outstanding += replies;
    }

    /// The user that asked for the reply that has come: the pipe returns no reply that was not
    /// asked for.
    pub(super) fn next_asker(&mut self) -> usize {
        self.askers.pop_front().expect("a call for every reply")
    }

    /// Takes a reply that came for a user while another one read.
    pub(super) fn take(&mut self, number: usize) -> Option<Reply> {
        let replies = &mut self.users[number].replies;
        // Usually nothing has come.
        if replies.is_empty() { None } else { replies.pop_front() }
    }

    /// A user has received the reply that it asked for.
    pub(super) fn note_given(&mut self, number: usize) {
        self.users[number].outstanding -= 1;
    }

    /// Passes a reply to the user that asked for it; drops it if that user has left.
    pub(super) fn give(&mut self, number: usize, reply: Reply) {
        let user = &mut self.users[number];
        user.outstanding -= 1;
        if user.has_left {
            return self.vacate(number);
        }
        user.replies.push_back(reply);
        if let Some(waker) = user.waker.take() {
            waker.wake();
        }
    }

    pub(super) fn note_reader(&mut self, number: usize, waker: &Waker) {
        self.reader = number;
        let place = &mut self.users[number].waker;
        if !place.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *place = Some(waker.clone());
        }
    }

    pub(super) fn wake_all_but(&mut self, number: usize) {
        let others = self.users.iter_mut().enumerate().filter(|(other, _)| *other != number);
        others.filter_map(|(_, user)| user.waker.take()).for_each(Waker::wake);
    }
}
