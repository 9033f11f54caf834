"""Where networks run: what is asked for, what is there, and what each library is told."""

import sys
from types import SimpleNamespace

import fake_stages
import numpy as np
import pytest
from click.testing import CliRunner

from stepline.cli import main
from stepline.cli.steps import DEMO_VIDEO
from stepline.curate.execution.local import gpus_per_worker, worker_devices
from stepline.curate.execution.scheduler import Phase, Scheduler, VideoInProgress
from stepline.curate.execution.worker import TaskRequest, TaskRunner, WorkerSetup
from stepline.curate.plan import Plan, StageTask
from stepline.curate.stage import Recipe, Stage, VideoItem, resolve_stages
from stepline.curate.stages import STAGE_TABLE
from stepline.curate.store.results import ResultStore
from stepline.curate.store.run_log import RunLog
from stepline.errors import ModelError, SettingsError
from stepline.files.remote import RemotePath
from stepline.media import AudioBlock, read_sound
from stepline.models.training.distributed import start_processes
from stepline.models.wys2.settings import Wys2Settings
from stepline.networks import device
from stepline.networks.device import (
    Device,
    choose_device,
    current_device,
    device_of_run,
    set_device,
)
from stepline.settings import load_settings, validate
from stepline.speech import AsrSettings, transcribe
from stepline.speech.recogniser import RecogniserSwitch
from stepline.speech.whisper import Whisper

TINY = "whisper-tiny.en"


@pytest.fixture(autouse=True)
def own_choice():
    """Each test decides anew, and leaves no choice behind."""
    set_device()
    yield
    set_device()


@pytest.fixture
def gpus(monkeypatch):
    """Make believe that torch and CTranslate2 see two GPUs."""
    monkeypatch.setattr(device, "cuda_gpus", lambda: 2)
    monkeypatch.setattr("stepline.curate.execution.local.cuda_gpus", lambda: 2)
    monkeypatch.setattr(device, "_ctranslate2_gpus", lambda: 2)


def test_auto_is_a_gpu_where_there_is_one(gpus):
    assert choose_device() == Device("cuda:0")
    assert choose_device("cuda:1", "bf16") == Device("cuda:1", "bf16")
    assert choose_device("cpu").name == "cpu"


def test_auto_is_the_cpu_where_there_is_no_gpu():
    assert choose_device() == Device("cpu")


def test_a_driver_alone_is_not_a_gpu(monkeypatch):
    monkeypatch.setattr(device.ctypes, "CDLL", lambda name: name)
    assert device.cuda_gpus() == 0  # torch is asked, and sees none


@pytest.mark.parametrize(
    ("wanted", "error", "said"),
    [
        (
            "tpu",
            SettingsError,
            "device 'tpu': there is no such kind; give auto, cpu, cuda, cuda:N or mps",
        ),
        ("cuda:x", SettingsError, "there is no such kind"),
        (
            "cuda:2",
            ModelError,
            "device cuda:2: torch sees 2 GPUs here, from cuda:0 on; give one of them",
        ),
        ("mps", ModelError, "device mps: torch sees no GPU of Apple's here; use --device cpu"),
    ],
)
def test_what_is_not_there_is_reported(gpus, wanted, error, said):
    with pytest.raises(error, match=said):
        choose_device(wanted)


@pytest.mark.parametrize(
    "command", ["steps v.mp4", "train wys2 --features f --key-steps k -o o", "predict ht-step"]
)
def test_a_gpu_that_is_not_there_is_one_line_with_its_cure(command):
    result = CliRunner().invoke(main, [*command.split(), "--device", "cuda"])
    assert result.exit_code == 1
    assert result.stderr == (
        "stepline: device cuda: torch sees no GPU here; install torch with CUDA (pytorch.org), or use --device cpu\n"
    )


def test_the_option_wins_over_a_runs_own_setting(gpus):
    assert device_of_run("cuda:1") == current_device() == Device("cuda:1")
    assert device_of_run("auto") == Device("cuda:0")
    set_device("cpu")
    assert device_of_run("cuda:1") == Device("cpu")
    assert start_processes("cuda:1").type == "cpu"


@pytest.mark.parametrize("name", ["cuda:1", "mps", "cpu"])
def test_a_run_can_name_any_device(name):
    assert load_settings(Wys2Settings, None, [f"train.device={name}"]).train.device == name


def test_a_run_cannot_name_what_is_none():
    with pytest.raises(SettingsError, match="train.device"):
        load_settings(Wys2Settings, None, ["train.device=gpu"])


