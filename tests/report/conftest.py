"""Browser for the tests that need one."""

import pytest
from report.browser import BROWSERS, DRIVERS, Browser, driver, found


@pytest.fixture(scope="session")
def driver_url():
    missing = [names[0] for names in (BROWSERS, DRIVERS) if found(names) is None]
    if missing:
        pytest.skip(
            f"needs a browser and its driver on the PATH: no {' and no '.join(missing)} (Debian: chromium-driver)"
        )
    with driver() as url:
        yield url


@pytest.fixture(scope="session")
def windows(driver_url):
    """Return the window of a browser with some options, which the tests share, as to start one takes a second."""
    browsers = {}

    def window(options):
        name = tuple(sorted(options.items()))
        if name not in browsers:
            browsers[name] = Browser(driver_url, **options)
        return browsers[name]

    yield window
    for browser in browsers.values():
        browser.close()


@pytest.fixture
def browse(windows):
    """Open pages; a message on the console is an error at the end of the test."""
    used = []

    def open_page(path, fragment="", **options):
        browser = windows(options)
        used.append(browser)
        browser.open(path, fragment)
        return browser

    yield open_page
    said = [message for browser in used for message in browser.console()]
    assert not said
