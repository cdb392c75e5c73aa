//! Cases of the `kv` experiment.

use anyhow::Result;
use clap::ValueEnum;

use crate::{
    cli::{Kv, UsageError, check_pipeline},
    measure::Pace,
    requests::Operation,
    server::Durability,
};

/// Combination of settings that `kv` measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    pub operation: Operation,
    pub pace: Pace,
    /// Writes that survive a crash.
    pub durability: Durability,
    pub net_threads: u32,
}

impl Case {
    /// Returns all combinations; those that people compare are neighbours.
    pub fn combinations(arguments: &Kv) -> Vec<Self> {
        let mut cases = Vec::new();
        for &durability in &arguments.durability {
            for &net_threads in &arguments.net_threads {
                for &operation in &arguments.ops {
                    let case = |pace| Self { operation, pace, durability, net_threads };
                    cases.extend(paces(arguments).into_iter().map(case));
                }
            }
        }
        cases
    }

    /// The cases that `text` names: without a wiring one for each that was asked for, and in an
    /// open loop, where there is no pipeline, one for each rate.
    pub fn parse(text: &str, arguments: &Kv) -> Result<Vec<Self>> {
        let wrong =
            || UsageError(format!("`{text}` is no case as get:64:none or, with --rate, get:none"));
        let mut words = text.split(':');
        let operation =
            words.next().and_then(|word| Operation::from_str(word, true).ok()).ok_or_else(wrong)?;
        let paces = if arguments.rate.is_empty() {
            let pipeline = words.next().and_then(|word| word.parse().ok()).ok_or_else(wrong)?;
            vec![Pace::Pipeline(pipeline)]
        } else {
            paces(arguments)
        };
        let durability = words
            .next()
            .and_then(|word| Durability::from_str(word, true).ok())
            .ok_or_else(wrong)?;
        let wirings = match words.next() {
            Some(word) => vec![word.parse().ok().ok_or_else(wrong)?],
            None => arguments.net_threads.clone(),
        };
        if words.next().is_some() {
            return Err(wrong().into());
        }
        let cases = wirings.iter().flat_map(|&net_threads| {
            paces.iter().map(move |&pace| Self { operation, pace, durability, net_threads })
        });
        Ok(cases.collect())
    }

    /// Whether its numbers are within bounds.
    pub fn check(&self) -> Result<()> {
        match self.pace {
            Pace::Pipeline(pipeline) => check_pipeline(pipeline),
            Pace::Rate(_) => Ok(()),
        }
    }

    pub fn pace_name(&self) -> String {
        match self.pace {
            Pace::Pipeline(pipeline) => pipeline.to_string(),
            Pace::Rate(rate) if rate % 1_000 == 0 => format!("{}k/s", rate / 1_000),
            Pace::Rate(rate) => format!("{rate}/s"),
        }
    }
}

fn paces(arguments: &Kv) -> Vec<Pace> {
    if arguments.rate.is_empty() {
        arguments.pipelines.iter().copied().map(Pace::Pipeline).collect()
    } else {
        arguments.rate.iter().copied().map(Pace::Rate).collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn cases(arguments: &[&str]) -> Result<Vec<Case>> {
        let cli = Cli::try_parse_from(["busload-bench", "kv"].iter().chain(arguments))?;
        match cli.command {
            Command::Kv(kv) => kv.cases(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_case_can_be_named() {
        let case = Case {
            operation: Operation::Set,
            pace: Pace::Pipeline(64),
            durability: Durability::Always,
            net_threads: 1,
        };
        assert_eq!(cases(&["--case", "set:64:always:1"]).unwrap(), [case]);
        assert_eq!(cases(&["--case", "set:64:always"]).unwrap().len(), 2);
        assert_eq!(cases(&["--case", "set:64:always", "--net-threads", "1"]).unwrap(), [case]);
    }

    #[test]
    fn rates_take_the_place_of_pipelines() {
        let cases = cases(&["--rate", "10k,1M", "--case", "get:none:0"]).unwrap();
        let paces: Vec<_> = cases.iter().map(|case| case.pace).collect();
        assert_eq!(paces, [Pace::Rate(10_000), Pace::Rate(1_000_000)]);
        assert_eq!(cases[0].pace_name(), "10k/s");
    }

    #[test]
    fn what_names_no_case_is_refused() {
        for bad in
            ["", "get", "get:x:none", "get:0:none", "get:1:some", "get:1:none:0:0", "get:1:none:x"]
        {
            assert!(cases(&["--case", bad]).is_err(), "{bad}");
        }
        assert!(cases(&["--clients", "0"]).is_err());
        assert!(cases(&["--rounds", "0"]).is_err());
    }
}
