//! Placeholder until its first code lands.
fn main() {}
