#!/usr/bin/env bash
# installed.sh BUILD SOURCE: installs the build into a fresh prefix; builds hello.c and hello.cpp there, outside the tree,
# by pkg-config alone and by find_package alone, shared and static; runs each against an installed server.
set -euo pipefail
build=$1 source=$2
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT

# The library only: what is built by now is what is installed.
cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"
cp "$source"/client/examples/hello.c "$source"/client/examples/hello.cpp "$work"
cd "$work"
prefix/bin/gradweir-train --help >/dev/null # finds the library that was installed with it
prefix/bin/gradweir-bench push --size 64KiB --seconds 0.1 --rounds 1 --perftest off --json | grep -q '"refused": 0' # its server lies beside it
flags="-Wall -Wextra -Wpedantic -Werror"
pc=$(dirname "$(find prefix -name gradweir.pc)")
export PKG_CONFIG_PATH=$PWD/$pc
LD_LIBRARY_PATH=$(dirname "$PWD/$pc")
export LD_LIBRARY_PATH

# Words split on purpose: they are compiler flags.
# shellcheck disable=SC2046,SC2086
{
    cc -std=c11 $flags hello.c $(pkg-config --cflags --libs gradweir) -o c_shared
    c++ -std=c++17 $flags hello.cpp $(pkg-config --cflags --libs gradweir) -o cpp_shared
}
needs=$(sed -n 's/^Requires.private: //p' "$pc/gradweir.pc")
# shellcheck disable=SC2046,SC2086
cc -std=c11 $flags hello.c $(pkg-config --cflags gradweir) "$LD_LIBRARY_PATH/libgradweir.a" \
    $(pkg-config --libs $needs) $(sed -n 's/^Libs.private: //p' "$pc/gradweir.pc") -o c_static

cat >CMakeLists.txt <<'LISTS'
cmake_minimum_required(VERSION 3.25)
project(user C CXX)
find_package(gradweir REQUIRED)
add_executable(c_found hello.c)
target_link_libraries(c_found gradweir::gradweir)
add_executable(cpp_found hello.cpp)
target_link_libraries(cpp_found gradweir::gradweir)
add_executable(c_found_static hello.c)
target_link_libraries(c_found_static gradweir::static)
LISTS
env -u PKG_CONFIG_PATH cmake -G Ninja -S . -B found -DCMAKE_PREFIX_PATH="$PWD/prefix" >/dev/null
env -u PKG_CONFIG_PATH cmake --build found >/dev/null

for program in c_shared cpp_shared c_static found/c_found found/cpp_found found/c_found_static; do
    rm -f port
    prefix/bin/gradweir-server --shards 2 --optimizer sgd --learning_rate 0.1 --listen 127.0.0.1:0 --port_file port \
        >server.log 2>&1 &
    server=$!
    for _ in $(seq 200); do [ -s port ] || sleep 0.05; done
    timeout 30 "./$program" "$(cat port)" >output
    kill "$server"
    wait "$server" || true
    server=
    tail -1 output | grep -q '^version 100 loss 0.000000$' || { echo "$program: $(tail -1 output)"; exit 1; }
    echo "$program: $(tail -1 output)"
done
! ldd c_static found/c_found_static | grep libgradweir
for library in "$LD_LIBRARY_PATH/libgradweir.so" "$LD_LIBRARY_PATH/libgradweir.a"; do
    case $library in *.so) symbols=$(nm -D --defined-only "$library") ;; *) symbols=$(nm -g --defined-only "$library") ;; esac
    if echo "$symbols" | awk 'NF == 3 { print $3 }' | grep -v '^gradweir_'; then echo "$library exports these"; exit 1; fi
done
