#!/usr/bin/env bash
# Checks the models of the protocol with spin, and that each can fail:
#
#   tests/model/check.sh fast    about a minute on one core: exhaustive at the small size, and every mutant
#   tests/model/check.sh full    more records and places exhaustively, a lost shard, 3 epochs by bitstate hashing
#
# One line per search. "holds" is expected of the models, "fails" of the mutants; whatever else comes out (an error in
# a model, a mutant that passes, a search that should be exhaustive and was cut off) makes the exit status 1. 77: no spin.
set -uo pipefail
cd "$(dirname "$0")"
case "${1:-}" in fast | full) size=$1 ;; *) sed -n '2,5s/^# \{0,1\}//p' "$0" && exit 2 ;; esac
command -v spin >/dev/null || { echo "spin is not installed (Debian: apt install spin)" && exit 77; }

here=$PWD
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
wrong=0

# Each mutant is one rule taken away: the model, the flag, and more flags where it needs a lost shard to show.
mutants=(
    "commit FENCE_OFF"
    "commit SEAL_OF_ONE"
    "commit LOG_SHORTEST"
    "commit ADMIT_PARTIAL"
    "commit RECEIPT_EARLY"
    "commit RECEIPT_AFTER_ONE -DLOSS"
    "commit RECEIPTS_NOT_OWED"
    "commit REFUSE_UNLOGGED"
    "commit LEAVE_IGNORED"
    "commit DEDUPE_OFF"
    "commit INDEX_IGNORED"
    "slots GENERATION_IGNORED"
    "slots HEAD_UNFENCED"
    "slots FREED_WHILE_FLYING"
    "slots FREED_UNREAD"
    "slots FREED_BY_ONE"
    "slots FREED_UNASKED"
    "slots CLOSE_UNFENCED"
    "slots CLOSE_OUTLIVES_SEAL"
    "slots CLOSING_UNTOLD"
    "slots WINDOW_FORGOTTEN"
    "sums STEP_UNSUMMED"
    "sums APPLIED_PAST"
    "sums SUMS_OF_ONE"
    "sums SUMMED_TWICE"
    "sums VERSION_IGNORED"
    "sums NOT_ASKED"
    "sums SUMS_UNFENCED -DLOSS"
    "sums TIMELINE_IGNORED -DLOSS"
)

# number PATTERN: the first number in a line of the search's output that matches
number() {
    grep -m 1 -oE "$1" "$folder/output" | grep -oE '[0-9]+(\.[0-9]+e\+[0-9]+)?' | head -1
}

