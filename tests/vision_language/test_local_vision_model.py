"""A model in this process that sees: a real one of random weights, loaded, shown pictures,
its nonsense read.

What such a model answers is worth nothing; that it loads, sees, ends in time and changes nothing is
what counts.
"""

import time

import numpy as np
import pytest
from pydantic import ValidationError
from tiny_vision_model import write_tiny_model

from stepline.errors import ModelError
from stepline.grounding.vision_language import GroundedVideo, ask_about_steps
from stepline.grounding.vision_language.questions import (
    VisionRequests,
    choice_prompt,
    choice_schema,
    read_choices,
)
from stepline.llm.pictures import jpeg, with_pictures
from stepline.llm.requests import ReplyCache, RequestLimits
from stepline.llm.servers import RequestError, open_server
from stepline.records import Alignment, Step
from stepline.vision.settings import VisionLanguageSettings
from stepline.writing.settings import LlmSettings

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("tiny"))


def settings(files, **more):
    return VisionLanguageSettings(
        gguf=files[0], projector=files[1], threads=1, **({"max_tokens": 24, "cache": False} | more)
    )


@pytest.fixture(scope="module")
def server(files):
    opened = open_server(settings(files))
    yield opened
    opened.close()


def picture(seed):
    return jpeg(np.random.default_rng(seed).integers(0, 255, (60, 80, 3)).astype(np.uint8))


def ask(server, content, **more):
    return server.ask(content, seed=1, until=time.monotonic() + 60, **more)


def test_other_pictures_give_other_words_and_the_same_ones_the_same(server):
    said = [ask(server, with_pictures("What is done?", [picture(n)])).text for n in (1, 2, 1)]
    assert said[0] == said[2]
    assert said[0] != said[1]
    assert said[0] != ask(server, "What is done?").text


def test_pictures_side_by_side_are_seen_too(server):
    shown = [picture(1), picture(2)]
    asked = (with_pictures("What?", each, in_one_image=True) for each in (shown, shown[::-1]))
    said = [ask(server, question).text for question in asked]
    assert said[0] != said[1]


def test_nonsense_is_refused_with_its_reason(server):
    answer = ask(server, with_pictures(choice_prompt(["cut", "fry"], 2), [picture(1), picture(2)]))
    assert answer.text
    assert {reply.refusal for reply in read_choices(answer.text, 2, 2)} == {
        "the reply is not a JSON object"
    }


def test_a_schema_holds_even_random_weights_to_the_form(server):
    schema = {
        "type": "object",
        "properties": {"1": choice_schema(1, 2)["properties"]["1"]["properties"]["shown"]},
        "required": ["1"],
        "additionalProperties": False,
    }
    content = with_pictures(choice_prompt(["cut"], 2), [picture(1), picture(2)])
    answer = ask(server, content, schema=schema)
    assert answer.text.replace(" ", "") in ('{"1":"A"}', '{"1":"B"}', '{"1":"none"}')


def test_descriptions_of_a_real_model_are_refused_as_well(server, files):
    runner = VisionRequests(
        server, settings(files), ReplyCache(None), RequestLimits(), time.monotonic() + 60
    )
    (reply,) = runner.describe([picture(1)])
    assert reply.refusal
    assert runner.limits.sent == 2  # asked once more


def test_the_steps_stay_where_they_were_and_the_record_says_why(files):
    alignment = Alignment(("cut",), np.full((1, 16), 0.5, np.float32), 1.0, "probability")
    steps = (Step(id="1", text="cut", score=0.5),)
    shots = [slice(0, 8), slice(8, 16)]
    video = GroundedVideo(
        steps, alignment, shots, lambda seconds: {s: picture(int(s)) for s in seconds}, 16.0
    )
    answers = ask_about_steps(video, settings(files, requests=3))
    assert answers.steps == steps
    assert answers.notes[0].startswith(
        "provisional: the vision-language model has not answered on 1 of 1 steps"
    )
    assert answers.report["server"].startswith("tiny.gguf ")
    assert answers.report["requests"] == 2


def test_more_pictures_than_the_context_holds_are_refused_in_words(files):
    small = open_server(settings(files, context=512))
    with pytest.raises(RequestError, match="exceeds the available context size"):
        ask(small, with_pictures(choice_prompt(["cut"], 20), [picture(n) for n in range(20)]))
    small.close()


def test_a_file_that_is_not_a_projector_is_named(files):
    broken = open_server(settings((files[0], files[0])))
    with pytest.raises(
        ModelError, match=r"tiny\.gguf and .*: llama\.cpp cannot load them together"
    ):
        ask(broken, with_pictures("What?", [picture(1)]))


def test_a_model_without_a_projector_is_refused_before_any_work(files):
    with pytest.raises(ValidationError, match="needs a projector to see"):
        VisionLanguageSettings(gguf=files[0])
    blind = open_server(LlmSettings(gguf=files[0], threads=1))
    with pytest.raises(RequestError, match="image input is not supported"):
        ask(blind, with_pictures("What?", [picture(1)]))
    blind.close()
