"""Memory of a killed shard that somebody changed before the next process looked: it is not trained on."""
import os
import signal
import unittest

import library


class Distrust(unittest.TestCase):
    """Two shards of Adam. The last array of an arena is the second optimizer state; its blocks have 256 elements."""

    def setUp(self):
        self.server = library.Server("--shards", "2", "--supervise", "on", "--optimizer", "adam")
        self.addCleanup(self.server.__exit__)
        self.worker = library.Worker(self.server.address, "a").bind().offer()
        self.addCleanup(self.worker.close)
        for _ in range(3):
            self.worker.pull()
            self.worker.gradients[0][:] = [0.25] * 3000
            self.assertEqual(self.worker.push().verdict, 1)
        self.worker.pull_until(3)

    def arena(self, shard):
        folder = self.server.folder.name
        return os.path.join(folder, next(name for name in os.listdir(folder) if name.endswith(f"-shard-{shard}")))

    def flip(self, shard, before_the_end):
        with open(self.arena(shard), "r+b") as file:
            file.seek(-before_the_end, os.SEEK_END)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 0x10]))

    def kill_and_flip(self, *flips):
        pid = int(self.server.lines().split("shard 1 runs as process ")[-1].split()[0])
        os.kill(self.server.process.pid, signal.SIGSTOP)  # so that nobody comes back before the bits are flipped
        os.kill(pid, signal.SIGKILL)
        library.until(lambda: library.gone(pid))
        for before_the_end in flips:
            self.flip(1, before_the_end)
        os.kill(self.server.process.pid, signal.SIGCONT)

    def again(self, *settings):
        return library.Server("--shards", "2", "--supervise", "on", "--optimizer", "adam", "--arena_dir",
                              self.server.folder.name, *settings)

    def test_one_bit_is_refused_by_name_and_flipped_back_it_goes_on(self):
        self.kill_and_flip(1000)
        self.assertEqual(self.server.process.wait(library.HANG_S), 2)
        self.assertRegex(self.server.lines(), r"-shard-1: block 10 of optimizer state 2 \(tensor w\) is not what the killed "
                         r"process left there: .*It is not trained on. Remove the file to start anew")
        self.assertNotIn("shard 1 goes on in", self.server.lines())
        self.flip(1, 1000)
        with self.again() as server:
            library.until(lambda: "shard 1 goes on in" in server.lines())
            later = library.Worker(server.address, "b").bind()
            self.assertEqual(later.pull(), 3)
            later.close()

    def test_memory_that_nobody_touched_goes_on(self):
        self.kill_and_flip()
        library.until(lambda: "shard 1 goes on in" in self.server.lines())
        self.worker.pull()
        self.assertEqual(self.worker.push().verdict, 1)

    def test_who_says_off_takes_what_is_there(self):
        self.kill_and_flip(1000)
        self.assertEqual(self.server.process.wait(library.HANG_S), 2)
        with self.again("--arena_verify", "off") as server:
            library.until(lambda: "shard 1 goes on in" in server.lines())


if __name__ == "__main__":
    unittest.main()
