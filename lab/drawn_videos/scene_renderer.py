"""One frame of a scene: the set, the things, the hands, the effects, and the camera that looks at
them."""

import math
from functools import lru_cache
from random import Random

from PIL import Image, ImageFilter

from lab.drawn_videos import sprites
from lab.drawn_videos.camera import CANVAS_MARGIN, FilmLook, Picture, View, camera_window
from lab.drawn_videos.effects import ContactPoints, draw_effect, draw_fill
from lab.drawn_videos.light import Point, shadow
from lab.drawn_videos.motions import MOTIONS_BY_ACTION, Pose, wave
from lab.drawn_videos.paint import TABLE_TILT, Color
from lab.drawn_videos.people import MOUTH_OPENINGS, HandPose, Person, make_person
from lab.drawn_videos.scenes import background, title_card
from lab.drawn_videos.script import Scene
from lab.drawn_videos.settings import RenderSettings
from lab.drawn_videos.sprites import Sprite
from lab.drawn_videos.things import THINGS_BY_NAME
from lab.drawn_videos.things.thing import SOFT_COLORS, Thing

# Fraction of the frame's height for a target and the hands above it.
WIDE_FILL = 0.62
CLOSE_FILL = 0.86
# Largest zoom of the two cameras.
WIDE_ZOOM = 1.25
CLOSE_ZOOM = 1.9
HEADROOM_HEIGHTS = 0.36  # frame heights above a target that the item and the hand need
TARGET_FOOT: Point = (0.89, 0.80)  # where the target is, frame heights
# Props that lie under a smaller target.
FLAT_PROPS = ("cutting board", "plate", "wood plank", "cloth", "shirt", "paper")
# Where a hand holds a small thing from below, in the thing's unit square.
PALM_POINT: Point = (0.66, 0.82)
# Where props are on the table, and before the presenter, frame heights.
TABLE_SPOTS: tuple[Point, ...] = (
    (0.30, 0.62),
    (1.47, 0.60),
    (0.62, 0.50),
    (1.20, 0.49),
    (0.24, 0.92),
)
PRESENTER_SPOTS: tuple[Point, ...] = ((1.30, 0.98), (1.58, 0.97), (0.22, 0.98))
WORLD_ASPECT = 16 / 9  # a narrower frame crops the world
HOLDING_COLOR: Color = (236, 226, 200)  # of what a vessel holds when no thing has a colour for it