# search WHAT MODEL EXPECTED SECONDS "flags of spin" "flags of gcc" [options of pan]
search() {
    local what=$1 model=$2 expected=$3 seconds=$4 flags=$5 options=$6 result start=$EPOCHREALTIME
    shift 6
    # shellcheck disable=SC2086
    if ! (cd "$folder" && rm -f ./*.trail output && spin -a $flags "$here/$model.pml" >spin.txt 2>&1 &&
        gcc -O1 -w -DSAFETY -DMEMLIM=6000 $options -o pan pan.c >gcc.txt 2>&1); then
        cat "$folder"/spin.txt "$folder"/gcc.txt 2>/dev/null
        : >"$folder/output"
    else
        (cd "$folder" && timeout -s INT -k 10 "$seconds" ./pan -m100000 "$@" >output 2>&1)
    fi
    if grep -q '^pan:1: ' "$folder/output"; then
        result=fails
    elif ! grep -q 'errors: 0' "$folder/output"; then
        result="did not run"
    elif grep -qE 'Interrupted|Search not completed|depth too small|out of memory' "$folder/output"; then
        result=incomplete
    else
        result=holds
    fi
    # Bitstate hashing never visits everything: it may be cut off, but must not find anything.
    if [[ $options == *BITSTATE* && $result == incomplete ]]; then result=holds; fi
    [ "$result" = "$expected" ] || wrong=$((wrong + 1))
    printf '%-7s %-46s %12s %6s %7.1f  %s%s\n' "$model" "$what" "$(number '[0-9.e+]+ states, stored')" \
        "$(number 'depth reached [0-9]+')" "$(echo "$EPOCHREALTIME $start" | awk '{ print $1 - $2 }')" "$result" \
        "$([ "$result" = "$expected" ] || echo "  WRONG: expected it $expected")"
    if [ "$result" = fails ] && [ "$expected" = holds ]; then
        grep '^pan:1: ' "$folder/output"
        cp "$folder/$model.pml.trail" "${TMPDIR:-/tmp}/" 2>/dev/null &&
            echo "its story: spin -t -p -g -l -k ${TMPDIR:-/tmp}/$model.pml.trail $flags $here/$model.pml"
    fi
}

# exhaustive MODEL SECONDS FLAGS WHAT
exhaustive() {
    search "$4" "$1" holds "$2" "$3" -DCOLLAPSE
}

# bitstate MODEL SECONDS FLAGS WHAT: three searches that choose differently at every branch
bitstate() {
    local seed
    for seed in 1 2 3; do
        search "$4, bitstate, seed $seed" "$1" holds "$2" "$3" "-DBITSTATE -DT_RAND -DP_RAND" -w31 -k3 -RS$seed
    done
}

printf '%-7s %-46s %12s %6s %7s  %s\n' model "2 shards, 2 workers, 2 gradients, and" states depth seconds result
if [ "$size" = fast ]; then
    exhaustive commit 200 "" "2 epochs, 2 records"
    exhaustive slots 200 "-DPLACES=1 -DRECORDS=3" "2 epochs, 3 records, a place each"
    exhaustive sums 200 "-DRECORDS=5" "2 epochs, 5 records, 2 versions"
    exhaustive sums 200 "-DRECORDS=3 -DLOSS" "2 epochs, 3 records, a lost shard"
else
    exhaustive commit 900 "" "2 epochs, 2 records"
    exhaustive commit 900 "-DLOSS" "2 epochs, 2 records, a lost shard"
    exhaustive slots 900 "-DRECORDS=3" "2 epochs, 3 records, 2 places each"
    exhaustive sums 900 "-DRECORDS=6" "2 epochs, 6 records, 2 versions"
    exhaustive sums 900 "-DRECORDS=4 -DLOSS" "2 epochs, 4 records, a lost shard"
    bitstate commit 40 "-DEPOCHS=3" "3 epochs, 2 records"
    bitstate slots 40 "-DEPOCHS=3 -DRECORDS=4" "3 epochs, 4 records"
    bitstate sums 40 "-DEPOCHS=3 -DRECORDS=5 -DLOSS" "3 epochs, 5 records, a lost shard"
fi
for mutant in "${mutants[@]}"; do
    read -r model flag more <<<"$mutant"
    small=""
    [ "$model" = slots ] && small="-DPLACES=1 -DRECORDS=3"
    [ "$model" = sums ] && small="-DRECORDS=4"
    search "without: $flag $more" "$model" fails 200 "$small -DMUTANT_$flag $more" -DCOLLAPSE
done
if [ "$size" = full ]; then
    # What these rules are for is not safety in this setting: the first saves memory, the others need a lost shard.
    search "without: SHARD_DEDUPE_OFF (saves memory)" commit holds 900 "-DMUTANT_SHARD_DEDUPE_OFF" -DCOLLAPSE
    search "without: RECEIPT_AFTER_ONE, nothing lost" commit holds 900 "-DMUTANT_RECEIPT_AFTER_ONE" -DCOLLAPSE
    search "without: SUMS_UNFENCED, nothing lost" sums holds 900 "-DRECORDS=4 -DMUTANT_SUMS_UNFENCED" -DCOLLAPSE
fi
printf '%d searches came out otherwise than they should\n' "$wrong"
[ "$wrong" = 0 ]
