//! Converts the nodes' votes into JavaScript objects. Decides nothing.

use napi_derive::napi;
use quorlock::{Answer, Frees, NodeReport, Vote};

use crate::numbers::millis;
use crate::spelling;

/// What one node did in one round.
#[napi(object, object_from_js = false)]
pub struct NodeVote {
    /// Where the node is, without a password.
    pub address: String,
    /// `granted`, `refused`, `failed` or `missing`.
    pub outcome: &'static str,
    /// The time from the start of the round to the answer in milliseconds; 0 while missing.
    pub latency: f64,
    /// For a refusal: after what time the other holder's key expires, in milliseconds; negative for
    /// never.
    pub frees_in: Option<f64>,
    /// For a failure: its stable name, such as `TIMED_OUT`.
    pub fault: Option<&'static str>,
    /// For a failure: what happened, and where known what to do.
    pub detail: Option<String>,
}

impl NodeVote {
    pub(crate) fn list(reports: &[NodeReport]) -> Vec<Self> {
        reports.iter().map(Self::new).collect()
    }

    fn new(report: &NodeReport) -> Self {
        let fault = report.answer.as_ref().and_then(|answer| answer.as_ref().err());
        Self {
            address: report.address.to_string(),
            outcome: match report.vote {
                Vote::Granted => "granted",
                Vote::Refused => "refused",
                Vote::Failed => "failed",
                Vote::Missing => "missing",
            },
            latency: millis(report.latency),
            frees_in: match &report.answer {
                Some(Ok(Answer::Theirs { frees: Frees::In(time), .. })) => Some(millis(*time)),
                Some(Ok(Answer::Theirs { frees: Frees::Never, .. })) => Some(-1.0),
                _ => None,
            },
            fault: fault.map(|fault| fault.kind().code()),
            detail: fault.map(|fault| spelling::in_node(fault.detail())),
        }
    }
}
