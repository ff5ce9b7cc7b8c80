//! The subset of Markdown that the documents use.

use std::collections::BTreeSet;

pub struct Page {
    /// Relative to the repository's root.
    pub path: String,
    pub text: String,
}

pub struct Block {
    pub line: usize,
    /// `sh`, `yaml`, …
    pub language: String,
    pub text: String,
}

impl Page {
    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut open: Option<Block> = None;
        for (number, line) in self.text.lines().enumerate() {
            match (line.trim_start().strip_prefix("```"), open.as_mut()) {
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(language), None) => {
                    open = Some(Block {
                        line: number + 1,
                        language: language.trim().to_owned(),
                        text: String::new(),
                    });
                }
                (None, Some(block)) => {
                    block.text.push_str(line);
                    block.text.push('\n');
                }
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: a block is not closed", self.path);
        blocks
    }

    fn prose(&self) -> Vec<(usize, &str)> {
        let mut inside = false;
        let mut lines = Vec::new();
        for (number, line) in self.text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                inside = !inside;
            } else if !inside {
                lines.push((number + 1, line));
            }
        }
        lines
    }

    /// Headings as GitHub names them, and marks.
    pub fn anchors(&self) -> BTreeSet<String> {
        let mut anchors = BTreeSet::new();
        for (_, line) in self.prose() {
            if line.starts_with('#') {
                let title = line.trim_start_matches('#').trim();
                let mut anchor = slug(title);
                let mut count = 0;
                while anchors.contains(&anchor) {
                    count += 1;
                    anchor = format!("{}-{count}", slug(title));
                }
                anchors.insert(anchor);
            }
            for part in line.split("id=\"").skip(1) {
                anchors.extend(part.split('"').next().map(str::to_owned));
            }
        }
        anchors
    }

    pub fn links(&self) -> Vec<(usize, String)> {
        let mut links = Vec::new();
        for (number, line) in self.prose() {
            let text: String = line.split('`').step_by(2).collect::<Vec<_>>().join("code");
            for begin in ["](", "src=\"", "srcset=\""] {
                let end = if begin == "](" { ')' } else { '"' };
                for part in text.split(begin).skip(1) {
                    links.extend(part.split(end).next().map(|to| (number, to.to_owned())));
                }
            }
        }
        links
    }

    pub fn spans(&self) -> Vec<(usize, String)> {
        let mut spans = Vec::new();
        for (number, line) in self.prose() {
            let inside = line.split('`').skip(1).step_by(2);
            // Tables escape a bar by a backslash.
            spans.extend(inside.map(|span| (number, span.replace("\\|", "|"))));
        }
        spans
    }
}

fn slug(title: &str) -> String {
    let title = title.to_lowercase();
    let kept = title.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
        _ => None,
    });
    kept.collect()
}

#[test]
fn a_page_is_read() {
    let page = Page {
        path: "x.md".to_owned(),
        text: "# A `b` c!\n[x](y.md#z) and `code](no)`\n```sh\nls ](no)\n```\n## Twice\n## Twice\n<a id=\"m\"></a>\n"
            .to_owned(),
    };
    let anchors: Vec<String> = page.anchors().into_iter().collect();
    assert_eq!(anchors, ["a-b-c", "m", "twice", "twice-1"]);
    assert_eq!(page.links(), [(2, "y.md#z".to_owned())]);
    assert_eq!(
        page.spans(),
        [(1, "b".to_owned()), (2, "code](no)".to_owned())]
    );
    let blocks = page.blocks();
    assert_eq!((blocks[0].line, blocks[0].text.as_str()), (3, "ls ](no)\n"));
    assert_eq!(blocks[0].language, "sh");
}
