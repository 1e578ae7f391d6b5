"""Look at the pages of the site in a browser, narrow and wide, light and dark: axe-core's rules, and what sticks out.

    scripts/docs && python scripts/accessibility.py         # the pages that are written by hand, a few of those made
    python scripts/accessibility.py build/docs tour.html    # a folder, or single pages
    python scripts/accessibility.py --all                   # those that are made, too

axe-core is a package of npm (`npm install axe-core`), or named by --axe. Chromium is found on the path, or named by
STEPWELL_BROWSER. Where one of the two is missing the program says so and ends with 77, by which programs say that
they were left out. At 390 and 1400 pixels nothing may be wider than the window, tables excepted that scroll by
themselves; at 1400 no block of code may need to be scrolled. Every core has a browser of its own, which loads a page
once for both schemes. Ends with 1 where something is wrong.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import queue
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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
  // A page hears of a scheme that changes before the next frame.
  await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
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


def pages_of(folder: Path, sample: int | None) -> list[Path]:
    """Return the pages that are written by hand, and some of those that are made."""
    found = sorted(folder.rglob("*.html"))
    pages = [page for page in found if not any(part.startswith("_") for part in page.relative_to(folder).parts)]
    plain = [page for page in pages if not any(part in MADE for part in page.relative_to(folder).parts)]
    made = [[page for page in pages if part in page.relative_to(folder).parts][:sample] for part in MADE]
    return plain + [page for some in made for page in some]


def main() -> int:
    """Look at all pages; return the status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="*", type=Path, default=[ROOT / "build" / "docs"], help="folders or pages")
    parser.add_argument("--axe", type=Path, default=ROOT / "node_modules" / "axe-core" / "axe.min.js")
    parser.add_argument("--all", action="store_true", help="every page that is made, not three of each kind")
    parser.add_argument("--screenshots", type=Path, help="a folder for pictures of every page")
    options = parser.parse_args()
    browser_path = installed_browser()
    missing = [f"axe-core ({options.axe})"] * (not options.axe.exists()) + ["Chromium"] * (browser_path is None)
    if missing or browser_path is None:
        print(f"left out: {' and '.join(missing)} not found")
        return LEFT_OUT
    sample = None if options.all else SAMPLE
    pages = [page for place in options.places for page in (pages_of(place, sample) if place.is_dir() else [place])]
    axe = options.axe.read_text(encoding="utf-8")
    if options.screenshots:
        options.screenshots.mkdir(exist_ok=True)
    waiting: queue.SimpleQueue[Path] = queue.SimpleQueue()
    for page in pages:
        waiting.put(page)

    def work(_: int) -> collections.Counter[str]:
        wrong: collections.Counter[str] = collections.Counter()
        browser = InstalledBrowser(browser_path)
        try:
            while True:
                page = waiting.get_nowait()
                for width, scheme, troubles in look(browser, page.resolve(), axe, options.screenshots):
                    wrong.update(troubles)
                    for trouble in troubles:
                        print(f"{page.name}, {width}, {scheme}: {trouble}", flush=True)
        except queue.Empty:
            return wrong
        finally:
            browser.close()

    browsers = min(len(pages), os.cpu_count() or 1)
    with ThreadPoolExecutor(max(1, browsers)) as pool:
        wrong = sum(pool.map(work, range(browsers)), collections.Counter())
    print(f"{len(pages)} pages at {len(WIDTHS)} widths in {len(SCHEMES)} schemes: {sum(wrong.values())} complaints")
    return 1 if wrong else 0


def look(
    browser: InstalledBrowser, page: Path, axe: str, screenshots: Path | None
) -> Iterator[tuple[int, str, list[str]]]:
    """Yield what is wrong with a page, at every width and in every scheme."""
    for width in WIDTHS:
        mobile = width < 600
        browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=mobile)
        show_scheme(browser, SCHEMES[0])
        browser.load(page)
        browser.ask("Runtime.evaluate", expression=axe)
        for scheme in SCHEMES:
            show_scheme(browser, scheme)
            yield width, scheme, troubles_of(browser, width)
            if screenshots and scheme == "light":
                browser.screenshot(screenshots / f"{page.stem}-{width}.png")


def show_scheme(browser: InstalledBrowser, scheme: str) -> None:
    """Prefer light or dark, as a reader's system does; a page that is there changes with it."""
    # Colours that still change into each other are those of no scheme.
    features = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
    browser.ask("Emulation.setEmulatedMedia", features=[{"name": k, "value": v} for k, v in features.items()])


def troubles_of(browser: InstalledBrowser, width: int) -> list[str]:
    """Return what is wrong with the page as it is shown."""
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
