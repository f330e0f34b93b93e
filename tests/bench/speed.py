#!/usr/bin/env python3
"""What the issue about speed must show, measured and said in one table.

    tests/bench/speed.py [--build build] [--only 1,5] [--rounds 5] [--seconds 1] [--json FILE]

Each line has a few cases: calls of gradweir-bench, which themselves take turns with their references (memcpy, the floor,
ucx_perftest). The cases of a line take turns too, round by round, so that two things that are compared have met the same
machine. The table gives the median over rounds, its least and its most, and whether it is met; ratios between two cases are
made within a round. Every row that gradweir-bench printed goes into FILE (speed.jsonl), with its line and round.

A line that this build cannot show yet (an unknown option) is told as such, and counts as short."""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

from speed_lines import LINES

COLUMNS = "{:>4}  {:<62} {:>10} {:<25} {:>9}  {}"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", default=os.environ.get("GRADWEIR_BUILD", "build"))
    parser.add_argument("--only", default="", help="lines, with commas")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each case in each round")
    parser.add_argument("--json", default="speed.jsonl")
    return parser.parse_args()


def train(options, words):
    """"train N ...": N runs of gradweir-train under seeds 1 to N; how many of them are solved."""
    count, more = int(words[1]), words[2:]
    solved = 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "summary")
        for seed in range(1, count + 1):
            done = subprocess.run([os.path.join(options.build, "gradweir-train"), *more, "--seed", str(seed), "--json", path],
                                  capture_output=True, text=True, timeout=900)
            if done.returncode not in (0, 1) or not os.path.exists(path):
                return None, done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"ended with {done.returncode}"
            with open(path) as file:
                solved += bool(json.load(file)["solved"])
            os.unlink(path)
    return {"case": "train", "runs": count, "solved": solved}, None


def call(options, words):
    """One case: its row, or why there is none."""
    if words.startswith("train "):
        return train(options, words.split())
    program = os.path.join(options.build, "gradweir-bench")
    words = words.split()
    if "--rounds" not in words:
        words += ["--rounds", "1"]
    if "--seconds" not in words and "--operations" not in words:
        words += ["--seconds", str(options.seconds)]
    try:
        done = subprocess.run([program, *words, "--json"], capture_output=True, text=True, timeout=900)
    except subprocess.TimeoutExpired:
        return None, "does not end"
    if done.returncode != 0:
        return None, done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"ended with {done.returncode}"
    return json.loads(done.stdout.splitlines()[-1]), None


def median(values):
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def short(value):
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def say(line, row, rounds, troubles):
    """One row of the table; True when it is met."""
    values = []
    for cases in rounds:
        try:
            value = row.value(cases)
            if value is not None:
                values.append(value)
        except (KeyError, TypeError, ZeroDivisionError):
            pass
    goal = "" if row.goal is None else ("<= " if row.most else ">= ") + short(row.goal)
    if not values:
        why = next((troubles[name] for name in row.cases if name in troubles), "not measured")
        print(COLUMNS.format(line, row.what, "-", "", goal, "not shown: " + why[:90]), flush=True)
        return row.goal is None
    middle = median(values)
    met = row.goal is None or (middle <= row.goal if row.most else middle >= row.goal)
    verdict = "" if row.goal is None else "met" if met else "short"
    spread = f"[{short(min(values))} .. {short(max(values))}] of {len(values)}"
    print(COLUMNS.format(line, row.what, short(middle), spread, goal, verdict), flush=True)
    return met


def run_line(options, number, line, file):
    rounds, troubles = [], {}
    count = min(options.rounds, line.rounds_max or options.rounds)
    for i in range(count):
        cases = {}
        names = list(line.cases)
        for name in names if i % 2 == 0 else reversed(names):
            print(f"line {number}, round {i + 1} of {count}: {line.cases[name]}      ", end="\r", file=sys.stderr, flush=True)
            if i > 0 and name.startswith("once "):
                continue
            if name in troubles and i > 0 and name not in cases and not any(name in one for one in rounds):
                continue
            row, trouble = call(options, line.cases[name])
            if row is None:
                troubles[name] = trouble
                continue
            cases[name] = row
            file.write(json.dumps({"line": number, "name": name, "round": i, "words": line.cases[name], **row}) + "\n")
            file.flush()
        rounds.append(cases)
    print(" " * 118, end="\r", file=sys.stderr, flush=True)
    return all([say(number, row, rounds, troubles) for row in line.rows])


def main():
    options = arguments()
    wanted = [int(word) for word in options.only.split(",")] if options.only else sorted(LINES)
    if any(number not in LINES for number in wanted):
        sys.exit(f"there are lines {', '.join(map(str, sorted(LINES)))}")
    begin, met = time.monotonic(), []
    print(COLUMNS.format("line", "what", "median", "least .. most", "goal", ""))
    with open(options.json, "w") as file:
        for number in wanted:
            met.append(run_line(options, number, LINES[number], file))
    whole = sum(met)
    print(f"{whole} of {len(met)} lines met, in {time.monotonic() - begin:.0f} s; rows in {options.json}")
    return 0 if whole == len(met) else 1


if __name__ == "__main__":
    sys.exit(main())
