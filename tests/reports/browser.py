"""A headless Chromium that opens local pages: what they load, say to assistive technology, and look like."""

from __future__ import annotations

import base64
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

INSTALL = (
    "NOT CHECKED: reports in a real browser, because chromium or chromedriver is not on this machine. Install them "
    "(Debian, Ubuntu: apt-get install chromium chromium-driver) and run the tests again; CI=true makes this a failure"
)
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars --force-color-profile=srgb"
)

# All visible text with its colour and that of the nearest opaque background, as an eye sees it.
_TEXT_COLOURS = """
const opaque = c => { const n = c.match(/[0-9.]+/g).map(Number); return n.length < 4 || n[3] === 1; };
const found = [];
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const text = walk.currentNode.textContent.trim(), el = walk.currentNode.parentElement;
  if (!text || ["TITLE", "DESC", "STYLE"].includes(el.tagName.toUpperCase()) || !el.checkVisibility()) continue;
  const box = el.getBoundingClientRect();
  if (box.width === 0 || box.height === 0) continue;
  const style = getComputedStyle(el);
  const ink = el.namespaceURI.endsWith("svg") ? style.fill : style.color;
  let back = el;
  while (back && !(opaque(getComputedStyle(back).backgroundColor)
                   && getComputedStyle(back).backgroundColor !== "rgba(0, 0, 0, 0)")) back = back.parentElement;
  found.push([text, ink, back ? getComputedStyle(back).backgroundColor : "rgb(255, 255, 255)"]);
}
return found;
"""


class Browser:
    """One page of a browser; `open_browser` makes one."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, path: Path, *, width: int = 1200, dark: bool = False) -> None:
        """Load a file at a window width (CSS pixels) and in a colour scheme."""
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.cdp("Emulation.setEmulatedMedia", media="screen", features=[scheme])
        for kind in ("browser", "performance"):
            self.driver.get_log(kind)  # what earlier pages left there
        self.driver.get(path.resolve().as_uri())

    def cdp(self, command: str, **parameters: Any) -> Any:
        return self.driver.execute_cdp_cmd(command, parameters)

    def script(self, text: str) -> Any:
        return self.driver.execute_script(text)

    def requests(self) -> list[str]:
        """Every address that the page that was opened last asked for."""
        import json

        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]

    def complaints(self) -> list[str]:
        """Messages of the console."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def accessible(self, *roles: str) -> list[tuple[str, str, str]]:
        """Role, name and description of everything with one of the roles, as assistive technology gets it."""
        deadline, size, nodes = time.monotonic() + 10, -1, self.cdp("Accessibility.getFullAXTree")["nodes"]
        while len(nodes) != size and time.monotonic() < deadline:  # the tree is built some time after the page
            size = len(nodes)
            time.sleep(0.1)
            nodes = self.cdp("Accessibility.getFullAXTree")["nodes"]
        return [
            (n["role"]["value"], n.get("name", {}).get("value", ""), n.get("description", {}).get("value", ""))
            for n in nodes
            if not n.get("ignored") and n.get("role", {}).get("value") in roles
        ]

    def contrasts(self) -> list[tuple[float, str]]:
        """Contrast (WCAG 2.2) of every visible text with its background, the worst first."""
        return sorted(
            (contrast(ink, back), f"{text[:60]} ({ink} on {back})") for text, ink, back in self.script(_TEXT_COLOURS)
        )

    def overflow(self) -> int:
        """Pixels by which the page is wider than the window."""
        return self.script("const e = document.documentElement; return e.scrollWidth - e.clientWidth")

    def picture(self, path: Path) -> None:
        """Save the whole page as PNG."""
        size = self.cdp("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.cdp("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def open_browser() -> Iterator[Browser]:
    """A fresh browser with a profile of its own; without one the test is skipped, and fails where ``CI=true``."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        (pytest.fail if os.environ.get("CI", "").lower() == "true" else pytest.skip)(INSTALL)
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (*FLAGS.split(), f"--user-data-dir={profile}"):
            options.add_argument(flag)
        page = webdriver.Chrome(options=options, service=Service(driver))
        try:
            page.get("about:blank")  # the page of a new window loads its own icons
            yield Browser(page)
        finally:
            page.quit()


def contrast(ink: str, back: str) -> float:
    """Contrast ratio of two CSS colours ``rgb(r, g, b)``: 1 for equal ones, 21 for black on white."""
    bright, dark = sorted((_luminance(ink), _luminance(back)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    channels = [float(c) / 255 for c in colour[colour.index("(") + 1 : -1].replace(",", " ").split()[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
