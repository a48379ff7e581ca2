"""Programs: read, look at, edit, verify, compare, rewrite, write."""

from __future__ import annotations

import collections.abc
import os
from typing import Iterator

from . import _core
from ._errors import InvalidProgramError
from ._options import fill, handle_of


class Problem:
    """One finding of :meth:`Program.verify`."""

    def __init__(self, is_error: bool, rule: str, error):
        self.is_error = is_error
        self.rule = rule
        self.error = error

    def __str__(self):
        return f"{'error' if self.is_error else 'warning'}: {self.error} [{self.rule}]"

    __repr__ = __str__


class Difference:
    """One finding of :meth:`Program.diff`: ``block``, ``op_a``, ``op_b``, ``op_type``, ``what``, ``a``, ``b``."""

    def __init__(self, facts: dict):
        self.__dict__.update(facts)

    def __str__(self):
        return self.text

    __repr__ = __str__


class Attributes(collections.abc.MutableMapping):
    """Attributes of an op by name. A new attribute has the kind that the op's schema gives it."""

    def __init__(self, op: Op):
        self._op = op

    def _values(self) -> dict:
        return self._op._facts()[3]

    def __getitem__(self, name: str):
        return self._values()[name]

    def __setitem__(self, name: str, value):
        self._op.set_attr(name, value)

    def __delitem__(self, name: str):
        if name not in self._values():
            raise KeyError(name)
        self._op._editor.remove_attr(self._op._id, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values())

    def __len__(self) -> int:
        return len(self._values())

    def __repr__(self):
        return repr(self._values())


class Slots(collections.abc.MutableMapping):
    """Input or output slots of an op: lists of names of vars by the name of the slot."""

    def __init__(self, op: Op, side: int):
        self._op = op
        self._side = side

    def _values(self) -> dict:
        return self._op._facts()[self._side]

    def __getitem__(self, slot: str) -> list[str]:
        return self._values()[slot]

    def __setitem__(self, slot: str, names: str | list[str]):
        editor = self._op._editor
        (editor.set_input if self._side == 1 else editor.set_output)(self._op._id, slot, names)

    def __delitem__(self, slot: str):
        if slot not in self._values():
            raise KeyError(slot)
        editor = self._op._editor
        (editor.remove_input if self._side == 1 else editor.remove_output)(self._op._id, slot)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values())

    def __len__(self) -> int:
        return len(self._values())

    def __repr__(self):
        return repr(self._values())


class Op:
    """An op of a block. Valid until it is erased; edits change its program."""

    __slots__ = ("_editor", "_id")

    def __init__(self, editor, number: int):
        self._editor = editor
        self._id = number

    def _facts(self) -> tuple:
        return self._editor.op(self._id)

    def __eq__(self, other):
        return isinstance(other, Op) and self._editor is other._editor and self._id == other._id

    def __hash__(self):
        return hash((id(self._editor), self._id))

    @property
    def type(self) -> str:
        """Op type, such as ``"conv2d"``."""
        return self._editor.op_type(self._id)

    @type.setter
    def type(self, value: str):
        self._editor.set_op_type(self._id, value)

    @property
    def block(self) -> int:
        """Index of the block."""
        return self._editor.place(self._id)[0]

    @property
    def index(self) -> int:
        """Position in the block."""
        return self._editor.place(self._id)[1]

    @property
    def inputs(self) -> Slots:
        return Slots(self, 1)

    @property
    def outputs(self) -> Slots:
        return Slots(self, 2)

    @property
    def attrs(self) -> Attributes:
        """The attributes that the program states; others have the default of the op's schema."""
        return Attributes(self)

    @property
    def source(self) -> str:
        """The user's line that created the op; empty if the program does not say."""
        return self._editor.source_line(self._id)

    def input(self, slot: str) -> list[str]:
        """Vars of an input slot; empty if the op does not have it."""
        return self._facts()[1].get(slot, [])

    def output(self, slot: str) -> list[str]:
        """Vars of an output slot; empty if the op does not have it."""
        return self._facts()[2].get(slot, [])

    @property
    def input_names(self) -> list[str]:
        """All vars that the op reads, in order of slots."""
        return [name for names in self._facts()[1].values() for name in names]

    @property
    def output_names(self) -> list[str]:
        """All vars that the op writes, in order of slots."""
        return [name for names in self._facts()[2].values() for name in names]

    def attr_kind(self, name: str) -> str:
        """Kind of an attribute in the file: ``"int"``, ``"longs"``, ``"float"``, ``"block"``, ..."""
        return self._facts()[4][name]

    def set_attr(self, name: str, value, kind: str | None = None):
        """Sets an attribute.

        :param kind: as in :meth:`attr_kind`; None: that of the present value, else that of the op's schema, else what
            belongs to the value
        """
        self._editor.set_attr(self._id, name, value, kind)

    def erase(self):
        """Removes the op. Declarations of its vars stay."""
        self._editor.erase_op(self._id)

    def __repr__(self):
        kind, inputs, outputs, *_ = self._facts()

        def listed(slots):
            return " ".join(f"{slot}={', '.join(names)}" for slot, names in slots.items() if names)

        return f"<op {kind} {listed(inputs)} -> {listed(outputs)}>"


