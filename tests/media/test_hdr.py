"""Video of high dynamic range: seen and cut as on a standard screen."""

import av
import numpy as np
import pytest
from made_videos import make_high_range_video
from video_frames import frames_at

from stepline.media import cut_clip, probe
from stepline.media.hdr import (
    HLG_TRANSFER,
    PQ_TRANSFER,
    pq_signal,
    signal_to_light,
    tone_map_luminance,
)
from stepline.records import Span


def grey(nits):
    """A picture of one light, with a darker corner."""
    picture = np.full((48, 64, 3), nits)
    picture[:12, :16] = nits / 4
    return picture


def expected(nits):
    """What a screen of 100 nits is sent for that light."""
    return 255 * (nits / 100) ** (1 / 2.4)


def test_the_light_of_a_signal_is_that_of_bt_2100():
    assert signal_to_light(np.float32([0.0, 0.5081, 0.5807, 1.0]), PQ_TRANSFER) == pytest.approx(
        [0.0, 100.0, 203.0, 10_000.0], rel=0.01, abs=1e-3
    )
    # reference white of HLG is 75 % of the signal, 203 nits on the screen
    scene = signal_to_light(np.float32([0.5, 0.75, 1.0]), HLG_TRANSFER) / 1000
    assert 1000 * scene**1.2 == pytest.approx([50.7, 203.0, 1000.0], rel=0.01)
    assert pq_signal(203.0) == pytest.approx(0.5807, abs=1e-3)


def test_only_light_that_a_standard_screen_lacks_is_compressed():
    assert tone_map_luminance(np.float32([0.0, 5.0, 30.0])) == pytest.approx(
        [0.0, 5.0, 30.0], rel=0.01, abs=1e-3
    )
    bright = tone_map_luminance(np.float32([50.0, 100.0, 203.0, 300.0, 4000.0]))
    assert (np.diff(bright) >= -1e-2).all()
    assert bright[-1] == pytest.approx(100.0, abs=0.1)


@pytest.mark.parametrize("transfer", [PQ_TRANSFER, HLG_TRANSFER])
@pytest.mark.parametrize("nits", [5.0, 20.0, 50.0])
def test_a_picture_is_as_bright_as_its_twin_of_standard_range(tmp_path, transfer, nits):
    path = make_high_range_video(tmp_path / "a.mp4", [grey(nits)] * 5, transfer=transfer)
    (still,) = frames_at(path, [0.25])
    assert still.image[30, 40] == pytest.approx([expected(nits)] * 3, abs=4)
    assert still.image[4, 4] == pytest.approx([expected(nits / 4)] * 3, abs=4)


def test_colours_are_those_of_bt_709(tmp_path):
    red = np.zeros((48, 64, 3))
    red[..., 0] = 40.0
    path = make_high_range_video(tmp_path / "a.mp4", [red] * 5, transfer=PQ_TRANSFER)
    (still,) = frames_at(path, [0.25])
    assert still.image[24, 32] == pytest.approx([expected(40.0), 0, 0], abs=12)


@pytest.mark.parametrize("transfer", [PQ_TRANSFER, HLG_TRANSFER])
@pytest.mark.parametrize("rotation", [0, 90])
def test_a_clip_looks_the_same_in_standard_range(tmp_path, transfer, rotation):
    path = make_high_range_video(
        tmp_path / "a.mp4", [grey(40.0)] * 20, transfer=transfer, rotation=rotation
    )
    cut_clip(path, Span(0.5, 1.5), tmp_path / "b.mp4")
    with av.open(str(tmp_path / "b.mp4")) as clip:
        context = clip.streams.video[0].codec_context
        assert context.pix_fmt == "yuv420p"
        assert context.color_trc not in (PQ_TRANSFER, HLG_TRANSFER)
    (whole,), (part,) = frames_at(path, [0.75]), frames_at(tmp_path / "b.mp4", [0.25])
    assert part.image.shape == whole.image.shape
    assert np.abs(part.image.astype(int) - whole.image).mean() < 4
    assert probe(tmp_path / "b.mp4").rotation == 0


def test_wild_pictures_look_as_those_of_the_standard_twin(wild):
    twin = wild.parents[1] / "clips" / "firstaid_burns.mp4"
    times = [1.2, 4.0, 12.0, 16.0, 20.4, 22.4]
    stills, twins = frames_at(wild / "hdr_pq.mp4", times, 320), frames_at(twin, times, 320)
    for still, other in zip(stills, twins, strict=True):
        assert np.abs(still.image.astype(int) - other.image).mean() < 10
