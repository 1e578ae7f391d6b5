"""Print a page of the repository with its relative links turned into those of the published site and repository.

    python scripts/published_links.py README.md [TAG]

Pages of docs/ lead to the site, pictures to the raw file, everything else to the file in the repository at TAG (main).
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def urls() -> tuple[str, str]:
    """Return where the site and the repository are, as the package's metadata have them."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        held = tomllib.load(file)["project"]["urls"]
    return held["Documentation"].rstrip("/"), held["Source"].rstrip("/")


def published(target: str, tag: str = "main") -> str:
    """Return the published address of a relative link."""
    if re.match(r"[a-z]+:|#", target):
        return target
    site, source = urls()
    path, mark, anchor = target.partition("#")
    if path.endswith((".png", ".svg", ".jpg")):
        return source.replace("https://github.com/", "https://raw.githubusercontent.com/") + f"/{tag}/{path}"
    if path.rstrip("/") == "examples/gallery":
        return f"{site}/gallery/index.html"
    if page := re.fullmatch(r"docs/(.*)\.(?:md|rst)", path):
        return f"{site}/{page[1]}.html{mark}{anchor}"
    return f"{source}/blob/{tag}/{path}{mark}{anchor}"


def with_published_links(text: str, tag: str = "main") -> str:
    """Turn every link and picture of a Markdown text; blocks of code stay as they are."""
    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    turned = [re.sub(r"\]\(([^)\s]+)\)", lambda found: f"]({published(found[1], tag)})", part) for part in parts[::2]]
    parts[::2] = turned
    return "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(with_published_links(Path(sys.argv[1]).read_text(encoding="utf-8"), *sys.argv[2:]))
