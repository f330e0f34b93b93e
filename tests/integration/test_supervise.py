"""The supervising parent: what is started again, what is not, and what goes along when it ends."""
import os
import re
import signal
import subprocess
import time
import unittest

import library


class Supervise(unittest.TestCase):
    def setUp(self):
        self.server = library.Server("--shards", "2", "--supervise", "on", "--optimizer", "adam")
        self.addCleanup(self.server.__exit__)
        self.assertIsNotNone(self.server.address)

    def pids(self, name):
        return [int(pid) for pid in re.findall(rf"{name} runs as process (\d+)", self.server.lines())]

    def train(self):
        worker = library.Worker(self.server.address, "a").bind().offer()
        self.addCleanup(worker.close)
        for _ in range(3):
            worker.pull()
            self.assertEqual(worker.push().verdict, 1)
        return worker

    def arenas(self):
        return sorted(name for name in os.listdir(self.server.folder.name) if "shard" in name)

    def test_a_killed_shard_goes_on_in_its_memory(self):
        self.train()
        before = self.pids("shard 1")
        self.assertEqual(len(self.arenas()), 2)
        os.kill(before[-1], signal.SIGKILL)
        library.until(lambda: len(self.pids("shard 1")) == 2)
        line = library.until(lambda: re.search(r"shard 1 goes on in \S*-shard-1: log index (\d+), version (\d+)",
                                       self.server.lines()))
        self.assertGreaterEqual(int(line.group(2)), 2)
        for part in (" info  coordinator/control: listening on ", " info  shard 1/memory: shard 1 goes on "):
            self.assertIn(part, self.server.lines())

    def test_five_crashes_end_it_with_a_reason_and_the_memory_stays(self):
        self.train()
        for number in range(1, 6):
            pid = library.until(lambda: (self.pids("shard 0") + [0] * 9)[number - 1])
            library.until(lambda: "-shard-0: log index" in self.server.lines() or number == 1)
            os.kill(pid, signal.SIGSEGV)
            library.until(lambda: library.gone(pid))
        self.assertEqual(self.server.process.wait(library.HANG_S), 2)
        self.assertIn("shard 0 crashed 5 times within 60 s, the last time by signal 11", self.server.lines())
        self.assertEqual(len(self.arenas()), 2)
        self.assertIn("shard 1 ended by signal 9 (Killed): the job ends, nothing is started again", self.server.lines())
        self.assertRegex(self.server.lines(), r"shard 0 ended by signal 11 \([^)]*\): again in \d+ ms")

    def test_the_job_s_end_ends_all_and_leaves_no_memory(self):
        worker = self.train()
        worker.close()
        pids = [self.pids(name)[-1] for name in ("coordinator", "shard 0", "shard 1")]
        self.server.process.terminate()
        self.assertEqual(self.server.process.wait(library.HANG_S), 0)
        for pid in pids:
            self.assertTrue(library.gone(pid))
        self.assertEqual(self.arenas(), [])

    def test_a_shard_killed_just_before_the_end_gives_its_memory_up_too(self):
        """Before it is started again, while it is, and when it is there again but has no handlers yet."""
        self.train().close()
        for name, pause in (("shard 1", 0), ("shard 1", 0.002), ("shard 0", 0.02)):
            with self.subTest(name=name, pause=pause):
                os.kill(self.pids(name)[-1], signal.SIGKILL)
                time.sleep(pause)
                self.server.process.terminate()
                self.assertEqual(self.server.process.wait(library.HANG_S), 0, self.server.lines())
                self.assertEqual(self.arenas(), [])
                self.assertNotIn("nothing is started again", self.server.lines())
            self.server.__exit__()
            self.setUp()
            self.train().close()

    def test_a_killed_parent_takes_its_children_along_and_leaves_the_memory(self):
        self.train()
        pids = [self.pids(name)[-1] for name in ("coordinator", "shard 0", "shard 1")]
        self.server.process.kill()
        self.server.process.wait()
        for pid in pids:
            library.until(lambda: library.gone(pid))
        self.assertEqual(len(self.arenas()), 2)


class Refusals(unittest.TestCase):
    def run_server(self, *arguments):
        return subprocess.run([os.path.join(library.BUILD, "gradweir-server"), "--listen", "127.0.0.1:0", "--supervise",
                               "on", *arguments], capture_output=True, text=True, timeout=library.HANG_S)

    def test_wrong_settings_are_said_once_and_end_it(self):
        done = self.run_server("--window", "4", "--window_max", "2")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(len(re.findall("runs as process", done.stderr)), 1)
        self.assertIn("window_max is 2", done.stderr)

    def test_pieces_that_would_cut_a_float_are_refused_before_anybody_comes(self):
        done = self.run_server("--chunk_bytes", "12345")
        self.assertEqual(done.returncode, 2)
        self.assertIn("chunk_bytes is 12345: a multiple of 4 is wanted", done.stderr)

    def test_a_coordinator_without_shards_of_its_own_keeps_the_port_it_found(self):
        with library.Server("--supervise", "on", "--shards_elsewhere", "on", "--shards", "2") as server:
            (pid,) = re.findall(r"coordinator runs as process (\d+)", server.lines())
            os.kill(int(pid), signal.SIGKILL)
            ports = library.until(lambda: (re.findall(r"listening on \S*:(\d+)", server.lines()) + [0])[:2][1])
            self.assertEqual(int(ports), int(server.address.rpartition(":")[2]))
            server.process.terminate()
            self.assertEqual(server.process.wait(library.HANG_S), 0)

    def test_memory_of_another_run_is_refused_by_name(self):
        with library.Server("--supervise", "on", "--optimizer", "adam") as server:
            worker = library.Worker(server.address, "a").bind().offer()
            worker.close()
            server.process.kill()
            server.process.wait()
            done = self.run_server("--optimizer", "sgd", "--arena_dir", server.folder.name)
            self.assertEqual(done.returncode, 2)
            self.assertRegex(done.stderr, r"-shard-0: the arena was laid out for another optimizer.*remove the file")

    def test_a_second_job_of_one_name_is_told_to_have_its_own(self):
        with library.Server("--supervise", "on") as first, \
             library.Server("--supervise", "on", "--arena_dir", first.folder.name) as second:
            worker = library.Worker(first.address, "a").bind().offer()
            def ended():  # its shards look at the memory when a worker tells them of the model
                with self.assertRaises(library.Failed):
                    library.Worker(second.address, "a", timeout_ms=1000).bind().offer()
                return second.process.poll() is not None
            library.until(ended)
            self.assertEqual(second.process.returncode, 2)
            later = self.run_server("--optimizer", "adam", "--shards", "2", "--arena_dir", first.folder.name)
            self.assertEqual(later.returncode, 2)
            for told in (second.lines(), later.stderr):
                self.assertIn("-shard-0: another process has it: give each job its own --job", told)
                self.assertNotIn("emove", told)
            worker.pull()
            self.assertEqual(worker.push().verdict, 1, "the first job goes on")
            worker.close()
            with library.Server("--supervise", "on", "--arena_dir", first.folder.name, "--job", "other") as third:
                library.Worker(third.address, "a").bind().offer().close()


if __name__ == "__main__":
    unittest.main()
