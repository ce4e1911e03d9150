//! Bounds on the values that a template builds.
//!
//! The engine's fuel bounds how much a template makes, but not how it is nested. A loop that puts a list into
//! itself ten thousand times costs little, and printing or dropping the result overflows the stack; a list that
//! holds itself twice, sixty times over, costs nothing until it is compared. Such values can be built only by giving
//! them names on the way, so every name that is bound (by `set`, `with`, `for`, and as a parameter) goes through a
//! filter that measures its value. Filters live in a space of names of their own, where a template cannot put
//! anything in the way.

use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, State, Value};
use std::borrow::Cow;

const VARIABLE: &str = "redraft_bounded";
const ATTRIBUTE: &str = "redraft_bounded_attribute";

/// Nesting that no conversation reaches.
const MAX_DEPTH: usize = 64;

/// Adds the filters that [`rewrite`] uses. `values` is the largest number of values within one.
pub(super) fn register(environment: &mut Environment<'static>, values: usize) {
    environment.add_filter(VARIABLE, move |state: &State, value: Value| checked(state, value, values, false));
    environment.add_filter(ATTRIBUTE, move |state: &State, value: Value| checked(state, value, values, true));
}

fn checked(state: &State, value: Value, values: usize, attribute: bool) -> Result<Value, Error> {
    // Lazy values would hide what they hold, and may be read only once.
    let value = match value.kind() {
        ValueKind::Iterable => value.try_iter()?.collect(),
        _ => value,
    };
    let mut left = values;
    measure(&value, 0, &mut left, attribute)?;
    state.consume_fuel((values - left) as u64 / 16)?;
    Ok(value)
}

