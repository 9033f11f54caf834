"""Time stamps of a media file as seconds, with jumps and wrong stamps corrected.

PacketClock    corrects the stamps of all streams together, so that they stay in step
StreamClock    times the frames of one stream, whose missing stamps follow on from the frame before
FrameTiming    when a video frame appears and how long it lasts
Damage         counts what could not be read, for warnings
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import islice, pairwise
from statistics import median_low
from typing import Any

# s that may be missing at the end before a file counts as cut short. Encoders round
MAX_MISSING_SECONDS = 1.0


@dataclass
class Damage:
    """Counts of the damage found while a media file is read.

    Attributes:
        packet_count: number of packets or frames that the decoder rejected.
        stamp_count: number of single time stamps that were corrected.
        jump_count: number of positions at which the time stamps jump.
        longest_jump: length of the longest forward jump in seconds.
    """

    packet_count: int = 0
    stamp_count: int = 0
    jump_count: int = 0
    longest_jump: float = 0.0

    @property
    def has_broken_stamps(self) -> bool:
        """Whether time stamps were corrected. Seeking by time fails in such a file."""
        return self.stamp_count + self.jump_count > 0

    def warnings(self, end: float, duration: float | None) -> tuple[str, ...]:
        """Return one warning per kind of damage.

        Args:
            end: last second that was read.
            duration: duration in seconds by the file's header, None if unknown.
        """
        lines = []
        if duration is not None and end < duration - MAX_MISSING_SECONDS - 0.02 * duration:
            lines.append(
                f"only the first {end:.0f} s of {duration:.0f} s can be read; copy the file again"
            )
        for count, noun, remedy in (
            (self.packet_count, "damaged packet", "left out"),
            (self.stamp_count, "broken time stamp", "corrected"),
        ):
            if count:
                lines.append(f"{count} {noun}{' was' if count == 1 else 's were'} {remedy}")
        if self.jump_count:
            length = f", the longest by {self.longest_jump:.0f} s," if self.longest_jump else ""
            lines.append(
                f"{self.jump_count} jump{'' if self.jump_count == 1 else 's'} of the time "
                f"stamps{length} corrected: the parts are taken to follow each other"
            )
        return tuple(lines)


# s by which time may go back before the stamps count as restarted. Rounding stays under it
JUMP_SECONDS = 1.0
MAX_PAST_END_SECONDS = 60.0  # s past the claimed end from which a stamp is not believed


class StreamClock:
    """Converts the time stamps of one stream's frames to seconds.

    A frame without a stamp starts when the frame before it ends. A stamp far past the end of the
    file is ignored. If the stamps restart, as in joined recordings, later stamps are shifted.
    """

    def __init__(self, *, start: float, duration: float | None, damage: Damage) -> None:
        """Start the clock.

        Args:
            start: time of second 0 of the video, in seconds on the stream's own time scale.
            duration: duration in seconds by the file's header, None if unknown.
            damage: counts the corrected stamps.
        """
        self._start = start
        self._latest = float("inf") if duration is None else duration + MAX_PAST_END_SECONDS
        self._damage = damage
        self._last_time = float("-inf")  # s, of the frame before
        self._expected_time = 0.0

    def time_of(self, stamp: int | None, time_base: Fraction | None, length: float) -> float:
        """Return the start time of a frame in seconds.

        Args:
            stamp: time stamp of the frame in ticks, None if it has none.
            time_base: seconds per tick.
            length: duration of the frame in seconds.
        """
        time = self._expected_time
        if stamp is not None and time_base:
            claimed = stamp * time_base.numerator / time_base.denominator - self._start
            if claimed > self._latest:
                self._damage.stamp_count += 1
            # against the frame before, not its end: mp4 gives lengths in decoding order
            elif claimed < self._last_time - JUMP_SECONDS:
                self._damage.stamp_count += 1
                self._start -= self._expected_time - claimed
            else:
                time = claimed
        self._last_time = time
        self._expected_time = time + length
        return time


class FrameTiming:
    """Start times and durations of the frames of a video stream."""

    def __init__(self, clock: StreamClock, rate: float, *, by_decoding: bool) -> None:
        """Prepare the timing of a stream before its first frame.

        Args:
            clock: clock of the stream.
            rate: frames per second, used for frames without a duration.
            by_decoding: whether durations are stored in decoding order (mp4 with B-frames), so that
                a long duration may belong to another frame.
        """
        self._clock = clock
        self._usual_length = 1 / rate
        self._last_stamp: int | None = None  # of the frame before
        self._by_decoding = by_decoding

    def time_and_length(self, frame: Any) -> tuple[float, float]:
        """Return the start time and the duration of a decoded frame, in seconds.

        A frame without a duration has that of the frame before it, else the one given by the frame
        rate.
        """
        stamp = presentation_stamp(frame)
        length = 0.0
        if frame.time_base and frame.duration:
            length = float(frame.duration * frame.time_base)

        # the step from one stamp to the next, where the file gives no length that can be believed
        if not length or self._by_decoding:
            if frame.time_base and stamp is not None and self._last_stamp is not None:
                step = (stamp - self._last_stamp) * frame.time_base
                if 0 < step <= JUMP_SECONDS:
                    self._usual_length = float(step)
            if not length or length > JUMP_SECONDS:
                length = self._usual_length
        self._last_stamp = stamp
        return self._clock.time_of(stamp, frame.time_base, length), length


# s ahead of all streams, or back, from which the next packets are looked at before a stamp is
# believed
SUSPICIOUS_JUMP_SECONDS = 10.0
MAX_BACKWARD_SECONDS = 0.5
# s of a jump forward of all streams that is not a pause of the recording. The first is of streams
# that are meant to be joined, as FFmpeg has it, the second of other files
MAX_PAUSE_SECONDS = 10.0
MAX_FILE_PAUSE_SECONDS = 1800.0
MAX_PACKETS_AHEAD = 300  # looked at to judge a jump
MAX_REORDERED = 20  # packets within which B-frames come. Codecs allow 16
MIN_PACKETS_AFTER = 3  # at the end of a file, that a jump needs. Less are broken stamps


@dataclass
class _StreamTiming:
    """Timing of one stream: the stored time stamps of its last packets, and their correction.

    Attributes:
        seconds_per_tick: seconds per tick.
        last_decoding_stamp: decoding stamp of the previous packet, in ticks.
        max_jump: largest step in ticks from one stamp to the next that is not checked.
        shift: seconds to add to the stored stamps.
        end_stamp: stamp in ticks at which the packets so far end.
        next_part: (first stored second, shift in seconds) of the next part of a joined recording.
            Set if a frame of that part was seen ahead of its decoding time, else None.
        recent_stamps: stamps in ticks of the latest packets, as many as B-frames can reorder.
    """

    seconds_per_tick: float
    last_decoding_stamp: int
    max_jump: int
    shift: float
    end_stamp: int
    next_part: tuple[float, float] | None = None
    recent_stamps: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_REORDERED))

    @property
    def last_second(self) -> float:
        """Decoding time of the previous packet in seconds, as stored in the file."""
        return self.last_decoding_stamp * self.seconds_per_tick

    @property
    def corrected_end(self) -> float:
        """Corrected time in seconds at which the packets so far end."""
        return self.end_stamp * self.seconds_per_tick + self.shift

    def next_shift(self, second: float) -> float | None:
        """Return the shift in seconds of the next part, for a stored second that belongs to it.

        None if the second does not, or there is no next part.
        """
        if self.next_part is None or second < self.next_part[0] - SUSPICIOUS_JUMP_SECONDS:
            return None
        return self.next_part[1]

    def record(self, stamp: int, duration: int) -> None:
        """Record a packet by its stamp and duration, both in ticks."""
        # mp4 has a packet last until the next one, past any jump
        self.end_stamp = max(
            self.end_stamp, stamp + duration if duration < self.max_jump else stamp
        )
        self.recent_stamps.append(stamp)

    def restart(self, second: float, shift: float) -> None:
        """Continue after a jump.

        Args:
            second: time in seconds, as stored in the file.
            shift: seconds to add to the stored stamps from now on.
        """
        self.last_decoding_stamp = self.end_stamp = round(second / self.seconds_per_tick)
        self.shift = shift
        self.next_part = None
        self.recent_stamps.clear()


class PacketClock:
    """Corrects the time stamps of a file's packets so that they are continuous.

    If all streams jump (joined recordings, a broken clock), they get one shift, so that video and
    audio stay synchronous. A single packet with a far stamp loses its stamp. A single stream that
    jumps continues at its own end. A gap in all streams of up to `max_pause` seconds is kept.
    Packets at the beginning without stamps last before the first stamp, and time goes on from them.
    """

    def __init__(
        self, streams: Iterable[int], *, max_pause: float, damage: Damage, start: float
    ) -> None:
        """Start the clock.

        Args:
            streams: indices of the streams in use.
            max_pause: longest gap in seconds that counts as a pause of the recording, if all
                streams have it.
            damage: counts the corrected stamps and the jumps.
            start: second 0 of the video, in seconds as stored.
        """
        self._start = start
        self._unstamped: dict[int, list[float]] = {}  # lengths in s before a stream's first stamp
        self._used_streams = frozenset(streams)
        self._max_pause = max_pause
        self._damage = damage
        self._timings: dict[int, _StreamTiming] = {}
        self._newest_shift = 0.0  # s, of the newest part of the file
        self._newest_start = float("-inf")  # stored second at which that part begins
        self._source: Iterator[Any] = iter(())
        self._ahead: deque[Any] = deque()  # packets that were looked at already

    def correct(self, packets: Iterable[Any]) -> Iterator[Any]:
        """Yield the packets in their order, with corrected stamps."""
        self._source = iter(packets)
        while (
            packet := self._ahead.popleft() if self._ahead else next(self._source, None)
        ) is not None:
            timing = self._timings.get(packet.stream_index)
            pts = packet.pts
            dts = packet.dts
            # nearly every packet. This costs a microsecond
            if (
                timing is not None
                and pts is not None
                and dts is not None
                and not timing.shift
                and 0 <= dts - timing.last_decoding_stamp <= timing.max_jump
                and pts - dts <= timing.max_jump
            ):
                timing.last_decoding_stamp = dts
                timing.record(pts, packet.duration)
                yield packet
                continue
            self._correct_packet(packet, timing)
            yield packet

    def _look_ahead(self) -> Iterator[Any]:
        """Yield the next packets of the source in advance. They stay in the queue."""
        yield from list(self._ahead)
        for packet in self._source:
            self._ahead.append(packet)
            yield packet

    def _stamp(self, packet: Any) -> Any:
        """Return the decoding stamp of a packet in ticks, None if it has no stamp.

        Matroska has none of a stream's first packets, which B-frames follow. They get that of the
        first packet after them that has one.
        """
        stamps = [_decoding_stamp(packet)]
        if packet.dts is None and packet.pts is not None:
            for item in islice(self._look_ahead(), MAX_REORDERED):
                if item.stream_index == packet.stream_index and item.dts is not None:
                    stamps.append(item.dts)
        return min(stamps)

    def _correct_packet(self, packet: Any, timing: _StreamTiming | None) -> None:
        stamp = self._stamp(packet)
        index = packet.stream_index
        if index not in self._used_streams or not packet.time_base:
            return
        if stamp is None:
            if timing is None and packet.size:
                self._unstamped.setdefault(index, []).append(_packet_length(packet))
            return
        if timing is None:
            timing = self._start_stream(packet, stamp)

        # a part that was foreseen has begun
        second = stamp * timing.seconds_per_tick
        next_shift = timing.next_shift(second)
        if next_shift is not None:
            timing.restart(second, next_shift)

        # the clock of the file jumps
        if not self._continues_stream(timing, second):
            self._handle_jump(packet, second, timing)
            if packet.pts is None and packet.dts is None:
                return

        # a frame that is shown far too late
        is_late = None not in (packet.pts, packet.dts) and packet.pts - packet.dts > timing.max_jump
        if is_late and self._is_outlier(packet):
            self._damage.stamp_count += 1
            packet.pts = self._missing_stamp(packet, timing)
        elif is_late and timing.next_part is None:
            self._detect_next_part(packet, timing)
        timing.last_decoding_stamp = stamp

        # the correction
        if packet.pts is not None:
            stamp = packet.pts
        shift = timing.next_shift(stamp * timing.seconds_per_tick)
        if shift is None:
            shift = timing.shift
            timing.record(stamp, packet.duration or 0)
        if shift and packet.pts is not None:
            packet.pts += round(shift / timing.seconds_per_tick)
        if timing.shift and packet.dts is not None:
            packet.dts += round(timing.shift / timing.seconds_per_tick)

    def _start_stream(self, packet: Any, stamp: int) -> _StreamTiming:
        """Return the timing of a stream that begins with this packet. stamp: its decoding stamp."""
        if packet.stream_index in self._unstamped:
            self._stamp_leading_packets(packet)
        base = float(packet.time_base)
        # slides last longer, and B-frames come several of them later than they are decoded
        seconds = max(SUSPICIOUS_JUMP_SECONDS, MAX_REORDERED * _packet_length(packet))
        max_jump = round(seconds / base)
        timing = _StreamTiming(base, stamp, max_jump, self._newest_shift, stamp)
        self._timings[packet.stream_index] = timing
        return timing

    def _stamp_leading_packets(self, packet: Any) -> None:
        """Have the time stamps follow the packets of a stream that came before the first stamp.

        A cut that keeps negative times leaves such packets in Matroska, which stores none.

        packet: first packet of the stream with a stamp.
        """
        lengths = self._unstamped.pop(packet.stream_index)
        if sum(lengths) <= MAX_BACKWARD_SECONDS:
            return
        # B-frames from both sides of second 0 are mixed
        first = _packet_start(packet)
        seen = 0
        for item in self._look_ahead():
            if item.stream_index != packet.stream_index:
                continue
            if _decoding_stamp(item) is not None:
                first = min(first, _packet_start(item))
            elif item.size:
                lengths.append(_packet_length(item))
            seen += 1
            if seen >= MAX_REORDERED:
                break
        self._damage.stamp_count += len(lengths)
        shift = self._start + sum(lengths) - first
        if shift <= MAX_BACKWARD_SECONDS or self._newest_shift:
            return
        self._newest_shift = shift
        self._newest_start = first
        # A stream that has begun with this one, and not with the packets before, is as late.
        for timing in self._timings.values():
            if timing.last_second < first + shift / 2:
                timing.shift = shift

    @property
    def _newest_second(self) -> float:
        """Latest decoding time so far of the part that was added last, in seconds as stored."""
        timings = self._timings.values()
        newest = [item.last_second for item in timings if item.shift == self._newest_shift]
        return max([*newest, self._newest_start])

    def _continues_stream(self, timing: _StreamTiming, second: float) -> bool:
        is_newest = timing.shift == self._newest_shift
        # once another stream has jumped, this one will
        back = MAX_BACKWARD_SECONDS if is_newest else 0.0
        if second < timing.last_second - back:
            return False
        if second <= timing.last_second + timing.max_jump * timing.seconds_per_tick:
            return True
        # a frame that is held long. The other streams of its part have continued
        return is_newest and second <= self._newest_second + SUSPICIOUS_JUMP_SECONDS

    def _handle_jump(self, packet: Any, second: float, timing: _StreamTiming) -> None:
        """Correct a packet whose stamp jumps: shift its stream, or remove the stamps of the packet.

        Args:
            packet: PyAV's packet.
            second: decoding time in seconds, as stored in the file.
            timing: timing of its stream.
        """
        index = packet.stream_index
        if (
            timing.shift != self._newest_shift
            and abs(second - self._newest_second) <= SUSPICIOUS_JUMP_SECONDS
        ):  # another stream has jumped there before
            timing.restart(second, self._newest_shift)
            return
        # The next packets show which other streams jump too.
        others = self._used_streams & self._timings.keys() - {index}
        has_jumped: set[int] = set()
        continuing_streams: set[int] = set()  # on from where they were
        after = 1
        for number, item in enumerate(self._look_ahead()):
            other = item.stream_index
            item_second = decoding_second(item)
            if item_second is None or other not in self._used_streams:
                continue
            if other == index:
                if (
                    self._continues_stream(timing, item_second)
                    and abs(item_second - second) > MAX_BACKWARD_SECONDS
                ):
                    self._remove_stamps(packet)
                    return
                after += 1
            elif other in others and self._continues_stream(self._timings[other], item_second):
                continuing_streams.add(other)
            elif other in others:
                has_jumped.add(other)
            is_decided = has_jumped == others and after >= MIN_PACKETS_AFTER
            if is_decided or number >= MAX_PACKETS_AHEAD:
                break
        # A stamp alone is broken. Where no other stream goes on, a new part begins.
        if after < MIN_PACKETS_AFTER:
            self._remove_stamps(packet)
        elif not continuing_streams - has_jumped:
            gap = second - max(self._newest_second, timing.last_second)
            if not 0 <= gap <= self._max_pause:  # no pause of the recording
                timing.restart(second, self._add_part(packet, second, gap))
        elif (
            not 0 <= second - self._newest_second <= self._max_pause
        ):  # alone, and the others go on
            self._damage.stamp_count += 1
            timing.restart(second, timing.corrected_end - second)

    def _add_part(self, packet: Any, second: float, gap: float) -> float:
        """Return the shift in seconds of a new part, which follows all earlier packets.

        Args:
            packet: first packet of the part.
            second: its decoding time in seconds, as stored in the file.
            gap: seconds between the earlier packets and the part.
        """
        self._damage.jump_count += 1
        self._damage.longest_jump = max(self._damage.longest_jump, gap)

        # the part before ends where its last stream does
        end = max(item.corrected_end for item in self._timings.values())
        first = _packet_start(packet)
        part_start = {packet.stream_index}

        # the new part begins with its first stream, others still end the one before
        for item in self._ahead:
            item_second = decoding_second(item)
            other = item.stream_index
            if item_second is None or other not in self._timings:
                continue
            timing = self._timings[other]
            is_new = other in part_start or not self._continues_stream(timing, item_second)
            start = _packet_start(item)
            if is_new and abs(item_second - second) <= SUSPICIOUS_JUMP_SECONDS:
                part_start.add(other)
                first = min(first, start)
            elif not is_new and start - item_second <= SUSPICIOUS_JUMP_SECONDS:
                end = max(end, _packet_end(item) + timing.shift)
        self._newest_shift = end - first
        self._newest_start = second
        return self._newest_shift

    def _detect_next_part(self, packet: Any, timing: _StreamTiming) -> None:
        """Record the start of another part if a frame is shown long after its decoding time.

        It is another part only if all other streams soon jump too. Otherwise the frame before is
        only shown for long.

        Args:
            packet: PyAV's packet of the frame.
            timing: timing of its stream.
        """
        second = _packet_start(packet)
        if (
            abs(second - self._newest_second) <= SUSPICIOUS_JUMP_SECONDS
            and timing.shift != self._newest_shift
        ):
            timing.next_part = second, self._newest_shift
            return
        gap = second - max(self._newest_second, timing.last_second)
        if gap <= self._max_pause or not self._all_others_jump(packet.stream_index):
            return
        timing.next_part = second, self._add_part(packet, second, gap)

    def _all_others_jump(self, index: int) -> bool:
        """Return whether all streams except `index` jump by more than a pause soon.

        "Soon" means within the next packets, which are read in advance.
        """
        last = {other: timing.last_second for other, timing in self._timings.items()}
        last.pop(index, None)

        # the streams that jump forward farther than a pause of the recording
        jumping: set[int] = set()
        for item in self._ahead:
            item_second = decoding_second(item)
            other = item.stream_index
            if item_second is None or other not in last:
                continue
            if item_second - last[other] > self._max_pause:
                jumping.add(other)
            last[other] = item_second
        return jumping == set(last)

    def _remove_stamps(self, packet: Any) -> None:
        packet.pts = packet.dts = None
        self._damage.stamp_count += 1

    def _is_outlier(self, packet: Any) -> bool:
        """Return whether a packet's stamp is later than the reordering of B-frames can explain."""
        stamp = packet.pts - round(JUMP_SECONDS / packet.time_base)
        count = 0
        latest = self._newest_second
        for item in self._look_ahead():
            if item.stream_index != packet.stream_index or item.dts is None:
                latest = max(latest, decoding_second(item) or 0.0)
                continue
            if item.dts >= stamp:
                return False
            count += 1
            if count >= MAX_REORDERED:
                return True
        # at the end of the file the audio says whether a frame may come so late
        return latest < float(stamp * packet.time_base)

    def _missing_stamp(self, packet: Any, timing: _StreamTiming) -> int:
        """Return a stamp in ticks for a packet without one, to fit its neighbours.

        Args:
            packet: PyAV's packet.
            timing: timing of its stream.
        """
        # the stamps before and after the one that is missing
        next_packets = [item for item in self._ahead if item.stream_index == packet.stream_index]
        neighbour_stamps = {
            *timing.recent_stamps,
            *(item.pts for item in next_packets if item.pts is not None),
        }
        if len(neighbour_stamps) < 2:
            return int(packet.dts)
        gaps = [(after - before, before) for before, after in pairwise(sorted(neighbour_stamps))]
        usual_gap = median_low(gap for gap, _ in gaps)
        longest_gap, before = max(gaps)
        if 2 * longest_gap < 3 * usual_gap:  # no hole: it comes last
            before = max(neighbour_stamps)
        return int(before + usual_gap)