class SceneRenderer:
    """Draws the scenes of one video. Everything that does not move is painted once."""

    def __init__(self, seed: int, settings: RenderSettings | None = None) -> None:
        self.settings = settings or RenderSettings()
        self.seed = seed
        self.who: Person = make_person(seed)
        rng = Random(f"stage {seed}")
        sleeves = [self.who.clothes, *SOFT_COLORS[:3], (60, 62, 70), (230, 228, 222)]
        self.sleeve: Color = rng.choice(sleeves)
        self.width = round(self.settings.width * CANVAS_MARGIN)
        self.height = round(self.settings.height * CANVAS_MARGIN)
        self._film = FilmLook(seed, self.settings)
        self._set = lru_cache(maxsize=24)(self._still_canvas)

    def frame(self, scene: Scene, t: float, length: float, loudness: float, number: int) -> Picture:
        """Return the picture `t` s into a scene of `length` s, (height, width, 3) uint8.

        loudness in [0, 1] opens the presenter's mouth. `number` chooses the grain.
        """
        canvas = self._set(scene).copy()
        if scene.kind == "talk":
            self._draw_presenter(canvas, scene, t, loudness)
        elif scene.kind == "table":
            self._draw_action(canvas, scene, t, length)
        frame = (float(self.settings.width), float(self.settings.height))
        window = camera_window(scene, t, length, self.seed, (self.width, self.height), frame)
        return self._film.expose(canvas, window, number)

    # ------------------------------------------------------------ what stands still

    def _view(self, scene: Scene) -> View:
        """Return where the camera is: nearer to small targets, and nearer again in a close shot."""
        if scene.kind in ("talk", "title") or scene.target is None:
            return View(self.width, self.height, 1.0, (WORLD_ASPECT / 2, 0.58))
        fill = WIDE_FILL
        max_zoom = WIDE_ZOOM
        if scene.camera == "close":
            fill = CLOSE_FILL
            max_zoom = CLOSE_ZOOM

        # the target, and the hands above it, fill a fraction of the picture
        target = THINGS_BY_NAME[scene.target]
        sprite = sprites.thing_sprite(scene.target, 64, self.seed)
        _, work_y = _work_point(sprite, target)
        action_height = (sprite.y_max - work_y) * target.size + HEADROOM_HEIGHTS
        target_height = sprite.height * target.size
        zoom = min(fill / action_height, fill / target_height)
        zoom = min(max_zoom, max(1.0, zoom))
        foot_x, foot_y = TARGET_FOOT
        return View(self.width, self.height, zoom, (foot_x, foot_y - 0.29 / zoom))

    def _still_canvas(self, scene: Scene) -> Image.Image:
        """Return the canvas with everything that does not move."""
        view = self._view(scene)
        image = self._backdrop(scene, view, scene.kind in ("table", "roll"))
        if scene.kind == "title":
            return title_card(image, scene.caption or "")
        if scene.kind == "talk":
            return image

        # things around the target
        under = [name for name in scene.props if _lies_under(name, scene.target)]
        around = [name for name in scene.props if name not in under]
        for name, spot in zip(around, TABLE_SPOTS, strict=False):
            self._draw_thing(image, view, name, spot)

        # what is under the target, then a target that no one touches
        foot_x, foot_y = TARGET_FOOT
        for name in under[:1]:
            sprite = self._sprite(view, name)
            surface = sprite.height * 0.56 * sprite.side / (view.zoom * view.height)
            self._draw_thing(image, view, name, (foot_x, foot_y + surface))
        if scene.target is not None and scene.kind == "roll":
            self._draw_thing(image, view, scene.target, TARGET_FOOT)
        return image

    def _backdrop(self, scene: Scene, view: View, table: bool) -> Image.Image:
        whole = background(scene.place, self.seed, self.width, self.height, table=table)
        if view.zoom == 1.0:
            return whole
        focus_x, focus_y = view.focus
        part_width = self.width / view.zoom
        part_height = self.height / view.zoom
        x = focus_x * self.height - part_width / 2
        y = focus_y * self.height - 0.58 * part_height
        x = min(max(0.0, x), self.width - part_width)
        y = min(max(0.0, y), self.height - part_height)
        part = whole.resize(
            (self.width, self.height),
            Image.Resampling.BICUBIC,
            box=(x, y, x + part_width, y + part_height),
        )
        return part.filter(ImageFilter.GaussianBlur(0.8))

    def _sprite(self, view: View, name: str) -> Sprite:
        return sprites.thing_sprite(name, view.pixels(THINGS_BY_NAME[name].size), self.seed)

    def _draw_thing(self, image: Image.Image, view: View, name: str, foot: Point) -> None:
        """Put (or lay) a thing with its foot on a spot, with its shadow."""
        sprite = self._sprite(view, name)
        angle = THINGS_BY_NAME[name].lies
        x, y = view.at(foot)
        if angle:
            _paste_shadow(image, x, y, sprite.side * 0.7, 0.10)
            middle = (x, y - 0.05 * sprite.side)
            sprites.paste_sprite(image, sprite, sprite.center, middle, angle)
            return
        _paste_shadow(image, x, y, sprite.width * sprite.side)
        sprites.paste_sprite(image, sprite, _foot(sprite), (x, y))

    # ------------------------------------------------------------ what moves

    def _draw_action(self, canvas: Image.Image, scene: Scene, t: float, length: float) -> None:
        """Draw target, item, effects and hands of a table scene."""
        view = self._view(scene)
        action = scene.action or "place"
        target = scene.target or "bowl"
        pose = MOTIONS_BY_ACTION[action](t, length)

        # the target, and what is in it
        sprite = self._sprite(view, target)
        shape = _shaped(sprite, pose)
        at = view.at(TARGET_FOOT)
        self._draw_target(canvas, sprite, shape, pose, at)
        work = _in_pixels(sprite, _work_point(sprite, THINGS_BY_NAME[target]), at)
        contact = self._contact_points(scene, view, pose, sprite, work)
        draw_fill(canvas, contact, pose, t / max(length, 0.1))

        # the hand holds a small item from below, another one from above
        hands_below = scene.item is not None and _small(THINGS_BY_NAME[scene.item])
        if hands_below:
            self._draw_hands(canvas, view, pose, contact)
        if scene.item is not None:
            self._draw_item(canvas, scene.item, view, pose, contact)
            if pose.inside and shape.rim is not None:
                wall = sprites.front_wall(shape)
                sprites.paste_sprite(canvas, wall, _foot(sprite), at)
        draw_effect(canvas, action, contact, pose, t, length)
        if not hands_below:
            self._draw_hands(canvas, view, pose, contact)

    def _draw_target(
        self, canvas: Image.Image, sprite: Sprite, shape: Sprite, pose: Pose, at: Point
    ) -> None:
        """Draw the target as the pose bends or turns it, with its shadow."""
        x, y = at
        _paste_shadow(canvas, x, y, sprite.width * sprite.side)
        if not pose.turn:
            sprites.paste_sprite(canvas, shape, _foot(sprite), at)
            return
        middle_x = x + (0.5 - sprite.center[0]) * sprite.side
        middle_y = y - (sprite.y_max - 0.5) * sprite.side
        sprites.paste_sprite(canvas, shape, (0.5, 0.5), (middle_x, middle_y), pose.turn)

    def _contact_points(
        self, scene: Scene, view: View, pose: Pose, sprite: Sprite, work: Point
    ) -> ContactPoints:
        """Return where the item, the hands and the target meet, in pixels."""
        unit = view.zoom * view.height
        tip = _moved(work, (pose.x, pose.y), unit)
        grip = tip
        target_content = THINGS_BY_NAME[scene.target or "bowl"].content
        item_content = None
        if scene.item:
            item = THINGS_BY_NAME[scene.item]
            item_content = item.content
            hold_x, hold_y = PALM_POINT if _small(item) else item.grip
            side = self._sprite(view, scene.item).side
            tip_x, tip_y = item.tip
            hold = ((hold_x - tip_x) * side, (hold_y - tip_y) * side)
            dx, dy = sprites.rotate_offset(*hold, pose.angle)
            grip = (tip[0] + dx, tip[1] + dy)
        opening = None
        if sprite.rim is not None:
            opening = (sprite.rim.rx * sprite.side, sprite.rim.ry * sprite.side)
        color = item_content or target_content or HOLDING_COLOR
        return ContactPoints(work, tip, grip, opening, color, target_content or color, unit)

    def _draw_item(
        self, canvas: Image.Image, name: str, view: View, pose: Pose, contact: ContactPoints
    ) -> None:
        """Draw the item, or its two halves."""
        sprite = self._sprite(view, name)
        tip = THINGS_BY_NAME[name].tip
        if not pose.apart:
            sprites.paste_sprite(canvas, sprite, tip, contact.tip, pose.angle)
            return
        for sign in (-1, 1):
            half = sprites.sprite_half(sprite, sign > 0)
            at = (contact.tip[0] + sign * pose.apart * contact.unit, contact.tip[1])
            sprites.paste_sprite(canvas, half, tip, at, sign * 30)

    def _draw_hands(
        self, canvas: Image.Image, view: View, pose: Pose, contact: ContactPoints
    ) -> None:
        if pose.other is not None:
            other_pose: HandPose = "open" if pose.apart == 0 else "pinch"
            at = _moved(contact.work, pose.other, contact.unit)
            self._draw_hand(canvas, view, other_pose, at, is_left=True)
        if pose.hand is not None:
            at = _moved(contact.grip, pose.reach, contact.unit)
            self._draw_hand(canvas, view, pose.hand, at, is_left=False)

    def _draw_hand(
        self, canvas: Image.Image, view: View, pose: HandPose, at: Point, *, is_left: bool
    ) -> None:
        """Draw a hand at a pixel, its forearm leading out of the frame's lower edge."""
        x, y = at
        side = sprites.hand_side(view.zoom * view.height)
        sprite = sprites.hand_sprite(pose, side, self.who.skin, self.sleeve, is_left)
        elbow_offset = -0.26 if is_left else 0.26
        elbow_x = x + elbow_offset * self.height * view.zoom
        elbow_y = self.height * 1.35
        turn = math.atan2(-(elbow_x - x), max(elbow_y - y, 1.0))
        sprites.paste_sprite(canvas, sprite, sprites.SPRITE_GRIP, at, math.degrees(turn))

    def _draw_presenter(self, canvas: Image.Image, scene: Scene, t: float, loudness: float) -> None:
        """Draw the presenter, who nods, blinks, speaks and gestures, and the things before them."""
        size, middle, above = 0.98, 0.42, 0.97
        if scene.camera == "close":
            size, middle, above = 1.25, 0.5, 0.86
        side = round(self.height * size)
        opening = min(MOUTH_OPENINGS - 1, round(loudness * (MOUTH_OPENINGS - 1)))
        blinks = t % 3.3 > 3.17
        bust = sprites.presenter_image(self.who, side, opening, blinks)

        # head and shoulders sway, and rise with the voice
        x = self.width * middle
        x += 0.012 * self.height * wave(t, 4.1)
        x += 0.006 * self.height * wave(t, 1.3)
        y = self.height - side * above
        y += 0.006 * self.height * wave(t, 1.7)
        y += 0.010 * self.height * loudness
        canvas.paste(bust, (round(x - side / 2), round(y)), bust)

        # a hand that rises and sinks in the middle of every 5.2 s
        view = self._view(scene)
        gesture = t % 5.2 - 2.4
        if 2.4 < t % 5.2 < 4.8:
            lift = math.sin(math.pi * min(1.0, max(0.0, gesture / 2.4)))
            hand_x = x + 0.36 * self.height + 0.03 * self.height * wave(t, 0.9)
            hand_y = self.height * (1.12 - 0.42 * lift)
            self._draw_hand(canvas, view, "open", (hand_x, hand_y), is_left=False)
        for name, foot in zip(scene.props, PRESENTER_SPOTS, strict=False):
            self._draw_thing(canvas, view, name, foot)


