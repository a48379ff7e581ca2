"""Finds locations in C++ sources that a mutant can change, with libclang.

A site has its location (file, byte offsets), the kind of change, and the changed text in parts: a string is literal
text, a pair of offsets is that part of the source, which may contain other mutants.

Excluded: macros (but a MILLRACE_RETURN_IF_ERROR as a whole may be removed), constexpr, case labels, template arguments,
array bounds, default arguments and default member initializers.
"""
import os
import random
import re

from clang import cindex
from clang.cindex import CursorKind as K

RELATIONAL = {"<": ["<=", ">", ">="], "<=": ["<", ">"], ">": [">=", "<", "<="], ">=": [">", "<"], "==": ["!="], "!=": ["=="]}
ARITHMETIC = {"+": ["-"], "-": ["+"], "*": ["/"], "/": ["*"], "%": ["/"], "<<": [">>"], ">>": ["<<"], "&": ["|"], "|": ["&"],
              "^": ["&"]}
LOGICAL = {"&&": ["||"], "||": ["&&"]}
CALLS = {"std::min": "std::max", "std::max": "std::min", "std::all_of": "std::any_of", "std::any_of": "std::all_of",
         "std::none_of": "std::any_of", "llvm::all_of": "llvm::any_of", "llvm::any_of": "llvm::all_of",
         "llvm::none_of": "llvm::any_of", "std::lower_bound": "std::upper_bound", "std::upper_bound": "std::lower_bound"}
MEMBERS = {"begin": "end", "end": "begin", "front": "back", "back": "front", "rbegin": "rend"}
FUNCTIONS = (K.FUNCTION_DECL, K.CXX_METHOD, K.CONSTRUCTOR, K.DESTRUCTOR, K.CONVERSION_FUNCTION, K.FUNCTION_TEMPLATE)
CASTS = (K.CXX_STATIC_CAST_EXPR, K.CXX_REINTERPRET_CAST_EXPR, K.CXX_CONST_CAST_EXPR, K.CXX_DYNAMIC_CAST_EXPR, K.CSTYLE_CAST_EXPR)
BRANCHES = (K.IF_STMT, K.FOR_STMT, K.CXX_FOR_RANGE_STMT, K.WHILE_STMT, K.DO_STMT, K.SWITCH_STMT)
STATEMENT_MACRO = "MILLRACE_RETURN_IF_ERROR"


