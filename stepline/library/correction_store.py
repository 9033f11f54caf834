"""The corrections in a library's database, which may be a stranger's: each is checked as it is
entry."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock

from pydantic import ValidationError

from stepline.library.corrections import Correction
from stepline.library.database import LibraryDatabase

MAX_VIDEOS_IN_MEMORY = 64  # whose corrections were read last


@dataclass
class VideoCorrections:
    """The corrections of a video, the oldest first, and their ids. last_row: its number."""

    corrections: tuple[Correction, ...] = ()
    ids: set[str] = field(default_factory=set)
    last_row: int = 0


class CorrectionStore:
    """Reads the corrections of a library, each once."""

    def __init__(self, database: LibraryDatabase) -> None:
        self._database = database
        self._lock = Lock()
        self._videos: OrderedDict[str, VideoCorrections] = OrderedDict()

    def of(self, video: str) -> tuple[Correction, ...]:
        """Return the corrections of a video, the oldest first.

        Raises StoreError where a row is not valid. Each is of its video and has its own id, and an
        undo is of an earlier one.
        """
        query = "SELECT number, body FROM correction WHERE video = ? AND number > ? ORDER BY number"
        # The database comes first, since a transaction holds it while it asks for corrections.
        with self._database.guarded(), self._lock:
            entry = self._videos.setdefault(video, VideoCorrections())
            # The video was removed, and maybe understood again: all is read again.
            if not self._is_present(video, entry):
                entry = self._videos[video] = VideoCorrections()
            added = []
            # Only the rows that came since.
            for number, body in self._database.rows(query, video, entry.last_row):
                correction = self._checked(video, body, entry)
                entry.ids.add(correction.id)
                entry.last_row = number
                added.append(correction)
            entry.corrections += tuple(added)
            self._videos.move_to_end(video)
            if len(self._videos) > MAX_VIDEOS_IN_MEMORY:
                self._videos.popitem(last=False)
            return entry.corrections

    def _is_present(self, video: str, entry: VideoCorrections) -> bool:
        """Return whether the database still holds the corrections that were read, and not others
        since the video was removed."""
        if not entry.corrections:
            return True
        query = "SELECT id FROM correction WHERE video = ? AND number = ?"
        row = self._database.row(query, video, entry.last_row)
        if row is None:
            return False
        last = entry.corrections[-1]
        return bool(row[0] == last.id)

    def _checked(self, video: str, body: str, entry: VideoCorrections) -> Correction:
        try:
            correction = Correction.model_validate_json(body)
        except (ValidationError, TypeError) as error:
            raise self._database.row_error("correction") from error
        # A row may be a stranger's: it has to fit the others.
        is_own = correction.video == video
        is_new = correction.id not in entry.ids
        has_undone = True
        if correction.undoes is not None:
            has_undone = correction.undoes in entry.ids
        if not (is_own and is_new and has_undone):
            raise self._database.row_error("correction")
        return correction


def same_correction(new: Correction, corrections: Sequence[Correction]) -> bool:
    """Return whether a correction is among others, whenever it was sent and whatever record its
    sender saw."""
    for other in corrections:
        sent = {"when": new.when, "record": new.record}
        if other.id == new.id and other.model_copy(update=sent) == new:
            return True
    return False
