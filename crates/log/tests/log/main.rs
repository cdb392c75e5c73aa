//! The log on a simulated disk (and once on a real one): what survives which crash, what damage is noticed, what faults do.

mod harness;

mod basics;
mod crash;
mod damage;
mod faults;
mod last_segment;
mod real;
mod space;
mod tools;
