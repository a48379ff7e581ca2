"""What the checks of all formats share: cases of models and ops, comparison, rows of the report."""
import collections
import json
import subprocess
import zipfile

import numpy as np

from inference_program import inference_program

REFUSED = 7
MODEL_TOLERANCE = 1e-5
# The last function of this model is a sigmoid with slope 50: rounding differences of its argument are as much larger.
STEEP = {"ocr_det_db": 50 * MODEL_TOLERANCE}
# References that are wrong (docs/decisions/0005-reference-differences.md).
WRONG_REFERENCES = {("split", 3), ("split", 4)}


class Refused(Exception):
    """migrate refuses the program."""


def migrate(tool, target, folder, out, flags=(), dims=()):
    """Exports a model folder. dims: pairs of input and shape, instead of the declared dims."""
    flags = [*flags, *(f"--input-dims={name}={','.join(map(str, shape))}" for name, shape in dims)]
    done = subprocess.run([tool, "--to", target, folder, "-o", out, "--force", "-q", *flags],
                          capture_output=True, text=True, check=False)
    if done.returncode == REFUSED:
        raise Refused(done.stderr.strip().splitlines()[0].replace("error: ", "", 1))
    if done.returncode != 0:
        raise RuntimeError(f"migrate ended with {done.returncode}: {done.stderr.strip()}")


