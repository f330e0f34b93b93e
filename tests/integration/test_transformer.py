"""The transformer of the examples: two groups of two ranks, each of which holds its part of the model, and real servers.

    GRADWEIR_BUILD=build python3 tests/integration/test_transformer.py     # or: ctest --test-dir build -R transformer
    GRADWEIR_BUILD=build python3 tests/integration/test_transformer.py --curve client/examples/transformer

The second trains the model of 1.6 million parameters for 300 steps and keeps NAME.csv and NAME.svg.
"""
import csv
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from library import BUILD, HANG_S, Server, until

PROGRAM = os.path.join(BUILD, "gradweir-example-transformer")
LIMIT_S = 10 * HANG_S
CHANCE = 1 / 16


class Ranks:
    """The ranks of some groups, each a process."""

    def __init__(self, address, folder, preset="small", steps=0, seed=1):
        self.words = ["--address", address, "--preset", preset, "--seed", str(seed), *(["--steps", str(steps)] if steps else [])]
        self.folder, self.processes = folder, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for _, process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()

    def path(self, name):
        return os.path.join(self.folder, name)

    def start(self, group, rank, ranks):
        name = f"{group}.{rank}"
        with open(self.path(name + ".out"), "w") as out, open(self.path(name + ".err"), "w") as err:
            process = subprocess.Popen([PROGRAM, "--group", group, "--rank", str(rank), "--ranks", str(ranks), "--csv",
                                        self.path(group + ".csv"), *self.words], stdout=out, stderr=err)
        self.processes.append((name, process))
        return process

    def start_group(self, group, ranks=2):
        return [self.start(group, rank, ranks) for rank in range(ranks)]

    def text(self, name):
        with open(self.path(name)) as file:
            return file.read()

    def finish(self, limit_s=LIMIT_S):
        end = time.monotonic() + limit_s
        for name, process in self.processes:
            code = process.wait(max(0.1, end - time.monotonic()))
            assert code == 0, f"{name} ended with {code}: {self.text(name + '.err')}"

    def rows(self, group):
        with open(self.path(group + ".csv")) as file:
            return list(csv.DictReader(file))


def mean(rows):
    return sum(float(row["reward"]) for row in rows) / len(rows)


def rise(rows):
    """By how much the last twenty steps earn more than the first twenty. Twenty steps are 9,600 words: among so many chance
    stays within a hundredth of 1 / 16 at either end."""
    return mean(rows[-20:]) - mean(rows[:20])


def train(rate, steps=0, preset="small", groups=("g0", "g1"), ranks=2, limit_s=LIMIT_S):
    with tempfile.TemporaryDirectory() as folder, Server("--shards", "2", "--learning_rate", rate) as server:
        with Ranks(server.address, folder, preset, steps) as them:
            for group in groups:
                them.start_group(group, ranks)
            them.finish(limit_s)
            rows = [them.rows(group) for group in groups]
        assert server.close() == 0
    return rows


class Transformer(unittest.TestCase):
    def test_two_groups_of_two_ranks_earn_more_and_more(self):
        first = 0
        for rows in train("1e-3"):
            print(f"{rows[0]['group']}: reward {mean(rows[:20]):.3f} in the first 20 of {len(rows)} steps, {mean(rows[-20:]):.3f} in the "
                  f"last, {1000 * float(rows[-1]['seconds']) / len(rows):.0f} ms a step, version {rows[-1]['version']}")
            self.assertGreater(mean(rows[-20:]), CHANCE + 0.5)
            self.assertLess(sum(int(row["refused"]) for row in rows), len(rows) / 10)
            if int(rows[0]["version"]) < 10:  # whoever comes later finds a model that has learnt
                first += 1
                self.assertLess(abs(float(rows[0]["reward"]) - CHANCE), 0.06)
                self.assertGreater(rise(rows), 0.4)
        self.assertGreater(first, 0)

    def test_control_without_learning_nothing_rises(self):
        for rows in train("0", steps=45):
            self.assertLess(abs(rise(rows)), 0.02)

    def test_two_ranks_go_the_way_of_one(self):
        one, two = (self.undisturbed(ranks) for ranks in (1, 2))
        for alone, together in zip(one, two):
            self.assertEqual(alone["version"], together["version"])
            self.assertAlmostEqual(float(alone["reward"]), float(together["reward"]), delta=0.005)
            self.assertAlmostEqual(float(alone["loss"]), float(together["loss"]), delta=0.001)

    def undisturbed(self, ranks):
        """A run in which every pull brought what was pushed before it: else it depends on time what was sampled with what."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            rows = train("1e-3", steps=4, groups=("g",), ranks=ranks)[0]
            if all(int(row["staleness"]) == 0 for row in rows):
                return rows
        self.fail("in every run some pull was too early")

    def test_a_rank_that_dies_ends_its_group_by_name_and_all_go_on_when_started_again(self):
        with tempfile.TemporaryDirectory() as folder, Server("--shards", "2", "--learning_rate", "1e-3") as server:
            with Ranks(server.address, folder, steps=100000) as them:
                survivor, victim = them.start_group("g")
                self.until_step(them, 5)
                victim.send_signal(signal.SIGKILL)
                self.assertEqual(survivor.wait(HANG_S), 1)
                self.assertRegex(them.text("g.0.err"), "rank 1")
                reached = int(them.rows("g")[-1]["version"])
            with Ranks(server.address, folder, steps=5) as them:
                them.start_group("g")
                them.finish(HANG_S)
                self.assertGreaterEqual(int(them.rows("g")[0]["version"]), reached)
            self.assertEqual(server.close(), 0)

    def until_step(self, them, step):
        until(lambda: os.path.exists(them.path("g.csv")) and len(them.rows("g")) >= step)

    def test_what_makes_no_sense_is_refused_with_a_sentence(self):
        for words, code, sentence in ((["--ranks", "3"], 1, "4 heads cannot be cut"), (["--rank", "2", "--ranks", "2"], 2, "rank"),
                                      (["--preset", "huge"], 2, "--preset"), (["--steps"], 2, "--steps"),
                                      (["--seed", "x"], 2, "--seed")):
            run = subprocess.run([PROGRAM, "--preset", "small", *words], capture_output=True, text=True, timeout=HANG_S)
            self.assertEqual(run.returncode, code, words)
            self.assertIn(sentence, run.stderr)


def curve(name):
    """The whole of it, for the picture."""
    rows = train("1.5e-4", preset="full", limit_s=3600)
    with open(name + ".csv", "w") as file:
        writer = csv.DictWriter(file, rows[0][0].keys(), lineterminator="\n")
        writer.writeheader()
        for of_group in rows:
            writer.writerows(of_group)
            print(f"{of_group[0]['group']}: {mean(of_group[:20]):.3f} to {mean(of_group[-20:]):.3f}, "
                  f"{1000 * float(of_group[-1]['seconds']) / len(of_group):.0f} ms a step")
    plot = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench", "plot_reward.py")
    subprocess.run([sys.executable, plot, "--out", name + ".svg", "--chance", str(CHANCE), "--title",
                    "1.6 million parameters, two groups of two ranks, two shards", name + ".csv"], check=True)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--curve":
        curve(sys.argv[2])
    else:
        unittest.main(verbosity=2)
