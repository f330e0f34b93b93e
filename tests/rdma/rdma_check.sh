#!/usr/bin/env bash
# What only a machine with an RDMA device can show, in one go: that floats travel by rc or dc, that slots are registered,
# that the transport keeps its contract, that nothing is lost to kill -9, and how close bulk comes to ucx_perftest.
# Without such a device it says so and ends with 77, which ctest counts as skipped. It was written without one: what it
# checks has never been seen to pass.
#
#   tests/rdma/rdma_check.sh [BUILD [DEVICE]]      DEVICE as UCX names it: mlx5_0:1
set -euo pipefail
build=$(realpath "${1:-build}")
here=$(cd "$(dirname "$0")" && pwd)
failed=0

shopt -s nullglob
devices=(/sys/class/infiniband/*)
if [ ${#devices[@]} -eq 0 ]; then
    echo "rdma_check: SKIPPED: no RDMA device (nothing in /sys/class/infiniband); unproven here: rc and dc, registered slots,"
    echo "            the transport's contract over them, kill -9, and their speed"
    exit 77
fi

step() { # NAME COMMAND...: a line for what held and what did not
    local name=$1
    shift
    if "$@"; then echo "rdma_check: $name: ok"; else
        echo "rdma_check: $name: FAILED"
        failed=1
    fi
}

for device in "${devices[@]}"; do
    for port in "$device"/ports/*; do
        echo "device $(basename "$device") port $(basename "$port"): $(cat "$port/state"), $(cat "$port/link_layer"), $(cat "$port/rate")"
    done
done
device=${2:-$(basename "${devices[0]}"):1}
echo "using $device; UCX $(ucx_info -v | sed -n 's/^# *Library version: //p'), transports there:" \
    "$(ucx_info -d | sed -n 's/^# *Transport: //p' | sort -u | tr '\n' ' ')"
counters=/sys/class/infiniband/${device%:*}/ports/${device#*:}/counters

out=$(mktemp -d)
server=0
cleanup() {
    [ "$server" = 0 ] || kill -9 "$server" 2>/dev/null || true
    rm -rf "$out"
}
trap cleanup EXIT

# The rows of rc are in the transport's tests wherever there is a device.
step "conformance" "$build/tests/test_transport" --jobs 1
step "conformance, losses" "$build/tests/test_transport_loss" --jobs 1
step "conformance, renewal" "$build/tests/test_transport_renew" --jobs 1

# 16 M parameters: slots of 64 MiB. The worker says by which lanes each shard is reached; the kernel says how much memory
# the server has pinned (what registering does), and how many bytes came in by the device.
"$build/gradweir-server" --listen 127.0.0.1:0 --port-file "$out/port" --transport rc --net-devices "$device" --queue 4 \
    >"$out/server.log" 2>&1 &
server=$!
for _ in $(seq 100); do [ -s "$out/port" ] && break; sleep 0.1; done
[ -s "$out/port" ] || { echo "rdma_check: the server did not start:"; tail -5 "$out/server.log"; exit 1; }
received() { cat "$counters/port_rcv_data" 2>/dev/null || echo 0; } # in units of 4 bytes
before=$(received)
"$build/gradweir-train" --env CartPole-v1 --hidden 2048 --workers 1 --servers "$(cat "$out/port")" --transport rc \
    --net-devices "$device" --max-steps 20000 --evaluate 0 >"$out/train.log" 2>&1 || true
after=$(received)
pinned=$(sed -n 's/^VmPin:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$server/status")
lanes() { grep -hoE '(rc|dc)_[a-z0-9]+/[a-z0-9_]+:[0-9]+' "$out/train.log" "$out/server.log" | sort -u; }
echo "lanes in the logs: $(lanes | tr '\n' ' '); pinned by the server: ${pinned:-0} KiB; received by $device: $(((after - before) * 4 / 1048576)) MiB"
step "rc or dc is chosen and logged" [ -n "$(lanes)" ]
step "slots are registered" [ "${pinned:-0}" -ge 131072 ]
step "floats came by the device" [ $((after - before)) -ge 1048576 ]
kill "$server" && wait "$server" || true
server=0

# kill -9 of workers, shards and the coordinator, audited; what UCX reads from the environment goes before our own settings.
step "kill -9" env GRADWEIR_BUILD="$build" UCX_TLS=rc,tcp,self UCX_NET_DEVICES="$device" \
    python3 "$here/../integration/test_kills.py" --kills 30 --seed 1

ratio() { # CASE SIZE: of ucx_perftest on the same transport in the same run
    "$build/gradweir-bench" "$1" --transport rc --size "$2" --workers 1 --shards 1 --json | tee -a "$out/bench.json" |
        sed -n 's/.*"perftest_ratio": *\([0-9.]*\).*/\1/p'
}
for size in 1MiB 16MiB 64MiB; do
    for case in push pull; do
        value=$(ratio "$case" "$size")
        echo "$case $size over rc: ${value:-not measured} of ucx_perftest"
        step "$case $size is at least 0.8 of ucx_perftest" awk "BEGIN { exit !(${value:-0} >= 0.8) }"
    done
done
exit $failed
