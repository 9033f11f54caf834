"""One frame of a scene: the set, the things, the hands, the effects, and the camera that looks at
them."""

import math
from functools import lru_cache
from random import Random

from PIL import Image, ImageFilter

from research.drawn_videos import sprites
from research.drawn_videos.camera import CANVAS_MARGIN, FilmLook, Picture, View, camera_window
from research.drawn_videos.effects import ContactPoints, draw_effect, draw_fill
from research.drawn_videos.light import Point, shadow
from research.drawn_videos.motions import MOTIONS_BY_ACTION, Pose, wave
from research.drawn_videos.paint import TABLE_TILT, Color
from research.drawn_videos.people import MOUTH_OPENINGS, HandPose, Person, make_person
from research.drawn_videos.scenes import background, title_card
from research.drawn_videos.script import Scene
from research.drawn_videos.settings import RenderSettings
from research.drawn_videos.sprites import Sprite
from research.drawn_videos.things import THINGS_BY_NAME
from research.drawn_videos.things.thing import SOFT_COLORS, Thing

# fraction of the frame's height for a target and the hands above it
WIDE_FILL, CLOSE_FILL = 0.62, 0.86
HEADROOM = 0.36  # frame heights above a target that the item and the hand need
FOOT: Point = (0.89, 0.80)  # where the target is, frame heights
# props that lie under a smaller target
FLATS = ("cutting board", "plate", "wood plank", "cloth", "shirt", "paper")
# where a hand holds a small thing from below, in the thing's unit square
PALM: Point = (0.66, 0.82)
# where props are
SPOTS: tuple[Point, ...] = ((0.30, 0.62), (1.47, 0.60), (0.62, 0.50), (1.20, 0.49), (0.24, 0.92))
ASPECT = 16 / 9  # of the world; a narrower frame crops it


