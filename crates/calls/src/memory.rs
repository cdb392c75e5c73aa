//! Memory of the connection that a call came over. The HTTP front counts the bytes of requests and
//! answers. A service checks that there is memory for one more answer, and keeps the bytes of a
//! request counted for as long as it holds them.

use std::{fmt, sync::Arc};

use tonic::{Extensions, Status};

/// Memory of a connection and of the current request, as the front counts it.
pub trait MemoryAccount: fmt::Debug + Send + Sync {
    /// Returns an error if the connection has no memory left for an answer.
    ///
    /// # Errors
    /// Returns `RESOURCE_EXHAUSTED` with the reason.
    fn check(&self) -> Result<(), Status>;

    /// Takes the reservation for all messages of the request that have been received completely.
    fn take_received(&self) -> Reservation;
}

/// Handle of a [`MemoryAccount`]. The front puts one into the extensions of every request.
#[derive(Clone, Debug)]
pub struct CallMemory(Arc<dyn MemoryAccount>);

/// Reservation of memory, released on drop.
#[derive(Debug)]
pub struct Reservation {
    _held: Box<dyn fmt::Debug + Send + Sync>,
}

impl CallMemory {
    /// Wraps the account of a connection.
    pub fn new(account: Arc<impl MemoryAccount + 'static>) -> Self {
        Self(account)
    }

    /// Takes the reservation for all messages of the request that have been received completely.
    /// It is for services that read a stream message by message, and are done with some messages
    /// before the stream ends.
    pub fn take_received(&self) -> Reservation {
        self.0.take_received()
    }
}

impl Reservation {
    /// Wraps a guard of the front.
    pub fn new(guard: impl fmt::Debug + Send + Sync + 'static) -> Self {
        Self { _held: Box::new(guard) }
    }
}

/// Refuses a call if its connection has no memory left for the answer.
///
/// # Errors
/// Returns `RESOURCE_EXHAUSTED` with the reason.
pub fn check_memory(extensions: &Extensions) -> Result<(), Status> {
    extensions.get::<CallMemory>().map_or(Ok(()), |memory| memory.0.check())
}
