//! `/commands` of the chat.

/// What the commands do, as `/help` shows it.
pub(super) const HELP: &str = "\
/help            this list
/exit            leave (also Ctrl-D, or Ctrl-C twice)
/reset           forget the conversation, keep the system message
/system [TEXT]   set the system message; without TEXT show it
/set [KEY VALUE] change a setting; without KEY show all
/stats           context used and speed of the last answer, and from now on of each; again to stop
/retry           answer the last message again
/save FILE       write the conversation as JSON
/load FILE       continue a saved conversation
A line that ends with \\ goes on in the next. Ctrl-C stops an answer. // at the start sends a message that begins with /.";

const NAMES: [&str; 9] = ["help", "exit", "reset", "system", "set", "stats", "retry", "save", "load"];

/// A line that was typed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Typed<'a> {
    /// A message for the model.
    Message(&'a str),
    /// Nothing.
    Empty,
    Help,
    Exit,
    Reset,
    /// The new system message, or none to show it.
    System(Option<&'a str>),
    /// Key and value, or none to show all settings.
    Set(Option<(&'a str, &'a str)>),
    Stats,
    Retry,
    Save(&'a str),
    Load(&'a str),
    /// Something that begins with `/` but cannot be obeyed, and a hint.
    Wrong(String),
}

/// What `line` means.
pub(super) fn parse<'a>(line: &'a str) -> Typed<'a> {
    let trimmed = line.trim();
    if trimmed.is_empty() {
        return Typed::Empty;
    }
    let Some(command) = trimmed.strip_prefix('/') else { return Typed::Message(line) };
    if command.starts_with('/') {
        return Typed::Message(command);
    }
    let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    let rest = rest.trim();
    let argument = (!rest.is_empty()).then_some(rest);
    let file = |wrap: fn(&'a str) -> Typed<'a>| match argument {
        Some(file) => wrap(file),
        None => Typed::Wrong(format!("/{name} needs a file name")),
    };
    match name {
        "help" | "?" => Typed::Help,
        "exit" | "quit" | "bye" => Typed::Exit,
        "reset" | "clear" => Typed::Reset,
        "system" => Typed::System(argument),
        "set" => Typed::Set(
            argument.map(|a| a.split_once(char::is_whitespace).map_or((a, ""), |(k, v)| (k, v.trim()))),
        ),
        "stats" => Typed::Stats,
        "retry" => Typed::Retry,
        "save" => file(Typed::Save),
        "load" => file(Typed::Load),
        _ => Typed::Wrong(unknown(name)),
    }
}

fn unknown(name: &str) -> String {
    let close = NAMES.iter().map(|known| (distance(name, known), known)).min();
    match close {
        Some((distance, known)) if distance <= 2 => format!("there is no /{name}; did you mean /{known}?"),
        _ => format!("there is no /{name}; /help lists the commands, // sends a message that begins with /"),
    }
}

/// Edits (insert, delete, replace a character) between two words.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().take(64).enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (j, y) in b.chars().enumerate() {
            let above = row.get(j + 1).copied().unwrap_or(usize::MAX - 1);
            let best = (diagonal + usize::from(x != y)).min(above + 1).min(left + 1);
            if let Some(cell) = row.get_mut(j) {
                *cell = left;
            }
            (diagonal, left) = (above, best);
        }
        if let Some(cell) = row.last_mut() {
            *cell = left;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_messages_unless_they_begin_with_a_slash() {
        assert_eq!(parse(" hello / there"), Typed::Message(" hello / there"));
        assert_eq!(parse("//etc"), Typed::Message("/etc"));
        assert_eq!(parse(" \t"), Typed::Empty);
        assert_eq!(parse("/exit"), Typed::Exit);
        assert_eq!(parse("/system  be brief "), Typed::System(Some("be brief")));
        assert_eq!(parse("/system"), Typed::System(None));
        assert_eq!(parse("/set top-k  5"), Typed::Set(Some(("top-k", "5"))));
        assert_eq!(parse("/set stop"), Typed::Set(Some(("stop", ""))));
        assert_eq!(parse("/save my file.json"), Typed::Save("my file.json"));
    }

    #[test]
    fn unknown_commands_get_a_hint() {
        let hint = |line| match parse(line) {
            Typed::Wrong(hint) => hint,
            other => panic!("{line} was taken as {other:?}"),
        };
        assert!(hint("/rest").contains("/reset"));
        assert!(hint("/hepl").contains("/help"));
        assert!(hint("/frobnicate").contains("/help"));
        assert!(hint("/save").contains("file name"));
        assert!(hint("/").contains("/help"));
    }

    #[test]
    fn distances_count_edits() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
        assert_eq!(distance("abc", ""), 3);
    }
}
