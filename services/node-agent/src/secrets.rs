//! Secrets: references in a job, values in the container's environment, nowhere else.

use std::collections::BTreeMap;
use std::path::Path;

use dormouse_messages::job::{EnvValue, SecretSource};

use crate::folder::read_anywhere;

/// Values longer than this are not secrets but a wrong path; Linux takes 128 KiB a variable.
const LONGEST_BYTES: u64 = 100 * 1024;

/// Reads the secrets that an environment refers to, on this node, now. Blocking.
///
/// # Errors
/// Which variable's secret is missing, and what to do.
pub fn resolve(env: &BTreeMap<String, EnvValue>) -> Result<BTreeMap<String, String>, String> {
    env.iter()
        .map(|(name, value)| {
            let value = match value {
                EnvValue::Plain(value) => value.clone(),
                EnvValue::Secret(secret) => {
                    read(&secret.from).map_err(|why| format!("the secret of {name} {why}"))?
                }
            };
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return Err(format!("{name:?} cannot be an environment variable"));
            }
            Ok((name.clone(), value))
        })
        .collect()
}

fn read(source: &SecretSource) -> Result<String, String> {
    match source {
        SecretSource::File(path) => {
            let fail = |why: String| {
                format!("cannot be read from {path} on this node ({why}); create it or correct the job")
            };
            let bytes = read_anywhere(Path::new(path), LONGEST_BYTES);
            let bytes = bytes.map_err(|error| fail(error.to_string()))?;
            let text = String::from_utf8(bytes).map_err(|_| fail("it is not text".to_owned()))?;
            Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
        }
        SecretSource::Env(name) => std::env::var(name).map_err(|_| {
            format!("is not in the environment of this node's agent ({name}); set it there and restart the agent")
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_messages::job::SecretFrom;

    fn secret(from: SecretSource) -> BTreeMap<String, EnvValue> {
        BTreeMap::from([("TOKEN".to_owned(), EnvValue::Secret(SecretFrom { from }))])
    }

    #[test]
    fn a_file_is_read_without_its_last_newline() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "s3cret\n").expect("written");
        let path = file.path().display().to_string();
        let env = resolve(&secret(SecretSource::File(path))).expect("resolved");
        assert_eq!(env["TOKEN"], "s3cret");
    }

    #[test]
    fn what_never_ends_is_no_secret() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        for path in ["/dev/zero", &pipe.display().to_string()] {
            let error = resolve(&secret(SecretSource::File(path.to_owned())));
            let error = error.expect_err("refused");
            assert!(error.contains("regular file"), "{error}");
        }
    }

    #[test]
    fn a_missing_secret_says_which_and_what_to_do() {
        let error = resolve(&secret(SecretSource::Env("NOT_SET_ANYWHERE".to_owned())))
            .expect_err("missing");
        assert!(
            error.contains("TOKEN") && error.contains("NOT_SET_ANYWHERE"),
            "{error}"
        );
        let error =
            resolve(&secret(SecretSource::File("/no/such".to_owned()))).expect_err("missing");
        assert!(error.contains("/no/such"), "{error}");
    }
}
