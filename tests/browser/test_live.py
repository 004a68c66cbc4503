# SPDX-License-Identifier: Apache-2.0
"""The page of `slipstream train --dashboard` in a real browser, while a real job trains."""
import re
import signal
import subprocess

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from conftest import BINARY, COLOURS, show


class Job:
    def __init__(self, *flags):
        command = [BINARY, "train", "--workers", "2", "--task", "fashion-mnist", "--model", "mlp", "--batch", "16",
                   "--steps", "1000000", "--dashboard", "0", *map(str, flags)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        said = ""
        for line in self.process.stderr:
            said += line
            found = re.match(r"dashboard: (http://\S+)", line)
            if found:
                self.url = found[1]
                return
        raise AssertionError("no dashboard; it said\n" + said)

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.stderr.read()  # until it has ended
        return self.process.wait(timeout=60)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    running = Job("--strategy", "lags", "--eval-every", 40, "--out", tmp_path_factory.mktemp("live") / "<b>run")
    yield running
    running.stop()


@pytest.fixture
def browser(chromium, job):  # noqa: F811
    show(chromium, job.url)
    yield chromium
    severe = [entry for entry in chromium.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
    assert severe == [], "the page complains"


def wait(browser):
    return WebDriverWait(browser, 60)


def steps_of(browser):
    return int(re.search(r"(\d+) steps", browser.find_element(By.ID, "live").text)[1])


def picture(browser, name):
    return browser.execute_script(
        "const c = document.querySelector(`canvas[aria-label='${arguments[0]}']`); return c && c.toDataURL()", name)


def test_the_page_grows_while_one_looks(browser):
    assert browser.title == "<b>run, live"
    wait(browser).until(lambda b: "steps" in b.find_element(By.ID, "live").text)
    wait(browser).until(lambda b: picture(b, "Training loss"))
    steps, loss = steps_of(browser), picture(browser, "Training loss")
    wait(browser).until(lambda b: steps_of(b) > steps and picture(b, "Training loss") != loss)
    wait(browser).until(lambda b: picture(b, "Test accuracy"))
    wait(browser).until(lambda b: "plan for a link" in b.find_element(By.CSS_SELECTOR, "[data-table=decisions]").text)
    summary = browser.find_element(By.ID, "summary").text
    assert "<b>run" in summary and "lags" in summary
    wait(browser).until(lambda b: str(steps_of(b)) != "" and b.find_element(By.ID, "summary").text != summary)


def test_every_plot_draws_and_so_does_the_timeline(browser):
    wait(browser).until(lambda b: b.find_element(By.ID, "timeline").is_displayed())
    wait(browser).until(lambda b: picture(b, "Test accuracy"))
    canvases = browser.find_elements(By.CSS_SELECTOR, "#plots canvas, #timeline canvas")
    assert len(canvases) == 5  # loss, accuracy, phases, bytes, timeline
    for canvas in canvases:
        assert browser.execute_script(COLOURS, canvas) > 20, canvas.get_attribute("aria-label")


def test_zoom_and_scrolling_stay_when_the_page_renews_itself(browser, job):
    show(browser, job.url, width=400)
    wait(browser).until(lambda b: b.find_element(By.ID, "timeline").is_displayed())
    canvas = browser.find_element(By.ID, "timeline-canvas")
    browser.find_element(By.ID, "zoom-in").click()
    span = float(canvas.get_attribute("data-to")) - float(canvas.get_attribute("data-from"))
    browser.execute_script("document.querySelector('#summary .scroll').scrollLeft = 120")
    steps = steps_of(browser)
    wait(browser).until(lambda b: steps_of(b) > steps)
    assert browser.execute_script("return document.querySelector('#summary .scroll').scrollLeft") == 120
    assert float(canvas.get_attribute("data-to")) - float(canvas.get_attribute("data-from")) == pytest.approx(span, rel=0.01)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 400


def test_says_when_the_job_has_ended(chromium):  # noqa: F811
    running = Job()
    show(chromium, running.url)
    wait(chromium).until(lambda b: "Live:" in b.find_element(By.ID, "live").text)
    assert running.stop() == 130
    wait(chromium).until(lambda b: "ended" in b.find_element(By.ID, "live").text)
    chromium.get_log("browser")  # that nobody answers is said there
