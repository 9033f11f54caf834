"""A folder of records as people have corrected them.

    library = CorrectedLibrary(Path("out"))
    card = library.videos()[0]
    library.corrected(card.id).record

The machine's records are only read. Corrections are in the library's database, which also keeps the
machine's record of each corrected video.
"""

import contextlib
import hashlib
import os
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Literal

from pydantic import Field, ValidationError

from stepline.errors import NotFoundError, StoreError
from stepline.files.digests import sha256
from stepline.library.corrections import (
    CorrectedRecord,
    Correction,
    RecordChangedError,
    apply_corrections,
    check_correction,
    corrects_steps,
    edits_of_person,
    first_undone,
    step_corrections,
)
from stepline.library.database import DATABASE_FILE, LibraryDatabase
from stepline.library.record_files import Stamp, file_stamp, is_below, real_path, record_files
from stepline.outputs.text import no_steps_reason, picture_seconds
from stepline.pipeline.sources import VIDEO_SUFFIXES
from stepline.records import FrozenModel, Record, Video
from stepline.storage import DamagedRecordError, from_json, read_record, to_json

VideoState = Literal["new", "corrected"]

MAX_RECORDS_IN_MEMORY = 64  # videos that were used last. A record takes about 1 MB
MAX_VIDEOS_IN_MEMORY = 64  # whose corrections were read last
MACHINE_QUERY = "SELECT video, record FROM machine WHERE video = ?"


class VideoCard(FrozenModel):
    """A video's entry in a list of videos.

    Attributes:
        id: id of the video in the library, a hash of its record's file name.
        file: path of the record's file, relative to the library's folder.
        title: title of the video, else the id of its record.
        duration: seconds, None if unknown.
        state: "corrected" if there are corrections of the video's steps or sentences, else "new".
        picture: URL path of a key frame, None without a video file.
        steps: number of steps.
        seen_steps: number of steps that a picture shows.
        placed_steps: number of steps that are placed by their words.
        doubtful_steps: number of those placed steps that have a doubt.
        said_only: number of steps that are only said.
        not_found: number of steps that are neither said nor seen.
        revision: number of corrections, including undone ones, undos and those of the title, tags
            and metadata.
        corrections: number of corrections of steps and sentences that are not undone.
        warnings: number of warnings of the record.
        no_steps_reason: why the record has no steps. None if it has steps, or people corrected it.
        written: modification time of the record's file, seconds since 1970, UTC.
        tags: tags that people gave the video.
        metadata: values that people gave the video, by name.
        damage: why the record cannot be read, None if it can. The title is the file's name then.
    """

    id: str
    file: str
    title: str
    duration: float | None
    state: VideoState
    picture: str | None
    steps: int = 0
    seen_steps: int = Field(0, serialization_alias="seen")
    placed_steps: int = Field(0, serialization_alias="placed")
    doubtful_steps: int = Field(0, serialization_alias="doubtful")
    said_only: int = 0
    not_found: int = 0
    revision: int = 0
    corrections: int = 0
    warnings: int
    no_steps_reason: str | None = None
    written: float = Field(serialization_alias="made")
    tags: tuple[str, ...] = ()
    metadata: dict[str, str] = Field(default_factory=dict)
    damage: str | None = None


@dataclass(frozen=True)
class LibraryVideo:
    """A video of the library.

    Attributes:
        id: hash of `name`.
        name: path of the record's JSON file, relative to the library's folder.
        stamp: modification time and size of that file.
    """

    id: str
    name: str
    stamp: Stamp


@dataclass(frozen=True)
class CurrentRecord:
    """A video's record before and after its corrections.

    Attributes:
        machine_record: the record that `stepline steps` wrote.
        corrected: that record with the corrections of people.
        corrections: the corrections, the oldest first.
        has_step_corrections: whether there are corrections of steps or sentences that are not
            undone. If so, `machine_record` is read from the database, else from the record's file.
    """

    machine_record: Record
    corrected: CorrectedRecord
    corrections: Sequence[Correction]
    has_step_corrections: bool

    @cached_property
    def stamp(self) -> str:
        """Hash of the machine's record. Corrections carry it to name their version of the record."""
        return hashlib.sha256(to_json(self.machine_record).encode()).hexdigest()[:16]


