"""Two ways to a headless Chromium, neither of which needs a driver: one that is installed, and one from a wheel.

Both answer `inspect(page, width, scheme)` with what `PROBE` finds in the page.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import json
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
#: Seconds that one answer may take on a busy machine.
PATIENCE = 60.0
#: How often, and how long each time, a browser is waited for that may hang at its start.
STARTS, START_PATIENCE = 5, 15.0

#: A JavaScript function of a window: what a reader would see of its page.
PROBE = """async (view) => {
  const page = view.document, room = view.innerWidth;
  const text = (one) => one.tagName.toLowerCase() + (one.getAttribute('class') ? '.' + one.getAttribute('class') : '');
  const figures = [];
  for (const figure of page.querySelectorAll('figure')) {
    const drawing = figure.querySelector('svg, img'), style = view.getComputedStyle(drawing);
    const box = drawing.getBoundingClientRect(), picture = drawing.tagName === 'IMG';
    if (picture) await drawing.decode();
    const inside = picture ? null : drawing.getBBox();
    const letters = [...drawing.querySelectorAll('text')].map(
      (one) => parseFloat(view.getComputedStyle(one).fontSize) * box.width / drawing.viewBox.baseVal.width);
    figures.push({
      kind: picture ? 'img' : 'svg', chart: drawing.classList.contains('chart'), width: box.width, height: box.height,
      right: box.right, shown: style.visibility === 'visible' && style.display !== 'none' && Number(style.opacity) > 0,
      drawn: picture ? drawing.complete && drawing.naturalWidth > 0 : inside.width > 0 && inside.height > 0,
      label: drawing.getAttribute(picture ? 'alt' : 'aria-label') || '', letters: Math.min(...letters, 99),
      paper: view.getComputedStyle(figure).backgroundColor,
      inks: [...drawing.querySelectorAll('.line, .dashed, .dots, .crosses')].map(
        (one) => view.getComputedStyle(one).stroke),
      caption: figure.querySelector('figcaption').textContent,
    });
  }
  const body = view.getComputedStyle(page.body);
  return {
    dark: view.matchMedia('(prefers-color-scheme: dark)').matches, room, width: page.documentElement.scrollWidth,
    wide: [...page.body.querySelectorAll('*')].filter(
      (one) => one.getBoundingClientRect().right > room + 0.5).map(text),
    figures, paper: body.backgroundColor, ink: body.color, title: page.title,
    rows: [...page.querySelectorAll('#summary tbody tr')].map((one) => one.getBoundingClientRect().height),
  };
}"""


def installed_browser() -> str | None:
    """Return the path of a Chromium: that of the environment variable STEPWELL_BROWSER, or one on the path."""
    named = os.environ.get("STEPWELL_BROWSER")
    return named or next((path for path in map(shutil.which, NAMES) if path), None)


def wheel_browser() -> str | None:
    """Return the path of the Chromium that kaleido 0.2 carries in its wheel, libraries and fonts included."""
    found = importlib.util.find_spec("kaleido")
    for folder in (found.submodule_search_locations or ()) if found else ():
        path = Path(folder) / "executable" / "kaleido"
        if path.exists() and (path.parent / "bin").is_dir():
            return str(path)
    return None


class InstalledBrowser:
    """One page of an installed Chromium, spoken to over its debugging pipe."""

    def __init__(self, path: str) -> None:
        self._profile = tempfile.mkdtemp(prefix="stepwell-browser-")
        read_commands, self._commands = os.pipe()
        answers, write_answers = os.pipe()
        # Chromium reads from descriptor 3 and writes to descriptor 4.
        shell = f'exec "$0" "$@" 3<&{read_commands} 4>&{write_answers}'
        flags = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-extensions",
            "--no-first-run",
            "--hide-scrollbars",
            "--remote-debugging-pipe",
            f"--user-data-dir={self._profile}",
            "about:blank",
        ]
        self._process = subprocess.Popen(
            ["bash", "-c", shell, path, *flags],
            pass_fds=(read_commands, write_answers),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_commands)
        os.close(write_answers)
        self._messages: queue.Queue[dict[str, Any]] = queue.Queue()
        self._events: list[dict[str, Any]] = []
        self._number = 0
        self._listener = threading.Thread(target=self._listen, args=(answers,), daemon=True)
        self._listener.start()
        self._session: str | None = None
        try:
            target = self.ask("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.ask(f"{domain}.enable")
        except BaseException:
            self.close()
            raise

    def inspect(self, page: Path, width: int, scheme: str) -> dict[str, Any]:
        """Load a page at a width in pixels, under a colour scheme; return what the probe and the console tell."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 600)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.load(page)
        expression = f"({PROBE})(window)"
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"]))
        return {**answer["result"]["value"], "complaints": self._complaints(), "requests": self._requests()}

    def load(self, page: Path) -> None:
        """Open a page, and wait until all of it is there."""
        self._events.clear()
        self.ask("Page.navigate", url=page.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self._events):
            self._events.append(self._next("Page.navigate"))

    def screenshot(self, path: Path) -> None:
        """Write a picture of the whole page as it was inspected last."""
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        answer = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(answer["data"]))

    def ask(self, method: str, **parameters: Any) -> Any:
        """Send a command and return its answer; events that arrive meanwhile are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next(method)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._events.append(answer)

    def close(self) -> None:
        """End the browser."""
        self._session = None
        with contextlib.suppress(Exception):
            self.ask("Browser.close")
        with contextlib.suppress(OSError):
            os.close(self._commands)
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join(timeout=5)
        shutil.rmtree(self._profile, ignore_errors=True)

    def _listen(self, descriptor: int) -> None:
        held = b""
        with open(descriptor, "rb", buffering=0) as stream:
            while part := stream.read(1 << 16):
                *whole, held = (held + part).split(b"\0")
                for message in whole:
                    self._messages.put(json.loads(message))

    def _next(self, waiting_for: str) -> dict[str, Any]:
        try:
            return self._messages.get(timeout=PATIENCE)
        except queue.Empty:
            raise TimeoutError(f"the browser did not answer {waiting_for} in {PATIENCE} s") from None

    def _complaints(self) -> list[str]:
        """What went to the console as a warning or an error, and exceptions."""
        told = []
        for event in self._events:
            method, parameters = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                told.append(json.dumps(parameters))
            elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
                told.append(json.dumps(parameters["args"]))
            elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
                told.append(parameters["entry"]["text"])
        return told

    def _requests(self) -> list[str]:
        return [e["params"]["request"]["url"] for e in self._events if e.get("method") == "Network.requestWillBeSent"]


#: kaleido loads one script of ours and then passes every line of its input to ``kaleido_scopes.plotly``. Ours puts a
#: page into a frame of the wanted width, listens for trouble from its first letter on, and probes it.
_GUEST = """
const probe = %s;
const look = async ({html, width}) => {
  const frame = document.createElement('iframe');
  frame.style.cssText = `width:${width}px;height:800px;border:0;visibility:visible`;
  document.body.appendChild(frame);
  const view = frame.contentWindow, page = frame.contentDocument, complaints = [], requests = [];
  page.open();
  view.addEventListener('error', (e) => complaints.push(String(e.message || e.target.src || e.target.href)), true);
  page.addEventListener('securitypolicyviolation', (e) => complaints.push(`${e.violatedDirective} ${e.blockedURI}`));
  for (const level of ['error', 'warn', 'assert']) view.console[level] = (...told) => complaints.push(told.join(' '));
  const loaded = new Promise((resolve) => view.addEventListener('load', resolve));
  page.write(html);
  // The frame's scroll bar is not the page's.
  page.head.appendChild(page.createElement('style')).textContent = '::-webkit-scrollbar { display: none }';
  page.close();
  await loaded;
  const seen = await probe(view);
  for (const entry of view.performance.getEntriesByType('resource')) requests.push(entry.name);
  frame.remove();
  return {...seen, complaints, requests};
};
const scopes = {plotly: (task) => look(task).then(
  (seen) => ({code: 0, message: '', result: seen}), (error) => ({code: 1, message: String(error), result: null}))};
