"""Subjects of commits: `scripts/commit_subjects.py` refuses what CONTRIBUTING.md does not allow."""

from __future__ import annotations

import importlib.util
import pathlib
import shutil
import subprocess

import pytest

SCRIPT = pathlib.Path(__file__).parent.parent / "scripts" / "commit_subjects.py"
SPEC = importlib.util.spec_from_file_location("commit_subjects", SCRIPT)
SUBJECTS = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(SUBJECTS)


@pytest.mark.parametrize(
    ("subject", "told"),
    [
        ("nnls: hand float32 systems to the double kernel", ""),
        ("tv, lasso: one reader of progress", ""),
        ("tests/lsq: " + "a" * 61, ""),
        ("lsq: " + "a" * 68, "73 characters"),
        ("lsq: two things; in one commit", "a semicolon"),
        ("Faster systems", "no component"),
        ("lsq:", "no component"),
        ("a long sentence that has a colon: late", "no component"),
    ],
)
def test_what_a_subject_is_told(subject, told):
    assert SUBJECTS.trouble(subject) == told


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_commits_after_a_fixed_one_are_looked_at(tmp_path, capsys):
    def git(*words):
        call = ["git", "-C", tmp_path, "-c", "user.name=N", "-c", "user.email=n@n.invalid", *words]
        return subprocess.run(call, check=True, capture_output=True, text=True).stdout.strip()

    def commit(subject):
        git("commit", "-q", "--allow-empty", "--no-gpg-sign", "-m", subject)
        return git("rev-parse", "HEAD")

    git("init", "-q")
    since = commit("Whatever; was allowed")
    commit("lsq: a good one")
    assert SUBJECTS.main(tmp_path, since) == 0
    commit("one; and another")
    assert SUBJECTS.main(tmp_path, since) == 1
    assert "one; and another: a semicolon, no component; allowed: " in capsys.readouterr().out
    assert SUBJECTS.main(tmp_path, "0" * 40) == 0  # as in a shallow clone
    assert "not checked" in capsys.readouterr().out
    assert SUBJECTS.main(tmp_path / ".." / tmp_path.name / ".git") == 0  # no such commit, no such tree
