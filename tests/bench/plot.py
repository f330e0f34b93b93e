#!/usr/bin/env python3
"""Goodput of push and pull against size, over posix and tcp, beside floor, memcpy and ucx_perftest: one SVG.

    tests/bench/plot.py [--build build] [--out goodput.svg] [--json goodput.jsonl] [--seconds 1] [--rounds 3]
    tests/bench/plot.py --from goodput.jsonl --out goodput.svg      draws what was measured before

From 4 KiB to 64 MiB, one worker, one shard, SGD, W = S = 1. Both axes are logarithmic; a band is least to most of the
rounds. The references are those of the same run, at each size."""
import argparse
import json
import math
import os
import subprocess
import sys

SIZES = [4096 << (2 * i) for i in range(8)]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM, GAP = 1000, 470, 62, 14, 64, 46, 56
LINES = [("push", "goodput_gbps", "#0b6e4f", "push, until applied", ""), ("pull", "goodput_gbps", "#1f5fbf", "pull", ""),
         ("push", "floor_gbps", "#b23a48", "floor: land + step, one thread", "6 4"),
         ("push", "memcpy_gbps", "#777777", "memcpy", "2 4"), ("push", "perftest_gbps", "#c77d0a", "ucx_perftest am_bw", "10 3 2 3")]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", default=os.environ.get("GRADWEIR_BUILD", "build"))
    parser.add_argument("--out", default="goodput.svg")
    parser.add_argument("--json", default="goodput.jsonl")
    parser.add_argument("--from", dest="source")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def measure(options):
    rows = []
    with open(options.json, "w") as file:
        for transport in ("posix", "tcp"):
            for size in SIZES:
                for case in ("push", "pull"):
                    print(f"{case} {transport} {size}      ", end="\r", file=sys.stderr, flush=True)
                    words = [case, "--transport", transport, "--size", str(size), "--seconds", str(options.seconds),
                             "--rounds", str(options.rounds), "--json"]
                    done = subprocess.run([os.path.join(options.build, "gradweir-bench"), *words], capture_output=True, text=True,
                                          timeout=600)
                    if done.returncode != 0:
                        sys.exit(f"{' '.join(words)}: {done.stderr}")
                    rows.append(json.loads(done.stdout))
                    file.write(done.stdout)
    return rows


def text(x, y, words, size=12, anchor="start", colour="#222222"):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}">{words}</text>'


def size_name(size):
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


class Panel:
    """One transport's axes."""

    def __init__(self, index, low, high):
        self.width = (WIDTH - LEFT - RIGHT - GAP) / 2
        self.x0 = LEFT + index * (self.width + GAP)
        self.low, self.high = low, high

    def x(self, size):
        return self.x0 + self.width * (math.log2(size) - math.log2(SIZES[0])) / (math.log2(SIZES[-1]) - math.log2(SIZES[0]))

    def y(self, rate):
        share = (math.log10(max(rate, self.low)) - math.log10(self.low)) / (math.log10(self.high) - math.log10(self.low))
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def axes(self, title):
        yield text(self.x0 + self.width / 2, TOP - 10, title, 14, "middle")
        for size in SIZES:
            yield f'<path d="M{self.x(size):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#eeeeee"/>'
            yield text(self.x(size), HEIGHT - BOTTOM + 16, size_name(size), 10, "middle", "#555555")
        decade = math.floor(math.log10(self.low))
        while 10 ** decade <= self.high:
            for step in (1, 2, 5):
                rate = step * 10 ** decade
                if self.low <= rate <= self.high:
                    yield f'<path d="M{self.x0} {self.y(rate):.1f}H{self.x0 + self.width}" stroke="#e4e4e4"/>'
                    yield text(self.x0 - 6, self.y(rate) + 4, f"{rate:g}", 10, "end", "#555555")
            decade += 1
        yield f'<path d="M{self.x0} {TOP}V{HEIGHT - BOTTOM}H{self.x0 + self.width}" stroke="#888888" fill="none"/>'

    def line(self, rows, key, colour, dash):
        points = [(row["bytes"], row[key], row) for row in rows if row.get(key)]
        if not points:
            return
        if key == "goodput_gbps":
            up = [f"{self.x(size):.1f},{self.y(row['goodput_max']):.1f}" for size, _, row in points]
            down = [f"{self.x(size):.1f},{self.y(row['goodput_min']):.1f}" for size, _, row in reversed(points)]
            yield f'<polygon points="{" ".join(up + down)}" fill="{colour}" opacity="0.15"/>'
        path = " ".join(f"{self.x(size):.1f},{self.y(rate):.1f}" for size, rate, _ in points)
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash or "none"}"/>'
        if key == "goodput_gbps":
            yield from (f'<circle cx="{self.x(size):.1f}" cy="{self.y(rate):.1f}" r="3" fill="{colour}"/>' for size, rate, _ in points)


def draw(rows):
    rates = [row[key] for row in rows for key in ("goodput_min", "goodput_max", "floor_gbps", "memcpy_gbps", "perftest_gbps")
             if row.get(key)]
    low, high = 0.8 * min(rates), 1.3 * max(rates)
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
           'font-family="sans-serif">')
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    x = LEFT
    for _, _, colour, name, dash in LINES:
        yield f'<path d="M{x} 20H{x + 28}" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash or "none"}"/>'
        yield text(x + 34, 24, name)
        x += 52 + 7 * len(name)
    yield text(14, HEIGHT / 2, "GB/s of float32", 11).replace("<text ", f'<text transform="rotate(-90 14 {HEIGHT / 2})" ', 1)
    for index, transport in enumerate(("posix", "tcp")):
        panel = Panel(index, low, high)
        yield from panel.axes({"posix": "shared memory (posix)", "tcp": "loopback TCP"}[transport])
        for case, key, colour, _, dash in LINES:
            chosen = sorted((row for row in rows if row["case"] == case and row["transport"] == transport), key=lambda row: row["bytes"])
            yield from panel.line(chosen, key, colour, dash)
    yield "</svg>\n"


def main():
    options = arguments()
    if options.source:
        with open(options.source) as file:
            rows = [json.loads(line) for line in file if line.startswith("{")]
    else:
        rows = measure(options)
    with open(options.out, "w") as file:
        file.write("\n".join(draw(rows)))
    print(f"{options.out}: {len(rows)} rows")


if __name__ == "__main__":
    main()
