"""gradweir-train --device where there is no such device: one sentence that says what to do, the right exit status, soon, and
no process left behind. Where there is a GPU, the GPUs that it has not."""
import json
import os
import subprocess
import tempfile
import time
import unittest

import library

HAS_DRIVER = os.path.exists("/proc/driver/nvidia") or os.path.exists("/dev/nvidiactl")
NO_CUDA = "this build has no CUDA; build with -DGRADWEIR_CUDA=ON"
NO_DRIVER = "this machine has no NVIDIA driver (libcuda); install it"
NO_GPU = "this machine has no NVIDIA GPU"


def train(*arguments, **environment):
    start = time.monotonic()
    done = subprocess.run([os.path.join(library.BUILD, "gradweir-train"), "--max-steps", "1024", "--evaluate", "0", *arguments],
                          capture_output=True, text=True, timeout=library.HANG_S, env={**os.environ, **environment})
    return done.returncode, done.stdout, done.stderr, time.monotonic() - start


def builds_cuda():
    return NO_CUDA not in train("--local", "--device", "cuda:255")[2]


class Device(unittest.TestCase):
    def refused(self, parts, *arguments, **environment):
        code, out, err, seconds = train(*arguments, **environment)
        self.assertEqual((code, out), (2, ""), err)
        self.assertLess(seconds, library.HANG_S / 2)
        self.assertEqual(err.count("\n"), 1, err)
        self.assertTrue(any(part in err for part in parts), err)

    def test_a_gpu_that_is_not_there_is_told_before_anything_starts(self):
        parts = ["there is no GPU 255"] if HAS_DRIVER else [NO_CUDA, NO_DRIVER, NO_GPU]
        for more in (("--local",), (), ("--workers", "2"), ("--servers", "127.0.0.1:1"), ("--env-device", "cuda")):
            self.refused(parts if builds_cuda() or not HAS_DRIVER else [NO_CUDA], "--device", "cuda:255", *more)

    def test_what_is_no_device_is_named(self):
        self.refused(["tpu: unknown device; it is cpu, cuda, or cuda:N"], "--device", "tpu")
        self.refused(["from 0 to 255"], "--device", "cuda:one")
        self.refused(["environments on cuda: they are stepped on the cpu, or on the GPU that computes"], "--env-device", "cuda")

    def test_a_worker_that_finds_no_gpu_says_so_to_its_run(self):
        """What the run's own look cannot tell, its workers do: here the worker is started by itself."""
        if HAS_DRIVER and builds_cuda():
            self.skipTest("the GPU would be found")
        with library.Server() as server:
            code, _, err, seconds = train("--worker", "1", "--channel", "0", "--servers", server.address, "--device", "cuda")
        self.assertEqual(code, 2, err)
        self.assertTrue(any(part in err for part in (NO_CUDA, NO_DRIVER, NO_GPU)), err)
        self.assertLess(seconds, library.HANG_S / 2)

    def test_the_cpu_needs_no_driver_and_is_what_the_summary_names(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "summary.json")
            code, _, err, _ = train("--local", "--device", "cpu", "--json", path, CUDA_VISIBLE_DEVICES="")
            with open(path) as file:
                summary = json.load(file)
        self.assertEqual(code, 1, err)
        self.assertEqual((summary["device"], summary["env_device"]), ("cpu", "cpu"))


class Libraries(unittest.TestCase):
    def test_programs_start_without_libcuda_and_cublas(self):
        """Neither is among the libraries that the loader must find."""
        for name in ("gradweir-train", "libgradweir.so", "gradweir-server"):
            told = subprocess.run(["readelf", "-d", os.path.join(library.BUILD, name)], capture_output=True, text=True, check=True)
            needed = [line for line in told.stdout.splitlines() if "(NEEDED)" in line]
            self.assertTrue(needed)
            self.assertFalse([line for line in needed if "cuda" in line or "cublas" in line], needed)


if __name__ == "__main__":
    unittest.main()
