//! The gRPC services of busload, generated from the files in `proto/`, which are their
//! documentation. `cargo xtask proto` writes the generated code anew.

#![forbid(unsafe_code)]

pub mod codec;

/// Descriptors of all services, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!("generated/descriptors.bin");

/// The package `busload.v1`: single chunks of Dolt stores.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated")]
pub mod v1 {
    include!("generated/busload.v1.rs");
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
    include!("generated/dolt.services.remotesapi.v1alpha1.rs");
}
