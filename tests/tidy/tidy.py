#!/usr/bin/env python3
"""The house rules that a program can check. Prints one line per breach and what to do; exit status 1 if there was any.

    tidy.py ROOT [LIBRARY.so]     checks the tree, and the exported symbols of the library when it is named

Each rule is a function of (path, text) or of the whole list of files; tests/tidy/selftest.py shows that each can fail.
"""
import collections
import os
import re
import shutil
import subprocess
import sys

import floors

LINES_MAX = 400
FUNCTION_MAX = 60
SOURCES = (".c", ".h", ".cc", ".cpp", ".cu", ".cuh")
SCRIPTS = (".py", ".sh", ".cmake")
REPEATED_NAMES = {"README.md", "CMakeLists.txt"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.MULTILINE)
MARKS = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")


def check_length(path, text):
    lines = text.count("\n")
    if lines > LINES_MAX:
        yield "%s: %d lines, at most %d: cut it where it holds two things" % (path, lines, LINES_MAX)


def check_marks(path, text):
    for number, line in enumerate(text.split("\n"), 1):
        mark = MARKS.search(line)
        if mark:
            yield "%s:%d: %s: what is missing is an issue, not a comment" % (path, number, mark.group(1))


def guards_of(path):
    """common/x.h: GRADWEIR_COMMON_X_H. client/trainer/x.h: with CLIENT_TRAINER or TRAINER. A public header: as its users see it."""
    if path.startswith("client/include/gradweir/"):
        names = [path[len("client/include/gradweir/"):]]
    else:
        names = [path, "/".join(path.split("/")[-2:])]
    guards = ["GRADWEIR_" + re.sub(r"[/.-]", "_", name).upper() for name in names]
    return [re.sub("^GRADWEIR_GRADWEIR_", "GRADWEIR_", guard) for guard in guards]


def check_guard(path, text):
    if not path.endswith((".h", ".cuh")):
        return
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL).strip()
    for guard in guards_of(path):
        if re.match(r"#ifndef %s\n#define %s\n" % (guard, guard), code) and code.endswith("#endif"):
            return
    yield "%s: the whole header stands in #ifndef %s, #define, #endif" % (path, guards_of(path)[0])


def check_opening(path, text):
    """Sources and headers open by saying what they are for; a test may say it by its tests' names."""
    if path.startswith("tests/") or not path.endswith(SOURCES):
        return
    if not text.startswith("/*"):
        yield "%s: open with two to eight lines that say what the file is for" % path


def check_includes(path, text):
    for quote, include in INCLUDE.findall(text):
        reason = floors.refuse(path, include, quote == '"')
        if reason:
            yield "%s: %s" % (path, reason)


def check_names(paths):
    """Reference data has a folder per case, and public headers a folder of their own at their users'."""
    seen = collections.defaultdict(list)
    for path in paths:
        if not (path.startswith("tests/vectors/") and path.count("/") > 2) and not path.startswith("client/include/"):
            seen[os.path.basename(path)].append(path)
    for name, places in sorted(seen.items()):
        if len(places) > 1 and name not in REPEATED_NAMES:
            yield "%s: file names are unique, also at %s" % (places[0], ", ".join(places[1:]))


def check_top(paths):
    allowed = {"server", "client", "common", "gpu", "deploy", "tests",
               "CMakeLists.txt", "CMakePresets.json", "README.md", "LICENSE"}
    for entry in sorted({path.split("/")[0] for path in paths}):
        if not entry.startswith(".") and entry not in allowed:
            yield "%s: the top level is fixed; find it a room" % entry


def check_cycles(includes):
    """includes: header -> headers it includes. Floors allow neighbours; a ring of them is still wrong."""
    done, open_ = set(), []

    def visit(header):
        if header in open_:
            return open_[open_.index(header):] + [header]
        if header in done:
            return None
        open_.append(header)
        for target in includes.get(header, ()):
            ring = visit(target)
            if ring:
                return ring
        open_.pop()
        done.add(header)
        return None

    for header in sorted(includes):
        ring = visit(header)
        if ring:
            yield "%s: headers include each other: %s" % (header, " > ".join(ring))
            return


