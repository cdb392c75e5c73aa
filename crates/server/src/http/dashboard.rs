//! The dashboard: one page that shows the pipeline at work, from `/api/stats`.
//!
//! The page lies in readable files beside this one, and is joined when it is first asked for: it
//! loads nothing else, so that it works wherever this port can be reached. Its policy
//! (`Content-Security-Policy`) names the hashes of its own script and style, and lets the browser
//! run nothing else; the script writes text as text and never as HTML.

use std::sync::LazyLock;

use axum::{
    http::header,
    response::{IntoResponse, Response},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use sha2::{Digest, Sha256};

const FRAME: &str = include_str!("dashboard/page.html");
/// Style of all pages for people.
pub(super) const STYLE: &str = include_str!("dashboard/style.css");
/// Parts of the script, in the order in which they are joined: each uses those before it.
const SCRIPTS: [&str; 7] = [
    include_str!("dashboard/format.js"),
    include_str!("dashboard/elements.js"),
    include_str!("dashboard/samples.js"),
    include_str!("dashboard/pipeline.js"),
    include_str!("dashboard/timeline.js"),
    include_str!("dashboard/sections.js"),
    include_str!("dashboard/main.js"),
];

/// Places in the frame for the style and the script.
const STYLE_PLACE: &str = "@STYLE@";
const SCRIPT_PLACE: &str = "@SCRIPT@";

static PAGE: LazyLock<Joined> = LazyLock::new(Joined::new);

/// The page and its policy.
struct Joined {
    page: String,
    policy: String,
}

impl Joined {
    fn new() -> Self {
        let script = format!("(() => {{\n\"use strict\";\n{}}})();\n", SCRIPTS.concat());
        Self {
            page: FRAME.replace(STYLE_PLACE, STYLE).replace(SCRIPT_PLACE, &script),
            policy: format!(
                "default-src 'none'; script-src '{}'; style-src '{}'; connect-src 'self'; \
                 img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
                hash(&script),
                hash(STYLE),
            ),
        }
    }
}

/// Returns the name of an inline text in a policy (CSP Level 3, 6.7.3.3).
pub(super) fn hash(text: &str) -> String {
    format!("sha256-{}", BASE64_STANDARD.encode(Sha256::digest(text)))
}

/// Answers with the page.
pub async fn page() -> Response {
    answer(&PAGE.page, &PAGE.policy)
}

/// Makes the answer of a page with its policy.
pub(super) fn answer(page: &'static str, policy: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // The page and what it reads are of one version.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, page).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_one_text_that_loads_nothing() {
        let page = &PAGE.page;
        assert!(!page.contains(STYLE_PLACE) && !page.contains(SCRIPT_PLACE));
        for foreign in ["src=", "@import", "url(", "innerHTML", "insertAdjacentHTML", "eval("] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        // What the policy does not name would not run.
        assert_eq!((page.matches("<script").count(), page.matches("<style").count()), (1, 1));
        assert!(!page.contains(" style=") && !page.contains(" onclick="));
        assert!(page.is_ascii(), "its length is that of any encoding");
    }

    #[test]
    fn the_policy_names_what_stands_between_the_tags() {
        let between = |tag: &str| {
            let (_, rest) = PAGE.page.split_once(&format!("<{tag}>")).unwrap();
            rest.split_once(&format!("</{tag}>")).unwrap().0
        };
        for tag in ["script", "style"] {
            let expected = format!("{tag}-src '{}'", hash(between(tag)));
            assert!(PAGE.policy.contains(&expected), "{expected}: {}", PAGE.policy);
        }
        assert!(!PAGE.policy.contains("unsafe"));
    }
}
