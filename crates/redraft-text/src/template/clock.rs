//! `strftime_now`: the date, as Python formats it, in UTC.

use minijinja::{Error, ErrorKind};
use web_time::{SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// A moment, split as calendars do.
struct Moment {
    year: i64,
    /// From 0.
    month: usize,
    /// From 1.
    day: i64,
    /// From 0, Sunday.
    weekday: usize,
    /// From 1.
    day_of_year: i64,
    hour: i64,
    minute: i64,
    second: i64,
}

impl Moment {
    /// `seconds` since 1970.
    fn new(seconds: i64) -> Self {
        // The years that Python's dates have; nothing below can overflow.
        let seconds = seconds.clamp(-62_135_596_800, 253_402_300_799);
        let (days, time) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        // Counted from 1 March of a year 0 that begins a cycle of 400 years, so that leap days come last.
        let shifted = days + 719_468;
        let (cycle, in_cycle) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let in_years = (in_cycle - in_cycle / 1_460 + in_cycle / 36_524 - in_cycle / 146_096) / 365;
        let from_march = in_cycle - (365 * in_years + in_years / 4 - in_years / 100);
        let march_month = (5 * from_march + 2) / 153;
        let day = from_march - (153 * march_month + 2) / 5 + 1;
        let month = (march_month + 2) % 12;
        let year = in_years + cycle * 400 + i64::from(month < 2);
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let day_of_year = if month < 2 { from_march - 305 } else { from_march + 60 + i64::from(leap) };
        Self {
            year,
            month: usize::try_from(month).unwrap_or(0),
            day,
            weekday: usize::try_from((days + 4).rem_euclid(7)).unwrap_or(0),
            day_of_year,
            hour: time / 3600,
            minute: time / 60 % 60,
            second: time % 60,
        }
    }

    fn month_name(&self) -> &'static str {
        MONTHS.get(self.month).copied().unwrap_or_default()
    }

    fn day_name(&self) -> &'static str {
        DAYS.get(self.weekday).copied().unwrap_or_default()
    }

    /// One directive, or `None` when Python's are not known here.
    fn directive(&self, letter: char) -> Option<String> {
        let short = |name: &str| name.get(..3).unwrap_or(name).to_owned();
        Some(match letter {
            'Y' => format!("{:04}", self.year),
            'y' => format!("{:02}", self.year.rem_euclid(100)),
            'm' => format!("{:02}", self.month + 1),
            'd' => format!("{:02}", self.day),
            'e' => format!("{:2}", self.day),
            'B' => self.month_name().to_owned(),
            'b' | 'h' => short(self.month_name()),
            'A' => self.day_name().to_owned(),
            'a' => short(self.day_name()),
            'w' => self.weekday.to_string(),
            'u' => (if self.weekday == 0 { 7 } else { self.weekday }).to_string(),
            'j' => format!("{:03}", self.day_of_year),
            'H' => format!("{:02}", self.hour),
            'I' => format!("{:02}", (self.hour + 11) % 12 + 1),
            'M' => format!("{:02}", self.minute),
            'S' => format!("{:02}", self.second),
            'p' => (if self.hour < 12 { "AM" } else { "PM" }).to_owned(),
            'F' => format!("{:04}-{:02}-{:02}", self.year, self.month + 1, self.day),
            'T' => format!("{:02}:{:02}:{:02}", self.hour, self.minute, self.second),
            'R' => format!("{:02}:{:02}", self.hour, self.minute),
            'Z' => "UTC".to_owned(),
            'z' => "+0000".to_owned(),
            '%' => "%".to_owned(),
            _ => return None,
        })
    }
}

/// Formats a time, or the present, by Python's directives. A `-` after the percent sign removes leading zeros.
pub(super) fn strftime(format: &str, now: Option<i64>) -> Result<String, Error> {
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let moment = Moment::new(now.unwrap_or_else(|| i64::try_from(clock()).unwrap_or(i64::MAX)));
    let mut out = String::new();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        let mut directive = letters.next();
        let bare = directive == Some('-');
        if bare {
            directive = letters.next();
        }
        let text = directive.and_then(|letter| moment.directive(letter)).ok_or_else(|| {
            let name = directive.map(String::from).unwrap_or_default();
            Error::new(
                ErrorKind::InvalidOperation,
                format!("strftime_now: the directive %{name} is not supported"),
            )
        })?;
        let trimmed = text.trim_start_matches(['0', ' ']);
        out.push_str(match bare {
            true if trimmed.is_empty() => "0",
            true => trimmed,
            false => &text,
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::strftime;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01 Thu 001 00:00:00 AM 12"),
            (951_782_399, "2000-02-28 Mon 059 23:59:59 PM 11"),
            (951_782_400, "2000-02-29 Tue 060 00:00:00 AM 12"),
            (978_307_199, "2000-12-31 Sun 366 23:59:59 PM 11"),
            (1_709_210_096, "2024-02-29 Thu 060 12:34:56 PM 12"),
            (-1, "1969-12-31 Wed 365 23:59:59 PM 11"),
            (4_107_542_400, "2100-03-01 Mon 060 00:00:00 AM 12"),
        ] {
            let found = strftime("%Y-%m-%d %a %j %H:%M:%S %p %I", Some(seconds)).unwrap();
            assert_eq!(found, expected, "{seconds} seconds");
        }
        assert_eq!(strftime("%d %B %Y, %-d %b %y 100%%", Some(0)).unwrap(), "01 January 1970, 1 Jan 70 100%");
        assert!(strftime("%Y", None).unwrap().as_str() >= "2024", "the clock runs");
    }

    #[test]
    fn extremes_do_not_overflow_and_unknown_directives_are_named() {
        assert_eq!(strftime("%Y", Some(i64::MAX)).unwrap(), "9999", "clamped");
        assert_eq!(strftime("%Y", Some(i64::MIN)).unwrap(), "0001", "clamped");
        for format in ["%Q", "%", "%-"] {
            let error = strftime(format, Some(0)).unwrap_err();
            assert!(error.to_string().contains("directive"), "{format}: {error}");
        }
    }
}
