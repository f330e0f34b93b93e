"""Groups over gloo: 2 and 4 ranks that sum, push their parts and pull their slices are the one worker of the same samples.
Real servers (two shards), the real library; group_equal.c is what the ranks do.

    GRADWEIR_BUILD=build python3 tests/integration/test_group.py         # or: ctest --test-dir build -R group
"""
import array
import os
import subprocess
import sys
import tempfile

from library import BUILD, Server

STEPS = 20
# Not Adam, which divides by the gradient's size: where that is almost nothing, its rounding would show as whole steps.
MOMENTUM = ("--optimizer", "momentum", "--learning-rate", "0.01", "--stride", "1", "--window", "1", "--shards", "2")


def train(ranks, folder):
    path = os.path.join(folder, f"parameters-{ranks}")
    with Server(*MOMENTUM) as server:
        run = subprocess.run([os.path.join(BUILD, "tests", "group_equal"), server.address, str(ranks), str(STEPS), path],
                             capture_output=True, text=True, timeout=100)
        if "SKIPPED: " in run.stdout:
            print(run.stdout.strip())
            sys.exit(0)
        assert run.returncode == 0, run.stdout + run.stderr
        assert server.close() == 0
    parameters = array.array("f")
    with open(path, "rb") as file:
        parameters.frombytes(file.read())
    return parameters


def main():
    with tempfile.TemporaryDirectory() as folder:
        one = train(1, folder)
        for ranks in (2, 4):
            many = train(ranks, folder)
            assert len(many) == len(one) > 100000
            apart = max(abs(a - b) for a, b in zip(one, many))
            print(f"{ranks} ranks, {STEPS} steps, {len(one)} parameters: at most {apart:.2e} from one worker's")
            assert apart <= 1e-6, apart
        assert max(abs(p) for p in one) > 0.1


if __name__ == "__main__":
    main()