Object.defineProperty(window, 'kaleido_scopes', {get: () => scopes, set: () => {}});
"""


class WheelBrowser:
    """The Chromium of kaleido's wheel, a process for every look at a page."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._folder = tempfile.mkdtemp(prefix="stepwell-browser-")
        self._script = Path(self._folder) / "guest.js"
        self._script.write_text(_GUEST % PROBE, encoding="utf-8")

    def inspect(self, page: Path, width: int, scheme: str) -> dict[str, Any]:
        """Show a page in a frame of a width in pixels, under a colour scheme; return what the probe tells."""
        task = json.dumps({"html": page.read_text(encoding="utf-8"), "width": width})
        # One start in thirty hangs before the browser has said that it is there: then it is started again.
        for _ in range(STARTS):
            with self._process(scheme) as process:
                if not self._line(process, START_PATIENCE):
                    continue
                process.stdin.write(task.encode() + b"\n")
                process.stdin.flush()
                answer = json.loads(self._line(process, PATIENCE) or "{}")
            if answer.get("code") != 0:
                raise RuntimeError(f"the browser answered {answer.get('message', 'nothing')}")
            return answer["result"]
        raise TimeoutError(f"the browser did not start in {STARTS} times {START_PATIENCE} s")

    @contextlib.contextmanager
    def _process(self, scheme: str) -> Iterator[subprocess.Popen[bytes]]:
        # In this version of Chromium 0 stands for dark and 1 for light.
        flags = [f"--plotlyjs={self._script}", f"--blink-settings=preferredColorScheme={int(scheme == 'light')}"]
        process = subprocess.Popen(
            [self._path, "plotly", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            _kill(process)
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            process.stdout.close()
            process.wait()

    def _line(self, process: subprocess.Popen[bytes], patience: float) -> bytes:
        """The next line, or none if the browser ends or takes too long."""
        watch = threading.Timer(patience, _kill, (process,))
        watch.start()
        try:
            line: bytes = process.stdout.readline()
            return line
        finally:
            watch.cancel()

    def close(self) -> None:
        """Remove what was written."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a shell script together with the browser that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