def video_id(name: str) -> str:
    """Return the library's id of a video, 12 hexadecimal digits.

    name: path of the record's JSON file, relative to the library's folder.
    """
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def reject_outside_links(folder: Path, allowed: Sequence[Path]) -> None:
    """Raise StoreError if a folder in a library is a link that leads out of the allowed folders.

    Outputs written into such a folder would land elsewhere.

    Args:
        folder: folder of the library.
        allowed: allowed folders, as paths without links.
    """
    for entry in os.scandir(folder):
        if entry.is_symlink() and entry.is_dir():
            check_allowed_path(Path(entry.path), allowed)


def check_allowed_path(path: Path, allowed: Sequence[Path]) -> None:
    """Raise StoreError if a path leads out of all allowed folders.

    Args:
        path: the path, which may be a link.
        allowed: allowed folders, as paths without links.
    """
    if not is_below(path, allowed):
        raise StoreError(
            f"{path}: a link that leads out of the library and the folders of --allow; remove it, "
            "or allow its folder"
        )


def open_corrections(folder: Path) -> "CorrectedLibrary | None":
    """Return the library of a folder, opened read-only. None if the folder has no database."""
    if not (folder / DATABASE_FILE).is_file():
        return None
    return CorrectedLibrary(folder, is_read_only=True)


