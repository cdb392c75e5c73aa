//! The gRPC services of busload, generated from the files in `proto/`, which are their
//! documentation.

#![forbid(unsafe_code)]

pub mod codec;

/// Descriptors of all services, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// The package `busload.v1`: single chunks of Dolt stores.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated")]
pub mod v1 {
    tonic::include_proto!("busload.v1");
}

/// The package `dolt.services.remotesapi.v1alpha1`: the protocol of Dolt's remotes.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    deprecated,
    reason = "generated"
)]
pub mod remotesapi {
    tonic::include_proto!("dolt.services.remotesapi.v1alpha1");
}
