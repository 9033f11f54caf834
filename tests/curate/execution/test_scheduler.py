import time

import pytest
from fake_stages import STAGES, recipe

from stepline.curate.driver import RunRequest, run_recipe
from stepline.curate.execution.scheduler import FileDownloader, VideoInProgress
from stepline.curate.plan import Plan, video_status
from stepline.curate.stage import StageFailure, VideoItem, resolve_stages
from stepline.errors import SteplineError
from stepline.files.atomic_files import atomic_path
from stepline.files.remote import RemotePath
from stepline.files.remote.settings import RemoteSettings

ITEM = VideoItem(
    "a", video="a.mp4", stamp="10-1", captions="a.vtt", captions_stamp="3-1", title="Whisk"
)
READ = STAGES["read"]


def fetched(fetcher, item, names=("media",)):
    """Wait for files of an item and return where they are."""
    fetcher.start_downloads(item, names)
    for _ in range(6000):
        files = fetcher.local_files(item, names)
        if files is not None:
            return files
        time.sleep(0.01)
    raise AssertionError("nothing came")


@pytest.fixture
def fetcher(tmp_path):
    made = FileDownloader(tmp_path / "scratch", RemoteSettings(attempts=1))
    yield made
    made.close()
    assert not list((tmp_path / "scratch").glob("*"))


def stored(tmp_path, name, data):
    remote = RemotePath(f"memory://{tmp_path.name}/{name}.mp4")
    remote.write(data)
    return VideoItem(name, video=remote.url, stamp=remote.fingerprint())


def test_a_file_of_this_machine_is_used_where_it_is(tmp_path, fetcher):
    (tmp_path / "a.mp4").write_bytes(b"abc")
    item = VideoItem("a", video=str(tmp_path / "a.mp4"))
    assert fetched(fetcher, item) == {"media": tmp_path / "a.mp4"}
    fetcher.delete_files(VideoItem("a"))
    assert (tmp_path / "a.mp4").exists()


def test_fetched_files_are_removed_with_their_video_and_what_cannot_be_says_why(tmp_path, fetcher):
    first, second = stored(tmp_path, "a", b"x" * 12), stored(tmp_path, "b", b"y" * 12)
    path = fetched(fetcher, first)["media"]
    assert path.read_bytes() == b"x" * 12
    assert path.suffix == ".mp4"
    assert fetched(fetcher, second)["media"].read_bytes() == b"y" * 12
    fetcher.delete_files(first)
    assert not path.exists()
    fetcher.delete_files(second)
    with pytest.raises(SteplineError):
        fetched(fetcher, VideoItem("a", video=f"memory://{tmp_path.name}/none.mp4"))
    fetcher.delete_files(VideoItem("a"))


def test_a_run_fetches_what_is_elsewhere_and_lists_what_is_gone(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))
    here = stored(tmp_path, "here", b"one two three")
    gone = VideoItem("gone", video=f"memory://{tmp_path.name}/gone.mp4", stamp="1")
    out = f"memory://{tmp_path.name}/out"
    job = RunRequest(recipe(places={"attempts": 1}), str(tmp_path / "out"), STAGES)
    outcome = run_recipe(job, [gone, here])
    lost = [(failure.id, failure.stage, failure.kind) for failure in outcome.failures]
    assert lost == [("gone", "read", "error")]
    assert outcome.failures[0].reason.startswith("gone: ")
    assert '"here"' in (tmp_path / "out/dataset/dataset.json").read_text()
    assert not list((tmp_path / "cache/curate").iterdir())
    assert not RemotePath(out).exists()


def test_a_disk_too_full_to_fetch_to_ends_the_run_and_blames_no_video(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))

    def full(remote, path):
        with atomic_path(path):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(RemotePath, "fetch", full)
    request = RunRequest(recipe(), str(tmp_path / "out"), STAGES)
    with pytest.raises(SteplineError, match="No space left on device.*free some space"):
        run_recipe(request, [stored(tmp_path, "a", b"one")])
    assert not (tmp_path / "out" / "failures").exists()


def opened(results, **options):
    plan = Plan.from_recipe(recipe(), resolve_stages(recipe(), STAGES))
    return plan, VideoInProgress(plan, results, ITEM, ("read", "count", "double"), **options)


def test_tasks_of_a_video_run_in_order(results):
    _, video = opened(results)
    read, count, _ = video.tasks
    assert video.next_task() == read
    video.mark_running()
    assert video.next_task() is None
    video.record_outcome(None)
    assert video.next_task() == count
    assert len(video.tasks) == 2


def test_a_failure_ends_what_comes_after_it(results):
    plan, video = opened(results)
    read, count, _ = video.tasks
    results.write_result(READ, read.key, b"{}")
    failure = StageFailure("a", "count", "error", "no")
    failure = results.add_failure(STAGES["count"], count.key, failure)
    _, again = opened(results)
    assert not again.tasks
    assert again.failure == failure
    assert video_status(plan, results, ITEM, ("read", "count", "double")).failure == failure
    assert opened(results, retry=True)[1].next_task() == count
    for _ in range(2):
        results.add_failure(STAGES["count"], count.key, failure)
    assert not opened(results, retry=True)[1].tasks  # three attempts are the limit


def test_a_result_outweighs_an_earlier_failure(results):
    plan, video = opened(results)
    read = video.tasks[0]
    results.add_failure(READ, read.key, StageFailure("a", "read", "hang", "slow"))
    results.write_result(READ, read.key, b"{}")
    assert video_status(plan, results, ITEM, ("read",)).failure is None
    assert video_status(plan, results, ITEM, ("read", "count")) is None
