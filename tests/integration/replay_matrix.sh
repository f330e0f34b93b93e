#!/usr/bin/env bash
# replay_matrix.sh [BUILD [RECORDING]]: one recorded log, the same bits everywhere.
#
# Records a run with every turn of the law (recorded.py: W = 4, S = 2, exponential decay, Adam, a clip of the average,
# refusals, a flush, a tuned learning rate) with the programs in BUILD (default: build), or takes RECORDING; then replays it
# on 1, 2, 3 shards with every instruction set that this processor has, by a gradweir-server built by gcc and by clang, at
# -O0 and at -O3. Prints a digest for each; compares every 20th version too, and the last one with the run's own. A control
# build that may contract (-ffp-contract=fast -mfma) must differ, else the comparison could not fail. Ends with 1 when
# something is not so. Builds are made in a temporary folder and removed; NINJA_JOBS bounds them (default: all cores).
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "${1:-$root/build}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
faults=0

fault() {
    echo "FAULT: $*" >&2
    faults=$((faults + 1))
}

instructions() {
    local flags
    flags=" $(grep -m1 '^flags' /proc/cpuinfo | cut -d: -f2) "
    echo scalar
    [[ $flags == *" avx2 "* ]] && echo avx2
    [[ $flags == *" avx512f "* && $flags == *" avx512bw "* && $flags == *" avx512dq "* && $flags == *" avx512vl "* ]] && echo avx512
    true
}

# compile NAME COMPILER LEVEL [options of cmake]: $work/NAME/gradweir-server
compile() {
    local name=$1 compiler=$2 level=$3 launcher=
    shift 3
    command -v ccache >/dev/null && launcher=ccache
    if ! { cmake -S "$root" -B "$work/$name" -G Ninja -DCMAKE_C_COMPILER="$compiler" -DCMAKE_BUILD_TYPE=Level \
        -DCMAKE_C_FLAGS_LEVEL="$level" -DGRADWEIR_ARITHMETIC_LEVEL="$level" -DGRADWEIR_TESTS=OFF -DGRADWEIR_CUDA=OFF \
        -DCMAKE_C_COMPILER_LAUNCHER="$launcher" "$@" &&
        cmake --build "$work/$name" --parallel "${NINJA_JOBS:-$(nproc)}" --target gradweir-server; } >"$work/$name.log" 2>&1; then
        tail -20 "$work/$name.log" >&2
        fault "$name does not build"
    fi
}

# replay NAME SIMD SHARDS: "version V digest D" lines for every 20th version and the last; or the reason why not
replay() {
    { "$work/$1/gradweir-server" replay "$recording" --simd "$2" --shards "$3" --every 20 2>"$work/errors" || true
        cat "$work/errors"; } | grep -oE 'version [0-9]+ digest [0-9a-f]{16}|replay: .*' || true
}

# row NAME WORDS: three cells, for each instruction set
row() {
    local simd shards lines cell cells same
    for simd in $(instructions); do
        cells= same=same
        for shards in 1 2 3; do
            lines=$(replay "$1" "$simd" "$shards")
            [ -n "$first" ] || first=$lines
            [ "$lines" = "$first" ] || same=DIFFERS
            cell=$(grep -oE '[0-9a-f]{16}$' <<<"$lines" | tail -1 || true)
            cells+=$(printf '%-18s' "$cell")
        done
        printf '%-30s %-7s %s%s\n' "$2" "$simd" "$cells" "$same"
        rows+=("$same")
    done
}

recording=${2:-$work/recording}
if [ -z "${2:-}" ]; then
    GRADWEIR_BUILD=$build PYTHONDONTWRITEBYTECODE=1 python3 "$root/tests/integration/recorded.py" "$recording" >"$work/run.txt" ||
        { cat "$work/run.txt" >&2; exit 1; }
    tail -1 "$work/run.txt"
fi

printf '%-30s %-7s %-18s%-18s%-18s\n' build simd '1 shard' '2 shards' '3 shards'
first='' rows=()
for compiler in gcc clang; do
    for level in -O0 -O3; do
        command -v "$compiler" >/dev/null || { fault "there is no $compiler"; continue; }
        compile "$compiler$level" "$compiler" "$level"
        [ ! -x "$work/$compiler$level/gradweir-server" ] || row "$compiler$level" "$compiler $level"
        rm -rf "${work:?}/$compiler$level"
    done
done
[[ " ${rows[*]} " != *" DIFFERS "* ]] || fault "the same log gave other bits"
[ ${#rows[@]} -gt 0 ] || fault "nothing was compared"
[ "$(grep -c digest <<<"$first")" -ge 3 ] || fault "too few versions were compared: $first"
if [ -z "${2:-}" ]; then
    grep -q "^end $(tail -1 <<<"$first")" <<<"$(sed 's/:.*//' <"$work/run.txt")" || fault "the run itself ended otherwise: $(tail -1 "$work/run.txt")"
fi

rows=()
compile control gcc -O3 -DCMAKE_C_FLAGS=-mfma -DGRADWEIR_CONTRACTION=fast
[ ! -x "$work/control/gradweir-server" ] || row control "control: gcc -O3, contracting"
[[ " ${rows[*]} " == *" DIFFERS "* && " ${rows[*]} " != *" same "* ]] || fault "the control build, which contracts, should differ"
if [ -x "$work/control/gradweir-server" ]; then
    control=$(replay control scalar 1)
    echo "  all others: $(head -1 <<<"$first"); the control: $(head -1 <<<"$control"), and then: $(tail -1 <<<"$control")"
fi

[ "$faults" = 0 ] && echo "the same bits everywhere, and the control differs ($SECONDS s)"
[ "$faults" = 0 ]
