//! Costs of steps and rounds, kept between runs: an automatic choice needs them, and measuring takes about twenty plain
//! steps.
//!
//! They are remembered under all that they depend on. What cannot be read is measured again.

use std::fs;
use std::path::PathBuf;

use pollster::block_on;
use redraft::{CancelToken, Costs, Curve, Engine, Extent, Measured};
use serde::{Deserialize, Serialize};

use crate::error::CliError;
use crate::loading;
use crate::model::{cache, hash};
use crate::{output, progress};

/// What costs depend on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CostKey {
    /// Version of this program: another one has other kernels.
    version: String,
    adapter: String,
    backend: String,
    driver: String,
    /// Of the model file's size, beginning and end: shapes and types stand there.
    model: String,
    /// SHA-256 of the drafter's file.
    drafter: Option<String>,
    /// What the model was loaded with: the kernels' tier, the type of the cache, the context.
    setup: String,
}

/// A file of kept costs.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    key: CostKey,
    costs: Numbers,
}

/// [`Costs`] as JSON has them.
#[derive(Debug, Serialize, Deserialize)]
struct Numbers {
    /// (rows, cost) of a step of the target, in plain steps.
    verify: Vec<(u32, f64)>,
    /// (rows, cost) of a step of the drafter.
    draft: Vec<(u32, f64)>,
    extend: f64,
    overhead: f64,
    catch_up: f64,
    catch_up_most: u32,
}

impl From<&Costs> for Numbers {
    fn from(costs: &Costs) -> Self {
        Self {
            verify: costs.verify.points().to_vec(),
            draft: costs.draft.points().to_vec(),
            extend: costs.extend,
            overhead: costs.overhead,
            catch_up: costs.catch_up,
            catch_up_most: costs.catch_up_most,
        }
    }
}

impl Numbers {
    /// The costs, or why they are none.
    fn costs(self) -> Result<Costs, String> {
        let curve = |points| Curve::new(points).map_err(|error| error.to_string());
        let costs = Costs {
            verify: curve(self.verify)?,
            draft: curve(self.draft)?,
            extend: self.extend,
            overhead: self.overhead,
            catch_up: self.catch_up,
            catch_up_most: self.catch_up_most,
        };
        costs.validate().map_err(|error| error.to_string())?;
        Ok(costs)
    }
}

impl CostKey {
    /// The key of what is loaded. `model` identifies the model's file, `drafter` the drafter's.
    pub(crate) fn new(engine: &Engine, model: String, drafter: Option<String>, setup: String) -> Self {
        let adapter = engine.adapter();
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            adapter: adapter.name.clone(),
            backend: adapter.backend.to_owned(),
            driver: adapter.driver.clone(),
            model,
            drafter,
            setup,
        }
    }

    /// Where costs under this key are kept.
    fn file(&self) -> Option<PathBuf> {
        let key = serde_json::to_vec(self).ok()?;
        let name = hash::bytes(&key);
        Some(cache::root()?.join("costs").join(format!("{}.json", name.get(..32)?)))
    }
}

/// Gives the engine what an automatic choice needs: kept costs, or where there are none, measured ones, which are returned.
pub(crate) fn prepare(engine: &mut Engine, key: &CostKey) -> Result<Option<Measured>, CliError> {
    if let Some(file) = key.file() {
        match read(&file, key) {
            Ok(Some(costs)) => {
                engine.set_costs(&costs)?;
                log::info!("costs of steps from {}", file.display());
                return Ok(None);
            }
            Ok(None) => {}
            Err(reason) => output::note(format_args!(
                "the kept costs of steps in {} cannot be used ({reason}); measuring again",
                file.display()
            )),
        }
    }
    measure(engine, key, Extent::Bounded).map(Some)
}

/// Measures, tells that it does, gives the engine the costs, and keeps them for later runs.
pub(crate) fn measure(engine: &mut Engine, key: &CostKey, extent: Extent) -> Result<Measured, CliError> {
    // Nothing else is seen before the first token, and on a software adapter that takes a while.
    let told = match extent {
        Extent::Bounded => "measuring what speculation costs on this adapter (once)",
        Extent::Whole => "measuring what steps and rounds cost on this adapter",
    };
    let spinner = progress::spinner(told);
    if spinner.is_hidden() {
        output::note(format_args!("{told}…"));
    }
    let measured = block_on(engine.measure_costs(extent, &CancelToken::default()));
    spinner.finish_and_clear();
    let measured = measured?;
    log::info!("measuring took {:.2} s, {:.1} plain steps", measured.seconds, measured.steps);
    if let Some(file) = key.file() {
        let kept = Kept { key: key.clone(), costs: (&measured.costs).into() };
        let written = serde_json::to_vec_pretty(&kept)
            .map_err(Into::into)
            .and_then(|bytes| loading::store(&file, &bytes));
        // Only the measurement is lost if this fails.
        if let Err(error) = written {
            log::warn!("cannot keep the costs of steps in {}: {error}", file.display());
        }
    }
    Ok(measured)
}

