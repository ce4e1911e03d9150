//! Speculative decoding as the command line has it: its flags, the plans they mean, drafter files, costs kept between
//! runs, and what is told about it afterwards.

mod args;
mod costs;
mod drafter;
mod find;
mod plan;
mod report;
mod shape;

pub(crate) use self::args::{Choice, DraftArgs, Mode, SpeculationArgs, check_drafter, check_late};
pub(crate) use self::costs::{CostKey, measure};
pub(crate) use self::drafter::{DrafterInput, read as read_drafter};
use self::find::default_drafter;
pub(crate) use self::find::find as find_drafter;
pub(crate) use self::plan::PlanReport;
pub(crate) use self::report::{CostsReport, PhaseMs, Report, summary};
use self::shape::ShapeArgs;
pub(crate) use redraft::LEAST_CONTEXT;
