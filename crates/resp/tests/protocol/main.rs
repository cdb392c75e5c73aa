//! Tests of the crate's interface: tables of cases, and seeded random streams against simple
//! models.

mod model;
mod replies;
mod requests;
