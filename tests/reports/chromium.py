"""Headless Chromium that reads a report from its file, without any network."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

REQUIRED = "IRIS_HARNESS_BROWSER"
"""With the value ``required`` in this variable of the environment, a missing Chromium is a failure, not a skip."""
NEED = "needs Chromium and its driver: apt-get install chromium chromium-driver"
_OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
)  # fmt: skip


@contextlib.contextmanager
def started(profile: Path, *, script: bool = True) -> Iterator[webdriver.Chrome]:
    """Yield a Chromium whose data is in ``profile``, an empty folder. Skip the test without Chromium, or fail if it is
    required."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        if os.environ.get(REQUIRED) == "required":
            pytest.fail(f"{NEED} ({REQUIRED}=required)")
        pytest.skip(NEED)
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for option in (*_OPTIONS, f"--user-data-dir={profile}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    if not script:
        options.add_experimental_option("prefs", {"profile.managed_default_content_settings.javascript": 2})
    browser = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield browser
    finally:
        browser.quit()


def resize(browser: webdriver.Chrome, width: int, height: int = 1000) -> None:
    """Set the size of the viewport, as of a phone or of a wide window."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def emulate(browser: webdriver.Chrome, media: str = "screen", scheme: str = "light") -> None:
    """Show the page as on paper (``print``) or with the colour scheme ``dark``."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})


def errors(browser: webdriver.Chrome) -> list[Any]:
    """Return what the page wrote to the console, and what its content security policy refused."""
    return [entry["message"] for entry in browser.get_log("browser")]
