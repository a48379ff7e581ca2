"""Compares a net of the original with millrace: programs, gradients, training, every way to run them."""
import json
import os

import numpy as np

from calls import REFUSED, Finding, dense, load, near, text_form_returns


def config_of(folder):
    with open(f"{folder}/config.json", encoding="utf-8") as f:
        return json.load(f)


class Net:
    """A folder in the layout of the training references."""

    def __init__(self, tools, folder, work, judge):
        self.judge = judge.program_diff
        self.tools, self.folder, self.work, self.config = tools, folder, work, config_of(folder)
        with open(f"{folder}/meta.json", encoding="utf-8") as f:
            self.meta = json.load(f)
        self.expected = load(f"{folder}/expected.npz") if os.path.exists(f"{folder}/expected.npz") else {}

    def fetches(self, names):
        return [word for name in names for word in ("--fetch", name)]

    def train(self, check, program, *flags, feeds=None, steps=None):
        """Fetched values, and stored values after all steps."""
        out, after = f"{self.work}/out.npz", f"{self.work}/after.npz"
        self.tools.must(check, "run-program", "--program", program, "--params", f"{self.folder}/init.npz", "--feed-steps", feeds or f"{self.folder}/feeds.npz",
                        *self.fetches(self.config["fetch_list"]), "--steps", steps or self.config["steps"], "--output", out, "--save-persistables", after, "--force", "-q", *flags)
        return load(out), load(after)

    def trained(self, check, got, after):
        """Losses, rates and all stored values equal the original's."""
        bounds = self.config["tolerance"]
        for k in range(self.config["steps"]):
            for name in self.config["fetch_list"]:
                near(check, f"step{k}/{name}", got.get(f"step{k}/{name}"), self.expected[f"step{k}/{name}"], bounds["loss_rtol_first"], 1e-2)
        for name in self.config["persistables"]:
            near(check, name, after.get(name), self.expected[f"final/{name}"], bounds["param_rel_to_max"], 1e-2)

    def gradients(self, check, program):
        names = [g for pairs in self.config["param_grad"] for _, g in pairs]
        if not names:
            return
        out = f"{self.work}/grad.npz"
        self.tools.must(check, "run-program", "--program", program, "--params", f"{self.folder}/init.npz", "--feed-steps", f"{self.folder}/feeds.npz", *self.fetches(names),
                        "--steps", 1, "--output", out, "--force", "-q")
        got = load(out)
        for name in names:
            near(check, name, dense(got, f"step0/{name}"), self.expected[f"grad/{name}"], self.config["tolerance"]["grad_rel_to_max"], 1e-4)


def on_two_devices(net):
    """Every device gets the whole feed, so losses and parameters equal those of one device."""
    feeds = {}
    for name, value in load(f"{net.folder}/feeds.npz").items():
        step, rest = name.split("/", 1)
        feeds.update({f"{step}/dev{d}/{rest}": value for d in range(2)})
    path = f"{net.work}/two.npz"
    np.savez(path, **feeds)
    got, after = net.train("two devices", f"{net.folder}/main.pb", "--devices", "cpu:2", "--feed-mode", "list", "--merge-fetches", "false", feeds=path)
    for d in range(2):
        part = {name.replace(f"/dev{d}/", "/", 1): v for name, v in got.items() if f"/dev{d}/" in name}
        net.trained("two devices", part, after)


def minimize(net, *flags):
    out = f"{net.work}/minimized"
    status, said = net.tools.call("minimize", "transpile-program", "--program", f"{net.folder}/main_forward.pb", "--startup", f"{net.folder}/startup_forward.pb",
                                  "--minimize", f"{net.folder}/config.json", *flags, "-o", out, "--force", "-q")
    return out, status, said


