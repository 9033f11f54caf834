"""What the model is asked about a chunk of a transcript, and what is taken of its reply."""

from dataclasses import dataclass

from stepline.llm.checked_requests import CheckedQuestion, CheckedRequests, KeyParts
from stepline.llm.servers import Answer
from stepline.records import Rejected
from stepline.writing.llm.prompts import STEPS_SCHEMA, Chunk, ChunkContext, Prompt, build_prompt
from stepline.writing.llm.replies import ParsedReply, read_reply
from stepline.writing.settings import LlmSettings


@dataclass(frozen=True)
class ChunkReply:
    """A language model's reply for one chunk.

    Args:
        reading: None without a usable reply.
        reason: why there is no usable reply.
        rejected: the server refused the request.
        notes: for the user, such as a refused reply or removed times.
        dropped: rejected lines of the replies.
    """

    reading: ParsedReply | None = None
    reason: str = ""
    rejected: bool = False
    notes: tuple[str, ...] = ()
    dropped: tuple[Rejected, ...] = ()


@dataclass(frozen=True)
class RequestRunner(CheckedRequests):
    """Asks the model about one chunk at a time."""

    settings: LlmSettings
    prompt: Prompt

    def serve(self, chunk: Chunk, context: ChunkContext | None = None) -> ChunkReply:
        """Return the model's steps for a chunk, or the reason why there are none.

        Raises WriterError when the server cannot be used at all.
        """
        # What the reply depends on: its key in the cache.
        key_parts: KeyParts = {
            "prompt": self.prompt.name,
            "question": build_prompt(self.prompt, chunk, context),
        }

        def content(with_reminder: bool) -> str:
            return build_prompt(self.prompt, chunk, context, with_reminder=with_reminder)

        def parse_answer(answer: Answer) -> ParsedReply:
            return read_reply(
                answer.text,
                spoken=chunk.text,
                sentences=len(chunk.sentences),
                complete=answer.complete,
            )

        # Only the main prompt asks for JSON.
        schema = None
        if self.prompt.has_context:
            schema = STEPS_SCHEMA
        question = CheckedQuestion(
            key_parts, content, parse_answer, lambda reading: reading.refusal, schema
        )
        reply = self.ask(question)
        # Lines of refused replies are reported, also where a later reply is taken.
        dropped: list[Rejected] = []
        for reading in reply.readings:
            if reading.refusal:
                dropped += reading.dropped
        dropped_lines = tuple(dict.fromkeys(dropped))
        if reply.fault is not None:
            fault = reply.fault
            return ChunkReply(reason=fault.reason, rejected=fault.rejected, dropped=dropped_lines)
        *refused, reading = reply.readings
        if reading.refusal is not None:
            return ChunkReply(reason=reading.refusal, dropped=dropped_lines)
        # What the user should know of the way to it.
        notes = [
            f"a reply was refused ({refused_reading.refusal}) and asked for again"
            for refused_reading in refused
        ]
        if reading.times:
            notes.append(f"times that the model wrote were cut out: {', '.join(reading.times)}")
        return ChunkReply(reading, notes=tuple(notes), dropped=dropped_lines)
