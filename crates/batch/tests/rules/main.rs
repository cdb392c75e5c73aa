//! Each rule of the queue by itself.

mod deadlines;
mod departure;
mod desk;
mod leaving;
mod limits;
mod order;
mod sharing;