def _foot(sprite: Sprite) -> Point:
    """Return where a sprite rests on the table, in its unit square."""
    return (sprite.center[0], sprite.y_max)


def _in_pixels(sprite: Sprite, point: Point, at: Point) -> Point:
    """Return the pixel of a sprite's unit point when its foot is on pixel `at`."""
    foot_x, foot_y = _foot(sprite)
    x = at[0] + (point[0] - foot_x) * sprite.side
    y = at[1] + (point[1] - foot_y) * sprite.side
    return (x, y)


def _moved(point: Point, offset: Point, unit: float) -> Point:
    """Return a pixel moved by an offset in frame heights of `unit` pixels."""
    return (point[0] + offset[0] * unit, point[1] + offset[1] * unit)


def _lies_under(name: str, target: str | None) -> bool:
    """Say whether a prop is a flat thing that the target rests on."""
    if target is None or name == target or name not in FLAT_PROPS:
        return False
    return THINGS_BY_NAME[target].size < 0.62 * THINGS_BY_NAME[name].size


def _shaped(sprite: Sprite, pose: Pose) -> Sprite:
    """Return the target as the pose bends it."""
    if pose.fold:
        return sprites.fold_over(sprite, round(pose.fold * 20) * 5)
    if pose.squash < 0.99:
        return sprites.squash(sprite, round(pose.squash * 50) * 2)
    return sprite


