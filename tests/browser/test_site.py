"""The built site in Chromium, served as `make docs` says: its search finds pages, and nothing is wider than a phone."""

import functools
import http.server
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    pytest.importorskip("material")
    site = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(site)]
    subprocess.run(command, cwd=ROOT, check=True)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=site)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield opened
        opened.close()


def test_search_finds_a_page(address, browser):
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(f"{address}/index.html")
    page.fill("input[name=query]", "hard cap")
    page.wait_for_selector(".md-search-result__link", timeout=60_000)
    assert "caps.html" in page.locator(".md-search-result__link").first.get_attribute("href")


@pytest.mark.parametrize("name", ["index", "cli", "evidence", "guides/rivals", "tutorials/scores", "notebooks/parquet"])
def test_no_page_is_wider_than_a_phone(address, browser, name):
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto(f"{address}/{name}.html")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
