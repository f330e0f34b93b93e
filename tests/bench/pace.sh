#!/usr/bin/env bash
# How CartPole scales with workers that wait (--pace) rather than compute: env-steps per second at N = 1, 2, 4 workers,
# against N times one; and the steps to a mean return of 475.
#
#   tests/bench/pace.sh [BUILD [SEEDS [PACE_MS]]]        e.g. tests/bench/pace.sh build 10 3
set -euo pipefail
build=${1:-build}
seeds=${2:-10}
pace=${3:-3}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

field() { sed -n "s/^  \"$1\": \([0-9.e+-]*\),\{0,1\}\$/\1/p" "$out/run.json"; }

printf 'seed workers env_steps wall_s steps_per_s busy_of_machine solved\n' | tee "$out/table"
for seed in $(seq "$seeds"); do
    for workers in 1 2 4; do
        "$build/gradweir-train" --env CartPole-v1 --workers "$workers" --shards 2 --seed "$seed" --until 475 \
            --max-steps 1000000 --pace "$pace" --json "$out/run.json" >/dev/null || true
        awk -v s="$seed" -v w="$workers" -v e="$(field env_steps)" -v t="$(field wall_s)" -v c="$(field cpu_s)" -v n="$(nproc)" \
            -v ok="$(grep -c '"solved": true' "$out/run.json")" \
            'BEGIN {printf "%d %d %d %.1f %.0f %.2f %d\n", s, w, e, t, e / t, c / t / n, ok}' | tee -a "$out/table"
    done
done
awk 'NR > 1 {rate[$2] = rate[$2] " " $5; steps[$2] = steps[$2] " " $3; ok[$2] += $7}
    function median(text, list, n, i, j, t) {
        n = split(text, list, " ")
        for (i = 2; i <= n; i++) for (j = i; j > 1 && list[j - 1] + 0 > list[j] + 0; j--) {t = list[j]; list[j] = list[j - 1]; list[j - 1] = t}
        return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
    }
    END {one = median(rate[1]); base = median(steps[1])
        for (w = 1; w <= 4; w *= 2) printf "N=%d: median %.0f steps/s = %.3f of N x one; median steps to 475 %.0f = %.2f of one; solved %d\n",
            w, median(rate[w]), median(rate[w]) / (w * one), median(steps[w]), median(steps[w]) / base, ok[w]}' "$out/table"
