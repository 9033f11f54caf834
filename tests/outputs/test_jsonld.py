import json

from stepline.outputs import jsonld
from stepline.records import Record, Video


def test_a_shown_step_has_a_clip_with_its_seconds(record):
    tree = json.loads(jsonld(record))
    assert (tree["@type"], tree["inLanguage"]) == ("HowTo", "en")
    assert tree["name"] == "Iced mint lemonade"
    assert tree["video"]["duration"] == "PT67S"
    clips = {clip["@id"]: clip for clip in tree["video"]["hasPart"]}
    first = tree["step"][0]
    assert (first["@type"], first["position"]) == ("HowToStep", 1)
    assert first["text"] == "Bring a cup of water to the boil"
    clip = clips[first["video"]["@id"]]
    assert (clip["@type"], clip["startOffset"], clip["endOffset"]) == ("Clip", 6.0, 10.0)


def test_steps_that_are_not_shown_stay_in_the_instructions_without_a_clip(record):
    steps = json.loads(jsonld(record))["step"]
    assert [step["position"] for step in steps] == list(range(1, 13))
    assert ["video" in step for step in steps[9:]] == [False, True, False]


def test_nothing_in_it_can_end_a_script_element(hostile):
    text = jsonld(hostile)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text)["step"][2]["text"] == "</script><script>alert(3)</script>"


def test_a_record_without_anything_is_still_a_howto():
    tree = json.loads(jsonld(Record(id="r", video=Video(id="v"))))
    assert (tree["name"], tree["step"], tree["video"]["hasPart"]) == ("v", [], [])
    assert "duration" not in tree["video"]
