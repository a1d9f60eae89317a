//! Passes events and figures to JavaScript as JSON, which it reads faster than objects can be made
//! from here. Owns the conversion; names and meanings are the core's.

use std::time::UNIX_EPOCH;

use napi::bindgen_prelude::{External, Function};
use napi_derive::napi;
use quorlock::embed::Value;
use quorlock::{Event, EventName, Interest};
use serde_json::{Map, Value as Json};

use crate::listening::Listening;
use crate::manager::Manager;
use crate::numbers::millis;
use crate::spelling;
use crate::votes::NodeVote;

/// From now on `listener` is called with the events of these names, each as JSON, instead of those
/// of an earlier call.
#[napi]
// JavaScript passes a copy, so these parameters are taken by value.
#[allow(clippy::needless_pass_by_value)]
pub fn subscribe(
    manager: &External<Manager>,
    names: Vec<String>,
    listener: Function<'_, String, ()>,
) -> napi::Result<()> {
    let wanted =
        EventName::ALL.into_iter().filter(|it| names.iter().any(|name| name == it.as_str()));
    let interest = wanted.fold(Interest::NONE, Interest::and);
    if interest == Interest::NONE {
        manager.set_subscription(None);
        return Ok(());
    }
    let text = |event: &Event| told(event).to_string();
    let listening = Listening::begin(manager.locks(), interest, &listener, text)?;
    manager.set_subscription(Some(listening));
    Ok(())
}

/// Has the listener called with an empty text behind the events of what has happened so far; false if
/// nobody listens.
#[napi]
pub fn end_events(manager: &External<Manager>) -> bool {
    manager.with_subscription(|listening| listening.is_some_and(Listening::end_events))
}

/// What the manager has counted, as JSON.
#[napi]
pub fn stats(manager: &External<Manager>) -> String {
    Json::Object(by_name(&manager.locks().stats().fields())).to_string()
}

fn told(event: &Event) -> Json {
    let mut fields = Map::new();
    fields.insert("name".to_owned(), event.name().into());
    let at = event.at().duration_since(UNIX_EPOCH).unwrap_or_default();
    fields.insert("at".to_owned(), millis(at).into());
    fields.append(&mut by_name(&event.fields()));
    Json::Object(fields)
}

fn by_name(fields: &[(&'static str, Value)]) -> Map<String, Json> {
    let set =
        |(name, value): &(&'static str, Value)| Some((spelling::camel_case(name), json(value)?));
    fields.iter().filter_map(set).collect()
}

/// `None` for what does not apply: the property is absent then.
fn json(value: &Value) -> Option<Json> {
    Some(match value {
        Value::None => return None,
        Value::Flag(flag) => (*flag).into(),
        Value::Count(count) => (*count).into(),
        Value::Number(number) => (*number).into(),
        Value::Time(time) => millis(*time).into(),
        Value::Text(text) => spelling::in_node(text).into(),
        Value::Votes(votes) => NodeVote::list(votes).iter().map(vote).collect(),
        Value::List(values) => values.iter().filter_map(json).collect(),
        Value::Counts(counts) => {
            let count = |(name, count): &(&'static str, u64)| ((*name).to_owned(), (*count).into());
            Json::Object(counts.iter().map(count).collect())
        }
        Value::Map(fields) => Json::Object(by_name(fields)),
    })
}

fn vote(vote: &NodeVote) -> Json {
    let mut fields = Map::new();
    fields.insert("address".to_owned(), vote.address.as_str().into());
    fields.insert("outcome".to_owned(), vote.outcome.into());
    fields.insert("latency".to_owned(), vote.latency.into());
    if let Some(detail) = &vote.detail {
        fields.insert("detail".to_owned(), detail.as_str().into());
    }
    Json::Object(fields)
}
