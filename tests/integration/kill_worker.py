"""kill_worker.py ADDRESS IDENTITY NOTES STOP [network] [elements=N]: pulls and pushes until the file STOP appears; notes every push before it and
every receipt before acting on it (audit.py). A little arithmetic stands for a loss: the parameters decide the gradient."""
import os
import sys

import library

ADDRESS, IDENTITY, NOTES, STOP = sys.argv[1:5]
NETWORK = "network" in sys.argv[5:]  # over a network, so without keys and over tcp
SIZES = (("body", next((int(word[9:]) for word in sys.argv[5:] if word.startswith("elements=")), 5000)), ("head", 300))


def main():
    notes = os.open(NOTES, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(text):
        os.write(notes, text.encode() + b"\n")

    worker = library.Worker(ADDRESS, IDENTITY, SIZES, insecure=NETWORK,
                            transport="tcp" if NETWORK else "auto").bind().offer()
    note(f"worker {IDENTITY}")
    number = 0
    while not os.path.exists(STOP):
        worker.pull()
        number += 1
        for parameters, gradient in zip(worker.parameters, worker.gradients):
            gradient[number % len(gradient)] = 0.25 * parameters[number % len(parameters)] + 0.001 * (number % 7)
        note("push")
        try:
            receipt = worker.push(1 + number % 3)
        except library.Failed as failed:
            if "its fate is not known here" not in str(failed):
                raise
            note("lost")
            continue
        note(f"receipt {receipt.sequence} {library.VERDICTS[receipt.verdict]} {receipt.index}")
    note("end")
    worker.close()


main()
