//! Settings of a chat and the `/set` command.

use redraft::SamplingParams;

use crate::args::{self, SamplingArgs};

/// How answers are made.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) sampling: SamplingParams,
    pub(crate) max_tokens: u32,
    pub(crate) stop: Vec<String>,
    pub(crate) ignore_eos: bool,
}

impl Settings {
    /// The defaults of a chat, changed by the flags. `seed` is used unless a flag sets one.
    pub(crate) fn new(args: &SamplingArgs, seed: u64) -> Self {
        let defaults =
            SamplingParams { temperature: 0.7, top_p: 0.95, min_p: 0.05, seed, ..SamplingParams::default() };
        Self {
            sampling: args.params(defaults),
            max_tokens: args.max_tokens.unwrap_or(1024),
            stop: args.stop.clone(),
            ignore_eos: args.ignore_eos,
        }
    }

    /// `/set key value`.
    pub(super) fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        fn whole<T: std::str::FromStr>(value: &str) -> Result<T, String> {
            value.parse().map_err(|_| "expected a whole number".into())
        }
        let sampling = &mut self.sampling;
        let outcome = match key.replace('_', "-").as_str() {
            "temperature" => args::temperature(value).map(|v| sampling.temperature = v),
            "top-k" => whole(value).map(|v| sampling.top_k = v),
            "top-p" => args::top_p(value).map(|v| sampling.top_p = v),
            "min-p" => args::min_p(value).map(|v| sampling.min_p = v),
            "repetition-penalty" => args::repetition_penalty(value).map(|v| sampling.repetition_penalty = v),
            "presence-penalty" => args::presence_penalty(value).map(|v| sampling.presence_penalty = v),
            "frequency-penalty" => args::frequency_penalty(value).map(|v| sampling.frequency_penalty = v),
            "penalty-window" => args::penalty_window(value).map(|v| sampling.penalty_window = v),
            "seed" => whole(value).map(|v| sampling.seed = v),
            "max-tokens" => match whole(value) {
                Ok(0) => Err("expected at least 1".into()),
                other => other.map(|v| self.max_tokens = v),
            },
            "stop" => {
                self.stop = if value.is_empty() { Vec::new() } else { vec![value.into()] };
                Ok(())
            }
            _ => return Err(format!("there is no setting '{key}'; /set lists them")),
        };
        outcome.map_err(|reason| format!("{key}: {reason}, found '{value}'"))
    }

    /// All settings, one a line.
    pub(super) fn list(&self) -> String {
        let SamplingParams {
            temperature,
            top_k,
            top_p,
            min_p,
            repetition_penalty,
            presence_penalty,
            frequency_penalty,
            penalty_window,
            seed,
            ..
        } = &self.sampling;
        format!(
            "temperature {temperature}\ntop-k {top_k}\ntop-p {top_p}\nmin-p {min_p}\n\
             repetition-penalty {repetition_penalty}\npresence-penalty {presence_penalty}\n\
             frequency-penalty {frequency_penalty}\npenalty-window {penalty_window}\nseed {seed}\n\
             max-tokens {}\nstop {:?}",
            self.max_tokens, self.stop
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_setting_can_be_set_to_what_is_listed() {
        let mut settings = Settings::new(&SamplingArgs::default(), 9);
        assert_eq!(settings.sampling.seed, 9);
        for line in settings.list().lines() {
            let (key, value) = line.split_once(' ').unwrap();
            settings.set(key, value).unwrap();
            settings.set(&key.replace('-', "_"), value).unwrap();
        }
    }

    #[test]
    fn bad_settings_are_refused_by_name_and_change_nothing() {
        let mut settings = Settings::new(&SamplingArgs::default(), 0);
        let before = settings.list();
        for (key, value) in [
            ("temperature", "-1"),
            ("temperature", "NaN"),
            ("top-k", "-1"),
            ("top-p", "2"),
            ("min-p", "x"),
            ("seed", "1.5"),
            ("max-tokens", "0"),
            ("repetition-penalty", "0"),
            ("penalty-window", ""),
            ("penalty-window", "4097"),
            ("temperature", "1e9"),
            ("volume", "11"),
        ] {
            let reason = settings.set(key, value).expect_err(key);
            assert!(reason.contains(key), "{reason}");
        }
        assert_eq!(settings.list(), before);
    }
}