def check_functions(root, paths):
    command = ["ctags", "-f", "-", "--languages=C,C++,CUDA", "--langmap=C++:+.cu", "--kinds-C=f", "--kinds-C++=f",
               "--fields=+ne", "-L", "-"]
    listing = subprocess.run(command, cwd=root, input="\n".join(paths), capture_output=True, text=True, check=True)
    for line in listing.stdout.splitlines():
        fields = line.split("\t")
        if line.startswith("!") or len(fields) < 4:
            continue
        place = dict(field.split(":", 1) for field in fields[3:] if ":" in field)
        length = int(place.get("end", place["line"])) - int(place["line"]) + 1
        if length > FUNCTION_MAX:
            yield "%s:%s: %s has %d lines, at most %d" % (fields[1], place["line"], fields[0], length, FUNCTION_MAX)


def check_format(root, paths):
    for start in range(0, len(paths), 200):
        run = subprocess.run(["clang-format", "--dry-run", "-Werror"] + paths[start:start + 200], cwd=root,
                             capture_output=True, text=True)
        for path in sorted(set(re.findall(r"^([^:\n]+):\d+:\d+: error", run.stderr, re.MULTILINE))):
            yield "%s: not formatted: clang-format -i %s" % (path, path)
        if run.returncode != 0 and "error" not in run.stderr:
            yield "clang-format failed: %s" % run.stderr.strip()


def check_symbols(listing, library):
    """listing: what `nm -D --defined-only` prints."""
    names = [line.split()[-1].split("@")[0] for line in listing.splitlines() if line.strip()]
    for name in names:
        if not name.startswith("gradweir_") and name not in ("_init", "_fini"):
            yield "%s: exports %s; only gradweir_ leaves the library" % (library, name)
    if not any(name.startswith("gradweir_") for name in names):
        yield "%s: exports nothing that starts with gradweir_" % library


FILE_RULES = [check_length, check_marks, check_guard, check_opening, check_includes]


def list_files(root):
    """What git would keep, or every file when this is not a checkout (a release's tree)."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-co", "--exclude-standard"]
    run = shutil.which("git") and subprocess.run(command, cwd=root, capture_output=True, text=True)
    if run and run.returncode == 0:
        return sorted(p for p in run.stdout.split("\n") if p and os.path.isfile(os.path.join(root, p)))
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [f for f in folders if not f.startswith("build") and f not in (".git", "__pycache__", "gradweir-demo")]
        found += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return sorted(found)


def check_tree(root):
    paths = list_files(root)
    sources = [path for path in paths if path.endswith(SOURCES)]
    yield from check_names(paths)
    yield from check_top(paths)
    includes = {}
    for path in paths:
        if not path.endswith(SOURCES + SCRIPTS):
            continue
        with open(os.path.join(root, path), encoding="utf-8") as file:
            text = file.read()
        rules = FILE_RULES if path.endswith(SOURCES) else [check_length, check_marks]
        for rule in rules:
            yield from rule(path, text)
        if path.endswith((".h", ".cuh")):
            includes[path] = [floors.as_path(name, quote == '"') for quote, name in INCLUDE.findall(text)]
    yield from check_cycles(includes)
    yield from check_functions(root, sources)
    yield from check_format(root, sources)


def main(arguments):
    breaches = list(check_tree(arguments[0]))
    if len(arguments) > 1:
        listing = subprocess.run(["nm", "-D", "--defined-only", arguments[1]], capture_output=True, text=True,
                                 check=True)
        breaches += check_symbols(listing.stdout, arguments[1])
    for breach in breaches:
        print(breach)
    print("tidy: %d files, %d breaches" % (len(list_files(arguments[0])), len(breaches)))
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
