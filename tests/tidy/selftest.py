#!/usr/bin/env python3
"""Shows that every rule of tidy.py can fail, and that it lets good code pass. Prints what it ran."""
import os
import subprocess
import sys
import tempfile

import floors
import tidy

GOOD = "/* What it is for. */\n#ifndef GRADWEIR_COMMON_X_H\n#define GRADWEIR_COMMON_X_H\n\nint x;\n\n#endif\n"
LONG_FUNCTION = "int f(int a)\n{\n" + "    a++;\n" * 60 + "    return a;\n}\n"

# rule, path, good text, bad text
TEXT_CASES = [
    (tidy.check_length, "common/x.c", "\n" * 400, "\n" * 401),
    (tidy.check_marks, "common/x.c", "/* to do it well */", "/* TO" + "DO: later */"),
    (tidy.check_marks, "common/x.c", "int fixed;", "// FIX" + "ME"),
    (tidy.check_guard, "common/x.h", GOOD, GOOD.replace("COMMON_X", "X")),
    (tidy.check_guard, "common/x.h", GOOD, GOOD + "int late;\n"),
    (tidy.check_guard, "client/trainer/x.h", GOOD.replace("COMMON", "TRAINER"), GOOD),
    (tidy.check_guard, "client/include/gradweir/x.h", GOOD.replace("COMMON_", ""), GOOD),
    (tidy.check_guard, "client/include/gradweir/gradweir.h", GOOD.replace("COMMON_X_", ""), GOOD),
    (tidy.check_opening, "common/x.c", GOOD, "int x;\n"),
]

# path, an include that is allowed, one that is not
INCLUDE_CASES = [
    ("common/model.c", '"common/checksum.h"', '"common/transport.h"'),
    ("common/transport.h", '"common/status.h"', '"common/transport_ucx.h"'),
    ("common/transport_ucx.c", '"common/transport.h"', '"server/host.h"'),
    ("common/transport.c", '"common/transport_memory.h"', '"server/shard/shard.h"'),
    ("common/status.h", '"client/include/gradweir/status.h"', '"client/session.h"'),
    ("server/shard/slots.c", '"server/shard/shard.h"', '"server/coordinator/order.h"'),
    ("server/coordinator/order.c", '"common/ledger.h"', '"server/host.h"'),
    ("server/host.c", '"server/coordinator/order.h"', '"client/session.h"'),
    ("client/client.c", '"client/session.h"', '"server/host.h"'),
    ("client/session.c", '"common/wire.h"', '"client/client.h"'),
    ("client/trainer/loss.c", "<gradweir/gradweir.h>", '"common/random.h"'),
    ("client/trainer/loss.c", '"client/trainer/loss.h"', '"client/session.h"'),
    ("client/trainer/loss.h", '"common/element_loss.h"', '"common/arithmetic.h"'),
    ("client/examples/hello.c", "<gradweir/gradweir.h>", '"common/element_loss.h"'),
    ("client/examples/hello.c", "<gradweir/gradweir.h>", '"client/include/../session.h"'),
    ("client/examples/transformer_pass.c", '"client/examples/transformer_model.h"', '"client/trainer/blas.h"'),
    ("client/examples/transformer_matrix.c", "<cblas.h>", "<zmq.h>"),
    ("common/device.c", '"common/device.h"', '"gpu/kernels.h"'),
    ("gpu/engine_cuda.c", '"client/trainer/engine.h"', '"client/trainer/update.h"'),
    ("gpu/engine_cuda.c", '"gpu/cublas_link.h"', '<cublas_v2.h>'),
    ("client/trainer/engine.h", '"client/trainer/network.h"', '"client/trainer/train_loop.h"'),
    ("client/trainer/engine.c", '"client/trainer/engine.h"', '"gpu/engine_cuda.h"'),
    ("common/law.c", '"common/law.h"', '"law.h"'),
    ("common/law.c", "<math.h>", "<zmq.h>"),
    ("common/law.c", "<string.h>", "<ucp/api/ucp.h>"),
    ("common/checksum.c", "<xxhash.h>", "<msgpack.h>"),
    ("common/law.c", '"common/status.h"', '"tests/vectors/vector_case.h"'),
    ("tests/unit/test_law.c", "<criterion/criterion.h>", "<cblas.h>"),
    ("common/law.c", "<stdint.h>", '"attic/old.h"'),
]


