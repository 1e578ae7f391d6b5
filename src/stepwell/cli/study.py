"""`stepwell study`: published experiments, repeated beside other methods."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table

from stepwell.cli.console import make_console, make_table

if TYPE_CHECKING:
    from stepwell.apps.tomography.study import Study

#: Tolerances at which the slices are solved unless others are asked for.
TOLERANCES = (1e-2, 5e-3, 3e-3, 2e-3, 1e-3)


@click.group("study")
def command() -> None:
    """Repeat a published experiment beside other methods."""


@command.command("projected-cg")
@click.option("--tol", "tolerances", type=float, multiple=True, default=TOLERANCES, show_default=True,
              help="Tolerance for the four slices; may be given several times.")  # fmt: skip
@click.option("--seed-tol", default=1e-6, show_default=True, help="Tolerance for the seed slice.")
@click.option("--relative-lam", default=0.01, show_default=True, help="λ as a fraction of ‖A‖.")
@click.option("--noise", default=0.01, show_default=True, help="Norm of the noise relative to that of the data.")
@click.option("--direct", is_flag=True, help="Factor the dense matrix as well: 4.3 GB, about a minute on two cores.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), default=None, help="Write the rows here too.")
def projected_cg(
    tolerances: tuple[float, ...],
    seed_tol: float,
    relative_lam: float,
    noise: float,
    direct: bool,
    json_path: Path | None,
) -> None:
    """Slices 65 to 68 of the 128-cube phantom from seed slice 64 (Lin and Renaut 2010)."""
    from stepwell.apps.tomography.study import projected_cg_study

    console = make_console()
    with console.status("starting") as status:
        study = projected_cg_study(
            tolerances, relative_lam=relative_lam, noise=noise, seed_tol=seed_tol, direct=direct,
            tell=lambda text: status.update(text),
        )  # fmt: skip
    console.print(
        f"λ = {relative_lam:g} ‖A‖ = {study.lam:.4g}, noise {noise:.1%}; seed slice 64 to {seed_tol:g}: "
        f"{study.seed_products:.0f} products, {study.seed_directions} directions kept. Products include the one for "
        f"the true residual.",
    )
    for tol in tolerances:
        console.print(_table(study, tol))
    reached = [tol for tol in tolerances if study.reaches_poster(tol)]
    console.print(
        f"The poster's speed-ups are reached or passed in products at tolerance {', '.join(f'{t:g}' for t in reached)}."
        if reached
        else "The poster's speed-ups are reached at none of these tolerances."
    )
    if json_path is not None:
        json_path.write_text(json.dumps(dataclasses.asdict(study), indent=1))
        console.print(f"wrote {json_path}")


def _table(study: Study, tol: float) -> Table:
    from stepwell.apps.tomography.study import METHODS, POSTER

    shown = [method for method in METHODS if study.find(tol, 65, method)]
    table = make_table("slice", *shown, "CG/APrCG", "poster: CG, PrCG, APrCG", "CG/APrCG")
    table.title = f"tolerance {tol:g}: products, seconds, SNR in dB (poster: seconds, SNR of APrCG)"
    table.title_justify = "left"
    for column in table.columns:
        column.justify = "right"
    for (number, (cost, quality, ratio)), ours in zip(POSTER.items(), study.ratios(tol)):
        cells = []
        for method in shown:
            row = study.find(tol, number, method)
            cells.append("" if row is None else f"{row.products:.0f}  {row.seconds:.2f}  {row.quality:.2f}")
        poster = f"{cost[0]:.2f}  {cost[1]:.2f}  {cost[2]:.2f}  {quality[2]:.2f}"
        table.add_row(str(number), *cells, f"{ours:.2f}", poster, f"{ratio:.2f}")
    return table