def _fact(name: str, doc: str):
    def get(self):
        return self._facts()[name]

    def change(self, value):
        self._editor.declare(self._block, {**self._facts(), name: value})

    return property(get, change, doc=doc)


class Var:
    """Declaration of a var in a block. Edits change its program."""

    __slots__ = ("_editor", "_block", "name")

    def __init__(self, editor, block: int, name: str):
        self._editor = editor
        self._block = block
        self.name = name

    def _facts(self) -> dict:
        return self._editor.var(self._block, self.name)

    def __eq__(self, other):
        return (isinstance(other, Var) and self._editor is other._editor and self._block == other._block and
                self.name == other.name)

    def __hash__(self):
        return hash((id(self._editor), self._block, self.name))

    kind = _fact("kind", "What the var holds: lod_tensor, selected_rows, reader, ...")
    dtype = _fact("dtype", "Element type: f32, i64, ...; None if the var has no elements.")
    dims = _fact("dims", "Extents; -1 is one that is unknown until run time.")
    lod_level = _fact("lod_level", "Number of LoD levels.")
    persistable = _fact("persistable", "True if the value stays between runs.")
    is_parameter = _fact("is_parameter", "As newer releases state it.")
    stop_gradient = _fact("stop_gradient", "True if no gradient is computed for it.")
    need_check_feed = _fact("need_check_feed", "True if fed values must have these dims and this dtype.")

    def rename(self, name: str):
        """Renames the declaration and all uses of it, also in blocks inside this one."""
        self._editor.rename_var(self._block, self.name, name)
        self.name = name

    def erase(self):
        """Removes the declaration; ops that name the var stay as they are."""
        self._editor.erase_var(self._block, self.name)

    def __repr__(self):
        facts = self._facts()
        text = f"{facts['dtype']}{facts['dims']!r}" if facts["dtype"] else facts["kind"]
        return f"<var {self.name}: {text}{' persistable' if facts['persistable'] else ''}>"


