//! Readers of table files, archives and manifests on real and on hostile files.

mod archives;
mod fixtures;
mod hostile;
mod lookup;
mod support;
mod tables;
