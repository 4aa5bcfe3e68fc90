"""Where tasks come from: seeded families (`synthetic`) and files (`jsonl`). A source is a function giving Tasks."""


class DataError(ValueError):
    """The data cannot be used as they are; the message says where, what is wrong and what to write instead."""
