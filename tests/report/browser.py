"""A headless browser through its driver, by the WebDriver protocol, which is JSON over HTTP."""

import base64
import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DRIVERS = ("chromedriver",)


def found(names):
    return next(filter(None, map(shutil.which, names)), None)


class Browser:
    """One window of a browser, with access to its texts and to the console of the page."""

    def __init__(self, url, width=1480, height=900, dark=False, downloads=None):
        self._url = url
        # no sandbox, which root and most containers cannot use; the pages are our own
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        arguments += [f"--window-size={width},{height}", "--force-prefers-reduced-motion"]
        arguments += ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if dark else []
        options = {"binary": found(BROWSERS), "args": arguments}
        asked = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        self._session = self._call("POST", "/session", {"capabilities": {"alwaysMatch": asked}})["sessionId"]
        if downloads is not None:
            behaviour = {"behavior": "allow", "downloadPath": str(downloads)}
            command = {"cmd": "Browser.setDownloadBehavior", "params": behaviour}
            self._ask("POST", "/goog/cdp/execute", command)

    def _call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"]) from None

    def _ask(self, method, path, body=None):
        return self._call(method, f"/session/{self._session}{path}", body)

    def open(self, path, fragment=""):
        """Open a file, or an address."""
        address = str(path) if str(path).startswith(("http://", "about:")) else Path(path).resolve().as_uri()
        self._ask("POST", "/url", {"url": address + fragment})
        # the page before may give itself an address meanwhile, which the driver takes for the end of this
        self.until("return location.href.startsWith(arguments[0]) && document.readyState === 'complete'", address)

    def address(self):
        return self._ask("GET", "/url")

    def run(self, script, *args):
        """Return the result of a script, which starts after two frames."""
        body = f"""
            const done = arguments[arguments.length - 1], given = [...arguments].slice(0, -1);
            const then = () => done((function () {{ {script} }})(...given));
            requestAnimationFrame(() => requestAnimationFrame(then));
        """
        return self._ask("POST", "/execute/async", {"script": body, "args": list(args)})

    def until(self, script, *args, also=lambda: True, n_times=100):
        """Wait until a script returns true."""
        for _ in range(n_times):
            with contextlib.suppress(RuntimeError):  # a script ends with the page before
                if self.run(script, *args) and also():
                    return
            time.sleep(0.05)
        raise AssertionError(f"never came: {script}")

    def frames(self, keys):
        """Press keys on the timeline, one a frame; return the milliseconds of each frame."""
        script = """
            const timeline = document.getElementById("timeline"), [keys, done] = arguments, times = [];
            let last = null;
            function frame(now) {
              if (last !== null) times.push(now - last);
              last = now;
              if (!keys.length) return done(times);
              timeline.dispatchEvent(new KeyboardEvent("keydown", {key: keys.shift()}));
              requestAnimationFrame(frame);
            }
            requestAnimationFrame(frame);
        """
        return self._ask("POST", "/execute/async", {"script": script, "args": [keys]})

    def key(self, key, selector="body"):
        """Press a key on an element."""
        self.run(
            "document.querySelector(arguments[1]).dispatchEvent("
            "new KeyboardEvent('keydown', {key: arguments[0], bubbles: true}))",
            key,
            selector,
        )

    def type(self, text):
        """Press the keys of a text, on what has the focus; those of KEYS have names of a private area of Unicode."""
        actions = [{"type": kind, "value": key} for key in text for kind in ("keyDown", "keyUp")]
        self._ask("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def chord(self, *keys):
        """Press keys together, such as Shift and Enter."""
        actions = [{"type": "keyDown", "value": key} for key in keys]
        actions += [{"type": "keyUp", "value": key} for key in reversed(keys)]
        self._ask("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def press(self, selector):
        """Click an element, wherever it is."""
        self.run("document.querySelector(arguments[0]).click()", selector)

    def fill(self, selector, text):
        """Put a text into a field."""
        self.run(
            "const field = document.querySelector(arguments[0]); field.value = arguments[1];"
            "field.dispatchEvent(new Event('input'))",
            selector,
            text,
        )

    def table(self, selector):
        """Return the texts of the cells of a table, row by row."""
        return self.run(
            "return [...document.querySelectorAll(arguments[0] + ' tr:not(.space)')].map("
            "(row) => [...row.cells].map((cell) => cell.innerText))",
            selector,
        )

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0]).innerText", selector)

    def act(self, *actions):
        """Move, press and release the pointer, at places in the window."""
        pointer = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": list(actions)}
        self._ask("POST", "/actions", {"actions": [pointer]})

    def click(self, x, y):
        self.act(*moved(x, y), pressed(), released())

    def drag(self, x, y, to_x, to_y):
        self.act(*moved(x, y), pressed(), *moved((x + to_x) // 2, (y + to_y) // 2), *moved(to_x, to_y), released())

    def console(self):
        """Return the messages on the console since the last call."""
        return [entry["message"] for entry in self._ask("POST", "/se/log", {"type": "browser"})]

    def picture(self, file):
        Path(file).write_bytes(base64.b64decode(self._ask("GET", "/screenshot")))

    def close(self):
        self._ask("DELETE", "")


ENTER, TAB, ESCAPE, UP, DOWN, BACKSPACE = "\ue007", "\ue004", "\ue00c", "\ue013", "\ue015", "\ue003"
SHIFT, CONTROL = "\ue008", "\ue009"
"""Keys for `Browser.type` and `Browser.chord`."""


def moved(x, y):
    return [{"type": "pointerMove", "duration": 0, "x": int(x), "y": int(y)}]


def pressed():
    return {"type": "pointerDown", "button": 0}


def released():
    return {"type": "pointerUp", "button": 0}


@contextlib.contextmanager
def driver():
    """Start the driver; yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([found(DRIVERS), f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        for _ in range(200):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/status", timeout=5):
                break
            time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait(30)
