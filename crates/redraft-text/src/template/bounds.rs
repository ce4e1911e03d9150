//! Bounds on the values that a template builds.
//!
//! The engine's fuel bounds how much a template makes, but not how it is nested. A loop that puts a list into
//! itself ten thousand times costs little, and printing or dropping the result overflows the stack; a list that
//! holds itself twice, sixty times over, costs nothing until it is compared. Loops can build such values only by
//! assigning them, so every assignment goes through a filter that measures the value. Filters live in a space of
//! names of their own, where a template cannot put anything in the way.

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

/// Sends every `{% set %}` through the filters, and turns `{% generation %}`, by which templates mark the model's
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
    match inner.trim() {
        "generation" => format!("{{%{open} if true {close}%}}").into(),
        "endgeneration" => format!("{{%{open} endif {close}%}}").into(),
        trimmed => {
            let Some(assignment) =
                trimmed.strip_prefix("set").filter(|rest| rest.starts_with(char::is_whitespace))
            else {
                return tag.into();
            };
            let in_target =
                |letter: char| letter.is_alphanumeric() || letter.is_whitespace() || "_.,()".contains(letter);
            let rest = assignment.trim_start_matches(in_target);
            let target = assignment.get(..assignment.len() - rest.len()).unwrap_or_default();
            match rest.strip_prefix('=') {
                // A block, whose value is a text.
                None => tag.into(),
                Some(value) => {
                    let filter = if target.contains('.') { ATTRIBUTE } else { VARIABLE };
                    // The space around is kept, so that errors name the right line.
                    let before = inner.get(..inner.len() - inner.trim_start().len()).unwrap_or_default();
                    let after = inner.get(inner.trim_end().len()..).unwrap_or_default();
                    format!("{{%{open}{before}set{target}= ({value}) | {filter}{after}{close}%}}").into()
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::rewrite;

    #[test]
    fn assignments_and_only_they_are_rewritten() {
        for (source, expected) in [
            ("{% set x = [1] %}", "{% set x = ( [1]) | redraft_bounded %}"),
            ("{%- set a, b=1, 2 -%}", "{%- set a, b= (1, 2) | redraft_bounded-%}"),
            ("{%set n.x = '%}' ~ n.x%}", "{%set n.x = ( '%}' ~ n.x) | redraft_bounded_attribute%}"),
            ("{%\n  set x = 1 if y else 2\n%}", "{%\n  set x = ( 1 if y else 2) | redraft_bounded\n%}"),
            ("{% set x %}a = b{% endset %}", "{% set x %}a = b{% endset %}"),
            ("{% set x | indent(width=2) %}a{% endset %}", "{% set x | indent(width=2) %}a{% endset %}"),
            ("{% settle x = 1 %}", "{% settle x = 1 %}"),
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
