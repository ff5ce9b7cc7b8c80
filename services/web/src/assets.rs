//! The page's files, embedded in the binary.

use http::header::{CACHE_CONTROL, ETAG, HeaderValue, IF_NONE_MATCH};
use http::{HeaderMap, StatusCode};

use crate::reply::{self, Reply};

macro_rules! files {
    ($(($path:literal, $file:literal, $kind:expr)),* $(,)?) => {
        /// Path, content, type.
        const FILES: &[(&str, &'static [u8], &str)] = &[$(($path, include_bytes!(concat!("../page/", $file)), $kind)),*];
    };
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const PICTURE: &str = "image/svg+xml";
const TEXT: &str = "text/plain; charset=utf-8";

files![
    ("/", "index.html", HTML),
    ("/style.css", "style.css", STYLE),
    ("/icon.svg", "icon.svg", PICTURE),
    ("/app.js", "app.js", SCRIPT),
    ("/api.js", "api.js", SCRIPT),
    ("/charts.js", "charts.js", SCRIPT),
    ("/whatif.js", "whatif.js", SCRIPT),
    ("/details.js", "details.js", SCRIPT),
    ("/dom.js", "dom.js", SCRIPT),
    ("/jobs.js", "jobs.js", SCRIPT),
    ("/nodes.js", "nodes.js", SCRIPT),
    ("/overview.js", "overview.js", SCRIPT),
    ("/time.js", "time.js", SCRIPT),
    (
        "/vendor/uPlot.iife.min.js",
        "vendor/uPlot.iife.min.js",
        SCRIPT
    ),
    ("/vendor/uPlot.min.css", "vendor/uPlot.min.css", STYLE),
    ("/vendor/LICENSE.uPlot", "vendor/LICENSE.uPlot", TEXT),
];

/// Returns a file, or 304 if the browser has it.
#[must_use]
pub fn file(path: &str, asked: &HeaderMap) -> Option<Reply> {
    let (_, content, kind) = FILES.iter().find(|(name, ..)| *name == path)?;
    let tag = format!("\"{}\"", &blake3::hash(content).to_hex()[..16]);
    let known = asked
        .get(IF_NONE_MATCH)
        .is_some_and(|it| it.as_bytes() == tag.as_bytes());
    let mut reply = if known {
        reply::empty(StatusCode::NOT_MODIFIED)
    } else {
        reply::of_kind(StatusCode::OK, kind, *content)
    };
    let headers = reply.headers_mut();
    headers.insert(ETAG, HeaderValue::try_from(tag).ok()?);
    // The browser revalidates, since a new build has new files.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Some(reply)
}

/// Returns the page's size.
#[must_use]
pub fn bytes() -> usize {
    FILES.iter().map(|(_, content, _)| content.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// uPlot 1.6.32, as published.
    #[test]
    fn what_was_not_written_here_is_as_it_was_published() {
        for (path, wanted) in [
            (
                "/vendor/uPlot.iife.min.js",
                "ea2d16ff65797375a846049c0f0a17f68b47a2850b9c73f2816ecf040ec9f2ce",
            ),
            (
                "/vendor/uPlot.min.css",
                "70ead7542eab83ef6ff4269c1f139e3c40f5f59f98302552320b9f79188abba1",
            ),
        ] {
            let (_, content, _) = FILES
                .iter()
                .find(|(name, ..)| *name == path)
                .expect("there");
            assert_eq!(blake3::hash(content).to_hex().as_str(), wanted, "{path}");
        }
    }

    #[test]
    fn the_page_is_small() {
        assert!(bytes() <= 300_000, "{} bytes", bytes());
    }

    #[test]
    fn every_file_that_one_names_is_there() {
        for (path, content, kind) in FILES {
            if *kind == TEXT || path.starts_with("/vendor") {
                continue;
            }
            let text = std::str::from_utf8(content).expect("UTF-8");
            let named = text
                .split(['"', '\''])
                .filter_map(|it| it.strip_prefix("./").or_else(|| it.strip_prefix('/')));
            for name in named.filter(|it| it.ends_with(".js") || it.ends_with(".css")) {
                let there = FILES.iter().any(|(path, ..)| path[1..] == *name);
                assert!(there, "{path} names {name}");
            }
            for bad in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
            ] {
                assert!(!text.contains(bad), "{path} uses {bad}");
            }
        }
    }
}