class SceneRenderer:
    """Draws the scenes of one video. Everything that does not move is painted once."""

    def __init__(self, seed: int, settings: RenderSettings | None = None) -> None:
        self.settings = settings or RenderSettings()
        self.seed = seed
        self.who: Person = make_person(seed)
        rng = Random(f"stage {seed}")
        self.sleeve: Color = rng.choice(
            [self.who.clothes, *SOFT_COLORS[:3], (60, 62, 70), (230, 228, 222)]
        )
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
        seen = camera_window(scene, t, length, self.seed, (self.width, self.height), frame)
        return self._film.expose(canvas, seen, number)

    # ------------------------------------------------------------ what stands still

    def _view(self, scene: Scene) -> View:
        """Return where the camera is: nearer to small targets, and nearer still in a close
        shot."""
        if scene.kind in ("talk", "title") or scene.target is None:
            return View(self.width, self.height, 1.0, (ASPECT / 2, 0.58))
        size, sprite = (
            THINGS_BY_NAME[scene.target].size,
            sprites.thing_sprite(scene.target, 64, self.seed),
        )
        above = (
            sprite.bottom - _work_point(sprite, THINGS_BY_NAME[scene.target])[1]
        ) * size + HEADROOM
        tall = (sprite.bottom - sprite.top) * size
        fill, least, most = (
            (CLOSE_FILL, 1.0, 1.9) if scene.camera == "close" else (WIDE_FILL, 1.0, 1.25)
        )
        zoom = min(most, max(least, min(fill / above, fill / tall)))
        return View(self.width, self.height, zoom, (FOOT[0], FOOT[1] - 0.29 / zoom))

    def _still_canvas(self, scene: Scene) -> Image.Image:
        """Return the canvas with everything that does not move."""
        view = self._view(scene)
        image = self._backdrop(scene, view, scene.kind in ("table", "roll"))
        if scene.kind == "title":
            return title_card(image, scene.caption or "")
        if scene.kind == "talk":
            return image
        under = [name for name in scene.props if _lies_under(name, scene.target)]
        for name, spot in zip(
            [name for name in scene.props if name not in under], SPOTS, strict=False
        ):
            self._draw_thing(image, view, name, spot)
        for name in under[:1]:
            sprite = self._sprite(view, name)
            surface = (sprite.bottom - sprite.top) * 0.56 * sprite.side / (view.zoom * view.height)
            self._draw_thing(image, view, name, (FOOT[0], FOOT[1] + surface))
        if scene.target is not None and scene.kind == "roll":
            self._draw_thing(image, view, scene.target, FOOT)
        return image

    def _backdrop(self, scene: Scene, view: View, table: bool) -> Image.Image:
        whole = background(scene.place, self.seed, self.width, self.height, table=table)
        if view.zoom == 1.0:
            return whole
        x, y = view.focus[0] * self.height, view.focus[1] * self.height
        w, h = self.width / view.zoom, self.height / view.zoom
        left, top = (
            min(max(0.0, x - w / 2), self.width - w),
            min(max(0.0, y - 0.58 * h), self.height - h),
        )
        part = whole.resize(
            (self.width, self.height), Image.Resampling.BICUBIC, box=(left, top, left + w, top + h)
        )
        return part.filter(ImageFilter.GaussianBlur(0.8))

    def _sprite(self, view: View, name: str) -> Sprite:
        return sprites.thing_sprite(name, view.pixels(THINGS_BY_NAME[name].size), self.seed)

    def _draw_thing(self, image: Image.Image, view: View, name: str, foot: Point) -> None:
        """Put (or lay) a thing with its foot on a spot, with its shadow."""
        sprite, angle = self._sprite(view, name), THINGS_BY_NAME[name].lies
        x, y = view.at(foot)
        if angle:
            _paste_shadow(image, x, y, sprite.side * 0.7, 0.10)
            sprites.paste_sprite(image, sprite, sprite.center, (x, y - 0.05 * sprite.side), angle)
            return
        _paste_shadow(image, x, y, (sprite.right - sprite.left) * sprite.side)
        sprites.paste_sprite(image, sprite, (sprite.center[0], sprite.bottom), (x, y))

    # ------------------------------------------------------------ what moves

    def _draw_action(self, canvas: Image.Image, scene: Scene, t: float, length: float) -> None:
        """Draw target, item, effects and hands of a table scene."""
        view, target = self._view(scene), scene.target or "bowl"
        pose = MOTIONS_BY_ACTION[scene.action or "place"](t, length)
        sprite = self._sprite(view, target)
        shape = _shaped(sprite, pose)
        x, y = view.at(FOOT)
        _paste_shadow(canvas, x, y, (sprite.right - sprite.left) * sprite.side)
        foot = (sprite.center[0], sprite.bottom)
        if pose.turn:
            middle = y - (sprite.bottom - 0.5) * sprite.side
            sprites.paste_sprite(
                canvas, shape, (0.5, 0.5), (x + (0.5 - foot[0]) * sprite.side, middle), pose.turn
            )
        else:
            sprites.paste_sprite(canvas, shape, foot, (x, y))
        work = _work_point(sprite, THINGS_BY_NAME[target])
        contact = self._contact_points(
            scene,
            view,
            pose,
            sprite,
            (x + (work[0] - foot[0]) * sprite.side, y + (work[1] - foot[1]) * sprite.side),
        )
        draw_fill(canvas, contact, pose, t / max(length, 0.1))
        below = scene.item is not None and _small(THINGS_BY_NAME[scene.item])
        if below:
            self._draw_hands(canvas, view, pose, contact)
        self._draw_item(canvas, scene, view, pose, contact, shape, (x, y), foot)
        draw_effect(canvas, scene.action or "place", contact, pose, t, length)
        if not below:
            self._draw_hands(canvas, view, pose, contact)

    def _contact_points(
        self, scene: Scene, view: View, pose: Pose, sprite: Sprite, work: Point
    ) -> ContactPoints:
        """Return where the item, the hands and the target meet, in pixels."""
        unit = view.zoom * view.height
        tip = (work[0] + pose.x * unit, work[1] + pose.y * unit)
        item = THINGS_BY_NAME[scene.item] if scene.item else None
        grip = tip
        if item is not None and scene.item is not None:
            held = self._sprite(view, scene.item)
            hold = PALM if _small(item) else item.grip
            dx, dy = sprites.rotate_offset(
                (hold[0] - item.tip[0]) * held.side, (hold[1] - item.tip[1]) * held.side, pose.angle
            )
            grip = (tip[0] + dx, tip[1] + dy)
        opening = (
            None
            if sprite.rim is None
            else (sprite.rim.rx * sprite.side, sprite.rim.ry * sprite.side)
        )
        own = THINGS_BY_NAME[scene.target or "bowl"].content
        color = (item.content if item and item.content else own) or (236, 226, 200)
        return ContactPoints(work, tip, grip, opening, color, own or color, unit)

    def _draw_item(
        self,
        canvas: Image.Image,
        scene: Scene,
        view: View,
        pose: Pose,
        contact: ContactPoints,
        shape: Sprite,
        at: Point,
        foot: Point,
    ) -> None:
        """Draw the item, and the near wall of the target over it where it goes inside."""
        if scene.item is None:
            return
        held, item = self._sprite(view, scene.item), THINGS_BY_NAME[scene.item]
        if pose.apart:
            for right in (False, True):
                sign = 1 if right else -1
                place = (contact.tip[0] + sign * pose.apart * contact.unit, contact.tip[1])
                sprites.paste_sprite(
                    canvas, sprites.sprite_half(held, right), item.tip, place, sign * 30
                )
        else:
            sprites.paste_sprite(canvas, held, item.tip, contact.tip, pose.angle)
        if pose.inside and shape.rim is not None:
            sprites.paste_sprite(canvas, sprites.front_wall(shape), foot, at)

    def _draw_hands(
        self, canvas: Image.Image, view: View, pose: Pose, contact: ContactPoints
    ) -> None:
        unit = contact.unit
        if pose.other is not None:
            self._draw_hand(
                canvas,
                view,
                "open" if pose.apart == 0 else "pinch",
                (contact.work[0] + pose.other[0] * unit, contact.work[1] + pose.other[1] * unit),
                left=True,
            )
        if pose.hand is not None:
            self._draw_hand(
                canvas,
                view,
                pose.hand,
                (contact.grip[0] + pose.reach[0] * unit, contact.grip[1] + pose.reach[1] * unit),
                left=False,
            )

    def _draw_hand(
        self, canvas: Image.Image, view: View, pose: HandPose, at: Point, *, left: bool
    ) -> None:
        """Draw a hand at a pixel, its forearm leading out of the frame's lower edge."""
        side = sprites.hand_side(view.zoom * view.height)
        sprite = sprites.hand_sprite(pose, side, self.who.skin, self.sleeve, left)
        elbow = (at[0] + (-0.26 if left else 0.26) * self.height * view.zoom, self.height * 1.35)
        angle = math.degrees(math.atan2(-(elbow[0] - at[0]), max(elbow[1] - at[1], 1.0)))
        sprites.paste_sprite(canvas, sprite, sprites.SPRITE_GRIP, at, angle)

    def _draw_presenter(self, canvas: Image.Image, scene: Scene, t: float, loudness: float) -> None:
        """Draw the presenter, who nods, blinks, speaks and gestures, and the things before them."""
        close = scene.camera == "close"
        side = round(self.height * (1.25 if close else 0.98))
        opening = min(MOUTH_OPENINGS - 1, round(loudness * (MOUTH_OPENINGS - 1)))
        bust = sprites.presenter_image(self.who, side, opening, t % 3.3 > 3.17)
        x = (
            self.width * (0.5 if close else 0.42)
            + 0.012 * self.height * wave(t, 4.1)
            + 0.006 * self.height * wave(t, 1.3)
        )
        y = (
            self.height
            - side * (0.86 if close else 0.97)
            + 0.006 * self.height * wave(t, 1.7)
            + 0.010 * self.height * loudness
        )
        canvas.paste(bust, (round(x - side / 2), round(y)), bust)
        view = self._view(scene)
        if 2.4 < t % 5.2 < 4.8:
            lift = math.sin(math.pi * min(1.0, max(0.0, (t % 5.2 - 2.4) / 2.4)))
            self._draw_hand(
                canvas,
                view,
                "open",
                (
                    x + 0.36 * self.height + 0.03 * self.height * wave(t, 0.9),
                    self.height * (1.12 - 0.42 * lift),
                ),
                left=False,
            )
        for name, foot in zip(
            scene.props, ((1.30, 0.98), (1.58, 0.97), (0.22, 0.98)), strict=False
        ):
            self._draw_thing(canvas, view, name, foot)