def ours_is_right(net):
    """If gradients of loops differ, central differences decide, and the training must run. The original loses gradients
    of memories, which may
    show only with more iterations than in step 0, and those of a second loss."""
    if not loops(net):
        return False
    params = ",".join(p for pairs in net.config["param_grad"] for p, _ in pairs)
    data = ["--params", f"{net.folder}/init.npz", "--feed-steps", f"{net.folder}/feeds.npz"]
    without = net.config.get("no_grad_set")
    stops = ["--check-no-grad", ",".join(without)] if without else []
    status, _ = net.tools.call("minimize differences", "run-program", "--program", f"{net.work}/minimized/backward/__model__", *data, "--check-gradients", params, *stops)
    if status:
        return False
    # updates that the original left out have state that does not occur in its parameters
    main, startup = (f"{net.work}/minimized/main/{name}" for name in ("__model__", "__startup__"))
    net.tools.must("minimize training", "run-program", "--program", main, "--startup", startup, *data, *net.fetches(net.config["losses"]), "--output", f"{net.work}/out.npz",
                   "--force", "-q")
    return True


def loops(net):
    program = net.judge.load(f"{net.folder}/main_forward.pb")
    return any(op.type in ("while", "recurrent") for block in program.blocks for op in block.ops)


def same_programs(net, differences):
    """--minimize produces the original's programs, or ones that train to the same numbers; returns which."""
    same = True
    for flags, pairs in ((["--backward-only"], {"backward.pb": "backward/__model__"}), ([], {"main.pb": "main/__model__", "startup.pb": "main/__startup__"})):
        out, status, said = minimize(net, *flags)
        if status:
            raise Finding("minimize", f"refused with status {status}: {said[-400:]}")
        for want, made in pairs.items():
            lines = net.judge.diff_programs(net.judge.load(f"{net.folder}/{want}"), net.judge.load(f"{out}/{made}"))
            if lines:
                same = False
                differences.append(f"{want}: {' | '.join(lines)[:300]}")
    if not same:
        try:
            net.gradients("minimize gradients", f"{net.work}/minimized/backward/__model__")
            net.trained("minimize training", *net.train("minimize training", f"{net.work}/minimized/main/__model__"))
        except Finding:
            if not ours_is_right(net):
                raise
    return same


def robust(net):
    """For nets on which the original fails: millrace may refuse them, but must neither crash nor hang."""
    out, status, said = minimize(net)
    if status not in (0, *REFUSED):
        raise Finding("robust minimize", f"status {status}: {said[-400:]}")
    for program in (f"{net.folder}/main.pb", f"{out}/main/__model__"):
        if os.path.exists(program) and os.path.exists(f"{net.folder}/feeds.npz"):
            net.tools.call("robust training", "run-program", "--program", program, "--startup", f"{net.folder}/startup.pb", "--feed-steps", f"{net.folder}/feeds.npz",
                           *net.fetches(net.config["losses"]), "--steps", net.config["steps"], "--output", f"{net.work}/out.npz", "--force", "-q")


def check(tools, folder, work, judge):
    """Runs every check of a net; raises the first finding. Returns the counts."""
    net = Net(tools, folder, work, judge)
    if not net.expected:
        robust(net)
        return {"robust": 1}
    main, facts, seed = f"{folder}/main.pb", {}, net.meta["plan"]["seed"]
    threads = ["1", "2"] if seed % 2 else ["2", "1"]             # both numbers of threads with and without passes, over the seeds
    # half of the runs with passes: independent ops side by side, or memory that is filled before and after its use
    more = ([], ["--debug-memory"], ["--inter-op=true"], [])[seed % 4]
    net.trained("training", *net.train("training", main, "--threads", threads[0], *more))
    net.gradients("gradients", f"{folder}/backward.pb")
    net.trained("without passes", *net.train("without passes", main, "--optimize=false", "--threads", threads[1]))
    # GPU kernels and recorded steps, in the memory of the process
    net.trained("emulated GPU", *net.train("emulated GPU", main, "--devices", "gpu:emulated"))
    # of several losses one must be chosen; an error clip works on the values of a device, which are half of a gradient
    if len(net.config["losses"]) == 1 and not net.config["error_clip"]:
        on_two_devices(net)
    differences = []
    facts["equal programs" if same_programs(net, differences) else "other programs"] = 1
    text_form_returns(tools, "text form", f"{folder}/{('main_forward', 'backward', 'main', 'startup')[seed % 4]}.pb", work)
    return dict(facts, differences=differences)
