"""A headless Chromium, driven by the DevTools protocol. Python's standard
library only."""

import base64
import itertools
import json
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request


def find_chromium():
    """The program's path, or None."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        if path:
            return path
    return None


class _WebSocket:
    """A client of RFC 6455: text messages, no extensions."""

    def __init__(self, host, port, path):
        self._socket = socket.create_connection((host, port), timeout=60)
        key = base64.b64encode(os.urandom(16)).decode()
        self._socket.sendall(
            (f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\n"
             f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
             "Sec-WebSocket-Version: 13\r\n\r\n").encode())
        self._in = self._socket.makefile("rb")
        status = self._in.readline()
        if b" 101 " not in status:
            raise RuntimeError(f"no WebSocket: {status!r}")
        while self._in.readline().strip():
            pass

    def send(self, text):
        data = text.encode()
        if len(data) < 126:
            head = struct.pack("!BB", 0x81, 0x80 | len(data))
        elif len(data) < 1 << 16:
            head = struct.pack("!BBH", 0x81, 0x80 | 126, len(data))
        else:
            head = struct.pack("!BBQ", 0x81, 0x80 | 127, len(data))
        # A mask of zeros is one, too.
        self._socket.sendall(head + bytes(4) + data)

    def receive(self):
        text = b""
        while True:
            first, size = struct.unpack("!BB", self._in.read(2))
            if size == 126:
                (size,) = struct.unpack("!H", self._in.read(2))
            elif size == 127:
                (size,) = struct.unpack("!Q", self._in.read(8))
            data = self._in.read(size)
            if first & 0x0f > 2:  # a ping or the like
                continue
            text += data
            if first & 0x80:
                return text.decode()

    def close(self):
        self._socket.close()


class Page:
    """One page of a Chromium that has nothing in its cache and finds no host but
    this one. A context: the browser ends with it."""

    def __init__(self, chromium):
        # Anything may take long on a busy machine.
        self.patience_s = 120
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._browser = subprocess.Popen(
            [chromium, "--headless=new", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-port=0",
             "--disable-background-networking", "--disable-component-update",
             "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
             f"--user-data-dir={self._profile.name}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self._connect()
        except BaseException:
            self.close()
            raise

    def _connect(self):
        port = self._await_port()
        self._ids = itertools.count(1)
        self.events = []
        self.on_event = {}  # method -> function(params)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list",
                                    timeout=self.patience_s) as response:
            pages = json.load(response)
        url = next(one for one in pages if one["type"] == "page")["webSocketDebuggerUrl"]
        self._socket = _WebSocket("127.0.0.1", port, "/" + url.split("/", 3)[3])
        for domain in ("Page", "Runtime", "Network", "Log", "Accessibility"):
            self.call(f"{domain}.enable")

    def _await_port(self):
        path = os.path.join(self._profile.name, "DevToolsActivePort")
        deadline = time.monotonic() + self.patience_s
        while time.monotonic() < deadline:
            if self._browser.poll() is not None:
                raise RuntimeError("Chromium has ended")
            if os.path.exists(path):
                with open(path, encoding="ascii") as file:
                    lines = file.read().split()
                if len(lines) == 2:
                    return int(lines[0])
            time.sleep(0.05)
        raise TimeoutError("Chromium does not say its port")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._browser.kill()
        self._browser.wait()
        self._profile.cleanup()

    def call(self, method, **params):
        """The result of a command; what is told meanwhile goes to `events`."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.receive())
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            if "method" in message:
                self.events.append(message)
                if message["method"] in self.on_event:
                    self.on_event[message["method"]](message["params"])

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait_for(f"location.href === {json.dumps(url)} && "
                      "document.readyState === 'complete'")

    def evaluate(self, expression):
        """The value of JavaScript, which may be a promise."""
        result = self.call("Runtime.evaluate", expression=expression,
                           returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait_for(self, expression):
        """Polls until JavaScript is true; returns the seconds that it took."""
        start = time.monotonic()
        while time.monotonic() < start + self.patience_s:
            if self.evaluate(expression):
                return time.monotonic() - start
            time.sleep(0.02)
        raise TimeoutError(f"{expression} after {self.patience_s} s; the page says: "
                           + self.evaluate("document.body.innerText"))

    def text(self, selector):
        return self.evaluate(f"document.querySelector({json.dumps(selector)}).textContent")

    def type(self, selector, text):
        self.evaluate(f"document.querySelector({json.dumps(selector)}).focus()")
        self.call("Input.insertText", text=text)

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                      windowsVirtualKeyCode={"Enter": 13, "Escape": 27, "Tab": 9}[key],
                      text="\r" if (key, kind) == ("Enter", "keyDown") else "")

    def click(self, selector):
        x, y = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const r = e.getBoundingClientRect();"
            "return [r.x + r.width / 2, r.y + r.height / 2]; })()")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left",
                      clickCount=1)

    def picture(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def resize(self, width, height, phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=phone)

    def color_scheme(self, name):
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": name}])
