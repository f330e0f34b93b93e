#!/usr/bin/env bash
# What only a machine with a GPU can show, in one go: every kernel gives what its twin on the CPU gives, on inputs drawn anew,
# and how fast it is; the reference vectors go through the kernels; the seams of device, engine and groups keep their promises;
# a server and a worker on the GPU come to the bits of those on the CPU; training on the GPU ends solved. Without a GPU it builds
# everything, says that there is none, and ends with 77, which ctest counts as skipped. It was written without a GPU: what it
# checks on one has never been seen to pass.
#
#   tests/gpu/device_check.sh [--seed N] [--build FOLDER] [--limit SECONDS]
#   tests/gpu/device_check.sh --twin [--build FOLDER]       a test of this script: the CPU's twins in the GPU's place
#
# Needs the CUDA toolkit, cmake and a C++ compiler; libraries are the system's, or those that tests/gpu/carry.sh has put
# into tests/gpu/carried. Ends within 6 minutes (--limit 350): every step has a limit, and what is left of that is it for all.
# 0: all as it should be; 1: something is wrong, and the table says what; 77: no GPU.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
seed=$(date +%s)
build=$top/build-gpu
all_s=
failed=0
skipped=()
twin=

while [ $# -gt 0 ]; do
    case $1 in
    --seed) seed=${2:?a number} && shift 2 ;;
    --build) build=$(realpath -m "${2:?a folder}") && shift 2 ;;
    --limit) all_s=${2:?seconds} && shift 2 ;;
    --twin) twin=1 && shift ;;
    *) sed -n '2,14s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
    esac
done

say() { printf '== %3d s  %s\n' "$SECONDS" "$*"; }

# row NAME PROMISE RESULT SPEED: a line of the table, in device_check's columns.
row() { printf '%-54s %-14s %-16s %s\n' "$@" >>"$build/table.txt"; }

# within SECONDS COMMAND...: and within what is left. timeout's 124 when it was not done. A function has limits of its own.
within() {
    local limit=$1 left=$((all_s - SECONDS))
    shift
    [ "$left" -gt 0 ] || return 124
    if declare -F "$1" >/dev/null; then "$@" && return || return; fi
    timeout --kill-after=5 "$((limit < left ? limit : left))" "$@"
}

# step NAME SECONDS COMMAND...: 77 is "nothing to show it on", any other failure is one. What it says is kept in last.txt.
step() {
    local name=$1 limit=$2 code=0 begin=$SECONDS result
    shift 2
    say "$name"
    { within "$limit" "$@" 2>&1 | tee "$build/last.txt"; } || code=$?
    case $code in
    0) result=ok ;;
    77) result=SKIPPED && skipped+=("$name") ;;
    124 | 137) result="WRONG: not done" && failed=1 ;;
    *) result="WRONG: $code" && failed=1 ;;
    esac
    say "$name: $result"
    row "$name" - "$result" "$((SECONDS - begin)) s"
}

# The first that is a word of JSON in the file: its number.
number() { sed -n "s/^ *\"$1\": *\([-0-9.e+]*\),*$/\1/p" "$2" | head -1; }

use_carried() {
    local lib
    lib=$(dirname "$(find "$here/carried" -name libucp.so | head -1)")
    export PKG_CONFIG_SYSROOT_DIR=$here/carried PKG_CONFIG_LIBDIR=$lib/pkgconfig:$here/carried/usr/share/pkgconfig
    export CMAKE_PREFIX_PATH=$here/carried/usr LIBRARY_PATH=$lib:$lib/openblas-pthread CPATH=$here/carried/usr/include
    export LD_LIBRARY_PATH=$lib:$lib/openblas-pthread${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} PATH=$PATH:$here/carried/usr/bin
    say "libraries of $here/carried"
}

# A line of what the compilers say now and then, and all of it where they fail.
build_all() {
    local said=$SECONDS line
    [ -n "$twin" ] && [ -e "$build/CMakeCache.txt" ] ||
        cmake -S "$top" -B "$build" "${configure[@]}" >"$build/log.txt" 2>&1 || { tail -20 "$build/log.txt" && return 1; }
    within $((all_s * 2 / 3)) cmake --build "$build" --parallel "$(nproc)" --target "${targets[@]}" 2>&1 | tee -a "$build/log.txt" |
        while read -r line; do
            [ $((SECONDS - said)) -lt 10 ] || { said=$SECONDS && say "${line:0:100}"; }
        done || { tail -40 "$build/log.txt" && return 1; }
}

# one_run DEVICE MEMORY WORDS...: the digest that a worker with its arrays there, and a server on that device, come to.
one_run() {
    local device=$1 memory=$2 port=$build/port.txt code=0 server
    shift 2
    rm -f "$port"
    timeout --kill-after=5 60 "${programs[server]}" --listen 127.0.0.1:0 --port-file "$port" --device "$device" "$@" >"$build/server.txt" 2>&1 &
    server=$!
    for _ in $(seq 200); do [ -s "$port" ] || sleep 0.1; done
    timeout --kill-after=5 40 "${programs[worker]}" "$(cat "$port")" "$memory" 7 >"$build/worker.txt" 2>&1 || code=$?
    kill "$server" 2>/dev/null || code=1
    wait "$server" || code=$?
    [ "$code" = 0 ] || { tail -5 "$build/worker.txt" "$build/server.txt" >&2 && return 1; }
    sed -n 's/.*"digest":"\([0-9a-f]*\)".*/\1/p' "$build/worker.txt" | head -1
}

