"""A headless Chromium, spoken to over its debugging pipe: no driver and no package is needed beside the browser."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
#: Seconds that one answer may take on a busy machine.
PATIENCE = 60.0


def find_browser() -> str | None:
    """Return the path of a Chromium: of the environment variable STEPWELL_BROWSER, or one on the path."""
    named = os.environ.get("STEPWELL_BROWSER")
    return named or next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One page of a browser without windows."""

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
        self.events: list[dict[str, Any]] = []
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

    def _listen(self, descriptor: int) -> None:
        held = b""
        with open(descriptor, "rb", buffering=0) as stream:
            while part := stream.read(1 << 16):
                *whole, held = (held + part).split(b"\0")
                for message in whole:
                    self._messages.put(json.loads(message))

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
            self.events.append(answer)

    def _next(self, waiting_for: str) -> dict[str, Any]:
        try:
            return self._messages.get(timeout=PATIENCE)
        except queue.Empty:
            raise TimeoutError(f"the browser did not answer {waiting_for} in {PATIENCE} s") from None

    def show(self, page: Path, *, width: int, height: int = 800, scheme: str = "light") -> None:
        """Load a page at a width in pixels, under a colour scheme, and wait until it is complete."""
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events.clear()
        self.ask("Page.navigate", url=page.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next("Page.navigate"))

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; a promise is waited for."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def complaints(self) -> list[str]:
        """Return what went to the console as a warning or an error, and exceptions, since the page was shown."""
        told = []
        for event in self.events:
            method, parameters = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                told.append(json.dumps(parameters))
            elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
                told.append(json.dumps(parameters["args"]))
            elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
                told.append(parameters["entry"]["text"])
        return told

    def requests(self) -> list[str]:
        """Return the addresses that were asked for since the page was shown."""
        return [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """Write a picture of the page."""
        answer = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

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