class CorrectedLibrary:
    """The videos of a folder of records, with their corrections.

    Attributes:
        folder: folder of the records' JSON files.
        allowed: folders whose files may be read, as paths without links: `folder` and others.
        on_correction: called after each correction with the video's id and revision.
        in_transaction: called with the connection, the video's id and its revision inside the
            transaction that stores a correction.
        digest_of: returns the sha256 of a file, or None while it is computed.

    Raises StoreError if `folder` is not a folder, or its database cannot be read or written.
    """

    def __init__(
        self, folder: Path, allowed: Sequence[Path] = (), *, is_read_only: bool = False
    ) -> None:
        self.database = LibraryDatabase(folder, is_read_only=is_read_only)
        self.folder = self.database.folder
        self.allowed = (self.folder, *map(real_path, allowed))
        self.on_correction: Callable[[str, int], None] = lambda _id, _revision: None
        self.in_transaction: Callable[[sqlite3.Connection, str, int], None] = lambda *_: None
        self.digest_of: Callable[[Path], str | None] = sha256
        self._stamps: dict[str, Stamp] = {}  # of the files that were read, by name
        self._scan_lock = Lock()
        self._record_lock = Lock()
        # each JSON file that was read: the machine's card, None where it holds no record
        self._cards: dict[LibraryVideo, VideoCard | None] = {}
        self._videos: dict[str, LibraryVideo] = {}  # by id, those with a record
        # the cards of corrected videos: a few bytes each, so a long list stays cheap
        self._corrected_cards: dict[LibraryVideo, VideoCard] = {}
        self._records: OrderedDict[LibraryVideo, CurrentRecord] = OrderedDict()
        # video -> number of the last row that was read, and the corrections by id
        self._corrections: OrderedDict[str, tuple[int, dict[str, Correction]]] = OrderedDict()
        self._corrections_lock = Lock()

    def close(self) -> None:
        """Close the database."""
        self.database.close()

    # ---------------------------------------------------------------- videos

    def videos(self) -> list[VideoCard]:
        """Return the cards of all videos, sorted by title."""
        self.scan_folder()
        revisions = self.revisions()
        cards = []
        for video, card in self._cards.items():
            if video.id in revisions and card is not None and card.damage is None:
                # A corrected video has another title and other verdicts than its file.
                card = self._corrected_card(video, revisions[video.id])
            if card is not None:
                cards.append(card)
        return sorted(cards, key=lambda card: (card.title.casefold(), card.id))

    def video(self, id: str) -> LibraryVideo:
        """Return the record file of a video, and its version.

        Raises NotFoundError for an unknown id, StoreError for a damaged record.
        """
        video = self._videos.get(id)
        # Its file was replaced or removed since the folder was scanned.
        if video is None or _current_stamp(self.folder / video.name) != video.stamp:
            self.scan_folder()
            video = self._videos.get(id)
        if video is None:
            raise NotFoundError("no such video")
        card = self._cards.get(video)
        if card is not None and card.damage is not None:
            raise StoreError(card.damage)
        return video

    def card(self, id: str) -> VideoCard:
        """Return the list entry of a video, with all corrections. Raises NotFoundError for an unknown id."""
        video = self.video(id)
        revision = self.revision(id)
        if revision:
            return self._corrected_card(video, revision)
        card = self._cards.get(video)
        if card is None:
            raise NotFoundError("no such video")
        return card

    def scan_folder(self) -> None:
        """Update the list of videos: read the records that are new or have changed."""
        with self._scan_lock:
            stamps = record_files(self.folder, self.allowed)
            if stamps == self._stamps:
                return

            # only records that are new or changed are read
            cards: dict[LibraryVideo, VideoCard | None] = {}
            videos = {}
            for name, stamp in stamps.items():
                video = LibraryVideo(video_id(name), name, stamp)
                # None where the file holds no record, so that it is not read again each time.
                card = self._cards.get(video)
                if video not in self._cards:
                    try:
                        card = _make_card(video, read_record(self.folder / name))
                    except DamagedRecordError as error:
                        card = _make_damaged_card(video, str(error))
                    except StoreError:  # other JSON
                        pass
                cards[video] = card
                if card is not None:
                    videos[video.id] = video
            self._cards = cards
            self._videos = videos
            self._stamps = stamps

    def _corrected_card(self, video: LibraryVideo, revision: int) -> VideoCard:
        card = self._corrected_cards.get(video)
        if card is None or card.revision != revision:
            current = self._current(video)
            card = _make_card(video, current.corrected.record, current.corrections)
            self._corrected_cards[video] = card
        return card

    # ---------------------------------------------------------------- records

    def record(self, id: str) -> Record:
        """Return a video's record without the corrections of people.

        While its steps are corrected, it is the record that people saw, even if the file has
        changed since.
        """
        return self.current(id).machine_record

    def corrected(self, id: str) -> CorrectedRecord:
        """Return a video's record with the corrections of people."""
        return self.current(id).corrected

    def current(self, id: str) -> CurrentRecord:
        """Return a video's record before and after its corrections."""
        return self._current(self.video(id))

    def corrected_record(self, name: str) -> Record:
        """Return the corrected record of a file.

        name: path of the JSON file, relative to the library's folder.
        """
        stamp = _current_stamp(self.folder / name)
        if stamp is None:
            raise StoreError(f"{self.folder / name}: it is gone; search again")
        return self._current(LibraryVideo(video_id(name), name, stamp)).corrected.record

    def _current(self, video: LibraryVideo) -> CurrentRecord:
        with self._record_lock:
            current = self._records.get(video)
            # A correction of another process shows in the revision.
            if current is None or current.corrected.revision != self.revision(video.id):
                current = self._changed_record(video, current)
                self._records[video] = current
            self._records.move_to_end(video)
            if len(self._records) > MAX_RECORDS_IN_MEMORY:
                self._records.popitem(last=False)
            return current

    def _changed_record(self, video: LibraryVideo, before: CurrentRecord | None) -> CurrentRecord:
        """Return a video's record before and after all corrections made so far.

        Args:
            video: the record's file.
            before: result for the same file with fewer corrections, None if there is none.
        """
        corrections = self.corrections(video.id)
        is_corrected = bool(step_corrections(corrections))
        row = self.database.row(MACHINE_QUERY, video.id) if is_corrected else None
        if row is not None:
            # The record that corrected steps belong to is in the database.
            machine = from_json(row[1], str(self.database.path))
        elif before is not None and not before.has_step_corrections:
            machine = before.machine_record
        else:
            # Without corrected steps, the file holds the machine's record.
            machine = read_record(self.folder / video.name)
        both = apply_corrections(machine, corrections)
        return CurrentRecord(machine, both, corrections, is_corrected)

    # ---------------------------------------------------------------- corrections

    def corrections(self, id: str) -> list[Correction]:
        """Return the corrections of a video, the oldest first.

        Only rows that were added since the last call are read from disk. Raises StoreError for an
        invalid row: a correction of another video, a repeated id, or an undo of no earlier one.
        """
        # The database comes first, since a transaction holds it while it asks for corrections.
        with self.database.locked_connection(), self._corrections_lock:
            last_row, corrections = self._corrections.pop(id, (0, {}))
            if corrections:
                query = "SELECT id FROM correction WHERE video = ? AND number = ?"
                if self.database.row(query, id, last_row) != (next(reversed(corrections)),):
                    # The video was removed, and maybe processed again: all rows are read again.
                    last_row, corrections = 0, {}
            query = (
                "SELECT number, body FROM correction WHERE video = ? AND number > ? ORDER BY number"
            )
            for number, body in self.database.rows(query, id, last_row):
                # A row may be a stranger's: it has to fit the others.
                try:
                    correction = Correction.model_validate_json(body)
                except (ValidationError, TypeError) as error:
                    raise self.database.row_error("correction") from error
                is_own = correction.video == id and correction.id not in corrections
                undoes_earlier = correction.undoes is None or correction.undoes in corrections
                if not (is_own and undoes_earlier):
                    raise self.database.row_error("correction")
                corrections[correction.id] = correction
                last_row = number
            self._corrections[id] = (last_row, corrections)
            if len(self._corrections) > MAX_VIDEOS_IN_MEMORY:
                self._corrections.popitem(last=False)
            return list(corrections.values())

    def revisions(self) -> dict[str, int]:
        """Return video id -> number of corrections, for the videos that have some."""
        return dict(self.database.rows("SELECT video, count(*) FROM correction GROUP BY video"))

    def revision(self, id: str) -> int:
        """Return how many corrections a video has."""
        ((count,),) = self.database.rows("SELECT count(*) FROM correction WHERE video = ?", id)
        return int(count)

    def count_step_corrections(self, names: Iterable[str]) -> int:
        """Return the number of corrections of steps and sentences of videos, without undone ones.

        names: paths of the JSON files, relative to the library's folder.
        """
        ids = self.revisions().keys() & {video_id(name) for name in names}
        return sum(len(step_corrections(self.corrections(id))) for id in ids)

    def correct(self, id: str, correction: Correction) -> int:
        """Store a correction of a video, and return the new number of its corrections.

        It is on disk when this returns. A correction that is sent twice is stored once. Raises
        ConflictError if someone else changed the same fields in the meantime, RecordChangedError
        if `correction.record` is not the present record, and StoreError if it does not fit the
        video.
        """
        if correction.video != id:
            raise StoreError(
                f"correction {correction.id!r} is of video {correction.video!r}, not of {id!r}"
            )
        # Read before the transaction, which other processes wait for.
        current = self.current(id)
        record = current.machine_record
        with self.database.write_transaction() as connection:
            earlier = self.corrections(id)
            # A page that got no answer sends again.
            if _is_resent(correction, earlier):
                return len(earlier)
            # The steps that the person saw, or changed before, are not those that are there now.
            edited = first_undone(correction, {other.id: other for other in earlier})
            if {correction.record, edited.record} - {"", current.stamp}:
                raise RecordChangedError
            is_corrected = bool(step_corrections(earlier))
            machine = (id, to_json(record))
            # Someone may have corrected steps by now, maybe of another record.
            if is_corrected and self.database.row(MACHINE_QUERY, id) != machine:
                raise RecordChangedError
            # Whether it fits is checked in the transaction, so no other one comes in between.
            check_correction(record, earlier, correction)
            stamp = ""
            if corrects_steps(edited):
                stamp = current.stamp
                # The machine's record is kept with the first correction of steps or sentences.
                if not is_corrected:
                    connection.execute("INSERT OR REPLACE INTO machine VALUES (?, ?)", machine)
            body = correction.model_copy(update={"record": stamp}).model_dump_json()
            row = (correction.id, id, body)
            connection.execute("INSERT INTO correction(id, video, body) VALUES (?, ?, ?)", row)
            revision = len(earlier) + 1
            # Events of the correction are kept with it, or not at all.
            self.in_transaction(connection, id, revision)
        self.on_correction(id, revision)
        return revision

    # ---------------------------------------------------------------- files

    def resolve_allowed(self, path: Path) -> Path:
        """Return a path with its links resolved. A relative path is below the library's folder.

        Raises StoreError for a path outside the library and the allowed folders.
        """
        with contextlib.suppress(OSError, ValueError):
            if is_below(self.folder / path, self.allowed):
                return real_path(self.folder / path)
        raise StoreError(
            f"{path}: lies neither in the library nor in a folder of --allow; move it, or allow "
            "its folder"
        )

    def media_file(self, id: str, video: Video) -> Path | None:
        """Return the video file of a record, None if it is not found or not allowed.

        A file with a video suffix in the library or an allowed folder is accepted. A file that
        meets only one of these two conditions must have the sha256 in the record. So a record from
        a stranger gives access to no other file.

        Args:
            id: the library's id of the video.
            video: the `video` field of its record.
        """
        name = video.path
        if name is None:
            return None
        video_folder = (self.folder / self.video(id).name).parent

        # next to the record, in the library, or where the record says
        paths = [
            video_folder / name,
            self.folder / name,
            Path(name),
            video_folder / Path(name).name,  # moved here with its record
        ]
        for path in dict.fromkeys(paths):
            with contextlib.suppress(OSError, ValueError):
                if path.is_file() and self._is_video_file(path, video.sha256):
                    return path.resolve()
        return None

    def _is_video_file(self, path: Path, digest: str | None) -> bool:
        is_video = path.resolve().suffix.lower() in VIDEO_SUFFIXES
        is_allowed = is_below(path.absolute(), self.allowed)
        if is_video and is_allowed:
            return True
        # A file that is neither is not even read.
        return digest is not None and (is_video or is_allowed) and self.digest_of(path) == digest


