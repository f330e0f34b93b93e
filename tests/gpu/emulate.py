#!/usr/bin/env python3
"""Makes a C++ source of a CUDA one, for tests/gpu/cuda_on_cpu.h.

    emulate.py FROM.cu TO.cpp               only launches are written anew: kernel<<<grid, threads, shared, stream>>>(arguments)
    emulate.py --launches TO.cpp FROM.cu... the table of all launches of all files (cuda_launches.h); refuses a kernel without one
"""
import os
import re
import sys

KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\([^()]*\)\s*)?(\w+)\s*\(")
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


def name_of(source, kernel):
    """As the table of launches has it: file: kernel<arguments as written>."""
    return "%s: %s" % (os.path.splitext(os.path.basename(source))[0], " ".join(kernel.split()))


def launch(match, source):
    grid, threads, shared, _stream = split(match.group(2))
    if shared != "0":
        raise SystemExit("emulate: %s: shared memory by launch is not known here" % match.group(1))
    return 'cuda_launch("%s", dim3(%s), %s, %s, ' % (name_of(source, match.group(1)), grid, threads, match.group(1))


def read(source):
    with open(source, encoding="utf-8") as file:
        return file.read()


def rewrite(source, to):
    text = LAUNCH.sub(lambda match: launch(match, source), read(source))
    with open(to, "w", encoding="utf-8") as file:
        file.write('#include "tests/gpu/cuda_on_cpu.h"\n#line 1 "%s"\n%s' % (source, text))


def list_launches(to, sources):
    names = []
    for source in sources:
        launched = [match.group(1) for match in LAUNCH.finditer(read(source))]
        kernels = KERNEL.findall(read(source))
        if len(kernels) != read(source).count("__global__"):
            raise SystemExit("emulate: %s: a kernel whose name is not found" % source)
        for kernel in set(kernels) - {name.split("<")[0].strip() for name in launched}:
            raise SystemExit("emulate: %s: %s is launched nowhere" % (source, kernel))
        names += [name_of(source, name) for name in launched]
    with open(to, "w", encoding="utf-8") as file:
        file.write('#include "tests/gpu/cuda_launches.h"\nextern "C" const char *const cuda_launches[] = {\n')
        file.writelines('    "%s",\n' % name for name in sorted(set(names)))
        file.write("    nullptr};\n")


if __name__ == "__main__":
    if sys.argv[1] == "--launches":
        list_launches(sys.argv[2], sys.argv[3:])
    else:
        rewrite(*sys.argv[1:])
