//! The crate from outside: tables of cases, and seeded random streams against simple models.

mod model;
mod replies;
mod requests;
