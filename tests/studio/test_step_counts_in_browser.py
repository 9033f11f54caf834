"""The studio's pages with no step, one, ten and 300, on a large screen and on a phone: no label is
cut and nothing scrolls sideways."""

import pytest
from studio_server import let_in, library, serving

from stepline.library.corrected_library import video_id
from stepline.records import Span, Step
from stepline.storage import read_record, write_record

pytestmark = pytest.mark.browser

COUNTS = (0, 1, 10, 300)
WIDTHS = (1440, 390)
TITLE = "Whisk the batter until it is smooth and pour it into the pan"

# Text that a box without a scrollbar shows in part. Text outside of the box is not shown at all,
# and an ellipsis shows that there is more.
CUT_TEXTS = """(() => {
  const cut = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (!node.data.trim() || !node.parentElement.checkVisibility({ visibilityProperty: true })) continue;
    range.selectNodeContents(node);
    const lines = [...range.getClientRects()];
    let hidden = 0;
    for (const text of lines) {
      for (let box = node.parentElement; box && box !== document.body; box = box.parentElement) {
        const style = getComputedStyle(box), edge = box.getBoundingClientRect();
        if (edge.width <= 1) break;   // for screen readers alone
        const outside = text.right <= edge.left || text.left >= edge.right
          || text.bottom <= edge.top || text.top >= edge.bottom;
        const hides = (overflow) => ["hidden", "clip"].includes(overflow);
        if (outside && hides(style.overflowX)) { hidden += 1; break; }
        if (style.textOverflow === "ellipsis" && edge.width >= 60) break;
        if ((hides(style.overflowX) && (text.left < edge.left - 1 || text.right > edge.right + 1))
            || (hides(style.overflowY) && (text.top < edge.top - 1 || text.bottom > edge.bottom + 1))) {
          cut.push(node.data.trim().slice(0, 60));
          break;
        }
      }
    }
    if (hidden && hidden < lines.length) cut.push(node.data.trim().slice(0, 60));
  }
  for (const box of $$(".strip, .lanes, .ruler, .track")) {
    if (box.scrollWidth > box.clientWidth + 1) cut.push(`${box.className} is too wide`);
  }
  for (const box of $$("button, textarea, .button")) {
    if (box.checkVisibility() && (box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1)) {
      cut.push(box.textContent.trim() || box.value || box.ariaLabel);
    }
  }
  return cut;
})()"""


# A timeline is drawn again in the frame after its width has changed.
TWO_FRAMES = (
    "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))"
)


def numbered_steps(count):
    """Return steps that fill the 16 s of the video."""
    length = 16 / max(count, 1)
    steps = []
    for n in range(count):
        spans = (Span(n * length, (n + 1) * length),)
        steps.append(Step(id=f"s{n}", text=f"{TITLE} {n}", spans=spans, status="placed"))
    return tuple(steps)


@pytest.fixture(scope="module")
def server(tmp_path_factory, small_video):
    folder = tmp_path_factory.mktemp("counts") / "library"
    library(folder, small_video, [f"A film of {count}" for count in COUNTS])
    for number, count in enumerate(COUNTS):
        path = folder / f"v{number}.json"
        record = read_record(path)
        write_record(record.model_copy(update={"steps": numbered_steps(count)}), path)
    with serving(folder, at_once=0) as running:
        yield running


# Rows out of sight are skipped (`content-visibility`). A look at their text would lay out one after
# the other, so all are laid out at once.
SHOW_ALL_ROWS = """for (const row of $$("#list > .step")) {
  row.style.contentVisibility = "visible";
}"""
PAGES = {"library": ("", f"$$('.card').length === {len(COUNTS)}")}
for number, count in enumerate(COUNTS):
    id = video_id(f"v{number}.json")
    has_steps = f"$$('#list .step').length === {count}"
    PAGES[f"review-{count}"] = (f"video/{id}", has_steps)
    PAGES[f"follow-{count}"] = (f"follow/{id}", "$('#text').textContent")


@pytest.mark.parametrize("name", PAGES)
def test_no_label_is_cut_with_any_number_of_steps(browser, server, name):
    path, ready = PAGES[name]
    let_in(browser, server)
    page = browser.open(f"{server.address}{path}", width=WIDTHS[0])
    page.wait_until(ready)
    page.run(SHOW_ALL_ROWS)
    for theme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": theme}]
        page.send("Emulation.setEmulatedMedia", features=features)
        for width in WIDTHS:
            page.resize(width)
            assert page.run("document.documentElement.scrollWidth") <= width
            page.run(TWO_FRAMES)
            assert page.run(CUT_TEXTS) == [], (theme, width)
    assert page.complaints() == []
    page.close()
