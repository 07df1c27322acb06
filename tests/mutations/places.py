# SPDX-License-Identifier: Apache-2.0
"""Finds a text in the headers by the definition that it is in: the name of a function, a class or a constant, and not a file or a line.

The braces are read as clang-format lays them out. What a function defines belongs to the function, and overloads are searched together.
"""
import dataclasses
import pathlib
import re

# Comments and lines of the preprocessor are no code; the brackets in texts and characters are none.
COMMENT = r"//[^\n]*|/\*.*?\*/|^[ \t]*#(?:[^\n\\]|\\.)*"
TEXT = r"R\"(?P<raw>[^(\s]*)\(.*?\)(?P=raw)\"|\"(?:[^\"\\\n]|\\.)*\"|(?<!\d)'(?:[^'\\\n]|\\.)+'"
COMMENT_OR_TEXT = re.compile(f"(?P<text>{TEXT})|{COMMENT}", re.DOTALL | re.MULTILINE)


class Wrong(Exception):
    """A text that is not in exactly one place, or anything else that keeps mutations from being made or run."""


@dataclasses.dataclass
class Definition:
    name: str  # with its classes, without its namespaces: Class::function
    header: "Header"
    begin: int
    end: int

    def line(self) -> str:
        code = self.header.code[self.begin : self.end]
        return self.header.line(self.end - len(code.lstrip()))


class Header:
    def __init__(self, path: pathlib.Path, name: str):
        self.name = name
        self.text = path.read_text()
        self.code = COMMENT_OR_TEXT.sub(lambda found: found.group() if found["text"] else blank(found), self.text)
        self.definitions = list(definitions_in(self, COMMENT_OR_TEXT.sub(blank, self.text)))

    def line(self, at: int) -> str:
        return f"{self.name}:{self.text.count(chr(10), 0, at) + 1}"


class Headers:
    def __init__(self, folder: pathlib.Path):
        self.all = [Header(path, str(path.relative_to(folder))) for path in sorted(folder.rglob("*")) if path.is_file()]
        self.named = {}
        for header in self.all:
            for definition in header.definitions:
                self.named.setdefault(definition.name.split("::")[-1], []).append(definition)

    def find(self, where: str, text: str, file: str = ""):
        """The header and the part [begin, end) of it in which `text` is in a definition named `where`; of a text with a part between « and »
        that part. White space does not matter. `where` may leave out classes; `file` is the name of a header without its folder."""
        named = [each for each in self.named.get(where.split("::")[-1], []) if f"::{each.name}".endswith(f"::{where}")]
        named = [each for each in named if not file or pathlib.Path(each.header.name).name == file]
        if not named:
            raise Wrong(f"nothing that is named {where} is defined{' in ' + file if file else ''}{self.elsewhere(text)}")
        pattern = pattern_of(text)
        matches = [(each.header, match) for each in named for match in pattern.finditer(each.header.code, each.begin, each.end)]
        found = {(header.name, match.span("part")): header for header, match in matches}  # once in a class and its constructor
        if not found:
            raise Wrong(f"{where} ({some([each.line() for each in named])}) does not have this text{self.elsewhere(text)}: {text}")
        if len(found) > 1:
            places = some([header.line(begin) for (_, (begin, _)), header in found.items()])
            raise Wrong(f"{where} has this text in {len(found)} places ({places}), but must have it in one: {text}")
        [((_, span), header)] = found.items()
        return header, *span

    def elsewhere(self, text: str) -> str:
        places = [header.line(match.start("part")) for header in self.all for match in pattern_of(text).finditer(header.code)]
        return f", but the text is in {some(places)}" if places else ""


def is_statement(text: str) -> bool:
    return text.endswith((";", "}"))


def require_complete(header: Header, begin: int, end: int, new: str):
    """Both the text [begin, end) of a header and the `new` one are complete expressions, or the first is a statement and the second
    statements or nothing, so that a choice between the two compiles. Raises Wrong. Neither types nor the precedence of operators are read."""
    old, before = header.code[begin:end], header.code[:begin].rstrip()
    what = f"{header.line(begin)}: {' '.join(old.split())}"
    for text, which in ((old, "old"), (new, "new")):
        if not balanced(text):
            raise Wrong(f"a bracket of the {which} text is not closed in it ({what}): {text}")
    if is_statement(old):
        if before and not re.search(r"[;{})]$|\belse$", before):
            raise Wrong(f"the old text ends as a statement, but does not begin as one ({what})")
        if re.match(r"(?:const|constexpr|auto|static)\b", old):
            raise Wrong(f"what the old text declares would not be known behind it ({what})")
        if new.strip() and not is_statement(new):
            raise Wrong(f"a statement is replaced by statements or nothing ({what}), but not by: {new}")
        return
    for text, which in ((old, "old"), (new, "new")):
        if not text.strip() or text.endswith(";"):
            raise Wrong(f"an expression is replaced by an expression ({what}), but not by: {text or 'nothing'}")
        if re.match(r"\s*(?:[/%|^<>=?:,.]|&&|!=|->)", text) or re.search(r"(?<!\+)\+$|(?<!-)-$|[*/%&|^<>=!~?:,.]$", text.rstrip()):
            raise Wrong(f"the {which} text begins or ends with an operator whose operand is not in it ({what}): {text}")
    if re.search(r"(?:\.|->|::)$", before):
        raise Wrong(f"the old text is the end of a name ({what})")
    if re.match(r"[-+*&(\[{]", old) and re.search(r"[\w)\]\"']$", before) and not re.search(r"\b(?:return|case|co_yield)$", before):
        raise Wrong(f"the old text begins behind the operand of its first operator ({what})")


