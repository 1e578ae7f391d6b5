"""Look at the pages of the site in a browser, narrow and wide, light and dark: axe-core's rules, and what sticks out.

    scripts/docs && python scripts/accessibility.py         # the pages that are written by hand, a few of those made
    python scripts/accessibility.py build/docs tour.html    # a folder, or single pages

axe-core is a package of npm (`npm install axe-core`), or named by --axe. Chromium is found on the path, or named by
STEPWELL_BROWSER. Where one of the two is missing the program says so and ends with 77, by which programs say that
they were left out. At 390 and 1400 pixels nothing may be wider than the window, tables excepted that scroll by
themselves; at 1400 no block of code may need to be scrolled. Ends with 1 where something is wrong.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "tour"))

from browsers import InstalledBrowser, installed_browser  # noqa: E402

WIDTHS, SCHEMES = (390, 1400), ("light", "dark")
LEFT_OUT = 77
#: Pages that are made, of which the first few stand for all.
MADE, SAMPLE = ("generated", "gallery"), 3
#: What a page tells of itself after axe-core was put into it.
LOOK = """(async () => {
  // The theme's search button is named "Search" and shows its keys beside the word.
  const rules = {'label-content-name-mismatch': {enabled: false}};
  const found = await axe.run(document, {resultTypes: ['violations'], rules});
  const cut = [...document.querySelectorAll('pre')].filter((one) => one.scrollWidth > one.clientWidth + 1);
  return {
    violations: found.violations.map((one) => [one.id, one.help, one.nodes.length, one.nodes[0].html.slice(0, 140)]),
    wide: document.documentElement.scrollWidth - window.innerWidth,
    cut: cut.map((one) => one.textContent.trim().slice(0, 60)),
  };
})()"""


def pages_of(folder: Path) -> list[Path]:
    """Return the pages that are written by hand, and a few of those that are made."""
    found = sorted(folder.rglob("*.html"))
    pages = [page for page in found if not any(part.startswith("_") for part in page.relative_to(folder).parts)]
    plain = [page for page in pages if not any(part in MADE for part in page.relative_to(folder).parts)]
    made = [[page for page in pages if part in page.relative_to(folder).parts][:SAMPLE] for part in MADE]
    return plain + [page for some in made for page in some]


def main() -> int:
    """Look at all pages; return the status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="*", type=Path, default=[ROOT / "build" / "docs"], help="folders or pages")
    parser.add_argument("--axe", type=Path, default=ROOT / "node_modules" / "axe-core" / "axe.min.js")
    parser.add_argument("--screenshots", type=Path, help="a folder for pictures of every page")
    options = parser.parse_args()
    browser_path = installed_browser()
    missing = [f"axe-core ({options.axe})"] * (not options.axe.exists()) + ["Chromium"] * (browser_path is None)
    if missing or browser_path is None:
        print(f"left out: {' and '.join(missing)} not found")
        return LEFT_OUT
    pages = [page for place in options.places for page in (pages_of(place) if place.is_dir() else [place])]
    axe = options.axe.read_text(encoding="utf-8")
    wrong: collections.Counter[str] = collections.Counter()
    browser = InstalledBrowser(browser_path)
    try:
        for page in pages:
            for width in WIDTHS:
                for scheme in SCHEMES:
                    for trouble in look(browser, page.resolve(), width, scheme, axe):
                        wrong[trouble] += 1
                        print(f"{page.name}, {width}, {scheme}: {trouble}", flush=True)
                    if options.screenshots and scheme == "light":
                        options.screenshots.mkdir(exist_ok=True)
                        browser.screenshot(options.screenshots / f"{page.stem}-{width}.png")
    finally:
        browser.close()
    print(f"{len(pages)} pages at {len(WIDTHS)} widths in {len(SCHEMES)} schemes: {sum(wrong.values())} complaints")
    return 1 if wrong else 0


def look(browser: InstalledBrowser, page: Path, width: int, scheme: str, axe: str) -> list[str]:
    """Return what is wrong with a page."""
    browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
    # Colours that still change into each other are those of no scheme.
    features = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
    browser.ask("Emulation.setEmulatedMedia", features=[{"name": k, "value": v} for k, v in features.items()])
    browser.load(page)
    browser.ask("Runtime.evaluate", expression=axe)
    answer = browser.ask("Runtime.evaluate", expression=LOOK, returnByValue=True, awaitPromise=True)
    if "exceptionDetails" in answer:
        return [json.dumps(answer["exceptionDetails"])[:200]]
    seen = answer["result"]["value"]
    trouble = [f"{rule}: {text} ({count}, such as {first})" for rule, text, count, first in seen["violations"]]
    if seen["wide"] > 0:
        trouble.append(f"{seen['wide']} pixels wider than the window")
    if width == max(WIDTHS):
        trouble += [f"a block of code is cut: {text!r}" for text in seen["cut"]]
    return trouble


if __name__ == "__main__":
    sys.exit(main())
