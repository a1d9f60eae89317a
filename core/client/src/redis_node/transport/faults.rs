//! Turns errors of a connection into faults with words for people. Owns the texts; decides nothing.

use std::io;

use quorlock_protocol::{Fault, FaultKind, alters_line};

/// The fault of a server that does not speak the protocol.
pub(crate) fn garbled() -> Fault {
    Fault::new(
        FaultKind::Garbled,
        "the node answered something that is not Redis's protocol: is the address that of a Redis or \
         Valkey server, and is TLS (rediss://) spoken on neither side or on both?",
    )
}

/// The usual words for an input or output error, without codes.
pub(super) fn io_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused: is the server running?".to_owned(),
        io::ErrorKind::ConnectionReset => "connection reset".to_owned(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => "the node closed it".to_owned(),
        io::ErrorKind::TimedOut => "timed out".to_owned(),
        io::ErrorKind::NotFound => "no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => plain(&error.to_string()),
    }
}

/// The text that the other side sent, made fit for one line of a log.
pub(crate) fn plain(text: &str) -> String {
    let shown = |c| if alters_line(c) { ' ' } else { c };
    let text = text.trim_end_matches(|c: char| c.is_whitespace() || alters_line(c));
    // One more than is quoted tells whether that is all.
    let text: String = text.chars().map(shown).take(LONGEST_QUOTE + 1).collect();
    let Some((limit, _)) = text.char_indices().nth(LONGEST_QUOTE) else {
        return text.trim().to_owned();
    };
    let end = text.trim_end().rfind(' ').filter(|end| *end > limit / 2).unwrap_or(limit);
    format!("{}...", text[..end].trim())
}

/// In characters.
const LONGEST_QUOTE: usize = 300;

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn a_long_text_is_cut_at_a_word() {
        let word = "word ";
        assert_eq!(plain(&word.repeat(60)), word.repeat(60).trim());
        assert_eq!(plain(&word.repeat(61)), format!("{}...", word.repeat(60).trim()));
        assert_eq!(
            plain(&format!("{}longer", word.repeat(59))),
            format!("{}...", word.repeat(59).trim())
        );
        assert_eq!(plain(&"\u{e9}".repeat(300)), "\u{e9}".repeat(300));
        assert_eq!(plain(&"\u{e9}".repeat(301)), format!("{}...", "\u{e9}".repeat(300)));
        assert_eq!(
            plain(&format!("{}abcd\r\n", word.repeat(59))),
            format!("{}abcd", word.repeat(59))
        );
        assert_eq!(
            plain(&format!("{}abcde\0", word.repeat(59))),
            format!("{}abcde", word.repeat(59))
        );
        assert_eq!(plain("\ttwo\nlines\r\n"), "two lines");
    }
}
