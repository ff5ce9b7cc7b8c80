//! After a full disk nothing is lost and nobody must restart anything; `cluster doctor` reports the disk.

use std::io::Write;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::common::{Cluster, PATIENCE, count_job, poll};
use crate::doctor::look;

struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    fn new(path: PathBuf) -> Self {
        std::fs::create_dir(&path).expect("made");
        let size = Some("size=700m");
        let no_flags = MsFlags::empty();
        mount(Some("none"), &path, Some("tmpfs"), no_flags, size).expect("mounted, as root");
        Self { path }
    }

    fn fill(&self) -> PathBuf {
        let path = self.path.join("filling");
        let mut file = std::fs::File::create(&path).expect("made");
        let pieces = [1 << 20, 4 << 10, 1];
        for piece in pieces.map(|bytes| vec![0_u8; bytes]) {
            while file.write_all(&piece).is_ok() {}
        }
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = umount2(&self.path, MntFlags::MNT_DETACH);
    }
}

fn url_of(data: &Path) -> Option<String> {
    let url = std::fs::read_to_string(data.join("broker/url")).ok()?;
    Some(url.trim().to_owned())
}

#[test]
fn a_full_disk_is_told_and_survived() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root mounts a disk");
        return;
    }
    let mut cluster = Cluster::new();
    let disk = SmallDisk::new(cluster.dir().join("small"));
    let args = ["up", "--nodes", "1", "--capacity", "cpu=4,memory=4Gi"];
    cluster.start("up", &args, &disk.path);
    let url = poll("the broker", PATIENCE, || url_of(&disk.path));
    cluster.set_url(url);
    cluster.wait_for_nodes(1);
    cluster.submit(&count_job("before", 3, (1, 1), &[])).ok();
    cluster.wait_completed("ads/before");
    let doctor = || cluster.run(&["cluster", "doctor"]);
    assert_eq!(look(&doctor().json(), "storing").0, "ok");

    let filling = disk.fill();
    let refused = cluster.submit(&count_job("meanwhile", 3, (1, 1), &[]));
    assert_ne!(refused.code, 0, "{refused:?}");
    let full = doctor();
    assert_eq!(full.code, 1, "{full:?}");
    let (state, found) = look(&full.json(), "storing");
    assert_eq!(state, "failed", "{found}");
    assert!(found.contains("broker dormouse-local-"), "{found}");
    let up = cluster.dir().join("up.log");
    let said = std::fs::read_to_string(up).expect("there");
    assert!(said.contains("its disk is full: free some room"), "{said}");

    std::fs::remove_file(filling).expect("freed");
    let after = count_job("after", 3, (1, 1), &[]);
    poll("a submission", PATIENCE, || {
        (cluster.submit(&after).code == 0).then_some(())
    });
    cluster.wait_completed("ads/after");
    poll("nothing is wrong", PATIENCE, || {
        let said = doctor();
        let is_well = look(&said.json(), "storing").0 == "ok" && said.code == 0;
        is_well.then_some(())
    });
    cluster.check();
}
