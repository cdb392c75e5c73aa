//! placeholder
use crate::cli::Recovery;
use anyhow::Result;
/// x
pub fn recovery(_arguments: &Recovery) -> Result<()> {
    Ok(())
}
