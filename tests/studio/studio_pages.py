"""What the tests of the studio's pages share."""

LOOKS = {
    "wide": {"width": 1280},
    "widest": {"width": 1440},  # room for the transcript next to the steps
    "narrow": {"width": 390, "height": 844},
    "dark": {"width": 1280, "dark": True},
    "widest-dark": {"width": 1440, "dark": True},
    "narrow-dark": {"width": 390, "height": 844, "dark": True},
}
PLAYER = "$('#player')"
SAVED = "$('#saved').textContent === 'All changes saved'"


def wait_until_closed(browser, server):
    """Wait until the browser has ended the windows that were closed: the unsent changes of each are
    locked until then."""
    page = browser.open(f"{server.address}api/docs")
    held = "(async () => (await navigator.locks.query()).held.length)()"
    while page.run(held):
        pass
    page.close()
