//! What a server cannot do for callers that wait. Owns the words for people.

use std::sync::{Arc, Mutex, PoisonError};

use super::calls::Failure;
use crate::redis_node::transport::plain;

/// What a server cannot do for waiters, and why: for people.
#[derive(Default)]
pub(super) struct Lacks(Mutex<[Option<String>; 3]>);

/// What a server does for a waiter: it gives it a place, and tells it in one of two ways.
#[derive(Clone, Copy)]
pub(super) enum Way {
    Queue,
    Hear,
    Watch,
}

impl Lacks {
    /// One sentence; `None` if the server can do everything.
    pub(super) fn describe(&self) -> Option<Arc<str>> {
        let lacks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<_> = lacks.iter().flatten().map(String::as_str).collect();
        (!all.is_empty()).then(|| all.join("; ").into())
    }

    pub(super) fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = [const { None }; 3];
    }

    /// It cannot tell in this way, because `command`, which needs these `rights`, has failed.
    pub(super) fn note(&self, way: Way, command: &str, rights: &str, failure: &Failure) {
        let words = match failure {
            Failure::Refused(error) if error.code() == "NOPERM" => {
                format!("{command} is not permitted: add {rights} with ACL SETUSER")
            }
            Failure::Refused(error) if error.code() == "NOAUTH" => {
                format!("{command} is not known to the server")
            }
            Failure::Refused(error) => {
                let said = plain(error.details().unwrap_or(error.code()));
                format!("{command} is not possible on this server ({said})")
            }
            Failure::NoResp3 => format!("{command} is not known to the server"),
            Failure::Lost(fault) => format!("{command} has failed: {fault}"),
        };
        self.note_words(way, words);
    }

    /// It cannot do this, in these words.
    pub(super) fn note_words(&self, way: Way, words: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[way as usize] = Some(words);
    }
}
