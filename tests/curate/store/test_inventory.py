import pytest
from fake_stages import recipe

from stepline.curate.remote import RemotePath
from stepline.curate.stage import Collection, Item, rejected_video
from stepline.curate.store.run_log import read_items, read_recipe, read_refused, write_inventory


@pytest.mark.parametrize("where", ["disk", "store"])
def test_what_a_run_works_on_is_found_again(tmp_path, where):
    out = RemotePath(str(tmp_path / "out") if where == "disk" else f"memory://{tmp_path.name}-out")
    items = (Item("a", video="a.mp4", stamp="1-2", title="Grünkohl\u2028und Pinkel"), Item("b", duration=2.5))
    write_inventory(out, recipe(), Collection(items, (rejected_video("c", "comes again"),)), "videos.csv")
    assert tuple(read_items(out)) == items
    assert tuple(read_refused(out)) == (rejected_video("c", "comes again"),)
    assert read_recipe(out) == recipe()
