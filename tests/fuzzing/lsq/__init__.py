"""Calls of `lsq_linear`, `lsq_gram` and `nnls` over all their arguments, held against an oracle in wide precision."""

from __future__ import annotations

import collections

import numpy as np

from fuzzing.common import Wrong
from fuzzing.lsq import judging
from fuzzing.lsq.cases import Case
from fuzzing.lsq.drawing import draw
from fuzzing.lsq.judging import judge

#: Cases of which something is called so are left out: `--avoid` of tests/fuzz.py.
avoided: list[str] = []


def least_squares(rng: np.random.Generator) -> collections.Counter[str]:
    """One call; returns how many systems it had of each kind, raises where an answer is wrong."""
    case = draw(rng)
    if any(word in kind for word in avoided for kind in case.kinds):
        return collections.Counter()
    return hold_case(case)


def hold_case(case: Case) -> collections.Counter[str]:
    """Make the call of a case and raise where an answer is wrong."""
    verdict = judge(case)
    for kind in case.kinds:
        verdict.counts[kind] += case.systems()
    if verdict.findings:
        kinds = sorted({finding.kind for finding in verdict.findings})
        text = f"{verdict.findings[0]} ({len(verdict.findings)} findings; {', '.join(case.kinds)})"
        raise Wrong("+".join(kinds), text, verdict.counts)
    return verdict.counts


def describe(rng: np.random.Generator, smaller: bool) -> str:
    """What a case is and what is wrong with it, in lines; made smaller first where that is asked."""
    from fuzzing.lsq.shrinking import kinds_of, shrink

    case = draw(rng)
    kinds = kinds_of(case)
    lines = [
        f"{', '.join(case.kinds)}; A {np.shape(case.matrix())}, b {case.b.shape}",
        f"wrong: {sorted(kinds) or 'nothing'}",
    ]
    if kinds and smaller:
        case = shrink(case, sorted(kinds)[0])
    if kinds and not kinds & {"hang", "crash"}:
        lines += [str(finding) for finding in judge(case).findings[:10]]
    code = case.as_code()
    lines.append(code if len(code) < 6000 else f"{code[:3000]} ... (--smaller makes it smaller)")
    return "\n".join(lines)
