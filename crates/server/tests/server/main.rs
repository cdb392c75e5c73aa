//! The server as a process, over its ports.

mod access;
mod chunks;
mod disks;
mod fronts;
mod grpc;
mod hostile_http;
mod kill;
mod kill_chunks;
mod names;
mod overload;
mod postgres;
mod remotesapi;
mod shutdown;
mod start;
mod support;
