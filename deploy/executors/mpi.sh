# Starts one rank of an MPI gang (MPICH's hydra) in a container of its own.
#
#   /bin/sh -c "$(cat mpi.sh)" dormouse PROGRAM ARGUMENT...
#
# Reads: DORMOUSE_RANK, DORMOUSE_WORLD_SIZE, DORMOUSE_MPI_ROOT (address:port on
# which rank 0's mpiexec listens), DORMOUSE_EXIT and DORMOUSE_GO (files of this
# container).
# Nothing passes between the containers but TCP: rank 0 runs mpiexec with the
# `manual` launcher and a known control port, every rank runs the proxy that
# mpiexec would have started by ssh, and the proxy starts the program.
#
# Signals: mpiexec forwards SIGTERM and SIGUSR1 to all ranks; the proxies ignore
# them. The exit code is the program's own, which hydra's proxy would hide.
# hydra gives every rank a session of its own, out of reach of a kill of the
# process group: the parent-death signal ties each process to the one above.
mpiexec_pid=
terminated=
trap 'terminated=1; [ -z "$mpiexec_pid" ] || kill -TERM "$mpiexec_pid" 2>/dev/null' TERM
trap '[ -z "$mpiexec_pid" ] || kill -USR1 "$mpiexec_pid" 2>/dev/null' USR1
host=${DORMOUSE_MPI_ROOT%:*}
port=${DORMOUSE_MPI_ROOT##*:}
rm -f "$DORMOUSE_EXIT" "$DORMOUSE_EXIT.begun"

# Where the container has a network of its own, its node's address becomes one of it just after its
# start: programs that listen on that address wait for the file that says so.
tries=0
while [ -n "$DORMOUSE_NETWORK" ] && [ ! -e "$DORMOUSE_NETWORK" ]; do
  [ "$tries" -lt 600 ] || { echo "the network of this container is not ready after a minute" >&2; exit 1; }
  tries=$((tries + 1))
  sleep 0.1
done

if [ "$DORMOUSE_RANK" = 0 ]; then
  command -v mpiexec >/dev/null || { echo "mpiexec is not in the PATH of this node ($PATH): MPI jobs need MPICH there, such as pip install mpich" >&2; exit 127; }
  # One invented host name a rank: hydra starts one proxy a host name.
  hosts=r0
  i=1
  while [ "$i" -lt "$DORMOUSE_WORLD_SIZE" ]; do
    hosts=$hosts,r$i
    i=$((i + 1))
  done
  # -genvnone: each rank keeps its own container's environment, not rank 0's; -wdir: where its code is its own, its folder
  # is another than rank 0's.
  MPIEXEC_PORT_RANGE=$port:$port setpriv --pdeathsig KILL \
    mpiexec -launcher manual -hosts "$hosts" -n "$DORMOUSE_WORLD_SIZE" -localhost "$host" -genvnone \
    ${DORMOUSE_WORKDIR:+-wdir /} \
    setpriv --pdeathsig KILL /bin/sh -c 'trap : TERM USR1
      : >"$DORMOUSE_EXIT.begun"
      cd "${DORMOUSE_WORKDIR:-.}" || exit
      setpriv --pdeathsig KILL "$@"; code=$?
      echo "$code" >"$DORMOUSE_EXIT"; exit "$code"' rank "$@" &
  mpiexec_pid=$!
fi

# A proxy runs what it is told by the program that it connects to, and nothing in MPICH lets it check
# which one that is: another job may hold the port. It is run when the node's agent has written this
# file, which it does when it knows that rank 0's own container listens.
tries=0
while [ ! -e "$DORMOUSE_GO" ]; do
  [ -z "$terminated" ] || exit 143
  if [ -n "$mpiexec_pid" ] && ! kill -0 "$mpiexec_pid" 2>/dev/null; then
    echo "mpiexec ended before it listened on $host:$port: see what it says, and whether another program holds the port" >&2
    exit 1
  fi
  if [ "$tries" -ge 1200 ]; then
    echo "the mpiexec of rank 0 does not listen on $host:$port after a minute: see what rank 0 says, and whether another program holds the port" >&2
    exit 1
  fi
  tries=$((tries + 1))
  sleep 0.05
done

# The proxy does not wait for mpiexec to listen: it is tried again for a minute. Where ports are
# published, the engine may accept for mpiexec before that listens, and close.
is_too_early() {
  case $code in
    5) grep -q 'unable to connect to server' "$DORMOUSE_EXIT.proxy" ;;
    *) [ -n "$DORMOUSE_NETWORK" ] && [ ! -e "$DORMOUSE_EXIT.begun" ] && grep -q '(!closed)' "$DORMOUSE_EXIT.proxy" ;;
  esac
}
tries=0
while :; do
  setpriv --pdeathsig KILL hydra_pmi_proxy --control-port "$host:$port" \
    --rmk user --launcher manual --demux poll --pgid 0 --retries 10 --usize -1 --pmi-port 0 \
    --gpus-per-proc -2 --gpu-subdevs-per-proc -2 --proxy-id "$DORMOUSE_RANK" 2>"$DORMOUSE_EXIT.proxy" &
  proxy_pid=$!
  # A trapped signal ends `wait` early: wait until the process is gone.
  while wait "$proxy_pid"; code=$?; kill -0 "$proxy_pid" 2>/dev/null; do :; done
  tries=$((tries + 1))
  [ -z "$terminated" ] && [ "$tries" -lt 600 ] && is_too_early || break
  [ -z "$mpiexec_pid" ] || kill -0 "$mpiexec_pid" 2>/dev/null || break
  sleep 0.1
done
cat "$DORMOUSE_EXIT.proxy" >&2
if [ -n "$mpiexec_pid" ]; then
  while wait "$mpiexec_pid"; code=$?; kill -0 "$mpiexec_pid" 2>/dev/null; do :; done
fi
[ ! -s "$DORMOUSE_EXIT" ] || read -r code <"$DORMOUSE_EXIT"
# Terminated before the program began: say so as a shell would.
[ -z "$terminated" ] || [ -s "$DORMOUSE_EXIT" ] || code=143
exit "$code"
