//! The commands: what they take and what they print.

mod generate;
mod prepare;
mod run;

use burn::tensor::{Device, DeviceKind};
use clap::{Parser, Subcommand, ValueEnum};
use redraft_train::TrainError;

/// Trains drafters for redraft.
///
/// A corpus is made of text that the target wrote (`prepare`); `run` trains a stage on it. Every command goes on where an
/// earlier call of it was stopped, by whatever means.
#[derive(Parser)]
#[command(name = "redraft-train", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Generate(generate::Generate),
    Prepare(prepare::Prepare),
    Run(run::Run),
}

impl Cli {
    pub(crate) fn run(self) -> Result<(), TrainError> {
        match self.command {
            Command::Generate(command) => command.run(),
            Command::Prepare(command) => command.run(),
            Command::Run(command) => command.run(),
        }
    }
}

/// Where tensors are computed.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Backend {
    /// The processor.
    #[default]
    Flex,
    /// A GPU, through Vulkan, Metal or DirectX 12.
    Wgpu,
}

impl Backend {
    fn device(self) -> Device {
        match self {
            Self::Flex => Device::flex(),
            Self::Wgpu => Device::wgpu(DeviceKind::DefaultDevice),
        }
    }
}
