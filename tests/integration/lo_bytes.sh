#!/usr/bin/env bash
# Is the transport that is named the one in use? Counts the bytes on a loopback device of its own (a network namespace:
# root is needed) during a run over shared memory and one over TCP, against the floats that the run moved.
#
#   tests/integration/lo_bytes.sh [BUILD]
set -euo pipefail
build=$(realpath "${1:-build}")
space=gradweir-lo-$$
out=$(mktemp -d)
ip netns add "$space"
trap 'ip netns del "$space"; rm -rf "$out"' EXIT
ip -n "$space" link set lo up

field() { sed -n "s/^  \"$1\": \([0-9]*\),\{0,1\}\$/\1/p" "$out/run.json"; }

for transport in posix tcp; do
    before=$(ip netns exec "$space" cat /sys/class/net/lo/statistics/rx_bytes)
    ip netns exec "$space" "$build/gradweir-train" --env CartPole-v1 --hidden 512 --workers 2 --shards 2 --evaluate 0 \
        --max-steps 20000 --until 500 --transport "$transport" --json "$out/run.json" >/dev/null || true
    after=$(ip netns exec "$space" cat /sys/class/net/lo/statistics/rx_bytes)
    # 2 x 512 hidden units in actor and critic: 531,971 floats; each push is paired with a pull.
    payload=$(($(field pushes) * 2 * 4 * 531971))
    echo "$transport: $((after - before)) bytes on lo, $payload bytes of floats: $(awk "BEGIN {printf \"%.3f\", 100 * ($after - $before) / $payload}") %"
done
