# Supervises one container that is a plain process, so that its exit code outlives the agent.
#
#   sh -c SCRIPT dormouse <ORDERS
#
# It may wait for its orders long before there is a container: a fork, and a move to a control
# group, take milliseconds. Orders are a script: `directory`, `records` (how the names of its own
# files begin), `groups` (the files of those that it is not in yet), the function `environment`,
# the working directory, the program with its arguments, and last `told`. An agent that dies closes
# them, and a supervisor without complete orders ends.
#
# Only builtins until the program runs: no fork but its own.
# - Which process this is the agent has noted before it gave the orders: whoever comes after it
#   finds this process alive, or starts another.
# - A trap (not ignoring) lets the supervisor outlive what is sent to its process group; the
#   program gets the default back. Before there is a program, a signal ends the supervisor.
# - The shell writes to its standard error (the file `ended`) that a signal ended the program,
#   which its exit code alone cannot tell from an exit code above 128.
. /proc/self/fd/0
[ -n "$told" ] || exit 0
command exec </dev/null 2>>"$records.ended" || exit 125
command exec >>"$directory/stdout.log" || exit 125
for group in $groups; do echo $$ >"$group"; done
trap : 1 2 3 10 12 14 15 23 26 27 28 29
(exec 2>>"$directory/stderr.log"; environment; exec "$@")
code=$?
echo "$code" >"$records.exit"
exit "$code"
