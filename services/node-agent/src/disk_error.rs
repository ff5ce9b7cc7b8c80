//! Explanations of failed starts by errors of files: the fault of the node, or of the job.

use std::io::{self, ErrorKind};
use std::path::Path;

use dormouse_agent_core::NotStarted;
use dormouse_sandbox::StartError;
use dormouse_sandbox::folder::Below;

use crate::supervisor::not_started;

/// Explains a failed start by an error at the agent's own path.
#[must_use]
pub fn of_disk(what: &str, path: &Path, error: &io::Error) -> NotStarted {
    not_started(StartError::of_disk(what, path, error))
}

/// Explains a failed start by an error in a folder that jobs write to. An exceeded quota is the job's fault.
/// A denied access is too, unless the agent cannot write to the root of these folders.
#[must_use]
pub fn of_jobs_folder(what: &str, folder: &Below, error: &io::Error) -> NotStarted {
    let not_started = of_disk(what, &folder.path(), error);
    let may_be_the_jobs = match error.kind() {
        ErrorKind::QuotaExceeded => true,
        ErrorKind::PermissionDenied => folder.may_write_to_root(),
        _ => false,
    };
    if may_be_the_jobs {
        not_started.why.into()
    } else {
        not_started
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use dormouse_messages::events::NodeFault;
    use nix::libc;

    use super::*;

    #[test]
    fn a_jobs_own_folder_is_never_the_nodes_fault() {
        use NodeFault::{Disk, Processes};
        let table = [
            (libc::ENOSPC, Some(Disk), Some(Disk)),
            (libc::EIO, Some(Disk), Some(Disk)),
            (libc::EROFS, Some(Disk), Some(Disk)),
            (libc::EMFILE, Some(Processes), Some(Processes)),
            (libc::ENFILE, Some(Processes), Some(Processes)),
            (libc::ENOMEM, Some(Processes), Some(Processes)),
            (libc::EACCES, Some(Disk), None),
            (libc::EPERM, Some(Disk), None),
            (libc::EDQUOT, Some(Disk), None),
            (libc::ELOOP, None, None),
            (libc::ENOTDIR, None, None),
            (libc::EISDIR, None, None),
            (libc::ENOENT, None, None),
            (libc::EEXIST, None, None),
            (libc::ENOTEMPTY, None, None),
            (libc::ENXIO, None, None),
            (libc::ENAMETOOLONG, None, None),
            (libc::ETXTBSY, None, None),
            (libc::EMLINK, None, None),
            (libc::EFBIG, None, None),
        ];
        let root = tempfile::tempdir().expect("a folder");
        let folder = Below::new(root.path().to_owned(), "ads");
        for (errno, of_agent, of_job) in table {
            let error = io::Error::from_raw_os_error(errno);
            assert_eq!(
                of_disk("cannot", root.path(), &error).fault,
                of_agent,
                "{error}"
            );
            assert_eq!(
                of_jobs_folder("cannot", &folder, &error).fault,
                of_job,
                "{error}"
            );
        }
        let refused = io::Error::new(ErrorKind::InvalidData, "it is a link");
        assert_eq!(of_jobs_folder("cannot", &folder, &refused).fault, None);
        let shut = std::fs::Permissions::from_mode(0o500);
        std::fs::set_permissions(root.path(), shut).expect("set");
        let error = io::Error::from_raw_os_error(libc::EACCES);
        let is_root = nix::unistd::geteuid().is_root();
        let of_node = of_jobs_folder("cannot", &folder, &error).fault;
        assert_eq!(of_node, (!is_root).then_some(Disk));
        let gone = Below::new(root.path().join("gone"), "ads");
        assert_eq!(of_jobs_folder("cannot", &gone, &error).fault, Some(Disk));
    }
}
