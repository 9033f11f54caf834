"""One browser for all that the studio's pages are tested in."""

import pytest
from browser import Browser


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()
