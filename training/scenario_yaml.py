"""A scenario file's YAML as a plain document: what is no YAML, too large or ambiguous is refused."""

from pathlib import Path
from typing import Any

import yaml

from forecaster.errors import ConfigError

MAX_FILE_BYTES = 256 * 1024
MAX_DEPTH = 32
_OPENING = (
    yaml.BlockMappingStartToken,
    yaml.BlockSequenceStartToken,
    yaml.FlowMappingStartToken,
    yaml.FlowSequenceStartToken,
)
_CLOSING = (yaml.BlockEndToken, yaml.FlowMappingEndToken, yaml.FlowSequenceEndToken)


class ScenarioFileError(ConfigError):
    """A scenario file that is missing or says something that cannot be played."""


def read_document(path: Path) -> dict[str, Any]:
    """Return a file's keys and values as they are written.

    Raises
    ------
    ScenarioFileError
        If it is missing, no YAML with keys at the top, or more than a scenario needs; in one line.
    """
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ScenarioFileError(f"{path}: larger than {MAX_FILE_BYTES // 1024} kB, which no scenario file needs")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ScenarioFileError(f"{path}: no such scenario file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioFileError(f"{path}: cannot be read: {' '.join(str(error).split())}") from error
    return _parsed(path, text)


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        _refuse_aliases_and_depth(path, text)
        _refuse_repeated_keys(path, yaml.compose(text))
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ScenarioFileError(f"{path}: is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise ScenarioFileError(f"{path}: expected keys such as description, duration_seconds and traffic at the top")
    return document


def _refuse_aliases_and_depth(path: Path, text: str) -> None:
    """Refuse what makes a small text a large or a slow document: values that repeat others, and deep nesting."""
    depth = 0
    for token in yaml.scan(text):
        if isinstance(token, yaml.AliasToken):
            raise ScenarioFileError(f"{path}: aliases (*name) are not supported; write the value out")
        depth += isinstance(token, _OPENING) - isinstance(token, _CLOSING)
        if depth > MAX_DEPTH:
            raise ScenarioFileError(
                f"{path}: is nested more than {MAX_DEPTH} levels deep, which no scenario file needs"
            )


def _refuse_repeated_keys(path: Path, node: yaml.Node | None) -> None:
    """Refuse a key that is given twice: YAML itself would keep the last one without a word."""
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_repeated_keys(path, item)
    if not isinstance(node, yaml.MappingNode):
        return
    seen = set()
    for key, value in node.value:
        if key.value in seen:
            raise ScenarioFileError(f"{path}: line {key.start_mark.line + 1}: {key.value} is given twice; keep one")
        seen.add(key.value if isinstance(key, yaml.ScalarNode) else id(key))
        _refuse_repeated_keys(path, value)
