//! The callers of this process that have a place in a server's queues, or are about to. Owns who gets news, and that a
//! place is not given up before it was taken; sends nothing.

use std::collections::HashMap;
use std::time::Duration;

use quorlock_protocol::{News, WaitQueue, Waiter};
use tokio::time::Instant;

use super::request::{LockKeys, Request};
use crate::inbox::ReplyTo;

/// The waiters, by their names.
#[derive(Default)]
pub(super) struct Waiters(HashMap<Waiter, Entry>);

struct Entry {
    lock_keys: LockKeys,
    reply_to: ReplyTo,
    /// When it last asked for its place.
    asked: Instant,
    /// How many of its commands that take a place are under way.
    under_way: usize,
    /// The command that gives its place up, which must not overtake those.
    leave: Option<Request>,
}

impl Waiters {
    /// The command that takes or keeps the place of `waiter` is about to be sent.
    pub(super) fn enter(&mut self, waiter: Waiter, request: &Request) {
        let asked = Instant::now();
        let entry = self.0.entry(waiter).or_insert_with(|| Entry {
            lock_keys: LockKeys::clone(&request.lock_keys),
            reply_to: request.reply_to.clone(),
            asked,
            under_way: 0,
            leave: None,
        });
        entry.asked = asked;
        entry.under_way += 1;
    }

    /// A command that takes the place of `waiter` was answered, or lost. Returns the command that waited for that.
    pub(super) fn note_answer(&mut self, waiter: Waiter) -> Option<Request> {
        let entry = self.0.get_mut(&waiter)?;
        entry.under_way = entry.under_way.saturating_sub(1);
        if entry.under_way > 0 || entry.leave.is_none() {
            return None;
        }
        self.0.remove(&waiter)?.leave
    }

    /// The waiter gets no more news. Returns `request`, which gives its place up, if it can be sent at once.
    pub(super) fn leave(&mut self, waiter: Waiter, request: Request) -> Option<Request> {
        match self.0.get_mut(&waiter) {
            Some(entry) if entry.under_way > 0 => {
                entry.leave = Some(request);
                None
            }
            _ => {
                self.0.remove(&waiter);
                Some(request)
            }
        }
    }

    /// The lock keys of a waiter that has not left.
    pub(super) fn lock_keys(&self, waiter: Waiter) -> Option<&LockKeys> {
        self.0.get(&waiter).filter(|entry| entry.leave.is_none()).map(|entry| &entry.lock_keys)
    }

    /// Tells a waiter the news; returns whether it is known.
    pub(super) fn tell(&self, waiter: Waiter, news: News) -> bool {
        let entry = self.0.get(&waiter);
        if let Some(entry) = entry.filter(|entry| entry.leave.is_none()) {
            entry.reply_to.deliver_news(news);
        }
        entry.is_some()
    }

    /// Tells every waiter the news.
    pub(super) fn tell_all(&self, news: News) {
        for waiter in self.0.keys() {
            self.tell(*waiter, news);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes all waiters.
    pub(super) fn take_all(&mut self) -> Vec<(Waiter, LockKeys)> {
        self.0.drain().map(|(waiter, entry)| (waiter, entry.lock_keys)).collect()
    }

    /// Removes waiters whose places have ended on the server: their operation ended without giving them up.
    pub(super) fn drop_silent(&mut self) -> Vec<(Waiter, LockKeys)> {
        let is_silent = |entry: &Entry| entry.under_way == 0 && entry.asked.elapsed() > SILENCE;
        let silent: Vec<_> = self.0.iter().filter(|(_, entry)| is_silent(entry)).collect();
        let silent: Vec<_> = silent
            .into_iter()
            .map(|(waiter, it)| (*waiter, LockKeys::clone(&it.lock_keys)))
            .collect();
        for (waiter, _) in &silent {
            self.0.remove(waiter);
        }
        silent
    }
}

/// How long a waiter is kept that does not ask for its place again.
const SILENCE: Duration = WaitQueue::LIFE.saturating_add(Duration::from_secs(5));
