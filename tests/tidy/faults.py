#!/usr/bin/env python3
"""faults.py ROOT: every test that tests/FAULTS.md names exists, and every row names one or says what is missing. Prints one line
per breach; exit status 1 if there was any. faults.py --selftest shows that it can fail."""
import glob
import os
import re
import sys

WORD = re.compile(r"`(unit|sim|model|process|bench|fuzz):([^`]+)`")
ROW = re.compile(r"^\| ([A-Z]\d+) \|.*\| ([^|]*) \|$", re.MULTILINE)


def read(root, pattern):
    text = []
    for path in sorted(glob.glob(os.path.join(root, pattern))):
        with open(path, encoding="utf-8") as file:
            text.append((os.path.splitext(os.path.basename(path))[0], file.read()))
    return text


def collect(root):
    """The names that exist, by word."""
    known = {"unit": set(), "sim": set(), "model": set(), "process": set(), "bench": set(), "fuzz": set()}
    for _, text in read(root, "tests/unit/test_*.c"):
        known["unit"] |= {"/".join(test) for test in re.findall(r"^Test\((\w+),\s*(\w+)", text, re.MULTILINE)}
    for _, text in read(root, "tests/sim/*.[ch]"):
        known["sim"] |= set(re.findall(r"^ +X\((\w+), ", text, re.MULTILINE))
        for table in re.findall(r"\bplants\[\] = \{(.*?)\};", text, re.DOTALL):
            known["sim"] |= set(re.findall(r'"([a-z-]+)"', table))
    for _, text in read(root, "tests/model/check.sh"):
        known["model"] |= set(re.findall(r'^ +"(?:commit|slots|sums) (\w+)', text, re.MULTILINE))
    for name, text in read(root, "tests/integration/test_*.py"):
        known["process"] |= {name} | {name + "/" + test for test in re.findall(r"def (test_\w+)", text)}
    known["bench"] |= {name for name, _ in read(root, "tests/bench/*.py")}
    known["fuzz"] |= {name for name, _ in read(root, "tests/fuzz/*.c")}
    return known


def check(text, known):
    for word, name in WORD.findall(text):
        if name not in known[word] and name not in ("NAME", "FILE", "SUITE/NAME", "FILE/NAME"):
            yield "tests/FAULTS.md: there is no %s:%s" % (word, name)
    for row, shown in ROW.findall(text):
        if not WORD.search(shown) and "no test" not in shown:
            yield "tests/FAULTS.md: %s names no test and does not say that there is none" % row
    if not ROW.search(text):
        yield "tests/FAULTS.md: no rows"


def selftest():
    known = {"unit": {"order/admits"}, "sim": {"no-dedupe"}}
    row = "| A1 | fault | answer | %s |\n"
    cases = [("`unit:order/admits` `sim:no-dedupe`", 0), ("no test yet", 0), ("`unit:order/gone`", 1), ("`sim:gone`; no test", 1),
             ("a word", 1)]
    failed = sum(len(list(check(row % shown, known))) != breaches for shown, breaches in cases)
    failed += len(list(check("", known))) != 1
    print("%d cases, %d failed" % (len(cases) + 1, failed))
    return failed != 0


def main(root):
    known = collect(root)
    empty = sorted(word for word in known if not known[word])
    with open(os.path.join(root, "tests/FAULTS.md"), encoding="utf-8") as file:
        text = file.read()
    breaches = list(check(text, known)) + ["no %s tests were found at all" % word for word in empty]
    for breach in breaches:
        print(breach)
    print("faults: %d rows, %d tests named, %d breaches" % (len(ROW.findall(text)), len(WORD.findall(text)), len(breaches)))
    return breaches != []


if __name__ == "__main__":
    sys.exit(selftest() if sys.argv[1] == "--selftest" else main(sys.argv[1]))
