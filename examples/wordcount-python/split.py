"""Splits lines into words and sends each word on as a key, so that equal words meet in one place.

Straight on the bindings that componentize-py makes of the operator contract (`wit/`).
"""

import json

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports import collector
from wit_world.imports.types import Batch, Column, Descriptor, Failure

# How many words leave at once.
MOST_WORDS = 4096

# Each call of the host makes a new `Handler`, so what lasts is a global.
lowercase = False


class Handler(exports.Handler):
    def open(self, config: str) -> Descriptor:
        global lowercase
        fields = json.loads(config)
        lowercase = fields.pop("lowercase", False)
        if not isinstance(lowercase, bool):
            raise Err(Failure("config.lowercase: expected true or false", None))
        for field in fields:
            raise Err(Failure(f"config.{field}: unknown field, expected `lowercase`", None))
        return Descriptor(states=[], side_outputs=[])

    def process(self, input: int, records: Batch) -> None:
        data, offsets = records.values.data, records.values.offsets
        words, timestamps = [], []
        for line, (start, end) in enumerate(zip(offsets, offsets[1:])):
            # Without an argument `split` parts bytes at white space, the vertical tab included, and drops empty words.
            found = data[start:end].split()
            words += [word.lower() for word in found] if lowercase else found
            if records.timestamps:
                timestamps += [records.timestamps[line]] * len(found)
        for start in range(0, len(words), MOST_WORDS):
            emit(words[start : start + MOST_WORDS], timestamps[start : start + MOST_WORDS])

    def on_timers(self, domain, keys, tags, times) -> None:
        pass

    def on_watermark(self) -> None:
        pass

    def on_end_of_input(self, input: int, remaining: int) -> None:
        pass

    def close(self) -> None:
        pass


def emit(words: list[bytes], timestamps: list[int]) -> None:
    """Sends words as keys, with empty values and the event times of their lines, if those have any."""
    offsets = [0]
    for word in words:
        offsets.append(offsets[-1] + len(word))
    keys = Column(data=b"".join(words), offsets=offsets)
    values = Column(data=b"", offsets=[0] * len(offsets))
    collector.emit(0, Batch(keys=keys, values=values, timestamps=timestamps))
