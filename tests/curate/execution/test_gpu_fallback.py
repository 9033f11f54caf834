"""A stage whose GPU gives out is done on the CPU; any other error stays what it is."""

import pytest
from fake_stages import recipe

from stepline.curate.execution.worker import TaskRequest, TaskRunner, WorkerSetup, try_stage
from stepline.curate.plan import StageTask
from stepline.curate.stage import Stage, VideoContext, VideoItem
from stepline.curate.stages import per_video
from stepline.curate.store.results import ResultStore
from stepline.errors import ModelError
from stepline.files.remote import RemotePath
from stepline.networks import device
from stepline.networks.device import Device, current_device, set_device

# As torch and CTranslate2 say it.
SHORT = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.1 GiB"
CTRANSLATE2 = "CUDA failed with error out of memory"
LOST = "CUDA error: uncorrectable ECC error encountered\nCompile with TORCH_USE_CUDA_DSA"


@pytest.fixture
def on_gpu(monkeypatch):
    """Have this process believe that it is on a GPU."""
    monkeypatch.setattr(device, "choose_device", lambda wanted, compute: Device(wanted, compute))
    set_device("cuda:0")
    yield VideoContext(VideoItem("a"), recipe())
    set_device()


def stage_that_raises(error, seen):
    def run(context):
        seen.append(current_device().name)
        if current_device().device_type == "cuda":
            raise error
        return b"done"

    return run


def wrapped(text):
    error = ModelError("whisper-base: recognition failed on the GPU; use --device cpu")
    error.__cause__ = RuntimeError(text)
    return error


@pytest.mark.parametrize(
    "error",
    [RuntimeError(SHORT), RuntimeError(CTRANSLATE2), RuntimeError(LOST), wrapped(CTRANSLATE2)],
)
def test_a_gpu_short_of_memory_or_lost_leaves_the_video_to_the_cpu(on_gpu, error):
    seen = []
    assert try_stage(stage_that_raises(error, seen), on_gpu) == ("done", "", b"done")
    assert seen == ["cuda:0", "cpu"]
    assert on_gpu.notes == {"gpu_fallbacks": 1.0}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        # a fault of the network
        (RuntimeError("CUDA error: device-side assert triggered"), "error"),
        (RuntimeError("Library libcublas.so.12 is not found or cannot be loaded"), "error"),
        (RuntimeError("the codebook is out of memory slots"), "error"),
        (ValueError(SHORT), "error"),
        (wrapped("Library libcublas.so.12 is not found or cannot be loaded"), "run"),
        (MemoryError(), "memory"),
    ],
)
def test_no_other_error_is_taken_for_it(on_gpu, error, kind):
    seen = []
    assert try_stage(stage_that_raises(error, seen), on_gpu)[0] == kind
    assert (seen, on_gpu.notes) == (["cuda:0"], {})


def too_long_for_the_gpu(work):
    """Return where a video is done; one that is called long is too much for a GPU."""
    if current_device().device_type == "cuda" and work.item.id == "long":
        raise RuntimeError(SHORT)
    return current_device().name.encode()


def test_the_next_video_is_tried_on_the_gpu_again(on_gpu, tmp_path):
    stage = Stage("see", 1, "video", too_long_for_the_gpu)
    runner = TaskRunner(WorkerSetup(recipe(), {"see": stage}, str(tmp_path), device="cuda:0"))
    keys = {"long": "ab" * 32, "short": "cd" * 32}
    replies = [
        runner.run(TaskRequest(StageTask(VideoItem(name), "see", key, {}), uses_gpu=True))
        for name, key in keys.items()
    ]
    fallbacks = [(reply.kind, reply.notes.get("gpu_fallbacks")) for reply in replies]
    assert fallbacks == [("done", 1.0), ("done", None)]
    store = ResultStore(RemotePath(str(tmp_path)))
    found = {name: store.read_result(stage, key) for name, key in keys.items()}
    assert found == {"long": b"cpu", "short": b"cuda:0"}


def test_on_the_cpu_there_is_nothing_to_fall_back_to(on_gpu):
    set_device("cpu")
    runs = []

    def run(context):
        runs.append(context)
        raise RuntimeError(SHORT)

    assert try_stage(run, on_gpu)[0] == "error"
    assert len(runs) == 1


def test_a_network_is_kept_for_each_device_it_was_loaded_on(on_gpu):
    loaded = []
    load = per_video._cache_by_device(
        lambda settings: loaded.append((settings, current_device().name)) or len(loaded)
    )
    assert [load("a"), load("a")] == [1, 1]
    set_device("cpu")
    assert load("a") == 2
    set_device("cuda:0")
    assert load("a") == 1
    assert loaded == [("a", "cuda:0"), ("a", "cpu")]
