"""Groups over gloo: ranks that find one another by the coordinator, sum, push their parts and pull their slices. 2 and 4 of
them have the bits of one worker that accumulates what they had, and within 1e-6 what one worker has of all samples; who is
killed or stopped is named, the others go on, and it comes back. Real servers (two shards), the real library; group_rank.c is
what a rank does.

    GRADWEIR_BUILD=build python3 tests/integration/test_group.py [CASE [SEEDS]]   # or: ctest --test-dir build -R group
"""
import array
import ctypes as c
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

import library
from group_threads import GroupOptions, Threaded, threads
from library import BUILD, HANG_S, Server, lib, until

STEPS = 12
SERVER = ("--learning-rate", "0.01", "--stride", "1", "--window", "1", "--shards", "2")
# Not Adam where sums may be rounded otherwise: it divides by the gradient's size, so where that is almost nothing the last
# bit shows as a whole step. With the same order of addition it makes the same bits.
MOMENTUM = ("--optimizer", "momentum", *SERVER)
ADAM = ("--optimizer", "adam", *SERVER)


class Rank:
    all = []

    def __init__(self, address, rank, ranks, steps=STEPS, file="-", batches=1, pause_ms=0, identity="group", **environment):
        Rank.all.append(self)
        self.out = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [os.path.join(BUILD, "tests", "group_rank"), address, identity, str(rank), str(ranks), str(steps), file,
             str(batches)], stdout=self.out, stderr=self.out, env={**os.environ, **environment, "GROUP_RANK_PAUSE_MS": str(pause_ms)})

    def text(self):
        self.out.seek(0)
        return self.out.read()

    def lines(self, word):
        return [line for line in self.text().splitlines() if line.startswith(word)]

    def end(self, seconds=HANG_S, code=0):
        try:
            got = self.process.wait(seconds)
        finally:
            self.process.kill()
        assert got == code, f"{got}: {self.text()[-2000:]}"

    def kill(self, how=signal.SIGKILL):
        self.process.send_signal(how)


def read(path):
    parameters = array.array("f")
    with open(path, "rb") as file:
        parameters.frombytes(file.read())
    return parameters


def train(ranks, folder, server, batches=1, **environment):
    """Parameters after STEPS steps; of one worker when ranks is 0."""
    path = os.path.join(folder, f"parameters-{ranks}-{batches}")
    with Server(*server) as running:
        started = [Rank(running.address, r, ranks, file=path if r == 0 else "-", batches=batches, **environment)
                   for r in range(max(ranks, 1))]
        for rank in started:
            rank.end()
        assert running.close() == 0
    return read(path)


def apart(one, many):
    assert len(one) == len(many) > 100000
    return max(abs(a - b) for a, b in zip(one, many))


def equal():
    with tempfile.TemporaryDirectory() as folder:
        one = train(0, folder, MOMENTUM)
        assert max(abs(p) for p in one) > 0.1
        for ranks in (2, 4):
            many = train(ranks, folder, MOMENTUM)
            far = apart(one, many)
            print(f"momentum, {ranks} ranks: at most {far:.2e} from one worker of all samples")
            assert far <= 1e-6, far
        for ranks in (1, 2, 4):
            one, many = train(0, folder, ADAM, batches=ranks), train(ranks, folder, ADAM)
            far = apart(one, many)
            print(f"Adam, {ranks} ranks: at most {far:.2e} from one worker that accumulates {ranks} batches")
            assert far <= 1e-6, far
            assert ranks == 1 or one == many, "not the same bits"
        twice = train(2, folder, MOMENTUM, batches=2)
        far = apart(train(0, folder, MOMENTUM), twice)
        print(f"momentum, 2 ranks that accumulate twice: at most {far:.2e}")
        assert far <= 1e-6, far


def parts():
    """Each rank has columns of its own, and its own optimizer's part of them; all work on the same samples."""
    with tempfile.TemporaryDirectory() as folder:
        for server in (MOMENTUM, ADAM):
            one = train(0, folder, server)
            for ranks in (2, 3):
                far = apart(one, train(ranks, folder, server, GROUP_RANK_PARTS="1"))
                print(f"{server[1]}, {ranks} ranks with columns of their own: at most {far:.2e}")
                assert far <= 1e-6, far
            batches = apart(train(0, folder, server, batches=2), train(2, folder, server, batches=2, GROUP_RANK_PARTS="1"))
            print(f"{server[1]}, 2 ranks that accumulate: at most {batches:.2e}")
            assert batches <= 1e-6, batches


def started(address, ranks, pause_ms=20, **environment):
    group = [Rank(address, r, ranks, pause_ms=pause_ms, **environment) for r in range(ranks)]
    until(lambda: all(len(rank.lines("step")) > 3 for rank in group))
    return group


