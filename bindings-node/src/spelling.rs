//! Spells the core's sentences as a user of JavaScript writes settings: their names, times in
//! milliseconds, client objects. Owns the spelling; the sentences and the list of options are the core's.

use std::time::Duration;

use quorlock::Policy;

/// `text` with every option of the core spelt as in Node: `restart_guard` as `restartGuard`. Text
/// in single quotes is a user's own name and is not changed.
pub(crate) fn in_node(text: &str) -> String {
    // Most texts have nothing to respell, and thousands may fail at once.
    if !text.contains('_') && !text.contains(NO_PASSWORD) {
        return text.to_owned();
    }
    let is_meant = |word: &str| word.contains('_') && is_option(word);
    spell(text, |part| with_names(&of_clients(part), is_meant))
}

/// `text` with what the core does not know: the address may be that of a client object.
fn of_clients(text: &str) -> String {
    text.replace(
        NO_PASSWORD,
        &format!("{NO_PASSWORD} (of a client object its options count, not what auth() gave it)"),
    )
}

/// The same for a message that repeats settings, whose times are in milliseconds in Node.
pub(crate) fn with_times(text: &str) -> String {
    spell(&in_node(text), in_millis)
}

/// The same for a message about a setting, where the ttl is the duration that every call takes.
pub(crate) fn of_settings(text: &str) -> String {
    spell(text, |part| in_millis(&with_names(part, is_option)))
}

/// The name that an option of the core has in Node.
pub(crate) fn option(name: &str) -> String {
    match name {
        // As in node-redlock.
        "retry_limit" => "retryCount".to_owned(),
        "ttl" => "duration".to_owned(),
        name => camel_case(name),
    }
}

fn is_option(word: &str) -> bool {
    Policy::options().iter().any(|option| option.name == word)
}

/// `text` with `respell` applied to all but the names in quotes.
fn spell(text: &str, respell: impl Fn(&str) -> String) -> String {
    let mut spelt = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, quoted, after)) = next_quote(rest) {
        spelt.push_str(&respell(before));
        spelt.push_str(quoted);
        rest = after;
    }
    spelt.push_str(&respell(rest));
    spelt
}

fn with_names(text: &str, is_meant: impl Fn(&str) -> bool) -> String {
    let mut spelt = String::with_capacity(text.len());
    for word in words(text) {
        if is_meant(word) {
            spelt.push_str(&option(word));
        } else {
            spelt.push_str(word);
        }
    }
    spelt
}

/// `text` with `1.5 s` as `1500 ms`.
fn in_millis(text: &str) -> String {
    let mut spelt = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(" s") {
        let words =
            before.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
        let seconds = before[words.len()..].parse().ok();
        let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        match time.filter(|_| !after.starts_with(char::is_alphanumeric)) {
            Some(time) => {
                let millis = time.saturating_add(HALF).as_millis();
                spelt.extend([words, &millis.to_string(), " ms"]);
            }
            None => spelt.extend([before, " s"]),
        }
        rest = after;
    }
    spelt.push_str(rest);
    spelt
}

/// The text before a quoted name, the name, and the text after it. An apostrophe after a letter is
/// not a quote.
fn next_quote(text: &str) -> Option<(&str, &str, &str)> {
    let is_letter = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
    let opens = |at: &usize| !is_letter(text[..*at].chars().next_back());
    let start = text.match_indices('\'').map(|(at, _)| at).find(opens)?;
    let closes = |at: &usize| !is_letter(text[at + 1..].chars().next());
    let mut ends = text[start + 1..].match_indices('\'').map(|(at, _)| start + 1 + at);
    let end = ends.find(closes)? + 1;
    Some((&text[..start], &text[start..end], &text[end..]))
}

/// The words and the text between them, alternating; together they are the whole text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let end = rest.find(|letter| is_word(letter) != is_word(first)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = after;
        Some(word)
    })
}

/// What the core says of a node that wants one.
const NO_PASSWORD: &str = "the node wants a password, but the address has none";

/// Times of settings are whole milliseconds, but for what their seconds lose as decimal numbers.
const HALF: Duration = Duration::from_micros(500);

pub(crate) fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let mut text = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        text.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        text.push_str(letters.as_str());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_spelt_as_in_node() {
        assert_eq!(in_node("set restart_guard to \"off\""), "set restartGuard to \"off\"");
        assert_eq!(in_node("retry_limit, max_ttl: the ttl"), "retryCount, maxTtl: the ttl");
        assert_eq!(in_node("a quorum_size is no option"), "a quorum_size is no option");
        assert_eq!(of_settings("ttl and lock_delay together"), "duration and lockDelay together");
    }

    #[test]
    fn times_of_settings_are_in_milliseconds() {
        assert_eq!(
            of_settings("at most max_ttl, 0.005 s, not 2 s"),
            "at most maxTtl, 5 ms, not 2000 ms"
        );
        assert_eq!(
            of_settings("1.001 s: a 2 servers s, 1. 5 s"),
            "1001 ms: a 2 servers s, 1. 5000 ms"
        );
        assert_eq!(of_settings("'for 5 s' is held"), "'for 5 s' is held");
        assert_eq!(
            with_times("keep a ttl for 7200.0 s: max_ttl"),
            "keep a ttl for 7200000 ms: maxTtl"
        );
        assert_eq!(in_node("it answers again, after 5.0 s"), "it answers again, after 5.0 s");
    }

    #[test]
    fn names_of_users_stay() {
        assert_eq!(in_node("'max_ttl' is held: max_ttl"), "'max_ttl' is held: maxTtl");
        assert_eq!(
            in_node("'a', 'my lock_delay', 'it's': the node's max_hold"),
            "'a', 'my lock_delay', 'it's': the node's maxHold"
        );
        assert_eq!(in_node("an 'open max_ttl"), "an 'open maxTtl");
        assert_eq!(of_settings("resource 'ttl' is named twice"), "resource 'ttl' is named twice");
    }
}
