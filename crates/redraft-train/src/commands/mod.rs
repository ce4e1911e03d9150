//! The commands: what they take and what they print.

mod generate;
mod prepare;
mod run;

use burn::tensor::{Device, DeviceKind};
use clap::{Parser, Subcommand, ValueEnum};
use redraft_train::TrainError;
use redraft_train::calibrate::args::CalibrateArgs;
use redraft_train::replay::args::ReplayArgs;
use redraft_train::study::args::StudyArgs;

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
    Replay(ReplayArgs),
    Calibrate(CalibrateArgs),
    Study(StudyArgs),
}

impl Cli {
    pub(crate) fn run(self) -> Result<(), TrainError> {
        match self.command {
            Command::Generate(command) => command.run(),
            Command::Prepare(command) => command.run(),
            Command::Run(command) => command.run(),
            Command::Replay(command) => print(command.run(&Device::flex())),
            Command::Calibrate(command) => print(command.run(&Device::flex())),
            Command::Study(command) => print(command.run(&Device::flex(), &|line| eprintln!("{line}"))),
        }
    }
}

/// Prints what a command has to say.
fn print(said: Result<String, TrainError>) -> Result<(), TrainError> {
    print!("{}", said?);
    Ok(())
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
