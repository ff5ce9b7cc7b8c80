//! A client's credentials, read at every connection, so that a key can be rotated.

use std::io;
use std::path::{Path, PathBuf};

use async_nats::Auth;
use nkeys::KeyPair;

#[derive(Debug, Clone)]
pub(crate) enum Proof {
    Credentials(PathBuf),
    Seed(PathBuf),
}

pub(crate) struct Secret {
    token: Option<String>,
    key: KeyPair,
}

impl Proof {
    pub fn path(&self) -> &Path {
        match self {
            Self::Credentials(path) | Self::Seed(path) => path,
        }
    }

    pub fn read(&self) -> io::Result<Secret> {
        let text = std::fs::read_to_string(self.path())?;
        let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        let key = |seed: &str| KeyPair::from_seed(seed).map_err(|error| wrong(&error.to_string()));
        match self {
            Self::Seed(_) => Ok(Secret {
                token: None,
                key: key(text.trim())?,
            }),
            Self::Credentials(_) => {
                let part = |name: &str| {
                    let begun = text.split_once(&format!("BEGIN {name}-----"))?.1;
                    // At the start of a line: tokens may contain dashes.
                    let (part, _) = begun.split_once("\n---")?;
                    Some(part.trim().to_owned())
                };
                let token = part("NATS USER JWT").ok_or_else(|| wrong("it holds no token"))?;
                let seed = part("USER NKEY SEED").ok_or_else(|| wrong("it holds no seed"))?;
                Ok(Secret {
                    token: Some(token),
                    key: key(&seed)?,
                })
            }
        }
    }

    pub fn sign(&self, nonce: &[u8]) -> io::Result<Auth> {
        let Secret { token, key } = self.read()?;
        let signature = key.sign(nonce);
        let mut auth = Auth::new();
        auth.nkey = Some(key.public_key());
        auth.jwt = token;
        auth.signature = Some(signature.map_err(|error| io::Error::other(error.to_string()))?);
        Ok(auth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_the_file_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        let key = KeyPair::new_user();
        let seed = key.seed().expect("a seed");
        let of = |proof: Proof| proof.sign(b"nonce").map(|auth| (auth.nkey, auth.jwt));
        std::fs::write(&path, format!("{seed}\n")).expect("written");
        let signed = of(Proof::Seed(path.clone())).expect("signed");
        assert_eq!(signed, (Some(key.public_key()), None));
        // A signature contains three dashes once in 3,000 tokens.
        let text = format!(
            "-----BEGIN NATS USER JWT-----\na.b---c\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        );
        std::fs::write(&path, text).expect("written");
        let signed = of(Proof::Credentials(path.clone())).expect("signed");
        assert_eq!(signed, (Some(key.public_key()), Some("a.b---c".to_owned())));
        for wrong in ["", "x", "-----BEGIN NATS USER JWT-----\na"] {
            std::fs::write(&path, wrong).expect("written");
            assert!(of(Proof::Credentials(path.clone())).is_err(), "{wrong}");
        }
    }
}