def close(got, want, rtol, atol):
    """None, or the difference as text."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype} {got.shape}, expected {want.dtype} {want.shape}"
    if want.size == 0 or want.dtype == bool:
        return None if np.array_equal(got, want) else "other values"
    got, want = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(invalid="ignore"):
        near = np.isfinite(want) & (np.abs(got - want) <= atol + rtol * np.abs(want))  # inf <= rtol * inf says nothing
        good = (got == want) | near | (np.isnan(got) & np.isnan(want))
    if good.all():
        return None
    return f"{(~good).sum()} of {good.size} elements differ, by {np.nanmax(np.abs(got - want)[~good]):.3g} at most"


class Feed:
    """A value of a fed var."""

    def __init__(self, name, array, lod):
        self.name, self.array, self.lod = name, array, lod


def models_of(shared):
    """Folders of models whose inputs and outputs are stored."""
    return [p.parent for p in sorted(shared.glob("models/*/case.json"))
            if all("file" in f for f in json.loads(p.read_text()).get("feed", [{}])) and (p.parent / "outputs").is_dir()]


def model_feeds(folder):
    case = json.loads((folder / "case.json").read_text())
    return [Feed(f["name"], np.load(folder / f["file"]), f.get("lod_offsets") or []) for f in case["feed"]]


def compare_model(folder, results):
    """results: arrays by name. None, or the first difference."""
    tolerance = STEEP.get(folder.name, MODEL_TOLERANCE)
    for fetch in json.loads((folder / "case.json").read_text())["fetch"]:
        want = np.load(folder / fetch["file"])
        # relative to the largest value of the tensor as well: sums of terms that cancel have no better precision
        atol = tolerance * max(1e-30, float(np.abs(want[np.isfinite(want)]).max(initial=0)))
        if np.issubdtype(want.dtype, np.integer):
            atol = 0
        if difference := close(results[fetch["name"]], want, tolerance, atol):
            return f"{fetch['name']}: {difference}"
    return None


def array_of(archive, member, dtype):
    array = np.load(archive.open(member + ".npy"))
    return array.astype(bool) if dtype == "bool" else array


class OpCase:
    """One case of an operator, as an inference program in a folder of its own."""

    def __init__(self, archive, number, work, not_computed, training=False):
        """not_computed: slots by op that are not compared. training: the gradients and updates, not the results."""
        self.archive, self.number = archive, number
        self.meta = meta = json.loads(bytes(np.load(archive.open(f"case{number}/meta.npy"))))
        program = bytes(np.load(archive.open(f"case{number}/program.npy")))
        if (meta["op"], number) in WRONG_REFERENCES:
            raise Refused("the reference is wrong")
        if any(f["kind"] != "lod_tensor" or f["dtype"] == "bfloat16" for f in meta["feeds"] + meta["expects"]):
            raise Refused("not dense tensors of a type that numpy has")
        forward = {name for names in meta["outputs"].values() for name in names}
        inputs = {name for names in meta["inputs"].values() for name in names}
        self.feed_meta = [f for f in meta["feeds"] if training or f["name"] in inputs]
        self.expects = [e for e in meta["expects"] if (e["name"] in forward - inputs) != training and not e.get("optional")
                        and e["compare"] == "values" and e["slot"] not in not_computed.get(meta["op"], ())]
        if not self.expects:
            raise Refused("no gradients and no updates" if training else "random values, or updates of its inputs")
        self.folder = work / f"{meta['op']}_{number}"
        self.folder.mkdir()
        (self.folder / "__model__").write_bytes(inference_program(
            program, len(program) if training else meta["n_forward_ops"], [f["name"] for f in self.feed_meta], [e["name"] for e in self.expects]))

    def _array(self, item):
        return array_of(self.archive, f"case{self.number}/{item['member']}", item["dtype"])

    def feeds(self):
        return [Feed(f["name"], self._array(f), f.get("lod") or []) for f in self.feed_meta]

    def compare(self, results, lods):
        """results: arrays by name; lods: lists of offsets by name. None, or the first difference."""
        for expect in self.expects:
            if difference := close(results[expect["name"]], self._array(expect), expect["rtol"], expect["atol"]):
                return f"{self.meta['tag']}: {expect['name']}: {difference}"
            for level, offsets in enumerate(expect.get("lod") or []):
                if list(lods[expect["name"]][level]) != offsets:
                    return f"{self.meta['tag']}: LoD of {expect['name']}"
        return None


def lods_in(results):
    """The offsets of each LoD level by name, from results with names such as y.lod0."""
    lods = {}
    for name, value in results.items():
        base, dot, level = name.rpartition(".lod")
        if dot and level.isdigit():
            lods.setdefault(base, {})[int(level)] = value.tolist()
    return lods


def case_numbers(path):
    with zipfile.ZipFile(path) as archive:
        return sorted({int(n.split("/")[0][4:]) for n in archive.namelist() if n.startswith("case")})


class Row:
    """The cases of a model or op: how many have each verdict, and the first reason of each."""

    def __init__(self):
        self.count = collections.Counter()
        self.why = {}

    def add(self, verdict, why=None):
        self.count[verdict] += 1
        self.why.setdefault(verdict, why)

    def text(self, name, verdicts):
        cells = "".join(f"{self.count[v]:>10}" for v in verdicts)
        reasons = "; ".join(f"{v}: {w}" for v, w in self.why.items() if w)
        return f"{name:<50}{cells}  {reasons}"


def verdict_of(check, no_kernel=()):
    """Runs check(), which returns a difference. no_kernel: what a runtime says about types that it lacks."""
    try:
        difference = check()
        return ("differs", difference) if difference else ("equal", None)
    except Refused as error:
        return "refused", str(error)
    except RuntimeError as error:
        text = str(error)
        kernel = any(word in text for word in no_kernel)
        return "no kernel" if kernel else "failed", " ".join(text.split())[:300]
    except Exception as error:  # pylint: disable=broad-except  # of the runtimes, which have many types
        text = f"{type(error).__name__}: {error}"
        verdict = "no kernel" if any(word in text for word in no_kernel) else "failed"
        return verdict, " ".join(text.split())[:300]


def print_rows(kind, rows, verdicts):
    """rows: Row by name. Returns the totals."""
    print(f"{kind:<50}" + "".join(f"{v:>10}" for v in verdicts))
    total = collections.Counter()
    for name, row in rows.items():
        total += row.count
        print(row.text(name, verdicts))
    print(f"{'all ' + kind:<50}" + "".join(f"{total[v]:>10}" for v in verdicts))
    return total


def too_few(equal, floors, target):
    """Prints each kind with fewer equal cases than the floors of the format say; returns their number."""
    failures = 0
    for kind, floor in json.loads(floors.read_text())[target].items():
        if kind in equal and equal[kind] < floor:
            print(f"{kind}: {equal[kind]} equal, expected at least {floor}")
            failures += 1
    return failures
