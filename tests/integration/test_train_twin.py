"""gradweir-train --device cuda as a whole where there is no GPU: its twin (tests/gpu/train_twin.c), whose GPU is this CPU, with real
servers. Gradients leave from the memory of that GPU, by whatever path, and train to the bits of those that pass by the host.

    GRADWEIR_BUILD=build python3 tests/integration/test_train_twin.py        # or: ctest --test-dir build -R ^train_twin
"""
import os
import re
import subprocess
import tempfile
import unittest

from library import BUILD

UNTIL = 60


class Twin(unittest.TestCase):
    def run_twin(self, *words, knows=True):
        env = dict(os.environ)
        env.pop("GRADWEIR_TWIN_UCX", None)
        if knows:
            env["GRADWEIR_TWIN_UCX"] = "1"
        return subprocess.run([os.path.join(BUILD, "train_twin"), "--device", "cuda", "--max-steps", "2500", "--evaluate", "0", *words],
                              capture_output=True, text=True, timeout=120, env=env)

    def digest(self, *words):
        """Of one version: which is the last, chance decides."""
        with tempfile.TemporaryDirectory() as folder:
            record = os.path.join(folder, "record")
            run = self.run_twin("--record", record, *words)
            self.assertEqual(run.returncode, 1, run.stdout + run.stderr)  # not solved, and nothing else
            replay = subprocess.run([os.path.join(BUILD, "gradweirctl"), "replay", record, "--until", str(UNTIL)],
                                    capture_output=True, text=True, timeout=60)
            found = re.search(r"version %d digest ([0-9a-f]{16})" % UNTIL, replay.stdout)
            self.assertTrue(found, replay.stdout + replay.stderr)
            return found.group(1)

    def test_gradients_from_gpu_memory_train_to_the_bits_of_those_that_pass_by_the_host(self):
        for codec, paths in (("float32", ("staging", "direct")), ("int8", ("direct",))):
            words = ("--gradient-dtype", codec)  # int8 with error feedback
            host = self.digest(*words, "--poison", "1000000000")
            for path in paths:
                self.assertEqual(self.digest(*words, "--memory-path", path), host, (codec, path))
        self.assertEqual(self.digest("--env-device", "cuda"), self.digest("--env-device", "cuda", "--poison", "1000000000"))

    def test_what_needs_the_host_passes_by_it(self):
        self.digest("--accumulate", "2", "--epochs", "8")

    def test_direct_is_not_replaced(self):
        for words, knows, reason in (((), False, "does not know CUDA memory"),
                                     (("--accumulate", "2"), True, "gradients pass through the host"),
                                     (("--device", "cpu"), True, "floats are in host memory with --device cpu")):
            run = self.run_twin("--memory-path", "direct", *words, knows=knows)
            self.assertEqual(run.returncode, 2)
            self.assertIn(reason, run.stdout + run.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
