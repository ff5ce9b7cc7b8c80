//! Checks of the working folder, packed before submission and named by its digest.

use dormouse_messages::job::{JobDocument, Kind};
use dormouse_messages::{Workdir, WrittenWorkdir};

use crate::refusal::Refusal;

/// Returns the packed folder.
///
/// # Errors
/// Unpacked folders, impossible archives, and notebooks, which have their own folder.
pub fn check(document: &JobDocument) -> Result<Option<Workdir>, Refusal> {
    let bad = |reason: String| Err(Refusal::new("bad_workdir", reason));
    let packed = match &document.workdir {
        None => return Ok(None),
        Some(WrittenWorkdir::Packed(packed)) => packed,
        Some(WrittenWorkdir::Folder(folder)) => {
            return bad(format!(
                "workdir {folder:?} is a folder of the machine on which the document lies; `dormouse submit FILE` packs it, stores it and puts its digest there"
            ));
        }
    };
    if document.kind == Kind::Notebook {
        return bad(
            "a notebook keeps its files in a folder of its own; leave workdir out".to_owned(),
        );
    }
    match packed.check() {
        Ok(()) => Ok(Some(packed.clone())),
        Err(error) => bad(format!("workdir: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use dormouse_messages::TenantId;
    use serde_json::{Value, json};

    use crate::parse::parse_job;

    use super::*;

    fn parsed(workdir: &Value, kind: &str) -> Result<Option<Workdir>, String> {
        let document = json!({"kind": kind, "command": {"start": ["true"]}, "demand": {"cpu": 1},
            "workdir": workdir});
        let document = serde_json::from_value(document).expect("read");
        let tenant = TenantId::new("ads").expect("valid");
        let parsed = parse_job(document, &tenant, "j", 0);
        parsed.map(|(_, spec)| spec.workdir).map_err(|refusal| {
            assert_eq!(refusal.code, "bad_workdir");
            refusal.reason
        })
    }

    #[test]
    fn only_what_is_packed_is_admitted() {
        let sha256 = "0a".repeat(32);
        let packed = json!({"sha256": sha256, "bytes": 512});
        let spec = parsed(&packed, "training").expect("admitted");
        assert_eq!(spec, Some(Workdir { sha256, bytes: 512 }));
        assert_eq!(parsed(&Value::Null, "training"), Ok(None));
        let refused = |workdir: &Value, kind| parsed(workdir, kind).expect_err("refused");
        assert!(refused(&json!("."), "training").contains("dormouse submit"));
        assert!(refused(&packed, "notebook").contains("leave workdir out"));
        let wrong = json!({"sha256": "../..", "bytes": 512});
        assert!(refused(&wrong, "training").contains("SHA-256"));
        let empty = json!({"sha256": "0a".repeat(32), "bytes": 0});
        assert!(refused(&empty, "training").contains("archive"));
    }
}