class Failures:
    def __init__(self):
        self.cases, self.failed = 0, 0

    def expect(self, what, passes, breaches):
        self.cases += 1
        if passes == bool(breaches):
            self.failed += 1
            print("FAIL %s: expected %s, got %s" % (what, "nothing" if passes else "a breach", breaches))


def write(root, path, text):
    full = os.path.join(root, path)
    os.makedirs(os.path.dirname(full), exist_ok=True)
    with open(full, "w", encoding="utf-8") as file:
        file.write(text)


def check_lists(failures):
    failures.expect("names", True, list(tidy.check_names(["a/README.md", "b/README.md", "a/x.c", "b/y.c"])))
    failures.expect("names", False, list(tidy.check_names(["a/x.c", "b/x.c"])))
    failures.expect("top", True, list(tidy.check_top(["common/x.c", ".clang-format"])))
    failures.expect("top", False, list(tidy.check_top(["docs/x.md"])))
    failures.expect("cycles", True, list(tidy.check_cycles({"a": ["b", "c"], "b": ["c"], "c": []})))
    failures.expect("cycles", False, list(tidy.check_cycles({"a": ["b"], "b": ["c"], "c": ["a"]})))
    good = "0000 T gradweir_open@@GRADWEIR_0\n0001 T gradweir_close\n"
    failures.expect("symbols", True, list(tidy.check_symbols(good, "lib")))
    failures.expect("symbols", False, list(tidy.check_symbols(good + "0002 T fail\n", "lib")))
    failures.expect("symbols", False, list(tidy.check_symbols("", "lib")))


def check_tools(failures):
    with tempfile.TemporaryDirectory() as root:
        with open(os.path.join(tidy.os.path.dirname(__file__), "..", "..", ".clang-format"), encoding="utf-8") as file:
            write(root, ".clang-format", file.read())
        write(root, "common/good.c", "int f(int a)\n{\n    return a;\n}\n")
        write(root, "common/ugly.c", "int f(int a) {\n  return a; }\n")
        write(root, "common/long.c", LONG_FUNCTION)
        failures.expect("format", True, list(tidy.check_format(root, ["common/good.c"])))
        failures.expect("format", False, list(tidy.check_format(root, ["common/ugly.c"])))
        failures.expect("functions", True, list(tidy.check_functions(root, ["common/good.c"])))
        failures.expect("functions", False, list(tidy.check_functions(root, ["common/long.c"])))
        # The whole program too: its exit status is what ctest sees.
        program = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "tidy.py"), root]
        failures.expect("tidy.py", False, [1] * subprocess.run(program, stdout=subprocess.DEVNULL).returncode)
        for path in ["common/good.c", "common/ugly.c", "common/long.c"]:
            os.remove(os.path.join(root, path))
        write(root, "common/x.h", GOOD)
        failures.expect("tidy.py", True, [1] * subprocess.run(program, stdout=subprocess.DEVNULL).returncode)


def main():
    failures = Failures()
    for rule, path, good, bad in TEXT_CASES:
        failures.expect(rule.__name__ + " " + path, True, list(rule(path, good)))
        failures.expect(rule.__name__ + " " + path, False, list(rule(path, bad)))
    for path, good, bad in INCLUDE_CASES:
        failures.expect(path + " " + good, True, list(tidy.check_includes(path, "#include %s\n" % good)))
        failures.expect(path + " " + bad, False, list(tidy.check_includes(path, "#include %s\n" % bad)))
    check_lists(failures)
    check_tools(failures)
    print("%d patterns of floors; %d cases, %d failed" % (len(floors.PATTERNS), failures.cases, failures.failed))
    return 1 if failures.failed else 0


if __name__ == "__main__":
    sys.exit(main())
