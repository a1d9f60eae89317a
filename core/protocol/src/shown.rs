//! Tells which letters of texts from outside must not be shown as they are, since they would alter a terminal's or a
//! log's line. Owns the list, and how a name is shown; texts of other kinds are shown as their modules say.

/// Whether a letter would change how a terminal or a log shows the line that it is in: control characters,
/// ends of lines and paragraphs, marks that turn the direction of writing, and letters that nobody sees, such
/// as the soft hyphen. (The two that join or part letters, U+200C and U+200D, and those that choose the variant
/// of the letter before them belong to the writing of many languages.)
///
/// ```
/// use quorlock_protocol::alters_line;
///
/// assert!("\u{1b}\n\u{2028}\u{202e}\u{feff}\u{ad}\u{3164}".chars().all(alters_line));
/// assert!(!"a \u{e9}\u{5d0}\u{200d}\u{fe0f}".contains(alters_line));
/// ```
pub fn alters_line(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180e}'
                | '\u{200b}'
                | '\u{200e}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e00ff}'
                | '\u{e01f0}'..='\u{e0fff}'
        )
}

/// A line with such letters written as in Rust's texts.
///
/// ```
/// use quorlock_protocol::plain_line;
///
/// assert_eq!(plain_line("caf\u{e9}\u{202e}"), r"café\u{202e}");
/// ```
pub fn plain_line(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for letter in text.chars() {
        if alters_line(letter) {
            plain.extend(letter.escape_default());
        } else {
            plain.push(letter);
        }
    }
    plain
}
