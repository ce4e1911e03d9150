//! Costs of steps and rounds as JSON, so that JavaScript can keep them between visits.

use redraft::{Costs, Curve};
use serde::{Deserialize, Serialize};

/// [`Costs`], in plain steps.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct CostsReport {
    /// (rows, cost) of a step of the model.
    verify: Vec<(u32, f64)>,
    /// (rows, cost) of a step of the drafter.
    draft: Vec<(u32, f64)>,
    extend: f64,
    overhead: f64,
    catch_up: f64,
    catch_up_most: u32,
}

impl From<&Costs> for CostsReport {
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

/// The costs in `json`, or why they are none that could have been measured, with a drafter if `drafts`.
pub(crate) fn read(json: &str, drafts: bool) -> Result<Costs, String> {
    let found: CostsReport = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let curve = |points| Curve::new(points).map_err(|error| error.to_string());
    let costs = Costs {
        verify: curve(found.verify)?,
        draft: curve(found.draft)?,
        extend: found.extend,
        overhead: found.overhead,
        catch_up: found.catch_up,
        catch_up_most: found.catch_up_most,
    };
    costs.validate().and_then(|()| costs.check_measured(drafts)).map_err(|error| error.to_string())?;
    Ok(costs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_read_as_they_were_written() {
        let curve = |points: &[(u32, f64)]| Curve::new(points.to_vec()).unwrap();
        let costs = Costs {
            verify: curve(&[(1, 1.0), (8, 3.25)]),
            draft: curve(&[(4, 0.125)]),
            extend: 0.25,
            overhead: 0.0625,
            catch_up: 0.5,
            catch_up_most: 48,
        };
        let json = serde_json::to_string(&CostsReport::from(&costs)).unwrap();
        assert_eq!(read(&json, true), Ok(costs), "{json}");
        for (from, to) in [
            ("3.25", "0.25"),
            ("\"extend\":0.25", "\"extend\":null"),
            ("\"draft\"", "\"drafts\""),
            ("[[4,", "[[0,"),
            ("}", ""),
        ] {
            assert!(json.contains(from), "{from} is in {json}");
            let reason = read(&json.replace(from, to), true).expect_err(to);
            assert!(!reason.is_empty(), "{to}");
        }
    }
}
