"""Chat completions: language models that answer texts and pictures, over HTTP or on this machine.

Words of a video are data: `quoted` lets none of them end a quotation, `instructs_a_model` finds those
that try to.
"""

import re

# Speech that is aimed at a language model, not at a viewer. The loss when it is wrong is one
# sentence, named in a note.
_MODEL_INSTRUCTION_PATTERN = re.compile(
    r"""
      \b(ignore|disregard|forget|override)\b .{0,40} \b(previous|prior|above|earlier|preceding|system|your)\b
          .{0,30} \b(instruction|prompt|rule|message|direction|order|training)s?\b
    | \b(system|hidden|original)\ prompt\b
    | \bas\ an?\ (ai|assistant)\b
    | \byou\ are\ (now\ )?(an?\ )?(ai\b|assistant|jailbroken|dan\b)
    | \b(respond|reply|output)\ (only\ |exactly\ |just\ )?(with|the\ (text|words?|following|string))\b
    | \bnew\ (instructions?|task)\s*:
    | </?\s*(transcript|system|assistant|user|script|iframe|img)\b
    | <\|.{0,30}?\|> | \[/?INST\]
    """,
    re.IGNORECASE | re.VERBOSE,
)

# Characters that could close the quotation or open a chat template's own tokens (<|im_start|>, <s>,
# [INST]).
_HARMLESS_CHARS = str.maketrans("<>[]", "()()")


def instructs_a_model(text: str) -> bool:
    """Return whether a text contains a prompt injection, such as "ignore previous instructions"."""
    return _MODEL_INSTRUCTION_PATTERN.search(text) is not None


def quoted(text: str) -> str:
    """Return untrusted text as one line without characters that could end a quotation or start a
    chat template token."""
    return " ".join(
        text.translate(_HARMLESS_CHARS).encode("utf-8", "replace").decode("utf-8").split()
    )
