//! The server as a process, over its ports.

#![allow(clippy::unwrap_used, reason = "in tests a panic is the message")]

mod access;
mod backup;
mod chunks;
mod copies;
mod dashboard;
mod deploy;
mod disks;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod faults;
mod fronts;
mod full_disk;
mod generated;
mod grpc;
mod health;
mod hostile_http;
mod inspection;
mod kill;
mod kill_chunks;
mod names;
mod overload;
mod postgres;
mod progress;
mod reload;
mod remotesapi;
#[cfg(target_os = "linux")]
mod service_manager;
mod shutdown;
mod snapshots;
mod start;
mod stopped;
mod support;
mod tls;
mod tokens;
mod top;
#[cfg(feature = "otel")]
mod traces;
mod upgrade;
mod users;
