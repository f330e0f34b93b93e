"""Arrays in a device's memory: real servers, the real library, and a worker (far_worker.c) whose device memory nobody can touch
but the device's own copies.

    GRADWEIR_BUILD=build python3 tests/integration/test_memory.py        # or: ctest --test-dir build -R ^memory_far
"""
import json
import os
import subprocess
import time
import unittest

from library import BUILD, HANG_S, Failed, Options, Server, Worker, c, check, lib

CODECS = ("float32", "bfloat16", "float16", "int8")
ADAM = ("--optimizer", "adam", "--learning-rate", "0.01", "--window", "1", "--stride", "1")
HOST, CUDA, AUTO = 0, 1, 2


def far_worker(server, place, steps, *more, wait=2 * HANG_S):
    program = os.path.join(BUILD, "tests", "far_worker")
    run = subprocess.run([program, server.address, place, str(steps), *map(str, more)], capture_output=True, text=True,
                         timeout=wait)
    return run.returncode, json.loads(run.stdout) if run.stdout else {}, run.stderr


class Memory(unittest.TestCase):
    def trained(self, place, codec, *arguments):
        with Server(*ADAM, "--gradient-dtype", codec, *arguments) as server:
            code, told, errors = far_worker(server, place, 7)
            self.assertEqual(code, 0, (told, errors))
            self.assertEqual((told["version"], told["box"], told["rest"], told["unpinned"]), (7, 1, 1, 0))
            report = {"host": {}, "direct": {"memory_direct": 1}}.get(place, {"memory_staging": 1})
            self.assertEqual(told["status"]["workers"][0]["report"], report)
            self.assertEqual(server.close(), 0)
        return told

    def test_far_arrays_train_to_the_bits_of_host_arrays_in_every_codec(self):
        for codec in CODECS:
            host = self.trained("host", codec)
            self.assertEqual(host["copies"], 0)
            self.assertEqual(host["status"]["this_client"], {"memory_path": "host", "memory": "host"})
            for place in ("far", "mixed"):
                far = self.trained(place, codec, "--shards", "2")
                self.assertEqual(far["digest"], host["digest"], (codec, place))
                self.assertGreater(far["copies"], 7)
                self.assertEqual(far["status"]["this_client"]["memory_path"], "staging")
                self.assertIn("far 0 by staging, a pinned ring of 1536 KiB; UCX", far["status"]["this_client"]["memory"])
                self.assertIn("memory: far 0 by staging", far["describe"])

    def test_pushes_that_are_made_in_device_memory_train_to_the_bits_of_host_arrays(self):
        for codec, shards in (("float32", 1), ("bfloat16", 2), ("float16", 2), ("int8", 3)):
            host = self.trained("host", codec)
            direct = self.trained("direct", codec, "--shards", str(shards))
            self.assertEqual(direct["digest"], host["digest"], codec)
            # Of seven pushes two were accumulated, by the host; the others were made and sent where their floats lie.
            self.assertEqual(direct["encoded"], 5 * 563900)
            bytes_each = {"float32": 4, "int8": 260 / 256}.get(codec, 2)
            self.assertAlmostEqual(direct["sent"] / direct["encoded"], bytes_each, places=3)
            self.assertEqual(direct["status"]["this_client"]["memory_path"], "direct")
            self.assertIn("far 0 directly: pushes are made and sent in its memory", direct["describe"])

    def test_a_device_that_is_lost_is_told_at_once_and_the_servers_go_on(self):
        for good, place in ((1, "far"), (3, "far"), (9, "far"), (20, "far"), (31, "far"), (5, "direct"), (12, "direct"), (13, "direct")):
            with Server(*ADAM, "--place-patience", "1s") as server:
                begin = time.monotonic()
                code, told, errors = far_worker(server, place, 1000, good)
                self.assertEqual(code, 1, errors)
                self.assertEqual(told.get("reason"), "far: the device is lost", told)
                self.assertLess(time.monotonic() - begin, HANG_S)
                code, told, errors = far_worker(server, "host", 1) if good == 1 else (0, {}, "")
                self.assertEqual(code, 0, (told, errors))
                self.assertEqual(server.close(), 0)


class Here(unittest.TestCase):
    """The library itself, with whatever GPU support it has, on a machine that may have no GPU."""

    def opened(self, **fields):
        options, client = Options(), c.c_void_p()
        lib.gradweir_options_default_sized(c.byref(options), c.c_size_t(c.sizeof(options)))
        options.address, options.connect_timeout_ms = b"127.0.0.1:1", 300
        for name, value in fields.items():
            setattr(options, name, value)
        check(lib.gradweir_open(c.byref(options), c.byref(client)))

    def test_options_that_make_no_sense_are_named(self):
        for fields, part in (({"memory": 3}, "options.memory is 3"), ({"memory": CUDA, "memory_path": 3}, "memory_path is 3"),
                             ({"memory_path": 1}, "options.memory is host"), ({"gpu": 1}, "options.memory is host"),
                             ({"memory": AUTO, "staging_bytes": 1000}, "staging_bytes is 1000")):
            with self.assertRaises(Failed) as failed:
                self.opened(**fields)
            self.assertEqual(failed.exception.status, -1)
            self.assertIn(part, str(failed.exception))

    def test_cuda_where_there_is_none_is_told_before_anybody_waits_for_a_server(self):
        with self.assertRaises(Failed) as failed:
            self.opened(memory=CUDA)
        if failed.exception.status == -3:
            print("SKIPPED: this machine has a GPU", flush=True)
            return
        self.assertEqual(failed.exception.status, -14, failed.exception)
        self.assertRegex(str(failed.exception), "no NVIDIA driver|built without CUDA|newer driver")
        with self.assertRaises(Failed) as failed:
            self.opened(memory=AUTO)
        self.assertEqual(failed.exception.status, -3)

    def test_memory_that_cannot_be_read_is_refused_at_bind(self):
        with Server(*ADAM) as server:
            worker = Worker(server.address, "w")
            worker.gradients = [c.c_void_p(4096)]
            with self.assertRaises(Failed) as failed:
                worker.bind()
            self.assertIn("tensor w: its gradients are at 0x1000", str(failed.exception))
            worker.close()


if __name__ == "__main__":
    unittest.main(verbosity=2)
