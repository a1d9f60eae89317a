//! Which letters of a text that others have written must not be shown as they are. Owns the list; how they
//! are shown instead is the caller's.

/// Whether a letter would change how a terminal or a log shows the line that it is in: control characters,
/// ends of lines and paragraphs, marks that turn the direction of writing, and most letters that nobody sees.
/// (The two that join or part letters, U+200C and U+200D, belong to the writing of many languages.)
///
/// ```
/// use quorlock_protocol::alters_line;
///
/// assert!("\u{1b}\n\u{2028}\u{202e}\u{feff}".chars().all(alters_line));
/// assert!(!"a \u{e9}\u{5d0}\u{200d}".contains(alters_line));
/// ```
pub fn alters_line(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{61c}'
                | '\u{200b}'
                | '\u{200e}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}
