//! Spells option names in the core's sentences as JavaScript does. Owns the spelling; the sentences
//! and the list of options are the core's.

use quorlock::Policy;

/// `text` with every option of the core spelt as in Node: `restart_guard` as `restartGuard`. Text
/// in single quotes is a user's own name and is not changed.
pub(crate) fn in_node(text: &str) -> String {
    spell(text, |word| word.contains('_') && is_option(word), option)
}

/// The same for a message about a setting, where the ttl is the duration that every call takes.
pub(crate) fn of_settings(text: &str) -> String {
    spell(text, is_option, option)
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

fn spell(text: &str, is_meant: impl Fn(&str) -> bool, spelling: fn(&str) -> String) -> String {
    let mut spelt = String::with_capacity(text.len());
    let respell = |text: &str, spelt: &mut String| {
        for word in words(text) {
            if is_meant(word) {
                spelt.push_str(&spelling(word));
            } else {
                spelt.push_str(word);
            }
        }
    };
    let mut rest = text;
    while let Some((before, quoted, after)) = next_quote(rest) {
        respell(before, &mut spelt);
        spelt.push_str(quoted);
        rest = after;
    }
    respell(rest, &mut spelt);
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
