//! placeholder
use crate::cli::Growth;
use anyhow::Result;
/// x
pub fn growth(_arguments: &Growth) -> Result<()> {
    Ok(())
}
