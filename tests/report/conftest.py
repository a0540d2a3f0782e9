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


@pytest.fixture
def browse(driver_url):
    """Open pages; a message on the console is an error at the end of the test."""
    browsers = []

    def open_page(path, **options):
        browser = Browser(driver_url, **options)
        browsers.append(browser)
        browser.open(path)
        return browser

    yield open_page
    said = [browser.console() for browser in browsers]
    for browser in browsers:
        browser.close()
    assert not any(said)
