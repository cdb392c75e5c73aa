//! Figures of the HTTP front itself.

use std::sync::atomic::Ordering::Relaxed;

use super::Page;
use crate::http::figures::Figures;

pub(super) fn render(page: &mut Page, figures: &Figures) {
    page.gauge("busload_http_connections", "HTTP connections now.", figures.connections.load(Relaxed));
    page.counter(
        "busload_http_connections_accepted_total",
        "HTTP connections accepted.",
        figures.accepted.load(Relaxed),
    );
    page.counter(
        "busload_http_connections_stuck_total",
        "HTTP connections closed because their client did not take an answer.",
        figures.stuck.load(Relaxed),
    );
    page.counter(
        "busload_http_connections_flooded_total",
        "HTTP/2 connections closed because they sent too many frames that ask for nothing.",
        figures.flooded.load(Relaxed),
    );
    page.counter(
        "busload_http_connections_evicted_total",
        "HTTP connections closed because they held most of too much memory.",
        figures.evicted.load(Relaxed),
    );
    page.gauge(
        "busload_http_memory_bytes",
        "Requests and answers of HTTP connections in memory.",
        figures.memory_bytes.load(Relaxed),
    );
    page.counter(
        "busload_http_memory_refused_total",
        "HTTP requests refused because there was too much of that.",
        figures.memory_refused.load(Relaxed),
    );
    page.counter(
        "busload_http_auth_denied_total",
        "HTTP requests with a wrong password or a wrong key in the URL.",
        figures.auth_denied.load(Relaxed),
    );
    page.counter(
        "busload_http_auth_refused_total",
        "HTTP requests whose password was not looked at, since too many wrong ones came from their address.",
        figures.auth_refused.load(Relaxed),
    );
    page.counter(
        "busload_http_foreign_refused_total",
        "HTTP requests for another host, or from a page of another site.",
        figures.foreign_refused.load(Relaxed),
    );
}
