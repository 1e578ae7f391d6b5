"""Text with numbers, as programs and people write it: commas, semicolons, tabs or spaces; with a header or without."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stepwell.common.files import Unreadable, read_text, replacing

#: Bytes that a text may have.
LARGEST = 2**28


@dataclasses.dataclass(frozen=True)
class TextTable:
    """The cells of a text, all rows of one length.

    Attributes
    ----------
    path : str
    header : list of str or None
        The first line, where it holds what is no number.
    rows : list of lists of str
        The other lines.
    """

    path: str
    header: list[str] | None
    rows: list[list[str]]

    def numbers(self) -> np.ndarray:
        """Return the rows as numbers; empty cells are NaN."""
        return np.array([[required_number(self.path, cell) for cell in row] for row in self.rows])


def read_table(path: str | os.PathLike[str]) -> TextTable:
    """Read a table; what follows a # in a line is a remark.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "a.csv"
    >>> _ = file.write_text("1;2,5\\n3;4\\n")
    >>> read_table(file).numbers().tolist()
    [[1.0, 2.5], [3.0, 4.0]]
    """
    name = os.fspath(path)
    text = read_text(path, LARGEST, encoding="utf-8-sig")
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if not lines:
        raise Unreadable(f"{name}: has no table; allowed: rows of as many cells, with a header line or without")
    mark = next((one for one in "\t;," if one in lines[0]), None)
    if mark is None:
        cells = [line.split() for line in lines]
    else:
        try:
            cells = [
                [cell.strip() for cell in row] for row in csv.reader(io.StringIO("\n".join(lines)), delimiter=mark)
            ]
        except csv.Error as error:
            raise Unreadable(f"{name}: is no CSV file: {error}") from error
        if mark == ";":  # where the comma is taken, it stands for the point
            cells = [[_with_point(cell) for cell in row] for row in cells]
    cells = [row for row in cells if any(row)]
    if not cells or any(len(row) != len(cells[0]) for row in cells):
        raise Unreadable(f"{name}: has no table; allowed: rows of as many cells, with a header line or without")
    headed = any(number_in(cell) is None for cell in cells[0])
    return TextTable(name, cells[0] if headed else None, cells[1:] if headed else cells)


def number_in(cell: str) -> float | None:
    """Return the number of a cell, None where it holds something else."""
    try:
        return float(cell)
    except ValueError:
        return None


def required_number(path: object, cell: str) -> float:
    """Return the number of a cell, NaN of an empty one; anything else is `Unreadable`."""
    number = number_in(cell) if cell else math.nan
    if number is None:
        raise Unreadable(f"{path}: holds {cell!r} among its numbers; allowed: numbers")
    return number


def write_table(path: str | os.PathLike[str], columns: Mapping[str, Sequence[Any] | np.ndarray]) -> None:
    """Write columns of equal length as CSV; numbers have as many digits as tell them apart, NaN is an empty cell."""
    lists = [np.asarray(column).tolist() for column in columns.values()]
    with replacing(path, encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for row in zip(*lists, strict=True):
            writer.writerow(["" if isinstance(cell, float) and math.isnan(cell) else cell for cell in row])


def _with_point(cell: str) -> str:
    changed = cell.replace(",", ".")
    return changed if cell.count(",") == 1 and number_in(changed) is not None else cell
