#!/usr/bin/env python3
"""What one slow worker costs: gradweir-train on CartPole with 4 paced workers, one of them 10 times slower.

For each seed four runs, one after the other, so that they are paired:

  equal        mode async, four equal workers: the measure
  straggler    mode async, worker 3 is 10 times slower: ideal is 3.1/4 of `equal`; goal at least 0.95 of that ideal
  sync         mode sync, four equal workers       (both for --sync-steps steps only: they show the rate, not the learning)
  sync slow    mode sync, worker 3 is 10 times slower: everybody waits for it

`--pace MS` of the trainer sleeps per rollout and per gradient, as a slow environment or accelerator would, so that the
workers and not this machine set the rate; a run that keeps the machine busier than 60 % does not count and fails. The
rate is environment steps until solved (or out of steps) over the time from the start of the workers to then. Steps
to 475: mean of the last 100 returns of all workers, and then a trial of 100 fresh greedy episodes.

    tests/bench/straggler.py                                    # 10 seeds, about 10 minutes
    tests/bench/straggler.py --seeds 3,5-8 --pace 5 --json straggler.json --svg straggler.svg

Ends with 0 when the goal is met: median ratio >= 0.95, and the slow worker's share of the admitted gradients > 0 for
every seed."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

GOAL, BUSY_MAX = 0.95, 0.60


def seeds_of(text):
    seeds = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    return seeds


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--seeds", type=seeds_of, default=seeds_of("1-10"), help="such as 1-10 or 3,5-8")
    parser.add_argument("--pace", type=int, default=5, help="ms of sleep per rollout and per gradient")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--factor", type=float, default=10, help="how much slower the last worker is")
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--until", type=float, default=475)
    parser.add_argument("--max-steps", type=int, default=1000000)
    parser.add_argument("--sync-steps", type=int, default=20000)
    parser.add_argument("--json", default="straggler.json")
    parser.add_argument("--svg", default="straggler.svg")
    return parser.parse_args()


def train(options, seed, mode, slow):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [os.path.join(options.build, "gradweir-train"), "--env", "CartPole-v1", "--seed", str(seed),
                   "--workers", str(options.workers), "--shards", str(options.shards), "--pace", str(options.pace),
                   "--mode", mode, "--json", file.name]
        if mode == "sync":
            command += ["--max-steps", str(options.sync_steps), "--evaluate", "0"]
        else:
            command += ["--until", str(options.until), "--max-steps", str(options.max_steps)]
        if slow:
            command += ["--slow-worker", str(options.workers - 1), str(options.factor)]
        load = os.getloadavg()[0]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
        if done.returncode not in (0, 1):  # 1: not solved
            sys.exit(f"{' '.join(command)}: ended with {done.returncode}\n{done.stdout}{done.stderr}")
        told = json.load(file)
    shares = told["per_worker"]
    admitted = sum(share["admitted"] for share in shares)
    return {"seed": seed, "mode": mode, "slow": slow, "command": " ".join(command), "solved": told["solved"],
            "steps": told["learn_steps"], "seconds": told["learn_s"], "rate": told["learn_steps"] / told["learn_s"],
            "busy": told["cpu_s"] / told["wall_s"] / os.cpu_count(), "load_before": load,
            "slow_share": shares[-1]["admitted"] / max(admitted, 1),
            "slower": sum(s["env_steps"] for s in shares[:-1]) / (len(shares) - 1) / max(shares[-1]["env_steps"], 1),
            "admitted": admitted, "refused": told["refused"], "staleness_mean": told["staleness_mean"],
            "staleness_max": told["staleness_max"], "version": told["version"]}


def measure(options, seed):
    ideal = (options.workers - 1 + 1 / options.factor) / options.workers
    row = {"seed": seed, "equal": train(options, seed, "async", False), "straggler": train(options, seed, "async", True),
           "sync": train(options, seed, "sync", False), "sync_slow": train(options, seed, "sync", True)}
    row["ratio"] = row["straggler"]["rate"] / (row["equal"]["rate"] * ideal)
    row["sync_ratio"] = row["sync_slow"]["rate"] / (row["equal"]["rate"] * ideal)
    return row


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def sum_up(rows):
    def steps(name):
        return [row[name]["steps"] for row in rows if row[name]["solved"]]
    summary = {"ratio_to_ideal": spread([row["ratio"] for row in rows]),
               "sync_ratio_to_ideal": spread([row["sync_ratio"] for row in rows]),
               "slow_share_of_admitted": spread([row["straggler"]["slow_share"] for row in rows]),
               "measured_slowness": spread([row["straggler"]["slower"] for row in rows]),
               "busy_max": max(row[name]["busy"] for row in rows for name in ("equal", "straggler", "sync", "sync_slow"))}
    for name in ("equal", "straggler"):
        summary[f"{name}_solved"] = f"{len(steps(name))}/{len(rows)}"
        summary[f"{name}_steps_to_solve"] = spread(steps(name)) if steps(name) else None
    summary["goal_met"] = (summary["ratio_to_ideal"]["median"] >= GOAL and summary["slow_share_of_admitted"]["min"] > 0
                           and summary["busy_max"] < BUSY_MAX)
    return summary


HEADING = ("seed  equal/s  slow/s  of ideal | sync/s  sync slow/s  of ideal | slow share  staleness | steps to solve: "
           "equal    slow | busy")


def line(row):
    def steps(run):
        return f"{run['steps']:>7}" + (" " if run["solved"] else "*")
    equal, slow = row["equal"], row["straggler"]
    busy = max(row[name]["busy"] for name in ("equal", "straggler", "sync", "sync_slow"))
    return (f"{row['seed']:4} {equal['rate']:8.0f} {slow['rate']:7.0f} {row['ratio']:9.3f} | {row['sync']['rate']:6.0f} "
            f"{row['sync_slow']['rate']:12.0f} {row['sync_ratio']:9.3f} | {slow['slow_share']:9.1%}  "
            f"{slow['staleness_mean']:4.1f}/{slow['staleness_max']:<4} |                 {steps(equal)}{steps(slow)} | "
            f"{busy:.0%}")


def span(values, form):
    return "none" if values is None else \
        f"median {form.format(values['median'])} ({form.format(values['min'])} to {form.format(values['max'])})"


def picture(rows, options):
    """Rates by seed, as parts of four equal workers; steps to solve beside them."""
    width, height, left, top, panel = 860, 330, 60, 50, 340
    ideal = (options.workers - 1 + 1 / options.factor) / options.workers
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
             'font-family="sans-serif" font-size="12">', '<rect width="100%" height="100%" fill="white"/>']
    most = max([row[name]["steps"] for row in rows for name in ("equal", "straggler")])

    def text(x, y, words, more=""):
        parts.append(f'<text x="{x:.0f}" y="{y:.0f}" {more}>{words}</text>')

    def frame(x, title, limit, form):
        parts.append(f'<rect x="{x}" y="{top}" width="{panel}" height="220" fill="none" stroke="#999"/>')
        text(x, top - 12, title, 'font-weight="bold"')
        for tick in range(5):
            y = top + 220 - 55 * tick
            text(x - 6, y + 4, form(limit * tick / 4), 'text-anchor="end" fill="#555"')
            parts.append(f'<line x1="{x}" x2="{x + panel}" y1="{y}" y2="{y}" stroke="#eee"/>')

    def dot(x, i, value, limit, colour):
        at = x + panel * (i + 0.5) / len(rows)
        parts.append(f'<circle cx="{at:.1f}" cy="{top + 220 - 220 * value / limit:.1f}" r="4.5" fill="{colour}"/>')

    second = left + panel + 80
    frame(left, f"env-steps/s, of {options.workers} equal workers", 1.2, "{:.1f}".format)
    frame(second, f"env-steps to {options.until:.0f}", most * 1.1, lambda v: f"{v / 1000:.0f}k")
    y = top + 220 - 220 * ideal / 1.2
    parts.append(f'<line x1="{left}" x2="{left + panel}" y1="{y:.1f}" y2="{y:.1f}" stroke="#222" stroke-dasharray="4 3"/>')
    text(left + panel - 4, y - 5, f"ideal {ideal:.3f}", 'text-anchor="end"')
    for i, row in enumerate(rows):
        dot(left, i, row["straggler"]["rate"] / row["equal"]["rate"], 1.2, "#1f77b4")
        dot(left, i, row["sync_slow"]["rate"] / row["equal"]["rate"], 1.2, "#d62728")
        dot(second, i, row["equal"]["steps"], most * 1.1, "#999")
        dot(second, i, row["straggler"]["steps"], most * 1.1, "#1f77b4")
        for x in (left, second):
            text(x + panel * (i + 0.5) / len(rows), top + 236, row["seed"], 'text-anchor="middle" fill="#555"')
    text(left + panel / 2, top + 254, "seed", 'text-anchor="middle" fill="#555"')
    for x, colour, words in ((left, "#1f77b4", f"async, one worker {options.factor:g} times slower"),
                             (left + 250, "#d62728", "sync, the same"), (second, "#999", "async, all equal")):
        parts.append(f'<circle cx="{x + 6}" cy="{height - 14}" r="4.5" fill="{colour}"/>')
        text(x + 16, height - 10, words)
    return "\n".join(parts) + "\n</svg>\n"


def main():
    options = arguments()
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}; {options.workers} workers, {options.shards} shards, "
          f"pace {options.pace} ms, the last worker {options.factor:g} times slower; seeds {options.seeds}")
    print(HEADING)
    rows = []
    for seed in options.seeds:
        rows.append(measure(options, seed))
        print(line(rows[-1]), flush=True)
    summary = sum_up(rows)
    print("(* not solved) of ideal =", span(summary["ratio_to_ideal"], "{:.3f}"), f"goal {GOAL};",
          "sync:", span(summary["sync_ratio_to_ideal"], "{:.3f}"))
    print("slow worker's share of admitted gradients:", span(summary["slow_share_of_admitted"], "{:.1%}"))
    print("the slow worker's steps: one to", span(summary["measured_slowness"], "{:.1f}"), "of an equal one (whole rollouts)")
    for name in ("equal", "straggler"):
        print(f"{name}: solved {summary[name + '_solved']}, steps", span(summary[name + "_steps_to_solve"], "{:.0f}"))
    print(f"machine busy at most {summary['busy_max']:.0%} (limit {BUSY_MAX:.0%})")
    print("goal met" if summary["goal_met"] else "GOAL NOT MET")
    with open(options.json, "w") as file:
        json.dump({"method": __doc__, "processors": os.cpu_count(), "options": vars(options), "rows": rows,
                   "summary": summary}, file, indent=1)
    with open(options.svg, "w") as file:
        file.write(picture(rows, options))
    print(f"written: {options.json}, {options.svg}")
    return 0 if summary["goal_met"] else 1


if __name__ == "__main__":
    sys.exit(main())
