//! Every relative link leads to a file, and every anchor to a heading.

use std::path::{Component, Path, PathBuf};

use super::markdown::Page;
use super::{pages, root};

fn broken(page: &Page, pages: &[Page]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (line, link) in page.links() {
        if link.starts_with("https://") || link.starts_with("http://") {
            continue;
        }
        let (file, anchor) = match link.split_once('#') {
            Some((file, anchor)) => (file, Some(anchor)),
            None => (link.as_str(), None),
        };
        let target = match file {
            "" => PathBuf::from(&page.path),
            file => relative_to(&page.path, file),
        };
        let place = format!("{}:{line}: {link}", page.path);
        if !root().join(&target).exists() {
            wrong.push(format!("{place}: there is no {}", target.display()));
        } else if let Some(anchor) = anchor {
            let page = pages.iter().find(|page| Path::new(&page.path) == target);
            if !page.is_some_and(|page| page.anchors().contains(anchor)) {
                wrong.push(format!("{place}: {} has no #{anchor}", target.display()));
            }
        }
    }
    wrong
}

fn relative_to(page: &str, file: &str) -> PathBuf {
    let folder = Path::new(page).parent().unwrap_or(Path::new(""));
    let mut path = PathBuf::new();
    for part in folder.join(file).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    path
}

#[test]
fn links_lead_somewhere() {
    let pages = pages();
    let wrong: Vec<String> = pages.iter().flat_map(|page| broken(page, &pages)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let page = |path: &str, text: &str| Page {
        path: path.to_owned(),
        text: text.to_owned(),
    };
    let text = "# Here\n[1](#here) [2](#there) [3](nothing.md) [4](../README.md#dormouse) [5](../README.md#no)";
    let pages = [page("docs/jobs.md", text), page("README.md", "# Dormouse")];
    let wrong = broken(&pages[0], &pages);
    assert_eq!(wrong.len(), 3, "{wrong:?}");
}
