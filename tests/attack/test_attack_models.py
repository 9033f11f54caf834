"""What a model file may try: the process that loads it is lost, and nothing else."""

import sys
import time

import psutil
import pytest

from stepline.errors import ModelError
from stepline.llm.servers import RequestError, open_server
from stepline.writing.settings import LlmSettings

# A stand-in for llama.cpp that is tripped over by some questions.
TRIPPING = """
import os
from types import SimpleNamespace

class CommonParams:
    def __init__(self):
        self.model, self.mmproj = SimpleNamespace(), SimpleNamespace()
        self.cpuparams, self.cpuparams_batch = SimpleNamespace(), SimpleNamespace()

llama_load_mode = SimpleNamespace(LLAMA_LOAD_MODE_NONE=0)

class Server:
    def __init__(self, parameters):
        if b"trap" in open(parameters.model.path, "rb").read():
            print("GGML_ASSERT(ctx) failed", flush=True)
            os.abort()

    def handle_chat_completions(self, request, take):
        if request["messages"][0]["content"] == "trap":
            os.abort()
        take({"choices": [{"delta": {"content": "yes"}, "finish_reason": "stop"}]})
"""


@pytest.fixture
def tripping(tmp_path, monkeypatch):
    """Processes of models find the stand-in."""
    (tmp_path / "xllamacpp.py").write_text(TRIPPING)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])


def model(folder, content):
    path = folder / "model.gguf"
    header = b"GGUF" + (3).to_bytes(4, "little") + (1).to_bytes(8, "little") + bytes(8)
    path.write_bytes(header + content)
    return open_server(LlmSettings(gguf=path, threads=1))


def ask(server, question):
    return server.ask(question, seed=1, until=time.monotonic() + 60)


def test_a_file_that_llama_cpp_trips_over_is_a_model_error(tmp_path, tripping):
    with pytest.raises(ModelError, match=r"signal SIGABRT: GGML_ASSERT.*give another GGUF file"):
        ask(model(tmp_path, b"trap"), "What?")


def test_a_question_that_llama_cpp_trips_over_is_lost_alone(tmp_path, tripping):
    server = model(tmp_path, b"")
    assert ask(server, "What?").text == "yes"
    with pytest.raises(RequestError, match="signal SIGABRT"):
        ask(server, "trap")
    assert ask(server, "What?").text == "yes"
    server.close()


def test_a_vocabulary_without_weights_is_a_model_error(tmp_path):
    gguf = pytest.importorskip("gguf")
    pytest.importorskip("xllamacpp")
    path = tmp_path / "vocabulary.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "<s>", "</s>", "a"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelError, match=r"vocabulary\.gguf: a GGUF file without weights"):
        ask(open_server(LlmSettings(gguf=path, threads=1)), "What?")


def test_the_process_of_a_model_ends_with_it(tmp_path, tripping):
    server = model(tmp_path, b"")
    before = psutil.Process().children()
    ask(server, "What?")
    (process,) = set(psutil.Process().children()).difference(before)
    server.close()
    assert not process.is_running()
