//! placeholder
use busload_io::Disk;
/// Writes zeros ahead.
#[derive(Debug)]
pub struct ZeroHelper<D: Disk> {
    _disk: D,
}
impl<D: Disk> ZeroHelper<D> {
    /// Thread body.
    pub fn run(self) {}
}
