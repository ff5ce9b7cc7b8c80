//! The batch script of an allocation: an agent on each node, and Slurm's warning passed on to the agents.

use std::path::PathBuf;

use dormouse_messages::QueueId;
use dormouse_messages::quantity::Resource;
use dormouse_messages::slurm::{HOST_LABEL, SlurmQueue};

/// Files with the nodes' keys.
#[derive(Debug, Clone)]
pub struct Keys {
    /// The files are called node-<node>.creds or node-<node>.nk.
    pub folder: PathBuf,
    /// True for credentials, false for nkeys.
    pub are_creds: bool,
}

/// Settings of the agents that a job of Slurm starts.
#[derive(Debug, Clone)]
pub struct Agents {
    /// The program, at the same path on every node.
    pub program: PathBuf,
    /// Folder of the agents on each node.
    pub data: String,
    /// The nodes' keys, if the brokers ask for them.
    pub keys: Option<Keys>,
    /// Further arguments of every agent.
    pub arguments: Vec<String>,
}

impl Agents {
    /// Returns the script of an allocation.
    #[must_use]
    pub fn script(&self, queue: &QueueId, settings: &SlurmQueue, slot: u32) -> String {
        let cores = settings.node.get(&Resource::Cpu).div_ceil(1000).max(1);
        let labels = settings.node_labels(queue);
        let labels = labels.iter().map(|(name, value)| format!("{name}={value}"));
        let labels = labels.flat_map(|label| ["--label".to_owned(), quoted(&label)]);
        let arguments = self.arguments.iter().map(|it| quoted(it));
        let keys = self.keys.iter().flat_map(|keys| {
            let (flag, end) = if keys.are_creds {
                ("--creds", "creds")
            } else {
                ("--nkey", "nk")
            };
            let folder = quoted(&keys.folder.display().to_string());
            // The rank is known on the node only.
            let file = format!("{folder}/node-{queue}-{slot}-$SLURM_NODEID.{end}");
            [flag.to_owned(), file]
        });
        let words: Vec<String> = [
            quoted(&self.program.display().to_string()),
            "serve".to_owned(),
            "agent".to_owned(),
            "--slurm".to_owned(),
            format!("{queue}-{slot}"),
            "--data".to_owned(),
            quoted(&self.data),
            "--drain".to_owned(),
            format!("{}s", settings.drain_s),
            "--label".to_owned(),
            format!("{HOST_LABEL}=$SLURMD_NODENAME"),
        ]
        .into_iter()
        .chain(labels)
        .chain(keys)
        .chain(arguments)
        .collect();
        let data = quoted(&self.data);
        let pid = format!("{data}/agent-{queue}-{slot}-$SLURM_NODEID.pid");
        let words = words.join(" ");
        // Somebody else may have made the folder before, where everybody can write.
        let own = format!("mkdir -p -m 700 {data} && [ -O {data} ] && [ ! -L {data} ]");
        let agent = format!("{own} && echo $$ > {pid} && exec {words}");
        let agent = quoted(&format!("{agent}; echo {data} is not yours >&2; exit 1"));
        let warn = quoted(&format!("kill -USR1 \"$(cat {pid})\""));
        format!(
            "#!/bin/bash\n\
             # An allocation of the queue {queue}: an agent on each node.\n\
             srun --ntasks-per-node=1 --cpus-per-task={cores} --kill-on-bad-exit=0 --no-kill /bin/sh -c {agent} &\n\
             agents=$!\n\
             # Slurm warns the batch shell before the end: the agents drain their nodes. A signal by way of srun\n\
             # would reach every process of a node.\n\
             warn() {{ srun --overlap --ntasks-per-node=1 /bin/sh -c {warn} & }}\n\
             trap warn USR1\n\
             # Slurm ends the agents itself.\n\
             trap : TERM\n\
             status=0\n\
             while kill -0 \"$agents\" 2>/dev/null; do wait \"$agents\"; status=$?; done\n\
             exit \"$status\"\n"
        )
    }
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::process::Command;

    use super::*;

    #[test]
    fn the_script_starts_agents_with_every_word_as_written() {
        let agents = Agents {
            program: PathBuf::from("/opt/it's here/dormouse"),
            data: "/tmp/a b".to_owned(),
            keys: Some(Keys {
                folder: PathBuf::from("/keys of/me"),
                are_creds: true,
            }),
            arguments: vec!["--checkpoints".to_owned(), "$(touch /tmp/no)".to_owned()],
        };
        let settings = SlurmQueue {
            partition: None,
            account: None,
            options: Vec::new(),
            node: "cpu=2".parse().expect("amounts"),
            labels: BTreeMap::from([("zone".to_owned(), "a".to_owned())]),
            nodes: 1,
            time_limit_s: 60,
            drain_s: 30,
            most: 1,
            backlog: 1,
            idle_s: 60,
            pause_after: 3,
            grow: false,
            paused: false,
        };
        let script = agents.script(&"gpu".parse().expect("a queue"), &settings, 3);
        // `srun` shows what an agent would get.
        let folder = tempfile::tempdir().expect("a folder");
        let shown = folder.path().join("srun");
        std::fs::write(
            &shown,
            "#!/bin/sh\nwhile [ \"$1\" != /bin/sh ]; do shift; done\nshift\nshift\nwords=${1#*exec }\n\
             eval \"set -- ${words%; echo *}\"\nprintf '%s\\n' \"$@\"\n",
        )
        .expect("written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&shown, mode).expect("executable");
        let file = folder.path().join("script");
        std::fs::write(&file, script).expect("written");
        let path = std::env::var("PATH").unwrap_or_default();
        let output = Command::new("bash")
            .arg(file)
            .env("PATH", format!("{}:{path}", folder.path().display()))
            .env("SLURM_NODEID", "1")
            .env("SLURMD_NODENAME", "sn2")
            .output()
            .expect("bash");
        let words = String::from_utf8_lossy(&output.stdout);
        let words: Vec<&str> = words.lines().collect();
        let wanted = [
            "/opt/it's here/dormouse",
            "serve",
            "agent",
            "--slurm",
            "gpu-3",
            "--data",
            "/tmp/a b",
            "--drain",
            "30s",
            "--label",
            "slurm-node=sn2",
            "--label",
            "slurm-queue=gpu",
            "--label",
            "zone=a",
            "--creds",
            "/keys of/me/node-gpu-3-1.creds",
            "--checkpoints",
            "$(touch /tmp/no)",
        ];
        assert_eq!(words, wanted);
    }
}
