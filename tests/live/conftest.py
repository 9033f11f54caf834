"""What several tests of live runs share."""

import av
import pytest
from small_video import draw_video


@pytest.fixture(scope="session")
def stream(tmp_path_factory):
    """12 s of a transport stream, sound beside the pictures as a live server sends it; two key
    frames a second."""
    folder = tmp_path_factory.mktemp("live")
    drawn = draw_video(folder / "s.mp4", seconds=12, gop=5)
    with av.open(str(drawn)) as given, av.open(str(folder / "s.ts"), "w") as out:
        streams = {each.index: out.add_stream_from_template(each) for each in given.streams}
        packets = [packet for packet in given.demux() if packet.dts is not None]
        for packet in sorted(packets, key=lambda each: each.dts * each.time_base):
            packet.stream = streams[packet.stream.index]
            out.mux(packet)
    return folder / "s.ts"
