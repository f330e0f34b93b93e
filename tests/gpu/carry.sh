#!/usr/bin/env bash
# Puts the libraries that Gradweir stands on into one folder, from Debian's packages, without installing them: to take along
# to a machine with a GPU where nothing can be installed. device_check.sh takes them from there.
#
#   tests/gpu/carry.sh [FOLDER]       default: tests/gpu/carried
set -euo pipefail
folder=$(realpath -m "${1:-$(dirname "$0")/carried}")
packages=(
    libucx-dev libucx0 libibverbs1 librdmacm1 libnuma1 libnl-3-200 libnl-route-3-200
    libzmq3-dev libzmq5 libsodium23 libnorm1 libpgm-5.3-0 libbsd0 libmd0
    libgssapi-krb5-2 libkrb5-3 libk5crypto3 libkrb5support0 libcom-err2 libkeyutils1 libssl3
    libmsgpack-dev libmsgpack-cxx-dev libmsgpackc2 libisal-dev libisal2 libxxhash-dev libxxhash0
    libopenblas-pthread-dev libopenblas0-pthread libgfortran5 libquadmath0 libgloo-dev libgloo0 libhiredis0.14
    libcriterion-dev libcriterion3 libboxfort-dev libffi8 libgit2-1.5 libhttp-parser2.9 libmbedcrypto7 libmbedtls14 libmbedx509-1
    libpcre2-8-0 libssh2-1 libnanomsg5 zlib1g
    pkgconf pkgconf-bin libpkgconf3
)
mkdir -p "$folder/packages"
(cd "$folder/packages" && apt-get download -q "${packages[@]}")
for package in "$folder"/packages/*.deb; do
    dpkg-deb -x "$package" "$folder"
done
rm -r "$folder/packages"
# Some still put their library into /lib, which is /usr/lib on a machine.
cp -a "$folder"/lib/. "$folder"/usr/lib/
rm -r "$folder"/lib
# What no build reads.
rm -rf "$folder"/usr/share/{doc,man,bug,lintian,locale,info,gdb,perftest} "$folder"/usr/sbin "$folder"/etc
find "$folder" \( -name '*.a' -o -name '*.hpp' \) -delete
lib=$folder/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
rm "$lib"/openblas-pthread/liblapack*
cp "$lib"/openblas-pthread/pkgconfig/openblas.pc "$lib/pkgconfig/"
# Everything is linked as shared libraries: what those stand on in turn is here without headers.
sed -i '/^Requires.private/d' "$lib"/pkgconfig/*.pc
du -sh "$folder"
