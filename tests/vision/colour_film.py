"""A drawn film in which colours are named and shown, two of them not in the order of their names.

Each colour fills a scene of 6 s. Its name is said around the start of a scene: of its own scene, but
for purple and orange, which are said in this order and shown in the other one. Whoever knows the words
alone has both wrong.
"""

import numpy as np
from small_video import write_pictures

COLOURS = {"red": (200, 30, 30), "green": (30, 160, 40), "blue": (30, 50, 200)}
COLOURS |= {"yellow": (220, 210, 40), "purple": (130, 30, 150), "orange": (240, 130, 20)}
SCENES = {"start": (120, 120, 120), "end": (90, 90, 90)}  # before and after the colours
SHOWN = ("red", "green", "blue", "yellow", "orange", "purple")
LINES = [f"add the {name} paint" for name in COLOURS]
SECONDS = 6  # of a scene
RATE = 10  # frames per second
SIZE = (160, 120)


def draw_picture(colour, number):
    """Frame `number` of a scene: a colour, a grey stripe and a black square that moves."""
    width, height = SIZE
    side = height // 3
    image = np.full((height, width, 3), colour, np.uint8)
    left = number * 2 % (width - side)
    image[side : 2 * side, left : left + side] = 10
    image[: side // 2] = image[: side // 2] // 2 + 60
    return image


def draw_film(path):
    """Write the film, without sound, and return its path."""
    colours = [SCENES["start"], *(COLOURS[name] for name in SHOWN), SCENES["end"]]
    numbers = range(len(colours) * SECONDS * RATE)
    images = (draw_picture(colours[number // (SECONDS * RATE)], number) for number in numbers)
    return write_pictures(path, images, RATE)


def write_captions(path):
    """Write what is said in the film, from a second before each scene, and return the path."""
    cues = []
    for number, line in enumerate(LINES):
        second = SECONDS * (number + 1) - 1
        cues.append(f"00:{second:02d}.000 --> 00:{second + 2:02d}.000\nThen {line}.\n")
    path.write_text("WEBVTT\n\n" + "\n".join(cues))
    return path


def scene_of(name):
    """First and last second in which a colour is shown."""
    start = SECONDS * (1 + SHOWN.index(name))
    return start, start + SECONDS
