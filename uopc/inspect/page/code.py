"""Text of a program as markup: a class for each kind of word, line by line."""

from __future__ import annotations

from markupsafe import Markup, escape
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Token, _TokenType

#: a kind of token and its class in the style sheet; what is in none stays plain
_CLASSES = {
    Token.Comment.Preproc: "q",
    Token.Comment: "c",
    Token.Keyword: "k",
    Token.Operator.Word: "k",
    Token.Literal.Number: "m",
    Token.Literal.String: "s",
    Token.Name.Builtin: "b",
    Token.Name.Function: "f",
    Token.Name.Decorator: "q",
}


def cuda_lines(text: str) -> tuple[Markup, ...]:
    """The lines of a CUDA or C text."""
    return _lines(get_lexer_by_name("cuda", stripnl=False, ensurenl=False), text)


def python_lines(text: str) -> tuple[Markup, ...]:
    """The lines of a Python file."""
    return _lines(get_lexer_by_name("python", stripnl=False, ensurenl=False), text)


def _lines(lexer: Lexer, text: str) -> tuple[Markup, ...]:
    """As many as the text has, split at line feeds alone."""
    done: list[list[str]] = [[]]
    for kind, part in lexer.get_tokens(text.replace("\r", " ")):
        named = _class(kind)
        for n, piece in enumerate(part.split("\n")):
            if n:
                done.append([])
            if piece:
                safe = str(escape(piece))
                done[-1].append(f'<i class="{named}">{safe}</i>' if named else safe)
    return tuple(Markup("".join(parts)) for parts in done)


def _class(kind: _TokenType) -> str:
    at: _TokenType | None = kind
    while at is not None:
        if at in _CLASSES:
            return _CLASSES[at]
        at = at.parent
    return ""
