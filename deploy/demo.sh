#!/usr/bin/env bash
# The demo, about a minute: four workers learn CartPole through two server shards; a worker is killed, a shard is killed
# and comes back in its own memory, and a gradient is NaN on the way; then what is claimed is checked. It leaves gradweir-demo/: curve.svg, curve.csv, summary.json, recording/.
# Options are handed on to gradweir-train, e.g. deploy/demo.sh --seed 7
set -euo pipefail
cd "$(dirname "$0")/.."
out=gradweir-demo
train=build/gradweir-train
server=build/gradweir-server

rm -rf "$out"
mkdir -p "$out"

stop_killer() {
    [ -z "${killer:-}" ] || { pkill -P "$killer" && kill "$killer"; } 2>/dev/null || true
    killer=
}

# Ctrl-C: the run ends its own processes; nothing else of the demo runs beside it.
interrupted() {
    stop_killer
    [ -z "${run:-}" ] || { kill -TERM "$run" 2>/dev/null && wait "$run" 2>/dev/null; } || true
    echo "interrupted"
    exit 130
}
trap interrupted INT TERM

json() { sed -n "s/^  \"$1\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p" "$out/summary.json"; }

# kill -9 shard 1: the coordinator's and the shards' parent (--supervise) starts it again where it was.
kill_shard() {
    sleep 18
    for server_pid in $(pgrep -P "$run"); do
        for pid in $(pgrep -P "$server_pid"); do
            if tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -q -- '--shard 1 '; then
                echo "kill -9 shard 1"
                kill -9 "$pid"
            fi
        done
    done
}

echo "== act 1: learn.  act 2: break (worker-0's gradient 500 is a NaN; kill -9 of worker-2 after 12 s, of shard 1 after 18)."
set +e
"$train" --env CartPole-v1 --workers 4 --shards 2 --window 4 --stride 1 --seed 1 --until 475 --max-steps 1000000 \
    --pace 15 --progress --poison 500 --kill-worker 2 12 --record "$out/recording" --server-log "$out/server.log" \
    --curve "$out/curve" --json "$out/summary.json" --server-settings "--supervise on" "$@" &
run=$!
kill_shard &
killer=$!
wait "$run"
solved=$?
run=
stop_killer
set -e
grep -hE ' (memory|law|supervise|order): ' "$out/server.log" | sed 's/^ *[0-9.]* \(info\|warn\)  /   /' || true

echo "== act 3: prove"
if [ ! -f "$out/summary.json" ]; then
    echo "the run left no summary; $out/server.log may say why"
    exit 1
fi
failed=0
digest=$(json digest)
version=$(json version)
for shards in 1 2 3; do
    line=$("$server" replay "$out/recording" --shards "$shards" --until "$version")
    if [ "${line##*digest }" = "$digest" ]; then
        echo "replay on $shards shard(s): $line: the run's own digest"
    else
        echo "replay on $shards shard(s): $line: NOT the run's digest $digest"
        failed=1
    fi
done
echo "100 fresh episodes with the final parameters: mean return $(json final_mean_return)"
[ "$solved" = 0 ] || failed=1

cat <<END

Left in $out/: curve.svg (the kill is marked), curve.csv, summary.json, server.log, recording/
Try next:
  $train --env Pendulum-v1 --workers 4 --shards 2 --progress
  $train --env CartPole-v1 --workers 4 --shards 2 --slow-worker 0 10 --pace 20 --progress
  $server --shards 2 &   then your own worker: client/examples/hello.c
END
exit "$failed"
