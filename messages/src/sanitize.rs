//! Sanitises foreign text in messages to people. Escape codes could hide or forge output on a terminal, so
//! every message passes through here, when made (a refusal on the log) or printed.

use std::borrow::Cow;
use std::fmt::Display;

/// More than any name and most paths.
const MOST_OF_WORD: usize = 160;
const KEPT_OF_WORD: usize = 80;
const MOST: usize = 1_600;
/// The end says what to do.
const KEPT_OF_END: usize = 400;

/// Control characters and changes of writing direction act on a terminal.
fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Escapes control characters, as in `\u{1b}` and `\n`.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, acts)
}

/// Escapes control characters except newlines and tabs.
#[must_use]
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| acts(c) && !matches!(c, '\n' | '\t'))
}

fn escaped(text: &str, acts: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&acts) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if acts(c) {
            out.extend(c.escape_default())
        } else {
            out.push(c)
        }
    }
    Cow::Owned(out)
}

/// Cuts long words and the middle of a long text.
#[must_use]
pub fn shortened(text: &str) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(text);
    if text.len() > MOST_OF_WORD {
        let long = |word: &str| word.chars().nth(MOST_OF_WORD).is_some();
        if text.split_whitespace().any(long) {
            let words = text.split_inclusive(char::is_whitespace).map(short_word);
            text = Cow::Owned(words.collect::<String>());
        }
    }
    let length = text.chars().count();
    if length <= MOST {
        return text;
    }
    let begin: String = text.chars().take(MOST - KEPT_OF_END).collect();
    let end: String = text.chars().skip(length - KEPT_OF_END).collect();
    Cow::Owned(format!("{begin} … {end}"))
}

fn short_word(word: &str) -> String {
    let length = word.trim_end().chars().count();
    if length <= MOST_OF_WORD {
        return word.to_owned();
    }
    let begin: String = word.chars().take(KEPT_OF_WORD).collect();
    // With the quote or comma after a value.
    let end: String = word
        .chars()
        .skip(word.chars().count().saturating_sub(8))
        .collect();
    format!("{begin}… ({length} characters) …{end}")
}

/// Makes foreign text printable and bounded.
#[must_use]
pub fn shown(text: &str) -> String {
    printable(&shortened(text)).into_owned()
}

const TYPES: [(&str, &str); 6] = [
    ("expected a sequence", "expected a list"),
    ("expected a boolean", "expected true or false"),
    ("invalid type: sequence", "found a list"),
    ("invalid type: map", "found a map"),
    ("invalid type: unit value", "found nothing"),
    ("invalid type: null", "found nothing"),
];

/// Replaces type names in a deserializer's error.
#[must_use]
pub fn in_words(error: &str) -> String {
    let mut text = error.to_owned();
    for (name, words) in TYPES {
        text = text.replace(name, words);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once("expected ") {
        out.push_str(before);
        out.push_str("expected ");
        rest = match type_in_words(after) {
            Some((words, after)) => {
                out.push_str(words);
                after
            }
            None => after,
        };
    }
    out.push_str(rest);
    out
}

fn type_in_words(text: &str) -> Option<(&'static str, &str)> {
    let name = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '<' | '>');
    let end = |text: &str| text.find(|c| !name(c)).unwrap_or(text.len());
    let (word, rest) = text.split_at(end(text));
    match word {
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" => {
            Some(("a whole number, 0 or more", rest))
        }
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => Some(("a whole number", rest)),
        "f32" | "f64" => Some(("a number", rest)),
        "struct" | "internally" => {
            let rest = rest.trim_start();
            Some(("a map", rest.get(end(rest)..).unwrap_or_default()))
        }
        "enum" | "variant" => {
            let rest = rest.trim_start();
            Some((
                "one of its names",
                rest.get(end(rest)..).unwrap_or_default(),
            ))
        }
        _ => None,
    }
}

/// Joins the first `most` names: `a, b and 3 more`.
#[must_use]
pub fn listed<T: Display>(names: impl IntoIterator<Item = T>, most: usize) -> String {
    let mut names = names.into_iter();
    let named: Vec<String> = names.by_ref().take(most).map(|it| it.to_string()).collect();
    let more = match names.count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", named.join(", "))
}

/// Returns `1 container`, `4 containers`.
#[must_use]
pub fn containers(count: u32) -> String {
    match count {
        1 => "1 container".to_owned(),
        count => format!("{count} containers"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_names_the_first_and_counts_the_rest() {
        assert_eq!(listed(["a", "b", "c"], 3), "a, b, c");
        assert_eq!(listed(1..=5, 3), "1, 2, 3 and 2 more");
        assert_eq!(listed::<&str>([], 3), "");
    }

    #[test]
    fn what_acts_on_a_terminal_is_written_out() {
        let text = "a\u{1b}[2Jb\rc\u{9b}d\u{202e}e\nf\tö";
        assert_eq!(
            printable(text),
            "a\\u{1b}[2Jb\\rc\\u{9b}d\\u{202e}e\\nf\\tö"
        );
        assert_eq!(printable_lines("a\nb\tc\u{7}"), "a\nb\tc\\u{7}");
        assert!(matches!(printable("ö → …"), Cow::Borrowed(_)));
    }

    #[test]
    fn long_words_and_texts_are_cut() {
        let name = "x".repeat(50_000);
        let message = format!("job name {name:?} is not 1 to 63 of a-z, 0-9 and '-'");
        let short = shown(&message);
        assert!(short.len() < 250, "{short}");
        assert!(short.contains("characters"), "{short}");
        assert!(
            short.ends_with("is not 1 to 63 of a-z, 0-9 and '-'"),
            "{short}"
        );
        let words = format!("{}; correct it", "ab ".repeat(20_000));
        let short = shown(&words);
        assert!(short.chars().count() < 1_700, "{}", short.len());
        assert!(short.ends_with("; correct it"), "{short}");
        assert_eq!(shown("short"), "short");
    }

    #[test]
    fn types_are_named_in_words() {
        for (error, words) in [
            (
                "weight: invalid type: string \"a\", expected u32",
                "weight: invalid type: string \"a\", expected a whole number, 0 or more",
            ),
            (
                "invalid type: string \"x\", expected struct Policy at line 1",
                "invalid type: string \"x\", expected a map at line 1",
            ),
            (
                "invalid type: sequence, expected f64",
                "found a list, expected a number",
            ),
            (
                "unknown field `a`, expected `b`",
                "unknown field `a`, expected `b`",
            ),
        ] {
            assert_eq!(in_words(error), words);
        }
    }
}
