"""LAMB over shards: every step has a round in which the shards' sums make a trust ratio for each tensor."""
import math
import os
import subprocess
import tempfile
import unittest

from library import BUILD, HANG_S, VERDICTS, Server, Worker

SIZES = (("a", 40), ("b", 70000), ("c", 1), ("d", 30000))  # tensors within a block, over block and shard borders
RATE, DECAY, EPS, BETA1, BETA2 = 0.01, 0.1, 1e-6, 0.9, 0.999
LAMB = ("--optimizer", "lamb", "--learning-rate", str(RATE), "--weight-decay", str(DECAY), "--eps", str(EPS))


def first(size, k):
    return math.sin(k * 0.37 + size)


class Lamb(unittest.TestCase):
    def train(self, shards, *arguments, steps=8):
        """The parameters after each step, some elements of each tensor; and the last digest."""
        seen = []
        with Server("--shards", str(shards), *LAMB, *arguments) as server:
            worker = Worker(server.address, "lamb", sizes=SIZES).bind()
            for parameters in worker.parameters:
                for k in range(len(parameters)):
                    parameters[k] = first(len(parameters), k)
            worker.offer().pull()
            for step in range(steps):
                for gradient in worker.gradients:
                    for k in range(len(gradient)):
                        gradient[k] = math.cos(k * (step + 1) * 0.11)
                self.assertEqual(VERDICTS[worker.push().verdict], "ADMITTED")
                worker.pull_until(step + 1)
                seen.append([list(parameters[:40]) for parameters in worker.parameters])
            digest = worker.digest()
            worker.close()
            self.assertEqual(server.close(), 0)
        return seen, digest

    def test_the_first_step_is_that_of_the_formula(self):
        seen, _ = self.train(2, steps=1)
        for (_, size), parameters in zip(SIZES, seen[0]):
            theta = [first(size, k) for k in range(size)]
            update = []
            for k in range(size):
                g = math.cos(k * 0.11)
                m, v = (1 - BETA1) * g, (1 - BETA2) * g * g
                update.append(m / (1 - BETA1) / (math.sqrt(v / (1 - BETA2)) + EPS) + DECAY * theta[k])
            ratio = math.sqrt(sum(x * x for x in theta) / sum(x * x for x in update))
            for k, parameter in enumerate(parameters):
                self.assertAlmostEqual(parameter, theta[k] - RATE * ratio * update[k], places=5)

    def test_any_number_of_shards_gives_the_same_bits_and_so_does_replay(self):
        with tempfile.TemporaryDirectory() as folder:
            record = os.path.join(folder, "run")
            _, digest = self.train(2, "--record", record)
            for shards in (1, 3):
                self.assertEqual(self.train(shards)[1], digest, f"{shards} shards")
            for shards in ("1", "2", "3"):
                for simd in ("scalar", "auto"):
                    told = subprocess.run([os.path.join(BUILD, "gradweir-server"), "replay", record, "--shards", shards,
                                           "--simd", simd], capture_output=True, text=True, timeout=HANG_S)
                    self.assertEqual(told.returncode, 0, told.stderr)
                    self.assertIn(f"digest {digest}", told.stdout)

    def test_more_tensors_than_it_can_step_are_refused_by_number(self):
        from library import Failed
        with Server("--shards", "2", *LAMB) as server:
            with self.assertRaises(Failed) as caught:
                Worker(server.address, "many", sizes=[(f"t{i}", 2) for i in range(1025)]).bind()
            self.assertIn("at most 1024 tensors; these are 1025", str(caught.exception))
            fewer = Worker(server.address, "fewer", sizes=[(f"t{i}", 2) for i in range(1024)]).bind().offer()
            fewer.pull()
            fewer.gradients[5][1] = 1.0
            self.assertEqual(VERDICTS[fewer.push().verdict], "ADMITTED")
            fewer.pull_until(1)
            fewer.close()


if __name__ == "__main__":
    unittest.main()
