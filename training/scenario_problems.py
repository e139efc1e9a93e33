"""What is wrong with a scenario file, in the words of the file."""

from collections.abc import Iterator

from pydantic import ValidationError

_MAX_VALUE_LETTERS = 60
# an element of these is of one of several kinds, which pydantic puts into the place of a problem: no key of the file
_OF_SEVERAL_KINDS = ("traffic", "process", "changes")


def problems_in_words(error: ValidationError) -> Iterator[str]:
    """Yield each problem: the field, what is wrong, the value seen, and the fix where it is not plain."""
    for problem in error.errors(include_url=False):
        field = _field(problem["loc"])
        kind, message = problem["type"], problem["msg"]
        message = message.removeprefix("Value error, ").removeprefix("Input ")
        if kind in ("extra_forbidden", "unexpected_keyword_argument"):
            yield f"{field}: unknown key; remove it or see foreshock scenarios schema"
        elif kind in ("missing", "missing_keyword_only_argument", "missing_argument"):
            yield f"{field}: missing; add it"
        elif kind == "value_error":
            yield f"{field}: {message}"
        else:
            yield f"{field}: {message[:1].lower()}{message[1:]}, got {_shown(problem['input'])}"


def _field(place: tuple[int | str, ...]) -> str:
    """Return the field as it stands in the file, such as changes.0.height."""
    if place[:1] == ("primed",):  # a truth value or a number: the rest says which of them
        return "primed"
    parts: list[str] = []
    of_kind = ""
    for part in place:
        if of_kind and not isinstance(part, int):
            of_kind = ""
            continue
        parts.append(str(part))
        of_kind = str(part) if part in _OF_SEVERAL_KINDS else of_kind
    return ".".join(parts) or "the file"


def _shown(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= _MAX_VALUE_LETTERS else f"{text[:_MAX_VALUE_LETTERS]}..."
