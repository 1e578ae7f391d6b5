"""Fuzzing that goes on: random calls of every public function, held against oracles outside the code.

    python tests/fuzz.py --minutes 10 --seed 1            # all kinds of cases, until the time is up
    python tests/fuzz.py --only nnls,resume --minutes 1
    python tests/fuzz.py --only lsq --systems 100000 --minutes 60    # until so many systems were solved
    python tests/fuzz.py --case nnls:123456               # one case again
    python tests/fuzz.py --only kept                      # least squares that failed once
    python tests/fuzz.py --case lsq:123456 --smaller      # the smallest call found that fails in the same way

A case is a kind and a number, from which everything in it follows. Cases run in a process of their own, so that a crash
is a finding like any other, and so is a case that takes more than twenty seconds of the processor. The kinds are in
tests/fuzzing/; cases that once failed are kept in its corpus.txt and lsq/kept.jsonl and run as tests
(tests/test_fuzz_corpus.py). Exit status 1: something was found.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import itertools
import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE / "helpers"))

#: Seconds of the processor that a case may take, and seconds by the clock until a worker that says nothing is ended.
CASE_SECONDS, SILENT_SECONDS = 20, 200

#: Where a worker says what it does.
told = sys.stdout


def work(kinds: list[str], seed: int, seconds: float, skip: int) -> None:
    """Run cases until the time is up; say before each what it is, and after it what was wrong."""
    from fuzzing import KINDS, kept_numbers, run_case

    # What a call prints is not for the watcher.
    global told
    told = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    chance = random.Random(seed)
    end = time.monotonic() + seconds
    drawn = ((kind, chance.randrange(2**32)) for kind in itertools.cycle(kinds or list(KINDS)))
    cases = ((kind, number) for kind in kinds for number in kept_numbers()) if kinds == ["kept"] else drawn
    for place, (kind, number) in enumerate(cases):
        if place < skip:
            continue
        if time.monotonic() >= end:
            return
        say({"begin": f"{kind}:{number}", "place": place})
        limit_processor_time()
        try:
            say({"done": kind, "counts": run_case(kind, number)})
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
            own = {"class": getattr(error, "kind", type(error).__name__), "counts": getattr(error, "counts", {})}
            say({"wrong": f"{kind}:{number}", "text": text[:600]} | own)


def limit_processor_time() -> None:
    """Let the system end this process after so much more of the processor's time: no loop can keep it alive."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime) + 1 + CASE_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def say(what: dict[str, Any]) -> None:
    told.write(json.dumps(what) + "\n")
    told.flush()


@dataclasses.dataclass
class Watch:
    """What workers, one after the other, have done and found."""

    cases: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    counts: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    failed: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)  # counts of failed cases
    found: list[str] = dataclasses.field(default_factory=list)
    classes: dict[str, list[str]] = dataclasses.field(default_factory=lambda: collections.defaultdict(list))

    def report(self, case: str, kind: str, text: str) -> None:
        self.found.append(f"{case}  {text}")
        self.classes[kind].append(case)
        sys.stdout.write(self.found[-1] + "\n")
        sys.stdout.flush()

    def run(self, kinds: str, seed: int, seconds: float, systems: float, more: list[str]) -> None:
        """Go on until the time is up or so many systems were solved."""
        end, place = time.monotonic() + seconds, 0
        while (left := end - time.monotonic()) > 0 and self.counts["systems"] < systems:
            command = [sys.executable, "-W", "ignore", __file__, "--work", str(left), "--seed", str(seed)]
            command += ["--only", kinds, "--skip", str(place), *more]
            case = ""
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                timer = threading.Timer(SILENT_SECONDS, process.kill)
                for line in process.stdout:
                    timer.cancel()
                    timer = threading.Timer(SILENT_SECONDS, process.kill)
                    timer.start()
                    said = json.loads(line)
                    if "begin" in said:
                        case, place = said["begin"], said["place"] + 1
                        continue
                    self.cases[case.partition(":")[0]] += 1
                    self.counts.update(said["counts"])
                    if "wrong" in said:
                        self.failed.update(said["counts"].keys())
                        self.report(said["wrong"], said["class"], said["text"])
                    if self.counts["systems"] >= systems:
                        process.kill()
                        break
                timer.cancel()
            if process.returncode == 0 or self.counts["systems"] >= systems:
                break
            self.cases[case.partition(":")[0]] += 1
            endless = process.returncode in (-signal.SIGXCPU, -signal.SIGKILL)
            text = f"more than {CASE_SECONDS} seconds of the processor" if endless else "the process ended with status"
            self.report(case, "hang" if endless else "crash", f"{text} ({process.returncode})")

    def table(self) -> str:
        """Counts by what was drawn, and what was found by class."""
        lines = [f"{'of kind':24} systems  failed cases"] if self.counts else []
        lines += [f"{kind:24} {count:7}  {self.failed[kind]:6}" for kind, count in sorted(self.counts.items())]
        for kind, cases in sorted(self.classes.items(), key=lambda item: -len(item[1])):
            lines.append(f"{len(cases):5} {kind}: {' '.join(cases[:8])}{' ...' if len(cases) > 8 else ''}")
        return "\n".join(lines) + "\n" if lines else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float)
    parser.add_argument(
        "--systems", type=float, default=float("inf"), help="end after so many systems of least squares"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="kinds, separated by commas")
    parser.add_argument("--avoid", default="", help="leave out cases of lsq with such words, as 'far,b zero'")
    parser.add_argument("--strict", action="store_true", help="benign systems of lsq that did not converge are wrong")
    parser.add_argument("--corpus", type=Path, help="with --only kept: another file of calls than lsq/kept.jsonl")
    parser.add_argument("--case", help="KIND:NUMBER, one case in this process")
    parser.add_argument("--smaller", action="store_true", help="with --case: look for a smaller one that fails, too")
    parser.add_argument("--log", type=Path, help="append a line of JSON with what was done")
    parser.add_argument("--work", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--skip", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    kinds = [kind for kind in given.only.split(",") if kind]
    if given.case or given.work is not None:
        from fuzzing import lsq

        lsq.avoided += [word for word in given.avoid.split(",") if word]
        lsq.strict[0] = given.strict
        lsq.KEPT = given.corpus or lsq.KEPT
    if given.case:
        from fuzzing import describe_case

        kind, _, number = given.case.partition(":")
        sys.stdout.write(describe_case(kind, int(number), given.smaller) + "\n")
        return 0
    if given.work is not None:
        work(kinds, given.seed, given.work, given.skip)
        return 0
    began = time.monotonic()
    minutes = given.minutes if given.minutes is not None else 1.0 if given.systems == float("inf") else 600.0
    watch = Watch()
    more = ["--avoid", given.avoid] + ["--strict"] * given.strict
    more += ["--corpus", str(given.corpus)] if given.corpus else []
    watch.run(given.only, given.seed, 60 * minutes, given.systems, more)
    minutes = (time.monotonic() - began) / 60
    sys.stdout.write(watch.table())
    sys.stdout.write(f"{sum(watch.cases.values())} cases in {minutes:.1f} minutes, {len(watch.found)} wrong: ")
    sys.stdout.write(", ".join(f"{kind} {count}" for kind, count in sorted(watch.cases.items())) + "\n")
    if given.log:
        line = {"minutes": round(minutes, 1), "seed": given.seed, "cases": dict(watch.cases), "wrong": watch.found}
        with given.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            os.fsync(file.fileno())
    return 1 if watch.found else 0


if __name__ == "__main__":
    sys.exit(main())
