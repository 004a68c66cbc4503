# SPDX-License-Identifier: Apache-2.0
"""What the tests of pages share: the program (SLIPSTREAM_BINARY), a headless Chromium, and ways to look at a page."""
import os
import subprocess

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

BINARY = os.environ["SLIPSTREAM_BINARY"]

# How many different colours a canvas shows; a blank one has one.
COLOURS = """
const c = document.createElement('canvas'), from = arguments[0], seen = new Set();
c.width = from.width;
c.height = from.height;
const to = c.getContext('2d', {willReadFrequently: true});
to.drawImage(from, 0, 0);
const d = to.getImageData(0, 0, c.width, c.height).data;
for (let i = 0; i < d.length; i += 4) seen.add(d[i] << 24 | d[i + 1] << 16 | d[i + 2] << 8 | d[i + 3]);
return seen.size;
"""


def slipstream(*arguments, code=0):
    done = subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stderr
    return done.stdout


def open_browser(scripts=True):
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1600,1000"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
    if not scripts:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    return browser


@pytest.fixture(scope="session")
def chromium():
    browser = open_browser()
    yield browser
    browser.quit()


def show(browser, page, width=1600, scheme="light"):
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                            {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia",
                            {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    browser.get(page)


def complaints(browser):
    """What the page has complained about since it was asked last."""
    return [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def paper(browser):
    return browser.execute_script("return getComputedStyle(document.body).backgroundColor")
