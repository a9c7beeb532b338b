"""Splits lines into words and sends each word on as a key, so that equal words meet in one place.

Straight on the bindings that componentize-py makes of the operator contract (`wit/`).
"""

from wit_world import exports
from wit_world.imports import collector
from wit_world.imports.types import Batch, Column, Descriptor

# How many words leave at once.
MOST_WORDS = 4096


class Handler(exports.Handler):
    def open(self, config: str) -> Descriptor:
        return Descriptor(states=[], side_outputs=[])

    def process(self, input: int, records: Batch) -> None:
        data, offsets = records.values.data, records.values.offsets
        words = []
        for start, end in zip(offsets, offsets[1:]):
            # Without an argument `split` parts bytes at white space, the vertical tab included, and drops empty words.
            words.extend(data[start:end].split())
        for start in range(0, len(words), MOST_WORDS):
            emit(words[start : start + MOST_WORDS])

    def on_timers(self, domain, keys, tags, times) -> None:
        pass

    def on_watermark(self) -> None:
        pass

    def on_end_of_input(self, input: int, remaining: int) -> None:
        pass

    def close(self) -> None:
        pass


def emit(words: list[bytes]) -> None:
    """Sends words as keys, with empty values."""
    offsets = [0]
    for word in words:
        offsets.append(offsets[-1] + len(word))
    keys = Column(data=b"".join(words), offsets=offsets)
    values = Column(data=b"", offsets=[0] * len(offsets))
    collector.emit(0, Batch(keys=keys, values=values, timestamps=[]))
