"""The paper: the form that the Journal of Open Source Software asks for, and references that agree with the text.

That its figures are those of benchmarks/summaries is tested with the README's.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAPER = (ROOT / "paper" / "paper.md").read_text()
BIB = (ROOT / "paper" / "paper.bib").read_text()


def test_it_has_the_sections_of_the_form():
    assert PAPER.startswith("---\ntitle:")
    sections = re.findall(r"^# (.*)$", PAPER, re.MULTILINE)
    needed = ["Summary", "Statement of need", "What is new", "State of the field", "Evidence", "Acknowledgements"]
    assert sections == [*needed, "References"]
    prose = re.sub(r"^\|[^\n]*$|<!--.*?-->|\A---.*?^---$", "", PAPER, flags=re.MULTILINE | re.DOTALL)
    assert 750 <= len(prose.split()) <= 1750


def test_references_agree_with_the_text():
    listed = re.findall(r"^@\w+\{(\w+),", BIB, re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert set(re.findall(r"@(\w+)", PAPER)) == set(listed)


def test_the_papers_that_ask_for_citation_are_cited():
    asked = re.findall(r"^    title: \"?(.*?)\"?$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert len(asked) == 4
    plain = re.sub(r"[{}]", "", BIB).lower()
    for title in asked:
        assert title.lower() in plain, title


def test_every_table_has_a_command_and_a_source():
    assert set(re.findall(r"<!-- figures: (\w+) -->", PAPER)) == {"cutest", "nist", "readme"}
    for program in re.findall(r"`python (\S+\.py)", PAPER):
        assert (ROOT / program).exists()
