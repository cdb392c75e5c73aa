//! Hand-over of whole batches between two threads, and waking the one that sleeps: at most once per turn.