/// Walks a value. A namespace must not come into a namespace, or it could come into itself.
fn measure(value: &Value, depth: usize, left: &mut usize, attribute: bool) -> Result<(), Error> {
    let refuse = |what: &str| Err(Error::new(ErrorKind::InvalidOperation, format!("set: the value {what}")));
    if depth > MAX_DEPTH {
        return refuse("is nested too deeply");
    }
    match left.checked_sub(1) {
        Some(rest) => *left = rest,
        None => return refuse("holds too many values"),
    }
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            for item in value.try_iter()? {
                measure(&item, depth + 1, left, attribute)?;
            }
        }
        ValueKind::Map => {
            let is_namespace =
                value.as_object().is_some_and(|object| object.type_name().ends_with("::Namespace"));
            if attribute && is_namespace {
                return refuse("of a namespace's attribute holds a namespace");
            }
            for key in value.try_iter()? {
                measure(&value.get_item(&key)?, depth + 1, left, attribute)?;
                measure(&key, depth + 1, left, attribute)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Sends every bound name through the filters, and turns `{% generation %}`, by which templates mark the model's
/// turns for training and which Hugging Face renders as its content, into a condition that always holds.
pub(super) fn rewrite(source: &str) -> String {
    let mut out = String::with_capacity(source.len() + source.len() / 8);
    let mut rest = source;
    while let Some(start) = next_tag(rest) {
        let (text, tag) = rest.split_at(start);
        out.push_str(text);
        let length = tag_length(tag);
        let (tag, after) = tag.split_at(length);
        out.push_str(&rewrite_tag(tag));
        rest = after;
        if statement(tag).is_some_and(|(_, inner, _)| inner.trim() == "raw") {
            let length = raw_length(rest);
            let (raw, after) = rest.split_at(length);
            out.push_str(raw);
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

/// Where the next `{{`, `{%` or `{#` is.
fn next_tag(text: &str) -> Option<usize> {
    text.as_bytes().windows(2).position(|pair| matches!(pair, b"{{" | b"{%" | b"{#"))
}

/// Length of a tag with its marks; all of the text when it does not end.
fn tag_length(tag: &str) -> usize {
    let bytes = tag.as_bytes();
    let close = match bytes.get(1) {
        Some(b'#') => return tag.get(2..).and_then(|text| text.find("#}")).map_or(tag.len(), |at| at + 4),
        Some(b'%') => b"%}",
        _ => b"}}",
    };
    let (mut quote, mut braces, mut at) = (None, 0usize, 2);
    while let Some(&byte) = bytes.get(at) {
        match (quote, byte) {
            (Some(_), b'\\') => at += 1,
            (Some(open), _) if open == byte => quote = None,
            (Some(_), _) => {}
            (None, b'\'' | b'"') => quote = Some(byte),
            (None, _) if braces == 0 && bytes.get(at..at + 2) == Some(close) => return at + 2,
            (None, b'{') => braces += 1,
            (None, b'}') => braces = braces.saturating_sub(1),
            (None, _) => {}
        }
        at += 1;
    }
    tag.len()
}

/// Length of what stands before the end of a raw block.
fn raw_length(text: &str) -> usize {
    let mut from = 0;
    while let Some(at) = text.get(from..).and_then(|rest| rest.find("{%")) {
        let start = from + at;
        let tag = text.get(start..).unwrap_or_default();
        let tag = tag.find("%}").and_then(|end| tag.get(..end + 2)).unwrap_or_default();
        if statement(tag).is_some_and(|(_, inner, _)| inner.trim() == "endraw") {
            return start;
        }
        from = start + 2;
    }
    text.len()
}

/// The parts of `{%- inner -%}`: opening mark, inside, closing mark.
fn statement(tag: &str) -> Option<(&str, &str, &str)> {
    let inner = tag.strip_prefix("{%")?.strip_suffix("%}")?;
    let is_mark = |letter: char| matches!(letter, '-' | '+');
    let without_open = inner.strip_prefix(is_mark).unwrap_or(inner);
    let open = inner.get(..inner.len() - without_open.len())?;
    let without_close = without_open.strip_suffix(is_mark).unwrap_or(without_open);
    let close = without_open.get(without_close.len()..)?;
    Some((open, without_close, close))
}

fn rewrite_tag(tag: &str) -> Cow<'_, str> {
    let Some((open, inner, close)) = statement(tag) else { return tag.into() };
    let (keyword, rest) =
        inner.trim().split_at(inner.trim().find(|c: char| !is_word(c)).unwrap_or(inner.trim().len()));
    match keyword {
        "generation" if rest.is_empty() => format!("{{%{open} if true {close}%}}").into(),
        "endgeneration" if rest.is_empty() => format!("{{%{open} endif {close}%}}").into(),
        "set" => rewrite_set(open, inner, close).map_or(tag.into(), Cow::Owned),
        "for" => then_check(tag, &names(before_in(rest)), close),
        "with" => then_check(tag, &bound_names(rest), close),
        "macro" | "call" => {
            let parameters = rest.find('(').and_then(|at| rest.get(at + 1..)).unwrap_or_default();
            // In `call(x) f(y)` the first list holds the parameters; without one they are arguments.
            let is_list = keyword == "macro" || rest.starts_with('(') || rest.trim_start().starts_with('(');
            if is_list { then_check(tag, &bound_names(parameters), close) } else { tag.into() }
        }
        _ => tag.into(),
    }
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// `{% set target = value %}` with the value filtered; `None` for a block, whose value is a text.
fn rewrite_set(open: &str, inner: &str, close: &str) -> Option<String> {
    let assignment = inner.trim().strip_prefix("set")?;
    let in_target = |letter: char| is_word(letter) || letter.is_whitespace() || ".,()".contains(letter);
    let rest = assignment.trim_start_matches(in_target);
    let target = assignment.get(..assignment.len() - rest.len())?;
    let value = rest.strip_prefix('=')?;
    let filter = if target.contains('.') { ATTRIBUTE } else { VARIABLE };
    // The space around is kept, so that errors name the right line.
    let before = inner.get(..inner.len() - inner.trim_start().len())?;
    let after = inner.get(inner.trim_end().len()..)?;
    Some(format!("{{%{open}{before}set{target}= ({value}) | {filter}{after}{close}%}}"))
}

/// A tag followed by assignments that filter the names that it has bound. They end as the tag does, so that the
/// space after it is treated alike.
fn then_check<'a>(tag: &'a str, names: &[&str], close: &str) -> Cow<'a, str> {
    let mut out = tag.to_owned();
    for name in names {
        out.push_str(&format!("{{% set {name} = {name} | {VARIABLE} {close}%}}"));
    }
    out.into()
}

/// The words of a target such as `a, (b, c)`.
fn names(target: &str) -> Vec<&str> {
    target.split(|letter| !is_word(letter)).filter(|word| !word.is_empty()).collect()
}

/// The target of a loop: what stands before the word `in`.
fn before_in(rest: &str) -> &str {
    let mut from = 0;
    while let Some(at) = rest.get(from..).and_then(|text| text.find("in")) {
        let (start, end) = (from + at, from + at + 2);
        let outside = |text: Option<&str>, last: bool| {
            let letter =
                text.and_then(|text| if last { text.chars().next_back() } else { text.chars().next() });
            !letter.is_some_and(is_word)
        };
        if outside(rest.get(..start), true) && outside(rest.get(end..), false) {
            return rest.get(..start).unwrap_or_default();
        }
        from = end;
    }
    ""
}

/// The names that `a, b=[1, 2], (c, d)=e` binds, up to a closing bracket that it did not open.
fn bound_names(list: &str) -> Vec<&str> {
    let (mut found, mut depth, mut quote, mut from) = (Vec::new(), 0usize, None, Some(0));
    let mut letters = list.char_indices();
    while let Some((at, letter)) = letters.next() {
        match (quote, letter) {
            (Some(_), '\\') => {
                letters.next();
            }
            (Some(open), _) if open == letter => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(letter),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') if depth > 0 => depth -= 1,
            (None, ',' | '=' | ')' | ']' | '}') if depth == 0 => {
                // A target ends at its `=`, or at the comma when there is no default.
                found.extend(from.take().and_then(|from| list.get(from..at)).map(names).unwrap_or_default());
                match letter {
                    ',' => from = Some(at + 1),
                    '=' => {}
                    _ => return found,
                }
            }
            (None, _) => {}
        }
    }
    found.extend(from.and_then(|from| list.get(from..)).map(names).unwrap_or_default());
    found
}

#[cfg(test)]
mod tests {
    use super::rewrite;

    #[test]
    fn assignments_and_only_they_are_rewritten() {
        for (source, expected) in [
            ("{% set x = [1] %}", "{% set x = ( [1]) | redraft_bounded %}"),
            ("{%- set a, b=1, 2 -%}", "{%- set a, b= (1, 2) | redraft_bounded -%}"),
            ("{%set n.x = '%}' ~ n.x%}", "{%set n.x = ( '%}' ~ n.x) | redraft_bounded_attribute%}"),
            ("{%\n  set x = 1 if y else 2\n%}", "{%\n  set x = ( 1 if y else 2) | redraft_bounded\n%}"),
            ("{% set x %}a = b{% endset %}", "{% set x %}a = b{% endset %}"),
            ("{% set x | indent(width=2) %}a{% endset %}", "{% set x | indent(width=2) %}a{% endset %}"),
            ("{% settle x = 1 %}", "{% settle x = 1 %}"),
            (
                "{%- for a, (b, c) in x.items() -%}",
                "{%- for a, (b, c) in x.items() -%}{% set a = a | redraft_bounded -%}{% set b = b | redraft_bounded -%}{% set c = c | redraft_bounded -%}",
            ),
            ("{% for inner in xs %}", "{% for inner in xs %}{% set inner = inner | redraft_bounded %}"),
            (
                "{% macro f(a, b=[x, y], c=')') %}",
                "{% macro f(a, b=[x, y], c=')') %}{% set a = a | redraft_bounded %}{% set b = b | redraft_bounded %}{% set c = c | redraft_bounded %}",
            ),
            ("{% macro f() %}", "{% macro f() %}"),
            ("{% call f(x) %}", "{% call f(x) %}"),
            ("{% call(y) f(x) %}", "{% call(y) f(x) %}{% set y = y | redraft_bounded %}"),
            (
                "{% with a = f(x, y), (b, c) = z %}",
                "{% with a = f(x, y), (b, c) = z %}{% set a = a | redraft_bounded %}{% set b = b | redraft_bounded %}{% set c = c | redraft_bounded %}",
            ),
            ("{# {% set x = 1 %} #}", "{# {% set x = 1 %} #}"),
            ("{{ {'a': {}}, '{% set x = 1 %}' }}", "{{ {'a': {}}, '{% set x = 1 %}' }}"),
            ("{{ 'it\\'s {% set x = 1 %}' }}", "{{ 'it\\'s {% set x = 1 %}' }}"),
            (
                "{% raw %}{% set x = 1 %}{%- endraw %}{% set y = 1 %}",
                "{% raw %}{% set x = 1 %}{%- endraw %}{% set y = ( 1) | redraft_bounded %}",
            ),
            ("{%- generation %}x{% endgeneration -%}", "{%- if true %}x{% endif -%}"),
            ("{% set x = 1", "{% set x = 1"),
            ("{ {%%} é", "{ {%%} é"),
        ] {
            assert_eq!(rewrite(source), expected, "{source}");
        }
    }
}
