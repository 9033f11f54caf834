import pytest

from stepline.curate.execution.messages import LONGEST_REASON, portable_reason


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("/data/in/a.mp4: no sound", "a: no sound"),
        ("[Errno 2] No such file: '/tmp/stepline-x1/audio.wav'", "[Errno 2] No such file: '(a path)'"),
        ("cannot use <Frame at 0x7f3a09bc1d90>\nat all", "cannot use <Frame at 0x...> at all"),
        ("see https://host/path/page, 3/4 of it and/or /this", "see https://host/path/page, 3/4 of it and/or /this"),
        ("(/home/ann/models/base) and /data/in/a.mp4.part", "((a path)) and a.part"),
    ],
)
def test_a_reason_holds_nothing_of_this_machine(reason, told):
    assert portable_reason(reason, ["/data/in/a.mp4"], "a") == told


def test_a_reason_is_one_line_of_bounded_length():
    assert portable_reason("word\n" * 1000, [], "a") == ("word " * 1000)[:LONGEST_REASON] + "..."
