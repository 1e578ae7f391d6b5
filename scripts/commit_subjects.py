"""Refuse subjects of commits that CONTRIBUTING.md does not allow; older commits are left alone.

    python scripts/commit_subjects.py [REPOSITORY]

A subject is `component: what it does`: one topic, so no semicolon, and at most 72 characters.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

#: The last commit that nobody looks at.
SINCE = "cb47c2c69c46cf027e88f1c1afa312338e1f2069"
#: How long a subject may be.
LONGEST = 72
#: A component, or several of one topic: names as of folders, with commas between.
COMPONENT = re.compile(r"[\w./-]+(, [\w./-]+)*: \S")


def trouble(subject: str) -> str:
    """Return what is wrong with a subject; nothing if it is as it should be.

    Examples
    --------
    >>> trouble("lsq: hand float32 systems to the double kernel")
    ''
    >>> trouble("Faster")
    'no component'
    """
    found = []
    if len(subject) > LONGEST:
        found.append(f"{len(subject)} characters")
    if ";" in subject:
        found.append("a semicolon")
    if not COMPONENT.match(subject):
        found.append("no component")
    return ", ".join(found)


def git(repository: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run git in a repository."""
    return subprocess.run(["git", "-C", repository, *words], capture_output=True, text=True, check=False)


def main(repository: Path, since: str = SINCE) -> int:
    """Look at every commit after `since` but merges; return the exit status."""
    if git(repository, "merge-base", "--is-ancestor", since, "HEAD").returncode:
        print(f"subjects of commits are not checked: {since[:12]} is not in the history here")
        return 0
    shown = git(repository, "log", "--no-merges", "--format=%h %s", f"{since}..HEAD").stdout.splitlines()
    wrong = 0
    for line in shown:
        number, _, subject = line.partition(" ")
        if told := trouble(subject):
            wrong += 1
            print(f"{number} {subject}: {told}; allowed: 'component: one topic', at most {LONGEST} characters, no ';'")
    print(f"subjects of {len(shown)} commits, {wrong} of them wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1]))
