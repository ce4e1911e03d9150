//! Pictures of figures with their intervals.

use std::fmt::Write as _;

use crate::replay::Interval;

const COLOURS: [&str; 6] = ["#0b6e99", "#d9730d", "#448361", "#9065b0", "#c14c8a", "#787774"];
const HEAD: &str = "font-family=\"sans-serif\" font-size=\"12\"";

/// Text of an XML element.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A step of 1, 2 or 5 times a power of ten that cuts `span` into at most eight.
fn tick(span: f64) -> f64 {
    let raw = (span / 8.0).max(1e-9);
    let power = 10_f64.powf(raw.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|step| step * power).into_iter().find(|step| *step >= raw).unwrap_or(raw)
}

/// One line a figure, with a dot and a whisker.
pub(super) fn whiskers(title: &str, unit: &str, figures: &[(String, Interval)]) -> String {
    let low = figures.iter().map(|(_, figure)| figure.low).fold(f64::INFINITY, f64::min);
    let high = figures.iter().map(|(_, figure)| figure.high).fold(f64::NEG_INFINITY, f64::max);
    let step = tick(high - low);
    let (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
    let x = |value: f64| 300.0 + 520.0 * (value - low) / (high - low).max(1e-9);
    let bottom = 44 + 24 * figures.len();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"860\" height=\"{}\" {HEAD}>\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/><text x=\"10\" y=\"22\" font-weight=\"bold\">{}</text>\n",
        bottom + 40,
        escape(title)
    );
    // Writing to a string cannot fail.
    let mut at = low;
    while at <= high + step / 2.0 {
        _ = writeln!(
            svg,
            "<path d=\"M{0:.1} 34V{bottom}\" stroke=\"#ddd\"/><text x=\"{0:.1}\" y=\"{1}\" text-anchor=\"middle\">{2}</text>",
            x(at),
            bottom + 16,
            (at * 1e6).round() / 1e6
        );
        at += step;
    }
    _ = writeln!(svg, "<text x=\"820\" y=\"{}\" text-anchor=\"end\">{}</text>", bottom + 34, escape(unit));
    for (place, (name, figure)) in figures.iter().enumerate() {
        let (y, colour) = (52 + 24 * place, COLOURS[0]);
        _ = writeln!(
            svg,
            "<text x=\"290\" y=\"{}\" text-anchor=\"end\">{}</text><path d=\"M{:.1} {y}H{:.1}\" stroke=\"{colour}\" \
             stroke-width=\"2\"/><circle cx=\"{:.1}\" cy=\"{y}\" r=\"4\" fill=\"{colour}\"/>",
            y + 4,
            escape(name),
            x(figure.low),
            x(figure.high),
            x(figure.value)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// A line for each series over a few named places.
pub(super) fn lines(
    title: &str,
    unit: &str,
    places: &[String],
    series: &[(String, Vec<Interval>)],
) -> String {
    let all = || series.iter().flat_map(|(_, figures)| figures);
    let low = all().map(|figure| figure.low).fold(f64::INFINITY, f64::min);
    let high = all().map(|figure| figure.high).fold(f64::NEG_INFINITY, f64::max);
    let step = tick(high - low);
    let (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
    let x = |place: usize| 90.0 + 460.0 * place as f64 / (places.len().max(2) - 1) as f64;
    let y = |value: f64| 300.0 - 250.0 * (value - low) / (high - low).max(1e-9);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"860\" height=\"350\" {HEAD}>\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/><text x=\"10\" y=\"22\" font-weight=\"bold\">{}</text>\
         <text x=\"10\" y=\"40\">{}</text>\n",
        escape(title),
        escape(unit)
    );
    let mut at = low;
    while at <= high + step / 2.0 {
        _ = writeln!(
            svg,
            "<path d=\"M70 {0:.1}H580\" stroke=\"#ddd\"/><text x=\"64\" y=\"{1:.1}\" text-anchor=\"end\">{2}</text>",
            y(at),
            y(at) + 4.0,
            (at * 1e6).round() / 1e6
        );
        at += step;
    }
    for (place, name) in places.iter().enumerate() {
        _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"322\" text-anchor=\"middle\">{}</text>",
            x(place),
            escape(name)
        );
    }
    for (index, (name, figures)) in series.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let dots: Vec<String> =
            figures.iter().enumerate().map(|(at, f)| format!("{:.1},{:.1}", x(at), y(f.value))).collect();
        _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>\
             <rect x=\"600\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{colour}\"/><text x=\"618\" y=\"{}\">{}</text>",
            dots.join(" "),
            50 + 22 * index,
            61 + 22 * index,
            escape(name)
        );
        for (at, figure) in figures.iter().enumerate() {
            _ = writeln!(
                svg,
                "<path d=\"M{0:.1} {1:.1}V{2:.1}\" stroke=\"{colour}\"/>",
                x(at),
                y(figure.low),
                y(figure.high)
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(value: f64) -> Interval {
        Interval { value, low: value - 0.1, high: value + 0.2 }
    }

    #[test]
    fn pictures_are_well_formed_and_hold_all_figures() {
        let figures: Vec<_> =
            ["a < b", "c & d"].iter().map(|name| ((*name).to_owned(), interval(2.0))).collect();
        let svg = whiskers("t", "τ", &figures);
        assert!(svg.contains("a &lt; b") && svg.contains("c &amp; d"), "escaped: {svg}");
        assert_eq!(svg.matches("<circle").count(), 2, "one dot a figure");
        let series =
            [("x".to_owned(), vec![interval(1.0), interval(3.0)]), ("y".to_owned(), vec![interval(2.0); 2])];
        let svg = lines("t", "τ", &["3".to_owned(), "7".to_owned()], &series);
        assert_eq!(svg.matches("<polyline").count(), 2, "one line a series");
        for svg in [svg, whiskers("one", "", &figures[..1])] {
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "numbers: {svg}");
            for attribute in ["stroke=\"", "fill=\""] {
                let mut values = svg.split(attribute).skip(1);
                assert!(
                    values.all(|value| value.starts_with('#') || value.starts_with("none")),
                    "{attribute}: {svg}"
                );
            }
        }
    }

    #[test]
    fn ticks_are_round_numbers() {
        for (span, step) in [(1.0, 0.2), (0.7, 0.1), (16.0, 2.0), (33.0, 5.0)] {
            assert!((tick(span) - step).abs() < 1e-9, "{span}: {}", tick(span));
        }
    }
}
