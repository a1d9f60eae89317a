//! How the nodes are asked about locks, without changing any. Owns the calls; `reading` owns what the
//! answers add up to.

use std::time::Duration;

use quorlock::{Address, Fault, FaultKind, Holder, SequencerRecord, ServerConnection, ServerReply};

use super::reading::{Key, Left, Reading, Says};
use super::value::{self, Value};
use crate::context::{Context, are_one_server};
use crate::failure::Failure;
use crate::refusal::is_not_permitted;
use crate::server_info::ServerInfo;

/// What every node says of each of the locks: the readings of each. A node has `limit` for all of its answers. Like
/// locks, it refuses nodes of which two are one server.
pub(super) fn ask(
    context: &Context,
    names: &[String],
    limit: Duration,
) -> Result<Vec<Vec<Reading>>, Failure> {
    let reads = async |connection: &mut ServerConnection, address: &Address| {
        read(connection, address, names).await
    };
    let answers = context.engine.block_on(context.each_node(limit, &reads));
    let mut runs: Vec<(String, &Address)> = Vec::new();
    let mut readings: Vec<Vec<Reading>> = names.iter().map(|_| Vec::new()).collect();
    for (address, answer) in context.addresses.iter().zip(answers) {
        let (run, says) = answer.unwrap_or_else(|fault| (None, vec![Err(fault); names.len()]));
        if let Some(run) = run {
            if let Some((_, other)) = runs.iter().find(|(other, _)| *other == run) {
                return Err(Failure::usage(are_one_server(other, address)));
            }
            runs.push((run, address));
        }
        for (of_name, says) in readings.iter_mut().zip(says) {
            of_name.push(Reading { address: address.to_string(), says });
        }
    }
    Ok(readings)
}

/// The keys of one lock on a node.
struct Keys {
    lock: String,
    record: String,
    owner: String,
}

impl Keys {
    fn of(address: &Address, name: &str) -> Self {
        let lock = format!("{}{name}", address.key_prefix());
        Self { record: SequencerRecord::key(&lock), owner: Holder::record_key(&lock), lock }
    }

    /// With scripts, which tell any value byte for byte.
    fn calls<'a>(&'a self, tell: &'a str) -> [Vec<&'a str>; OF_A_LOCK] {
        let [lock, record, owner] =
            [&self.lock, &self.record, &self.owner].map(|key| vec!["EVAL", tell, "1", key]);
        [lock, vec!["PTTL", &self.lock], record, owner]
    }
}

/// The server's id, if it tells it, and what it says of each lock.
async fn read(
    connection: &mut ServerConnection,
    address: &Address,
    names: &[String],
) -> Result<(Option<String>, Vec<Says>), Fault> {
    let keys: Vec<Keys> = names.iter().map(|name| Keys::of(address, name)).collect();
    let tell = Value::script();
    let questions = keys.iter().flat_map(|keys| keys.calls(&tell));
    let calls = [vec!["INFO"], vec!["TIME"]].into_iter().chain(questions);
    let replies = ask_all(connection, calls).await?;
    let [info, time, told @ ..] = &replies[..] else {
        return Err(Fault::new(FaultKind::Garbled, "it gave other replies than were asked for"));
    };
    let info = ServerInfo::of(info);
    if info.is_replica() {
        let why = "it is a replica, and its master's answer counts";
        return Err(Fault::new(FaultKind::Replica, why));
    }
    let has_scripts = !told.first().is_some_and(value::refuses_scripts);
    let told = has_scripts.then_some(told);
    let mut says: Vec<Says> = match told {
        Some(told) => {
            told.chunks_exact(OF_A_LOCK).map(|it| key(Value::told(&it[0]), &it[1])).collect()
        }
        None => read_as_texts(connection, &keys).await?,
    };
    let held = says.iter_mut().zip(&keys).enumerate();
    let mut held: Vec<Held<'_>> = held
        .filter_map(|(index, (says, keys))| Some((index, says.as_mut().ok()?.as_mut()?, keys)))
        .collect();
    count_waiters(connection, time, &mut held).await?;
    for (index, key, keys) in held {
        let [record, owner] = match told {
            Some(told) => [2, 3].map(|part| Value::told(&told[index * OF_A_LOCK + part]).ok()),
            None => read_records(connection, keys).await,
        };
        key.learn(record.flatten().as_ref(), owner.flatten().as_ref());
    }
    Ok((info.run_id().map(str::to_owned), says))
}

/// A key that a node has: the number of its lock among those asked for, and what belongs to the lock.
type Held<'a> = (usize, &'a mut Key, &'a Keys);

/// For a user who may run no scripts.
async fn read_as_texts(
    connection: &mut ServerConnection,
    keys: &[Keys],
) -> Result<Vec<Says>, Fault> {
    let calls = keys.iter().flat_map(|it| [vec!["GET", &it.lock[..]], vec!["PTTL", &it.lock]]);
    let replies = ask_all(connection, calls).await?;
    Ok(replies.chunks_exact(2).map(|it| key(Value::told_as_text(&it[0]), &it[1])).collect())
}

/// The same for what stands beside a key. It comes last, since a reply that is too large breaks the connection.
async fn read_records(
    connection: &mut ServerConnection,
    keys: &Keys,
) -> [Option<Option<Value>>; 2] {
    let record = connection.ask(&["GET", &keys.record]).await;
    let owner = connection.ask(&["GET", &keys.owner]).await;
    [record, owner].map(|reply| Value::told_as_text(&reply.ok()?).ok())
}

async fn count_waiters(
    connection: &mut ServerConnection,
    time: &ServerReply,
    held: &mut [Held<'_>],
) -> Result<(), Fault> {
    let now = time.parts().first().and_then(ServerReply::number);
    let Some(now) = now.filter(|_| !held.is_empty()) else { return Ok(()) };
    let locks: Vec<&str> = held.iter().map(|(_, _, keys)| &keys.lock[..]).collect();
    let counts = connection.waiters(&locks, now).await?;
    for ((_, key, _), count) in held.iter_mut().zip(counts) {
        key.waiters = count;
    }
    Ok(())
}

/// Makes all of the calls; the replies in their order.
async fn ask_all<'a>(
    connection: &mut ServerConnection,
    calls: impl Iterator<Item = Vec<&'a str>>,
) -> Result<Vec<ServerReply>, Fault> {
    let calls: Vec<Vec<&'a str>> = calls.collect();
    let calls: Vec<&[&str]> = calls.iter().map(Vec::as_slice).collect();
    connection.ask_all(&calls).await
}

/// The key of a lock by its value and what PTTL replied.
fn key(holder: Result<Option<Value>, String>, pttl: &ServerReply) -> Says {
    let untold = |words| Fault::new(FaultKind::Other, format!("it does not tell: {words}"));
    let Some(holder) = holder.map_err(untold)? else { return Ok(None) };
    let left = match (pttl.number(), pttl.refusal()) {
        (Some(-2), _) => return Ok(None),
        (Some(left), _) => {
            u64::try_from(left).map_or(Left::Never, |it| Left::In(Duration::from_millis(it)))
        }
        (None, Some(words)) if is_not_permitted(words) => {
            Left::Untold("the access list lacks +pttl".to_owned())
        }
        (None, words) => Left::Untold(format!("PTTL is refused: {}", words.unwrap_or_default())),
    };
    Ok(Some(Key { holder, left, owner: None, token: None, waiters: None }))
}

/// How many calls tell of one lock.
const OF_A_LOCK: usize = 4;
