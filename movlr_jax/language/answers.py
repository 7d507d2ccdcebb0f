"""The forms that answers must have. Free text is never searched for a keyword."""

from __future__ import annotations

import re
from typing import Literal

from movlr_jax.errors import UserError
from movlr_jax.language.call import BadAnswer, Reply

try:
    from pydantic import BaseModel, ConfigDict, Field, ValidationError
except ImportError as error:
    raise UserError(
        "language and vision models need further packages; pip install 'movlr-jax[llm]' brings them"
    ) from error


class Form(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Program(Form):
    """A reward program."""

    changes: str = Field(description="one or two sentences: what this program does and why it may be better")
    program: str = Field(description="the whole program as Python source, nothing else")


class Judgement(Form):
    """Which of two motions does the task better."""

    first_motion: str = Field(description="what the body does in the first motion, in time order")
    second_motion: str = Field(description="what the body does in the second motion, in time order")
    winner: Literal["first", "second", "tie"]
    reason: str = Field(description="one sentence")


class Advice(Form):
    """One change to the reward."""

    action: Literal["add", "strengthen", "weaken", "remove"]
    term: str = Field(description="name of an existing term, or of a new one")
    reason: str = Field(description="what it is to mend; of a new term also its definition in words")
    weight: float | None = Field(description="the weight it should have, null to leave that open")


class CritiqueForm(Form):
    """What is right and wrong with a motion, and how the reward should change."""

    observation: str = Field(description="what the body does, in time order")
    success: bool = Field(description="whether the task is done")
    problems: list[str] = Field(description="what is wrong, the most general first")
    advice: list[Advice]


class Descriptor(Form):
    """One thing seen in a region of the body."""

    region: Literal["knees", "ankles", "hips", "torso", "head", "arms", "hands", "object"]
    label: str = Field(description="what is seen, with side, angle and time where they can be told")
    confidence: float = Field(ge=0.0, le=1.0)


class Descriptors(Form):
    """What is seen of a motion, region by region."""

    success: bool = Field(description="whether the task is done")
    descriptors: list[Descriptor]


class Ready(Form):
    """The answer to a test call."""

    ready: bool


def read(schema: type[BaseModel], reply: Reply) -> BaseModel:
    """The reply in the asked form. Raises BadAnswer."""
    text = unfenced(reply.text)
    if not text:
        raise BadAnswer("the answer is empty", reply)
    try:
        return schema.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise BadAnswer(
            f"the answer is not of the asked form {schema.__name__}: {where}: {first['msg']}", reply
        ) from None


def unfenced(text: str) -> str:
    """`text` without the code fence that some models put around everything."""
    match = re.fullmatch(r"\s*```[a-zA-Z]*\n(.*?)\n?```\s*", text, flags=re.DOTALL)
    return (match.group(1) if match else text).strip()
