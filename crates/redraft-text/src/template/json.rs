//! The `tojson` filter as Hugging Face defines it: Python's `json.dumps` with `ensure_ascii=False`, and no
//! escaping for HTML.

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

/// Nesting that no tool description reaches and no stack fears.
const MAX_DEPTH: usize = 100;

/// `tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
pub(super) fn tojson(
    state: &State,
    value: &Value,
    rest: Rest<Value>,
    options: Kwargs,
) -> Result<String, Error> {
    let positional = |index: usize, name: &str| -> Result<Value, Error> {
        match rest.get(index) {
            Some(value) => Ok(value.clone()),
            None => Ok(options.get::<Option<Value>>(name)?.unwrap_or_default()),
        }
    };
    let ascii = positional(0, "ensure_ascii")?.is_true();
    let indent = match positional(1, "indent")? {
        none if none.is_none() || none.is_undefined() => None,
        text if text.as_str().is_some() => text.as_str().map(str::to_owned),
        number => Some(" ".repeat(usize::try_from(number.as_i64().unwrap_or(0)).unwrap_or(0).min(64))),
    };
    let separators = positional(2, "separators")?;
    let separator = |index: usize, default: &str| -> Result<String, Error> {
        if separators.is_none() || separators.is_undefined() {
            return Ok(default.to_owned());
        }
        let text = separators.get_item_by_index(index)?;
        text.as_str().map(str::to_owned).ok_or_else(|| invalid("separators must be two strings"))
    };
    let between = separator(0, if indent.is_some() { "," } else { ", " })?;
    let after_key = separator(1, ": ")?;
    let sort = positional(3, "sort_keys")?.is_true();
    options.assert_all_used()?;
    let mut writer = Writer { out: String::new(), paid: 0, state, ascii, indent, between, after_key, sort };
    writer.value(value, 0)?;
    Ok(writer.out)
}

fn invalid(detail: &'static str) -> Error {
    Error::new(ErrorKind::BadSerialization, format!("tojson: {detail}"))
}

struct Writer<'a, 'b, 'c> {
    out: String,
    /// Bytes of `out` already charged. Values can share parts, so the text can be far longer than the value is
    /// large, and has to be paid for while it grows.
    paid: usize,
    state: &'a State<'b, 'c>,
    ascii: bool,
    indent: Option<String>,
    between: String,
    after_key: String,
    sort: bool,
}

impl Writer<'_, '_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(invalid("the value is nested too deeply"));
        }
        self.pay()?;
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.number(value),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.list('[', ']', items.len(), depth, |writer, index| {
                    items.get(index).map_or(Ok(()), |item| writer.value(item, depth + 1))
                })?;
            }
            ValueKind::Map => self.map(value, depth)?,
            other => {
                return Err(Error::new(
                    ErrorKind::BadSerialization,
                    format!("tojson: a value of type {other} has no JSON form"),
                ));
            }
        }
        Ok(())
    }

    fn map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.sort {
            keys.sort_by_cached_key(ToString::to_string);
        }
        self.list('{', '}', keys.len(), depth, |writer, index| {
            let Some(key) = keys.get(index) else { return Ok(()) };
            match key.kind() {
                ValueKind::String => writer.string(key.as_str().unwrap_or_default()),
                ValueKind::None | ValueKind::Bool | ValueKind::Number => {
                    writer.out.push('"');
                    writer.value(key, depth + 1)?;
                    writer.out.push('"');
                }
                _ => return Err(invalid("keys must be strings, numbers, truth values or none")),
            }
            let after_key = writer.after_key.clone();
            writer.out.push_str(&after_key);
            writer.value(&value.get_item(key)?, depth + 1)
        })
    }

    fn list(
        &mut self,
        open: char,
        close: char,
        len: usize,
        depth: usize,
        mut item: impl FnMut(&mut Self, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open);
        for index in 0..len {
            if index > 0 {
                let between = self.between.clone();
                self.out.push_str(&between);
            }
            self.line(depth + 1);
            item(self, index)?;
        }
        if len > 0 {
            self.line(depth);
        }
        self.out.push(close);
        Ok(())
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
    }

    fn number(&mut self, value: &Value) {
        match (value.is_integer(), f64::try_from(value.clone())) {
            (false, Ok(float)) => self.out.push_str(&python_float(float)),
            _ => self.out.push_str(&value.to_string()),
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for letter in text.chars() {
            match letter {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                control if control < ' ' || (self.ascii && control > '~') => {
                    for unit in control.encode_utf16(&mut [0; 2]) {
                        self.out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                plain => self.out.push(plain),
            }
        }
        self.out.push('"');
    }

    fn pay(&mut self) -> Result<(), Error> {
        let due = (self.out.len() - self.paid) / 64;
        self.paid += due * 64;
        // One for each value, so that empty values are not free.
        self.state.consume_fuel(due as u64 + 1)
    }
}

/// A float as Python's `repr` writes it.
fn python_float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent) if value != 0.0 && !(-4..16).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
        }
        _ => {
            let plain = format!("{value}");
            if plain.contains('.') { plain } else { plain + ".0" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{python_float, tojson};
    use minijinja::{Environment, Value, context};

    fn render(source: &str, value: &serde_json::Value) -> String {
        let mut environment = Environment::new();
        environment.add_filter("tojson", tojson);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.render_str(source, context! { v => Value::from(minijinja::value::Serde(value)) }).unwrap()
    }

    #[test]
    fn json_is_written_as_python_writes_it() {
        let value: serde_json::Value =
            serde_json::from_str(r#"{"z": [1, 2.0, null, true], "a": "é<&'\"\n\u0001", "e": {}, "l": []}"#)
                .unwrap();
        for (source, expected) in [
            ("{{ v|tojson }}", r#"{"z": [1, 2.0, null, true], "a": "é<&'\"\n\u0001", "e": {}, "l": []}"#),
            ("{{ v.a|tojson(ensure_ascii=true) }}", r#""\u00e9<&'\"\n\u0001""#),
            (
                "{{ v|tojson(sort_keys=true, separators=[',', ':']) }}",
                r#"{"a":"é<&'\"\n\u0001","e":{},"l":[],"z":[1,2.0,null,true]}"#,
            ),
            ("{{ {'k': [1, {}]}|tojson(indent=2) }}", "{\n  \"k\": [\n    1,\n    {}\n  ]\n}"),
            ("{{ {1: 'x'}|tojson }}", r#"{"1": "x"}"#),
        ] {
            assert_eq!(render(source, &value), expected, "{source}");
        }
    }

    #[test]
    fn floats_are_written_as_python_writes_them() {
        for (value, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.5, "1.5"),
            (100.0, "100.0"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e-5, "1.5e-05"),
            (0.0001, "0.0001"),
            (1e100, "1e+100"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(python_float(value), expected, "{value:e}");
        }
    }
}
