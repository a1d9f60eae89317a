//! The scripts of the queues. Owns their texts, how they are called, and what their replies mean.

use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::{Action, Answer, Fault, Frees, Place, Queued, Waiter};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};

use super::calls::{Failure, call};
use crate::keys::{lives_key, queue_key};
use crate::redis_node::transport::garbled;

/// The text of a script, behind what the scripts of the queues have in common.
macro_rules! script {
    ($name:literal) => {
        concat!(
            include_str!("../../scripts/queue.lua"),
            include_str!(concat!("../../scripts/", $name, ".lua"))
        )
    };
}

/// A script of the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::redis_node) enum Script {
    Enqueue,
    Leave,
    CountWaiters,
}

/// The digests of the scripts by which a server knows them; without them they are sent whole.
#[derive(Clone, Default)]
pub(super) struct Digests([Option<Arc<str>>; 3]);

/// A call of a script.
pub(super) struct ScriptCall {
    script: Script,
    lock_keys: Vec<Arc<str>>,
    arguments: Vec<String>,
}

impl Script {
    pub(super) const ALL: [Self; 3] = [Self::Enqueue, Self::Leave, Self::CountWaiters];

    pub(in crate::redis_node) const fn text(self) -> &'static str {
        match self {
            Self::Enqueue => script!("enqueue"),
            Self::Leave => script!("leave"),
            Self::CountWaiters => script!("count_waiters"),
        }
    }

    /// The call that makes the server know it; the reply is its digest.
    pub(super) fn load(self) -> Cmd {
        let mut call = redis::cmd("SCRIPT");
        call.arg("LOAD").arg(self.text());
        call
    }
}

impl Digests {
    /// The digests that the server replied, in the order of [`Script::ALL`].
    pub(super) fn read(replies: &[Value]) -> Self {
        let digest = |index: usize| match replies.get(index)? {
            Value::BulkString(bytes) => str::from_utf8(bytes).ok().map(Arc::from),
            _ => None,
        };
        Self([digest(0), digest(1), digest(2)])
    }

    fn of(&self, script: Script) -> Option<&str> {
        self.0[script as usize].as_deref()
    }
}

impl ScriptCall {
    /// The call for a command; `None` if the command is not about queues.
    pub(super) fn of(action: &Action, lock_keys: &[Arc<str>]) -> Option<Self> {
        let (script, arguments) = match action {
            Action::Enqueue { place: Place { arrived, waiter } } => {
                (Script::Enqueue, vec![waiter.to_string(), arrived.to_string()])
            }
            Action::Leave { place } => (Script::Leave, vec![place.waiter.to_string()]),
            Action::CountWaiters => (Script::CountWaiters, Vec::new()),
            _ => return None,
        };
        Some(Self { script, lock_keys: lock_keys.to_vec(), arguments })
    }

    /// The call that gives up the place of a waiter.
    pub(super) fn leave(waiter: Waiter, lock_keys: &[Arc<str>]) -> Self {
        let arguments = vec![waiter.to_string()];
        Self { script: Script::Leave, lock_keys: lock_keys.to_vec(), arguments }
    }

    /// Sends it; the server need not know the script any more.
    pub(super) async fn send(
        &self,
        connection: &mut MultiplexedConnection,
        digests: &Digests,
    ) -> Result<Value, Failure> {
        if let Some(digest) = digests.of(self.script) {
            match call(connection, &self.encode("EVALSHA", digest)).await {
                Err(Failure::Refused(error)) if error.code() == "NOSCRIPT" => {}
                result => return result,
            }
        }
        call(connection, &self.encode("EVAL", self.script.text())).await
    }

    fn encode(&self, name: &str, script: &str) -> Cmd {
        let mut call = redis::cmd(name);
        call.arg(script).arg(3 * self.lock_keys.len());
        call.arg(self.lock_keys.iter().map(|it| &**it).collect::<Vec<_>>());
        call.arg(self.lock_keys.iter().map(|it| queue_key(it)).collect::<Vec<_>>());
        call.arg(self.lock_keys.iter().map(|it| lives_key(it)).collect::<Vec<_>>());
        call.arg(&self.arguments);
        call
    }
}

/// What the server answered to a command; for a place, without whether it is told.
pub(super) fn answer(action: &Action, value: &Value) -> Result<Answer, Fault> {
    match (action, value) {
        (Action::Enqueue { .. }, Value::Array(items)) => queued(items),
        (Action::Leave { .. }, Value::Int(_)) => Some(Answer::Done),
        (Action::CountWaiters, Value::Int(count)) => {
            u32::try_from(*count).ok().map(Answer::Waiters)
        }
        _ => None,
    }
    .ok_or_else(garbled)
}

fn queued(items: &[Value]) -> Option<Answer> {
    let [Value::Int(free), Value::Int(rank), Value::Int(left)] = items else {
        return None;
    };
    let frees = match u64::try_from(*left) {
        Ok(millis) => Frees::In(Duration::from_millis(millis)),
        Err(_) if *left == -1 => Frees::Never,
        Err(_) => Frees::In(Duration::ZERO),
    };
    let rank = u32::try_from(*rank).ok();
    Some(Answer::Queued { queued: Queued { rank, is_free: *free == 1, is_told: false }, frees })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queued(free: i64, rank: i64, left: i64) -> Result<Answer, Fault> {
        let waiter = Waiter { process: 1, number: 1 };
        let action = Action::Enqueue { place: Place { arrived: 1, waiter } };
        answer(&action, &Value::Array([free, rank, left].map(Value::Int).to_vec()))
    }

    #[test]
    fn a_reply_tells_the_place_and_when_the_keys_are_free() {
        let expected = |rank, is_free, frees| {
            Ok(Answer::Queued { queued: Queued { rank, is_free, is_told: false }, frees })
        };
        assert_eq!(
            queued(0, 3, 250),
            expected(Some(3), false, Frees::In(Duration::from_millis(250)))
        );
        assert_eq!(queued(0, 0, -1), expected(Some(0), false, Frees::Never));
        assert_eq!(queued(1, 0, -2), expected(Some(0), true, Frees::In(Duration::ZERO)));
        assert_eq!(queued(0, -1, 5), expected(None, false, Frees::In(Duration::from_millis(5))));
    }

    #[test]
    fn a_reply_of_another_kind_is_no_answer() {
        let none = [Value::Nil, Value::Int(-1), Value::Array(vec![]), Value::Okay];
        for value in none {
            assert_eq!(answer(&Action::CountWaiters, &value), Err(garbled()), "{value:?}");
        }
        assert_eq!(answer(&Action::CountWaiters, &Value::Int(7)), Ok(Answer::Waiters(7)));
    }

    #[test]
    fn a_script_is_called_with_lock_keys_then_queues_then_lives() {
        let waiter = Waiter { process: 0xab, number: 7 };
        let place = Place { arrived: 5, waiter };
        let call = ScriptCall::of(&Action::Enqueue { place }, &["a".into(), "b".into()]).unwrap();
        let words: Vec<_> = call
            .encode("EVALSHA", "digest")
            .args_iter()
            .map(|word| match word {
                redis::Arg::Simple(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
                _ => panic!("a cursor"),
            })
            .collect();
        let expected = "EVALSHA digest 6 a b quorlock:queue:{a} quorlock:queue:{b} quorlock:alive:{a} \
                        quorlock:alive:{b} w00000000000000ab.00000007 5";
        assert_eq!(words.join(" "), expected);
    }
}
