"""A language model that is not there is found out before anything is paid for."""

import socket
import time
from struct import pack

import pytest
from llm_fakes import Answers, FakeServer
from option_words import option_words

from stepline.errors import ModelError, WriterError
from stepline.llm import availability
from stepline.llm.availability import check_available
from stepline.writing import WritingSettings, check_writer
from stepline.writing.settings import LlmSettings


@pytest.fixture
def nobody():
    """An address at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{free.getsockname()[1]}/v1"


@pytest.fixture
def recognition(monkeypatch):
    """What was recognised: nothing may be."""
    heard: list[str] = []

    def recognise(*_, **__):
        heard.append("speech")
        raise AssertionError("recognition ran")

    monkeypatch.setattr("stepline.pipeline.understand.recognise_speech", recognise)
    yield heard
    assert heard == []


def test_a_server_is_looked_for_and_not_asked(nobody):
    with FakeServer(Answers.says("none")) as server:
        check_available(LlmSettings(base_url=server.url))
        assert server.asked == []
    with pytest.raises(WriterError, match=r"no server answers there .* correct writing.llm.base"):
        check_available(LlmSettings(base_url=nobody))


def test_a_host_that_keeps_silent_is_given_up(monkeypatch):
    monkeypatch.setattr(availability, "CONNECT_SECONDS", 0.2)
    monkeypatch.setattr(availability, "DEADLINE_GRACE_SECONDS", 0.0)
    monkeypatch.setattr("socket.create_connection", lambda *_, **__: time.sleep(60), raising=True)
    with pytest.raises(WriterError, match=r"no connection in 0\.2 s"):
        check_available(LlmSettings(base_url="http://models.example/v1"))


def test_a_name_that_no_one_has_is_an_error(monkeypatch):
    def unknown(*_, **__):
        raise socket.gaierror("Name or service not known")

    monkeypatch.setattr("socket.create_connection", unknown)
    with pytest.raises(WriterError, match="Name or service not known"):
        check_available(LlmSettings(base_url="http://models.example/v1"))


def test_the_proxy_of_the_environment_is_looked_for_in_place_of_a_server_behind_it(
    monkeypatch, nobody
):
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with FakeServer(Answers.says("none")) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/v1"))
        check_available(LlmSettings(base_url="http://models.example/v1"))
        with pytest.raises(WriterError):  # on this machine no proxy is used
            check_available(LlmSettings(base_url=nobody))


def test_a_gguf_must_be_there_and_hold_weights(tmp_path):
    pytest.importorskip("xllamacpp")
    with pytest.raises(ModelError, match="No such file"):
        check_available(LlmSettings(gguf=tmp_path / "none.gguf"))
    vocabulary = tmp_path / "words.gguf"
    vocabulary.write_bytes(pack("<4sIQQ", b"GGUF", 3, 0, 0))
    with pytest.raises(ModelError, match="without weights"):
        check_available(LlmSettings(gguf=vocabulary))


def test_who_asks_no_one_looks_for_no_one(nobody):
    check_writer(WritingSettings())
    check_writer(WritingSettings(writer="llm", llm=LlmSettings(base_url=nobody, dry_run=True)))
    with pytest.raises(WriterError):
        check_writer(WritingSettings(writer="llm", llm=LlmSettings(base_url=nobody)))


@pytest.mark.usefixtures("recognition")
def test_a_missing_writer_ends_the_job_in_one_line_before_speech_is_recognised(
    stepline, small_video, tmp_path, nobody
):
    missing = tmp_path / "none.gguf"
    for named in (f"base_url={nobody}", f"gguf={missing}"):
        words = option_words(writer="llm", set=f"writing.llm.{named}", out=tmp_path / "out")
        done = stepline("steps", small_video, *words)
        assert done.exit_code == 1
        assert done.stderr.count("\n") == 1
        assert named.partition("=")[2] in done.stderr


def test_a_run_of_curate_ends_before_speech_is_recognised(monkeypatch, nobody, small_video):
    from stepline.curate.stage import VideoContext, VideoItem, load_recipe
    from stepline.curate.stages import per_video

    heard: list[str] = []
    monkeypatch.setattr(per_video, "recognise_speech", lambda *_, **__: heard.append("speech"))
    named = ['steps.writing.writer="llm"', f'steps.writing.llm.base_url="{nobody}"']
    recipe = load_recipe("howtostep", named)
    video = VideoContext(VideoItem(id="v"), recipe, media=small_video)
    with pytest.raises(ModelError, match="no server answers there"):
        per_video.run_transcribe(video)
    assert heard == []
