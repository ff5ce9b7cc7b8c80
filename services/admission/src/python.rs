//! Checks of a job's Python packages.

use dormouse_messages::job::{JobDocument, Kind};
use dormouse_messages::python::Requirements;
use dormouse_messages::{Python, WrittenPython};

use crate::refusal::Refusal;

/// Returns the packages.
///
/// # Errors
/// Unread files, impossible environments, and notebooks, which have their own.
pub fn check(document: &JobDocument) -> Result<Option<Python>, Refusal> {
    let bad = |reason: String| Err(Refusal::new("bad_python", reason));
    let Some(WrittenPython {
        requirements,
        version,
    }) = &document.python
    else {
        return Ok(None);
    };
    let requirements = match requirements {
        Requirements::Lines(lines) => lines.clone(),
        Requirements::File(file) => {
            return bad(format!(
                "python.requirements {file:?} is a file of the machine on which the document lies; `dormouse submit FILE` puts its lines there"
            ));
        }
    };
    if document.kind == Kind::Notebook {
        return bad(
            "a notebook runs its node's Jupyter; leave python out, and install with %pip"
                .to_owned(),
        );
    }
    if let Some(image) = &document.image {
        return bad(format!(
            "packages of the nodes are not those of an image; install them in {image}, or leave image or python out"
        ));
    }
    let python = Python {
        requirements,
        version: version.clone(),
    };
    match python.check() {
        Ok(()) => Ok(Some(python)),
        Err(error) => bad(format!("python: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use dormouse_messages::TenantId;
    use serde_json::{Value, json};

    use crate::parse::parse_job;

    use super::*;

    fn parsed(python: &Value, more: (&str, &str)) -> Result<Option<Python>, String> {
        let mut document = json!({"command": {"start": ["true"]}, "demand": {"cpu": 1},
            "python": python});
        document[more.0] = more.1.into();
        let document = serde_json::from_value(document).expect("read");
        let tenant = TenantId::new("ads").expect("valid");
        let parsed = parse_job(document, &tenant, "j", 0);
        parsed.map(|(_, spec)| spec.python).map_err(|refusal| {
            assert_eq!(refusal.code, "bad_python");
            refusal.reason
        })
    }

    #[test]
    fn lines_of_packages_are_admitted() {
        let plain = ("kind", "training");
        let written = json!({"requirements": ["six==1.16.0"], "version": "3.11"});
        let python = Python {
            requirements: vec!["six==1.16.0".to_owned()],
            version: Some("3.11".to_owned()),
        };
        assert_eq!(parsed(&written, plain), Ok(Some(python)));
        assert_eq!(parsed(&Value::Null, plain), Ok(None));
        let refused = |python: &Value, more| parsed(python, more).expect_err("refused");
        let file = json!({"requirements": "requirements.txt"});
        assert!(refused(&file, plain).contains("dormouse submit"));
        assert!(refused(&written, ("kind", "notebook")).contains("%pip"));
        assert!(refused(&written, ("image", "x:1")).contains("install them in x:1"));
        let wrong = json!({"requirements": ["-r more.txt"]});
        assert!(refused(&wrong, plain).contains("is an option"));
    }
}
