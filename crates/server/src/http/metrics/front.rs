//! Metrics of the HTTP front itself.

use std::sync::atomic::Ordering::Relaxed;

use super::Page;
use crate::http::front_metrics::FrontMetrics;

pub(super) fn render(page: &mut Page, metrics: &FrontMetrics) {
    page.gauge(
        "busload_http_connections",
        "HTTP connections now.",
        metrics.connections.load(Relaxed),
    );
    page.counter(
        "busload_http_connections_accepted_total",
        "HTTP connections accepted.",
        metrics.accepted.load(Relaxed),
    );
    page.counter(
        "busload_http_connections_stuck_total",
        "HTTP connections closed because their client did not take an answer.",
        metrics.stuck.load(Relaxed),
    );
    page.counter(
        "busload_http_connections_flooded_total",
        "HTTP/2 connections closed because they sent too many frames that ask for nothing.",
        metrics.flooded.load(Relaxed),
    );
    page.counter(
        "busload_http_connections_evicted_total",
        "HTTP connections closed because all held too much memory and they held most.",
        metrics.evicted.load(Relaxed),
    );
    page.gauge(
        "busload_http_memory_bytes",
        "Requests and answers of HTTP connections in memory.",
        metrics.memory_bytes.load(Relaxed),
    );
    page.counter(
        "busload_http_memory_refused_total",
        "HTTP requests refused because there was too little memory left.",
        metrics.memory_refused.load(Relaxed),
    );
    page.counter(
        "busload_http_auth_denied_total",
        "HTTP requests with a wrong password or a wrong key in the URL.",
        metrics.auth_denied.load(Relaxed),
    );
    page.counter(
        "busload_http_auth_refused_total",
        "HTTP requests refused unchecked after too many wrong passwords from their address.",
        metrics.auth_refused.load(Relaxed),
    );
    page.counter(
        "busload_http_foreign_refused_total",
        "HTTP requests for a foreign host, or from a page of another site.",
        metrics.foreign_refused.load(Relaxed),
    );
}
