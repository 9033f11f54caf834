"""Whether a language model is strong enough to choose the steps itself: it writes up a short narration
of ours, whose steps are known."""

from stepline.llm.checked_requests import CheckedQuestion, CheckedRequests
from stepline.records import Sentence, Span
from stepline.writing.llm.prompts import Chunk, build_prompt, write_prompt
from stepline.writing.llm.replies import ParsedReply, parse_reply

SENTENCES = (
    "Hi everyone, welcome back to the workshop.",
    "I found this chair at a flea market for twelve dollars.",
    "First I take off the seat, there are four screws under it.",
    "My neighbour once lost one of those in the grass.",
    "So keep them in a jar.",
    "Then you sand the legs with some 120 grit paper.",
    "Wipe them down and let them dry for twenty minutes.",
    "While that dries, let me tell you about my trip to the sea.",
    "That's it for today, see you next week.",
)
# sentence number -> words that its step must hold, each in one of its forms
EXPECTED_WORDS = {3: ["seat"], 5: ["screw"], 6: ["leg", "120"], 7: ["leg", "twenty|20"]}


def is_strong(requests: CheckedRequests) -> bool:
    """Return whether a model finds the steps of the narration, no others, and puts names for pronouns.

    A model that does not answer is not strong. Its next request says why.
    """
    sentences = tuple(
        Sentence(text=text, span=Span(10.0 * n, 10.0 * n + 10.0))
        for n, text in enumerate(SENTENCES)
    )
    question = build_prompt(write_prompt(), Chunk(1, tuple(range(len(SENTENCES))), sentences))
    reply = requests.ask(
        CheckedQuestion(
            key_parts={"prompt": "probe", "question": question},
            content=lambda _: question,
            parse=lambda answer: parse_reply(
                answer.text, sentences=len(SENTENCES), complete=answer.complete, form="cited"
            ),
            refusal=lambda _: None,
        )
    )
    return bool(reply.readings) and is_correct_probe_reply(reply.readings[-1])


def is_correct_probe_reply(reply: ParsedReply) -> bool:
    """Return whether a reply to the narration holds its steps and no others."""
    told: dict[int, str] = dict.fromkeys(EXPECTED_WORDS, "")
    for text, cited in zip(reply.texts, reply.cited_numbers, strict=True):
        if told.keys().isdisjoint(cited):
            return False
        for number in told.keys() & set(cited):
            told[number] += f" {text.lower()}"
    return all(
        any(form in told[number] for form in word.split("|"))
        for number, words in EXPECTED_WORDS.items()
        for word in words
    )
