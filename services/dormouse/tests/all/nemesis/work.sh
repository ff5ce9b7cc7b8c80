#!/bin/sh
# A job that notices whether it runs twice: work.sh RECORD BEATS. It holds an exclusive lock while
# it lives, and appends to its record what it does, each line with the fencing token of its
# incarnation: what, token, rank, address of its node, seconds since the boot.
# Another incarnation of it may be another user's: one node has no sandbox.
umask 0
record=$1 beats=$2 token=$DORMOUSE_INCARNATION rank=$DORMOUSE_RANK
IFS=,
set -- $DORMOUSE_PEERS
unset IFS
shift "$rank"
node=${1%%:*}
say() {
    read -r up rest </proc/uptime
    echo "$1 $token $rank $node $up" >>"$record"
}
exec 9>>"$record.$rank.lock"
flock -n 9 || say held
say begin
so_far=0
[ -n "$DORMOUSE_RESUME_FROM" ] && read -r so_far <"$DORMOUSE_RESUME_FROM/beats"
save() {
    if [ "$rank" = 0 ]; then
        echo "$so_far" >"$DORMOUSE_CHECKPOINT_DIR/beats"
        echo "{\"step\": $so_far, \"bytes\": 8}" >"$DORMOUSE_CHECKPOINT_DIR/checkpoint.tmp"
        mv "$DORMOUSE_CHECKPOINT_DIR/checkpoint.tmp" "$DORMOUSE_CHECKPOINT_DIR/checkpoint.json"
    fi
    say saved
    exit 0
}
trap save TERM
while [ "${so_far:-0}" -lt "$beats" ]; do
    sleep 0.25 9>&-
    so_far=$((so_far + 1))
    say beat
done
say end