def _is_resent(new: Correction, corrections: Sequence[Correction]) -> bool:
    """Return whether a correction is among others, except for its time, its record's hash and what
    the writer added.

    Args:
        new: the correction.
        corrections: the others.
    """
    sent = {"when": new.when, "record": new.record, "edits": edits_of_person(new)}
    new = new.model_copy(update=sent)
    for other in corrections:
        if other.id == new.id:
            return other.model_copy(update={**sent, "edits": edits_of_person(other)}) == new
    return False


def _current_stamp(path: Path) -> Stamp | None:
    try:
        return file_stamp(path)
    except FileNotFoundError:
        return None


def _make_damaged_card(video: LibraryVideo, damage: str) -> VideoCard:
    return VideoCard(
        id=video.id,
        file=video.name,
        title=Path(video.name).name,
        duration=None,
        state="new",
        picture=None,
        warnings=1,
        written=video.stamp[0] / 1e9,
        damage=damage,
    )


def _make_card(
    video: LibraryVideo, record: Record, corrections: Sequence[Correction] = ()
) -> VideoCard:
    count = len(step_corrections(corrections))
    # The picture is that of the first step that is shown.
    second = next(iter(picture_seconds(record).values()), 0.0)
    statuses = [step.status for step in record.steps]
    picture = f"/api/videos/{video.id}/pictures/{second:.1f}.jpg"
    return VideoCard(
        id=video.id,
        file=video.name,
        title=record.video.title or record.id,
        duration=record.video.duration,
        state="corrected" if count else "new",
        picture=picture if record.video.path is not None else None,
        steps=len(record.steps),
        seen_steps=statuses.count("seen"),
        placed_steps=statuses.count("placed"),
        said_only=statuses.count("said_only"),
        not_found=statuses.count("not_found"),
        doubtful_steps=sum(step.doubt is not None for step in record.steps),
        revision=len(corrections),
        corrections=count,
        warnings=len(record.warnings),
        no_steps_reason=None if count else no_steps_reason(record),
        written=video.stamp[0] / 1e9,
        tags=record.video.tags,
        metadata=record.video.metadata,
    )
