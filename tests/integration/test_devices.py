"""What computes for a shard: --device. Real servers, the real library. Where there is no GPU, `cuda` is the processor in a GPU's
clothes: pinned_server (tests/unit/device_pinned.c) works on its own memory and on what is pinned, and can be lost; twin_server is
the GPU's own C code on a CUDA runtime that is the processor (tests/gpu/runtime_host.h), whose memory nobody else can touch.

    GRADWEIR_BUILD=build python3 tests/integration/test_devices.py       # or: ctest --test-dir build -R ^devices
"""
import json
import os
import random
import re
import subprocess
import tempfile
import time
import unittest

from library import BUILD, HANG_S, READER, VERDICTS, Failed, Server, Worker, until

SIZES = (("a", 70001), ("b", 3), ("c", 70000))
PINNED = {"program": os.path.join("tests", "pinned_server")}
TWIN = {"program": os.path.join("tests", "twin_server")}
if not os.path.exists(os.path.join(BUILD, TWIN["program"])):  # a build without CUDA
    TWIN = PINNED
RESIDENT, MAPPED = ("--device", "cuda", "--device_memory", "resident"), ("--device", "cuda", "--device_memory", "mapped")
SUPERVISED = ("--supervise", "--arena_verify", "resume", "--shards", "2")
RULES = (("--optimizer", "adam", "--learning-rate", "0.01", "--window", "1", "--stride", "1"),
         ("--optimizer", "lamb", "--learning-rate", "0.01", "--window", "2", "--stride", "1"),
         ("--optimizer", "momentum", "--learning-rate", "0.01", "--window", "3", "--gradient-dtype", "int8"),
         ("--optimizer", "adamw", "--learning-rate", "0.01", "--window", "4", "--stride", "1", "--window_algorithm", "stacks"),
         ("--optimizer", "lamb", "--learning-rate", "0.01", "--window", "5", "--stride", "2", "--window_algorithm", "stacks"),
         ("--optimizer", "sgd", "--learning-rate", "0.1", "--clip_average", "0.5", "--gradient-dtype", "bfloat16"))


class Patient(Worker):
    """Waits as long as its server lives, and not for one that has ended to come back."""

    def __init__(self, server, **how):
        self.server = server
        super().__init__(server.address, "w", SIZES, **how)

    def wait(self, ticket, timeout_ms=1000 * HANG_S):
        end = time.monotonic() + timeout_ms / 1000
        while True:
            try:
                return super().wait(ticket, 500)
            except Failed:
                if self.server.process.poll() is not None or time.monotonic() > end:
                    raise


def train(server, steps=8, digests=None):
    chance = random.Random(7)
    worker = Patient(server).bind()
    for parameters in worker.parameters:
        parameters[:] = chance.choices((-1.5, 0.25, 1, 3), k=len(parameters))
    worker.offer()
    worker.pull()
    for step in range(steps):
        for gradient in worker.gradients:
            gradient[:] = [x * (1 + step) / 64 for x in chance.choices((-3, -1, 0, 2, 5), k=len(gradient))]
        receipt = worker.push(4)
        if VERDICTS[receipt.verdict] != "ADMITTED":
            raise AssertionError(VERDICTS[receipt.verdict])
        worker.pull_until(step + 1)
        if digests is not None:
            digests[step + 1] = worker.digest()
    version, digest = worker.pull(), worker.digest()
    worker.close()
    return version, digest


def used(server):
    """Where shards say on the status page that their device's floats are."""
    reader = Worker(server.address, "status", SIZES, role=READER)
    shards = until(lambda: [s for s in json.loads(reader.status())["shards"] if s["transport"] != ""])
    reader.close()
    return {shard["device_memory"] for shard in shards} - {"none"}