# whole WORDS...: whatever computes and wherever arrays lie, parameters have the same bits.
whole() {
    local on_cpu on_gpu
    on_cpu=$(one_run cpu host "$@") || return 1
    on_gpu=$(one_run cuda far "$@") || return 1
    echo "cpu $on_cpu, cuda $on_gpu"
    [ -n "$on_cpu" ] && [ "$on_cpu" = "$on_gpu" ]
}

# train NAME OPTIONS...: ends solved, and says how many environment steps and gradients a second.
train() {
    local name=$1 json=$build/train.json
    shift
    rm -f "$json"
    step "$name" 75 "${programs[train]}" --seed "$seed" --device cuda --json "$json" "$@"
    [ ! -s "$json" ] || row "    mean return, gradients and steps while learning" - "$(number mean_return "$json")" "$(
        awk -v steps="$(number env_steps "$json")" -v pushes="$(number pushes "$json")" -v s="$(number learn_s "$json")" \
            'BEGIN { if (s > 0) printf "%9.1f gradients/s, %.3f million env-steps/s, %.1f s", pushes / s, steps / s / 1e6, s }')"
}

if [ -z "$all_s" ]; then if [ -n "$twin" ]; then all_s=900; else all_s=350; fi; fi # twins may share their machine
PATH=$PATH:/usr/local/cuda/bin
for tool in nvcc cmake c++; do
    command -v "$tool" >/dev/null || { echo "device_check: there is no $tool on PATH; it is needed to build" >&2 && exit 1; }
done
[ ! -d "$here/carried" ] || use_carried

declare -A programs=([check]=$build/device_check [worker]=$build/gpu_worker [server]=$build/gradweir-server
    [train]=$build/gradweir-train [rates]=$build/engine_rates [vectors]=gpu)
targets=(device_check_all)
configure=(-DGRADWEIR_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=90 -DGRADWEIR_TIDY=OFF)
rates=()
solved=(--local --env Pendulum-v1 --env-device cuda --envs 4096 --rollout 32
    --minibatches 16 --anneal-steps 0 --max-steps 40000000 --until -300 --evaluate 20)
if [ -n "$twin" ]; then
    programs=([check]=$build/device_check_twin [worker]=$build/tests/far_worker [server]=$build/tests/twin_server
        [train]=$build/train_twin [rates]=$build/engine_rates_twin [vectors]=emulated)
    targets=(device_check_all_twin)
    rates=(0.5 cuda 64)
    solved=(--local --env-device cuda --until 40 --evaluate 0)
fi

say "building ${twin:+the twins }in $build, for sm_90"
mkdir -p "$build"
rm -f "$build/table.txt"
build_all || { say "device_check: FAILED: it does not build" && exit 1; }
say "built"

code=0
within 60 "${programs[check]}" --seed "$seed" --rounds 0 --no-times >"$build/open.txt" 2>&1 || code=$?
if [ "$code" = 77 ]; then
    cat "$build/open.txt"
    echo "device_check: unproven here: every kernel and its speed, the seams of device, engine and groups, training"
    exit 77
fi
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || true

step "kernels" 120 "${programs[check]}" --seed "$seed" ${twin:+--rounds 2}
cp "$build/last.txt" "$build/kernels.txt"
step "reference vectors: optimizers, windows, norms, halves" 60 "$build/tests/vectors_common_${programs[vectors]}" --jobs 1
step "reference vectors: rollouts and losses" 60 "$build/tests/vectors_trainer_${programs[vectors]}" --jobs 1
if [ -n "$twin" ]; then
    step "device seam" 120 "$build/tests/test_device_twin" --jobs 1
    step "engine of the trainer" 120 "$build/tests/test_engine_twin" --jobs 1
else
    step "device seam: a shard's jobs" 60 "$build/tests/test_device" --jobs 1
    step "device seam: memory" 60 "$build/tests/test_device_memory" --jobs 1
    step "device seam: pushes made there" 60 "$build/tests/test_device_encode" --jobs 1
    step "engine of the trainer, acting" 60 "$build/tests/test_engine" --jobs 1
    step "engine of the trainer, learning" 60 "$build/tests/test_engine_learn" --jobs 1
fi
step "a group by NCCL" 60 "$build/tests/collective_check" nccl
step "server and worker, the bits of the CPU: Adam" 60 whole --optimizer adam --learning-rate 0.01
step "server and worker, the bits of the CPU: LAMB, bfloat16" 60 whole --optimizer lamb --learning-rate 0.01 --gradient-dtype bfloat16
step "speed of the trainer's engine" 60 "${programs[rates]}" "${rates[@]}"
grep -E '^(env-steps|PPO gradients)' "$build/last.txt" >>"$build/table.txt" || failed=1
train "training, environments on the CPU: CartPole, 2 shards" --shards 2 --workers 1 ${twin:+--until 40 --evaluate 0}
train "training in environments on the GPU" "${solved[@]}"

echo
sed '/^device_check: [af]/d' "$build/kernels.txt"
cat "$build/table.txt"
say "seed $seed; skipped: ${skipped[*]:-none}"
if [ "$failed" = 0 ]; then say "device_check: all as it should be"; else say "device_check: FAILED"; fi
exit "$failed"
