#!/usr/bin/env python3
"""audit.py RECORDING RECEIPTS...: do the workers' own notes and the log tell the same story?

Shares no code with Gradweir: reads the log's bytes as PROTOCOL.md describes them. Each worker process wrote a file of
lines, each before it acted on it:

    worker IDENTITY               who it is, once
    push                          before each push
    receipt SEQUENCE VERDICT INDEX    its receipt came
    lost                          it was told that the fate of its push is unknown: its lease had ended
    end                           it ended by itself

Holds: the log's chain of indexes is whole; every name has at most one verdict in the log; every receipt is in the log
with the same verdict and index; nobody heard two receipts for one push; a worker that ended by itself heard as many
verdicts as it pushed, but for those it was told are lost; what the log admitted and nobody heard is at most these, and one
push of a worker that was killed."""
import collections
import struct
import sys

JOIN, LEAVE, ADMIT, REFUSE, STEP = 2, 3, 4, 5, 6
ADMITTED, LEASE = 1, 2
VERDICTS = ["NONE", "ADMITTED", "STALE", "FUTURE", "NOT_FINITE", "MISMATCH", "CANCELLED", "QUEUE_FULL"]
# Where in a record's array the fields begin, behind kind, epoch, timeline, index, previous hash.
FIELDS = 5


def unpack(data, at=0):
    """One MessagePack object of the kinds a record is made of: (object, where it ends)."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    if 0x90 <= byte <= 0x9f or byte == 0xdc:
        count, at = (byte & 15, at + 1) if byte != 0xdc else (struct.unpack_from(">H", data, at + 1)[0], at + 3)
        items = []
        for _ in range(count):
            item, at = unpack(data, at)
            items.append(item)
        return items, at
    if 0xa0 <= byte <= 0xbf:
        return data[at + 1:at + 1 + (byte & 31)].decode(), at + 1 + (byte & 31)
    if byte in (0xcc, 0xcd, 0xce, 0xcf, 0xd0, 0xd1, 0xd2, 0xd3, 0xca, 0xcb):
        form = {0xcc: ">B", 0xcd: ">H", 0xce: ">I", 0xcf: ">Q", 0xd0: ">b", 0xd1: ">h", 0xd2: ">i", 0xd3: ">q",
                0xca: ">f", 0xcb: ">d"}[byte]
        return struct.unpack_from(form, data, at + 1)[0], at + 1 + struct.calcsize(form)
    if byte >= 0xe0:
        return byte - 256, at + 1
    form = {0xc4: ">B", 0xc5: ">H", 0xc6: ">I", 0xd9: ">B", 0xda: ">H", 0xdb: ">I"}[byte]
    count, at = struct.unpack_from(form, data, at + 1)[0], at + 1 + struct.calcsize(form)
    piece = data[at:at + count]
    return (piece.decode() if byte >= 0xd9 else bytes(piece)), at + count


def read_log(path):
    with open(path, "rb") as file:
        data = file.read()
    if data[:8] not in (b"GWLOG01\n", b"GWLOG02\n"):
        raise SystemExit(f"{path} is no log")
    at = 8
    while at + 8 <= len(data):
        length, _checksum = struct.unpack_from("<II", data, at)
        if length == 0 or at + 8 + length > len(data):  # the mark at the end, or a killed process' last entry
            break
        record, end = unpack(data, at + 8)
        if end != at + 8 + length:
            raise SystemExit(f"{path}: the record at byte {at} does not end where it should")
        yield record
        at = end


class Log:
    def __init__(self, path, faults):
        self.identities = {}  # (worker, incarnation): identity
        self.out = set()  # (worker, incarnation) whose lease had ended
        self.verdicts = {}  # (worker, incarnation, sequence): (verdict, index)
        self.epochs, self.steps, self.records = set(), 0, 0
        log = []
        for record in read_log(path):
            kind, epoch, _timeline, index = record[:4]
            if index <= len(log):  # a shard that was killed writes again what it still knows: it must be the same
                if record != log[index - 1]:
                    faults.append(f"record {index} of the log is another when it is written again")
                continue
            log.append(record)
            self.records += 1
            self.epochs.add(epoch)
            if index != self.records:
                faults.append(f"record {self.records} of the log says it is {index}")
            fields = record[FIELDS:]
            if kind == JOIN:
                self.identities[(fields[0], fields[1])] = fields[4]
            elif kind == LEAVE and fields[2] == LEASE:
                self.out.add((fields[0], fields[1]))
            elif kind in (ADMIT, REFUSE):
                name = tuple(fields[:3])
                verdict = ADMITTED if kind == ADMIT else fields[5]
                if name in self.verdicts:
                    faults.append(f"{name} has two verdicts: records {self.verdicts[name][1]} and {index}")
                self.verdicts[name] = (verdict, index)
            self.steps += kind == STEP


class Notes:
    """One worker process' file; the last line may be cut short by its death."""

    def __init__(self, path, faults):
        self.path, self.identity, self.pushes, self.receipts, self.lost, self.ended = path, None, 0, {}, 0, False
        with open(path) as file:
            for line in file:
                words = line.split()
                if not line.endswith("\n"):
                    break
                if words[0] == "worker":
                    self.identity = words[1]
                elif words[0] == "push":
                    self.pushes += 1
                elif words[0] == "receipt":
                    number, verdict, index = int(words[1]), VERDICTS.index(words[2]), int(words[3])
                    if index in self.receipts:
                        faults.append(f"{path}: record {index} was heard twice")
                    self.receipts[index] = (number, verdict)
                elif words[0] == "lost":
                    self.lost += 1
                elif words[0] == "end":
                    self.ended = True


