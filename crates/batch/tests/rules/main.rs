//! Each rule of the queue by itself.

mod deadlines;
mod desk;
mod dispatch;
mod leaving;
mod limits;
mod order;
mod sharing;
