#!/usr/bin/env bash
# The two commands of README.md on a machine that has nothing: a minimal Debian 12 root in a folder, entered by chroot.
#
#   tests/integration/fresh_machine.sh [FOLDER] [command ...]      default: demo, then test
#
# Needs root and mmdebstrap; takes the Debian sources and the apt settings of this machine. It copies the committed tree
# (HEAD), so commit first. FOLDER (default: a new one under /var/tmp, removed at the end) keeps the root when it is named.
# Not part of ctest: it installs half a gigabyte of packages.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "This needs root: it makes a root file system and enters it." >&2; exit 1; }
command -v mmdebstrap >/dev/null || { echo "This needs mmdebstrap (apt-get install mmdebstrap)." >&2; exit 1; }

root=${1:-}
[ $# = 0 ] || shift
if [ -z "$root" ]; then
    root=$(mktemp -d /var/tmp/gradweir-root-XXXXXX)
    trap 'rm -rf --one-file-system "$root"' EXIT
fi
journal=$(mktemp)
commands=("$@")
[ ${#commands[@]} -gt 0 ] || commands=(demo test)

sources=()
for file in /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources; do
    [ ! -s "$file" ] || sources+=("$file")
done
[ ${#sources[@]} -gt 0 ] || { echo "No Debian sources in /etc/apt." >&2; exit 1; }
options=()
for file in /etc/apt/apt.conf /etc/apt/apt.conf.d/*; do
    # Hooks of this machine name programs that a minimal root does not have.
    if [ -f "$file" ] && ! grep -qE 'Invoke|Pre-Install-Pkgs' "$file"; then
        options+=(--aptopt="$file")
    fi
done

note() { printf '%s %s\n' "$1" "$2" | tee -a "$journal"; }

start=$SECONDS
if [ ! -e "$root/etc/debian_version" ]; then
    mmdebstrap --quiet --variant=minbase "${options[@]}" bookworm "$root" "${sources[@]}"
fi
note "root:" "$((SECONDS - start)) s, Debian $(cat "$root/etc/debian_version"), $(chroot "$root" dpkg-query -W | wc -l) packages"

mkdir -p "$root/srv/gradweir"
git -c safe.directory='*' archive HEAD | tar -x -C "$root/srv/gradweir"
for file in resolv.conf hosts; do
    cp "/etc/$file" "$root/etc/$file"
done

# A name space of its own for mounts and processes: nothing stays mounted or running, however this ends.
inside='
set -e
mount -t proc proc "$1/proc"
mount --bind /sys "$1/sys"
mount -t tmpfs tmpfs "$1/dev"
mkdir -p "$1/dev/shm" "$1/dev/pts"
for name in null zero full random urandom; do
    touch "$1/dev/$name" && mount --bind "/dev/$name" "$1/dev/$name"
done
ln -s /proc/self/fd "$1/dev/fd"
mount -t tmpfs tmpfs "$1/dev/shm"
exec chroot "$1" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
    bash -c "cd /srv/gradweir && exec deploy/local.sh $2"
'
status=0
for command in "${commands[@]}"; do
    start=$SECONDS
    output=$(mktemp)
    unshare --mount --pid --fork --kill-child bash -c "$inside" inside "$root" "$command" 2>&1 | tee "$output" || status=1
    grep -E '^== |^[0-9]+% tests passed' "$output" | sed "s/^/  $command /" >>"$journal"
    rm -f "$output"
    note "local.sh $command:" "$((SECONDS - start)) s in all"
done

printf '\nTimes on a fresh machine (seconds since the start of each command stand before its phases):\n'
cat "$journal"
rm -f "$journal"
exit "$status"