/// The costs in `file`; none if there is no such file or it is of something else.
fn read(file: &PathBuf, key: &CostKey) -> Result<Option<Costs>, String> {
    let text = match fs::read(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let kept: Kept = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    if kept.key != *key {
        return Ok(None);
    }
    let costs = kept.costs.costs()?;
    costs.check_measured(key.drafter.is_some()).map_err(|error| error.to_string())?;
    Ok(Some(costs))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> CostKey {
        CostKey {
            version: "1".into(),
            adapter: "a".into(),
            backend: "vulkan".into(),
            driver: "d".into(),
            model: "m".into(),
            drafter: None,
            setup: "s".into(),
        }
    }

    fn costs() -> Costs {
        let curve = |points: &[(u32, f64)]| Curve::new(points.to_vec()).unwrap();
        Costs {
            verify: curve(&[(1, 1.0), (8, 3.29)]),
            draft: curve(&[(4, 0.1)]),
            extend: 0.3,
            overhead: 0.02,
            catch_up: 0.01,
            catch_up_most: 48,
        }
    }

    #[test]
    fn costs_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("costs.json");
        assert_eq!(read(&file, &key()), Ok(None), "no file");
        let kept = Kept { key: key(), costs: (&costs()).into() };
        fs::write(&file, serde_json::to_vec(&kept).unwrap()).unwrap();
        assert_eq!(read(&file, &key()), Ok(Some(costs())));
        let other = CostKey { driver: "another".into(), ..key() };
        assert_eq!(read(&file, &other), Ok(None), "of another driver");
        assert_ne!(key().file(), other.file());
    }

    #[test]
    fn what_is_no_cost_is_refused_with_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("costs.json");
        let good = serde_json::to_value(Kept { key: key(), costs: (&costs()).into() }).unwrap();
        let mut bad = vec![String::new(), "{}".into(), "[1".into(), "null".into()];
        for (field, value) in [
            ("verify", serde_json::json!([])),
            ("verify", serde_json::json!([[4, 1.0], [2, 1.0]])),
            ("draft", serde_json::json!([[1, -1.0]])),
            ("extend", serde_json::json!(-0.5)),
            ("overhead", serde_json::json!("cheap")),
            // Well-formed, and true nowhere.
            ("verify", serde_json::json!([[1, 1.0], [8, 0.01]])),
            ("verify", serde_json::json!([[1, 1.0], [8, 4000.0]])),
            ("verify", serde_json::json!([[1, 2.0], [8, 3.0]])),
            ("verify", serde_json::json!([[8, 3.0]])),
            ("draft", serde_json::json!([[1, 1e5]])),
            ("extend", serde_json::json!(1e9)),
            ("overhead", serde_json::json!(50.0)),
            ("catch_up", serde_json::json!(1e6)),
            ("catch_up_most", serde_json::json!(4_000_000_000u32)),
        ] {
            let mut file = good.clone();
            file["costs"][field] = value;
            bad.push(file.to_string());
        }
        for text in bad {
            fs::write(&file, &text).unwrap();
            let reason = read(&file, &key()).expect_err(&text);
            assert!(!reason.is_empty(), "{text}");
        }
        // A drafter that costs nothing was not measured.
        let free = Costs { draft: Curve::new(vec![(1, 0.0)]).unwrap(), extend: 0.0, ..costs() };
        for (drafter, good) in [(None, true), (Some("d".to_owned()), false)] {
            let key = CostKey { drafter, ..key() };
            let kept = Kept { key: key.clone(), costs: (&free).into() };
            fs::write(&file, serde_json::to_vec(&kept).unwrap()).unwrap();
            assert_eq!(read(&file, &key).is_ok(), good, "{key:?}");
        }
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert!(read(&file, &key()).is_err(), "a folder");
    }
}
