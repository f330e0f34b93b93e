#!/usr/bin/env bash
# A test of the check: with the CPU's twins it passes, and it finds each flaw that is planted in them.
#
#   tests/gpu/twin_check.sh DEVICE_CHECK_TWIN
set -u
program=$1
failed=0

"$program" --rounds 3 --no-times || failed=1
for plant in $(sed -n 's/.*twin_planted("\([^"]*\)").*/\1/p' "$(dirname "$0")"/twin_*.c | sort -u); do
    if GRADWEIR_PLANT=$plant "$program" --rounds 4 --no-times >/dev/null; then
        echo "planted $plant: NOT FOUND"
        failed=1
    else
        echo "planted $plant: found"
    fi
done
exit $failed
