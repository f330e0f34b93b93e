#!/usr/bin/env bash
# A test of the check: with the CPU's twins it passes, it ends what hangs, and it finds each flaw that is planted in them.
#
#   tests/gpu/twin_check.sh DEVICE_CHECK_TWIN
set -u
program=$1
failed=0

# Times too, so that what takes them is run; and a kernel that never ends is named.
"$program" --rounds 3 || failed=1
GRADWEIR_PLANT=hang "$program" --rounds 1 --no-times --limit 15 | grep "not done within its limit: accumulation" || failed=1
for plant in $(sed -n 's/.*twin_planted("\([^"]*\)").*/\1/p' "$(dirname "$0")"/twin_*.c | sort -u); do
    [ "$plant" = hang ] && continue
    if GRADWEIR_PLANT=$plant "$program" --rounds 4 --no-times >/dev/null; then
        echo "planted $plant: NOT FOUND"
        failed=1
    else
        echo "planted $plant: found"
    fi
done
exit $failed
