"""A recorded run again: equal to what the run itself had, on any shards and instructions; without a worker; and what is
damaged, cut or full, each with its answer."""
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest

from library import BUILD
from recorded import WORKERS, Run

VERSIONS = 300


def run(*arguments):
    return subprocess.run([os.path.join(BUILD, arguments[0]), *arguments[1:]], capture_output=True, text=True, timeout=120)


def digests_of(text):
    return {int(version): digest for version, digest in re.findall(r"^version (\d+) digest ([0-9a-f]{16})$", text, re.M)}


class Recorded(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = os.path.join(cls.temporary.name, "run")
        cls.recorded = Run(cls.folder, VERSIONS)

    def replay(self, *arguments, folder=None, code=0):
        told = run("gradweirctl", "replay", folder or self.folder, *arguments)
        self.assertEqual(told.returncode, code, told.stdout + told.stderr)
        return told

    def copy(self):
        folder = os.path.join(self.temporary.name, self._testMethodName)
        shutil.copytree(self.folder, folder)
        return folder


class Repeats(Recorded):
    def test_the_run_had_every_turn_and_no_fault(self):
        self.assertEqual((self.recorded.faults, self.recorded.has_every_turn(), self.recorded.closed), ([], "", 0))
        self.assertGreaterEqual(self.recorded.version, VERSIONS)

    def test_every_version_that_was_pulled_has_the_digest_that_replay_gives(self):
        told = digests_of(self.replay("--every", "1").stdout)
        self.assertEqual(sorted(told), list(range(1, self.recorded.version + 1)))
        pulled = {version: digest for version, digest in self.recorded.digests.items() if version > 0}
        self.assertGreater(len(pulled), VERSIONS // 10)
        self.assertEqual(pulled, {version: told[version] for version in pulled})
        self.assertEqual(len(set(told.values())), len(told), "each version is another")

    def test_every_100th_version_is_the_same_on_1_2_and_3_shards_and_any_instructions(self):
        first = None
        for shards in ("1", "2", "3"):
            for simd in ("scalar", "auto"):
                told = self.replay("--every", "100", "--shards", shards, "--simd", simd).stdout
                self.assertEqual(list(digests_of(told)), list(range(100, self.recorded.version + 1, 100)))
                first = first or digests_of(told)
                self.assertEqual(digests_of(told), first, f"{shards} shards, {simd}")
                self.assertIn(f"version {self.recorded.version} digest {self.recorded.digest}\n", told)

    def test_until_is_that_version_and_one_that_is_not_there_is_said(self):
        every = digests_of(self.replay("--every", "50").stdout)
        for version, digest in every.items():
            self.assertIn(f"version {version} digest {digest}", self.replay("--until", str(version), "--shards", "2").stdout)
        told = self.replay("--until", str(self.recorded.version + 1), code=1)
        self.assertIn(f"ends at version {self.recorded.version}", told.stderr)

    def without(self, identity, shards):
        path = os.path.join(self.temporary.name, "result.json")
        told = self.replay("--without", identity, "--shards", shards, "--json", path).stdout
        with open(path) as file:
            return told, json.load(file)

    def test_without_a_worker_it_differs_and_says_what_was_left_out(self):
        seen = {self.recorded.digest}
        for i in range(WORKERS):
            told, result = self.without(f"worker-{i}", "1")
            without = result["without"]
            self.assertNotIn(result["digest"], seen, "every worker's absence shows, and each is another")
            seen.add(result["digest"])
            self.assertEqual((without["digest_of_run"], without["differs"]), (self.recorded.digest, True))
            self.assertEqual(without["gradients"], self.recorded.heard[i].count("ADMITTED"))
            self.assertGreater(without["steps_changed"] + without["steps_emptied"], 0)
            self.assertIn(f"left out {without['gradients']} of {result['admitted']} gradients", told)
            self.assertIn("they differ", told)
            self.assertEqual(self.without(f"worker-{i}", "3")[1]["digest"], result["digest"])

    def test_a_worker_that_was_not_there_is_answered_with_those_that_were(self):
        told = self.replay("--without", "worker-7", code=2)
        for part in ("worker-7", *(f"worker-{i}" for i in range(WORKERS))):
            self.assertIn(part, told.stderr)


class Damaged(Recorded):
    def cut(self, path, keep):
        os.truncate(path, int(os.path.getsize(path) * keep))

    def flip(self, path, place):
        with open(path, "r+b") as file:
            file.seek(int(os.path.getsize(path) * place))
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 1]))

    def test_a_recording_of_a_killed_process_goes_as_far_as_it_can_and_says_which_file_ends(self):
        every = digests_of(self.replay("--every", "1").stdout)
        for name in ("shard-1.bodies", "shard-0.bodies", "log.records"):
            folder = self.copy()
            self.cut(os.path.join(folder, name), 0.5)
            told = self.replay("--shards", "3", folder=folder, code=3).stdout
            version, digest = re.search(r"version (\d+) digest ([0-9a-f]{16})", told).groups()
            self.assertTrue(20 < int(version) < self.recorded.version, told)
            self.assertEqual(digest, every[int(version)])
            self.assertIn(f"{name} ends here", told)
            shutil.rmtree(folder)

    def test_a_flipped_bit_is_named_and_ends_with_1(self):
        for name, words in (("log.records", "the record at byte"), ("shard-0.bodies", "wrong checksum"),
                            ("layout.model", "layout.model")):
            folder = self.copy()
            self.flip(os.path.join(folder, name), 0.4)
            told = self.replay(folder=folder, code=1)
            self.assertRegex(told.stderr, words)
            shutil.rmtree(folder)

    def test_what_is_no_recording_is_named(self):
        folder = self.copy()
        for name, words in (("shard-1.bodies", "shard-1.bodies"), ("log.records", "log.records"),
                            ("layout.model", "layout.model")):
            os.remove(os.path.join(folder, name))
            told = self.replay(folder=folder, code=1)
            self.assertIn(words, told.stderr)
            self.assertIn("No such file", told.stderr)
        self.assertIn("/nowhere", self.replay(folder="/nowhere", code=1).stderr)


class Full(unittest.TestCase):
    bound = 4 << 20

    def test_a_recording_is_bounded_and_says_so_and_what_is_there_replays(self):
        with tempfile.TemporaryDirectory() as temporary:
            folder = os.path.join(temporary, "run")
            full = Run(folder, 100, ("--record-bytes-max", str(self.bound)))
            self.assertEqual((full.faults, full.closed), ([], 3), "the run goes on, and the server says so")
            self.assertGreaterEqual(full.version, 100)
            sizes = sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder))
            self.assertLessEqual(sizes, self.bound + 4096)
            self.assertGreater(sizes, self.bound // 2)
            self.assertEqual(len(re.findall(r"warn.*shard-\d.bodies has used up its part of record_bytes_max", full.log)), 2,
                             "once per file: " + full.log[-2000:])
            told = run("gradweirctl", "replay", folder, "--every", "1", "--shards", "3")
            self.assertEqual(told.returncode, 3, told.stderr)
            self.assertRegex(told.stdout, r"shard-\d.bodies reached its part of record_bytes_max")
            every = digests_of(told.stdout)
            self.assertTrue(5 < max(every) < full.version)
            pulled = {version: digest for version, digest in full.digests.items() if version in every}
            self.assertGreater(len(pulled), 3)
            self.assertEqual(pulled, {version: every[version] for version in pulled})


if __name__ == "__main__":
    unittest.main(verbosity=2)
