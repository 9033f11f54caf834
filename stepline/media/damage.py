"""Counts what could not be read, and says so in a line each."""

from dataclasses import dataclass

SLACK = 1.0  # s that may be missing at the end before a file counts as cut short; encoders round


@dataclass
class Damage:
    """What could not be read, counted: packets or frames that a decoder refused, and time stamps that were mended."""

    packets: int = 0
    stamps: int = 0

    def warnings(self, end: float, duration: float | None) -> tuple[str, ...]:
        """Return one line for each kind of damage. end: s really read; duration: s claimed, None if not known."""
        lines = []
        if duration is not None and end < duration - SLACK - 0.02 * duration:
            lines.append(f"only the first {end:.0f} s of {duration:.0f} s can be read")
        if self.packets:
            lines.append(f"{_count(self.packets, 'damaged packet')} left out")
        if self.stamps:
            lines.append(f"{_count(self.stamps, 'broken time stamp')} mended")
        return tuple(lines)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{' was' if number == 1 else 's were'}"
