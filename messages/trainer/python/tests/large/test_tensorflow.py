"""TensorFlow's ParameterServerStrategy in a real cluster, with a server beside its workers. `make trainers-all` runs it."""

import json
import sys
from pathlib import Path

import harness
from test_torchrun import Cluster

PROGRAM = harness.HERE / "large" / "train_tensorflow.py"
# It wants another numpy than torch: an environment of its own.
PYTHON = Path(sys.prefix).with_name("venv-tensorflow") / "bin" / "python3"


def test_a_parameter_server_holds_the_variables_of_its_workers(tmp_path):
    cluster = Cluster(tmp_path)
    try:
        cluster.submit(
            name="trained",
            executor="tensorflow",
            command={"start": [str(PYTHON), str(PROGRAM), "200"]},
            containers={"min": 2, "start": 2, "max": 2},
            resize="in_place",
            roles={"ps": {"count": 1, "demand": {"cpu": "500m", "memory": "1Gi"}}},
            success="coordinator",
        )
        waited = cluster.run("job", "wait", "ads/trained", "--timeout", "240s")
        assert waited.returncode == 0, (waited, cluster.run("job", "logs", "ads/trained", "--tail", "30").stdout)
    finally:
        cluster.end()
    [found] = tmp_path.glob("**/result.json")
    result = json.loads(found.read_text())
    assert result["cluster"] == {"chief": 1, "worker": 1, "ps": 1}
    assert "/job:ps" in result["variables"]
    assert result["steps"] == 200
    assert result["losses"][1] < result["losses"][0]
