#!/usr/bin/env bash
# What the compiler made of each kernel: registers, spills, stack, and the widest load and store of global memory.
#
#   tests/gpu/compiler_report.sh [ARCH ...]      default: 80 90 100; NVCC=/path/to/nvcc
#
# Needs the CUDA toolkit only. Exit status 1 when a kernel spills registers to memory, 2 when one does not compile. A stack
# is no spill: sin and cos of a large double keep a few words there (the reduction by pi), which usual states do not need.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
[ -x "$nvcc" ] || { echo "compiler_report: no nvcc at $nvcc: set NVCC"; exit 2; }
[ $# -gt 0 ] || set -- 80 90 100
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags=(-std=c++17 -O3 --fmad=false --prec-div=true --prec-sqrt=true --ftz=false -I "$root" -I "$root/client/include")

# "name registers spill_bytes stack_bytes shared_bytes" of each kernel, from what ptxas -v says.
read_ptxas() {
    awk '/Compiling entry function/ { split($0, part, "\x27"); name = part[2]; own = 0 }
         /Function properties for/ { own = ($NF == name) }
         /bytes stack frame/ && own { stack = $1; spills = 0
             for (i = 2; i <= NF; i++) if ($i ~ /^spill/) spills += $(i - 2) }
         /Used [0-9]+ registers/ { shared = 0
             for (i = 2; i <= NF; i++) { if ($i ~ /^registers/) registers = $(i - 1)
                                         if ($i ~ /^smem/) shared = $(i - 2) }
             print name, registers, spills, stack, shared }' "$1"
}

# "name load_bytes store_bytes": of one thread at once, the widest of each kernel, from PTX.
read_ptx() {
    awk 'function width(text,   bits, many) { match(text, /\.[bufs](8|16|32|64)([^0-9]|$)/)
             bits = substr(text, RSTART + 2); sub(/[^0-9].*/, "", bits)
             many = text ~ /\.v4\./ ? 4 : text ~ /\.v2\./ ? 2 : 1; return bits * many / 8 }
         /\.entry/ { match($0, /\.entry[ \t]+[A-Za-z0-9_$]+/); name = substr($0, RSTART, RLENGTH)
             sub(/\.entry[ \t]+/, "", name); load = store = 0 }
         /[ \t]ld\.(global|volatile\.global)/ { w = width($0); if (w > load) load = w }
         /[ \t]st\.(global|volatile\.global)/ { w = width($0); if (w > store) store = w }
         /^}/ && name != "" { print name, load, store; name = "" }' "$1"
}

# A short name: without the namespace and the types of its arguments.
shorten() {
    { command -v c++filt >/dev/null && c++filt -p || cat; } | sed -E 's/\(anonymous namespace\):://g; s/^void //; s/<\(int\)/</; s/\(int\)//g;
        s/\(element_environment\)//g; s/\(bool\)//g'
}

status=0
printf '%-52s %4s %9s %7s %6s %7s %6s %6s\n' kernel sm registers spills stack shared load store
for arch in "$@"; do
    for source in "$root"/gpu/*.cu; do
        name=$(basename "$source" .cu)
        if ! "$nvcc" "${flags[@]}" -arch="sm_$arch" -Xptxas -v -cubin "$source" -o "$work/$name.cubin" 2>"$work/ptxas" ||
            ! "$nvcc" "${flags[@]}" -arch="sm_$arch" -ptx "$source" -o "$work/$name.ptx"; then
            cat "$work/ptxas"
            echo "compiler_report: $name does not compile for sm_$arch"
            exit 2
        fi
        read_ptxas "$work/ptxas" | sort >"$work/registers"
        read_ptx "$work/$name.ptx" | sort >"$work/widths"
        join "$work/registers" "$work/widths" >"$work/rows"
        [ "$(wc -l <"$work/registers")" = "$(wc -l <"$work/rows")" ] ||
            { echo "compiler_report: $name: ptxas and PTX name different kernels"; exit 2; }
        cut -d' ' -f1 "$work/rows" | shorten >"$work/names"
        while IFS=$'\t' read -r kernel row; do
            # shellcheck disable=SC2086 # seven words
            set -- $row
            printf '%-52s %4s %9s %7s %6s %7s %5sB %5sB\n' "$kernel" "$arch" "$2" "$3" "$4" "$5" "$6" "$7"
            [ "$3" = 0 ] || { echo "compiler_report: $kernel spills $3 bytes on sm_$arch"; status=1; }
        done < <(paste "$work/names" "$work/rows")
    done
done
exit $status