def decoding_second(packet: Any) -> float | None:
    """Return the decoding time of a packet in seconds as stored, None if it has no time stamp."""
    stamp = _decoding_stamp(packet)
    base = packet.time_base
    if stamp is None or not base:
        return None
    return float(stamp * base.numerator / base.denominator)


def _packet_start(packet: Any) -> float:
    return float(presentation_stamp(packet) * packet.time_base)


def _packet_end(packet: Any) -> float:
    duration = float((packet.duration or 0) * packet.time_base)
    return _packet_start(packet) + (duration if duration < SUSPICIOUS_JUMP_SECONDS else 0.0)


def _packet_length(packet: Any) -> float:
    """Return the duration of a packet in seconds, by the frame rate if it has none."""
    if packet.duration:
        return float(packet.duration * packet.time_base)
    rate = packet.stream.type == "video" and packet.stream.average_rate
    return float(1 / rate) if rate else 0.0


def presentation_stamp(item: Any) -> Any:
    """Return the presentation stamp of a packet or frame in ticks, else its decoding stamp.

    None if it has neither.

    item: PyAV's packet or frame.
    """
    return item.dts if item.pts is None else item.pts


def _decoding_stamp(packet: Any) -> Any:
    """Return the decoding stamp of a packet in ticks, else its presentation stamp.

    None if it has neither.
    """
    return packet.pts if packet.dts is None else packet.dts
