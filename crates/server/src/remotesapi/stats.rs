//! Figures of Dolt's protocol.

/// What was asked and sent.
#[derive(Debug, Default)]
pub struct RemotesapiStats {}
