# SPDX-License-Identifier: Apache-2.0
"""The page of `slipstream report` in a real browser (Debian's Chromium, headless), made from real runs.

Nothing here looks at how the page is written, only at what a reader gets.
"""
import json
import shutil
import subprocess

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.common.actions.wheel_input import ScrollOrigin
from selenium.webdriver.support.ui import WebDriverWait

from conftest import BINARY, COLOURS, complaints, open_browser, paper, show, slipstream

HOSTILE = "<script>document.title='owned'<"  # a directory's name cannot hold a slash

def train(out, *flags):
    slipstream("train", "--workers", 2, "--task", "fashion-mnist", "--model", "mlp", "--steps", 14, "--eval-every", 7,
               "--out", out, *flags)
    return out


@pytest.fixture(scope="session")
def page(tmp_path_factory):
    """A report of four runs: three strategies, and one with a hostile name, hostile news and a worker that was lost."""
    folder = tmp_path_factory.mktemp("report")
    ssgd = train(folder / "ssgd")
    lags = train(folder / "lags", "--strategy", "lags")
    osp = train(folder / "osp", "--strategy", "osp")
    hostile = folder / HOSTILE
    shutil.copytree(ssgd, hostile)
    ledger = hostile / "ledger.rank0.jsonl"
    lines = ledger.read_text().splitlines()
    first = json.loads(lines[0])
    first["news"] = "plan: [<img src=x onerror=\"document.title='owned'\">: \"quoted\"] [b: </script>]"
    lost = {"step": 5, "regroup": 2, "done": 5, "workers": 1, "lost": 1, "joined": 0, "written_off": 0,
            "recovery_ms": 120.5, "why": "</script><script>document.title='owned'</script>"}
    at = next(i for i, line in enumerate(lines) if json.loads(line)["step"] == 5)
    ledger.write_text("\n".join([json.dumps(first)] + lines[1:at] + [json.dumps(lost)] + lines[at:]) + "\n")
    out = folder / "report.html"
    slipstream("report", ssgd, lags, osp, hostile, "--out", out)
    return out.as_uri()


@pytest.fixture
def browser(chromium, page):
    chromium.get("about:blank")
    chromium.get_log("performance")  # what other pages asked for
    show(chromium, page)
    yield chromium
    assert complaints(chromium) == []


def view_of(browser):
    canvas = browser.find_element(By.ID, "timeline-canvas")
    return float(canvas.get_attribute("data-from")), float(canvas.get_attribute("data-to"))


def plots(browser):
    return browser.find_elements(By.CSS_SELECTOR, "#plots canvas, #timeline canvas")


def test_every_plot_draws_on_every_axis(browser):
    assert len(plots(browser)) == 6  # loss, accuracy, speed-up, phases, bytes, timeline
    for axis in ("samples", "step", "s"):
        browser.find_element(By.CSS_SELECTOR, f"input[value={axis}]").click()
        for canvas in plots(browser):
            assert browser.execute_script(COLOURS, canvas) > 20, canvas.get_attribute("aria-label")


def test_asks_nothing_of_any_network(browser):
    asked = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = {one["params"]["request"]["url"] for one in asked if one["method"] == "Network.requestWillBeSent"}
    assert urls and all(url.startswith(("file:", "data:")) for url in urls), urls


def test_the_button_switches_the_theme_and_the_plots_follow(browser):
    button = browser.find_element(By.ID, "theme")
    before, drawn = paper(browser), browser.execute_script("return arguments[0].toDataURL()", plots(browser)[0])
    assert button.text == "Dark"
    button.click()
    assert paper(browser) != before and button.text == "Light"
    assert browser.execute_script("return arguments[0].toDataURL()", plots(browser)[0]) != drawn
    button.click()
    assert paper(browser) == before


def test_follows_the_wish_of_the_system(browser, page):
    light = paper(browser)
    show(browser, page, scheme="dark")
    assert paper(browser) != light
    assert browser.find_element(By.ID, "theme").text == "Light"


