//! A job's Python packages, installed by each node into one environment. Only wheels from the nodes' index:
//! nothing is built, and no line names a file, an address or a variable.

mod requirement;

use std::fmt;

use schemars::JsonSchema;
use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize};

/// Python packages of a job, and their Python version.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(deny_unknown_fields)]
pub struct Python {
    /// One requirement per entry, as in a requirements file.
    pub requirements: Vec<String>,
    /// Version such as `3.11`; the node's first `python3` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Python packages in a document.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WrittenPython {
    /// The packages.
    pub requirements: Requirements,
    /// Version such as `"3.11"`.
    #[serde(default, deserialize_with = "quoted")]
    pub version: Option<String>,
}

/// A file of requirements, or its lines.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "a file such as requirements.txt, which the command line reads, or a list such as [numpy==1.26.4]"
)]
pub enum Requirements {
    /// A file next to the document, read by `dormouse submit`.
    File(String),
    /// One requirement per entry.
    Lines(Vec<String>),
}

/// YAML reads an unquoted 3.10 as 3.1.
fn quoted<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    struct Quoted;

    impl Visitor<'_> for Quoted {
        type Value = Option<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a version of Python such as \"3.11\"")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
            Ok(Some(text.to_owned()))
        }

        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
            Err(E::custom(format!(
                "a version such as {number} needs quotes: 3.10 without them is 3.1"
            )))
        }
    }
    deserializer.deserialize_any(Quoted)
}

/// A reason against the environment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PythonError {
    #[error("requirements name no package; leave python out")]
    Empty,
    #[error("requirements have {0} bytes; the most is {most}: leave hashes out, or use an image", most = Python::MOST_BYTES)]
    Long(usize),
    #[error("the requirement {line:?} {why}")]
    Line {
        /// Cut to 80 characters.
        line: String,
        why: &'static str,
    },
    #[error("{0:?} is no version of Python such as \"3.11\" or \"3.11.4\"")]
    Version(String),
}

impl Python {
    /// Limit on the bytes of all lines.
    pub const MOST_BYTES: usize = 64 << 10;

    /// Returns the requirements in a file.
    #[must_use]
    pub fn lines(text: &str) -> Vec<String> {
        let joined = text.replace("\\\r\n", " ").replace("\\\n", " ");
        let lines = joined.lines().map(|line| {
            let comment = line.match_indices('#').map(|(at, _)| at).find(|at| {
                line[..*at]
                    .chars()
                    .next_back()
                    .is_none_or(char::is_whitespace)
            });
            let line = &line[..comment.unwrap_or(line.len())];
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        });
        lines.filter(|line| !line.is_empty()).collect()
    }

    /// Checks requirements and version.
    ///
    /// # Errors
    /// The invalid line or version.
    pub fn check(&self) -> Result<(), PythonError> {
        if self.requirements.is_empty() {
            return Err(PythonError::Empty);
        }
        let bytes = self.requirements.iter().map(|line| line.len() + 1).sum();
        if bytes > Self::MOST_BYTES {
            return Err(PythonError::Long(bytes));
        }
        for line in &self.requirements {
            check_line(line).map_err(|why| PythonError::Line {
                line: line.chars().take(80).collect(),
                why,
            })?;
        }
        match &self.version {
            Some(version) if !is_version(version) => Err(PythonError::Version(version.clone())),
            _ => Ok(()),
        }
    }

    /// Returns requirements that may differ between nodes.
    pub fn unpinned(&self) -> impl Iterator<Item = &str> {
        let lines = self.requirements.iter().map(String::as_str);
        lines.filter(|line| !line.split(';').next().is_some_and(|it| it.contains("==")))
    }
}

fn is_version(version: &str) -> bool {
    let parts: Vec<_> = version.split('.').collect();
    let is_number =
        |part: &&str| (1..=3).contains(&part.len()) && part.bytes().all(|c| c.is_ascii_digit());
    parts[0] == "3" && (2..=3).contains(&parts.len()) && parts.iter().all(is_number)
}

