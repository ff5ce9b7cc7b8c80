# Runs the tasks of a task set in one container, one after another.
#
#   sh -c SCRIPT dormouse DIRECTORY PROGRAM ARGUMENT…
#
# The agent writes orders into the pipe `orders`, a line each: a number that only grows, and
# ranges of tasks. An order that comes twice, from an agent that was started again, is passed
# over. Every task leaves a line in `results` (order, task, exit code) before the next one runs,
# and what it printed in `tasks/TASK`. When `drain` is there, the container leaves between tasks.
directory=$1
shift
export DORMOUSE_TASK
[ -d "$directory/tasks" ] || mkdir "$directory/tasks" || exit 125
[ -p "$directory/orders" ] || mkfifo "$directory/orders" || exit 125
exec 3<>"$directory/orders" 4>>"$directory/results" || exit 125
last=0
while [ ! -e "$directory/drain" ] && read -r order ranges <&3; do
  [ "$order" -gt "$last" ] || continue
  last=$order
  for range in $ranges; do
    DORMOUSE_TASK=${range%-*}
    while [ "$DORMOUSE_TASK" -le "${range#*-}" ]; do
      [ ! -e "$directory/drain" ] || exit 0
      (exec "$@" >>"$directory/tasks/$DORMOUSE_TASK" 2>&1 3<&- 4>&-)
      echo "$order $DORMOUSE_TASK $?" >&4 || exit 125
      DORMOUSE_TASK=$((DORMOUSE_TASK + 1))
    done
  done
done
