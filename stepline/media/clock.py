"""Time stamps of a media file as seconds, with jumps and wrong stamps corrected.

PacketClock    corrects the stamps of all streams together, so that they stay in step StreamClock
the frames of one stream, whose missing stamps follow on from the frame before PictureTiming  when a
picture appears and how long it lasts Damage         counts what could not be read, for warnings
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from statistics import median_low
from typing import Any

# s that may be missing at the end before a file counts as cut short. Encoders round
MAX_MISSING_SECONDS = 1.0


@dataclass
class Damage:
    """Counts of packets or frames that a decoder refused, and of corrected time stamps.

    jumps: places where the stamps of a file jump. leap: s of the longest jump forward.
    """

    packets: int = 0
    stamps: int = 0
    jumps: int = 0
    leap: float = 0.0

    @property
    def is_clock_broken(self) -> bool:
        """Return whether time stamps were corrected. Such a file cannot be searched by time."""
        return self.stamps + self.jumps > 0

    def warnings(self, end: float, duration: float | None) -> tuple[str, ...]:
        """Return one warning per kind of damage. end: s really read. duration: s claimed, None if
        unknown.
        """
        lines = []
        if duration is not None and end < duration - MAX_MISSING_SECONDS - 0.02 * duration:
            lines.append(f"only the first {end:.0f} s of {duration:.0f} s can be read")
        if self.packets:
            lines.append(f"{_counted(self.packets, 'damaged packet')} left out")
        if self.stamps:
            lines.append(f"{_counted(self.stamps, 'broken time stamp')} corrected")
        if self.jumps:
            noun = "jump" if self.jumps == 1 else "jumps"
            leap = f", the longest by {self.leap:.0f} s," if self.leap else ""
            cure = "corrected: the parts are taken to follow each other"
            lines.append(f"{self.jumps} {noun} of the time stamps{leap} {cure}")
        return tuple(lines)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun} was" if number == 1 else f"{number} {noun}s were"


# s by which time may go back before the stamps count as restarted. Rounding stays under it
JUMP_SECONDS = 1.0
MAX_PAST_END_SECONDS = 60.0  # s past the claimed end from which a stamp is not believed


class StreamClock:
    """The clock of one stream.

    A missing stamp follows on from the frame before. A stamp far past the end is ignored. Where the
    stamps restart (joined recordings), the later ones are shifted.
    """

    def __init__(self, *, start: float, duration: float | None, damage: Damage) -> None:
        """start: second 0 of the video in the stream's own time. duration: s claimed, None if
        unknown.
        """
        self._start = start
        self._latest = float("inf") if duration is None else duration + MAX_PAST_END_SECONDS
        self._damage = damage
        self._time = float("-inf")  # s, of the frame before
        self._expected = 0.0

    def time_of(self, stamp: int | None, time_base: Fraction | None, length: float) -> float:
        """Return the time of a frame that lasts `length` s."""
        time = self._expected
        if stamp is not None and time_base:
            claimed = stamp * time_base.numerator / time_base.denominator - self._start
            if claimed > self._latest:
                self._damage.stamps += 1
            # against the frame before, not its end: mp4 gives lengths in decoding order
            elif claimed < self._time - JUMP_SECONDS:
                self._damage.stamps += 1
                self._start -= self._expected - claimed
            else:
                time = claimed
        self._time = time
        self._expected = time + length
        return time


class PictureTiming:
    """Start times and durations of the frames of the picture stream."""

    def __init__(self, clock: StreamClock, rate: float, *, by_decoding: bool = False) -> None:
        """rate: frames/s, for frames without a duration.

        by_decoding: whether durations are stored in decoding order (mp4 with B-frames), so that a
        long one may belong to another frame.
        """
        self._clock = clock
        self._length = 1 / rate
        self._stamp: int | None = None  # of the frame before
        self._by_decoding = by_decoding

    def time_and_length(self, frame: Any) -> tuple[float, float]:
        """Return the start time and the duration of a decoded frame, in s.

        A frame without a duration lasts as long as the frame before, else as the frame rate says.
        """
        stamp = presentation_stamp(frame)
        length = 0.0
        if frame.time_base and frame.duration:
            length = float(frame.duration * frame.time_base)

        # the step from one stamp to the next, where the file gives no length that can be believed
        if not length or self._by_decoding:
            if frame.time_base and stamp is not None and self._stamp is not None:
                step = (stamp - self._stamp) * frame.time_base
                if 0 < step <= JUMP_SECONDS:
                    self._length = float(step)
            if not length or length > JUMP_SECONDS:
                length = self._length
        self._stamp = stamp
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
class _StreamState:
    """Position of a stream: stamps as stored in the file, in ticks, and the seconds added to them."""

    base: float  # s of a tick
    last: int  # of the packet before, in the order of decoding
    limit: int  # by which a stamp may be ahead of it unsuspected
    shift: float
    end: int  # at which the packets so far end
    # second, as it comes, and shift of a part whose pictures come before their time of decoding
    next_part_second: tuple[float, float] | None = None
    # of the pictures before, as far as B-frames reach
    stamps: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_REORDERED))

    @property
    def raw(self) -> float:
        """Return the second of the previous packet as stored."""
        return self.last * self.base

    @property
    def mended_end(self) -> float:
        """Return the second at which the packets so far end, corrected."""
        return self.end * self.base + self.shift

    def add(self, stamp: int, duration: int) -> None:
        """Record a packet by its stamp and duration, both in ticks."""
        # mp4 has a packet last until the next one, past any jump
        self.end = max(self.end, stamp + duration if duration < self.limit else stamp)
        self.stamps.append(stamp)

    def restart(self, second: float, shift: float) -> None:
        """Continue at `second`, as stored, with another shift, both in s."""
        self.last = self.end = round(second / self.base)
        self.shift = shift
        self.next_part_second = None
        self.stamps.clear()


class PacketClock:
    """The clock of a file: shifts the stamps of packets so that they stay continuous.

    Where all streams jump (joined recordings, a broken clock), they get one shift, so that picture
    and sound stay in step. A single packet with a far stamp loses it. A single stream that jumps
    continues at its own end. A gap in all streams of up to `max_pause` s is kept.
    """

    def __init__(self, streams: Iterable[int], *, max_pause: float, damage: Damage) -> None:
        """streams: indices of the streams in use. max_pause: s."""
        self._used_streams = frozenset(streams)
        self._max_pause = max_pause
        self._damage = damage
        self._streams: dict[int, _StreamState] = {}
        self._newest = 0.0  # s, shift of the newest part of the file
        self._start = float("-inf")  # s, as it came, at which that part begins

    def mend(self, packets: Iterable[Any]) -> Iterator[Any]:
        """Yield the packets in their order, with corrected stamps."""
        source = iter(packets)
        ahead: deque[Any] = deque()
        while True:
            packet = ahead.popleft() if ahead else next(source, None)
            if packet is None:
                return
            state = self._streams.get(packet.stream_index)
            pts = packet.pts
            dts = packet.dts
            # nearly every packet. This costs a microsecond
            if (
                state is not None
                and pts is not None
                and dts is not None
                and not state.shift
                and 0 <= dts - state.last <= state.limit
                and pts - dts <= state.limit
            ):
                state.last = dts
                state.add(pts, packet.duration)
                yield packet
                continue
            yield self._mended(packet, state, source, ahead)

    def _mended(
        self, packet: Any, state: _StreamState | None, source: Iterator[Any], ahead: "deque[Any]"
    ) -> Any:
        stamp = _decoding_stamp(packet)
        if stamp is None or packet.stream_index not in self._used_streams or not packet.time_base:
            return packet
        if state is None:
            base = float(packet.time_base)
            limit = round(SUSPICIOUS_JUMP_SECONDS / base)
            state = _StreamState(base, stamp, limit, self._newest, stamp)
            self._streams[packet.stream_index] = state

        # a part that was foreseen has begun
        second = stamp * state.base
        if (
            state.next_part_second is not None
            and second >= state.next_part_second[0] - SUSPICIOUS_JUMP_SECONDS
        ):
            state.restart(second, state.next_part_second[1])

        # the clock of the file jumps
        if not self._is_continuous(state, second):
            self._handle_jump(packet, second, state, source, ahead)
            if packet.pts is None and packet.dts is None:
                return packet

        # a picture that is shown far too late
        is_late = None not in (packet.pts, packet.dts) and packet.pts - packet.dts > state.limit
        if is_late and self._is_outlier(packet, source, ahead):
            self._damage.stamps += 1
            packet.pts = self._missing_stamp(packet, state, ahead)
        elif is_late and state.next_part_second is None:
            self._expect_new_part(packet, state, ahead)
        state.last = stamp
        self._shift_stamps(packet, state, stamp)
        return packet

    def _shift_stamps(self, packet: Any, state: _StreamState, stamp: int) -> None:
        if packet.pts is not None:
            stamp = packet.pts
        shift = state.shift
        second = stamp * state.base
        if (
            state.next_part_second is not None
            and second >= state.next_part_second[0] - SUSPICIOUS_JUMP_SECONDS
        ):
            shift = state.next_part_second[1]
        else:
            state.add(stamp, packet.duration or 0)
        if shift and packet.pts is not None:
            packet.pts += round(shift / state.base)
        if state.shift and packet.dts is not None:
            packet.dts += round(state.shift / state.base)

    @property
    def _position(self) -> float:
        """Return the latest second, as stored, in the newest part of the file."""
        newest = [each.raw for each in self._streams.values() if each.shift == self._newest]
        return max([*newest, self._start])

    def _is_continuous(self, state: _StreamState, second: float) -> bool:
        is_newest = state.shift == self._newest
        # once another stream has jumped, this one will
        back = MAX_BACKWARD_SECONDS if is_newest else 0.0
        if second < state.raw - back:
            return False
        if second <= state.raw + SUSPICIOUS_JUMP_SECONDS:
            return True
        # a picture that is held long. The other streams of its part have gone on
        return is_newest and second <= self._position + SUSPICIOUS_JUMP_SECONDS

    def _handle_jump(
        self,
        packet: Any,
        second: float,
        state: _StreamState,
        source: Iterator[Any],
        ahead: "deque[Any]",
    ) -> None:
        """Decide on a jump: shift the stream, or remove the stamps of a single wrong packet."""
        index = packet.stream_index
        if (
            state.shift != self._newest and abs(second - self._position) <= SUSPICIOUS_JUMP_SECONDS
        ):  # another stream has jumped there before
            state.restart(second, self._newest)
            return
        # The next packets show which other streams jump too.
        others = self._used_streams & self._streams.keys() - {index}
        has_jumped: set[int] = set()
        continuing_streams: set[int] = set()  # on from where they were
        after = 1
        for number, item in enumerate(_look_ahead(source, ahead)):
            other = item.stream_index
            raw = decoding_second(item)
            if raw is None or other not in self._used_streams:
                continue
            if other == index:
                if self._is_continuous(state, raw) and abs(raw - second) > MAX_BACKWARD_SECONDS:
                    self._strip(packet)
                    return
                after += 1
            elif other in others and self._is_continuous(self._streams[other], raw):
                continuing_streams.add(other)
            elif other in others:
                has_jumped.add(other)
            is_decided = has_jumped == others and after >= MIN_PACKETS_AFTER
            if is_decided or number >= MAX_PACKETS_AHEAD:
                break
        # A stamp alone is broken. Where no other stream goes on, a new part begins.
        if after < MIN_PACKETS_AFTER:
            self._strip(packet)
        elif not continuing_streams - has_jumped:
            gap = second - max(self._position, state.raw)
            if not 0 <= gap <= self._max_pause:  # no pause of the recording
                state.restart(second, self._add_part(packet, second, gap, ahead))
        elif not 0 <= second - self._position <= self._max_pause:  # alone, and the others go on
            self._damage.stamps += 1
            state.restart(second, state.mended_end - second)

    def _add_part(self, packet: Any, second: float, gap: float, ahead: Iterable[Any]) -> float:
        """Return the shift, in s, of a new part that begins with a packet at `second`, as stored.

        The shifted part follows all earlier packets.
        """
        self._damage.jumps += 1
        self._damage.leap = max(self._damage.leap, gap)

        # the part before ends where its last stream does
        end = max(each.mended_end for each in self._streams.values())
        first = _packet_start(packet)
        part_start = {packet.stream_index}

        # the new part begins with its first stream, others still end the one before
        for item in ahead:
            raw = decoding_second(item)
            other = item.stream_index
            if raw is None or other not in self._streams:
                continue
            state = self._streams[other]
            is_new = other in part_start or not self._is_continuous(state, raw)
            start = _packet_start(item)
            if is_new and abs(raw - second) <= SUSPICIOUS_JUMP_SECONDS:
                part_start.add(other)
                first = min(first, start)
            elif not is_new and start - raw <= SUSPICIOUS_JUMP_SECONDS:
                end = max(end, _packet_end(item) + state.shift)
        self._newest = end - first
        self._start = second
        return self._newest

    def _expect_new_part(self, packet: Any, state: _StreamState, ahead: Iterable[Any]) -> None:
        """Note that a picture, decoded before it is shown, begins another part.

        The other streams then jump too. Otherwise the frame before it is only held long.
        """
        second = _packet_start(packet)
        if abs(second - self._position) <= SUSPICIOUS_JUMP_SECONDS and state.shift != self._newest:
            state.next_part_second = second, self._newest
            return
        gap = second - max(self._position, state.raw)
        if gap <= self._max_pause or not self._do_all_streams_jump(packet.stream_index, ahead):
            return
        state.next_part_second = second, self._add_part(packet, second, gap, ahead)

    def _do_all_streams_jump(self, index: int, ahead: Iterable[Any]) -> bool:
        """Return whether every other stream leaps further than a pause among the next packets."""
        last = {other: state.raw for other, state in self._streams.items()}
        last.pop(index, None)

        # the streams that leap forward farther than a pause of the recording
        leaping: set[int] = set()
        for item in ahead:
            raw = decoding_second(item)
            other = item.stream_index
            if raw is None or other not in last:
                continue
            if raw - last[other] > self._max_pause:
                leaping.add(other)
            last[other] = raw
        return leaping == set(last)

    def _strip(self, packet: Any) -> None:
        packet.pts = packet.dts = None
        self._damage.stamps += 1

    def _is_outlier(self, packet: Any, source: Iterator[Any], ahead: "deque[Any]") -> bool:
        """Return whether a picture's stamp is later than those of any B-frames around it would be."""
        stamp = packet.pts - round(JUMP_SECONDS / packet.time_base)
        count = 0
        latest = self._position
        for item in _look_ahead(source, ahead):
            if item.stream_index != packet.stream_index or item.dts is None:
                latest = max(latest, decoding_second(item) or 0.0)
                continue
            if item.dts >= stamp:
                return False
            count += 1
            if count >= MAX_REORDERED:
                return True
        # at the end of the file the sound says whether a picture may come so late
        return latest < float(stamp * packet.time_base)

    def _missing_stamp(self, packet: Any, state: _StreamState, ahead: Iterable[Any]) -> int:
        """Return the stamp of a picture that fits the gap between its neighbours."""
        # the stamps before and after the one that is missing
        own = [item for item in ahead if item.stream_index == packet.stream_index]
        neighbour_stamps = {*state.stamps, *(item.pts for item in own if item.pts is not None)}
        if len(neighbour_stamps) < 2:
            return int(packet.dts)
        steps = [(after - before, before) for before, after in pairwise(sorted(neighbour_stamps))]
        usual = median_low(step for step, _ in steps)
        longest, before = max(steps)
        if 2 * longest < 3 * usual:  # no hole: it comes last
            before = max(neighbour_stamps)
        return int(before + usual)


def _look_ahead(source: Iterator[Any], ahead: "deque[Any]") -> Iterator[Any]:
    """Yield the next packets of the source, and keep them in `ahead`."""
    yield from list(ahead)
    for packet in source:
        ahead.append(packet)
        yield packet


def decoding_second(packet: Any) -> float | None:
    """Return the decoding time of a packet in seconds as stored, or None without a stamp."""
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


def presentation_stamp(item: Any) -> Any:
    """Return the presentation stamp of a packet or frame in ticks, else its decoding stamp, else
    None.
    """
    return item.dts if item.pts is None else item.pts


def _decoding_stamp(packet: Any) -> Any:
    """Return the decoding stamp of a packet in ticks, else its presentation stamp, else None."""
    return packet.pts if packet.dts is None else packet.dts