class Block:
    """A list of ops in execution order, and declarations of vars. Block 0 is the root."""

    __slots__ = ("_editor", "index")

    def __init__(self, editor, index: int):
        self._editor = editor
        self.index = index

    @property
    def parent(self) -> int:
        """Index of the enclosing block; -1 for the root."""
        return self._editor.parent(self.index)

    @property
    def ops(self) -> list[Op]:
        return [Op(self._editor, number) for number in self._editor.ops(self.index)]

    @property
    def vars(self) -> dict[str, Var]:
        """Declarations of this block by name."""
        return {facts["name"]: Var(self._editor, self.index, facts["name"])
                for facts in self._editor.vars(self.index)}

    def var(self, name: str) -> Var:
        """The declaration that ops of this block see."""
        block = self.index
        while True:
            if name in self.__class__(self._editor, block).vars:
                return Var(self._editor, block, name)
            parent = self._editor.parent(block)
            if parent < 0:
                self._editor.var(self.index, name)  # raises the error
            block = parent

    def add_op(self, type: str, inputs: dict | None = None, outputs: dict | None = None, attrs: dict | None = None,
               before: Op | None = None) -> Op:
        """Adds an op at the end of the block, or before another one.

        :param inputs: names of vars by slot: a str, or a list of them
        """
        number = self._editor.insert_op(self.index, type, inputs or {}, outputs or {}, attrs or {},
                                        None if before is None else before._id)
        return Op(self._editor, number)

    def add_var(self, name: str, dtype: str | None = "f32", dims=(), *, kind: str = "lod_tensor", lod_level: int = 0,
                persistable: bool = False, is_parameter: bool = False, stop_gradient: bool = False,
                need_check_feed: bool = False) -> Var:
        """Declares a var, or changes its declaration."""
        self._editor.declare(self.index, {
            "name": name, "kind": kind, "dtype": dtype, "dims": list(dims), "lod_level": lod_level,
            "persistable": persistable, "is_parameter": is_parameter, "stop_gradient": stop_gradient,
            "need_check_feed": need_check_feed})
        return Var(self._editor, self.index, name)

    def __repr__(self):
        return f"<block {self.index}: {len(self._editor.ops(self.index))} ops>"


