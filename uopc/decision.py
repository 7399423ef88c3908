"""Why each field of Opts is what it is: reasons stand beside Opts, never in them.

Opts are a cache key, and equal ones are equal whatever led to them.  A choice writes down a Reason
where it decides, with the figures that decided; sentences are made when somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields

from uopc.opts import BY_AXIS, Opts

#: of a Decision about Opts as a whole
WHOLE = "opts"
_DEFAULT = Opts()
OF_THE_WHOLE = " (as the whole kernel numbers its axes)"


@dataclass(frozen=True)
class Decision:
    """One field of Opts: its value as in repr, the rule that set it, and why.

    field: "opts" for what is said of all of them, then value names the kind of choice.  rule: the
    function that decided ("choose.elementwise._vector"), "given" or "search"; why: in a sentence.
    """

    field: str
    value: str
    rule: str
    why: str

    def __str__(self) -> str:
        return f"{self.field} {self.value}: {self.why} [{self.rule}]"


@dataclass(frozen=True)
class Reason:
    """A rule, and what it says where it decides: a sentence with {figures}."""

    rule: str
    text: str

    def of_the_whole(self) -> Reason:
        """The same of a kernel's part: axes in a sentence are those of the whole."""
        return Reason(self.rule, self.text + OF_THE_WHOLE if "axis" in self.text else self.text)


@dataclass(frozen=True)
class Because:
    """A reason of one field, or of one axis of it, and the figures that decided.

    value: what was decided, where that is no field.
    """

    field: str
    reason: Reason
    figures: Mapping[str, object]
    axis: int | None = None
    value: str = ""

    def of(self, opts: Opts) -> Decision | None:
        """What it says of Opts; None where they have no such digit, or the default."""
        value = self.value
        if self.field != WHOLE:
            found = getattr(opts, self.field)
            if found == getattr(_DEFAULT, self.field):
                return None
            if self.axis is not None:
                digits = dict(found)
                if self.axis not in digits:
                    return None
                found = {self.axis: digits[self.axis]}
            elif self.field in BY_AXIS:
                found = dict(found)
            value = repr(found)
        why = self.reason.text.format(**self.figures)
        return Decision(self.field, value, self.reason.rule, why)


def because(field: str, reason: Reason, axis: int | None = None, /, **figures: object) -> Because:
    """A Because, as it is written where something is decided."""
    return Because(field, reason, figures, axis)


def kind(value: str, reason: Reason, **figures: object) -> Because:
    """What is said of Opts as a whole: the kind of choice that they are."""
    return Because(WHOLE, reason, figures, value=value)


@dataclass(frozen=True)
class Guess:
    """Opts and why they are so; guesses of equal Opts are equal."""

    opts: Opts
    why: tuple[Because, ...] = field(default=(), compare=False, repr=False)

    def but(self, opts: Opts, reason: Reason, **figures: object) -> Guess:
        """Other Opts made of these: where fields differ, that is why."""
        differ = {n for n in _NAMES if getattr(opts, n) != getattr(self.opts, n)}
        kept = [b for b in self.why if b.field not in differ]
        made = [Because(n, reason, figures) for n in _NAMES if n in differ]
        return Guess(opts, (*kept, *made))

    def adding(self, *more: Because) -> Guess:
        """The same with more to say first."""
        return Guess(self.opts, (*more, *self.why))

    def part(self, opts: Opts, *more: Because) -> Guess:
        """Opts of a part of this kernel, whose axes have other numbers, with the same reasons."""
        moved = [
            Because(b.field, b.reason.of_the_whole(), b.figures)
            for b in self.why
            if b.field != WHOLE
        ]
        return Guess(opts, (*more, *moved))

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """What is said of all of them, then of each field that differs from the default."""
        order = {name: n for n, name in enumerate((WHOLE, *_NAMES))}
        said = sorted(self.why, key=lambda b: (order[b.field], -1 if b.axis is None else b.axis))
        found = (b.of(self.opts) for b in said)
        return tuple(dict.fromkeys(d for d in found if d is not None))


_NAMES = tuple(f.name for f in fields(Opts))
GIVEN = Reason("given", "given with the kernel")


def given(opts: Opts, reason: Reason = GIVEN, **figures: object) -> Guess:
    """Opts for which one reason is all there is to say."""
    return Guess(_DEFAULT).but(opts, reason, **figures)


def opts_of(guesses: Iterable[Guess]) -> list[Opts]:
    """Their Opts, each once."""
    return list(dict.fromkeys(g.opts for g in guesses))