@pytest.mark.parametrize(
    ("name", "compute", "on_cpu", "told"),
    [
        ("cpu", "auto", "int8", ("cpu", 0, "int8")),
        ("cpu", "bf16", "float32", ("cpu", 0, "float32")),
        ("cuda:0", "auto", "int8", ("cuda", 0, "float16")),
        ("cuda:1", "bf16", "int8", ("cuda", 1, "bfloat16")),
        ("cuda:1", "float32", "int8", ("cuda", 1, "float32")),
        ("cuda:1", "auto", "float32", ("cuda", 1, "float32")),
        ("mps", "auto", "int8", ("cpu", 0, "int8")),
    ],
)
def test_recognition_gets_device_and_numbers(gpus, name, compute, on_cpu, told):
    assert tuple(Device(name, compute).ctranslate2_options(on_cpu).values()) == told


def test_recognition_stays_on_the_cpu_where_its_library_knows_no_gpu(caplog):
    assert Device("cuda:0").ctranslate2_options("int8")["device"] == "cpu"
    assert "recognition stays on the CPU: CTranslate2 cannot use cuda:0 here" in caplog.text


VERBS = "Stir Chop Fold Bake Rinse Slice Whisk Pour Knead Peel Grate".split()


class Recorded:
    """Stands for faster-whisper's model and its batches: what it is told; a word a window or
    piece."""

    def __init__(self, monkeypatch, fails=False):
        self.model, self.batches, self.alone, self.fails = {}, [], 0, fails
        monkeypatch.setitem(sys.modules, "faster_whisper", self)

    def WhisperModel(self, path, **told):
        self.model = told
        return SimpleNamespace(
            supported_languages=["en"],
            model=SimpleNamespace(is_multilingual=False),
            transcribe=self.one,
        )

    def available_models(self):
        return []

    def download_model(self, name, **told):
        raise AssertionError(f"{name} is no model of the hub's")

    def BatchedInferencePipeline(self, model):
        return SimpleNamespace(transcribe=self.many)

    def one(self, sound, **told):
        self.alone += 1
        return iter([self.segment(0.0)]), SimpleNamespace(language="en", language_probability=1.0)

    def many(self, sound, **told):
        if self.fails:
            raise RuntimeError("CUDA failed with error out of memory")
        self.batches.append((len(told["clip_timestamps"]), told["batch_size"], told["beam_size"]))
        info = SimpleNamespace(language="en", language_probability=1.0)
        return iter([self.segment(clip["start"]) for clip in told["clip_timestamps"]]), info

    @staticmethod
    def segment(begin):
        said = f" {VERBS[int(begin) // 60]}."
        word = SimpleNamespace(word=said, start=begin + 1.0, end=begin + 1.4, probability=0.9)
        return SimpleNamespace(words=[word], seek=round(begin * 100), text=said, avg_logprob=-0.1)


