//! Which table a request is for, and what URLs its answer carries.
