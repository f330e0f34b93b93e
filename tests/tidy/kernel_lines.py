#!/usr/bin/env python3
"""Shows that the GPU's kernels have no arithmetic of their own: they are made of the very lines that the CPU's tests run.

    kernel_lines.py ROOT NVCC            checks every gpu/*.cu; exit status 1 if one breaks the rule
    kernel_lines.py --selftest ROOT NVCC shows that the check can fail

nvcc says of each instruction from which line of which file it comes (its debug form, where nothing is moved or merged).
Every instruction on floating point numbers, and every call of the GPU's mathematical library, must come from a header of
per-element functions in common/. Of those headers each must also be read by the CPU's tests (gcc says which files those
read), so that what nvcc compiles is what the reference vectors have gone through.
"""
import collections
import glob
import os
import re
import subprocess
import sys
import tempfile

FLAGS = ["-std=c++17", "--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false"]
ELEMENTS = re.compile(r"^common/(arithmetic_element|element_\w+)\.h$")
# What runs these functions on the CPU: the reference vectors, the trainer, and tests of what has no vectors (chance).
CPU_SOURCES = ["tests/vectors/*.c", "tests/unit/element_set.c", "tests/unit/test_element_*.c", "client/trainer/*.c"]
ARITHMETIC = re.compile(r"^\s+(?:@!?%p\d+\s+)?((?:add|sub|mul|fma|mad|div|sqrt|rsqrt|rcp|min|max|abs|neg|ex2|lg2|sin|cos|tanh"
                        r"|copysign)\b[.\w]*\.(?:f16|f16x2|bf16|bf16x2|f32|f64))\s")
FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]+)"')
LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)")
FUNCTION = re.compile(r"^\s*(?:\.\w+\s+)*\.(?:func|entry)\b")
NAME = re.compile(r"\b(?:func|entry)\s+(?:\([^)]*\)\s*)?([\w$]+)")
CALL = re.compile(r"^\s+call\b")


def ptx_of(nvcc, root, source, folder):
    to = os.path.join(folder, os.path.basename(source) + ".ptx")
    includes = ["-I", root, "-I", os.path.join(root, "client/include")]
    subprocess.run([nvcc, *FLAGS, *includes, "-G", "-arch=sm_90", "-ptx", source, "-o", to], check=True)
    with open(to, encoding="utf-8") as file:
        return file.read().split("\n")


def read_by(command, root):
    """The files of this repository that a compiler reads for a source, from its -M output."""
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = text.replace("\\\n", " ").split(":", 1)[1].split()
    paths = {os.path.relpath(os.path.realpath(name), os.path.realpath(root)) for name in names}
    return {path for path in paths if not path.startswith("..")}


def functions_of(lines):
    """Each function's name and its lines."""
    start = None
    for number, line in enumerate(lines):
        if FUNCTION.match(line):
            start = number
        if start is not None and line.startswith("}"):
            head = " ".join(lines[start:start + 4])
            name = NAME.search(head)
            yield name.group(1) if name else "?", lines[start:number]
            start = None


def called_at(body, number, names):
    return set(re.findall(r"[\w$]+", " ".join(body[number:number + 5]).split(";")[0])) & names


def library_of(functions):
    """Functions that have no lines of ours and compute with floats, or call one that does."""
    bodies = {name: body for name, body in functions if not any(LOC.match(line) for line in body)}
    found = {name for name, body in bodies.items() if any(ARITHMETIC.match(line) for line in body)}
    while True:
        more = {name for name, body in bodies.items() if name not in found and
                any(CALL.match(line) and called_at(body, number, found) for number, line in enumerate(body))}
        if not more:
            return found
        found |= more


def places_of(lines, root):
    """(file, line, what) of each instruction that computes with floats, and of each call into the library that does."""
    files = dict(FILE.match(line).groups() for line in lines if FILE.match(line))
    functions = list(functions_of(lines))
    library = library_of(functions)
    for name, body in functions:
        at = None
        for number, line in enumerate(body):
            loc = LOC.match(line)
            if loc:
                at = (os.path.relpath(os.path.realpath(files[loc.group(1)]), os.path.realpath(root)), int(loc.group(2)))
            elif at and ARITHMETIC.match(line):
                yield at + (ARITHMETIC.match(line).group(1),)
            elif at and CALL.match(line):
                for target in sorted(called_at(body, number, library)):
                    yield at + (target,)


def check_source(nvcc, root, source, folder):
    """Breaches, and how often each header of functions is the place."""
    counts, breaches = collections.Counter(), []
    for path, line, what in places_of(ptx_of(nvcc, root, source, folder), root):
        if ELEMENTS.match(path):
            counts[path] += 1
        else:
            breaches.append("%s:%d: %s: arithmetic belongs to a function of common/element_*.h" % (path, line, what))
    return counts, sorted(set(breaches))


def check(root, nvcc):
    includes = ["-I", root, "-I", os.path.join(root, "client/include")]
    on_cpu, breaches, used = set(), [], set()
    for pattern in CPU_SOURCES:
        for source in sorted(glob.glob(os.path.join(root, pattern))):
            on_cpu |= read_by(["gcc", "-M", "-D_GNU_SOURCE", *includes, source], root)
    for source in sorted(glob.glob(os.path.join(root, "gpu/*.cu"))):
        read = {path for path in read_by([nvcc, *FLAGS, *includes, "-M", source], root) if ELEMENTS.match(path)}
        with tempfile.TemporaryDirectory() as folder:
            counts, own = check_source(nvcc, root, source, folder)
        breaches += own
        used |= set(counts)
        print("%s: reads %s" % (os.path.relpath(source, root), ", ".join(sorted(map(os.path.basename, read)))))
        print("    computes in %s" % (", ".join("%s (%d)" % (os.path.basename(p), n) for p, n in sorted(counts.items()))
                                      or "nothing"))
        for path in set(counts) - read:
            breaches.append("%s: %s is computed in, but not among the files nvcc lists" % (source, path))
    for path in sorted(used - on_cpu):
        breaches.append("%s: kernels compute in it, and no test of the CPU reads it" % path)
    return breaches


def selftest(root, nvcc):
    good = '#include "common/element_gradient.h"\n__global__ void k(float *x) { x[0] = element_scaled(x[0], x[1]); }\n'
    bad = {"own": good.replace("element_scaled(x[0], x[1])", "x[0] * x[1]"),
           "library": good.replace("element_scaled(x[0], x[1])", "expf(x[0])"),
           "double": good.replace("element_scaled(x[0], x[1])", "(float)((double)x[0] + 1.5)")}
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, text in [("good", good), *bad.items()]:
            source = os.path.join(folder, name + ".cu")
            with open(source, "w", encoding="utf-8") as file:
                file.write(text)
            counts, breaches = check_source(nvcc, root, source, folder)
            right = not breaches and counts if name == "good" else breaches
            failed += not right
            print("%s: %s" % (name, "as it should be" if right else "WRONG: %s %s" % (counts, breaches)))
    return failed


def main(arguments):
    if arguments[0] == "--selftest":
        return 1 if selftest(*arguments[1:]) else 0
    breaches = check(*arguments)
    for breach in breaches:
        print(breach)
    print("kernel_lines: %d breaches" % len(breaches))
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