def balanced(text: str) -> bool:
    expected = []
    for sign in re.findall(r"[][(){}]", COMMENT_OR_TEXT.sub(blank, text)):
        if sign in "([{":
            expected.append({"(": ")", "[": "]", "{": "}"}[sign])
        elif not expected or expected.pop() != sign:
            return False
    return not expected


def some(places: list) -> str:
    return ", ".join(places[:4]) + (f" and {len(places) - 4} more" if len(places) > 4 else "")


def pattern_of(text: str):
    marked = re.fullmatch(r"(.*?)«(.*)»(.*)", text, re.DOTALL)
    before, part, after = (flexible(each) for each in (marked.groups() if marked else ("", text, "")))
    return re.compile(r"\s*".join(each for each in (before, f"(?P<part>{part})", after) if each))


def flexible(text: str) -> str:
    """A regular expression for a text with any white space between its words and signs."""
    return r"\s*".join(rf"\b{part}\b" if re.match(r"\w", part) else re.escape(part) for part in re.findall(r"\w+|[^\w\s]", text))


def blank(found) -> str:
    return re.sub(r"[^\n]", " ", found.group())


def definitions_in(header: Header, code: str):
    """What namespaces and classes define in a text without comments and texts."""
    scopes = []  # of each open brace of a class or a namespace: the kind, the name and the begin
    brackets = braces = begin = 0  # what is open in the definition that begins there
    kind = name = ""  # of what is before the last brace

    def definition(name: str, begin: int, end: int) -> Definition:
        return Definition("::".join([scope for kind, scope, _ in scopes if kind == "class"] + [name]), header, begin, end)

    for found in re.finditer(r"[{}();]", code):
        at, sign = found.start(), found.group()
        if braces:
            braces += {"{": 1, "}": -1}.get(sign, 0)
            if braces == 0 and kind == "function":
                yield definition(name, begin, at + 1)
                begin = at + 1
        elif sign in "()":
            brackets += 1 if sign == "(" else -1
        elif brackets:
            continue
        elif sign == ";":
            kind, name = kind_and_name(code[begin:at])
            if kind == "value" and name:
                yield definition(name, begin, at + 1)
            begin = at + 1
        elif sign == "{":
            kind, name = kind_and_name(code[begin:at])
            if not code[at - 1].isspace():
                kind = "value"  # braces with the value of what is before them
            if kind in ("namespace", "class"):
                scopes.append((kind, name, begin))
                begin = at + 1
            else:
                braces = 1
        elif scopes:
            kind, name, start = scopes.pop()
            if kind == "class":
                yield definition(name, start, at + 1)
            begin = at + 1
        else:
            raise Wrong(f"a brace is closed that is not open, in {header.line(at)}")
    if scopes or braces or brackets:
        raise Wrong(f"a brace or a bracket is not closed in {header.name}")


def kind_and_name(head: str):
    """The kind and the name of what begins with this text and goes on with a brace or ends with a semicolon."""
    operator = re.search(r"\boperator\s*(\(\)|[^(]+?)\s*\(", head)
    head = re.sub(r"\b(?:public|protected|private)\s*:|\[\[[^\]]*\]\]", "", head)
    # Without template arguments; a list of parameters, and a value in braces, become one sign.
    for nested, left in ((r"<[^<>]*>", ""), (r"\{[^{}]*\}", "\1"), (r"\([^()]*\)", "\0")):
        while (less := re.sub(nested, left, head)) != head:
            head = less
    if re.search(r"(?:\brequires|=|&&|\|\|)\s*requires\s*\0?\s*$", head):
        return "value", ""
    head = re.sub(r"^\s*requires\b(?:[^\n]*(?:&&|\|\|)\n)*[^\n]*\n", "", head, flags=re.MULTILINE)
    head = re.sub(r"\b(?:decltype|alignas|noexcept|explicit|__launch_bounds__)\s*\0", "", head)
    if re.match(r"\s*(?:inline\s+)?namespace\b|\s*extern\b[^\0=]*$", head):
        return "namespace", ""
    if match := re.match(r"\s*(?:template\s+)?(?:class|struct|union|enum(?:\s+class)?)\s+(?:\w+::)*(\w*)\s*(?:final\s*)?(?::|$)", head):
        return "class", match[1]
    if operator:
        return "function", "operator" + operator[1]
    if match := re.match(r"[^\0=]*?(\w+)\s*(?:\[[^\]]*\]\s*)*=", head):
        return "value", match[1]
    if match := re.match(r"[^\0]*?((?:\w+::)*~?\w+)\s*\0", head):
        return "function", match[1]
    return "value", ""
