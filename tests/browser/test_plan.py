# SPDX-License-Identifier: Apache-2.0
"""The page of `slipstream plan --report` in a real browser."""
import json

import pytest
from selenium.webdriver.common.by import By

from conftest import COLOURS, complaints, open_browser, show, slipstream

STRATEGIES = ["ssgd", "lags", "dasgd:period=8", "powersgd"]


@pytest.fixture(scope="session")
def plan(tmp_path_factory):
    """The page's address and what --json says of the same plans: two links, 40 million parameters."""
    page = tmp_path_factory.mktemp("plan") / "plan.html"
    told = slipstream("plan", "--link", "100mbit", "1gbit,10ms", "--workers", 4, "--parameters", 4e7, "--compute-ms", 100,
                      "--no-costs", "--no-dials", "--json", "--report", page, "--strategies", *STRATEGIES)
    return page.as_uri(), json.loads(told)


@pytest.fixture
def browser(chromium, plan):
    show(chromium, plan[0])
    yield chromium
    assert complaints(chromium) == []


def test_a_row_has_the_numbers_of_its_prediction(browser, plan):
    rows = browser.find_elements(By.CSS_SELECTOR, "#grid tbody tr")
    predictions = [row for one in plan[1] for row in one["strategies"]]
    assert len(rows) == len(predictions) == 2 * len(STRATEGIES)
    for row, predicted in zip(rows, predictions):
        assert predicted["strategy"] in row.text
        assert predicted.get("refused") or f"{predicted['step_ms']:.1f}" in row.text
        assert predicted.get("refused", "") in row.text
    assert sum("refused" in p for p in predictions) == 2  # powersgd has no stand-in for a model of this size


def test_the_advice_stands_above_its_table(browser, plan):
    said = [item.text for item in browser.find_elements(By.CSS_SELECTOR, "#grid li")]
    for one in plan[1]:
        assert any(one["take"]["any"]["strategy"] in text and one["take"]["any"]["why"] in text for text in said), said


def test_every_plot_draws_and_nothing_of_runs_is_shown(browser):
    canvases = browser.find_elements(By.CSS_SELECTOR, "#grid canvas")
    assert len(canvases) == 2 * 3  # speed-up, step time, bytes
    for canvas in canvases:
        assert browser.execute_script(COLOURS, canvas) > 20, canvas.get_attribute("aria-label")
    for section in ("summary", "plots", "timeline"):
        assert not browser.find_element(By.ID, section).is_displayed(), section


@pytest.mark.parametrize("width", [400, 1600])
def test_nothing_is_wider_than_the_page(chromium, plan, width):
    show(chromium, plan[0], width=width)
    assert chromium.execute_script("return document.documentElement.scrollWidth") <= width


def test_the_tables_are_there_without_scripts(plan):
    browser = open_browser(scripts=False)
    try:
        show(browser, plan[0])
        assert "dasgd:period=8" in browser.find_element(By.ID, "grid").text
    finally:
        browser.quit()
