#!/usr/bin/env python3
"""The reward of gradweir-example-transformer over its steps: one SVG of the CSV files that the groups of a run wrote.

    tests/bench/plot_reward.py --out curve.svg [--title "..."] [--chance 0.0625] g0.csv g1.csv

A thin line is each step's mean reward, a thick one the mean of twenty; the dashed one is what chance earns."""
import argparse
import csv

from plot import text

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 420, 60, 20, 56, 50
COLOURS = ["#1f5fbf", "#0b6e4f", "#b23a48", "#c77d0a"]
MEAN_OF = 20


def read(paths):
    """Points of each group, in the order of their names."""
    curves = {}
    for path in paths:
        with open(path) as file:
            for row in csv.DictReader(file):
                curves.setdefault(row["group"], []).append((int(row["step"]), float(row["reward"])))
    return sorted(curves.items())


def smooth(points):
    for i in range(len(points)):
        near = points[max(0, i + 1 - MEAN_OF):i + 1]
        yield points[i][0], sum(reward for _, reward in near) / len(near)


def draw(curves, title, chance):
    steps = max(points[-1][0] for _, points in curves)

    def x(step):
        return LEFT + (WIDTH - LEFT - RIGHT) * step / steps

    def y(reward):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * reward

    def line(points, colour, width, more=""):
        path = " ".join(f"{x(step):.1f},{y(reward):.1f}" for step, reward in points)
        return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{more}/>'

    yield f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif">'
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    yield text(LEFT, 24, title, 15)
    for tenth in range(0, 11, 2):
        yield f'<path d="M{LEFT} {y(tenth / 10):.1f}H{WIDTH - RIGHT}" stroke="#e4e4e4"/>'
        yield text(LEFT - 8, y(tenth / 10) + 4, f"{tenth / 10:g}", 11, "end", "#555555")
    for step in range(0, steps + 1, 50 if steps > 60 else 10):
        yield text(x(step), HEIGHT - BOTTOM + 18, f"{step}", 11, "middle", "#555555")
    yield text(LEFT, HEIGHT - 10, f"step; mean reward of a word, and the mean of {MEAN_OF} steps", 11)
    yield line([(0, chance), (steps, chance)], "#777777", 1.5, ' stroke-dasharray="6 4"')
    for (name, points), colour in zip(curves, COLOURS):
        yield line(points, colour, 1, ' opacity="0.35"')
        yield line(list(smooth(points)), colour, 2.5)
    for i, ((name, _), colour) in enumerate(zip(curves, COLOURS)):
        yield text(LEFT + 90 * i, 44, name, 12, "start", colour)
    yield text(LEFT + 90 * len(curves), 44, "chance (dashed)", 12, "start", "#777777")
    yield "</svg>\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("files", nargs="+")
    parser.add_argument("--out", default="reward.svg")
    parser.add_argument("--title", default="gradweir-example-transformer")
    parser.add_argument("--chance", type=float, default=1 / 16)
    options = parser.parse_args()
    with open(options.out, "w") as file:
        file.write("\n".join(draw(read(options.files), options.title, options.chance)))


if __name__ == "__main__":
    main()