@pytest.fixture
def voiced(monkeypatch):
    """Make all sound speech, as the detector sees it."""
    monkeypatch.setattr(
        "stepline.speech.audio_windows.detect_voice",
        lambda samples: np.ones(-(-len(samples) // 512), np.float32),
    )


NOISE = [AudioBlock(0.0, np.full(16_000 * 290, 0.1, np.float32))]  # ten windows


def test_a_gpu_reads_windows_together_and_each_word_keeps_its_time(gpus, voiced, monkeypatch):
    recorded = Recorded(monkeypatch)
    found = transcribe(NOISE, AsrSettings(model=TINY, log_probability=-9.0))
    placed = {"device": "cuda", "device_index": 0, "compute_type": "float16"}
    assert recorded.model == placed | {"cpu_threads": 1}
    (windows, at_once, beam), *_ = recorded.batches
    # what follows a window's one word is voiced: all but the last are read again
    assert recorded.alone >= windows - 1
    assert (windows > 1, at_once, beam) == (True, 16, 5)
    starts = [sentence.span.start for sentence in found.transcript.sentences]
    assert starts == sorted(starts)
    assert starts[0] == pytest.approx(1.0)
    assert starts[-1] > 200.0


def test_a_gpu_that_fails_while_it_listens_is_reported(gpus, voiced, monkeypatch):
    Recorded(monkeypatch, fails=True)
    with pytest.raises(
        ModelError,
        match=r"recognition failed on the GPU \(CUDA failed .* memory\); use --device cpu",
    ):
        transcribe(NOISE, AsrSettings(model=TINY))


def test_windows_read_together_give_the_sentences_of_windows_read_one_by_one(monkeypatch):
    """The real model, on the CPU: batches change where sound is cut, not what is said."""
    sound = [block for block in read_sound(DEMO_VIDEO) if block.start < 24.0]  # three windows
    short = AsrSettings(model=TINY, window=8.0)
    alone = transcribe(sound, short).transcript
    monkeypatch.setattr(RecogniserSwitch, "at_once", 4)
    monkeypatch.setattr(Whisper, "__init__", _reads_four(Whisper.__init__))
    together = transcribe(sound, short).transcript
    assert [each.text for each in together.sentences] == [each.text for each in alone.sentences]
    for one, other in zip(alone.sentences, together.sentences, strict=True):
        assert other.span.start == pytest.approx(one.span.start, abs=0.6)
        assert other.span.end == pytest.approx(one.span.end, abs=0.6)


def _reads_four(init):
    def begin(self, *arguments, **named):
        init(self, *arguments, **named)
        self.at_once = 4

    return begin


@pytest.mark.parametrize(
    ("wanted", "share", "devices"),
    [
        ("auto", 0.0, []),
        ("auto", 1.0, ["cuda:0", "cuda:1"]),
        ("cuda", 0.5, ["cuda:0", "cuda:0", "cuda:1", "cuda:1"]),
        ("cuda:1", 0.5, ["cuda:1", "cuda:1"]),
        ("auto", 2.0, ["cuda:0"]),
    ],
)
def test_as_many_workers_have_a_gpu_as_there_are_shares(gpus, wanted, share, devices):
    set_device(wanted)
    assert worker_devices(share) == devices


def test_more_gpus_than_there_are_is_one_line(gpus):
    with pytest.raises(
        SettingsError, match="engine.gpus=3: 2 GPUs are here; set engine.gpus=0, or --device cpu"
    ):
        worker_devices(3.0)


def test_workers_take_no_gpu_where_none_is_asked_for(gpus):
    assert gpus_per_worker(0.0) == 1.0
    assert gpus_per_worker(0.25) == 0.25
    set_device("cpu")
    assert gpus_per_worker(0.25) == 0.0


def test_stages_without_a_network_run_on_the_cpu():
    nasva, judge = {"aligner": {"path": "a"}}, {"detector": "d"}
    networks = {"nasva": nasva, "judge": judge, "vision": {"backbone": "none"}}
    expected = {"transcribe"}, {"transcribe", "ground", "judge"}
    for given, names in zip(
        (Recipe(), validate(Recipe, {"steps": networks})), expected, strict=True
    ):
        stages = {n: s for n, s in STAGE_TABLE.items() if s.uses_gpu(given)}
        assert {name for name, stage in stages.items() if stage.kind == "video"} == names


def test_a_stage_that_uses_a_gpu_waits_for_a_worker_that_has_one(tmp_path):
    plan = Plan.from_recipe(
        fake_stages.recipe(), resolve_stages(fake_stages.recipe(), fake_stages.STAGES)
    )
    out = RemotePath(str(tmp_path))
    phase = Phase(plan, ResultStore(out), ("read", "count", "double"))
    log = RunLog(out)
    scheduler = Scheduler(phase, 2, tmp_path, log, ["cuda:0"])
    videos = {}
    scheduler._open, scheduler._awaits_file = videos, False
    for name in ("a", "b"):
        item = VideoItem(name, video=str(tmp_path / name), captions=str(tmp_path / name))
        videos[name] = VideoInProgress(plan, phase.results, item, phase.stages)
        scheduler._fetcher.start_downloads(item, ["captions"])
    for _ in ("read", "count"):
        videos["b"].record_outcome(None)

    def task_for(worker):
        request = scheduler._choose_request(worker)
        return request.task.item.id, request.task.stage, request.uses_gpu

    on_cpu = SimpleNamespace(
        has_gpu=False, loaded_stages={"double"}, can_do=lambda request: not request.uses_gpu
    )
    on_gpu = SimpleNamespace(has_gpu=True, loaded_stages={"read"}, can_do=lambda request: True)
    assert task_for(on_cpu) == ("a", "read", False)
    assert task_for(on_gpu) == ("b", "double", True)
    scheduler.close()
    log.close()


def tell_device(video):
    """A stage: the device on which its networks would lie."""
    return current_device().name.encode()


@pytest.mark.parametrize(("gpu", "device"), [(True, b"cuda:1"), (False, b"cpu")])
def test_a_worker_gives_its_gpu_to_the_stages_that_use_one(gpus, tmp_path, gpu, device):
    stage = Stage("see", 1, "video", tell_device)
    setup = WorkerSetup(fake_stages.recipe(), {"see": stage}, str(tmp_path), device="cuda:1")
    key = "ab" * 32
    reply = TaskRunner(setup).run(
        TaskRequest(StageTask(VideoItem("a"), "see", key, {}), uses_gpu=gpu)
    )
    assert reply.kind == "done"
    assert ResultStore(RemotePath(str(tmp_path))).read_result(stage, key) == device