def finish(group, stop):
    """All of them end, at one version that is a hundred steps away for whoever is furthest."""
    last = max(int(rank.lines("step")[-1].split()[1]) for rank in group) + 100
    with open(stop + ".new", "w") as file:
        file.write(str(last))
    os.rename(stop + ".new", stop)
    for rank in group:
        rank.end()


def killed():
    """kill -9: the others name it, go on as three, and take its successor in."""
    with Server(*MOMENTUM) as server:
        how = {"GROUP_RANK_STOP": os.path.join(server.folder.name, "stop")}
        group = started(server.address, 4, **how)
        group[2].kill()
        at = time.monotonic()
        until(lambda: all(group[r].lines("renewed") for r in (0, 1, 3)))
        print(f"killed: the others are renewed after {time.monotonic() - at:.2f} s")
        for r in (0, 1, 3):
            print("   ", "; ".join(group[r].lines("failed")))
            assert any("rank 2" in line for line in group[r].lines("failed")), group[r].text()[-1000:]
        until(lambda: any("ranks 3" in line for line in group[0].lines("step")))
        group[2] = Rank(server.address, 2, 4, pause_ms=20, **how)
        until(lambda: group[2].lines("step") and "ranks 4" in group[0].lines("step")[-1])
        print("   ", group[2].lines("step")[0])
        finish(group, how["GROUP_RANK_STOP"])
        assert server.close() == 0


def stopped():
    """SIGSTOP: the others go on after the deadline of 8 s; it comes back by itself when it goes on."""
    with Server(*MOMENTUM) as server:
        how = {"GROUP_RANK_STOP": os.path.join(server.folder.name, "stop"), "GROUP_RANK_TIMEOUT_MS": "8000",
               "GROUP_RANK_PATIENCE_MS": "3000"}
        group = started(server.address, 3, **how)
        group[1].kill(signal.SIGSTOP)
        at = time.monotonic()
        until(lambda: all(group[r].lines("renewed") for r in (0, 2)))
        took = time.monotonic() - at
        print(f"stopped: the others are renewed after {took:.2f} s")
        for r in (0, 2):
            print("   ", "; ".join(group[r].lines("failed")))
            behind = re.search(r"rank 1 of 3: step .*?, ([0-9.]+) s behind", group[r].text())
            assert behind and 3 < float(behind[1]) < took + 1, f"{took}: {group[r].text()[-1000:]}"
        until(lambda: any("ranks 2" in line for line in group[0].lines("step")))
        group[1].kill(signal.SIGCONT)
        until(lambda: "ranks 3" in group[0].lines("step")[-1])
        print("   ", "; ".join(group[1].lines("failed") + group[1].lines("renewed")))
        finish(group, how["GROUP_RANK_STOP"])
        assert server.close() == 0


def held(rank):
    with open(f"/proc/{rank.process.pid}/status") as file:
        rss = next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
    return rss, len(os.listdir(f"/proc/{rank.process.pid}/fd")), len(os.listdir(f"/proc/{rank.process.pid}/task"))


def again(rounds=8):
    """One is killed and comes back, again and again: the others neither hang nor grow."""
    with Server(*MOMENTUM) as server:
        how = {"GROUP_RANK_STOP": os.path.join(server.folder.name, "stop"), "GROUP_RANK_PATIENCE_MS": "4000"}
        group = started(server.address, 3, pause_ms=5, **how)
        for number in range(rounds):
            group[2].kill()
            until(lambda: len(group[0].lines("renewed")) > number and len(group[1].lines("renewed")) > number)
            group[2] = Rank(server.address, 2, 3, pause_ms=5, **how)
            until(lambda: len(group[2].lines("step")) > 3)
            if number == 2:
                first = held(group[0])

        def no_more():  # what is closed may take a moment to be gone
            now = held(group[0])
            return now if now[0] < first[0] + 4096 and now[1] <= first[1] and now[2] <= first[2] else None
        print(f"kB, descriptors, threads of rank 0 after 3 rounds: {first}, after {rounds}: {until(no_more)}")
        for rank in group:
            rank.kill()
            rank.process.wait()


