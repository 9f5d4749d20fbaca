"""Chromium, for tests of pages."""

import base64
import json
import os
import select
import shutil
import subprocess
import time

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium; apt install chromium")


class Browser:
    """Chromium without a window, spoken to through pipes by its DevTools protocol."""

    def __init__(self, folder):
        asked, said = folder / "asked", folder / "said"
        os.mkfifo(asked), os.mkfifo(said)
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        options += [f"--user-data-dir={folder / 'profile'}", "--remote-debugging-pipe"]
        shell = ["sh", "-c", 'exec "$@" 3<"$0/asked" 4>"$0/said"', str(folder), CHROMIUM, *options]
        self.process = subprocess.Popen(shell, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.asked, self.said = asked.open("wb", buffering=0), said.open("rb", buffering=0)
        self.rest, self.number, self.session, self.faults = b"", 0, None, []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def close(self):
        self.asked.close()
        self.process.kill()
        self.process.wait()
        self.said.close()

    def send(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.asked.write(json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                assert select.select([self.said], [], [], 60)[0], f"Chromium does not answer {method}"
                part = os.read(self.said.fileno(), 1 << 20)
                assert part, "Chromium has ended"
                self.rest += part
            text, _, self.rest = self.rest.partition(b"\0")
            said = json.loads(text)
            if said.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.faults.append(said["params"])
            if said.get("id") == self.number:
                assert "error" not in said, said
                return said["result"]

    def is_well(self):
        """Returns whether no script has failed. What is not there and what is refused is logged of the network."""
        return {fault.get("entry", {}).get("source") for fault in self.faults} <= {"network"}

    def open(self, url, width=1180, height=900, theme="light"):
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.send("Emulation.setDeviceMetricsOverride", **size)
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        self.send("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def run(self, script):
        done = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def until(self, script, seconds=60):
        """Waits until a script gives what is true."""
        deadline = time.monotonic() + seconds
        while not self.run(f"(() => {{ try {{ return {script}; }} catch {{ return false; }} }})()"):
            assert time.monotonic() < deadline, script
            time.sleep(0.05)

    def picture(self, file):
        """Writes the whole page as a picture, to be looked at."""
        taken = self.send("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(taken["data"]))

    def text(self, selector):
        return self.run(f"document.querySelector({json.dumps(selector)}).innerText")

    def click(self, name):
        """Presses the button of this name, which is that for screen readers."""
        button = f"[...document.querySelectorAll('button')].find(b => (b.ariaLabel ?? b.innerText).match({json.dumps(name)}))"
        self.until(f"!{button}.disabled")
        self.run(f"{button}.click()")

    def write(self, selector, text):
        self.run(f"document.querySelector({json.dumps(selector)}).select()")
        self.send("Input.insertText", text=text)
        self.run("document.activeElement.blur()")


# Texts whose contrast with what is behind them, but for what is half transparent, is less than 4.5.
CONTRASTS = """(() => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map((part) => part / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const colour = getComputedStyle(node).backgroundColor;
      if (/^rgb\\(/.test(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const texts = [...document.querySelectorAll("body *")].filter((node) => node.offsetParent && !node.disabled && !node.getAnimations().length
    && [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim()));
  return texts.filter((node) => {
    const [a, b] = [light(getComputedStyle(node).color), light(behind(node))].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05) < 4.5;
  }).map((node) => node.outerHTML);
})()"""