def test_the_timeline_zooms_and_moves(browser):
    canvas = browser.find_element(By.ID, "timeline-canvas")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    began, ended = view_of(browser)
    assert ended > began == 0
    ActionChains(browser).scroll_from_origin(ScrollOrigin.from_element(canvas), 0, -300).perform()
    WebDriverWait(browser, 10).until(lambda b: view_of(b)[1] - view_of(b)[0] < 0.8 * (ended - began))
    near = view_of(browser)
    ActionChains(browser).click_and_hold(canvas).move_by_offset(-60, 0).release().perform()
    moved = view_of(browser)
    assert moved[0] > near[0]
    assert moved[1] - moved[0] == pytest.approx(near[1] - near[0], abs=0.01)
    browser.find_element(By.ID, "zoom-all").click()
    everything = view_of(browser)
    assert everything[0] == 0 and everything[1] >= ended
    browser.find_element(By.ID, "zoom-in").click()
    assert view_of(browser)[1] - view_of(browser)[0] < everything[1]
    canvas.send_keys("0")
    assert view_of(browser) == everything
    canvas.send_keys("+", Keys.ARROW_RIGHT)
    assert view_of(browser)[0] > 0


def test_the_timeline_says_what_it_shows(browser):
    canvas, tip = browser.find_element(By.ID, "timeline-canvas"), browser.find_element(By.ID, "timeline-tip")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    said = ""
    for x in range(-400, 401, 40):  # the upper row of the first rank
        ActionChains(browser).move_to_element_with_offset(canvas, x, 52 - canvas.size["height"] // 2).perform()
        said += tip.text + "\n"
    assert "reading the batch, forward" in said and "backward to " in said, said


@pytest.mark.parametrize("width", [400, 1600])
def test_the_page_does_not_scroll_sideways(browser, page, width):
    show(browser, page, width=width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    for canvas in plots(browser):
        assert canvas.size["width"] > 0.6 * min(width, 600)
    for word in ("Summary", "Timeline", "Faults and recoveries", "What the strategies decided"):
        assert any(word in h.text for h in browser.find_elements(By.TAG_NAME, "h2")), word


def test_what_runs_hold_is_text(browser):
    assert browser.title == "Report of 4 runs"
    rows = [row.text for row in browser.find_elements(By.CSS_SELECTOR, "#summary tbody tr")]
    assert len(rows) == 4 and HOSTILE in rows[3]
    assert browser.find_elements(By.CSS_SELECTOR, "img") == []
    assert "</script><script>document.title='owned'</script>" in browser.find_element(By.ID, "changes").text
    assert "onerror=" in browser.find_element(By.ID, "decisions").text


def test_plans_by_layer_of_lags_and_osp_are_tables(browser):
    captions = [c.text for c in browser.find_elements(By.CSS_SELECTOR, "#decisions table.layers caption")]
    assert "lags: by layer" in captions and "osp: by layer" in captions
    osp = browser.find_elements(By.CSS_SELECTOR, "#decisions table.layers")[captions.index("osp: by layer")].text
    assert "first.weight" in osp and "overlapped" in osp


def test_every_part_of_the_timeline_explains_itself(browser):
    items = browser.find_elements(By.CSS_SELECTOR, "#timeline-legend span, #plots figcaption")
    assert len(items) == 12 and all(len(item.get_attribute("title")) > 10 for item in items)


def test_every_heading_of_the_summary_explains_itself(browser):
    heads = browser.find_elements(By.CSS_SELECTOR, "#summary thead th")
    assert len(heads) == 13 and all(len(h.get_attribute("title")) > 20 for h in heads)


def test_what_cannot_be_done_is_said(tmp_path):
    (tmp_path / "run").mkdir()
    for arguments, code, word in ((["run"], 3, "summary.json"), (["nowhere"], 3, "nowhere"), ([], 2, "RUN_DIR")):
        done = subprocess.run([BINARY, "report", *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert (done.returncode, word in done.stderr) == (code, True), done.stderr


def test_without_scripts_the_tables_are_there(page):
    browser = open_browser(scripts=False)
    try:
        show(browser, page)
        assert len(browser.find_elements(By.CSS_SELECTOR, "#summary tbody tr")) == 4
        summary = browser.find_element(By.ID, "summary").text
        for word in ("ssgd", "lags", "test accuracy", "waiting", "×"):
            assert word in summary, word
        assert "Scripts are off" in browser.find_element(By.TAG_NAME, "main").text
        assert not browser.find_element(By.ID, "plots").is_displayed()
        assert not browser.find_element(By.ID, "theme").is_displayed()
        assert "1 lost" in browser.find_element(By.ID, "changes").text
    finally:
        browser.quit()