fn check_line(line: &str) -> Result<(), &'static str> {
    if line.starts_with('-') {
        return Err(
            "is an option: write all packages into one file (`uv pip compile` does), and leave the index to the nodes' operator",
        );
    }
    let (requirement, hashes) = line.split_at(line.find(" --").unwrap_or(line.len()));
    for hash in hashes.split_whitespace() {
        let digits = hash.strip_prefix("--hash=sha256:").unwrap_or_default();
        if digits.len() != 64 || !digits.bytes().all(|c| c.is_ascii_hexdigit()) {
            return Err("has an option that is no --hash=sha256:…; leave it out");
        }
    }
    if requirement::is_of_an_index(requirement) {
        Ok(())
    } else {
        Err(
            "is no package of an index, such as numpy==1.26.4: a name, extras, versions and a marker by PEP 508; a file or an address goes into the job's workdir or into an image",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(line: &str) -> Result<(), String> {
        let python = Python {
            requirements: vec![line.to_owned()],
            version: None,
        };
        python.check().map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_is_its_requirements() {
        let text = "# all\nnumpy==1.26.4  # fast\n\n  six >= 1.0 ; python_version < \"3.12\"\r\na==1 \\\n    --hash=sha256:00 \\\n    --hash=sha256:11\nb#c\n";
        let lines = [
            "numpy==1.26.4",
            "six >= 1.0 ; python_version < \"3.12\"",
            "a==1 --hash=sha256:00 --hash=sha256:11",
            "b#c",
        ];
        assert_eq!(Python::lines(text), lines);
        assert_eq!(Python::lines("# none\n"), [""; 0]);
    }

    #[test]
    fn packages_of_an_index_are_taken_and_nothing_else() {
        let hash = format!("numpy==1.26.4 --hash=sha256:{}", "0a".repeat(32));
        let good = [
            "numpy",
            "torch==2.0.1+cpu",
            "uvicorn[standard]>=0.20,<1 ; sys_platform == \"linux\"",
            &hash,
            "ruamel.yaml.clib ~= 0.2",
            "a [ b , c-d ] ( >=1!2.0.post1 , != 2.* )",
            "a===1.0+local.1-2",
            "a; (python_version < '3.12' and os_name != \"nt\") or 'linux' in sys_platform",
            "a;platform_machine not in 'x86_64 aarch64'",
        ];
        for line in good {
            assert_eq!(with(line), Ok(()), "{line}");
        }
        let bad = [
            "",
            "-r other.txt",
            "--index-url https://example.org",
            "-e .",
            "./wheel.whl",
            "/etc/passwd",
            "x @ file:///etc/passwd",
            "x @ git+https://example.org/x",
            "x==${SECRET}",
            "x==1 --index-url=y",
            "x==1 --hash=sha256:00",
            "x==1\nsix",
            "x\u{1b}[2J",
            "file:%2Fsrv%2Fsecret-1.0-py3-none-any.whl",
            "file:secret-1.0-py3-none-any.whl",
            "secret-1.0-py3-none-any.whl",
            "secret.tar.gz==1",
            "git+http:%2F%2Fexample.org%2Fx",
            "http:example",
            "x @ file:y",
            "x@file:y",
            "x%20y",
            "x==%2e",
            "x==1;python_version=='%2F'",
            "x==1 ; unknown == '1'",
            "x==1 ; '1' == '2'",
            "x==1 ; python_version",
            "x==1 ; python_version == '3' or",
            "x==1 ; (python_version == '3'",
            "x==1,",
            "x==",
            "x=1",
            "x[a",
            "x[a]b",
            "x y",
            "x.",
            ".x",
            "-",
            "x==1 # comment",
            "x==1 six",
            "x==*",
            "~/x",
            "C:x",
            "ж==1",
        ];
        for line in bad {
            assert!(with(line).is_err(), "{line:?}");
        }
        let deep = format!("x; {}", "(".repeat(60_000));
        assert!(with(&deep).is_err());
    }

    #[test]
    fn versions_need_quotes_and_bounds_hold() {
        let read = |text: &str| serde_json::from_str::<WrittenPython>(text);
        let file = read(r#"{"requirements": "requirements.txt", "version": "3.11"}"#);
        let file = file.expect("a file");
        assert_eq!(
            file.requirements,
            Requirements::File("requirements.txt".to_owned())
        );
        let error = read(r#"{"requirements": ["six"], "version": 3.1}"#).expect_err("a number");
        assert!(error.to_string().contains("quotes"), "{error}");
        let error = read(r#"{"requirements": 7}"#).expect_err("a number");
        assert!(error.to_string().contains("requirements.txt"), "{error}");
        let checked = |version: &str| {
            let python = Python {
                requirements: vec!["six".to_owned()],
                version: Some(version.to_owned()),
            };
            python.check().is_ok()
        };
        assert!(checked("3.11") && checked("3.11.4"));
        for wrong in [
            "",
            "3",
            "2.7",
            "3.x",
            "/usr/bin/python3",
            "3.11.4.1",
            "3.1111",
        ] {
            assert!(!checked(wrong), "{wrong}");
        }
        let long = Python {
            requirements: vec!["x".repeat(1000); 66],
            version: None,
        };
        assert!(matches!(long.check(), Err(PythonError::Long(_))));
        let none = Python {
            requirements: vec![],
            version: None,
        };
        assert_eq!(none.check(), Err(PythonError::Empty));
    }

    #[test]
    fn what_is_not_pinned_is_named() {
        let lines = ["numpy==1.26.4", "six", "a>=1; python_version == \"3.11\""];
        let python = Python {
            requirements: lines.map(str::to_owned).into(),
            version: None,
        };
        assert_eq!(python.unpinned().collect::<Vec<_>>(), &lines[1..]);
    }
}
