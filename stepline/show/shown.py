"""Which span of a step the outputs show."""

from stepline.records import Span, Step


def shown_span(step: Step) -> Span | None:
    """Return the best span of a step that is shown; None for one that is not, whatever candidates it carries."""
    return step.spans[0] if step.spans and step.status in (None, "shown") else None
