//! Draft trees as JSON.

use redraft::RoundTrace;
use serde::Serialize;

use super::{Words, fates, pass};
use crate::speculate::PlanReport;

/// A round with all nodes that were grown, the root first. The shape is a contract with other tools.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct RoundReport {
    plan: PlanReport,
    /// Tokens before the root.
    start: u32,
    nodes: Vec<NodeReport>,
    /// Indices of the nodes on the accepted path, the root first.
    accepted: Vec<usize>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct NodeReport {
    token: u32,
    text: String,
    /// Index of the node above; null for the root.
    parent: Option<usize>,
    depth: u32,
    score: f32,
    /// "drafted", "refined" or "looked_up"; "target" for the root.
    pass: String,
    unsure: Option<f32>,
    reconsidered: bool,
    row: Option<u32>,
    /// "accepted", "rescued", "rejected" or "pruned".
    fate: &'static str,
}

/// The rounds.
pub(crate) fn to_json(traces: &[RoundTrace], words: &Words<'_>) -> Vec<RoundReport> {
    let round = |trace: &RoundTrace| {
        let nodes = trace.nodes.iter().zip(fates(trace)).map(|(node, fate)| NodeReport {
            token: node.token.0,
            text: words(node.token),
            parent: node.parent,
            depth: node.depth,
            score: node.score,
            pass: pass(node.origin).replace(' ', "_"),
            unsure: node.unsure,
            reconsidered: node.reconsidered,
            row: node.row,
            fate: fate.name(),
        });
        RoundReport {
            plan: PlanReport::from(&trace.plan),
            start: trace.start,
            nodes: nodes.collect(),
            accepted: trace.accepted.clone(),
        }
    };
    traces.iter().map(round).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::{trace, words};
    use super::*;

    #[test]
    fn json_has_the_promised_shape() {
        let value = serde_json::to_value(to_json(&[trace()], &words)).unwrap();
        let first = &value[0];
        assert_eq!((&first["start"], &first["accepted"]), (&json!(7), &json!([0, 1, 4])));
        assert_eq!(first["plan"]["mode"], "reconsider");
        assert_eq!(
            first["nodes"][4],
            json!({
                "token": 13, "text": " w13", "parent": 1, "depth": 2, "score": -2.0, "pass": "refined", "unsure": null,
                "reconsidered": false, "row": 4, "fate": "rescued",
            })
        );
        assert_eq!(
            (&first["nodes"][0]["text"], &first["nodes"][0]["pass"]),
            (&json!(" the"), &json!("target"))
        );
        assert_eq!(first["nodes"][6]["pass"], "looked_up");
        assert_eq!((&first["nodes"][5]["row"], &first["nodes"][5]["fate"]), (&Value::Null, &json!("pruned")));
    }
}
