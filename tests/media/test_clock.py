from fractions import Fraction

import pytest

from stepline.media.container import Damage, StreamClock

MILLI = Fraction(1, 1000)


def test_second_zero_is_the_start_of_the_container() -> None:
    clock = StreamClock(start=1.4, duration=None, damage=Damage())
    assert clock.place(1400, MILLI, 0.1) == pytest.approx(0.0)
    assert clock.place(1650, MILLI, 0.1) == pytest.approx(0.25)


def test_a_missing_stamp_follows_on_from_the_frame_before() -> None:
    clock = StreamClock(start=0.0, duration=None, damage=Damage())
    assert clock.place(None, MILLI, 0.04) == 0.0
    assert clock.place(None, MILLI, 0.04) == pytest.approx(0.04)
    assert clock.place(200, MILLI, 0.04) == pytest.approx(0.2)
    assert clock.place(None, None, 0.04) == pytest.approx(0.24)


def test_stamps_that_start_over_are_counted_on() -> None:
    damage = Damage()
    clock = StreamClock(start=0.0, duration=None, damage=damage)
    assert clock.place(9_900, MILLI, 0.1) == pytest.approx(9.9)
    assert clock.place(0, MILLI, 0.1) == pytest.approx(10.0)
    assert clock.place(500, MILLI, 0.1) == pytest.approx(10.5)
    assert damage.stamps == 1


def test_a_stamp_far_past_the_end_is_not_believed() -> None:
    damage = Damage()
    clock = StreamClock(start=0.0, duration=10.0, damage=damage)
    clock.place(1000, MILLI, 0.1)
    assert clock.place(10**9, MILLI, 0.1) == pytest.approx(1.1)
    assert clock.place(1200, MILLI, 0.1) == pytest.approx(1.2)
    assert damage.warnings(10.0, 10.0) == ("1 broken time stamp was mended",)


@pytest.mark.parametrize(
    ("end", "duration", "expected"),
    [
        (58.4, 421.2, ("only the first 58 s of 421 s can be read",)),
        (420.0, 421.2, ()),  # encoders round: a second and 2 % may be missing
        (58.4, None, ()),
    ],
)
def test_a_file_that_ends_early_is_told(end: float, duration: float | None, expected: tuple[str, ...]) -> None:
    assert Damage().warnings(end, duration) == expected


def test_damage_is_counted_in_plain_words() -> None:
    assert Damage(packets=3).warnings(1.0, 1.0) == ("3 damaged packets were left out",)
