"""Opens containers with FFmpeg safely: one untrusted file by itself, or a live source."""

import functools
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepline.errors import MediaError, ModelError, first_line
from stepline.media.settings import MediaSettings
from stepline.networks.device import Device, current_device

log = logging.getLogger(__name__)

# Demuxers that read one file and never follow a reference out of it. Playlists (hls, concat, dash,
# sdp) and picture sequences are not among them.
ALLOWED_FORMATS = (
    "mov,mp4,matroska,webm,avi,mpegts,mpeg,flv,asf,ogg,nut,rm,mxf,dv,ivf,wtv,"
    "h264,hevc,m4v,mpegvideo,obu,"
    "mp3,wav,w64,flac,aac,aiff,caf,amr,ac3,eac3,wv,ape,au"
)


@dataclass(frozen=True)
class LiveInput:
    """FFmpeg input of a live source.

    format: None where the bytes show it. protocols: allowed for the input and inside it. silence: s
    without a packet after which reading ends with an error.
    """

    url: str
    label: str  # what messages call it
    protocols: str = ""
    format: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    silence: float = 30.0

    @property
    def is_address(self) -> bool:
        """Return whether the source is on the network."""
        return self.format is None and "://" in self.url


def open_live_container(live: LiveInput, settings: MediaSettings) -> Any:
    """Return PyAV's container of a live source. Raises MediaError, with the cure, where opening
    fails.
    """
    import av

    # What FFmpeg may open of it, and inside it.
    options = {"max_streams": str(max(1000, settings.max_streams)), **dict(live.options)}
    if live.format is None:
        options["format_whitelist"] = f"{ALLOWED_FORMATS},hls,rtsp,sdp,rtp"
    if live.protocols:
        options["protocol_whitelist"] = live.protocols
    # A device that this build cannot read.
    if live.format is not None and live.format not in av.formats_available:
        sent = f"`ffmpeg -f {live.format} -i {live.url} -f mpegts udp://127.0.0.1:5000`"
        cure = f"send it with {sent} and name udp://127.0.0.1:5000"
        raise MediaError(f"{live.label}: this build of PyAV reads no {live.format} devices; {cure}")
    try:
        return av.open(
            live.url,
            format=live.format,
            options=options,
            timeout=(live.silence, live.silence),
            metadata_errors="replace",
        )
    except (av.error.FFmpegError, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise MediaError(
            f"{live.label}: cannot be opened ({reason}); check that it runs, and its address"
        ) from error


def check_file(path: Path, settings: MediaSettings) -> None:
    """Raise MediaError, with the cure, for a file that is not regular or exceeds the limits."""
    try:
        if path.is_dir():
            raise MediaError(f"{path}: a folder, not a video; name a file in it")
        if path.exists() and not path.is_file():
            raise MediaError(f"{path}: not a plain file; save the video to one first")
        size = path.stat().st_size
    except (OSError, ValueError) as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else str(error)
        raise MediaError(f"{path}: {reason}; check the path") from error
    if size == 0:
        raise MediaError(f"{path}: the file is empty; download or copy it again")
    if size > settings.max_bytes:
        raise MediaError(
            f"{path}: {size} bytes are more than media.max_bytes = {settings.max_bytes}; "
            f"cut the video, or raise the limit with --set media.max_bytes={size}"
        )


def open_container(path: Path, settings: MediaSettings, *, on_gpu: bool = False) -> Any:
    """Return PyAV's container of a file. Raises MediaError, with the cure, where opening fails."""
    import av

    # what FFmpeg may open from here on
    options = {
        "format_whitelist": ALLOWED_FORMATS,
        "protocol_whitelist": "file",
        # FFmpeg's own guard. Ours says which limit it was
        "max_streams": str(max(1000, settings.max_streams)),
    }
    open_file = functools.partial(
        av.open, f"file:{path}", options=options, metadata_errors="replace"
    )
    refusal = ""
    if on_gpu and settings.decoder == "cuda":
        try:
            container = open_file(hwaccel=_nvidia_decoder(current_device()))
        # of the device, unless the file is refused below
        except (av.error.FFmpegError, OSError, ModelError) as error:
            refusal = first_line(error)
        else:
            for stream in container.streams.video:
                if stream.codec_context is not None and not stream.codec_context.is_hwaccel:
                    _log_software_decoding(f"it cannot take {stream.codec_context.name}")
            return container
    try:
        container = open_file()
    except (av.error.InvalidDataError, av.error.EOFError) as error:
        raise MediaError(
            f"{path}: not a video that can be read (damaged, cut off before its index, "
            "or another kind of file); download it again or convert it to mp4"
        ) from error
    except av.error.ArgumentError as error:
        raise MediaError(
            f"{path}: a playlist, picture or other format that is not opened; "
            "convert the video itself to mp4"
        ) from error
    except (av.error.FFmpegError, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise MediaError(
            f"{path}: cannot be opened ({reason}); check the file, or convert it to mp4"
        ) from error
    if refusal:
        _log_software_decoding(refusal)
    return container


def _nvidia_decoder(device: Device) -> Any:
    """Return PyAV's NVDEC decoder of a GPU. Raises ModelError for a device without it."""
    from av.codec.hwaccel import HWAccel

    if device.kind != "cuda":
        raise ModelError(f"networks run on the device {device.name}")
    return HWAccel("cuda", device.name.partition(":")[2] or None, allow_software_fallback=True)


@functools.cache  # once each reason
def _log_software_decoding(reason: str) -> None:
    log.warning("media.decoder=cuda: pictures are decoded by software (%s)", reason)
