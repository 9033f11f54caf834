"""`/annotate/` of the studio: whether a clip of the library shows the words that are spoken in it
(WYS2, section 4). `stepline annotate vnd` asks the same with its own files."""

from hashlib import sha256
from pathlib import Path
from threading import Lock

from starlette.concurrency import run_in_threadpool
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from stepline.library.corrected_library import LibraryVideo
from stepline.records import Video
from stepline.review import AnnotationClip, AnnotationQueue
from stepline.review.clips import record_clips
from stepline.review.server import annotation_routes
from stepline.studio.store import Studio

ANNOTATORS_PER_CLIP = 2  # agreement needs two, and a household or an office has no seven
CLIPS_FOLDER = ".stepline-annotate"  # in the library: the clips that were watched
ANNOTATE_PATH = "/annotate/"


class AnnotationView:
    """An ASGI application with a clip for each sentence of the library's videos whose files are
    found, in one queue for all annotators."""

    def __init__(self, studio: Studio) -> None:
        self._studio = studio
        self._lock = Lock()
        self._router: Router | None = None
        self._clips: list[AnnotationClip] = []
        # by the version of a record, so that a visit reads only new ones
        self._clips_of: dict[LibraryVideo, tuple[Video, list[AnnotationClip]]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the routes of the annotation page."""
        router = self._router
        # New videos are looked for when a page opens, and when it asks for the next clip.
        if router is None or scope["path"] in (ANNOTATE_PATH, f"{ANNOTATE_PATH}next"):
            router = await run_in_threadpool(self._current_router)
        await router(scope, receive, send)

    def library_clips(self) -> list[AnnotationClip]:
        """Return the clips of all videos. ids: the video's, and the sentence's."""
        library = self._studio.library
        clips = []
        for card in library.videos():
            version = library.video(card.id)
            if version not in self._clips_of:
                # Answers are kept under the library's id of a video, not the record's own.
                record = library.record(card.id).model_copy(update={"id": card.id})
                self._clips_of[version] = (record.video, list(record_clips(record)))
            video, clips_of_video = self._clips_of[version]
            media = library.media_file(card.id, video)
            if media is not None:
                clips += [clip.model_copy(update={"video": str(media)}) for clip in clips_of_video]
        return clips

    def _current_router(self) -> Router:
        with self._lock:
            clips = self.library_clips()
            if self._router is None or clips != self._clips:
                # Another set of clips gets a folder of its own, named by what is in it.
                text = "\n".join(clip.model_dump_json() for clip in clips)
                name = sha256(text.encode()).hexdigest()[:12]
                folder = self._studio.library.resolve_allowed(Path(CLIPS_FOLDER)) / name
                queue = AnnotationQueue(clips, self._studio.answers, annotators=ANNOTATORS_PER_CLIP)
                self._router = Router(annotation_routes(queue, folder, ANNOTATE_PATH))
                self._clips = clips
            return self._router
