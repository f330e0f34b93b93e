#!/usr/bin/env bash
# hello.c and its C++ twin, built outside the tree against an installed prefix: by pkg-config alone, by find_package alone,
# and run against a server.
#
#   tests/integration/install_check.sh [BUILD]
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
build=$(realpath "${1:-build}")
work=$(mktemp -d)
trap 'kill "${server:-}" 2>/dev/null || true; rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/prefix" >/dev/null
cp "$source"/client/examples/hello.c "$source"/client/examples/hello.cpp "$work/"
cd "$work"
pc=$(dirname "$(find prefix -name gradweir.pc)")
export PKG_CONFIG_PATH=$work/$pc
libs=$work/$(dirname "$pc")

# shellcheck disable=SC2046
cc -std=c11 -Wall -Wextra -Werror hello.c -o hello-pc $(pkg-config --cflags --libs gradweir)
# shellcheck disable=SC2046
c++ -std=c++17 -Wall -Wextra -Werror hello.cpp -o hello-pc++ $(pkg-config --cflags --libs gradweir)
cat >CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.16)
project(hello C CXX)
find_package(gradweir REQUIRED)
add_executable(hello-cmake hello.c)
target_link_libraries(hello-cmake PRIVATE gradweir::gradweir)
add_executable(hello-cmake++ hello.cpp)
target_link_libraries(hello-cmake++ PRIVATE gradweir::gradweir)
END
env -u PKG_CONFIG_PATH cmake -S . -B cmake -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
cmake --build cmake >/dev/null

for hello in ./hello-pc ./hello-pc++ cmake/hello-cmake cmake/hello-cmake++; do
    rm -f port
    "$build/gradweir-server" --shards 2 --listen 127.0.0.1:0 --port-file port --optimizer sgd --learning-rate 0.1 \
        --log-level error &
    server=$!
    for _ in $(seq 500); do [ -f port ] && break || sleep 0.01; done
    last=$(LD_LIBRARY_PATH=$libs "$hello" "$(cat port)" | tail -1)
    kill "$server" && wait "$server" || true
    echo "$hello: $last"
    case "$last" in "version 100 loss 0.0000"*) ;; *) echo "$hello did not converge" >&2; exit 1 ;; esac
done
