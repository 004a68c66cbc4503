# SPDX-License-Identifier: Apache-2.0
"""The page of `slipstream compare` in a real browser, made from a small grid of real runs, one of which fails."""
import json

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from conftest import COLOURS, complaints, open_browser, paper, show, slipstream

HOSTILE = "<script>document.title='owned'</script>"


@pytest.fixture(scope="session")
def page(tmp_path_factory):
    """Two strategies with two seeds and two numbers of workers, a hostile name, and a cell that failed."""
    out = tmp_path_factory.mktemp("compare")
    spec = out / "spec.toml"
    spec.write_text(f"""
        about = "{HOSTILE}"
        strategies = ["ssgd", "ssgd:wire=fp16", "local:period=2"]
        models = ["mlp"]
        workers = [1, 2]
        seeds = [1, 2]
        target = "10%"
        limit = 50
        train = "--steps 12 --eval-every 6"
        claims = [{{kind = "rising", of = ["ssgd", "local:period=2"], value = 90}}]
    """)
    command = ["compare", "--spec", spec, "--out", out]
    slipstream(*command)
    results = json.loads((out / "results.json").read_text())
    row = next(r for r in results["scenarios"][1]["rows"] if r["contender"] == "local:period=2")
    cell = out / row["cells"][1]["folder"] / "cell.json"
    told = json.loads(cell.read_text())
    told["failed"] = "it died of </script><img src=x onerror=\"document.title='owned'\">"
    cell.write_text(json.dumps(told))
    slipstream(*command, "--report", code=1)
    return (out / "report.html").as_uri()


@pytest.fixture
def browser(chromium, page):
    show(chromium, page)
    yield chromium
    assert complaints(chromium) == []


def rows(browser):
    return [row.text for row in browser.find_elements(By.CSS_SELECTOR, "#grid tbody tr")]


def canvases(browser, where):
    return browser.find_elements(By.CSS_SELECTOR, where + " canvas")


def test_a_row_is_a_contender_over_all_seeds(browser):
    told = rows(browser)
    assert len(told) == 2 * 3
    for row in told:
        assert "test accuracy" in row and "×" in row, row  # a result beside the speed,
        assert "–" in row or "1 of 2 failed" in row, row   # with its spread where there are two
    assert "limit 50 points: holds" in told[2]
    assert "1 of 2 failed" in told[5] and "limit 50 points: not run" in told[5]
    assert [h.text for h in browser.find_elements(By.CSS_SELECTOR, "#grid h3")] == [
        "mlp, loopback, 1 worker", "mlp, loopback, 2 workers"]


def test_failures_and_claims_are_listed(browser):
    listed = [item.text for item in browser.find_elements(By.CSS_SELECTOR, "#grid li")]
    assert any("local:period=2 failed, seed 2: it died of </script><img" in text for text in listed), listed
    assert any(text.endswith(": yes") for text in listed) and any(text.endswith(": not run") for text in listed), listed


def test_every_plot_draws(browser):
    bars = canvases(browser, "#grid")
    assert len(bars) == 2 * 4  # speed-up, result, step time, time to target
    for canvas in bars + canvases(browser, "#plots") + canvases(browser, "#timeline"):
        assert browser.execute_script(COLOURS, canvas) > 20, canvas.get_attribute("aria-label")


def test_the_curves_are_of_the_scenario_that_is_chosen(browser):
    group, runs = Select(browser.find_element(By.ID, "group")), Select(browser.find_element(By.ID, "timeline-run"))
    assert [option.text for option in group.options] == ["mlp, loopback, 1 worker", "mlp, loopback, 2 workers"]
    curve = canvases(browser, "#curves")[0]
    before = browser.execute_script("return arguments[0].toDataURL()", curve)
    group.select_by_index(1)
    assert browser.execute_script("return arguments[0].toDataURL()", curve) != before
    assert [option.text.split(" (")[0] for option in runs.options] == ["ssgd", "ssgd:wire=fp16", "local:period=2"]
    for canvas in canvases(browser, "#plots") + canvases(browser, "#timeline"):
        assert browser.execute_script(COLOURS, canvas) > 20, canvas.get_attribute("aria-label")


@pytest.mark.parametrize("width", [400, 1600])
def test_the_page_does_not_scroll_sideways(browser, page, width):
    show(browser, page, width=width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    for canvas in canvases(browser, "#grid"):
        assert canvas.size["width"] > 0.5 * min(width, 600)


def test_light_and_dark(browser, page):
    light, bars = paper(browser), canvases(browser, "#grid")[0]
    drawn = browser.execute_script("return arguments[0].toDataURL()", bars)
    browser.find_element(By.ID, "theme").click()
    assert paper(browser) != light
    assert browser.execute_script("return arguments[0].toDataURL()", bars) != drawn


def test_every_heading_explains_itself(browser):
    heads = browser.find_elements(By.CSS_SELECTOR, "#grid thead th")
    assert len(heads) == 2 * 11 and all(len(h.get_attribute("title")) > 20 for h in heads)
    assert all(len(c.get_attribute("title")) > 20 for c in browser.find_elements(By.CSS_SELECTOR, "#grid figcaption"))


def test_what_names_and_failures_hold_is_text(browser):
    assert browser.title == "Comparison"
    assert HOSTILE in browser.find_element(By.ID, "grid").text
    assert browser.find_elements(By.CSS_SELECTOR, "img") == []


def test_without_scripts_the_tables_are_there(page):
    browser = open_browser(scripts=False)
    try:
        show(browser, page)
        assert len(rows(browser)) == 6
        assert not browser.find_element(By.ID, "plots").is_displayed()
    finally:
        browser.quit()