def refused():
    """What no caller may mean is a status and a sentence, with nobody waited for, and the group stays usable."""
    client, options, group = library.Options(), GroupOptions(), c.c_void_p()
    lib.gradweir_options_default_sized(c.byref(client), c.c_size_t(c.sizeof(client)))
    lib.gradweir_group_options_default_sized(c.byref(options), c.c_size_t(c.sizeof(options)))
    options.client, client.identity, client.group = c.cast(c.byref(client), c.c_void_p), b"refused", b"one"
    options.timeout_ms, options.patience_ms, client.connect_timeout_ms = 1000, 200, 10 * HANG_S * 1000

    def says(status, part):
        told = lib.gradweir_last_error().decode()
        assert status < 0 and part in told, f"{status}: {told}"

    client.address, begun = b"127.0.0.1:1", time.monotonic()
    says(lib.gradweir_group_join(c.byref(options), c.byref(group)), "nobody answers")
    assert time.monotonic() - begun < HANG_S, "within timeout_ms, not connect_timeout_ms"
    options.timeout_ms = HANG_S * 1000
    with Server(*MOMENTUM) as server:
        client.address = server.address.encode()
        for rank, ranks in ((0, 0), (2, 2), (0, 17), (0, 1 << 31), (0xffffffff, 0)):
            client.rank, client.ranks = rank, ranks
            says(lib.gradweir_group_join(c.byref(options), c.byref(group)), "counted from 0")
        client.rank, client.ranks = 0, 1
        for name, part in ((b"mpi", "gloo and nccl"), (b"", "gloo and nccl")):
            options.backend = name
            says(lib.gradweir_group_join(c.byref(options), c.byref(group)), part)
        options.backend = b"gloo"
        assert lib.gradweir_group_join(c.byref(options), c.byref(group)) == 0, lib.gradweir_last_error()
        some, one, most = (c.c_float * 4)(1, 2, 3, 4), (c.c_size_t * 16)(4), (c.c_size_t * 16)(2**64 - 1)
        says(lib.gradweir_group_reduce(group, None, some, c.c_size_t(4)), "from is NULL")
        says(lib.gradweir_group_reduce(group, some, None, c.c_size_t(4)), "to is NULL")
        says(lib.gradweir_group_reduce(group, some, some, c.c_size_t(2**64 - 1)), "more than memory has")
        says(lib.gradweir_group_broadcast(group, None, c.c_size_t(4), 0), "data is NULL")
        for call in (lib.gradweir_group_reduce_scatter, lib.gradweir_group_all_gather):
            says(call(group, some, some, None), "counts is NULL")
            says(call(group, some, some, most), "more than memory has")
            says(call(group, None, some, one), "is NULL")
            says(call(group, some, None, one), "is NULL")
        assert lib.gradweir_group_reduce(group, some, some, c.c_size_t(4)) == 0, "the group is whole"
        lib.gradweir_group_leave(group)
        assert server.close() == 0


def differs():
    """Ranks that call different things all hear it, in the same call, and go on together."""
    with Server(*MOMENTUM) as server:
        one, other = ranks = [Threaded(server.address, r, 2) for r in range(2)]

        def all_well(*calls):
            told = threads(*calls)
            assert all(status == 0 for status, _ in told), told

        def all_hear(*calls):
            told = threads(*calls)
            assert all(status == -5 for status, _ in told), told
        all_well(one.join, other.join)
        all_well(one.bind, other.bind)
        all_well(one.offer, other.offer)
        for version in range(2):
            all_hear(one.pull, other.barrier)
            all_hear(one.barrier, other.pull)
            all_well(one.pull, other.pull)
            all_hear(one.push, other.barrier)
            all_hear(one.pull, other.push)
            all_well(one.pull, other.pull)
            while one.receipt.version < version:
                all_well(one.pull, other.pull)
            all_well(one.push, other.push)
            assert [rank.receipt.verdict for rank in ranks] == [1, 1]
        for rank in ranks:
            lib.gradweir_group_leave(rank.group)
        assert server.close() == 0


def fenced():
    """Two groups of one name: the one that joined last goes on. The other is out for good if it lacks nobody; else some of its
    ranks may have gone on without it, and it waits to be taken in."""
    def pair():
        ranks = [Threaded(server.address, r, 2, timeout_ms=8000, patience_ms=2000) for r in range(2)]
        for call in ("join", "bind", "offer", "pull"):
            told = threads(*(getattr(rank, call) for rank in ranks))
            assert all(status == 0 for status, _ in told), told
        return ranks

    with Server(*MOMENTUM) as server:
        old, one, other = pair(), *pair()
        for call in ("pull", "renew", "renew"):
            told = threads(*(getattr(rank, call) for rank in old))
            print("   ", told[0][1])
            assert all(status == -6 for status, _ in told), told
        for rank in old:
            rank.leave()
        assert [status for status, _ in threads(one.pull, other.pull)] == [0, 0], "they have not noticed"
        other.leave()
        assert one.pull() < 0 and one.renew() == 0 and one.pull() == 0, "it goes on by itself"
        later = Threaded(server.address, 0, 1)
        assert later.join() == 0 and later.bind() == 0 and later.pull() == 0
        (status, told), = threads(one.pull)
        assert status == -6, f"{status}: {told}"
        for _ in range(2):  # nobody else is there, and nobody ever comes: it does not wait for ever
            (status, told), = threads(one.renew)
            print("   ", told)
            assert status == -2 and "rank 1 of 2 of group never came" in told, f"{status}: {told}"
        assert later.pull() == 0 and later.push() == 0, "it is not fenced off in its turn"
        later.leave()
        other = Threaded(server.address, 1, 2)
        told = threads(lambda: until(lambda: one.renew() == 0), lambda: other.join() or other.bind())
        assert told[1][0] == 0, told
        assert [status for status, _ in threads(one.pull, other.pull)] == [0, 0]
        for rank in (one, other):
            rank.leave()
        assert server.close() == 0


