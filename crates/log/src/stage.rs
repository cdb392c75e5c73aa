//! placeholder
use busload_io::Disk;
/// The log.
#[derive(Debug)]
pub struct LogStage<D: Disk> {
    _disk: D,
}
/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Something.
    Worked,
    /// Nothing to do.
    Idle,
    /// Nothing to do before this time.
    IdleUntil(std::time::Duration),
    /// Closed or failed.
    Ended,
}
impl<D: Disk> LogStage<D> {
    /// One disk operation at most. `now` comes from a clock that never steps back.
    pub fn step(&mut self, _now: std::time::Duration) -> Step {
        Step::Ended
    }
    /// Thread body.
    pub fn run(self) {}
}
