"""Fuzzing that goes on: random calls of every public function, held against oracles outside the code.

    python tests/fuzz.py --minutes 10 --seed 1            # all kinds of cases, until the time is up
    python tests/fuzz.py --only nnls,resume --minutes 1
    python tests/fuzz.py --case nnls:123456               # one case again

A case is a kind and a number, from which everything in it follows. Cases run in a process of their own, so that a crash
is a finding like any other. The kinds are in tests/fuzzing/; cases that once failed are kept in its corpus.txt and run
as tests (tests/test_fuzz_corpus.py). Exit status 1: something was found.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import subprocess
import sys
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE / "helpers"))

#: Where a worker says what it does.
told = sys.stdout


def work(kinds: list[str], seed: int, seconds: float) -> None:
    """Run cases until the time is up; say before each what it is, and after it what was wrong."""
    from fuzzing import KINDS, run_case

    # What a call prints is not for the watcher.
    global told
    told = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    chance = random.Random(seed)
    end = time.monotonic() + seconds
    names = kinds or list(KINDS)
    while time.monotonic() < end:
        for kind in names:
            number = chance.randrange(2**32)
            say({"begin": f"{kind}:{number}"})
            try:
                run_case(kind, number)
                say({"done": kind})
            except Exception as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                text = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
                say({"wrong": f"{kind}:{number}", "text": text[:600]})
            if time.monotonic() >= end:
                return


def say(what: dict[str, str]) -> None:
    told.write(json.dumps(what) + "\n")
    told.flush()


def watch(kinds: str, seed: int, seconds: float) -> tuple[collections.Counter[str], list[str]]:
    """Run workers one after the other until the time is up; return how many cases of each kind, and what was found."""
    counts: collections.Counter[str] = collections.Counter()
    found: list[str] = []
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        command = [sys.executable, "-W", "ignore", __file__, "--work", str(left), "--seed", str(seed), "--only", kinds]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            current = ""
            for line in process.stdout:
                said = json.loads(line)
                current = said.get("begin", current)
                if "done" in said:
                    counts[said["done"]] += 1
                if "wrong" in said:
                    counts[current.partition(":")[0]] += 1
                    found.append(f"{said['wrong']}  {said['text']}")
                    sys.stdout.write(found[-1] + "\n")
                    sys.stdout.flush()
        if process.returncode == 0:
            break
        found.append(f"{current}  the process ended with status {process.returncode}")
        sys.stdout.write(found[-1] + "\n")
        sys.stdout.flush()
        seed += 1
    return counts, found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="kinds, separated by commas")
    parser.add_argument("--case", help="KIND:NUMBER, one case in this process")
    parser.add_argument("--log", type=Path, help="append a line of JSON with what was done")
    parser.add_argument("--work", type=float, help=argparse.SUPPRESS)
    given = parser.parse_args()
    kinds = [kind for kind in given.only.split(",") if kind]
    if given.case:
        from fuzzing import run_case

        kind, _, number = given.case.partition(":")
        run_case(kind, int(number))
        sys.stdout.write("nothing wrong\n")
        return 0
    if given.work is not None:
        work(kinds, given.seed, given.work)
        return 0
    began = time.monotonic()
    counts, found = watch(given.only, given.seed, 60 * given.minutes)
    minutes = (time.monotonic() - began) / 60
    sys.stdout.write(f"{sum(counts.values())} cases in {minutes:.1f} minutes, {len(found)} wrong: ")
    sys.stdout.write(", ".join(f"{kind} {count}" for kind, count in sorted(counts.items())) + "\n")
    if given.log:
        line = {"minutes": round(minutes, 1), "seed": given.seed, "cases": dict(counts), "wrong": found}
        with given.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            os.fsync(file.fileno())
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
