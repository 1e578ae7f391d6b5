"""The frame of all studies: tables with the paper's figures beside ours, curves, settings, and what differs.

A study module names its columns once, fills rows and curves, and says in words what differs from the paper and why.
Device, sizes and progress come from its `Context`; `stepwell.lab.studies.pages` writes what it returns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from stepwell.arrays.places import Place, find_places
from stepwell.common.checks import read_real

#: A study at toy size takes seconds, at default size about a minute on two cores; full is the paper's size.
SIZES = ("toy", "default", "full")

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Column:
    """One column of a table.

    Parameters
    ----------
    key : str
        Name in rows, CSV and JSON.
    title : str
        Heading for people.
    form : str, default ""
        Format specification of its numbers, such as ``".3g"``.
    paper : bool, default False
        Whether the figures are the paper's.

    Examples
    --------
    >>> Column("seconds", "time, s", ".3g").show(0.12345)
    '0.123'
    >>> Column("seconds", "time, s", ".3g").show(None)
    ''
    """

    key: str
    title: str
    form: str = ""
    paper: bool = False

    @property
    def heading(self) -> str:
        """The title, saying where the figures are the paper's."""
        return f"{self.title} (paper)" if self.paper else self.title

    def show(self, value: Any) -> str:
        """Return a cell as text; nothing where there is no value."""
        if value is None:
            return ""
        if isinstance(value, str | bool):
            return str(value)
        if isinstance(value, float) and value.is_integer() and self.form.endswith(("d", ",")):
            value = int(value)
        return format(value, self.form)


@dataclasses.dataclass
class Table:
    """A table of a study: columns, and rows as dicts by column key; a `detail` goes to files only.

    Examples
    --------
    >>> table = Table("speed", "Speed", (Column("n", "n", ","), Column("ms", "ms", ".2f")))
    >>> table.add(n=1000, ms=0.5)
    >>> table.texts()
    [['1,000', '0.50']]
    """

    name: str
    title: str
    columns: Sequence[Column]
    rows: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    detail: bool = False

    def add(self, **cells: Any) -> None:
        """Add a row; cells that are left out stay empty."""
        unknown = sorted(set(cells) - {column.key for column in self.columns})
        if unknown:
            raise KeyError(f"table {self.name} has no columns {unknown}")
        self.rows.append({column.key: cells.get(column.key) for column in self.columns})

    @property
    def filled(self) -> list[Column]:
        """The columns that hold anything, a paper's figures right behind ours of the same title."""
        held = [column for column in self.columns if any(row[column.key] is not None for row in self.rows)]
        ours = {column.title: place for place, column in enumerate(held) if not column.paper}
        return sorted(held, key=lambda column: ours.get(column.title, held.index(column)))

    def texts(self) -> list[list[str]]:
        """Return the cells of the columns that hold anything, as text."""
        return [[column.show(row[column.key]) for column in self.filled] for row in self.rows]

    def find(self, **cells: Any) -> list[dict[str, Any]]:
        """Return the rows that hold these cells."""
        return [row for row in self.rows if all(row[key] == value for key, value in cells.items())]


@dataclasses.dataclass(frozen=True)
class Curve:
    """One line of a plot; `paper` marks published points, None parts the pieces of a drawing."""

    label: str
    x: Sequence[float | None]
    y: Sequence[float | None]
    paper: bool = False


@dataclasses.dataclass
class Plot:
    """A picture of a study: curves over a common axis, bars over categories (`bars`), or a `drawing` to scale."""

    name: str
    title: str
    x_label: str
    y_label: str
    curves: list[Curve] = dataclasses.field(default_factory=list)
    log_x: bool = False
    log_y: bool = False
    bars: Sequence[str] | None = None
    drawing: bool = False


@dataclasses.dataclass
class Study:
    """What a study found, and with what.

    Attributes
    ----------
    name, title, paper : str
        The study's name, what it is about, and the citation.
    device, size : str
        Where it ran and how large it was.
    settings : dict
        Tolerances and other settings.
    machine : dict
        Machine and versions.
    tables, plots : list
    differs : list of str
        What differs from the paper, and why.
    remarks : list of str
        What the figures show, or what was skipped and why.
    seconds : float
    """

    name: str
    title: str
    paper: str
    device: str = "cpu"
    size: str = "default"
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    machine: dict[str, Any] = dataclasses.field(default_factory=dict)
    tables: list[Table] = dataclasses.field(default_factory=list)
    plots: list[Plot] = dataclasses.field(default_factory=list)
    differs: list[str] = dataclasses.field(default_factory=list)
    remarks: list[str] = dataclasses.field(default_factory=list)
    seconds: float = 0.0

    def table(self, name: str, title: str, columns: Sequence[Column], *, detail: bool = False) -> Table:
        """Start a table."""
        self.tables.append(Table(name, title, columns, detail=detail))
        return self.tables[-1]

    def plot(self, name: str, title: str, x_label: str, y_label: str, **how: Any) -> Plot:
        """Start a plot."""
        self.plots.append(Plot(name, title, x_label, y_label, **how))
        return self.plots[-1]

    def find_table(self, name: str) -> Table:
        """Return a table by name."""
        for table in self.tables:
            if table.name == name:
                return table
        raise KeyError(f"study {self.name} has no table {name}; it has {', '.join(t.name for t in self.tables)}")


class StudyInterrupted(KeyboardInterrupt):
    """The Ctrl-C that ended a study; `study` has what was found so far."""

    def __init__(self, study: Study) -> None:
        super().__init__(f"study {study.name} was interrupted")
        self.study = study


@dataclasses.dataclass(frozen=True)
class Setting:
    """An option that one study takes beside those that all take; a tuple as default may be given several times."""

    name: str
    default: Any
    help: str


#: For studies whose runs may take long; see `Context.run_seconds`.
RUN_SECONDS = Setting("run_seconds", 0.0, "Seconds after which a run is stopped; 0: what belongs to the size.")


@dataclasses.dataclass
class Context:
    """What a study is told: where to run, how large, with which settings, and whom to tell how it goes.

    Parameters
    ----------
    device : str
        ``"cpu"``, or ``"cuda:K"``: then the CPU's rows stay and those of the GPU stand beside them.
    array : str, optional
        The library that holds the vectors, by default NumPy and on a GPU the first of the others that is installed.
    size : {"toy", "default", "full"}
    settings : mapping
        Values of the study's own settings.
    tell : callable
        Gets a line of progress.

    Examples
    --------
    >>> Context(size="toy").pick(toy=1, default=10, full=100)
    1
    """

    device: str = "cpu"
    array: str | None = None
    size: str = "default"
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    tell: Callable[[str], None] = lambda text: None

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise ValueError(f"size is {self.size!r}; allowed: {', '.join(SIZES)}")
        self.places: list[Place] = find_places(self.device, self.array)

    def pick(self, *, toy: T, default: T, full: T) -> T:
        """Return the one that belongs to the size."""
        return {"toy": toy, "default": default, "full": full}[self.size]

    def run_seconds(self, *, toy: float, default: float, full: float) -> float:
        """Return how long one run may take: as `RUN_SECONDS` was set, else what belongs to the size.

        Examples
        --------
        >>> Context(settings={"run_seconds": 0.0}).run_seconds(toy=1.0, default=10.0, full=600.0)
        10.0
        >>> Context(settings={"run_seconds": 2.5}).run_seconds(toy=1.0, default=10.0, full=600.0)
        2.5
        """
        asked = read_real(RUN_SECONDS.name, self.settings[RUN_SECONDS.name], at_least=0)
        return asked or self.pick(toy=toy, default=default, full=full)
