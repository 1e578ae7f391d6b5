"""Files of a tessellation: points as CSV and NPY, the mesh as OBJ and PLY, statistics as JSON."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from stepwell.apps.voronoi.mesh import Mesh, read_points
from stepwell.arrays.checks import read_numpy
from stepwell.common.checks import require_shape
from stepwell.common.files import replacing, write_text
from stepwell.common.json_text import json_text

Path = str | os.PathLike[str]


def write_points_csv(path: Path, sites: Any, **columns: Any) -> None:
    """Write points as comma-separated text with a header: x, y, and further columns by name.

    Parameters
    ----------
    path : path
    sites : array, (n, 2)
    **columns : arrays, (n,)
        For instance ``radius=radii``. Numbers are written with nine significant digits.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "points.csv"
    >>> write_points_csv(file, [[0.25, 0.5]], radius=[0.01])
    >>> file.read_text().split()
    ['x,y,radius', '0.25,0.5,0.01']
    """
    sites = read_points("sites", sites)
    further = {name: np.asarray(read_numpy(name, values)) for name, values in columns.items()}
    for name, values in further.items():
        require_shape(values.shape == (len(sites),), name, values, (len(sites),))
    table = np.column_stack([sites, *further.values()])
    with replacing(path, encoding="latin1") as file:
        np.savetxt(file, table, fmt="%.9g", delimiter=",", header=",".join(["x", "y", *columns]), comments="")


def write_points_npy(path: Path, sites: Any) -> None:
    """Write points as a NumPy file that holds a float64 array (n, 2), exactly.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "points.npy"
    >>> write_points_npy(file, [[0.25, 0.5]])
    >>> np.load(file)
    array([[0.25, 0.5 ]])
    """
    points = read_points("sites", sites)
    with replacing(path) as file:  # np.save would add a suffix of its own to some names
        np.save(file, points)


def write_obj(path: Path, mesh: Mesh, height: float = 1.0) -> None:
    """Write a mesh as Wavefront OBJ, in the plane z = 0.

    Parameters
    ----------
    path : path
    mesh : Mesh
    height : float, default 1
        Height of the domain. In the file y grows upwards, from 0 to the height, so that the mesh stands as the image
        does, and triangles are counterclockwise seen from z > 0.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "mesh.obj"
    >>> write_obj(file, Mesh(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), np.array([[0, 1, 2]])))
    >>> file.read_text().splitlines()
    ['v 0 1 0', 'v 1 1 0', 'v 0 0 0', 'f 1 3 2']
    """
    vertices, faces = _upright(mesh, height)
    lines = [f"v {x:.9g} {y:.9g} 0\n" for x, y in vertices.tolist()]
    lines += [f"f {a} {b} {c}\n" for a, b, c in (faces + 1).tolist()]
    with replacing(path, encoding="ascii", newline="\n") as file:
        file.writelines(lines)


def write_ply(path: Path, mesh: Mesh, height: float = 1.0, **properties: Any) -> None:
    """Write a mesh as binary little-endian PLY, in the plane z = 0.

    Parameters
    ----------
    path : path
    mesh : Mesh
    height : float, default 1
        Height of the domain; in the file y grows upwards as in `write_obj`.
    **properties : arrays, (n,)
        Further numbers for each vertex, written as float32; ``red``, ``green`` and ``blue`` (0 to 1) as bytes, as the
        format knows colours.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "mesh.ply"
    >>> write_ply(file, Mesh(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), np.array([[0, 1, 2]])))
    >>> file.read_bytes().split(b"end_header")[0].decode().splitlines()[:3]
    ['ply', 'format binary_little_endian 1.0', 'element vertex 3']
    """
    vertices, faces = _upright(mesh, height)
    kinds = dict.fromkeys(("x", "y", "z", *properties), ("<f4", "float"))
    kinds |= {name: ("<u1", "uchar") for name in ("red", "green", "blue") if name in properties}
    table = np.zeros(len(vertices), [(name, kind) for name, (kind, _) in kinds.items()])
    table["x"], table["y"] = vertices.T
    for name, values in properties.items():
        byte = kinds[name][0] == "<u1"
        table[name] = np.rint(np.clip(values, 0, 1) * 255) if byte else values
    rows = np.zeros(len(faces), [("count", "<u1"), ("corners", "<i4", (3,))])
    rows["count"], rows["corners"] = 3, faces
    header = [
        "ply",
        "format binary_little_endian 1.0",
        f"element vertex {len(vertices)}",
        *(f"property {word} {name}" for name, (_, word) in kinds.items()),
        f"element face {len(faces)}",
        "property list uchar int vertex_indices",
        "end_header",
    ]
    with replacing(path) as file:
        file.write(("\n".join(header) + "\n").encode("ascii"))
        file.write(table.tobytes())
        file.write(rows.tobytes())


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Write a record as JSON; numbers that JSON cannot write are null.

    Examples
    --------
    >>> import json, pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "statistics.json"
    >>> write_json(file, {"sites": np.int64(3), "angle_min": float("nan"), "valence": {6: 1}})
    >>> json.loads(file.read_text())
    {'sites': 3, 'angle_min': None, 'valence': {'6': 1}}
    """
    write_text(path, json_text(record) + "\n")


def _upright(mesh: Mesh, height: float) -> tuple[np.ndarray, np.ndarray]:
    """Vertices with y upwards, and triangles that are counterclockwise then."""
    vertices = np.column_stack([mesh.sites[:, 0], height - mesh.sites[:, 1]])
    return vertices, mesh.triangles[:, [0, 2, 1]]
