//! Runs seeds of the simulation: `busload-sim [--from SEED] [--seeds COUNT]`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use busload_sim::seeds::{Seeds, run_seeds};

fn main() -> ExitCode {
    let seeds = match Seeds::from_arguments(std::env::args().skip(1)) {
        Ok(seeds) => seeds,
        Err(text) => {
            eprintln!("{text}");
            return ExitCode::from(2);
        }
    };
    match run_seeds(seeds) {
        Ok(outcome) => {
            println!("seeds {} to {}: all clean", seeds.first, seeds.first + seeds.count - 1);
            println!("{outcome:#?}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}
