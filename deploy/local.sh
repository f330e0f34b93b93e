#!/usr/bin/env bash
# The two commands of README.md, on a Debian 12 that has nothing yet:
#
#   deploy/local.sh demo [options of the demo]   builds, then trains CartPole with four workers and two shards
#   deploy/local.sh test [--long]                builds, then runs the tests; --long adds clang, sanitizers, many seeds
#
# Missing packages of deploy/apt-packages.txt are installed with apt, as root or through sudo; it says which. Everything
# else stays in this folder, in build*/.
set -euo pipefail
cd "$(dirname "$0")/.."

jobs=$(nproc)
summaries=()
failures=0

say() { printf '\n== %3d s  %s\n' "$SECONDS" "$*"; }

usage() {
    sed -n '2,8s/^# \{0,1\}//p' "$0"
    exit "$1"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        echo "This needs root or sudo: $*" >&2
        exit 1
    fi
}

install_missing() {
    local package missing=()
    if ! command -v apt-get >/dev/null; then
        echo "There is no apt-get here: the packages of deploy/apt-packages.txt are taken to be installed."
        return
    fi
    while read -r package; do
        dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
    done < <(grep -v '^#' deploy/apt-packages.txt)
    if [ ${#missing[@]} = 0 ]; then
        say "all packages are there"
        return
    fi
    say "installing with apt: ${missing[*]}"
    as_root apt-get update -q
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
    say "installed"
}

# configure PRESET
configure() {
    local launcher=
    command -v ccache >/dev/null && launcher=ccache
    cmake --preset "$1" -DCMAKE_C_COMPILER_LAUNCHER="$launcher" -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher"
}

folder_of() {
    if [ "$1" = plain ]; then echo build; else echo "build-$1"; fi
}

# build PRESET [TARGETS]
build() {
    say "building: $1"
    configure "$1" &&
        cmake --build "$(folder_of "$1")" --parallel "$jobs" ${2:+--target "${@:2}"}
}

# What is worth building in a lane: the thread sanitizer's tests are few.
targets_of() {
    [ "$1" != thread ] || (echo gradweir-sim threads_check && cd tests/fuzz && ls fuzz_*.c) |
        sed '/fuzz_replay/d; s/^\(fuzz_.*\)\.c$/replay_\1/'
}

# Labels of tests that neither chance nor a busy machine can touch: what fails once is broken, and they run side by side.
fixed='sim|model|vectors|tidy|gpu'

# both_lines FILE: ctest's closing lines of all runs in it, as one.
both_lines() {
    awk '/^[0-9]+% tests passed/ { failed += $4; all += $NF }
        END { if (!all) exit 1
              printf "%d%% tests passed, %d tests failed out of %d\n", int(100 * (all - failed) / all), failed, all }' "$1"
}

# lane PRESET EXCLUDED [options of ctest]: builds and tests, without the labels EXCLUDED ("": with all); a failure is kept
# for the end, so that one run shows them all.
lane() {
    local preset=$1 excluded=$2 folder output fine=yes
    shift 2
    folder=$(folder_of "$preset")
    output=$folder/ctest.txt
    if ! build "$preset" $(targets_of "$preset"); then
        failures=$((failures + 1))
        summaries+=("$preset: does not build")
        return
    fi
    say "testing: $preset"
    ctest --test-dir "$folder" --output-on-failure -L "^($fixed)\$" ${excluded:+-LE "^($excluded)\$"} \
        --parallel "$jobs" "$@" 2>&1 | tee "$output" || fine=
    ctest --test-dir "$folder" --output-on-failure -L '^unit$' --parallel "$jobs" --repeat until-pass:2 "$@" 2>&1 |
        tee -a "$output" || fine=
    # Tests of real processes race with whatever else the machine does: one after the other, and one more try, which the
    # output shows.
    ctest --test-dir "$folder" --output-on-failure -LE "^(unit|$fixed${excluded:+|$excluded})\$" --no-tests=ignore \
        --repeat until-pass:2 "$@" 2>&1 | tee -a "$output" || fine=
    [ -n "$fine" ] || failures=$((failures + 1))
    summaries+=("$preset: $(both_lines "$output" || echo 'no test has run to its end')")
}

# simulate LAST: as many runs side by side as there are cores, each with seeds of its own.
simulate() {
    local first=1 run runs=() fine=yes
    [ -f tests/sim/CMakeLists.txt ] || return 0
    say "simulating: seeds 1..$1"
    for ((run = 1; run <= jobs; run++)); do
        build/gradweir-sim --seeds "$first..$(($1 * run / jobs))" &
        runs+=($!)
        first=$(($1 * run / jobs + 1))
    done
    for run in "${runs[@]}"; do
        wait "$run" || fine=
    done
    if [ -n "$fine" ]; then
        summaries+=("simulator: seeds 1..$1 passed")
    else
        failures=$((failures + 1))
        summaries+=("simulator: a seed of 1..$1 FAILED")
    fi
}

# One log gives the same bits by either compiler, at -O0 and -O3, with any instructions, on 1, 2, 3 shards.
compare_bits() {
    say "the same bits everywhere"
    if tests/integration/replay_matrix.sh build; then
        summaries+=("replay matrix: the same bits everywhere, and the control differs")
    else
        failures=$((failures + 1))
        summaries+=("replay matrix: FAILED")
    fi
}

# Tests that want more memory than most machines have to spare: skipped, saying what they would take, where it is not there.
run_slow() {
    local output=build/ctest-slow.txt
    say "slow tests"
    if ! ctest --test-dir build -L '^slow$' -V >"$output" 2>&1; then
        failures=$((failures + 1))
        cat "$output"
        summaries+=("slow tests: FAILED")
    elif grep -q 'SKIPPED: ' "$output"; then
        summaries+=("slow tests: 1 skipped: $(sed -n 's/.*SKIPPED: //p' "$output" | head -1)")
    else
        grep -h 'peak: ' "$output"
        summaries+=("slow tests: passed")
    fi
}

run_demo() {
    install_missing
    build plain programs
    say "demo"
    exec deploy/demo.sh "$@"
}

run_test() {
    local long=
    case "${1:-}" in
    '') ;;
    --long) long=yes ;;
    *) usage 2 ;;
    esac
    install_missing
    if [ -n "$long" ]; then
        # What is mostly waiting, or planted faults that must be found, shows nothing of a compiler: other lanes show it.
        local elsewhere='network|devices|kills_.*|trainer_faults|group_.*|collective_.*|transformer|processes|bad_input|stops|supervise'
        elsewhere+='|device_check_(twin|script.*)|kernels_have_cases|sim_plants'
        lane clang 'tidy|model|slow|bench|gpu' --no-tests=error \
            -E "^($elsewhere)\$"
        lane sanitize 'tidy|slow' --no-tests=error
        lane sanitize-clang 'tidy|slow|bench' --no-tests=error -E '^collective_.*$'
        lane thread 'tidy|slow' --no-tests=ignore
    fi
    # Last, so that the closing lines are of the whole plain run.
    lane plain slow --no-tests=error
    [ "$failures" -gt 0 ] || simulate "$([ -n "$long" ] && echo 4000 || echo 3000)"
    [ -z "$long" ] || [ "$failures" -gt 0 ] || compare_bits
    [ -z "$long" ] || [ "$failures" -gt 0 ] || run_slow
    say "done"
    printf '%s\n' "${summaries[@]}"
    # The bare line of the plain run once more: whoever reads only the end reads this.
    both_lines build/ctest.txt || true
    [ "$failures" = 0 ]
}

case "${1:-}" in
demo) shift && run_demo "$@" ;;
test) shift && run_test "$@" ;;
-h | --help) usage 0 ;;
*) usage 2 ;;
esac
