//! Traces in a real Jaeger, for jobs of every language, a resize and a refusal: `make jaeger-test`.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::clients::{rust_driver, tools};
use crate::common::{Cluster, nats_server, poll, root};

const QUERY: &str = "http://127.0.0.1:16686";
const OTLP: &str = "http://127.0.0.1:4318";

struct Jaeger(Child);

impl Jaeger {
    fn start() -> Self {
        let tools = std::env::var_os("DORMOUSE_TOOLS").map(std::path::PathBuf::from);
        let program = tools
            .unwrap_or_else(|| root().join(".tools"))
            .join("bin/jaeger");
        let child = Command::new(&program)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let jaeger = Self(child.unwrap_or_else(|error| {
            panic!(
                "{}: {error}; run scripts/install.sh jaeger",
                program.display()
            )
        }));
        poll("Jaeger", Duration::from_secs(30), || {
            let reached = |port| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
            (reached(16_686) && reached(4_318)).then_some(())
        });
        jaeger
    }
}

impl Drop for Jaeger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "builds a Jaeger first: make jaeger-test"]
fn jobs_are_one_trace_each_in_every_language_and_when_resized_or_refused() {
    let _jaeger = Jaeger::start();
    let mut cluster = Cluster::new();
    cluster.env("OTEL_EXPORTER_OTLP_ENDPOINT", OTLP);
    cluster.start_up(2, "cpu=4,memory=4Gi");
    let mut check = Command::new(root().join("messages/clients/check.sh"));
    check
        .args(["--main", &cluster.url(), "--jaeger", QUERY, "--otlp", OTLP])
        .env("DORMOUSE_CLIENT_TOOLS", tools())
        .env("DORMOUSE_NATS_SERVER", nats_server());
    if let Some(rust) = rust_driver() {
        check.arg("--rust").arg(rust);
    }
    let output = check.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let faults = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{faults}");
    print!("{said}");
    cluster.check();
}