class Program:
    """A program (ProgramDesc). Edits of its blocks, ops and vars take effect at once; what they do not touch keeps
    its bytes."""

    def __init__(self):
        """A program with an empty block."""
        self._editor = _core.ProgramEditor()
        self._name = ""

    @classmethod
    def _of(cls, handle, name: str = "") -> Program:
        program = cls.__new__(cls)
        program._editor = _core.ProgramEditor(handle)
        program._name = name
        return program

    @property
    def _handle(self):
        return self._editor.program()

    # ---- files

    @classmethod
    def read(cls, path: str | os.PathLike) -> Program:
        """Reads ``__model__``, ``.pb`` and ``.pdmodel`` files, and the text form."""
        path = os.fspath(path)
        return cls._of(_core.load_program(path), path)

    @classmethod
    def from_bytes(cls, data: bytes | str, name: str = "bytes") -> Program:
        """A program from the content of such a file. ``name`` is used in messages."""
        return cls._of(_core.parse_program(data.encode() if isinstance(data, str) else bytes(data), name), name)

    def write(self, path: str | os.PathLike, *, replace: bool = False):
        """Writes the binary form; a file that exists is an error unless ``replace``."""
        _core.save_program(self._handle, os.fspath(path), replace)

    def to_bytes(self) -> bytes:
        """The binary form. That of a program that was not edited is what it was read from."""
        return _core.program_bytes(self._handle)

    def text(self) -> str:
        """The text form, which :meth:`read` and :meth:`from_bytes` take as well."""
        return _core.program_text(self._handle)

    def copy(self) -> Program:
        return type(self)._of(self._handle, self._name)

    def __copy__(self):
        return self.copy()

    def __deepcopy__(self, memo):
        return self.copy()

    def __reduce__(self):
        return _from_pickle, (self.to_bytes(), self._name)

    # ---- content

    @property
    def version(self) -> int | None:
        """Release that wrote the program, such as 1006001 for 1.6.1; None if it does not say."""
        return self._editor.version()

    @property
    def blocks(self) -> list[Block]:
        return [Block(self._editor, index) for index in range(self._editor.block_count())]

    @property
    def root(self) -> Block:
        """Block 0."""
        return Block(self._editor, 0)

    @property
    def ops(self) -> list[Op]:
        """Ops of the root."""
        return self.root.ops

    @property
    def vars(self) -> dict[str, Var]:
        """Declarations of the root by name."""
        return self.root.vars

    def var(self, name: str) -> Var:
        """A declaration of the root."""
        return self.root.var(name)

    def add_block(self, parent: int = 0) -> Block:
        return Block(self._editor, self._editor.add_block(parent))

    @property
    def feeds(self) -> list[str]:
        """Vars that feed ops set, in order of their columns."""
        return self._columns("feed", 2, "Out")

    @property
    def fetches(self) -> list[str]:
        """Vars that fetch ops read, in order of their columns."""
        return self._columns("fetch", 1, "X")

    def _columns(self, kind: str, side: int, slot: str) -> list[str]:
        found = [op._facts() for op in self.ops if op.type == kind]
        return [facts[side][slot][0] for facts in sorted(found, key=lambda facts: facts[3].get("col", 0))]

    # ---- checks and rewrites

    def verify(self, **options) -> list[Problem]:
        """All problems of the program; empty if there is none.

        Options: ``lint`` (also warn of style), ``allow_outside_paths``, ``allow_network``, ``allow_old_forms``.
        """
        return [Problem(*found) for found in
                _core.verify(self._handle, fill(_core.VerifyOptions(), options))]

    def check(self, **options):
        """Raises :class:`InvalidProgramError` with all errors of :meth:`verify`, if there are any."""
        errors = [problem for problem in self.verify(**options) if problem.is_error]
        if errors:
            first = errors[0].error
            raise InvalidProgramError(first.message, first.location, first.hint, first.notes,
                                      "\n".join(str(problem.error) for problem in errors))

    def diff(self, other: Program, **options) -> list[Difference]:
        """Differences from this program to another; empty if they are equal.

        Options: ``any_order``, ``semantic``, ``strict_attrs``, ``strict_types``, ``strict_vars``, ``ignore_attrs``.
        """
        return [Difference(facts) for facts in
                _core.compare(self._handle, other._handle, fill(_core.CompareOptions(), options))]

    def passes(self, pipeline: str) -> Program:
        """The program after a pipeline, such as ``"remove-dead-ops{keep=[loss]}"``."""
        return run_passes(self, pipeline)[0]

    # ---- views

    def summary(self) -> str:
        """Sizes and op types in a few lines."""
        return self._view("summary")

    def html(self) -> str:
        """A page with pictures of the blocks and tables; it needs no network."""
        return self._view("html")

    def json(self) -> str:
        return self._view("json")

    def dot(self) -> str:
        """For graphviz."""
        return self._view("dot")

    def svg(self) -> str:
        return self._view("svg")

    def _view(self, view: str) -> str:
        return _core.view_program(self._handle, getattr(_core.ProgramView, view), self._name)

    def _repr_html_(self) -> str:
        import html

        page = html.escape(self.html(), quote=True)
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 30em; border: 1px solid #ccc"></iframe>'

    def __repr__(self):
        ops = sum(len(self._editor.ops(block)) for block in range(self._editor.block_count()))
        return f"<Program{' ' + self._name if self._name else ''}: {self._editor.block_count()} blocks, {ops} ops>"


def _from_pickle(data: bytes, name: str) -> Program:
    return Program.from_bytes(data, name)


def run_passes(program: Program, pipeline: str, startup: Program | None = None
               ) -> tuple[Program, Program | None, list[str]]:
    """Runs a pipeline on copies of a program and its startup program; each result is verified.

    :returns: the program, the startup program, and what the passes remark
    """
    main, initial, remarks = _core.run_passes(
        handle_of(program), pipeline, None if startup is None else handle_of(startup, "startup"))
    return Program._of(main, program._name), None if initial is None else Program._of(initial, startup._name), remarks


def pass_names() -> list[str]:
    """Names of the passes that pipelines may have."""
    return _core.pass_names()


def op_types() -> list[str]:
    """Types of all ops that have a schema."""
    return _core.op_types()
