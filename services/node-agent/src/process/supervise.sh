# Supervises one container that is a plain process, so that its exit code outlives the agent.
#
#   sh -c SCRIPT dormouse DIRECTORY "CGROUP_PROCS…" PROGRAM ARGUMENT…
#
# Only builtins until the program runs: no fork but its own.
# - A trap (not ignoring) lets the supervisor outlive what is sent to its process group; the
#   program gets the default back. Before there is a program, a signal ends the supervisor.
# - `process` is created exclusively, and before the program runs: of two supervisors for one
#   container (an agent that died while starting it, and its successor) only one goes on.
# - The shell writes to its standard error (the file `ended`) that a signal ended the program,
#   which its exit code alone cannot tell from an exit code above 128.
directory=$1 groups=$2
shift 2
read -r boot </proc/sys/kernel/random/boot_id
read -r stat </proc/$$/stat
set -C
echo "$boot $stat" >"$directory/process" || exit 125
set +C
for group in $groups; do echo $$ >"$group"; done
trap : 1 2 3 10 12 14 15 23 26 27 28 29
(exec "$@" 2>>"$directory/stderr.log")
code=$?
echo "$code" >"$directory/exit"
exit "$code"