class Source:
    """The bytes of one file and its macros."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.text = file.read()
        self.macros = []  # (begin, end, name)

    def part(self, begin, end):
        return self.text[begin:end].decode("utf-8", "replace")

    def line_at(self, offset):
        return self.text.count(b"\n", 0, offset) + 1

    def line_text(self, offset):
        begin = self.text.rfind(b"\n", 0, offset) + 1
        end = self.text.find(b"\n", offset)
        return self.part(begin, len(self.text) if end < 0 else end).strip()

    def next_char(self, offset):
        rest = self.text[offset:]
        found = re.match(rb"(\s|//[^\n]*\n|/\*.*?\*/)*", rest, re.S).end()
        return offset + found, chr(rest[found]) if found < len(rest) else ""

    def previous_char(self, offset):
        before = self.text[:offset].rstrip()
        return chr(before[-1]) if before else ""

    def in_macro(self, begin, end):
        return any(b <= begin and end <= e for b, e, _ in self.macros)


def is_arithmetic(kind):
    return kind in (cindex.TypeKind.BOOL, cindex.TypeKind.POINTER, cindex.TypeKind.ENUM) or \
        cindex.TypeKind.CHAR_U.value <= kind.value <= cindex.TypeKind.LONGDOUBLE.value


class Finder:
    """Walks one translation unit and collects the sites in the requested files."""

    def __init__(self, root, wanted, seed):
        self.root, self.wanted, self.seed = root, wanted, seed
        self.names = {}  # of files; a unit has about 100,000 nodes
        self.sources, self.sites = {}, {}

    # # --- queries about the walk

    def parse(self, path, arguments):
        index = cindex.Index.create()
        unit = index.parse(path, arguments, options=cindex.TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD)
        errors = [d for d in unit.diagnostics if d.severity >= cindex.Diagnostic.Error]
        if errors:
            raise SystemExit(f"{path}: libclang cannot read it: {errors[0]}")
        tops = [node for node in unit.cursor.get_children() if self.name_of(node) in self.wanted]
        for node in tops:
            if node.kind == K.MACRO_INSTANTIATION:
                source = self.source(self.name_of(node))
                source.macros.append((node.extent.start.offset, node.extent.end.offset, node.spelling))
        for node in tops:
            if not node.kind.is_preprocessing():
                self.declaration(node)

    def name_of(self, node):
        file = node.location.file
        if not file:
            return None
        path = file.name
        if path not in self.names:
            self.names[path] = os.path.relpath(path, self.root)
        return self.names[path]

    def source(self, name):
        if name not in self.sources:
            self.sources[name] = Source(os.path.join(self.root, name))
        return self.sources[name]

    def declaration(self, node):
        if node.kind in FUNCTIONS:
            self.function(node)
        elif node.kind in (K.NAMESPACE, K.CLASS_DECL, K.STRUCT_DECL, K.CLASS_TEMPLATE, K.LINKAGE_SPEC, K.UNEXPOSED_DECL):
            for child in node.get_children():
                self.declaration(child)

    def function(self, node):
        bodies = [child for child in node.get_children() if child.kind == K.COMPOUND_STMT]
        if not bodies:
            return
        self.file = self.name_of(node)
        self.text = self.source(self.file)
        body = bodies[-1]
        head = self.text.part(node.extent.start.offset, body.extent.start.offset)
        if re.search(r"\bconst(expr|eval)\b", head):
            return
        self.body(body, returns_void=node.result_type.kind == cindex.TypeKind.VOID or node.kind in (K.CONSTRUCTOR, K.DESTRUCTOR))

    def body(self, body, returns_void):
        children = list(body.get_children())
        for child in children:
            # A return may be removed if code follows it.
            self.statement(child, may_fall=returns_void or child != children[-1], returns_void=returns_void)

    # --- the walk

    def span(self, node):
        return node.extent.start.offset, node.extent.end.offset

    def statement(self, node, may_fall, returns_void):
        """A statement in braces, or the body of an `if` or a loop."""
        self.remove(node, may_fall)
        self.visit(node, may_fall, returns_void)

    def visit(self, node, may_fall=False, returns_void=False):
        begin, end = self.span(node)
        if node.kind in (K.PARM_DECL, K.STATIC_ASSERT, K.TYPE_REF, K.TEMPLATE_REF, K.NAMESPACE_REF, K.CLASS_DECL, K.STRUCT_DECL,
                         K.DECL_REF_EXPR, K.TYPE_ALIAS_DECL, K.TYPEDEF_DECL, K.SIZE_OF_PACK_EXPR):
            return
        if begin >= end or (self.text.in_macro(begin, end) and node.kind != K.COMPOUND_STMT):
            return
        children = list(node.get_children())
        self.own(node, children)
        if node.kind == K.LAMBDA_EXPR:
            head = self.text.part(begin, children[-1].extent.start.offset) if children else ""
            if children and children[-1].kind == K.COMPOUND_STMT and "constexpr" not in head:
                self.body(children[-1], returns_void=self.lambda_is_void(children[-1]))
            return
        for child in self.followed(node, children):
            if node.kind == K.COMPOUND_STMT:
                self.statement(child, may_fall, returns_void)
            elif child.kind == K.COMPOUND_STMT:
                for inner in child.get_children():
                    self.statement(inner, may_fall, returns_void)
            elif self.is_done(node, child, children):
                self.statement(child, may_fall, returns_void)
            else:
                self.visit(child, may_fall, returns_void)

    def lambda_is_void(self, body):
        return not re.search(r"\breturn\b\s*[^;\s]", self.text.part(*self.span(body)))

    def is_done(self, node, child, children):
        """Whether the child is the body of a branch or loop, without braces."""
        if node.kind in (K.CASE_STMT, K.DEFAULT_STMT):
            return child == children[-1]
        if node.kind == K.IF_STMT:
            before = self.text.text[:child.extent.start.offset].rstrip()
            return before.endswith((b")", b"else")) and child.extent.start.offset > children[0].extent.end.offset
        return node.kind in (K.FOR_STMT, K.CXX_FOR_RANGE_STMT, K.WHILE_STMT) and child == children[-1]

    def followed(self, node, children):
        """The children that may contain sites."""
        if node.kind == K.CASE_STMT or node.kind in CASTS:
            return children[-1:]
        if node.kind == K.VAR_DECL:
            head = self.text.part(node.extent.start.offset, node.location.offset)
            if re.search(r"\bconst(expr|init)\b", head):
                return []
            return [c for c in children if c.extent.start.offset > node.location.offset
                    and self.text.previous_char(c.extent.start.offset) != "["]
        if node.kind == K.MEMBER_REF_EXPR:
            return [c for c in children if c.extent.start.offset == node.extent.start.offset]
        return children

    # --- changes

    def add(self, begin, end, kind, pieces, change):
        """Of several changes of the same text one is kept, chosen by the seed."""
        if self.text.in_macro(begin, end):
            return
        site = {"file": self.file, "line": self.text.line_at(begin), "begin": begin, "end": end, "kind": kind, "pieces": pieces,
                "change": " ".join(change.split()), "text": self.text.line_text(begin)}
        key = (self.file, begin, end)
        known = self.sites.setdefault(key, [])
        if all(other["change"] != site["change"] for other in known):
            known.append(site)

    def choose(self, begin, end, kind, pieces, change):
        """An expression with a replacement."""
        self.add(begin, end, kind, ["(MUTANT ? (", *pieces, ") : (", (begin, end), "))"], change)

    def remove(self, node, may_fall):
        begin, end = self.span(node)
        text = self.text.part(begin, end)
        macro = next((m for m in self.text.macros if m[0] == begin and m[2] == STATEMENT_MACRO), None)
        if macro:
            end = macro[1]
            text = self.text.part(begin, end)
        elif self.text.in_macro(begin, end):
            return
        elif node.kind == K.RETURN_STMT:
            if not may_fall:
                return
        elif node.kind not in (K.BREAK_STMT, K.CONTINUE_STMT) and not node.kind.is_expression():
            return
        if re.fullmatch(r"\(void\)\s*\w+", text) or node.kind in (K.LAMBDA_EXPR, K.COMPOUND_STMT):
            return
        semicolon, char = self.text.next_char(end)
        if char != ";":
            return
        end = semicolon + 1
        self.add(begin, end, "statement left out", ["{ if (!MUTANT) { ", (begin, end), " } }"],
                 self.text.part(begin, end) + " left out")

    def own(self, node, children):
        begin, end = self.span(node)
        whole = self.text.part(begin, end)
        kind = node.kind
        if kind == K.BINARY_OPERATOR and len(children) == 2:
            self.operator(node, children[0], children[1])
        elif kind == K.CALL_EXPR and re.fullmatch(r"operator(==|!=|<|<=|>|>=)", node.spelling) and len(children) == 3:
            self.operator(node, children[0], children[-1])
        elif kind == K.COMPOUND_ASSIGNMENT_OPERATOR and len(children) == 2:
            self.compound(node, children)
        elif kind == K.UNARY_OPERATOR and len(children) == 1:
            self.unary(node, children[0])
        elif kind == K.CONDITIONAL_OPERATOR:
            self.negate(children[0])
        elif kind in BRANCHES:
            self.condition(node, children)
        elif kind == K.INTEGER_LITERAL and re.fullmatch(r"[0-9][0-9a-zA-Z']*", whole):
            for sign in "+-":
                if sign == "+" or not re.fullmatch(r"0+[uUlL]*", whole):
                    self.choose(begin, end, "integer", [f"{whole} {sign} 1"], f"{whole} -> {whole} {sign} 1")
        elif kind == K.FLOATING_LITERAL and re.fullmatch(r"[0-9][0-9a-zA-Z'.+-]*", whole):
            self.choose(begin, end, "number", [f"{whole} + 1"], f"{whole} -> {whole} + 1")
        elif kind == K.CXX_BOOL_LITERAL_EXPR and whole in ("true", "false"):
            other = "false" if whole == "true" else "true"
            self.add(begin, end, "bool", ["(!MUTANT)" if whole == "true" else "MUTANT"], f"{whole} -> {other}")
        elif kind == K.CALL_EXPR:
            self.call(node, children, whole)

    def operator(self, node, left, right):
        begin, end = self.span(node)
        between = self.text.part(left.extent.end.offset, right.extent.start.offset)
        sign = re.sub(r"//[^\n]*", "", between).strip()
        if begin != left.extent.start.offset or end != right.extent.end.offset:
            return
        if sign in RELATIONAL:
            kind, others = "relation", RELATIONAL[sign]
        elif sign in LOGICAL:
            kind, others = "and/or", LOGICAL[sign]
        elif sign in ARITHMETIC and is_arithmetic(node.type.get_canonical().kind):
            kind, others = "arithmetic", ARITHMETIC[sign]
        else:
            return
        for other in others:
            self.choose(begin, end, kind, [self.span(left), f" {other} ", self.span(right)],
                        f"{self.text.part(begin, end)}: {sign} -> {other}")

    def compound(self, node, children):
        begin, end = self.span(node)
        left, right = map(self.span, children)
        sign = self.text.part(left[1], right[0]).strip()
        if sign[:-1] in ARITHMETIC and is_arithmetic(node.type.get_canonical().kind):
            other = ARITHMETIC[sign[:-1]][0] + "="
            self.choose(begin, end, "arithmetic", [left, f" {other} ", right], f"{self.text.part(begin, end)}: {sign} -> {other}")

    def unary(self, node, child):
        begin, end = self.span(node)
        inner = self.span(child)
        before, after = self.text.part(begin, inner[0]).strip(), self.text.part(inner[1], end).strip()
        text = self.text.part(begin, end)
        if before == "!" and not after:
            self.add(begin, end, "negation", ["(MUTANT == static_cast<bool>(", inner, "))"], f"{text} -> without !")
        elif before == "-" and not after and is_arithmetic(node.type.get_canonical().kind):
            self.choose(begin, end, "arithmetic", [inner], f"{text} -> without -")
        elif (before, after) in (("++", ""), ("--", "")):
            other = "--" if before == "++" else "++"
            self.choose(begin, end, "arithmetic", [other, inner], f"{text} -> {other}")
        elif (before, after) in (("", "++"), ("", "--")):
            other = "--" if after == "++" else "++"
            self.choose(begin, end, "arithmetic", [inner, other], f"{text} -> {other}")

    def condition(self, node, children):
        if self.text.part(*self.span(node)).startswith("if constexpr") or node.kind in (K.SWITCH_STMT, K.CXX_FOR_RANGE_STMT):
            return
        if node.kind == K.DO_STMT:
            self.negate(children[-1])
            return
        for child, following in zip(children, children[1:]):
            if not child.kind.is_expression():
                continue
            _, after = self.text.next_char(child.extent.end.offset)
            if node.kind == K.FOR_STMT:
                if after == ";" and self.text.previous_char(child.extent.start.offset) == ";":
                    self.negate(child)
                    return
            elif after == ")" and self.text.previous_char(following.extent.start.offset) == ")":
                self.negate(child)
                return

    def negate(self, child):
        begin, end = self.span(child)
        if child.kind.is_expression() and begin < end:
            self.add(begin, end, "condition", ["(MUTANT != static_cast<bool>(", (begin, end), "))"],
                     f"!({self.text.part(begin, end)})")

    def call(self, node, children, whole):
        begin, end = self.span(node)
        for name, other in CALLS.items():
            if re.match(name + r"\s*[(<]", whole):
                self.choose(begin, end, "call", [other, (begin + len(name), end)], f"{name} -> {other}")
        found = re.search(r"(\.|->)(\w+)\(\)$", whole)
        if found and found.group(2) in MEMBERS and len(children) == 1:
            other = MEMBERS[found.group(2)]
            self.choose(begin, end, "call", [(begin, end - len(found.group(2)) - 2), other, "()"],
                        f"{whole} -> {other}()")

    def result(self):
        """One site per expression, sorted, each chosen by the seed only."""
        chosen = []
        for key in sorted(self.sites):
            rng = random.Random(f"{self.seed}:{key[0]}:{self.sources[key[0]].line_text(key[1])}:{key[2] - key[1]}")
            chosen.append(rng.choice(self.sites[key]))
        return chosen


def render(text, sites):
    """The source with the sites (each with a number) in it; comments mark where each mutant begins and ends."""
    ordered = sorted(sites, key=lambda s: (s["begin"], -s["end"]))

    def part(begin, end, skip):
        out, at = [], begin
        for site in ordered:
            if site in skip or site["begin"] < at or site["end"] > end:
                continue
            out.append(text[at:site["begin"]].decode())
            out.append(f"/*<{site['number']}*/")
            for piece in site["pieces"]:
                # a list where the site was stored
                out.append(piece.replace("MUTANT", f"millrace_mutant({site['number']})") if isinstance(piece, str)
                           else part(piece[0], piece[1], skip + [site]))
            out.append(f"/*{site['number']}>*/")
            at = site["end"]
        out.append(text[at:end].decode())
        return "".join(out)

    return part(0, len(text), [])


def numbers_at(generated, line, column):
    """The mutants that contain a location of generated text, innermost first; if there are none, all that touch the
    line."""
    lines = generated.split("\n")
    if line > len(lines):
        return []
    offset = sum(len(l) + 1 for l in lines[:line - 1]) + column - 1
    start, end = offset - column + 1, offset - column + 1 + len(lines[line - 1])
    holding, touching = [], []
    open_at = []
    for mark in re.finditer(r"/\*(?:<(\d+)|(\d+)>)\*/", generated):
        if mark.group(1):
            open_at.append((int(mark.group(1)), mark.start()))
            continue
        number, begin = open_at.pop()
        if begin <= offset < mark.end():
            holding.append((mark.end() - begin, number))
        if begin <= end and mark.end() >= start:
            touching.append((mark.end() - begin, number))
    return [number for _, number in sorted(holding or touching)]
