#!/usr/bin/env bash
# What only a machine with a GPU can show, in one go: every kernel gives what its twin on the CPU gives, on inputs drawn anew,
# and how fast it is; the reference vectors go through the kernels; the seams of device, engine and groups keep their promises;
# training on the GPU ends solved. Without a GPU it builds everything, says that there is none, and ends with 77, which ctest
# counts as skipped. It was written without a GPU: what it checks on one has never been seen to pass.
#
#   tests/gpu/device_check.sh [--seed N] [--build FOLDER]
#
# Needs the CUDA toolkit, cmake and a C++ compiler; libraries are the system's, or those that tests/gpu/carry.sh has put
# into tests/gpu/carried. Ends within 6 minutes.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
seed=$(date +%s)
build=$top/build-gpu
failed=0
skipped=()

while [ $# -gt 0 ]; do
    case $1 in
    --seed) seed=${2:?a number} && shift 2 ;;
    --build) build=$(realpath -m "${2:?a folder}") && shift 2 ;;
    *) sed -n '2,11s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
    esac
done

say() { printf '== %3d s  %s\n' "$SECONDS" "$*"; }

# step NAME SECONDS COMMAND...: 77 is "nothing to show it on", any other failure is one.
step() {
    local name=$1 limit=$2 code=0
    shift 2
    say "$name"
    timeout "$limit" "$@" || code=$?
    case $code in
    0) say "$name: ok" ;;
    77) say "$name: SKIPPED" && skipped+=("$name") ;;
    124) say "$name: FAILED: not done after $limit s" && failed=1 ;;
    *) say "$name: FAILED ($code)" && failed=1 ;;
    esac
}

PATH=$PATH:/usr/local/cuda/bin
for tool in nvcc cmake c++; do
    command -v "$tool" >/dev/null || { echo "device_check: there is no $tool on PATH; it is needed to build" >&2 && exit 1; }
done
if [ -d "$here/carried" ]; then
    lib=$(dirname "$(find "$here/carried" -name libucp.so | head -1)")
    export PKG_CONFIG_SYSROOT_DIR=$here/carried PKG_CONFIG_LIBDIR=$lib/pkgconfig:$here/carried/usr/share/pkgconfig
    export CMAKE_PREFIX_PATH=$here/carried/usr LIBRARY_PATH=$lib:$lib/openblas-pthread CPATH=$here/carried/usr/include
    export LD_LIBRARY_PATH=$lib:$lib/openblas-pthread${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} PATH=$PATH:$here/carried/usr/bin
    say "libraries of $here/carried"
fi

say "building for sm_90 in $build"
mkdir -p "$build"
cmake -S "$top" -B "$build" -DGRADWEIR_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=90 >"$build/log.txt" 2>&1 ||
    { tail -20 "$build/log.txt" && exit 1; }
cmake --build "$build" --parallel "$(nproc)" --target device_check programs test_device \
    test_engine test_engine_learn vectors_common_gpu vectors_trainer_gpu collective_check >>"$build/log.txt" 2>&1 ||
    { tail -40 "$build/log.txt" && exit 1; }
say "built"

code=0
"$build/device_check" --seed "$seed" --rounds 0 --no-times >"$build/open.txt" 2>&1 || code=$?
if [ "$code" = 77 ]; then
    cat "$build/open.txt"
    echo "device_check: unproven here: every kernel and its speed, the seams of device, engine and groups, training"
    exit 77
fi
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || true

step "kernels" 150 "$build/device_check" --seed "$seed"
step "reference vectors: optimizers, windows, norms, halves" 60 "$build/tests/vectors_common_gpu" --jobs 1
step "reference vectors: rollouts and losses" 60 "$build/tests/vectors_trainer_gpu" --jobs 1
step "device seam" 60 "$build/tests/test_device" --jobs 1
step "engine of the trainer, acting" 60 "$build/tests/test_engine" --jobs 1
step "engine of the trainer, learning" 60 "$build/tests/test_engine_learn" --jobs 1
step "a group by NCCL" 60 "$build/tests/collective_check" nccl

# train NAME OPTIONS...: ends solved, and says how many environment steps and gradients a second.
train() {
    local name=$1
    shift
    step "$name" 90 "$build/gradweir-train" --seed "$seed" --device cuda --json "$build/train.json" "$@"
    [ ! -s "$build/train.json" ] || {
        grep -E '"(solved|env_steps|learn_s|pushes|mean_return)"' "$build/train.json" && rm "$build/train.json"
    }
}

train "training, environments on the CPU: CartPole, 2 shards" --shards 2 --workers 1
train "training, 4,096 environments on the GPU: Pendulum" --local --env Pendulum-v1 --env-device cuda --envs 4096 --rollout 32 \
    --minibatches 16 --anneal-steps 0 --max-steps 40000000 --until -300 --evaluate 20

say "seed $seed; skipped: ${skipped[*]:-none}"
[ "$failed" = 0 ] && say "device_check: all as it should be" || say "device_check: FAILED"
exit "$failed"
