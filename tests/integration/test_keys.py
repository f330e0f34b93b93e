"""Whole processes with keys: who has one comes in under its own name, and nobody else does."""
import json
import os
import shutil
import stat
import subprocess
import tempfile
import time
import unittest

from library import BUILD, HANG_S, READER, VERDICTS, Failed, Port, Server, Worker

UNREACHABLE, REFUSED, INVALID = -3, -7, -1


def run(*arguments, timeout=HANG_S):
    return subprocess.run([os.path.join(BUILD, arguments[0]), *arguments[1:]], capture_output=True, text=True,
                          timeout=timeout)


def keygen(folder, *names):
    made = run("gradweir-server", "keygen", folder, *names)
    assert made.returncode == 0, made.stderr
    return folder


class WithKeys(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.keys = keygen(os.path.join(self.folder, "keys"), "server", "worker-0", "worker-1", "shard-0", "shard-1")

    def server(self, *arguments, **options):
        return self.enterContext(Server("--shards", "2", "--optimizer", "sgd", "--keys", self.keys, *arguments, **options))

    def train(self, address, identity, pushes=5, keys=None):
        worker = Worker(address, identity, keys=keys or self.keys).bind().offer()
        worker.pull()
        for _ in range(pushes):
            self.assertEqual(VERDICTS[worker.push().verdict], "ADMITTED")
            worker.pull()
        worker.pull_until(pushes)
        return worker

    def posing(self, real, name):
        """A folder in which the key of one goes by the name of another."""
        folder = os.path.join(self.folder, "posing")
        os.mkdir(folder)
        shutil.copy(os.path.join(self.keys, "server.public"), folder)
        with open(os.path.join(self.keys, f"{real}.secret")) as secret:
            text = secret.read().replace(f"secret {real}", f"secret {name}")
        with open(os.path.join(folder, f"{name}.secret"), "w", opener=lambda n, f: os.open(n, f, 0o600)) as file:
            file.write(text)
        return folder

    def turned_away(self, address, status, *parts, **options):
        start = time.monotonic()
        with self.assertRaises(Failed) as caught:
            Worker(address, **options).bind()
        self.assertLess(time.monotonic() - start, HANG_S / 2, "it must not wait for its deadline")
        self.assertEqual(caught.exception.status, status, caught.exception)
        for part in parts:
            self.assertIn(part, str(caught.exception))


class Embedded(WithKeys):
    def test_a_known_key_trains_and_its_name_is_the_keys(self):
        server = self.server()
        worker = self.train(server.address, "worker-0")
        nameless = os.path.join(self.folder, "mine")
        os.mkdir(nameless)
        for name in ("worker-1.secret", "server.public"):
            shutil.copy(os.path.join(self.keys, name), nameless)
        second = Worker(server.address, "", keys=nameless).bind().offer()
        self.assertIn('"identity":"worker-1"', second.status())
        self.assertIn("open to 4 known keys", server.lines())
        beside = Worker(server.address, "worker-0/eyes", keys=self.keys, role=READER).bind()
        beside.pull()
        self.assertEqual(VERDICTS[worker.push().verdict], "ADMITTED", "one key, two processes, no fence")
        for one in (beside, second, worker):
            one.close()
        self.assertEqual(server.close(), 0)

    def test_one_file_serves_as_well_as_a_folder(self):
        path = os.path.join(self.folder, "all")
        with open(path, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            for name in os.listdir(self.keys):
                with open(os.path.join(self.keys, name)) as part:
                    file.write(part.read())
        server = self.enterContext(Server("--keys", path))
        self.train(server.address, "worker-1", keys=path).close()
        self.assertEqual(server.close(), 0)

    def test_a_key_that_is_not_known_is_refused_in_time_and_training_goes_on(self):
        server = self.server()
        worker = self.train(server.address, "worker-0")
        stranger = keygen(os.path.join(self.folder, "stranger"), "worker-7")
        shutil.copy(os.path.join(self.keys, "server.public"), stranger)
        self.turned_away(server.address, REFUSED, server.address, "not in its table", identity="worker-7", keys=stranger)
        self.turned_away(server.address, REFUSED, "we have no keys", identity="worker-0")
        self.assertEqual(VERDICTS[worker.push().verdict], "ADMITTED")
        worker.close()

    def test_a_server_that_is_not_the_known_one_is_noticed(self):
        server = self.server()
        other = keygen(os.path.join(self.folder, "other"), "server")
        shutil.copy(os.path.join(self.keys, "worker-0.secret"), other)
        os.remove(os.path.join(other, "server.secret"))
        self.turned_away(server.address, REFUSED, server.address, "server's key", identity="worker-0", keys=other)
        plain = self.enterContext(Server())
        self.turned_away(plain.address, REFUSED, "it has no keys", identity="worker-0", keys=self.keys)

    def test_no_worker_can_pose_as_another(self):
        server = self.server()
        worker = self.train(server.address, "worker-0")
        self.turned_away(server.address, REFUSED, "the key of worker-1 cannot join as worker-0", identity="worker-0",
                         keys=self.posing("worker-1", "worker-0"))
        self.turned_away(server.address, REFUSED, "the key of shard-0 is no worker", identity="shard-0", keys=self.keys)
        self.assertEqual(VERDICTS[worker.push().verdict], "ADMITTED", "the real one is not fenced")
        worker.close()


class Apart(WithKeys):
    def test_shards_in_processes_of_their_own_have_keys_too(self):
        server = self.server("--shards-elsewhere", "on")
        shards = [self.shard(server.address, i) for i in range(2)]
        self.train(server.address, "worker-0").close()
        self.assertEqual(server.close(), 0)
        for shard in shards:
            self.assertEqual(shard.wait(HANG_S), 0)

    def test_a_shard_with_the_key_of_another_stays_out(self):
        server = self.server("--shards-elsewhere", "on")
        shard = self.shard(server.address, 1, "--identity", "shard-0")
        self.assertEqual(shard.wait(HANG_S), 2)
        shard.log.seek(0)
        self.assertIn("the key of shard-0 is not that of shard-1", shard.log.read())

    def test_a_coordinator_that_comes_back_knows_the_same_keys(self):
        elsewhere = ("--shards-elsewhere", "on", "--queue-bytes-max", "52000")
        server = self.server(*elsewhere, listen=self.enterContext(Port()))
        for index in range(2):
            self.shard(server.address, index)
        worker = self.train(server.address, "worker-0")
        worker.report(kl=0.5)
        server.process.kill()
        server.process.wait()
        again = self.server(*elsewhere, listen=server.address)
        self.assertEqual(VERDICTS[worker.push().verdict], "ADMITTED")
        page = json.loads(worker.status())
        self.assertEqual(page["settings"]["queue"], 7, "lowered by queue_bytes_max, as before")
        self.assertEqual(page["workers"][0]["report"], {"kl": 0.5}, "said again to the new one")
        self.turned_away(again.address, REFUSED, "cannot join as worker-0", identity="worker-0",
                         keys=self.posing("worker-1", "worker-0"))
        self.assertEqual(VERDICTS[worker.push().verdict], "ADMITTED")
        worker.close()

    def shard(self, address, index, *arguments):
        log = self.enterContext(open(os.path.join(self.folder, f"shard-{index}.log"), "w+"))
        shard = subprocess.Popen([os.path.join(BUILD, "gradweir-server"), "--shards", "2", "--shard", str(index),
                                  "--optimizer", "sgd", "--coordinator", address, "--keys", self.keys, *arguments],
                                 stdout=subprocess.DEVNULL, stderr=log)
        shard.log = log
        self.addCleanup(lambda: (shard.kill(), shard.wait()))
        return shard


class AtStart(WithKeys):
    def refused(self, *arguments):
        result = run("gradweir-server", "--listen", "127.0.0.1:0", *arguments)
        self.assertEqual(result.returncode, 2, result.stderr)
        return result.stderr

    def test_keygen_writes_private_files_and_overwrites_none(self):
        for name in os.listdir(self.keys):
            self.assertEqual(stat.S_IMODE(os.stat(os.path.join(self.keys, name)).st_mode), 0o600)
        again = run("gradweir-server", "keygen", self.keys, "server")
        self.assertEqual(again.returncode, 2)
        self.assertIn("never overwritten", again.stderr)
        self.assertEqual(run("gradweir-server", "keygen", self.keys).returncode, 2)

    def test_what_is_wrong_with_the_keys_is_named(self):
        secret = os.path.join(self.keys, "server.secret")
        os.chmod(secret, 0o644)
        self.assertIn("server.secret: mode 0644", self.refused("--keys", self.keys))
        os.chmod(secret, 0o600)
        with open(os.path.join(self.keys, "worker-0.public"), "w") as file:
            file.write("public worker-0 nonsense\n")
        self.assertIn("worker-0.public:1: the key of worker-0 is malformed", self.refused("--keys", self.keys))
        self.assertIn("no secret key of nobody", self.refused("--keys", self.folder, "--identity", "nobody"))
        self.assertIn("No such file", self.refused("--keys", "/nowhere"))
        os.remove(os.path.join(self.keys, "worker-0.public"))
        os.remove(os.path.join(self.keys, "shard-0.secret"))
        text = self.refused("--keys", self.keys, "--shards", "2", "--supervise", "on")
        self.assertIn(f"no secret key of shard-0 (a file shard-0.secret): `gradweir-server keygen {self.keys} shard-0` makes "
                      "one; every shard in a process of its own has one, under --supervise too", text)
        self.assertNotIn("again in", text)
        self.assertIn("one or none", self.refused("--keys", self.keys, "--insecure", "on"))

    def test_beyond_loopback_a_server_without_keys_says_which_flag_it_wants(self):
        text = self.refused("--listen", "0.0.0.0:0")
        for part in ("0.0.0.0:0", "--keys", "--insecure on"):
            self.assertIn(part, text)

    def test_loopback_without_keys_says_that_it_is_insecure(self):
        server = self.enterContext(Server())
        self.assertIn("insecure", server.lines())

    def test_the_tool_is_let_in_by_its_key(self):
        server = self.server()
        worker = self.train(server.address, "worker-0")
        mine = os.path.join(self.folder, "mine")
        os.mkdir(mine)
        for name in ("worker-0.secret", "server.public"):
            shutil.copy(os.path.join(self.keys, name), mine)
        which = run("gradweirctl", "status", "--servers", server.address, "--keys", self.keys)
        self.assertIn("--identity NAME", which.stderr)
        for command in ("status", "doctor"):
            for who in (["--keys", self.keys, "--identity", "worker-0"], ["--keys", mine]):
                good = run("gradweirctl", command, "--servers", server.address, *who)
                self.assertEqual(good.returncode, 0, good.stdout + good.stderr)
                self.assertEqual(VERDICTS[worker.push().verdict], "ADMITTED", "it does not take the worker's place")
        self.assertIn('"worker-0/tool-doctor"', worker.status())
        worker.close()
        bad = run("gradweirctl", "status", "--servers", server.address, "--timeout", "2min")
        self.assertEqual(bad.returncode, 1, bad.stdout)
        self.assertIn("we have no keys", bad.stderr)

    def test_the_trainer_and_its_own_server_take_keys(self):
        result = run("gradweir-train", "--env", "CartPole-v1", "--workers", "2", "--shards", "2", "--keys", self.keys,
                     "--max-steps", "2000", "--evaluate", "0")
        self.assertEqual(result.stderr, "")
        self.assertRegex(result.stdout, r"digest (?!0{16})[0-9a-f]{16}")
        lone = run("gradweir-train", "--env", "CartPole-v1", "--workers", "1", "--identity", "nobody", "--keys", self.keys,
                   "--max-steps", "2000", "--evaluate", "0")
        self.assertIn("no secret key of nobody-0", lone.stderr)
        self.assertNotEqual(lone.returncode, 0)


if __name__ == "__main__":
    unittest.main()