def mistaken():
    """A bind that a caller got wrong, before anybody heard of it, may be tried again."""
    with Server(*MOMENTUM) as server:
        one, other = ranks = [Threaded(server.address, r, 2) for r in range(2)]
        assert [status for status, _ in threads(one.join, other.join)] == [0, 0]
        assert one.bind(size=2**62) == -1, "it waits for nobody"
        told = lib.gradweir_last_error().decode()
        assert "tensor w is too large" in told, told
        assert [status for status, _ in threads(one.bind, other.bind)] == [0, 0]
        assert [status for status, _ in threads(one.offer, other.offer)] == [0, 0]
        assert [status for status, _ in threads(one.pull, other.pull)] == [0, 0]
        for rank in ranks:
            lib.gradweir_group_leave(rank.group)
        assert server.close() == 0


def strange():
    """A rank that never comes, one that counts otherwise, one that is there twice: a status and a sentence."""
    with Server(*MOMENTUM) as server:
        group = [Rank(server.address, r, 3, GROUP_RANK_TIMEOUT_MS="8000", GROUP_RANK_PATIENCE_MS="3000") for r in (0, 1)]
        for rank in group:
            rank.end(code=2)
            print("   ", rank.text().strip())
            assert "join -2" in rank.text() and "rank 2 of 3 of group never came" in rank.text()
        group = [Rank(server.address, 0, 2), Rank(server.address, 1, 3)]
        for rank in group:
            rank.end(code=2)
            print("   ", rank.text().strip())
            assert "join -5" in rank.text() and "do not agree" in rank.text()
        twins = [Rank(server.address, 0, 2) for _ in range(2)]
        second = until(lambda: next((rank for rank in twins if rank.process.poll() is not None), None))  # whoever it is
        second.end(code=2)
        print("   ", second.text().strip())
        assert "join -1" in second.text() and "rank 0 of 2 of group is here already" in second.text()
        last = Rank(server.address, 1, 2)
        for rank in (*twins, last):
            if rank is not second:
                rank.end()
        assert server.close() == 0


def trains(seeds=(1,)):
    """CartPole by 2 groups of 2 ranks; and with a rank that is killed."""
    trainer = [os.path.join(BUILD, "gradweir-train"), "--workers", "4", "--ranks", "2"]
    for seed in seeds:
        run = subprocess.run(trainer + ["--seed", str(seed)], capture_output=True, text=True, timeout=6 * HANG_S)
        print(f"seed {seed}:", run.returncode, run.stdout[-300:], run.stderr[-1000:], flush=True)
        assert run.returncode == 0, run.stdout + run.stderr
    run = subprocess.run(trainer + ["--seed", "7", "--kill-worker", "1", "2", "--patience", "20", "--max-steps", "150000"],
                         capture_output=True, text=True, timeout=6 * HANG_S)
    print("killed:", run.returncode, run.stdout[-300:], run.stderr[-1000:])
    assert run.returncode in (0, 1) and ": whole" in run.stdout, run.stdout + run.stderr
    # Whoever sees it first says so: the other rank, or the coordinator.
    assert re.search("rank 1 of (2|worker worker-0)", run.stderr), run.stderr
    run = subprocess.run(trainer[:1] + ["--workers", "3", "--ranks", "2"], capture_output=True, text=True, timeout=HANG_S)
    assert run.returncode == 2 and "cannot be parted" in run.stderr


CASES = {"equal": equal, "parts": parts, "killed": killed, "stopped": stopped, "again": again, "refused": refused, "differs": differs,
         "fenced": fenced, "mistaken": mistaken, "strange": strange, "trains": trains}


def main():
    probe = subprocess.run([os.path.join(BUILD, "tests", "collective_check"), "gloo", "options"], capture_output=True, text=True)
    if probe.returncode == 77:
        print("SKIPPED: this build has no gloo")
        return
    for name, case in CASES.items():
        if len(sys.argv) < 2 or sys.argv[1] == name:
            print(name, flush=True)
            try:
                case(*([range(1, 1 + int(sys.argv[2]))] if len(sys.argv) > 2 else []))
            except BaseException:
                for number, rank in enumerate(Rank.all):
                    print(f"-- process {number} ({rank.process.poll()}):", rank.text()[-1500:])
                    rank.kill()
                raise


if __name__ == "__main__":
    main()