def _work_point(sprite: Sprite, thing: Thing) -> Point:
    """Return where hands meet a target, in its unit square.

    It is the opening of a hollow thing, or a tip in the middle of its thing. Else it is a point a
    little above the middle.
    """
    if sprite.rim is not None:
        return (sprite.rim.x, sprite.rim.y)
    tip_x, tip_y = thing.tip
    has_tip = thing.lies == 0 and thing.tip != (0.5, 0.5)
    if has_tip and sprite.y_min < tip_y < sprite.y_max and 0.3 < tip_x < 0.7:
        return thing.tip
    return (sprite.center[0], sprite.y_min + 0.42 * sprite.height)


def _small(item: Thing) -> bool:
    """Say whether a thing has no handle, so that fingers hold it from below."""
    return item.grip == (0.5, 0.5)


def _paste_shadow(
    image: Image.Image, x: float, y: float, width: float, flat: float = TABLE_TILT * 0.55
) -> None:
    """Lay a soft shadow to the right of a foot, since light comes from the left."""
    shadow_width = max(4, round(width * 1.02))
    shadow_height = max(3, round(width * flat))
    dark = _shadow(shadow_width, shadow_height)
    dark_x = round(x - dark.width / 2 + width * 0.05)
    dark_y = round(y - dark.height / 2 - width * flat * 0.15)
    image.paste(dark, (dark_x, dark_y), dark)


@lru_cache(maxsize=256)
def _shadow(width: int, height: int) -> Image.Image:
    return shadow(width, height)
