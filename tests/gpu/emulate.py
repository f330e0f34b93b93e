#!/usr/bin/env python3
"""Makes a C++ source of a CUDA one, for tests/gpu/cuda_on_cpu.h: emulate.py FROM.cu TO.cpp

Only the launches have to be written anew: kernel<<<grid, threads, shared, stream>>>(arguments).
"""
import re
import sys

LAUNCH = re.compile(r"([A-Za-z_]\w*(?:<[^<>;]*>)?)\s*<<<(.+?)>>>\s*\(", re.DOTALL)


def split(text):
    """At commas that are not within brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def launch(match):
    grid, threads, shared, _stream = split(match.group(2))
    if shared != "0":
        raise SystemExit("emulate: %s: shared memory by launch is not known here" % match.group(1))
    return "cuda_launch(dim3(%s), %s, %s, " % (grid, threads, match.group(1))


def main(source, to):
    with open(source, encoding="utf-8") as file:
        text = file.read()
    with open(to, "w", encoding="utf-8") as file:
        file.write('#include "tests/gpu/cuda_on_cpu.h"\n#line 1 "%s"\n%s' % (source, LAUNCH.sub(launch, text)))


if __name__ == "__main__":
    main(*sys.argv[1:])