class Clothed(unittest.TestCase):
    def test_a_device_gives_the_bits_of_the_cpu_wherever_it_works(self):
        for rule in RULES:
            with Server(*rule) as server:
                expected = train(server)
                self.assertEqual(server.close(), 0)
            for words, program, where in ((MAPPED, PINNED, "in pinned memory"), (RESIDENT, TWIN, "MiB of its memory"),
                                          ((*RESIDENT, *SUPERVISED), PINNED, "the arena follows each tile"),
                                          ((*MAPPED, *SUPERVISED), TWIN, "in pinned memory")):
                with Server(*rule, *words, **program) as server:
                    self.assertEqual(train(server), expected, (rule, words))
                    self.assertEqual(used(server), set(words) & {"resident", "mapped"})
                    self.assertIn(where, server.lines())
                    self.assertEqual(server.close(), 0)

    def test_memory_that_does_not_suffice_is_done_without_or_said(self):
        small = {"environment": {"PINNED_MEMORY_MAX": "1000"}, **PINNED}
        with Server(*RULES[0], "--device", "cuda", **small) as server:
            train(server)
            self.assertRegex(server.lines(), "in pinned memory, not in its own .* are more than it has")
            self.assertEqual(server.close(), 0)
        with Server(*RULES[0], *RESIDENT, **small) as server:

            def tells_its_layout():  # whose server ends at that, and bind waits for it as long as it may
                with self.assertRaises(Failed):
                    worker = Patient(server, timeout_ms=3000)
                    try:
                        worker.bind().offer(1000)
                    finally:
                        worker.close()
                return server.process.poll()  # 0 is not what is waited for
            until(tells_its_layout)
            self.assertIn("shard 0: cuda: ", server.lines())

    def test_a_lost_device_ends_the_server_with_its_reason(self):
        with Server(*RULES[0], "--device", "cuda", environment={"PINNED_JOBS_GOOD": "5"}, **PINNED) as server:
            worker = Patient(server).bind().offer()
            with self.assertRaises(Failed):
                for _ in range(50):
                    worker.pull()
                    worker.push()
            self.assertNotEqual(server.process.wait(HANG_S), 0)
            self.assertIn("shard 0: cuda: a job: the device is lost", server.lines())
            worker.close()

    def test_the_arena_outlives_a_lost_device_so_who_starts_again_goes_on_in_it(self):
        digests = {}
        with Server(*RULES[0]) as server:
            train(server, digests=digests)
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            kept = (*RULES[0], *RESIDENT, "--supervise", "--arena_dir", folder)
            with Server(*kept, environment={"PINNED_JOBS_GOOD": "26"}, **PINNED) as server:
                with self.assertRaises(Failed):
                    train(server)
                self.assertNotEqual(server.process.wait(HANG_S), 0)
                self.assertIn("the device is lost", server.lines())
            with Server(*kept, **PINNED) as server:
                reader = Worker(server.address, "r", SIZES, role=READER).bind()
                version = reader.pull()
                self.assertGreater(version, 2)
                self.assertEqual(reader.digest(), digests[version])
                reader.close()
                self.assertEqual(server.close(), 0)


class Here(unittest.TestCase):
    def refused(self, *arguments):
        run = subprocess.run([os.path.join(BUILD, "gradweir-server"), "--listen", "127.0.0.1:0", *arguments], capture_output=True,
                             text=True, timeout=30)  # it runs where there is a GPU
        self.assertNotEqual(run.returncode, 0)
        self.assertGreater(run.returncode, 0, "a signal")
        return run.stdout + run.stderr

    def test_what_does_not_go_together_is_named(self):
        self.assertIn("gpu is given, but device is cpu", self.refused("--gpu", "1"))
        self.assertIn("device_memory is given, but device is cpu", self.refused("--device_memory", "mapped"))
        self.assertRegex(self.refused("--device", "abacus"), "device")

    def test_a_machine_or_build_without_a_gpu_says_so(self):
        try:
            text = self.refused("--device", "cuda")
        except subprocess.TimeoutExpired:
            print("SKIPPED: this machine has a GPU", flush=True)
            return
        self.assertTrue(re.search("no NVIDIA driver|built without it|newer driver", text), text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