def _lies_under(name: str, target: str | None) -> bool:
    """Tell whether a prop is a flat thing that the target rests on."""
    return (
        target is not None
        and name in FLATS
        and name != target
        and THINGS_BY_NAME[target].size < 0.62 * THINGS_BY_NAME[name].size
    )


def _shaped(sprite: Sprite, pose: Pose) -> Sprite:
    """Return the target as the pose bends it."""
    if pose.fold:
        return sprites.fold_over(sprite, round(pose.fold * 20) * 5)
    if pose.squash < 0.99:
        return sprites.squash(sprite, round(pose.squash * 50) * 2)
    return sprite


def _work_point(sprite: Sprite, thing: Thing) -> Point:
    """Return where hands meet a target, in its unit square: its opening, else a little above its
    middle."""
    if sprite.rim is not None:
        return (sprite.rim.x, sprite.rim.y)
    if (
        thing.lies == 0
        and thing.tip != (0.5, 0.5)
        and sprite.top < thing.tip[1] < sprite.bottom
        and 0.3 < thing.tip[0] < 0.7
    ):
        return thing.tip
    return (sprite.center[0], sprite.top + 0.42 * (sprite.bottom - sprite.top))


def _small(item: Thing) -> bool:
    """Tell whether a thing has no handle, so that fingers hold it from below."""
    return item.grip == (0.5, 0.5)


def _paste_shadow(
    image: Image.Image, x: float, y: float, width: float, flat: float = TABLE_TILT * 0.55
) -> None:
    """Lay a soft shadow to the right of a foot, since light comes from the left."""
    dark = _shadow(max(4, round(width * 1.02)), max(3, round(width * flat)))
    image.paste(
        dark,
        (
            round(x - dark.width / 2 + width * 0.05),
            round(y - dark.height / 2 - width * flat * 0.15),
        ),
        dark,
    )


@lru_cache(maxsize=256)
def _shadow(width: int, height: int) -> Image.Image:
    return shadow(width, height)
