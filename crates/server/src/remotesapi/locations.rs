//! Streams of locations: one answer for each request, in their order.
