# Starts one container of an MXNet gang: a worker, a server (in the first
# DMLC_NUM_SERVER containers), and in rank 0's container the scheduler.
#
#   /bin/sh -c "$(cat mxnet.sh)" dormouse PROGRAM ARGUMENT...
#
# Reads: DORMOUSE_RANK, DMLC_PS_ROOT_URI (rank 0's address, never a name),
# DMLC_PS_ROOT_PORT, DMLC_NUM_WORKER, DMLC_NUM_SERVER, DMLC_NODE_HOST,
# DORMOUSE_PORT (the first of this container's own ports), DORMOUSE_GO (a file
# of this container).
#
# Only the worker hears SIGTERM and SIGUSR1: the server and the scheduler ignore
# them, and end by themselves when all workers have said good-bye, or, when one
# never will, a little after this container's worker has ended. The exit code is
# the worker's. A kill of the shell takes all down (parent-death signal).
# Where the container has a network of its own, its node's address becomes one of it just after its
# start: programs that listen on that address wait for the file that says so.
tries=0
while [ -n "$DORMOUSE_NETWORK" ] && [ ! -e "$DORMOUSE_NETWORK" ]; do
  [ "$tries" -lt 600 ] || { echo "the network of this container is not ready after a minute" >&2; exit 1; }
  tries=$((tries + 1))
  sleep 0.1
done
# A container may listen on its own ports only; the scheduler has the first.
server_port=$((DORMOUSE_PORT + 1))
worker_port=$((DORMOUSE_PORT + 2))

worker_pid=
forward() { [ -z "$worker_pid" ] || kill -"$1" "$worker_pid" 2>/dev/null; }
trap '' TERM USR1
# Ignored signals stay ignored in the children, which is what these two want.
# Importing mxnet with such a role serves until all workers are done.
role() {
  DMLC_ROLE=$1 OMP_NUM_THREADS=1 ${2:+env PORT=$2} setpriv --pdeathsig KILL python3 -c 'import mxnet' &
}
scheduler_pid=
[ "$DORMOUSE_RANK" != 0 ] || { role scheduler; scheduler_pid=$!; }
# Servers and workers connect to whom the scheduler names, and run what comes from there: another job
# may hold its port. They start when the node's agent has written this file, which it does when it
# knows that rank 0's own container listens.
at=$DMLC_PS_ROOT_URI:$DMLC_PS_ROOT_PORT
trap 'exit 143' TERM
tries=0
while [ ! -e "$DORMOUSE_GO" ]; do
  if [ -n "$scheduler_pid" ] && ! kill -0 "$scheduler_pid" 2>/dev/null; then
    echo "the scheduler ended before it listened on $at: see what it says, and whether another program holds the port" >&2
    exit 1
  fi
  if [ "$tries" -ge 6000 ]; then
    echo "the scheduler of rank 0 does not listen on $at after five minutes: see what rank 0 says, and whether another program holds the port" >&2
    exit 1
  fi
  tries=$((tries + 1))
  sleep 0.05
done
trap '' TERM USR1
server_pid=
[ "$DORMOUSE_RANK" -ge "${DMLC_NUM_SERVER:-1}" ] || { role server "$server_port"; server_pid=$!; }
trap "forward TERM" TERM
trap "forward USR1" USR1
DMLC_ROLE=worker PORT=$worker_port setpriv --pdeathsig KILL "$@" &
worker_pid=$!
while wait "$worker_pid"; code=$?; kill -0 "$worker_pid" 2>/dev/null; do :; done
worker_pid=
# The helpers: three seconds to end by themselves after a good end, none after a bad one.
tries=0
[ "$code" = 0 ] || tries=30
for pid in $server_pid $scheduler_pid; do
  while kill -0 "$pid" 2>/dev/null && [ "$tries" -lt 30 ]; do
    tries=$((tries + 1))
    sleep 0.1
  done
  kill -KILL "$pid" 2>/dev/null
done
exit "$code"
