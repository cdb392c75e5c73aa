//! placeholder
use crate::cli::Connections;
use anyhow::Result;
/// x
pub fn connections(_arguments: &Connections) -> Result<()> {
    Ok(())
}
