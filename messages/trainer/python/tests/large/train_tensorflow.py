"""Softmax regression by a real ParameterServerStrategy: the chief coordinates, workers compute, the variables lie on ps.

Argument: steps. Every container runs it; TF_CONFIG says what it is. The chief leaves `result.json` among its
checkpoints.
"""

import json
import os
import sys
from pathlib import Path

import tensorflow as tf

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(2)
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
cluster = resolver.cluster_spec().as_dict()

if resolver.task_type in ("worker", "ps"):
    # They serve until the job ends: the chief's end is the job's (`success: coordinator`).
    tf.distribute.Server(resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id).join()

strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
data = tf.random.Generator.from_seed(3)
x, y = data.normal((600, 20)), data.uniform((600,), maxval=4, dtype=tf.int32)
with strategy.scope():
    weights = tf.Variable(tf.zeros((20, 4)))
    counted = tf.Variable(0, dtype=tf.int64)


@tf.function
def step(rows, labels):
    with tf.GradientTape() as tape:
        logits = tf.matmul(rows, weights)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
    weights.assign_sub(0.5 * tape.gradient(loss, weights))
    counted.assign_add(1)
    return loss


def loss_now():
    return float(tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, tf.matmul(x, weights))))


before = loss_now()
for number in range(int(sys.argv[1])):
    begin = number * 120 % 600
    coordinator.schedule(step, args=(x[begin : begin + 120], y[begin : begin + 120]))
coordinator.join()
result = {
    "cluster": {role: len(members) for role, members in cluster.items()},
    "steps": int(counted.numpy()),
    "losses": [before, loss_now()],
    "variables": weights.device,
}
Path(os.environ["DORMOUSE_CHECKPOINT_DIR"], "result.json").write_text(json.dumps(result))
# Workers and servers are not waited for: they join nothing that ends.
sys.stdout.flush()
os._exit(0)
