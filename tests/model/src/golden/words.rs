//! Parses the lines of a golden schedule. Owns the syntax; `session` owns what the lines mean.

use std::time::Duration;

use quorlock_protocol::{Answer, Fault, FaultKind, FencingToken, Frees, News, Queued, WakeCause};

/// One line.
pub(super) enum Line {
    Nothing,
    Setting(String, String),
    Client(String),
    At(u64, Vec<String>),
    Expect(Vec<String>),
}

impl Line {
    pub(super) fn parse(raw: &str) -> Result<Self, String> {
        let text = raw.split('#').next().unwrap_or_default();
        // `grant#2` is no comment.
        let text = if raw.contains("->") || raw.trim_start().starts_with("at ") {
            raw.split(" #").next().unwrap_or_default()
        } else {
            text
        };
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let Some((first, rest)) = words.split_first() else {
            return Ok(Self::Nothing);
        };
        match (first.as_str(), rest) {
            ("at", [time, what @ ..]) => Ok(Self::At(number(time)?, what.to_vec())),
            ("expect", what) => Ok(Self::Expect(what.to_vec())),
            ("client", [name]) => Ok(Self::Client(name.clone())),
            (name, [value]) => Ok(Self::Setting(name.to_owned(), value.clone())),
            _ => Err("not a line of a schedule".to_owned()),
        }
    }
}

/// What a node answers, and whether the command went out more than once.
pub(super) fn answer(words: &[&str]) -> Result<(Result<Answer, Fault>, bool), String> {
    let (words, repeated) = match words.split_last() {
        Some((&"again", rest)) => (rest, true),
        _ => (words, false),
    };
    let answer = match words {
        ["ours"] => Ok(Answer::Ours { token: None, remaining: None }),
        ["ours", token] => {
            Ok(Answer::Ours { token: Some(FencingToken(number(token)?)), remaining: None })
        }
        ["gone"] => Ok(Answer::Absent),
        ["queued", rank, details @ ..] => Ok(queued(number(rank)?, details)?),
        ["done"] => Ok(Answer::Done),
        ["theirs", details @ ..] => Ok(theirs(details)?),
        ["fault", code] => {
            let kind = FaultKind::ALL.into_iter().find(|kind| kind.code() == *code);
            let kind = kind.ok_or_else(|| format!("no fault is called {code}"))?;
            Err(Fault::new(kind, "as the schedule says"))
        }
        _ => return Err("not an answer".to_owned()),
    };
    Ok((answer, repeated))
}

/// What a queue says to a waiter that has this number of waiters before it.
fn queued(rank: u64, details: &[&str]) -> Result<Answer, String> {
    let (is_free, frees) = match details {
        ["free"] => (true, Frees::Unknown),
        ["held", time] => (false, Frees::In(Duration::from_millis(number(time)?))),
        _ => return Err("a queue says 'free' or 'held' and a time".to_owned()),
    };
    let rank = u32::try_from(rank).ok();
    Ok(Answer::Queued { queued: Queued { rank, is_free, is_told: true }, frees })
}

/// The news of a queue.
pub(super) fn news(words: &[&str]) -> Result<News, String> {
    match words {
        ["freed"] => Ok(News::Freed(WakeCause::Push)),
        ["gone"] => Ok(News::Freed(WakeCause::Watch)),
        ["next"] => Ok(News::Next),
        ["first"] => Ok(News::First),
        ["ping"] => Ok(News::Ping),
        ["held", time] => Ok(News::Held(Duration::from_millis(number(time)?))),
        ["back"] => Ok(News::Gone),
        _ => Err("no news".to_owned()),
    }
}

fn theirs(mut details: &[&str]) -> Result<Answer, String> {
    let (mut floor, mut frees) = (None, Frees::Unknown);
    while let [name, value, rest @ ..] = details {
        match (*name, *value) {
            ("free", "never") => frees = Frees::Never,
            ("free", time) => frees = Frees::In(Duration::from_millis(number(time)?)),
            ("floor", token) => floor = Some(FencingToken(number(token)?)),
            _ => return Err(format!("{name} is no part of 'theirs'")),
        }
        details = rest;
    }
    Ok(Answer::Theirs { floor, frees })
}

pub(super) fn number(word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("{word} is no number"))
}