def compare(log, notes, faults, counts):
    mine = [key for key, identity in log.identities.items() if identity == notes.identity]
    if len(mine) > 1 + len(log.out.intersection(mine)):
        faults.append(f"{notes.identity} has {len(mine)} incarnations, and {len(log.out.intersection(mine))} leases ended")
    records = {index: (name[2], verdict) for name, (verdict, index) in log.verdicts.items() if name[:2] in mine}
    for index, receipt in notes.receipts.items():
        counts[VERDICTS[receipt[1]]] += 1
        if records.get(index) != receipt:
            faults.append(f"{notes.path}: heard {receipt} of record {index}, the log has {records.get(index)}")
    unheard = [i for i, (_, verdict) in records.items() if i not in notes.receipts and verdict == ADMITTED]
    missing = notes.pushes - len(notes.receipts)
    if missing > notes.lost + (0 if notes.ended else 1) or missing < notes.lost:
        faults.append(f"{notes.path}: {notes.pushes} pushes and {len(notes.receipts)} receipts")
    if len(unheard) > max(missing, 0):
        faults.append(f"{notes.path}: admitted and never heard: {unheard}")
    counts["unheard"] += len(unheard)
    counts["pushes"] += notes.pushes


def main(recording, paths):
    faults, counts = [], collections.Counter()
    log = Log(f"{recording}/log.records", faults)
    for path in paths:
        compare(log, Notes(path, faults), faults, counts)
    admitted = sum(1 for verdict, _ in log.verdicts.values() if verdict == ADMITTED)
    print(f"log: {log.records} records, {len(log.epochs)} epochs, {log.steps} steps, {len(log.verdicts)} verdicts, "
          f"{admitted} admitted")
    print(f"{len(paths)} worker processes: {counts['pushes']} pushes; heard " +
          ", ".join(f"{counts[name]} {name}" for name in VERDICTS if counts[name]) +
          f"; admitted but never heard, by the killed and the lost: {counts['unheard']}")
    if counts["ADMITTED"] + counts["unheard"] != admitted:
        faults.append(f"the log admitted {admitted}, the workers know of {counts['ADMITTED'] + counts['unheard']}")
    if not admitted or not counts["ADMITTED"]:
        faults.append("nothing was admitted: this audit has shown nothing")
    for fault in faults[:20]:
        print("FAULT:", fault)
    print(f"audit: {'sound' if not faults else f'{len(faults)} faults'}")
    return 1 if faults else 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
