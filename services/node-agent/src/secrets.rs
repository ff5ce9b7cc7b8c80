//! Resolves secrets: references in a job become values in the container's environment, and nowhere else.

use std::collections::BTreeMap;
use std::path::Path;

use dormouse_messages::grants::Granted;
use dormouse_messages::job::{EnvValue, SecretSource};
use dormouse_sandbox::folder::{Below, read_anywhere};

/// A longer file is a wrong path. Linux allows 128 KiB per variable.
const LONGEST_BYTES: u64 = 100 * 1024;

/// Reads an environment's granted secrets on this node. Blocking.
///
/// # Errors
/// The variable whose secret is missing.
pub fn resolve(
    env: &BTreeMap<String, EnvValue>,
    granted: &Granted,
) -> Result<BTreeMap<String, String>, String> {
    env.iter()
        .map(|(name, value)| {
            let value = match value {
                EnvValue::Plain(value) => value.clone(),
                EnvValue::Secret(secret) => {
                    granted
                        .secret(name, &secret.from)
                        .map_err(|denied| denied.reason)?;
                    read(&secret.from, granted.secrets_folder())
                        .map_err(|why| format!("the secret of {name} {why}"))?
                }
            };
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return Err(format!("{name:?} cannot be an environment variable"));
            }
            Ok((name.clone(), value))
        })
        .collect()
}

/// `folder` is the tenant's own. Links in it are not followed.
fn read(source: &SecretSource, folder: Option<&str>) -> Result<String, String> {
    match source {
        SecretSource::File(path) => {
            let fail = |why: String| {
                format!("cannot be read from {path} on this node ({why}); create it or correct the job")
            };
            let bytes = match folder {
                Some(folder) => read_in(folder, path),
                None => read_anywhere(Path::new(path), LONGEST_BYTES),
            };
            let bytes = bytes.map_err(|error| fail(error.to_string()))?;
            let text = String::from_utf8(bytes).map_err(|_| fail("it is not text".to_owned()))?;
            Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
        }
        SecretSource::Env(name) => std::env::var(name).map_err(|_| {
            format!("is not in the environment of this node's agent ({name}); set it there and restart the agent")
        }),
    }
}

fn read_in(folder: &str, path: &str) -> std::io::Result<Vec<u8>> {
    let (way, name) = path.rsplit_once('/').unwrap_or(("", path));
    let folder = Below::new(folder.into(), way).open()?;
    folder.read(name, LONGEST_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_messages::grants::{Grants, GrantsRule};
    use dormouse_messages::job::SecretFrom;

    fn secret(from: SecretSource) -> BTreeMap<String, EnvValue> {
        BTreeMap::from([("TOKEN".to_owned(), EnvValue::Secret(SecretFrom { from }))])
    }

    #[test]
    fn a_file_is_read_without_its_last_newline() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "s3cret\n").expect("written");
        let path = file.path().display().to_string();
        let env =
            resolve(&secret(SecretSource::File(path)), &Granted::default()).expect("resolved");
        assert_eq!(env["TOKEN"], "s3cret");
    }

    #[test]
    fn what_never_ends_is_no_secret() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        for path in ["/dev/zero", &pipe.display().to_string()] {
            let error = resolve(
                &secret(SecretSource::File(path.to_owned())),
                &Granted::default(),
            );
            let error = error.expect_err("refused");
            assert!(error.contains("regular file"), "{error}");
        }
    }

    #[test]
    fn a_missing_secret_says_which_and_what_to_do() {
        let open = Granted::default();
        let error = resolve(
            &secret(SecretSource::Env("NOT_SET_ANYWHERE".to_owned())),
            &open,
        )
        .expect_err("missing");
        assert!(
            error.contains("TOKEN") && error.contains("NOT_SET_ANYWHERE"),
            "{error}"
        );
        let error = resolve(&secret(SecretSource::File("/no/such".to_owned())), &open)
            .expect_err("missing");
        assert!(error.contains("/no/such"), "{error}");
    }

    #[test]
    fn a_tenant_reads_its_own_folder_and_nothing_through_a_link() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(path("ads/deep")).expect("made");
        std::fs::write(path("ads/deep/token"), "s3cret\n").expect("written");
        std::fs::write(path("other"), "not theirs").expect("written");
        std::os::unix::fs::symlink(path("other"), path("ads/link")).expect("linked");
        std::os::unix::fs::symlink(folder.path(), path("ads/up")).expect("linked");
        let granted = Granted {
            tenant: "ads".to_owned(),
            rule: GrantsRule::Required,
            grants: Grants {
                secrets: Some(path("ads").display().to_string()),
                ..Grants::default()
            },
        };
        let read = |path: &str| resolve(&secret(SecretSource::File(path.to_owned())), &granted);
        assert_eq!(read("deep/token").expect("read")["TOKEN"], "s3cret");
        for path in ["link", "up/other"] {
            let error = read(path).expect_err("a link");
            assert!(error.contains("link"), "{error}");
        }
        for path in ["/etc/shadow", "../other", "deep/../../other"] {
            let error = read(path).expect_err("not theirs");
            assert!(error.contains("folder of secrets"), "{error}");
        }
        let own = SecretSource::Env("PATH".to_owned());
        assert!(resolve(&secret(own), &granted).is_err());
    }
}
